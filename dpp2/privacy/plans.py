"""What a plan is, and how hard to look for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from dpp2.errors import BadInput
from dpp2.privacy.dpp2_releases import MOST_ROUNDS
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.search import NEIGHBOURS, SearchPoint

if TYPE_CHECKING:
    from dpp2.experiment import Experiment

LOOKED = "planned by looking at the data, so the choice itself is outside ε"
SURROGATE = (
    "planned on a public surrogate of the data, as large and as steep: the gap is the surrogate's, not the data's"
)
Progress = Callable[[int, int, str], None]  # (steps done, steps in all at most, what comes next)
Settings = Mapping[str, int | float]  # by the names that `--set` takes


class AnyPlan(Protocol):
    """What whoever prints plans may ask of one."""

    @property
    def epsilon(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def spread(self) -> tuple[float, float] | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def summary(self) -> str: ...


class AnyPlans(Protocol):
    """The best plans for one budget."""

    @property
    def budget(self) -> float: ...
    @property
    def start_gap(self) -> float: ...
    @property
    def common_gap(self) -> float: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def chosen(self) -> AnyPlan: ...
    @property
    def kinds(self) -> Mapping[str, AnyPlan]: ...
    def document(self) -> dict[str, object]: ...


class Planner(Protocol):
    """What an algorithm declares: the best plans for each budget, in ascending order, or why there are none."""

    def __call__(
        self, experiment: Experiment, budgets: Sequence[float], effort: Effort, progress: Progress | None
    ) -> Sequence[AnyPlans] | Unsupported: ...


class Steps:
    """Counts steps for a progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, note: str) -> None:
        self.jump_to(self.done + 1, note, self.done)

    def jump_to(self, done: int, note: str, shown: int | None = None) -> None:
        """Where steps turned out not to be needed."""
        self.done = done
        if self.progress:
            self.progress(min(done if shown is None else shown, self.total), self.total, note)


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
    def settings(self) -> Settings:
        return {
            "run.rounds": self.rounds,
            "noise.decay": self.decay,
            "noise.u_e": self.u_e,
            "noise.u_w": self.u_w,
            "algorithm.damping": self.damping,
            "algorithm.alpha": self.alpha,
            "algorithm.beta": self.beta,
            "algorithm.rho": self.rho,
        }

    @property
    def summary(self) -> str:
        damped = f", τ = {self.damping:.3g}" if self.damping else ""
        return f"K = {self.rounds}, r = {self.decay:.4g}, u_e = {self.u_e:.3g}{damped}"

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

    @property
    def kinds(self) -> Mapping[str, Plan]:
        return {"τ = 0 (the paper)": self.undamped, "τ > 0 (damped)": self.damped}

    def document(self) -> dict[str, object]:
        both = {"undamped": asdict(self.undamped), "damped": asdict(self.damped)}
        return {**_head(self), **asdict(self.chosen), **both}


@dataclass(frozen=True)
class SettingsPlan:
    """The same where what is planned are an algorithm's own settings, by their names."""

    epsilon: float
    settings: Settings
    summary: str
    model_gap: float
    measured_gap: float | None
    spread: tuple[float, float] | None
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        return self.model_gap if self.measured_gap is None else self.measured_gap


@dataclass(frozen=True)
class SettingsPlans:
    """The best one for one budget."""

    budget: float
    start_gap: float
    common_gap: float
    chosen: SettingsPlan
    notes: tuple[str, ...] = ()

    @property
    def worthwhile(self) -> bool:
        return self.chosen.gap < self.start_gap

    @property
    def kinds(self) -> Mapping[str, SettingsPlan]:
        return {"mean of runs": self.chosen}

    def document(self) -> dict[str, object]:
        return {**_head(self), **asdict(self.chosen)}


def _head(plans: Plans | SettingsPlans) -> dict[str, object]:
    return {"budget": plans.budget, "start_gap": plans.start_gap, "worthwhile": plans.worthwhile}


OnePlan = TypeVar("OnePlan", Plan, SettingsPlan)


def better(found: OnePlan, smaller: OnePlan) -> OnePlan:
    """The plan of a smaller budget where it does no worse: it fits here too."""
    if found.gap < smaller.gap:
        return found
    note = f"the plan that spends {smaller.epsilon:.6g} does no worse; the rest of the budget stays unspent"
    return replace(smaller, notes=tuple(dict.fromkeys((*smaller.notes, note))))
