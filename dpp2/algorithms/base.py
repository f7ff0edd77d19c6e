"""What a round program is: a generator without I/O over the rows of the agents it owns.

It yields what is broadcast, is sent back the weighted sum over neighbours, and returns the next state together with
what it keeps private. All N agents in one embedded run, or one agent in a container: the same lines run everywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.algorithms.declared import (
    Algebra,
    Calibrated,
    GradientSchedule,
    Heard,
    PlannerModel,
    Recovered,
    Tunable,
    TwoTiers,
)
from dpp2.arrays import Array
from dpp2.compression import EVERYTHING, RowEncoding
from dpp2.errors import BadInput, Inadmissible
from dpp2.inversion import MOST_BITS
from dpp2.keys import SILENCE, Noise, RunKeys
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.releases import Releases
from dpp2.problems.base import Objective
from dpp2.schema import Section, Table
from dpp2.stability import Divergence, Gradient
from dpp2.weights import Spectrum

if TYPE_CHECKING:
    from dpp2.experiment import Experiment
    from dpp2.privacy import Dpp2Releases
    from dpp2.privacy.correlated import NoiseNetwork
    from dpp2.privacy.plans import Planner
    from dpp2.theory import Condition
    from dpp2.topology import NetworkSection
    from dpp2.weights import Matrix


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Rows that go to every neighbour. The driver answers with Σ_j p_ij rows_j for the rows owned here."""

    phase: str
    rows: Array
    covered: bool = True  # whether float64 carries all noise of this round; its first message says so (`dpp2.grid`)


@dataclass(frozen=True, eq=False)
class Private:
    """What a round computed and never sends. The driver records it as truth; no attack ever sees it."""

    values: Array  # f_i(x_i^k)
    grad: Array  # ∇f_i(x_i^k)
    noise: Mapping[str, Noise]
    scalars: Mapping[str, float]  # one number for the whole network, such as η^k


Round = Generator[Broadcast, Array, tuple[Any, Private]]


class Program(Protocol):
    """One algorithm, set up for the agents owned here."""

    objective: Objective

    def quiet(self) -> Program:
        """The same program without noise, for a trial that tells divergence from noise."""

    def start(self, x0: Array) -> Any: ...

    def round(self, s: Any, k: int) -> Round: ...

    def published(self, s: Any, k: int) -> Array | Unsupported:
        """What may be released of the state s before round k, at the price that the releases name; or why nothing."""


class Draw(Protocol):
    """One noise, and how it is added to values that are released: on a grid (`dpp2.grid`), or in doubles."""

    def __call__(self, k: int) -> Noise:
        """The noise of a round."""

    def add(self, k: int, values: Array) -> Array:
        """Values and the noise of a round: what is released."""

    def add_beside(self, k: int, values: Array, shared: Array) -> Array:
        """The same with something on top that messages determine."""

    def add_scaled(self, k: int, values: Array, factors: Array) -> tuple[Array, Array]:
        """The same with noise times a public factor for each agent, (agents, 1); and that noise."""

    def covers(self, k: int, values: Array, factors: Array | None = None) -> bool:
        """Whether float64 carries these values and the noise of a round."""


class Doubles:
    """Noise in doubles, added as doubles are: no account holds for it on a real computer (`noise.grid = 0`)."""

    def __init__(self, draw: Callable[[int], Noise]) -> None:
        self._draw = draw
        self._last: tuple[int, Noise] = -1, SILENCE

    def __call__(self, k: int) -> Noise:
        if self._last[0] != k:
            self._last = k, self._draw(k)
        return self._last[1]

    def add(self, k: int, values: Array) -> Array:
        return values + self(k)

    def add_beside(self, k: int, values: Array, shared: Array) -> Array:
        return values + shared + self(k)

    def add_scaled(self, k: int, values: Array, factors: Array) -> tuple[Array, Array]:
        noise = factors * (np.zeros_like(values) + self(k))
        return values + noise, noise

    def covers(self, k: int, values: Array, factors: Array | None = None) -> bool:
        return True


