"""What a round program is: a generator without I/O over the rows of the agents it owns.

It yields what is broadcast, is sent back the weighted sum over neighbours, and returns the next state together with
what it keeps private. All N agents in one embedded run, or one agent in a container: the same lines run everywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import Noise, RunKeys
from dpp2.privacy import Mechanism, Unsupported
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


class State(Protocol):
    """A frozen dataclass of (agents, d) arrays; every algorithm has x."""

    @property
    def x(self) -> Array: ...


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


@dataclass(frozen=True, eq=False)
class Setup:
    """What a program needs to know of the run besides its own parameters."""

    owned: Sequence[int]
    agents: int
    objective: Objective
    keys: RunKeys


class NoiseSection(Section):
    """`[noise]`: which scales there are belongs to the algorithm."""

    scales: ClassVar[tuple[str, ...]]

    def check(self, agents: int) -> None:
        """Lists must have one entry per agent."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, list) and len(value) != agents:
                raise BadInput(f"noise.{key}", value, f"one entry for each of the {agents} agents, not {len(value)}")


class AlgorithmSection(Section):
    """`[algorithm]`: parameters of one algorithm, and how to set it up."""

    noise_section: ClassVar[type[NoiseSection]]
    phases: ClassVar[tuple[str, ...]]  # what goes over the wire each round, in order
    noises: ClassVar[tuple[str, ...]]  # the names its noise has in truth.npz
    scalars: ClassVar[tuple[str, ...]]

    name: str

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        """Refuse parameters under which the algorithm is not defined."""

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Mechanism] | Unsupported:
        """What each agent's ε depends on; `smoothness` has one M_i per agent."""
        return Unsupported(f"no accountant is known for {self.name}")

    def instability(self, gradient: Gradient, P: Matrix, x: Array, k: int) -> Divergence | None:
        """How fast the iteration linearised at x grows, and why; None where no analysis exists."""
        return None

    def program(self, setup: Setup, noise: NoiseSection) -> Program:
        raise NotImplementedError  # pragma: no cover - abstract
