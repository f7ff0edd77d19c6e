"""What one agent releases in a run of any algorithm: all that its ε depends on, and how a ledger keeps it.

`Releases` is the base of every kind. A kind is a frozen dataclass of plain values, built with keywords. What a ledger
writes down of it is a flat table of words and numbers (`columns`), which must not change: ledgers outlive programs.
What came later is in `added`, with what it means that an old ledger does not have it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.inversion import MOST_BITS, Law
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.grid import NO_GRID, GridCost
from dpp2.schedule import Schedule

if TYPE_CHECKING:
    from dpp2.privacy.paper import PaperDecay, PaperEpsilon

Memory = Literal["none", "own", "difference"]
Plain = int | float | str
Columns = Mapping[str, type[Plain]]

SCHEDULE: Columns = {"step": float, "ratio": float, "slowdown": float, "power": float}  # a `Schedule`, laid flat


@dataclass(frozen=True, kw_only=True)
class Releases(ABC):
    """The base of all kinds."""

    kind: ClassVar[str]  # its name in a ledger
    columns: ClassVar[Columns]  # what a ledger keeps of it, in this order
    added: ClassVar[Mapping[str, Plain]] = {"bits": 0}  # and what else, with its value where a ledger has none
    scales: ClassVar[tuple[str, ...]] = ()  # the fields that make ε smaller by as much as they are made larger together
    papers_own: ClassVar[bool] = False  # whether the paper's theorems speak of it

    smoothness: float  # M ≥ 0, a public Lipschitz bound of this agent's gradient
    bits: int = 0  # of the grid that values and noise lie on (`dpp2.grid`); 0: doubles, and nothing is charged for them

    def __post_init__(self) -> None:
        """Refuse what has no meaning at all; what the theory does not cover is `unsupported_reason`'s to say."""
        if not is_whole(self.bits) or not 0 <= self.bits <= MOST_BITS:
            raise BadInput("grid", self.bits, f"a whole number from 0 to {MOST_BITS}")
        for name in self.scales:
            check_scale(name, getattr(self, name))

    @abstractmethod
    def unsupported_reason(self, rounds: int) -> Unsupported | None:
        """Why there is no pure ε after so many rounds, if there is none."""

    @abstractmethod
    def log_releases(self, rounds: int) -> list[Array]:
        """For each message of a round an array (K,): ln of the most that its noise must shift, in units of its size."""

    @abstractmethod
    def why_infinite(self) -> str:
        """What is to blame where a release hides nothing."""

    @property
    def grid(self) -> GridCost:
        """What the grid adds to every message; for most kinds nothing is known of one."""
        return NO_GRID

    def log2_delta(self, rounds: int, *, published: bool = False) -> float:
        """log2 of the δ_dp that the finite tail of the sampler leaves beside ε; −inf without a grid."""
        return -math.inf

    def epsilon_at(self, rounds: int, delta: float) -> float | None:
        """The ε of (ε, δ_dp) where a kind knows it exactly; None: privacy-loss distributions have to tell."""
        return None

    @property
    def gaussian(self) -> bool:
        """Whether its noise is Gaussian, which has no pure ε."""
        return False

    def log_ratios(self, rounds: int) -> Array | None:
        """ln of what the Gaussian noise of each round must shift, in units of its σ; None where a kind has none."""
        return None

    def log_published(self, rounds: int) -> Array | Unsupported:
        """ln of what publishing the result after K rounds adds, for K = 0 … `rounds`."""
        return Unsupported("the cost of publishing the result is known for dpp2 only")

    def paper_epsilon(self, rounds: int, *, network_smoothness: float | None = None) -> PaperEpsilon | Unsupported:
        """What the paper claims of the same rounds: no guarantee, see `paper`."""
        return Unsupported("the paper accounts for its own algorithm only")

    def paper_decay(
        self, rounds: int, budget: float, *, network_smoothness: float | None = None
    ) -> PaperDecay | Unsupported:
        """The decay that the paper recommends for a budget."""
        return Unsupported("the paper accounts for its own algorithm only")

    def scaled(self, factor: float) -> Self:
        """All scales of noise times one factor."""
        return self.changed(**{name: getattr(self, name) * factor for name in self.scales})

    def changed(self, **values: Any) -> Self:
        """A copy with these fields set."""
        return replace(self, **values)

    def to_dict(self) -> dict[str, Plain]:
        """The flat table that a ledger keeps: plain JSON types, infinities as words."""
        values = self._flat()
        written = {name: cls for name, cls in self.all_columns().items() if values[name] != self.added.get(name)}
        return {"kind": self.kind} | {name: plain(cls(values[name])) for name, cls in written.items()}

    @classmethod
    def all_columns(cls) -> Columns:
        """Those of old and those that came later."""
        return {**cls.columns, **{name: type(value) for name, value in cls.added.items()}}

    @classmethod
    def from_columns(cls, values: Mapping[str, Any]) -> Self:
        """The reverse, of values that have the columns' types."""
        return cls(**values)

    def _flat(self) -> Mapping[str, Any]:
        return vars(self)


