"""What a problem is: for each agent a private differentiable f_i, drawn or read for the agents owned here only.

Synthetic data are addressed by (seed, purpose, agent): the draw of one agent does not depend on which others are
drawn beside it, so a container that hosts agent 7 holds the same f_7 as an embedded run of all fifty.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.schema import Section, Table

DATA, START, SHARED = 0, 1, 2  # purposes of the seeded draws; SHARED: what all agents have in common

LARGEST = 1e100  # of numbers in data and in what they are drawn from: beyond it squares and their sums overflow

SURROGATE_SEED = 0x7075626C6963  # of public data to plan on; not one that somebody would take for their own


Counts = NDArray[np.intp]


def agent_rng(seed: int, purpose: int, agent: int) -> np.random.Generator:
    """The generator of one agent for one purpose."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, agent)))


class Objective(Protocol):
    """The objectives of the owned agents, evaluated together: row n of x belongs to the n-th owned agent."""

    @property
    def dimension(self) -> int: ...

    @property
    def smoothness(self) -> Array:
        """M_i of each owned agent: a Lipschitz constant of ∇f_i; nan where it is not known."""

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """(f_i(x_i) for each agent, ∇f_i(x_i) for each agent): shapes (n,) and (n, d)."""


@runtime_checkable
class Sampled(Protocol):
    """What objectives offer that are means over samples, f_i = (1/m_i) Σ_s f_is: for methods that draw single ones.

    A regulariser belongs to every sample in equal parts. Agents may have different m_i.
    """

    @property
    def dimension(self) -> int: ...

    def sample_counts(self) -> Counts:
        """m_i of every agent."""

    def sample_gradients(self, x: Array) -> Array:
        """∇f_is(x_i) of every agent and sample: (agents, max m_i, d); rows beyond an agent's own are zero."""


@runtime_checkable
class OfRecords(Sampled, Protocol):
    """What objectives offer whose samples are records that can be clipped, for `privacy.clip`."""

    def clipped(self, bound: float) -> Objective:
        """The same f_i; in ∇f_i every record's gradient is clipped to this 2-norm, before the mean is taken.

        The regulariser is public and stays outside: exchanging one of m records moves ∇f_i by at most 2·bound/m.
        """


# Clipped to a shade less than the bound: what a sum over a million records rounds away stays within 2·bound/m.
_INSIDE = 1 - 1e-9


def clip_factors(norms: Array, bound: float) -> Array:
    """By what a gradient of each norm is multiplied so that `bound` holds; 1 where it holds already."""
    return np.minimum(1.0, slope_limits(norms, bound))


def slope_limits(norms: Array, bound: float) -> Array:
    """The largest |ℓ'| of each record of a linear model that keeps ‖ℓ' a‖ ≤ `bound`, by the norms of a.

    The norm of a record's gradient ℓ'(xᵀa)·a is |ℓ'|·‖a‖, so clipping it is clipping one number.
    """
    with np.errstate(divide="ignore", over="ignore"):  # a record of zeros, or nearly so, has no gradient
        return np.asarray(_INSIDE * bound / norms)


def row_norms(rows: Array) -> Array:
    """‖a‖ along the last axis, also where squares would be lost or overflow; ∞ where the norm itself is too large."""
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    with np.errstate(over="ignore"):
        return np.asarray(largest[..., 0] * np.linalg.norm(scaled, axis=-1))


def clip_records(objective: Objective, bound: float) -> Objective:
    """`OfRecords.clipped`, or one sentence where there are no records."""
    if not isinstance(objective, OfRecords):
        raise BadInput("privacy.clip", bound, "a problem whose objectives are means over records, which these are not")
    return objective.clipped(bound)


@runtime_checkable
class OfProducts(Protocol):
    """What objectives offer that know of their data the products a = label · features only: no more can come back."""

    @property
    def products(self) -> Array:
        """(agents, m, d)"""


class OneSample:
    """For objectives that are no sum over records: each agent has one sample, its whole objective."""

    def sample_counts(self: Objective) -> Counts:
        return np.ones(len(self.smoothness), dtype=np.intp)

    def sample_gradients(self: Objective, x: Array) -> Array:
        return self(x)[1][:, None, :]


