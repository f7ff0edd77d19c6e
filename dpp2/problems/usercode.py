"""An objective written by the user: a Python file with a function `objective(agent, agents)`.

It returns an object for that one agent with
    dimension: int      value(x) -> float      gradient(x) -> array (d,)      smoothness: float (optional)
x is a read-only array (d,). The file must be self-contained: its bytes are what the agent's data digest
covers. It runs with the user's own rights, as any program of theirs does. What it returns is checked once,
when it is loaded: shapes, finite numbers, one dimension for all agents, and the gradient against central
differences.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput, one_line
from dpp2.problems.userdata import FIELD, read_bytes

TOLERANCE = 1e-4  # relative, of the gradient against central differences
STEP = 6e-6  # about the cube root of the rounding unit: balances truncation and cancellation
DIRECTIONS = 32  # at most so many differences per agent

Generators = Mapping[int, np.random.Generator]
T = TypeVar("T")


def load_objectives(path: Path, function: str, points: Generators, agents: int) -> UserObjective:
    """The checked objectives of the owned agents; `points` holds a generator of test points for each."""
    make = _function(path, function)
    parts = tuple(_Part.made(path, make, agent, agents) for agent in points)
    for part in parts:
        if part.dimension != parts[0].dimension:
            wanted = f"dimension {parts[0].dimension} for every agent, as for agent {parts[0].agent}"
            raise part.refused(f"{wanted}, not {part.dimension} for agent {part.agent}")
    for part, rng in zip(parts, points.values(), strict=True):
        _check_gradient(part, rng)
    return UserObjective(parts)


@dataclass(frozen=True, eq=False)
class UserObjective:
    parts: tuple[_Part, ...]

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
class _Part:
    """The user's object of one agent, with every answer checked for its shape."""

    path: Path
    agent: int
    user: Any
    dimension: int
    smoothness: float

    @classmethod
    def made(cls, path: Path, make: Callable[[int, int], Any], agent: int, agents: int) -> _Part:
        user = _guarded(path, f"an objective for agent {agent}", lambda: make(agent, agents))
        bare = cls(path, agent, user, 0, 0.0)
        for method in ("value", "gradient"):
            if not callable(getattr(user, method, None)):
                raise bare.refused(f"an objective with a method {method}(x) for agent {agent}, not {_kind(user)}")
        dimension, smoothness = getattr(user, "dimension", None), getattr(user, "smoothness", None)
        if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer) or dimension < 1:
            raise bare.refused(f"a whole dimension ≥ 1 for agent {agent}, not {_kind(dimension)}")
        if smoothness is None:
            smoothness = np.nan
        elif not _is_real(smoothness) or not 0 <= smoothness < np.inf:
            raise bare.refused(f"a smoothness ≥ 0, or none, for agent {agent}, not {_kind(smoothness)}")
        return cls(path, agent, user, int(dimension), float(smoothness))

    def value(self, x: Array) -> float:
        value = _guarded(self.path, f"a value of agent {self.agent}", lambda: self.user.value(x))
        if not _is_real(value):
            raise self.refused(f"a number as the value of agent {self.agent}, not {_kind(value)}")
        return float(value)

    def gradient(self, x: Array) -> Array:
        wanted = f"an array of {self.dimension} numbers as the gradient of agent {self.agent}"
        gradient = _guarded(self.path, wanted, lambda: np.asarray(self.user.gradient(x), dtype=np.float64))
        if gradient.shape != x.shape:
            raise self.refused(f"{wanted}, not shape {gradient.shape}")
        return gradient

    def refused(self, accepted: str) -> BadInput:
        return BadInput(FIELD, str(self.path), accepted)


def _function(path: Path, function: str) -> Callable[[int, int], Any]:
    source = read_bytes(path)
    # Compiled from these very bytes: what runs is what the digest covers, and no cache is left beside it.
    # Registered, because dataclasses look their module up by name.
    module = ModuleType(f"dpp2_user_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        wanted = "a Python file that can be loaded"
        _guarded(path, wanted, lambda: exec(compile(source, path, "exec"), vars(module)))
    except BadInput:
        del sys.modules[module.__name__]
        raise
    make = getattr(module, function, None)
    if not callable(make):
        raise BadInput(FIELD, str(path), f"a Python file with a function {function}(agent, agents)")
    return make  # type: ignore[no-any-return]


def _check_gradient(part: _Part, rng: np.random.Generator) -> None:
    """Compare ∇fᵀu with (f(x + hu) − f(x − hu))/2h along the axes, or, where d is large, at random."""
    x = rng.standard_normal(part.dimension)
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


def _guarded(path: Path, wanted: str, call: Callable[[], T]) -> T:
    """Run the user's code; whatever it raises becomes one sentence."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise BadInput(FIELD, str(path), f"{wanted} ({one_line(error)})") from None


def _is_real(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return repr(value) if value is None or _is_real(value) else f"a {type(value).__name__}"
