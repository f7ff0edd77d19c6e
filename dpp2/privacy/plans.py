"""What a plan is, and how hard to look for one."""

from __future__ import annotations

from dataclasses import dataclass

from dpp2.errors import BadInput
from dpp2.privacy.dpp2_releases import MOST_ROUNDS
from dpp2.privacy.search import NEIGHBOURS, SearchPoint


@dataclass(frozen=True)
class Effort:
    """How hard to look, for τ = 0 and for τ > 0 each."""

    most_rounds: int | None = None  # K ≤ this; None: the experiment's rounds
    free_ratio: bool = True  # whether u_e/u_w is searched, too
    free_steps: bool = True  # whether α, β and ρ are searched, too
    on_data: bool = False  # whether to plan on the experiment's own data
    generations: int = 16  # of the search by the model
    finalists: int = 3  # settings, the model's best, that are run
    trials: int = 3  # runs of each, and twice as many to measure the best two; 0: the model alone decides
    climbs: int = 1  # times that the best so far is compared with its neighbours

    def __post_init__(self) -> None:
        if self.most_rounds is not None and not 1 <= self.most_rounds <= MOST_ROUNDS:
            raise BadInput("most_rounds", self.most_rounds, f"a whole number from 1 to {MOST_ROUNDS}")
        if self.finalists < 1:
            raise BadInput("finalists", self.finalists, "a whole number ≥ 1")
        for name in ("generations", "trials", "climbs"):
            number = getattr(self, name)
            if number < 0:
                raise BadInput(name, number, "a whole number ≥ 0")

    @property
    def runs(self) -> int:
        """At most, per kind of damping."""
        return self.trials * (self.finalists + self.climbs * NEIGHBOURS + 4)


@dataclass(frozen=True)
class Plan:
    """Settings that fit the budget, and the gap to expect of them."""

    epsilon: float  # spent by these rounds, by the accountant
    rounds: int
    decay: float
    u_e: float
    u_w: float
    damping: float
    alpha: float
    beta: float
    rho: float
    model_gap: float  # E Ŵ^K of the model
    measured_gap: float | None  # mean over fresh runs; None without runs, inf if one diverged
    geometric_gap: float | None  # their geometric mean: the gap of a typical run
    spread: tuple[float, float] | None  # the smallest and the largest of them
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """What plans are compared by: measured where there is a measurement."""
        return self.model_gap if self.measured_gap is None else self.measured_gap

    @property
    def point(self) -> SearchPoint:
        """As the search has it."""
        ratio = self.u_e / self.u_w
        return SearchPoint(self.rounds, self.decay, self.damping, ratio, self.alpha, self.beta, self.rho)


@dataclass(frozen=True)
class Plans:
    """The best plan of the paper's algorithm and of the damped one for one budget."""

    budget: float
    start_gap: float  # E Ŵ⁰: what doing nothing leaves, at no cost in privacy
    common_gap: float  # Ŵ of agents that all stay at 0: as free, and often smaller
    undamped: Plan  # τ = 0: the paper
    damped: Plan  # τ > 0
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Plan:
        return self.damped if self.damped.gap <= self.undamped.gap else self.undamped

    @property
    def worthwhile(self) -> bool:
        """Whether the choice beats doing nothing."""
        return self.chosen.gap < self.start_gap
