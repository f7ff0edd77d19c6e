"""An objective written by the user: a Python file with a function `objective(agent, agents)`.

It returns an object for that one agent with
    dimension: int      value(x) -> float      gradient(x) -> array (d,)      smoothness: float (optional)
and, where its data are records that `privacy.clip` is to protect,
    record_gradients(x) -> array (m, d)        public_gradient(x) -> array (d,) (optional, such as a regulariser's)
with gradient(x) = the mean of record_gradients(x) + public_gradient(x). A function `report(x)` of the file, if there is
one, says in numbers how good a common solution is: `{"held_out_accuracy": 0.93}`. x is a read-only array (d,).

The file must be self-contained: its bytes are what the agent's data digest covers. It runs with the user's own rights,
as any program of theirs does. What it returns is checked once, when it is loaded: shapes, finite numbers, one
dimension for all agents, the gradient against central differences, and the records against the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput
from dpp2.problems.base import Counts, clip_factors, row_norms
from dpp2.problems.sources import Source, source_of_program
from dpp2.problems.userdata import FIELD
from dpp2.userpython import UserCode

TOLERANCE = 1e-4  # relative, of the gradient against central differences
STEP = 6e-6  # about the cube root of the rounding unit: balances truncation and cancellation
DIRECTIONS = 32  # at most so many differences per agent

Generators = Mapping[int, np.random.Generator]


def load_objectives(path: Path, function: str, points: Generators, agents: int) -> UserObjective:
    """The checked objectives of the owned agents; `points` holds a generator of test points for each."""
    code = UserCode(FIELD, str(path))
    program = code.read()
    make = getattr(code.module(program), function, None)
    if not callable(make):
        raise code.refused(f"a Python file with a function {function}(agent, agents)")
    parts = [Part.made(code, partial(make, agent, agents), agent) for agent in points]
    return checked(parts, points, tuple(source_of_program(program, agent) for agent in points))


def load_report(path: Path, x: Array) -> dict[str, float]:
    """What a function `report(x)` of the file says of a common solution; nothing where there is none."""
    code = UserCode(FIELD, str(path))
    report = getattr(code.module(code.read()), "report", None)
    if report is None:
        return {}
    wanted = "a dict of names and numbers from report(x)"
    told = code.guarded(wanted, lambda: dict(report(frozen(x))))
    if not all(isinstance(name, str) and _is_real(value) for name, value in told.items()):
        shown = code.guarded(wanted, lambda: repr(told)[:100])
        raise code.refused(f"{wanted}, not {shown}")
    return {name: float(value) for name, value in told.items()}


def checked(parts: Sequence[Part], points: Generators, sources: tuple[Source, ...]) -> UserObjective:
    """Objectives of one dimension, with gradients that are the gradients of their values."""
    for part in parts:
        if part.dimension != parts[0].dimension:
            wanted = f"dimension {parts[0].dimension} for every agent, as for agent {parts[0].agent}"
            raise part.refused(f"{wanted}, not {part.dimension} for agent {part.agent}")
    for part, rng in zip(parts, points.values(), strict=True):
        x = rng.standard_normal(part.dimension)
        _check_gradient(part, x, rng)
        _check_records(part, x)
    return (UserRecords if all(part.records for part in parts) else UserObjective)(tuple(parts), sources)


@dataclass(frozen=True, eq=False)
class UserObjective:
    parts: tuple[Part, ...]
    sources: tuple[Source, ...]

    @property
    def dimension(self) -> int:
        return self.parts[0].dimension

    @property
    def smoothness(self) -> Array:
        return np.array([part.smoothness for part in self.parts])

    def __call__(self, x: Array) -> tuple[Array, Array]:
        x = frozen(x)  # the user's code must not be able to change the agents' state
        value = np.array([part.value(row) for part, row in zip(self.parts, x, strict=True)])
        return value, np.stack([part.gradient(row) for part, row in zip(self.parts, x, strict=True)])


@dataclass(frozen=True, eq=False)
class UserRecords(UserObjective):
    """Objectives that also offer the gradient of every record."""

    bound: float | None = None  # of the norm of a record's gradient, where it is clipped

    @property
    def smoothness(self) -> Array:
        """Not known where gradients are clipped: what cancels between records may do so no longer."""
        return super().smoothness if self.bound is None else np.full(len(self.parts), np.nan)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        if self.bound is None:
            return super().__call__(x)
        x = frozen(x)
        value = np.array([part.value(row) for part, row in zip(self.parts, x, strict=True)])
        return value, np.stack([self._records(part, row).mean(axis=0) for part, row in zip(self.parts, x, strict=True)])

    def sample_counts(self) -> Counts:
        return np.array([part.records for part in self.parts], dtype=np.intp)

    def sample_gradients(self, x: Array) -> Array:
        x = frozen(x)
        gradients = np.zeros((len(x), int(self.sample_counts().max()), x.shape[1]))
        for own, part, row in zip(gradients, self.parts, x, strict=True):
            own[: part.records] = self._records(part, row)
        return gradients

    def clipped(self, bound: float) -> UserRecords:
        return replace(self, bound=bound)

    def _records(self, part: Part, x: Array) -> Array:
        """(m, d): clipped where there is a bound, each with its share in what is public."""
        gradients = part.record_gradients(x)
        if self.bound is not None:
            gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)  # ∞·0 has no bound
            gradients = gradients * clip_factors(row_norms(gradients)[:, None], self.bound)
        return gradients + part.public_gradient(x)


@dataclass(frozen=True, eq=False)
class Part:
    """The user's object of one agent, with every answer checked for its shape."""

    code: UserCode
    agent: int
    user: Any
    dimension: int
    smoothness: float
    records: int = 0  # m, where the object offers the gradient of every record

    @classmethod
    def made(cls, code: UserCode, make: Callable[[], Any], agent: int) -> Part:
        user = code.guarded(f"an objective for agent {agent}", make)
        bare = cls(code, agent, user, 0, 0.0)
        for method in ("value", "gradient"):
            if not callable(bare.attribute(method)):
                raise bare.refused(f"an objective with a method {method}(x) for agent {agent}, not {_kind(user)}")
        dimension, smoothness = bare.attribute("dimension"), bare.attribute("smoothness")
        if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer) or dimension < 1:
            raise bare.refused(f"a whole dimension ≥ 1 for agent {agent}, not {_kind(dimension)}")
        if smoothness is None:
            smoothness = np.nan
        elif not _is_real(smoothness) or not 0 <= smoothness < np.inf:
            raise bare.refused(f"a smoothness ≥ 0, or none, for agent {agent}, not {_kind(smoothness)}")
        return cls(code, agent, user, int(dimension), float(smoothness))._counted()

    def attribute(self, name: str) -> Any:
        """None where the object has none. It may be a property, which is the user's code as well."""
        return self.code.guarded(f"a {name} of agent {self.agent}", lambda: getattr(self.user, name, None))

    def _counted(self) -> Part:
        """With the number of records, at a point that is as good as any."""
        if not callable(self.attribute("record_gradients")):
            return self
        return replace(self, records=len(self._record_gradients(frozen(np.zeros(self.dimension)))))

    def value(self, x: Array) -> float:
        value = self.code.guarded(f"a value of agent {self.agent}", lambda: self.user.value(x))
        if not _is_real(value):
            raise self.refused(f"a number as the value of agent {self.agent}, not {_kind(value)}")
        return float(value)

    def gradient(self, x: Array) -> Array:
        return self._row(x, "gradient")

    def public_gradient(self, x: Array) -> Array:
        """0 where the object has none."""
        return self._row(x, "public_gradient") if self.attribute("public_gradient") is not None else np.zeros_like(x)

    def record_gradients(self, x: Array) -> Array:
        gradients = self._record_gradients(x)
        if len(gradients) != self.records:
            wanted = f"{self.records} record gradients of agent {self.agent} at every x"
            raise self.refused(f"{wanted}, not {len(gradients)} at one of them")
        return gradients

    def _record_gradients(self, x: Array) -> Array:
        wanted = f"an array of m × {self.dimension} numbers, m ≥ 1, as the record gradients of agent {self.agent}"
        gradients = self.code.guarded(wanted, lambda: np.asarray(self.user.record_gradients(x), dtype=np.float64))
        if gradients.ndim != 2 or gradients.shape[1] != len(x) or not len(gradients):
            raise self.refused(f"{wanted}, not shape {gradients.shape}")
        return gradients

    def _row(self, x: Array, method: str) -> Array:
        """What a method of the object returns for x: like x."""
        wanted = f"an array of {self.dimension} numbers as the {method} of agent {self.agent}"
        row = self.code.guarded(wanted, lambda: np.asarray(getattr(self.user, method)(x), dtype=np.float64))
        if row.shape != x.shape:
            raise self.refused(f"{wanted}, not shape {row.shape}")
        return row

    def refused(self, accepted: str) -> BadInput:
        return self.code.refused(accepted)


