"""Shows one schedule, move by move: .venv/bin/python -m tests.simulation.replay SEED."""

from __future__ import annotations

import sys
from itertools import count

from tests.simulation.cluster import Cluster

if __name__ == "__main__":
    numbers = count()
    Cluster(int(sys.argv[1]), lambda said: print(f"{next(numbers):5} {said}")).run()
    print("as it should be")
