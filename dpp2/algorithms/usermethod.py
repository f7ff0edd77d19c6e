"""A method of the user's own: one round, written as a generator over rows, under `@algorithm`.

    from dpp2 import algorithm

    @algorithm(sends=["m"], noise={"x": 1.0}, carries_x="m")
    def descent(s, k, own, *, alpha=0.1):
        m = own.noisy("x", s.x)                               # x + Lap(u_x r^k), exact on the grid
        Pm = yield m                                          # Σ_j p_ij m_j
        return {"x": m - Pm - alpha * own.gradient(s.x)}      # the next state

Rows are agents: `s.x` is (n, d) for the n agents owned here, all of them in one process or one in a container. A row
rests on itself and on what comes back from a `yield`, and on nothing else; that is tried when the method is loaded.
Keyword arguments are the method's parameters: `[algorithm]` sets them, and comparisons search them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, overload

from dpp2.algorithms.base import AlgorithmSection
from dpp2.errors import BadInput

if TYPE_CHECKING:
    from dpp2.arrays import Array
    from dpp2.privacy.releases import Releases

Written = Callable[..., Generator[Any, Any, Any]]  # (s, k, own, *, parameters): yields rows, returns the next state

TAKEN = ("x", "grad", "values")  # names that records have already
_EITHER_WAY = 30.0  # from a default, to where a search begins


@dataclass(frozen=True, eq=False)
class UserMethod:
    """What `@algorithm` makes of a function. Called with parameters, it is an `[algorithm]` section."""

    function: Written
    sends: tuple[str, ...]
    noise: Mapping[str, float]  # what it covers → its first scale u, by default
    state: tuple[str, ...]  # x first
    step: str
    carries_x: str | None
    carries_gradient: str | None
    parameters: Mapping[str, Any]  # with their defaults
    search: Mapping[str, tuple[float, float]]  # the range of every parameter that comparisons search
    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.function.__name__

    def __call__(self, **parameters: Any) -> AlgorithmSection:
        """The method with these parameters, for `Experiment(algorithm=…)`."""
        from dpp2.algorithms.userfile import section_of

        return section_of(self, parameters)

    def start(self, hook: Callable[..., Mapping[str, Any]]) -> Callable[..., Mapping[str, Any]]:
        """Decorates (x, own, *, parameters) → the state before round 0; without it all but x begin at 0."""
        self.hooks["start"] = hook
        return hook

    def account(self, hook: Callable[[Any], Releases]) -> Callable[[Any], Releases]:
        """Decorates (agent) → what the agent's ε depends on; see `dpp2.algorithms.useraccount.AccountedAgent`."""
        self.hooks["account"] = hook
        return hook

    def recovered(self, hook: Callable[..., tuple[Array, Array]]) -> Callable[..., tuple[Array, Array]]:
        """Decorates (heard, *, parameters) → x̂ and ĝ (K, N, d): the update solved for them, as attackers would."""
        self.hooks["recovered"] = hook
        return hook

    @property
    def accounted(self) -> bool:
        return "account" in self.hooks

    def state_class(self) -> Callable[..., Any]:
        """A dataclass with one array for each variable, which checkpoints can take apart."""
        return make_dataclass(f"{self.name}_state", self.state, frozen=True, eq=False)


