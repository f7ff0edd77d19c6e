"""`dpp2 reproduce zero-sum`: noise that a node splits over its own channels hides nothing from whoever hears them all.

The idea is Zip-DL's (from memory of Biswas et al. 2025; surety: fair, and only of the idea): agent i sends to each of
its m neighbours another message,

    x_i + n_ij,    n_ij = z_ij − (1/m) Σ_l z_il,    z_ij ~ N(0, σ²),    so that Σ_j n_ij = 0,

and the noise is gone from averages. One neighbour sees x_i under noise of the scale σ√(1 − 1/m). But
an eavesdropper on all channels of i takes the mean of what it hears, and has x_i. Without one of the m channels the
mean of the others is off by σ/√(m(m − 1)). Nothing that is split over an agent's own channels can do better, since the
receivers' mean is meant to be free of it. DPP³ and DECOR split over edges instead: noise is gone from the sum over ALL
agents, and of a single one's messages none is free of it. Our primitive broadcasts one row to all neighbours, so this
is an exhibit on the paper's graph and no algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dpp2 import Experiment
from dpp2.arrays import Array
from dpp2.store.files import json_text, write_text
from dpp2.studies.reproduce.study import Claim, Files, Order, Study
from dpp2.studies.tables import TextTable

SCALES = (1.0, 1e3, 1e6)
DIMENSION = 10
RECOVERED = 1e-15  # of x, in units of the noise where that is larger


@dataclass(frozen=True)
class Exhibit:
    """Root mean squares over coordinates, agents and seeds, of x ~ N(0, 1); `worst` is the largest of all errors."""

    scale: float
    one_channel: float
    all_but_one: float
    all_channels: float
    worst: float


def channels(x: Array, count: int, scale: float, rng: np.random.Generator) -> Array:
    """What an agent sends over each of its channels, (count, d)."""
    z = scale * rng.standard_normal((count, len(x)))
    return np.asarray(x + (z - z.mean(axis=0)))


def exhibited(scale: float, seeds: int) -> Exhibit:
    degrees = Experiment.load().resolve().network.graph().degrees.tolist()
    errors: dict[str, list[Array]] = {"one_channel": [], "all_but_one": [], "all_channels": []}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for count in degrees:
            x = rng.standard_normal(DIMENSION)
            heard = channels(x, count, scale, rng)
            errors["one_channel"].append(heard[0] - x)
            errors["all_but_one"].append(heard[1:].mean(axis=0) - x)
            errors["all_channels"].append(heard.mean(axis=0) - x)
    means = {name: float(np.sqrt(np.mean(np.square(found)))) for name, found in errors.items()}
    return Exhibit(scale, **means, worst=float(np.abs(errors["all_channels"]).max()))


class ZeroSum(Study[Sequence[Exhibit]]):
    rounds = 1  # one message is enough

    def run(self, order: Order) -> list[Exhibit]:
        return [exhibited(scale, order.seeds) for scale in SCALES]

    def judge(self, made: Sequence[Exhibit]) -> list[Claim]:
        off = max(one.all_channels / one.scale for one in made)
        held = off <= RECOVERED
        evidence = f"the mean of its messages is x to {off:.0e} of the noise, which is rounding"
        return [Claim("whoever hears all channels of an agent cancels noise that sums to 0 over them", held, evidence)]

    def write(self, made: Sequence[Exhibit], out: Path) -> Files:
        files = {"rows": out / "zero-sum.json"}
        write_text(files["rows"], json_text({"rows": [asdict(one) for one in made]}))
        return files

    def document(self, made: Sequence[Exhibit], files: Files) -> object:
        return {
            "rows": [asdict(one) for one in made],
            "claims": [asdict(claim) for claim in self.claims(made)],
            "files": {name: str(path) for name, path in files.items()},
        }

    def table(self, made: Sequence[Exhibit]) -> TextTable:
        head = ("noise", "error of x from one channel", "from all but one", "from all", "the worst")
        return TextTable(head, [tuple(f"{value:.1e}" for value in asdict(one).values()) for one in made])


ZERO_SUM = ZeroSum()
