"""Methods against each other at equal ε: who is compared (`methods`), how noise is fitted (`fair`), how they are tuned
and measured (`comparison`), and what is written down (`tables`, `pictures`, `page`)."""

from orchestrator.compare.comparison import Comparison, Entry, LeftOut, compare
from orchestrator.compare.methods import Grid, Method, Point, named, of_files

__all__ = ["Comparison", "Entry", "Grid", "LeftOut", "Method", "Point", "compare", "named", "of_files"]