@overload
def algorithm(function: Written, /) -> UserMethod: ...
@overload
def algorithm(
    *,
    sends: str | Sequence[str] = ...,
    noise: Mapping[str, float] | None = ...,
    state: Sequence[str] = ...,
    step: str | None = ...,
    carries_x: str | None = ...,
    carries_gradient: str | None = ...,
    search: Mapping[str, tuple[float, float]] | None = ...,
) -> Callable[[Written], UserMethod]: ...
def algorithm(
    function: Written | None = None,
    /,
    *,
    sends: str | Sequence[str] = ("m",),
    noise: Mapping[str, float] | None = None,
    state: Sequence[str] = (),
    step: str | None = None,
    carries_x: str | None = None,
    carries_gradient: str | None = None,
    search: Mapping[str, tuple[float, float]] | None = None,
) -> UserMethod | Callable[[Written], UserMethod]:
    """Make an algorithm of a function that runs one round; see the module.

    `sends`: the name of each message, in the order of the yields. `noise`: what is covered by Laplace noise, and its
    first scale. `state`: variables beside x. `step`: the parameter that a diverging run should try smaller (default:
    alpha, or the first). `carries_x`, `carries_gradient`: the messages that stand for x and for the gradient, for
    whoever attacks. `search`: the range in which a comparison begins to search a parameter, on a logarithmic scale,
    or on a linear one where it begins at 0 (default: every fraction > 0, from a 30th of its default to 30 times it).
    """

    def made(written: Written) -> UserMethod:
        parameters = _parameters(written)
        messages = (sends,) if isinstance(sends, str) else tuple(sends)
        covered = {str(name): float(scale) for name, scale in (noise or {}).items()}
        _check_names(written, messages, covered, state, parameters)
        chosen = step or ("alpha" if "alpha" in parameters else next(iter(parameters)))
        for given, known in ((chosen, parameters), (carries_x, messages), (carries_gradient, messages)):
            if given is not None and given not in known:
                raise _refused(written, f"one of {', '.join(known)} where it says {given!r}")
        names = ("x", *state), chosen, carries_x, carries_gradient
        return UserMethod(written, messages, covered, *names, parameters, _ranges(written, parameters, search))

    return made if function is None else made(function)


def _parameters(written: Written) -> dict[str, Any]:
    """Keyword-only arguments, each with a default that says which kind of value it takes."""
    if not inspect.isgeneratorfunction(written):
        raise BadInput("@algorithm", written, "a generator function (s, k, own, *, alpha=…) that yields what it sends")
    taken = inspect.signature(written).parameters.values()
    keywords = {one.name: one.default for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY}
    if len(taken) - len(keywords) != 3:
        raise _refused(written, "three arguments before its parameters: (s, k, own, *, …)")
    if not keywords or any(not isinstance(value, bool | int | float | str) for value in keywords.values()):
        raise _refused(
            written, "at least one parameter, such as a step, each with a default: (s, k, own, *, alpha=0.1)"
        )
    return keywords


def _ranges(
    written: Written, parameters: Mapping[str, Any], given: Mapping[str, tuple[float, float]] | None
) -> dict[str, tuple[float, float]]:
    """Where comparisons begin to search."""
    if given is None:
        free = {name: value for name, value in parameters.items() if isinstance(value, float) and value > 0}
        return {name: (value / _EITHER_WAY, value * _EITHER_WAY) for name, value in free.items()}
    for name, ends in given.items():
        if name not in parameters or isinstance(parameters[name], bool | str):
            raise _refused(written, f"parameters that are numbers in `search`, not {name!r}")
        if len(ends) != 2 or not 0 <= ends[0] < ends[1] < math.inf:
            raise _refused(written, f"0 ≤ low < high as the range of {name}, not {ends!r}")
    return {name: (float(low), float(high)) for name, (low, high) in given.items()}


def _check_names(
    written: Written,
    sends: Sequence[str],
    noise: Mapping[str, float],
    state: Sequence[str],
    parameters: Mapping[str, Any],
) -> None:
    """Records have one name space, and so has a section."""
    noises = [f"noise_{name}" for name in noise]
    recorded = [*TAKEN, *noises, *sends]
    for name in [*sends, *noise, *state]:
        if not isinstance(name, str) or not name.isidentifier():
            raise _refused(written, f"names that are words, not {name!r}")
    if not sends or len(set(recorded)) < len(recorded) or len({"x", *state}) < 1 + len(state):
        raise _refused(
            written, f"messages and state variables with names of their own: not {', '.join(TAKEN)}, none twice"
        )
    for name in parameters:
        if hasattr(AlgorithmSection, name) or name in ("name", "path", "function", "sha256"):
            raise _refused(written, f"another name for the parameter {name}, which means something else here")


def _refused(written: Written, accepted: str) -> BadInput:
    return BadInput("@algorithm", getattr(written, "__name__", written), accepted)