QUIET = Doubles(lambda k: SILENCE)


class NoisyProgram:
    """What programs with named noises have in common; parameters are read from their section."""

    def __init__(self, section: Any, context: AgentContext, noise: Mapping[str, Draw]) -> None:
        self.section, self.objective, self.noise = section, context.objective, noise

    def quiet(self) -> Self:
        copied = copy(self)
        copied.noise = dict.fromkeys(self.noise, QUIET)
        return copied

    def drawn(self, k: int) -> dict[str, Noise]:
        """Every noise of round k."""
        return {name: draw(k) for name, draw in self.noise.items()}

    def covers(self, k: int, **values: Array) -> bool:
        """Whether float64 carries these values with the noises of these names."""
        return all(self.noise[name].covers(k, value) for name, value in values.items())

    def published(self, s: Any, k: int) -> Array | Unsupported:
        return Unsupported(f"how to publish a result of {self.section.name} is not known")


@dataclass(frozen=True)
class EdgeKey:
    """The run's secret of one edge at an agent owned here; only its two ends have it."""

    ends: tuple[int, int]  # ascending
    number: int  # its place among all edges of the graph
    key: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class AgentContext:
    """What a program needs to know of the run besides its own parameters."""

    owned: Sequence[int]
    agents: int
    objective: Objective
    keys: RunKeys
    edges: Sequence[EdgeKey] = ()  # of the agents owned here, for algorithms with `edge_noise`
    edge_count: int = 0  # of the whole graph


