"""DPP³ (ours; docs/tier-three.md): noise that is kept, cancels between neighbours, and is mixed for free.

G gradient rounds, each the first of T rounds of mixing, and E rounds of mixing at the end. Round k of agent i, sums
over its neighbours and itself; g = k div T and t = k mod T for k < G·T:
    t = 0    n = own^g + Σ_j sgn(j − i) m_ij^g             the only rounds that cost ε
             v = x − α_g ([∇f(x)] + [n])                   [·]: rounded to the grid of the noise
             x ← v − Σ_j p_ij v_j / c                      after v was broadcast
    t ≥ 1    v = x                                         broadcast: Chebyshev's mixing (`chebyshev`)
             x ← ω_t (v − Σ_j p_ij v_j / c − v⁻) + v⁻      v⁻: what was sent one round ago
    after a cycle of the second half: total ← total + x; after the last one: x ← total / (how many)
    k ≥ G·T  E further rounds of the same mixing, from that average
    last     x ← x⁰ + s (x − x⁰),   s = q/(q + κ),   q = M̄² ‖x − x⁰‖² G / (d · variance of the mean noise)
α_g = α/(1 + slowdown·g/G). The last line pulls what is mostly noise back to x⁰ (shrinkage in the manner of James and
Stein; κ = 0 switches it off). x⁰ is public, so x is a function of the messages: mixing, averages, s and x^K cost
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import QUIET, AgentContext, AlgorithmSection, Broadcast, NoiseSection, Private, Round
from dpp2.algorithms.cancelling_noise import released
from dpp2.algorithms.chebyshev import Chebyshev
from dpp2.algorithms.declared import Calibrated, GradientSchedule, Heard, Recovered, Tunable
from dpp2.algorithms.dpp3_noise import Dpp3Noise
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import SILENCE, Noise
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.privacy.correlated import NoiseNetwork
from dpp2.privacy.releases import Releases
from dpp2.schema import Table
from dpp2.weights import Spectrum

if TYPE_CHECKING:
    from dpp2.experiment import Experiment
    from dpp2.privacy.plans import Planner


@dataclass(frozen=True)
class Cycle:
    """Where a round lies: gradient g, mixing step t; `final`: in the mixing at the end; `idle`: all is done."""

    g: int
    t: int
    final: bool
    idle: bool

    @property
    def is_gradient(self) -> bool:
        return self.t == 0 and not self.final


class Dpp3Section(AlgorithmSection):
    """What is left out is settled when the experiment is resolved: `dpp3_defaults`."""

    noise_section = Dpp3Noise
    phases = ("v",)
    noises = ("own", "edge")
    scalars = ()
    publishes = True
    result_is_covered = True
    needs_smoothness = False
    edge_noise = True
    releases = (CancellingReleases,)
    x_phase = "v"
    algebra = "one message"
    tunables = (
        Tunable("alpha", 1e-3, 100.0),
        Tunable("gradient_rounds", 1, 32, least=1, whole=True),
        Tunable("mixings", 1, 32, least=1, whole=True),
        Tunable("slowdown", 0.0, 20.0, "linear", least=0.0),
        Tunable("average", 0.0, 1.0, "linear", least=0.0, most=1.0),
        Tunable("shrinkage", 0.0, 100.0, "linear", least=0.0),
    )
    plans_rounds = True

    name: Literal["dpp3"] = "dpp3"
    gradient_rounds: int | None = Field(
        None, ge=1, description="a whole number ≥ 1 (default: 20; 1 or 3 with Laplace noise)"
    )
    mixings: int | None = Field(
        None, ge=1, description="a whole number ≥ 1: rounds per gradient (default: by the graph)"
    )
    final_mixings: int | None = Field(None, ge=0, description="a whole number ≥ 0 (default: as many as mixings)")
    alpha: float | None = Field(None, gt=0, description="a number > 0 (default: 2/M̄)")
    slowdown: float | None = Field(
        None, ge=0, description="a number ≥ 0: the last step is 1/(1 + slowdown) of the first (default: 4; Laplace: 0)"
    )
    average: float = Field(
        0.5, ge=0, le=1, description="a number from 0 to 1: the share of gradients averaged at the end"
    )
    shrinkage: float = Field(25.0, ge=0, description="a number ≥ 0: κ (0: none)")
    smoothness: float | None = Field(
        None, ge=0, description="a number ≥ 0: M̄ (default: privacy.smoothness, or the data's)"
    )
    smoothness_from_data: bool | None = Field(
        None, description="true or nothing: set where `smoothness` is computed from the data"
    )
    connectivity: float | None = Field(None, gt=0, description="a number > 0: λ_2(P) (default: computed)")
    largest: float | None = Field(None, gt=0, description="a number > 0: λ_max(P) (default: computed)")

    def settled(self, experiment: Experiment) -> Experiment:
        from dpp2.algorithms.dpp3_defaults import settled  # SciPy's graphs: for those who resolve

        return settled(experiment, self)

    def digest_table(self) -> Table:
        """Without the mark: where M̄ came from does not change what is computed."""
        return {key: value for key, value in self.table().items() if key != "smoothness_from_data"}

    # The schedule, of a settled section.

    @property
    def G(self) -> int:
        assert self.gradient_rounds is not None
        return self.gradient_rounds

    @property
    def T(self) -> int:
        assert self.mixings is not None
        return self.mixings

    @property
    def E(self) -> int:
        assert self.final_mixings is not None
        return self.final_mixings

    @property
    def rounds(self) -> int:
        """All rounds in which something happens."""
        return self.G * self.T + self.E

    @property
    def period(self) -> int:
        """Within a cycle agents are as far apart as the noise of their edges is large."""
        return self.T

    @property
    def first_averaged(self) -> int:
        return min(int(self.G * (1 - self.average)), self.G - 1)

    @property
    def chebyshev(self) -> Chebyshev:
        assert self.connectivity is not None
        assert self.largest is not None
        return Chebyshev(self.connectivity, self.largest)

    def cycle(self, k: int) -> Cycle:
        cycles = self.G * self.T
        if k < cycles:
            return Cycle(*divmod(k, self.T), final=False, idle=False)
        return Cycle(self.G, k - cycles, final=True, idle=k >= self.rounds)

    def step_of(self, g: int) -> float:
        assert self.alpha is not None
        return self.alpha / (1 + (self.slowdown or 0.0) * g / self.G)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        if self.largest is not None and eigenvalues.largest > self.largest * (1 + 1e-6):
            wanted = f"at least λ_max(P) = {eigenvalues.largest:.6g}: agents drift apart otherwise"
            raise BadInput("algorithm.largest", self.largest, wanted)

    # The account.

    def accounts(
        self, experiment: Experiment, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        from dpp2.algorithms.cancelling_scales import accounts

        return accounts(experiment, dimension, adjacency, CancellingReleases, gradient_rounds=self.G, mixings=self.T)

    def calibrated(self, experiment: Experiment, budget: float, solve: str) -> Calibrated:
        from dpp2.algorithms.dpp3_calibrate import calibrated

        return calibrated(experiment, budget, solve)

    def planner(self) -> Planner:
        from dpp2.algorithms.dpp3_plan import frontier

        return frontier

    def gradient_schedule(self) -> GradientSchedule:
        steps = tuple(self.step_of(g) for g in range(self.G))
        return GradientSchedule(steps, self.T, self.first_averaged, self.smoothness or 0.0, self.shrinkage)

    def noise_network(self, experiment: Experiment) -> NoiseNetwork:
        assert isinstance(experiment.noise, Dpp3Noise)
        return experiment.noise.network(experiment.network.graph())

    def steady(self) -> tuple[Dpp3Section, float]:
        assert self.alpha is not None
        return self.updated(mixings=1, slowdown=0.0), self.alpha

    def remarks(self, experiment: Experiment) -> Iterator[str]:
        from dpp2.algorithms.dpp3_defaults import remarks

        yield from remarks(experiment)

    # For attackers.

    def recovered(self, heard: Heard) -> Recovered:
        """x before every round; the gradient, under its noise, in gradient rounds. x⁰ is taken to be 0."""
        v = heard.phases["v"]
        Pv, x, gradient = heard.mix(v), np.empty_like(v), np.full_like(v, np.nan)
        state, mixing = start(np.zeros_like(v[0])), Mixing(self)
        for k in range(len(v)):
            x[k], cycle = state.x, self.cycle(k)
            if cycle.is_gradient:
                gradient[k] = (state.x - v[k]) / self.step_of(cycle.g)
            state = mixing.moved(state, v[k], Pv[k], k, None)
        return Recovered(x, gradient)

    def program(self, context: AgentContext, noise: NoiseSection) -> Dpp3:
        assert isinstance(noise, Dpp3Noise)
        return Dpp3(self, noise, context)


@dataclass(frozen=True, eq=False)
class Dpp3State:
    x: Array  # what the next round starts from
    before: Array  # v⁻
    total: Array  # Σ of the x that are averaged
    x0: Array


def start(x0: Array) -> Dpp3State:
    return Dpp3State(x0, x0, np.zeros_like(x0), x0)


class Mixing:
    """From what was sent to the next state. No private value enters: anybody who hears everything can do it."""

    def __init__(self, section: Dpp3Section) -> None:
        self.section, self.chebyshev = section, section.chebyshev
        self.weights = [0.0, *self.chebyshev.weights(max(section.T, section.E))]

    def moved(self, s: Dpp3State, sent: Array, Psent: Array, k: int, shrinkage: float | None) -> Dpp3State:
        """`shrinkage`: κ·d·variance/(M̄² G); None where nobody asks for the end."""
        cycle = self.section.cycle(k)
        if cycle.idle:
            return s
        if cycle.t == 0:
            x = self.chebyshev.first(sent, Psent)
        else:
            x = self.chebyshev.next(self.weights[cycle.t], sent, Psent, s.before)
        return self._closed(replace(s, x=x, before=sent), cycle, k, shrinkage)

    def _closed(self, s: Dpp3State, cycle: Cycle, k: int, shrinkage: float | None) -> Dpp3State:
        """What the end of a cycle, of all cycles and of the run adds."""
        section = self.section
        if not cycle.final and cycle.t == section.T - 1:
            total = s.total + s.x if cycle.g >= section.first_averaged else s.total
            last = cycle.g == section.G - 1
            s = replace(s, total=total, x=total / (section.G - section.first_averaged) if last else s.x)
        return replace(s, x=shrunk(s.x, s.x0, shrinkage)) if k == section.rounds - 1 and shrinkage else s


def shrunk(x: Array, x0: Array, shrinkage: float) -> Array:
    """The last line of the module's table."""
    moved = x - x0
    q = np.array([[np.dot(row, row)] for row in moved])  # row by row: the same bits alone and among others
    return np.asarray(x0 + q / (q + shrinkage) * moved)


