"""A method of the user's own (see `usermethod`), from a Python file or from this program: `algorithm.name = "file"`.

The file counts by its content: its digest is part of the experiment's, a resolved experiment says which it was
(`sha256`), and another file in its place is refused, at nodes, in a resumed run and in an audit alike. Every process
of a run loads it by itself, from its own disk, and runs it with its user's rights.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast
from weakref import WeakValueDictionary

from pydantic import Field, create_model

from dpp2.algorithms.base import AlgorithmSection, NoiseSection, Program
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import LaplaceNoise, Scale, scale_field
from dpp2.algorithms.useraccount import AccountedAgent, accounted_agents
from dpp2.algorithms.usermethod import UserMethod
from dpp2.algorithms.userprogram import UserProgram, try_out
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.releases import Releases
from dpp2.schema import Table, parse_section
from dpp2.userpython import UserCode

if TYPE_CHECKING:
    from dpp2.experiment import Experiment

FIELD = "algorithm.path"


class _AnyNoise(LaplaceNoise):
    """Of a method that is not known yet: whatever stands in [noise] may be its own."""

    @classmethod
    def owns(cls, key: str) -> bool:
        return True


class FileNoise(LaplaceNoise):
    """`[noise]` of one method: a class of its own for each."""

    scales: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Its class was made for one method: it travels as the scales that there are."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return _noise_again, (tuple(self.scales), fields, set(self.model_fields_set))


class FileSection(AlgorithmSection):
    """What every such section has. Which parameters there are, a class of its own says for each method."""

    paths: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ()}
    noise_section: ClassVar[type[NoiseSection]] = _AnyNoise
    phases: ClassVar[tuple[str, ...]] = ()
    noises: ClassVar[tuple[str, ...]] = ()
    scalars = ()
    program_class: ClassVar[Callable[..., Program]] = UserProgram
    source: ClassVar[_Source | None] = None

    name: Literal["file"] = "file"
    path: str = Field(min_length=1, description="the path of a Python file with a function under @algorithm")
    function: str | None = Field(None, min_length=1, description="the name of a function under @algorithm in the file")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="64 hexadecimal digits, of the file's bytes")

    @classmethod
    def chosen(cls, table: Mapping[str, Any]) -> type[Self]:
        path, function, digest = (table.get(key) for key in ("path", "function", "sha256"))
        if not isinstance(path, str) or not path or not isinstance(function, str | None):
            return cls  # which refuses it
        return cast(type[Self], class_of(path, function, digest if isinstance(digest, str) else None))

    @classmethod
    def owns(cls, key: str) -> bool:
        return True

    @property
    def method(self) -> UserMethod:
        if self.source is None:
            raise self.code().refused("a method that this process can load: it was defined in another program")
        return self.source.method

    def code(self) -> UserCode:
        return UserCode(FIELD, self.path)

    def settled(self, experiment: Experiment) -> Experiment:
        """With the digest of the program that is run."""
        return experiment if self.source is None else experiment.with_setting("algorithm.sha256", self.source.sha256)

    def digest_table(self) -> Table:
        """Without the path: what lies there counts, by its digest."""
        table = {key: value for key, value in super().digest_table().items() if key != "path"}
        return table | ({"sha256": self.source.sha256} if self.source else {})

    def program(self, context: Any, noise: NoiseSection) -> Program:
        assert self.method  # or a sentence
        return super().program(context, noise)

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases] | Unsupported:
        hook = self.method.hooks.get("account")
        if hook is None:
            return Unsupported(f"{self.method.name} comes without an account (@{self.method.name}.account)")
        parts = accounted_agents(self.parameters(), noise, dimension, adjacency, smoothness)
        return [self._released(hook, part) for part in parts]

    def _released(self, hook: Callable[[Any], Releases], agent: AccountedAgent) -> Releases:
        wanted = "an account that answers for every agent"
        found = self.code().guarded(wanted, lambda: hook(agent))
        if not isinstance(found, Releases):
            raise self.code().refused(f"releases (dpp2.privacy) as an account, not a {type(found).__name__}")
        return found

    def recovered(self, heard: Heard) -> Recovered | None:
        hook = self.method.hooks.get("recovered")
        if hook is None:
            return None
        given = self.code().guarded("x and the gradient, solved for", lambda: hook(heard, **self.parameters()))
        return Recovered(*given)

    def parameters(self) -> dict[str, Any]:
        """The method's own, as they are set."""
        return {name: getattr(self, name) for name in self.method.parameters}

    @property
    def own_name(self) -> str:
        return self.source.method.name if self.source else self.name

    @property
    def account_in_words(self) -> str:
        return f"the account that {self.own_name} brings along, which nothing here has proved"

    def remarks(self, experiment: Experiment) -> Iterable[str]:
        if self.source and self.source.method.accounted:
            yield f"ε rests on the account that {self.own_name} brings along, which nothing here has proved"

    def only_here(self) -> str | None:
        if Path(self.path).is_file():
            return None
        return f"{self.method.name} was defined in this program, and not in a Python file that a process can load"

    def runs_own_code(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        """Its class was made for one method: it travels as the program that it was made of."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return _made_again, (self.source and self.source.program, self.path, values, set(self.model_fields_set))


@dataclass(frozen=True, eq=False)
class _Source:
    """Where a method came from."""

    method: UserMethod
    program: bytes

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.program).hexdigest()


_live: WeakValueDictionary[tuple[str, str], type[FileSection]] = WeakValueDictionary()  # by digest and function


def class_of(path: str, function: str | None, sha256: str | None) -> type[FileSection]:
    """The section of the method in a file; where there is none, of the one of this program that the digest names."""
    live = None if Path(path).is_file() else _live.get((sha256 or "", function or ""))
    if live is not None:
        return live
    code = UserCode(FIELD, path)
    program = code.read()
    found = hashlib.sha256(program).hexdigest()
    if sha256 not in (None, found):
        wanted = f"the program that was run, SHA-256 {str(sha256)[:12]}…"
        raise code.refused(f"{wanted}: the file has changed, and has {found[:12]}… now")
    return _known(code, program, function)


def _known(code: UserCode, program: bytes, function: str | None) -> type[FileSection]:
    key = hashlib.sha256(program).hexdigest(), function or ""
    found = _live.get(key)
    if found is None:
        found = _live[key] = _class(_Source(_method(code, program, function), program), code)
    return found


def section_of(method: UserMethod, parameters: Mapping[str, Any]) -> FileSection:
    """Of a method that was defined in this program."""
    path, program = _defined(method)
    source = _Source(method, program)
    cls = _class(source, UserCode(FIELD, path))
    _live[source.sha256, method.name] = cls
    given = {"path": path, "function": method.name, "sha256": source.sha256, **parameters}
    return parse_section("algorithm", cls, given)


def _defined(method: UserMethod) -> tuple[str, bytes]:
    """The file in which a function stands by itself; else, by name, with its source or at least its code."""
    function: Any = method.function
    file = inspect.getsourcefile(function)
    if file and Path(file).is_file() and "<locals>" not in function.__qualname__:
        return str(Path(file).absolute()), Path(file).read_bytes()
    try:
        program = inspect.getsource(function).encode()
    except (OSError, TypeError):
        program = function.__code__.co_code + repr(function.__code__.co_consts).encode()
    return f"<{method.name}>", program


def _method(code: UserCode, program: bytes, function: str | None) -> UserMethod:
    methods = {name: one for name, one in vars(code.module(program)).items() if isinstance(one, UserMethod)}
    if function is None and len(methods) == 1:
        return next(iter(methods.values()))
    if function is None or function not in methods:
        some = f"one of {', '.join(methods)} as algorithm.function" if methods else "at least one"
        raise code.refused(f"a Python file with a function under @algorithm: {some}")
    return methods[function]


def _class(source: _Source, code: UserCode) -> type[FileSection]:
    """The section of one method: its parameters are fields, so they are checked as any other's are."""
    method = source.method
    fields: Any = {name: (_kind(value), _field(value)) for name, value in method.parameters.items()}
    made = create_model("FileSection", __base__=FileSection, __module__=__name__, **fields)
    made.source, made.noise_section = source, _noise_class({f"u_{name}": u for name, u in method.noise.items()})
    made.phases, made.noises = method.sends, tuple(f"noise_{name}" for name in method.noise)
    made.step, made.x_phase, made.gradient_phase = method.step, method.carries_x, method.carries_gradient
    made.tunables = tuple(_tunable(name, *ends, method.parameters[name]) for name, ends in method.search.items())
    made.algebra = "one message" if "recovered" in method.hooks and len(method.sends) == 1 else None
    try_out(made.model_validate({"path": code.named}))
    return made


def _noise_class(scales: Mapping[str, float]) -> type[FileNoise]:
    fields: Any = {name: (Scale, scale_field(u)) for name, u in scales.items()}
    made = create_model("FileNoise", __base__=FileNoise, __module__=__name__, **fields)
    made.scales = tuple(scales)
    ratios = (Tunable(name, 0.01, 100.0, relative=True) for name in made.scales[1:])
    made.tunables = (*FileNoise.tunables, *ratios)
    return made


def _tunable(name: str, low: float, high: float, default: object) -> Tunable:
    """Beyond its range a search may go, but not below 0."""
    whole = isinstance(default, int)
    return Tunable(name, low, high, "log" if low else "linear", least=1.0 if whole and low else 0.0, whole=whole)


def _kind(default: Any) -> Any:
    for kind in (bool, str):
        if isinstance(default, kind):
            return kind
    return float | int


def _field(default: Any) -> Any:
    shown = {bool: "true or false", str: "a word"}.get(type(default), "a number")
    return Field(default, description=f"{shown} (default: {default})")


def _made_again(program: bytes | None, path: str, values: Mapping[str, Any], given: set[str]) -> FileSection:
    """Out of a pickle. Where the program is no file, and of another process, all but running it works."""
    cls: type[FileSection] = FileSection
    if program is not None:
        known = _live.get((hashlib.sha256(program).hexdigest(), values["function"] or ""))
        try:
            cls = known or _known(UserCode(FIELD, path), program, values["function"])
        except BadInput:
            cls = FileSection
    return cls.model_construct(given, **values)


def _noise_again(scales: tuple[str, ...], values: Mapping[str, Any], given: set[str]) -> FileNoise:
    return _noise_class(dict.fromkeys(scales, 0.0)).model_construct(given, **values)
