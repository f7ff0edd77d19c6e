"""The algorithms, as round programs. A new one is a new file and one more entry in `ALGORITHMS`."""

from dpp2.algorithms.base import AlgorithmSection
from dpp2.algorithms.dpp2 import Dpp2Section

ALGORITHMS: tuple[type[AlgorithmSection], ...] = (Dpp2Section,)