class NoiseSection(Section):
    """`[noise]`: which scales there are belongs to the algorithm."""

    scales: ClassVar[tuple[str, ...]]
    without_epsilon: ClassVar[tuple[str, ...]] = ()  # scales whose noise buys no ε: what it covers is never sent
    tunables: ClassVar[tuple[Tunable, ...]] = ()  # what a search may vary besides one factor on all scales
    pure: ClassVar[Mapping[str, str]] = {}  # settings that give a pure ε, where there is a choice

    grid: int = Field(20, ge=0, le=MOST_BITS, description=f"a whole number from 0 to {MOST_BITS} (0: noise in doubles)")

    @abstractmethod
    def streams(self, context: AgentContext) -> Mapping[str, Draw]:
        """Every noise of the agents in `context.owned`, by its name."""

    def digest_table(self) -> Table:
        """Without a grid an experiment is what it was before there were grids."""
        return {key: value for key, value in super().digest_table().items() if key != "grid" or value}

    def check(self, agents: int) -> None:
        """Lists must have one entry per agent."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, list) and len(value) != agents:
                raise BadInput(f"noise.{key}", value, f"one entry for each of the {agents} agents, not {len(value)}")

    @property
    def alike(self) -> bool:
        """Whether all agents have the same settings, so that one of them stands for all."""
        return not any(isinstance(getattr(self, key), list) for key in type(self).model_fields)

    def scales_in(self, rounds: NDArray[np.int_], agents: int) -> dict[str, Array]:
        """The scale u·r^k of every noise, (rounds, agents); r = 1 where the noise does not decay."""
        decay = np.broadcast_to(getattr(self, "decay", 1.0), agents)
        with np.errstate(under="ignore"):
            shrunk = decay ** rounds[:, None]
        return {name: np.broadcast_to(getattr(self, name), agents) * shrunk for name in self.scales}


class AlgorithmSection(Section):
    """`[algorithm]`: parameters of one algorithm, how to set it up, and what others need to know of it.

    Nobody outside `dpp2.algorithms` asks for a class or a name. What is special about an algorithm is declared here,
    with a default that suits most.
    """

    # The algorithm itself.
    noise_section: ClassVar[type[NoiseSection]]
    # What goes over the wire each round, in order. Not "x", "grad", "values" or a noise: records have one name space.
    phases: ClassVar[tuple[str, ...]]
    noises: ClassVar[tuple[str, ...]]  # the names its noise has in truth.npz
    scalars: ClassVar[tuple[str, ...]]
    step: ClassVar[str] = "alpha"  # the parameter that a diverging run should try smaller
    publishes: ClassVar[bool] = False  # whether its program says how a result is published: `Program.published`
    remedy: ClassVar[str | None] = None  # a setting that may help a run in which the noise wins
    topology: ClassVar[str | None] = None  # the topology that it brings along; `check_network` refuses others
    program_class: ClassVar[Callable[..., Program]]  # its round program, made of section, context and noises
    papers_own: ClassVar[bool] = False  # whether the paper's theorems speak of it
    result_is_covered: ClassVar[bool] = False  # whether x^K is a function of the messages, so that ε covers it
    edge_noise: ClassVar[bool] = False  # whether neighbours share secrets
    needs_smoothness: ClassVar[bool] = True  # whether its account rests on a bound of every M_i; if not, it may clip
    releases: ClassVar[tuple[type[Releases], ...]] = ()  # kinds of its own in `mechanisms`, which ledgers must read

    # For comparisons: what is tuned, under which names, and who stands for it where it is not compared itself.
    tunables: ClassVar[tuple[Tunable, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, float]]] = {}  # name → settings that are held (none: its own name)
    plans_rounds: ClassVar[bool] = False  # whether its settings decide how many rounds there are
    with_noise_it_is: ClassVar[str | None] = None  # another algorithm's name

    # For attackers, who know the algorithm: what its messages stand for.
    x_phase: ClassVar[str | None] = None  # the phase that carries x, up to noise, mixing and compression
    gradient_phase: ClassVar[str | None] = None  # likewise the gradient
    algebra: ClassVar[Algebra | None] = None

    name: str

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        """Refuse parameters under which the algorithm is not defined."""

    @property
    def period(self) -> int:
        """Rounds after which the gap is comparable with itself again, for whoever watches it."""
        return 1

    def settled(self, experiment: Experiment) -> Experiment:
        """The experiment with what this algorithm leaves open filled in; everything else is resolved by then."""
        return experiment

    def accounts(
        self, experiment: Experiment, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases] | Unsupported:
        """What each agent's ε depends on, where the graph or the colluders matter; otherwise see `mechanisms`."""
        return self.mechanisms(experiment.noise, dimension, adjacency, smoothness)

    def remarks(self, experiment: Experiment) -> Iterable[str]:
        """Sentences that belong beside every ε of a run of this algorithm."""
        return ()

    def calibrated(self, experiment: Experiment, budget: float, solve: str) -> Calibrated | None:
        """Settings that keep a budget, of a resolved experiment; None where a factor on all scales answers that."""
        return None

    def gradient_schedule(self) -> GradientSchedule | None:
        """Which rounds release gradients, where that is not every round."""
        return None

    def noise_network(self, experiment: Experiment) -> NoiseNetwork | Unsupported:
        """Who shares noise with whom, of a resolved experiment."""
        return Unsupported(f"agents of {self.name} share no noise, so colluders learn nothing that others do not hear")

    def steady(self) -> tuple[AlgorithmSection, float] | None:
        """The same with a gradient in every round and one step for all, and that step; where neighbours share noise.

        The distinguishing game plays it: neither mixing nor the size of a public step tells anything.
        """
        return None

    def check_network(self, network: NetworkSection) -> None:
        """Refuse a graph that the algorithm does not run on. By its shape: nodes get every graph as a file."""

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases] | Unsupported:
        """What each agent's ε depends on; `smoothness` has one M_i per agent."""
        return Unsupported(f"no accountant is known for {self.name}")

    def instability(self, gradient: Gradient, P: Matrix, x: Array, k: int) -> Divergence | None:
        """How fast the iteration linearised at x grows, and why, as far as the algorithm has been analysed."""
        why = f"the gap grows without bound; a smaller algorithm.{self.step} is the first thing to try with {self.name}"
        return Divergence(k, float("nan"), "unexplained", why)

    def spectral_radius(self, gradient: Gradient, P: Matrix, x: Array) -> float:
        """Of the noise-free iteration linearised at x; nan where nobody has analysed it, or it would take too long."""
        return float("nan")

    def conditions(self, smoothness: float, eigenvalues: Spectrum) -> list[Condition]:
        """Sufficient conditions for convergence with M̄ = `smoothness`; none where none are known."""
        return []

    @property
    def encodes(self) -> bool:
        """Whether some row travels as anything but float64."""
        return type(self).encoding is not AlgorithmSection.encoding

    def encoding(self, phase: str, agent: int) -> RowEncoding:
        """How one agent's row travels in a phase: decoding gives back, bit for bit, every row that is broadcast."""
        return EVERYTHING

    def round_bytes(self, degrees: NDArray[np.int64], dimension: int) -> int:
        """Bytes of all messages of a round: every agent sends its row to each of its neighbours, in every phase."""
        if not self.encodes:
            return int(degrees.sum()) * EVERYTHING.size(dimension) * len(self.phases)
        return sum(
            degree * self.encoding(phase, agent).size(dimension)
            for phase in self.phases
            for agent, degree in enumerate(degrees.tolist())
        )

    def program(self, context: AgentContext, noise: NoiseSection) -> Program:
        """The round program of the agents in `context.owned`."""
        return self.program_class(self, context, noise.streams(context))

    def public(self) -> Self:
        """The section as anybody may know it: without what the agents keep secret."""
        return self

    @property
    def own_name(self) -> str:
        """As reports call it."""
        return self.name

    @property
    def account_in_words(self) -> str:
        """Whose ε it is."""
        return "the exact account"

    @property
    def tier_one(self) -> bool | None:
        """Whether messages are mixed through a secret η; None for an algorithm that has no such thing."""
        return None

    def protections(self, noise: NoiseSection) -> Mapping[str, tuple[AlgorithmSection, NoiseSection]] | Unsupported:
        """The same algorithm with its protections on and off, by name (`declared.NO_PROTECTION` …)."""
        return Unsupported(f"{self.name} has no tiers that could be compared")

    def two_tiers(self) -> TwoTiers | None:
        """The public parameters of messages that obey the algebra "two tiers"; None for all others."""
        return None

    def recovered(self, heard: Heard) -> Recovered | None:
        """The update solved for x and the gradient, in terms of messages; for every `algebra` but "two tiers"."""
        return None

    def worst_pair(self, releases: Sequence[Releases]) -> Sequence[Dpp2Releases] | Unsupported:
        """The releases for which a worst pair of objectives is known: those that the distinguishing game plays."""
        return Unsupported(f"no worst pair of objectives is known for {self.own_name}")

    def planner(self) -> Planner:
        """Who plans this algorithm's settings for a budget: unless it has another, whoever knows `planner_model`."""
        from dpp2.privacy.plan import planner

        return planner

    def planner_model(self, noise: NoiseSection) -> PlannerModel | Unsupported:
        """What the planner's model takes, or why it models no such run."""
        return Unsupported(f"the planner has no model of {self.name}")


def check_mixing(eigenvalues: Spectrum, weight: float = 1.0) -> None:
    """Averaging with I − weight·P must bring agents closer: λ_max(P) < 2/weight."""
    if weight * eigenvalues.largest >= 2:
        raise Inadmissible(
            "network.weights",
            f"P with {eigenvalues.at_most} {eigenvalues.largest:.4g}",
            f"weights with λ_max(P) < {2 / weight:.4g}, such as metropolis: agents drift apart otherwise",
        )
