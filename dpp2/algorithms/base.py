"""What a round program is: a generator without I/O over the rows of the agents it owns.

It yields what is broadcast, is sent back the weighted sum over neighbours, and returns the next state together with
what it keeps private. All N agents in one embedded run, or one agent in a container: the same lines run everywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import SILENCE, Noise, RunKeys
from dpp2.privacy.accountant import Releases
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.problems.base import Objective
from dpp2.schema import Section
from dpp2.stability import Divergence, Gradient
from dpp2.weights import Spectrum

if TYPE_CHECKING:
    from dpp2.weights import Matrix


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Rows that go to every neighbour. The driver answers with Σ_j p_ij rows_j for the rows owned here."""

    phase: str
    rows: Array


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


Draw = Callable[[int], Noise]  # the noise of a round


class NoisyProgram:
    """What programs with named noises have in common; parameters are read from their section."""

    def __init__(self, section: Any, context: AgentContext, noise: Mapping[str, Draw]) -> None:
        self.section, self.objective, self.noise = section, context.objective, noise

    def quiet(self) -> Self:
        copied = copy(self)
        copied.noise = dict.fromkeys(self.noise, lambda k: SILENCE)
        return copied

    def drawn(self, k: int) -> dict[str, Noise]:
        """Every noise of round k."""
        return {name: draw(k) for name, draw in self.noise.items()}


@dataclass(frozen=True, eq=False)
class AgentContext:
    """What a program needs to know of the run besides its own parameters."""

    owned: Sequence[int]
    agents: int
    objective: Objective
    keys: RunKeys


class NoiseSection(Section):
    """`[noise]`: which scales there are belongs to the algorithm."""

    scales: ClassVar[tuple[str, ...]]

    @abstractmethod
    def streams(self, context: AgentContext) -> Mapping[str, Draw]:
        """Every noise of the agents in `context.owned`, by its name."""

    def check(self, agents: int) -> None:
        """Lists must have one entry per agent."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, list) and len(value) != agents:
                raise BadInput(f"noise.{key}", value, f"one entry for each of the {agents} agents, not {len(value)}")


class AlgorithmSection(Section):
    """`[algorithm]`: parameters of one algorithm, and how to set it up."""

    noise_section: ClassVar[type[NoiseSection]]
    # What goes over the wire each round, in order. Not "x", "grad", "values" or a noise: records have one name space.
    phases: ClassVar[tuple[str, ...]]
    noises: ClassVar[tuple[str, ...]]  # the names its noise has in truth.npz
    scalars: ClassVar[tuple[str, ...]]
    step: ClassVar[str] = "alpha"  # the parameter that a diverging run should try smaller
    topology: ClassVar[str | None] = None  # the one topology it runs on, if it does not run on all
    program_class: ClassVar[Callable[..., Program]]  # its round program, made of section, context and noises

    name: str

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        """Refuse parameters under which the algorithm is not defined."""

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

    def message_bytes(self, dimension: int) -> int:
        """Bytes of one agent's message to one neighbour, on average over the phases of a round."""
        return 8 * dimension

    def program(self, context: AgentContext, noise: NoiseSection) -> Program:
        """The round program of the agents in `context.owned`."""
        return self.program_class(self, context, noise.streams(context))


def check_mixing(eigenvalues: Spectrum, weight: float = 1.0) -> None:
    """Averaging with I − weight·P must bring agents closer: λ_max(P) < 2/weight."""
    if weight * eigenvalues.largest >= 2:
        raise BadInput(
            "network.weights",
            f"P with λ_max = {eigenvalues.largest:.4g}",
            f"weights with λ_max(P) < {2 / weight:.4g}, such as metropolis: agents drift apart otherwise",
        )
