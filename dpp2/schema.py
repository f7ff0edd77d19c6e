"""How a section of an experiment file is declared and checked.

A section is a frozen pydantic model; strict, so that "0.1" is no number. Each field's `description` states what is
accepted, in words that complete "expected …": it is the documentation and the error message at once.
Sections that come in kinds (topologies, problems, algorithms) are picked by their tag, so that the defaults
belong to the kind and only keys that were given must fit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dpp2.errors import NOTHING, BadInput, UnknownName

Table = dict[str, Any]  # a table of a TOML or JSON file, before or after it is checked


class Section(BaseModel):
    """One table of the experiment file."""

    # Keys that name a file, each with the words that stand for no file. A file is looked for relative to the experiment
    # file that names it, or to the working directory.
    paths: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    model_config = ConfigDict(
        defer_build=True,  # there are dozens of kinds, and an experiment has one of each
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        serialize_by_alias=True,
    )

    @classmethod
    def chosen(cls, table: Mapping[str, Any]) -> type[Self]:
        """The class that checks this table: the kind's own, unless a file that the table names says what it holds."""
        return cls

    @classmethod
    def owns(cls, key: str) -> bool:
        """Whether a key belongs to this kind, as a user writes it."""
        return key in keys_of(cls)

    def only_here(self) -> str | None:
        """Why no other process can build this, if none can: what it is made of lives in this program alone."""
        return None

    def runs_own_code(self) -> bool:
        """Whether whoever builds this runs Python that its owner wrote."""
        return False

    @classmethod
    def with_paths(cls, table: Mapping[str, Any], place: Callable[[str], str]) -> Table:
        """The table with every path in it put in its place."""
        placed = dict(table)
        for key, words in cls.paths.items():
            value = placed.get(key)
            if isinstance(value, str) and value not in ("", *words):
                placed[key] = place(value)
        return placed

    def given(self, *fields: str) -> bool:
        """Whether the file or the caller set any of these, rather than leaving the kind's default."""
        return any(field in self.model_fields_set for field in fields)

    def updated(self, **values: Any) -> Self:
        """A copy with these fields set, as resolving an experiment does."""
        return self.model_copy(update=values)

    def table(self) -> Table:
        """The section as a TOML table: everything but what is unset."""
        return self.model_dump(mode="json", exclude_none=True)

    def digest_table(self) -> Table:
        """The section as it enters the experiment's digest; files count by content, not by path."""
        return self.table()


AnySection = TypeVar("AnySection", bound=Section)


def parse_section(name: str, cls: type[AnySection], table: Mapping[str, Any]) -> AnySection:
    """Check one table against its model; the first failure becomes one `BadInput` sentence."""
    try:
        return cls.model_validate(dict(table))
    except ValidationError as error:
        raise _sentence(name, cls, error) from None


class Registry(Generic[AnySection]):
    """Registry of a section by name, each loaded when it is asked for: a node that runs one need not wait for all.

    Iterating gives the classes, in order.
    """

    def __init__(self, package: str, places: Mapping[str, str], from_outside: Mapping[str, str] | None = None) -> None:
        """`places` has "module:Class" in `package` for every name.

        Kinds in `from_outside` are nothing by their names alone: something of the user's must be given with them. They
        can be asked for, and are neither listed nor iterated over.
        """
        self._package, self._places, self._from_outside = package, dict(places), dict(from_outside or {})

    @property
    def names(self) -> list[str]:
        return list(self._places)

    @property
    def known(self) -> list[str]:
        """With those that need something from outside."""
        return [*self._places, *self._from_outside]

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def __getitem__(self, name: str) -> type[AnySection]:
        module, _, cls = (self._places.get(name) or self._from_outside[name]).partition(":")
        found: type[AnySection] = getattr(import_module(f"{self._package}.{module}"), cls)
        return found

    def __iter__(self) -> Iterator[type[AnySection]]:
        return (self[name] for name in self._places)


def parse_kind(name: str, tag: str, kinds: Registry[AnySection], table: Mapping[str, Any]) -> AnySection:
    """Check a table whose `tag` key picks the kind; the first kind is the default."""
    chosen = table.get(tag, kinds.names[0])
    if not isinstance(chosen, str) or chosen not in kinds:
        raise UnknownName(f"{name}.{tag}", chosen, chosen, kinds.known)
    return parse_section(name, kinds[chosen].chosen(table), table)


def keys_of(cls: type[Section]) -> list[str]:
    """The keys of a section as a user writes them (`lambda`, not `lambda_`)."""
    return [field.alias or key for key, field in cls.model_fields.items()]


def _sentence(name: str, cls: type[Section], error: ValidationError) -> BadInput:
    first = error.errors()[0]
    if not first["loc"]:  # a rule over several fields: the model's own words
        return BadInput(name, first["input"], str(first["msg"]).removeprefix("Value error, "))
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return UnknownName(f"{name}.{key}", first["input"], key, keys_of(cls), "a known key: ")
    described = {(f.alias or k): f.description for k, f in cls.model_fields.items()}
    accepted = described.get(key) or str(first["msg"])
    value = NOTHING if first["type"] == "missing" else first["input"]
    return BadInput(f"{name}.{key}", value, accepted)
