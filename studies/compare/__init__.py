"""Methods against each other at equal ε: who is compared (`methods`), how noise is fitted (`fair`), how they are tuned
and measured (`comparison`), and what is written down (`tables`, `pictures`, `page`)."""

from studies.compare.comparison import Comparison, LeftOut, TunedMethod, compare
from studies.compare.methods import Grid, GridPoint, Method, named, of_files

__all__ = ["Comparison", "Grid", "GridPoint", "LeftOut", "Method", "TunedMethod", "compare", "named", "of_files"]