@dataclass(frozen=True, kw_only=True)
class AdjacentReleases(Releases):
    """Kinds whose ε rests on the distance δ of adjacent objectives."""

    adjacency: float  # δ > 0, the most that the gradients of adjacent objectives differ by, in the 2-norm

    def unsupported_reason(self, rounds: int) -> Unsupported | None:
        if not (math.isfinite(self.smoothness) and self.smoothness >= 0):
            return Unsupported(f"the gradient needs a finite Lipschitz bound, and smoothness is {self.smoothness:g}")
        if not (math.isfinite(self.adjacency) and self.adjacency > 0):
            return Unsupported(f"adjacent objectives need a finite distance > 0, and adjacency is {self.adjacency:g}")
        return None


@dataclass(frozen=True, kw_only=True)
class LaplaceReleases(AdjacentReleases):
    """Kinds with Laplace noise in every coordinate, whose scales u·r^k decay together."""

    bare: ClassVar[Mapping[str, str]]  # scale → what everybody sees where it is 0, the worst first

    dimension: int  # d ≥ 1, of the decision variable
    decay: float  # r in [0, 1]: round k uses the scale u·r^k; 0 means noise in round 0 only

    def __post_init__(self) -> None:
        if not is_whole(self.dimension) or self.dimension < 1:
            raise BadInput("dimension", self.dimension, "a whole number ≥ 1")
        super().__post_init__()
        if not 0 <= self.decay <= 1:
            raise BadInput("decay", self.decay, "a number in [0, 1]")

    @property
    def grid(self) -> GridCost:
        return GridCost(self.dimension, Law("laplace", self.bits))

    def log2_delta(self, rounds: int, *, published: bool = False) -> float:
        added = self.log_published(rounds) if published else np.empty(0)
        last = [] if isinstance(added, Unsupported) else [added[-1:]]
        return self.grid.log2_delta([*self.log_releases(rounds), *last])

    def why_infinite(self) -> str:
        silent = (f"{scale} = 0: {seen}" for scale, seen in self.bare.items() if getattr(self, scale) == 0)
        return next(silent, "decay = 0: no noise after round 0")


@dataclass(frozen=True, kw_only=True)
class SteppingReleases(AdjacentReleases):
    """Kinds that send x + noise and take a step along the gradient in every round; see `baselines`."""

    steps: Schedule
    memory: Memory  # what of earlier gradients, besides what was sent, the next x rests on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory not in ("none", "own", "difference"):
            raise BadInput("memory", self.memory, '"none", "own" or "difference"')

    @classmethod
    def from_columns(cls, values: Mapping[str, Any]) -> Self:
        kept = {name: value for name, value in values.items() if name not in SCHEDULE}
        return cls(steps=Schedule(*(values[name] for name in SCHEDULE)), **kept)

    def _flat(self) -> Mapping[str, Any]:
        steps = (self.steps.first, self.steps.ratio, self.steps.slowdown, self.steps.power)
        return {**vars(self), **dict(zip(SCHEDULE, steps, strict=True))}


def check_scale(name: str, scale: float) -> None:
    if not (math.isfinite(scale) and scale >= 0):
        raise BadInput(name, scale, "a finite number ≥ 0")


def check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadInput(name, value, "a finite number > 0")


def is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def plain(value: Any) -> Any:
    # JSON has no infinity; float() reads these words back.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def log_of(number: float) -> float:
    """ln, −inf for 0."""
    return math.log(number) if number > 0 else -math.inf


def log_geometric_sum(log_ratio: float, counts: Array) -> Array:
    """ln Σ_{j=0}^{n−1} q^j for every n ≥ 1 in `counts`, q = e^{log_ratio}; no overflow for q > 1.

    For q < 1 the sum is (1−q^n)/(1−q); for q > 1 it is q^{n−1} times the same sum with 1/q.
    """
    if log_ratio == 0:
        return np.log(counts)
    size = abs(log_ratio)
    return max(log_ratio, 0.0) * (counts - 1) + np.log(-np.expm1(-size * counts)) - math.log(-math.expm1(-size))
