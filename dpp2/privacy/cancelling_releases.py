"""What one agent releases in a run of DPP³: its gradients, under noise that cancels between neighbours.

Gradient rounds alone cost something (`correlated` derives how much); mixing rounds, averages and x^K are functions of
the messages. So ε as a function of the round is a staircase, and publishing x^K is free.

*Laplace*: a pure ε for every gradient round, (√d·δ + d·g)·exposure, and they add up.
*Gaussian*: exact Gaussian differential privacy; ε is that of (ε, δ_dp) at the δ_dp of the run. A round is charged by
what it adds to ε(G) at this δ_dp. Over several runs both add up: (Σ ε, Σ δ_dp), which holds and is not tight.
*Grid* (`dpp2.grid`, `privacy.grid`): values are rounded to g ≤ 2^−b of the own scale, which adds d·g or √d·g to the
sensitivity; what the finite words of samplers add is `precision`, which `algorithms.cancelling_noise` derives, and what
they miss in the tail is charged as δ_dp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.inversion import TAIL_BITS
from dpp2.privacy import gdp
from dpp2.privacy.colluders import Colluders, WorstCase, worst_case, worst_of
from dpp2.privacy.correlated import Kind, NoiseNetwork, sensitivity
from dpp2.privacy.dpp2_releases import MOST_ROUNDS
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.releases import AdjacentReleases, Columns, check_positive, is_whole

# Of an exposure, rounded up: two machines must charge one ledger the same, to the last bit, and agents that are hidden
# alike share one account. It costs less than a thousandth of ε.
DIGITS = 4
_FARTHEST = 10.28  # σ: 80 bits reach so far (`dpp2.inversion`)


@dataclass(frozen=True, kw_only=True)
class CancellingReleases(AdjacentReleases):
    """Gradient g < G is released in round g·T; `exposure` is the agent's worst one if the own scale were 1."""

    kind = "cancelling"
    columns: ClassVar[Columns] = {
        "noise": str,
        "dimension": int,
        "adjacency": float,
        "own": float,
        "exposure": float,
        "variates": int,
        "precision": float,
        "gradient_rounds": int,
        "mixings": int,
        "delta": float,
    }
    scales = ("own",)

    smoothness: float = 0.0  # the account needs none
    noise: Kind
    dimension: int
    own: float
    exposure: float
    variates: int  # of own and edge noise for one coordinate, in the whole graph
    precision: float  # what finite words add to the ε of a gradient round
    gradient_rounds: int
    mixings: int
    delta: float  # δ_dp that ε is told at; Laplace noise spends none of it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in ("gaussian", "laplace"):
            raise BadInput("noise", self.noise, '"gaussian" or "laplace"')
        for name in ("dimension", "variates", "gradient_rounds", "mixings"):
            if not is_whole(getattr(self, name)) or getattr(self, name) < 1:
                raise BadInput(name, getattr(self, name), "a whole number ≥ 1")
        check_positive("delta", self.delta)
        if not self.exposure > 0:
            raise BadInput("exposure", self.exposure, "a number > 0")

    @property
    def gaussian(self) -> bool:
        return self.noise == "gaussian"

    def log2_delta(self, rounds: int, *, published: bool = False) -> float:
        """The δ_dp of the run under Gaussian noise; under Laplace noise what its finite words miss in the tail."""
        if not self.released(rounds):
            return -math.inf
        return math.log2(self.delta) if self.noise == "gaussian" else self._log2_tail(self.released(rounds))

    def _log2_tail(self, gradient_rounds: int) -> float:
        """Every variate ends where 80 bits do, and what lies within its shift of that end betrays the other world.

        Laplace noise that must shift by t: (1 + e^t)·2^−80 (`privacy.grid`). Gaussian noise ends at F = 10.28 σ, and
        its shifts are no larger than μ: Φ(μ − F), and 2^−78 for what the end and `precision` leave out, in both worlds.
        """
        if not self.own:
            return 0.0
        count = self.dimension * self.variates * gradient_rounds
        if self.noise == "gaussian":
            lost = 0.5 * math.erfc((_FARTHEST - min(self.cost(), _FARTHEST)) / math.sqrt(2)) + 2.0 ** (2 - TAIL_BITS)
        else:
            lost = (1 + math.exp(min(self.adjacency / self.own + self._rounding, 100.0))) * 2.0**-TAIL_BITS
        return min(math.log2(count * lost), 0.0)

    def cost(self) -> float:
        """μ, or a pure ε, of one gradient round."""
        if not self.own or math.isinf(self.exposure):
            return math.inf
        shift = sensitivity(self.noise, self.adjacency / self.own, self.dimension, self._rounding)
        return shift * self.exposure + (self._bins(1) if self.noise == "laplace" else 0.0)

    def released(self, rounds: int) -> int:
        """Gradient rounds among rounds 0 … K−1."""
        return min(-(-rounds // self.mixings), self.gradient_rounds)

    def _horizon(self, gradient_rounds: int) -> int:
        """Gradient rounds whose tails are charged: all that the run is meant to have, from the first one on."""
        return max(gradient_rounds, self.gradient_rounds)

    def epsilon_of(self, gradient_rounds: int, delta: float) -> float:
        """ε of so many gradient rounds, at this δ_dp."""
        if self.noise == "laplace" or not gradient_rounds:
            return self.cost() * gradient_rounds if gradient_rounds else 0.0
        left = delta - 2.0 ** self._log2_tail(self._horizon(gradient_rounds))
        if left <= 0:
            return math.inf
        return gdp.epsilon_at(self.cost() * math.sqrt(gradient_rounds), left) + self._bins(gradient_rounds)

    def epsilon_at(self, rounds: int, delta: float) -> float:
        """The ε of (ε, δ_dp) after so many rounds. Laplace noise stays with its pure ε, which holds for every δ_dp."""
        return self.epsilon_of(self.released(rounds), delta)

    def log_releases(self, rounds: int) -> list[Array]:
        logs = np.full(rounds, -np.inf)
        G = self.released(rounds)
        totals = self._totals(np.arange(G + 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            added = np.log(np.maximum(np.diff(totals), 0.0))
        logs[: G * self.mixings : self.mixings] = np.where(np.isinf(totals[1:]), np.inf, added)
        return [logs]

    def _totals(self, counts: NDArray[np.int_]) -> Array:
        """`epsilon_of` so many gradient rounds, at the δ_dp of the run."""
        if self.noise == "laplace":
            return np.where(counts > 0, self.cost() * np.maximum(counts, 1), 0.0)
        left = np.array([self.delta - 2.0 ** self._log2_tail(max(self._horizon(g), 1)) for g in counts.tolist()])
        if math.isinf(self.cost()):
            return np.where(counts > 0, np.inf, 0.0)
        mu = np.where((left > 0) | (counts == 0), self.cost() * np.sqrt(counts), np.inf)
        bins = np.array([self._bins(int(g)) for g in counts])
        return np.asarray(gdp.epsilons_at(mu, np.where(left > 0, left, self.delta)) + bins)

    def log_published(self, rounds: int) -> Array:
        """Nothing: x^K is a function of the messages."""
        return np.full(rounds + 1, -np.inf)

    def why_infinite(self) -> str:
        if not self.own:
            return "own = 0: gradients are sent as they are"
        return "with these colluders, nobody's noise is left to hide this agent (`dpp2 privacy colluders`)"

    @property
    def _rounding(self) -> float:
        """g in units of the own scale."""
        return 2.0**-self.bits if self.bits else 0.0

    def _bins(self, gradient_rounds: int) -> float:
        return gradient_rounds * self.precision


@dataclass(frozen=True, kw_only=True)
class EveryRoundReleases(CancellingReleases):
    """A gradient in every round, for as long as the run goes on (DECOR)."""

    kind = "cancelling every round"
    columns: ClassVar[Columns] = {
        name: cls for name, cls in CancellingReleases.columns.items() if name not in ("gradient_rounds", "mixings")
    }

    gradient_rounds: int = MOST_ROUNDS
    mixings: int = 1

    def _horizon(self, gradient_rounds: int) -> int:
        """How long a run will go on is not known, so a round is charged its own tail only."""
        return gradient_rounds


def worst_exposures(network: NoiseNetwork, colluders: int | list[list[int]]) -> WorstCase | Unsupported:
    """The worst case over all sets of so many colluders, or over named sets; kept, since it is asked for often."""
    sets = colluders if isinstance(colluders, int) else tuple(tuple(one) for one in colluders)
    return _kept(_Asked(network), sets)


def rounded_up(exposure: float) -> float:
    """To `DIGITS` digits, never down."""
    if not math.isfinite(exposure) or exposure == 0:
        return exposure
    unit = 10.0 ** (math.floor(math.log10(exposure)) + 1 - DIGITS)
    return math.ceil(exposure / unit * (1 - 1e-7)) * unit * (1 + 1e-7)  # what is rounding error stays below


class _Asked:
    """A network that is the same as another one with the same values."""

    def __init__(self, network: NoiseNetwork) -> None:
        self.network = network
        self._values = (
            network.kind,
            network.quorum,
            network.edges.tobytes(),
            network.own.tobytes(),
            network.edge.tobytes(),
        )

    def __hash__(self) -> int:
        return hash(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._values == other._values


@lru_cache(maxsize=64)
def _kept(asked: _Asked, colluders: int | tuple[Colluders, ...]) -> WorstCase | Unsupported:
    if isinstance(colluders, int):
        return worst_case(asked.network, colluders)
    return worst_of(asked.network, colluders)