class Dpp3:
    """The round program of DPP³ for the agents in `context.owned`."""

    def __init__(self, section: Dpp3Section, noise: Dpp3Noise, context: AgentContext) -> None:
        self.objective, self.section, self.mixing = context.objective, section, Mixing(section)
        self.g, self.noise = noise.g, noise.streams(context, section.G)
        self.shrinkage = shrinkage_of(section, noise, context.agents, context.objective.dimension)

    def quiet(self) -> Dpp3:
        copied = copy(self)
        copied.noise = dict.fromkeys(self.noise, QUIET)
        return copied

    def start(self, x0: Array) -> Dpp3State:
        return start(x0)

    def round(self, s: Dpp3State, k: int) -> Round:
        f, grad = self.objective(s.x)  # outside gradient rounds for the records alone
        cycle, sent = self.section.cycle(k), s.x
        noise: dict[str, Noise] = {"own": SILENCE, "edge": SILENCE}
        if cycle.is_gradient:
            noise = {name: draw(cycle.g) for name, draw in self.noise.items()}
            sent = s.x - self.section.step_of(cycle.g) * released(grad, noise, self.g)
        Psent = yield Broadcast("v", sent)
        return self.mixing.moved(s, sent, Psent, k, self.shrinkage), Private(f, grad, noise, {})

    def published(self, s: Dpp3State, k: int) -> Array:
        """x^K as it is."""
        return s.x


def shrinkage_of(section: Dpp3Section, noise: Dpp3Noise, agents: int, dimension: int) -> float:
    """κ·d·variance/(M̄² G); 0 where nothing is to be shrunk."""
    if not section.smoothness:
        return 0.0
    squared = section.smoothness * section.smoothness  # a power would raise where this is ∞
    return section.shrinkage * dimension * noise.mean_variance(agents) / (squared * section.G)