def _check_gradient(part: Part, x: Array, rng: np.random.Generator) -> None:
    """Compare ∇fᵀu with (f(x + hu) − f(x − hu))/2h along the axes, or, where d is large, at random."""
    value, gradient = part.value(frozen(x)), part.gradient(frozen(x))
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        raise part.refused(f"a finite value and gradient at a standard normal point for agent {part.agent}")
    if part.dimension <= DIRECTIONS:
        along = np.eye(part.dimension)
    else:
        along = rng.standard_normal((DIRECTIONS, part.dimension))
        along /= np.linalg.norm(along, axis=1, keepdims=True)
    ahead = np.array([part.value(frozen(x + STEP * u)) for u in along])
    behind = np.array([part.value(frozen(x - STEP * u)) for u in along])
    numeric, claimed = (ahead - behind) / (2 * STEP), along @ gradient
    size = max(float(np.linalg.norm(numeric)), float(np.linalg.norm(claimed)))
    # A value that is large beside its slope loses digits in the difference: that is not the gradient's fault.
    rounding = 4 * np.finfo(np.float64).eps * abs(value) / STEP * np.sqrt(len(along))
    off = float(np.linalg.norm(numeric - claimed))
    if not off <= TOLERANCE * size + rounding:
        wanted = f"a gradient that agrees with central differences of the value to {TOLERANCE:g}"
        raise part.refused(f"{wanted}; agent {part.agent}'s is off by {off / size:.2g} (relative)")


def _check_records(part: Part, x: Array) -> None:
    """Compare the gradient with the mean over records: what is clipped must be what is minimised."""
    if not part.records:
        return
    gradient, records, public = (ask(frozen(x)) for ask in (part.gradient, part.record_gradients, part.public_gradient))
    off = float(np.linalg.norm(records.mean(axis=0) + public - gradient))
    size = float(np.linalg.norm(records, axis=1).mean() + np.linalg.norm(public))
    if not off <= TOLERANCE * size:
        wanted = "a gradient that is the mean of the record gradients plus the public gradient"
        raise part.refused(f"{wanted}; agent {part.agent}'s is off by {off / size:.2g} (relative)")


def _is_real(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return repr(value) if value is None or _is_real(value) else f"a {type(value).__name__}"
