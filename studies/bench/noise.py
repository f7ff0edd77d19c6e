"""Noise on a grid against noise in doubles: seconds per round of one stream, for networks of different shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import Noise, NoiseStream, seed_key
from dpp2.studies.bench.timing import interleaved, timed

SHAPES = ((50, 10), (1, 10), (100_000, 10), (4, 100_000))  # agents × coordinates
_VARIATES = 2_000_000  # per repetition
_ROUNDS = 3_200  # and no more rounds than these

Note = Callable[[str], None]


def noise(note: Note = lambda _: None) -> list[dict[str, float]]:
    """One row for each shape."""
    rows = []
    for agents, dimension in SHAPES:
        note(f"noise of {agents:,} agents in {dimension:,} dimensions, in doubles and on a grid")
        rows.append(_row(agents, dimension))
    return rows


def _row(agents: int, dimension: int) -> dict[str, float]:
    rounds = min(max(_VARIATES // (agents * dimension), 2), _ROUNDS)
    where = [seed_key(1)] * agents, "w", range(agents), dimension
    scales = np.ones(agents), np.full(agents, 0.999)
    doubles, grid = NoiseStream(*where, *scales), GridNoise(*where, scales, Law("laplace", 20))
    seconds = interleaved({"doubles": _measure(doubles, rounds), "grid": _measure(grid, rounds)})
    return {
        "agents": agents,
        "dimension": dimension,
        "doubles": seconds["doubles"] / rounds,
        "grid": seconds["grid"] / rounds,
        "times": seconds["grid"] / seconds["doubles"],
    }


def _measure(stream: Callable[[int], Noise], rounds: int) -> Callable[[], float]:
    """Each time from round 0 on: what was drawn ahead belongs to later rounds by then. No round's noise is kept."""

    def draw() -> None:
        for k in range(rounds):
            stream(k)

    return lambda: timed(draw)