class ProblemSection(Section):
    """`[problem]`: parameters of one kind of problem, how to build its objectives, and what others need to know."""

    public_keys: ClassVar[tuple[str, ...]] = ("name",)  # the form, which anybody may know: no seed, no path, no data
    regulariser: ClassVar[tuple[str, ...]] = ()  # keys that enter the objective and say nothing of the data
    affine_gradient: ClassVar[bool] = False  # whether every ∇f_i is affine, whatever the parameters
    # Whether f_i is the mean of log(1 + exp(−aᵀx)) over `samples` products a = label · features of length `dimension`,
    # plus the regulariser of `lambda` and `omega`, all four of them in the public form: the products can come back.
    logistic_products: ClassVar[bool] = False

    name: str
    seed: int | None = Field(None, ge=0, description="a whole number ≥ 0 (default: run.seed)")
    dataset: str | None = Field(
        None, min_length=1, max_length=100, description="a name: all versions of the data share one budget under it"
    )

    def resolve(self, agents: int) -> Self:
        """Settle, once and over all agents, what the objectives of single agents rest on (`seed` is set by then)."""
        return self

    def resolve_for_records(self, agents: int) -> Self:
        """The same for `privacy.adjacency = "record"`: what it settles must not hang on any record.

        Otherwise one record would move the objectives of other agents, too, and δ speaks of one agent's alone.
        """
        return self.resolve(agents)

    @property
    def steep_everywhere(self) -> bool:
        """Whether the whole objective is about as steep as M̄, and not its steepest place alone: squares are."""
        return self.affine_gradient

    def looked_at(self) -> str | None:
        """What of the objectives was computed from all agents' data, in a sentence; None if nothing was."""
        return None

    @abstractmethod
    def objective(self, owned: Sequence[int], agents: int) -> Objective:
        """The f_i of these agents."""

    def surrogate(self, agents: int, smoothness: float) -> ProblemSection | None:
        """A public problem of the same size, as steep as `smoothness`; None where nobody knows what it looks like.

        Of the data it may take how many there are and their dimension, which are public, and nothing else.
        """
        return self.updated(seed=SURROGATE_SEED)

    def bounded(self, feature_bound: float) -> Self:
        """The problem with every record's influence bounded, for `privacy.adjacency = "record"`."""
        raise self._unbounded()

    def record_adjacency(self, feature_bound: float) -> float:
        """δ of exchanging one record of one agent, where `bounded` is offered."""
        raise self._unbounded()

    def _unbounded(self) -> BadInput:
        accepted = f"a number: the {self.name} problem cannot bound a record's influence"
        return BadInput("privacy.adjacency", "record", accepted)

    def public_form(self) -> Mapping[str, object]:
        """What anybody may know of the problem: its form, never what it was drawn from nor where data lie."""
        table = self.table()
        return {key: table[key] for key in self.public_keys if key in table}

    def data_identity(self, agent: int, agents: int, outside: bytes = b"") -> bytes:
        """What tells the agent's data from all other data: `outside` is their digest where they come from outside.

        A ledger is kept under it, so what only enters the objective (the regulariser) must not: changing it would open
        a fresh ledger on the same records.
        """
        return outside or f"[{self._identity_table}, {agent}]".encode()

    @cached_property
    def _identity_table(self) -> str:
        """What is the same in the identities of all agents, as JSON: a million agents ask."""
        table = {key: value for key, value in self.digest_table().items() if key not in self.regulariser}
        return json.dumps(table, sort_keys=True)

    def updated(self, **values: Any) -> Self:
        copy = super().updated(**values)
        copy.__dict__.pop("_identity_table", None)  # of the old values
        return copy

    def digest_table(self) -> Table:
        """Without the data set's name: it is the owner's own, and may be another one on every machine."""
        return {key: value for key, value in super().digest_table().items() if key != "dataset"}

    def report(self, x: Array) -> dict[str, float]:
        """What to say of a common solution x besides the gap, such as held-out accuracy."""
        return {}

    def check_report(self, x: Array) -> None:
        """Refuse a report that fails, before any round is run: where somebody else has written it, at x⁰."""

    def drawing_seed(self) -> int:
        assert self.seed is not None, "the experiment sets problem.seed before it draws"
        return self.seed
