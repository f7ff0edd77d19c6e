"""Objectives that are objects of this very program: `run(objectives=[…])`.

One for each agent, in order: an object as a user's file makes it (`usercode`), or a plain function of x. A function
that returns a number gets its gradient by central differences, at 2d values each; one that returns (value, gradient)
need not. They are checked when they are given. An experiment knows them by a fingerprint, their values and gradients
at drawn points, so it can be written down; only this program, or one that they were pickled to, can run it again.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field, PrivateAttr

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput, MissingData
from dpp2.problems.base import DATA, Objective, ProblemSection, agent_rng
from dpp2.problems.sources import Source
from dpp2.problems.usercode import STEP, Part, UserObjective, checked
from dpp2.userpython import UserCode

if TYPE_CHECKING:
    from dpp2.experiment import Experiment


@dataclass(frozen=True, eq=False)
class Live:
    """The objectives of all agents."""

    objective: UserObjective
    digest: str

    @classmethod
    def of(cls, objectives: Sequence[Any], dimension: int | None) -> Live:
        agents = range(len(objectives))
        codes = [UserCode("objectives", f"objectives[{agent}]") for agent in agents]
        makers = [partial(_adapted, code, one, dimension) for code, one in zip(codes, objectives, strict=True)]
        parts = [Part.made(code, make, agent) for code, make, agent in zip(codes, makers, agents, strict=True)]
        found = checked(parts, {agent: agent_rng(0, DATA, agent) for agent in agents}, ())
        sources = tuple(Source(_fingerprint(part)) for part in parts)
        digest = hashlib.sha256(b"".join(source.digest for source in sources)).hexdigest()
        return cls(replace(found, sources=sources), digest)

    def owned(self, agents: Sequence[int]) -> Objective:
        own = self.objective
        return replace(
            own,
            parts=tuple(own.parts[agent] for agent in agents),
            sources=tuple(own.sources[agent] for agent in agents),
        )

    def __deepcopy__(self, memo: object) -> Live:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """With its objects if they can travel: a lambda cannot."""
        try:
            carried = pickle.dumps(self.objective)
        except Exception:  # pickle raises what it likes
            carried = None
        return _revived, (self.digest, carried)


_live: WeakValueDictionary[str, Live] = WeakValueDictionary()


class ObjectsSection(ProblemSection):
    """`[problem]` of such a run. It holds the objects as long as it lives."""

    name: Literal["objects"] = "objects"
    digest: str = Field(pattern="^[0-9a-f]{64}$", description="the fingerprint that run(objectives=…) has given them")

    _held: Live | None = PrivateAttr(None)

    def model_post_init(self, context: Any, /) -> None:
        self._held = _live.get(self.digest)

    def objective(self, owned: Sequence[int], agents: int) -> Objective:
        held = self._held or _live.get(self.digest)
        if held is None:
            wanted = "objectives of this program: run(objectives=…) had them, and they are not written down"
            raise MissingData("problem.digest", self.digest, wanted)
        if len(held.objective.parts) != agents:
            raise BadInput("network.agents", agents, f"{len(held.objective.parts)}, one for each of the objectives")
        return held.owned(owned)

    def surrogate(self, agents: int, smoothness: float) -> ProblemSection | None:
        return None

    def only_here(self) -> str | None:
        return "its objectives are objects of this program: a Python file (problem.path) can be loaded by any"


def with_objectives(experiment: Experiment, objectives: Sequence[Any], dimension: int | None = None) -> Experiment:
    """The experiment on these objectives, one for each agent; the network gets as many agents, unless it says."""
    if len(objectives) < 2:
        raise BadInput("objectives", len(objectives), "two or more, one for each agent")
    live = Live.of(objectives, dimension)
    _live[live.digest] = live
    network = experiment.network
    if not network.given("agents"):
        network = network.updated(agents=len(objectives))
    if network.agents != len(objectives):
        raise BadInput("objectives", f"{len(objectives)} of them", f"{network.agents}, as network.agents says")
    return replace(experiment, network=network, problem=ObjectsSection(digest=live.digest))


@dataclass(eq=False)
class _Plain:
    """A function of x as an objective."""

    function: Callable[[Array], Any]
    dimension: int
    smoothness: float | None
    _last: tuple[bytes, Any] | None = None

    def value(self, x: Array) -> Any:
        found = self._at(x)
        return found[0] if isinstance(found, tuple) else found

    def gradient(self, x: Array) -> Any:
        found = self._at(x)
        if isinstance(found, tuple):
            return found[1]
        along = STEP * np.eye(len(x))
        ahead, behind = ([float(self.function(frozen(x + side * u))) for u in along] for side in (1, -1))
        return (np.array(ahead) - np.array(behind)) / (2 * STEP)

    def _at(self, x: Array) -> Any:
        key = x.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self.function(x)
        return self._last[1]


def _adapted(code: UserCode, given: Any, dimension: int | None) -> Any:
    if hasattr(given, "value") or not callable(given):
        return given
    known = getattr(given, "dimension", dimension)
    if known is None:
        raise code.refused("run(…, dimension=d) beside plain functions, or an attribute `dimension`")
    return _Plain(given, known, getattr(given, "smoothness", None))


def _fingerprint(part: Part) -> bytes:
    """Value and gradient at two drawn points."""
    digest, rng = hashlib.sha256(b"dpp2 objects 1"), agent_rng(1, DATA, part.agent)
    for _ in range(2):
        x = frozen(rng.standard_normal(part.dimension))
        digest.update(
            np.array([part.value(x), *part.gradient(x), part.smoothness, part.records]).astype("<f8").tobytes()
        )
    return digest.digest()


def _revived(digest: str, carried: bytes | None) -> Live | None:
    """Out of a pickle."""
    known = _live.get(digest)
    if known is None and carried is not None:
        known = _live[digest] = Live(pickle.loads(carried), digest)
    return known
