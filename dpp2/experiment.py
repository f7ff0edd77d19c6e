"""An experiment: six checked tables, where they come from, and the digest that names them.

An `Experiment` is what was asked for; `resolve()` settles what is open (the seed of the graph that is connected, the
scale of the data), and the resolved one, written out as TOML, is enough to run it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Never

from pydantic import Field

from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.base import AlgorithmSection, NoiseSection
from dpp2.changed_kinds import KINDS, chosen_kinds, fitted
from dpp2.errors import BadInput, UnknownName
from dpp2.privacy.section import PrivacySection
from dpp2.problems import PROBLEMS, ProblemSection
from dpp2.problems.base import Objective, clip_records
from dpp2.schema import Section, Table, parse_kind, parse_section
from dpp2.shipped import experiment_file, shipped_experiments
from dpp2.topology import TOPOLOGIES, NetworkSection

Tables = dict[str, Table]

_NO_FILE = ("normal", "zero")  # starting points that are drawn or nothing
# Not part of what a run IS: a resumed run may go on longer, or elsewhere, and its noise must not change.
_NOT_IN_DIGEST = ("rounds", "transport", "telemetry", "records")


# Beyond it a run has diverged, or a neighbour wants us to compute where rounding is all that is left (2⁵¹ is there).
LARGEST_VALUE = 2.0**40

# How rounds can be carried out. Each is a module of this name in orchestrator/transports.
TRANSPORTS = ("embedded", "grpc")


class RunSection(Section):
    """`[run]`"""

    paths: ClassVar[Mapping[str, tuple[str, ...]]] = {"start": _NO_FILE}

    rounds: int = Field(500, ge=1, le=10**7, description="a whole number from 1 to 10,000,000")
    seed: int | Literal["os"] = Field(
        1,
        description='a whole number ≥ 0, or "os" for secrets from the operating system',
        union_mode="left_to_right",
    )
    transport: str = Field(
        TRANSPORTS[0],
        pattern=f"^({'|'.join(TRANSPORTS)})$",
        description=" or ".join(f'"{name}"' for name in TRANSPORTS),
    )
    telemetry: Literal["full", "none"] = Field("full", description='"full" (records x, grad, w, e) or "none"')
    records: Literal["auto", "npz", "zarr", "none"] = Field(
        "auto", description='"npz", "zarr" (a chunk at a time), "auto" (zarr above 1 GiB) or "none"'
    )
    start: str = Field("normal", min_length=1, description='"normal", "zero" or the path of a file with x⁰')
    largest_value: float | None = Field(
        None, gt=0, description="a number > 0, which nothing that is sent may exceed (default: 2^40)"
    )

    @property
    def largest(self) -> float:
        """What nothing that is sent may exceed."""
        return self.largest_value or LARGEST_VALUE


SomeTable = Mapping[str, Any]


@dataclass(frozen=True, init=False)
class Experiment:
    """One experiment: six sections, each given as itself or as a table of what differs from the paper's.

    >>> Experiment(network={"topology": "ring"}, run={"rounds": 100}).network.agents
    50
    """

    run: RunSection
    network: NetworkSection
    problem: ProblemSection
    algorithm: AlgorithmSection
    noise: NoiseSection
    privacy: PrivacySection

    def __init__(
        self,
        run: RunSection | SomeTable | None = None,
        network: NetworkSection | SomeTable | None = None,
        problem: ProblemSection | SomeTable | None = None,
        algorithm: AlgorithmSection | SomeTable | None = None,
        noise: NoiseSection | SomeTable | None = None,
        privacy: PrivacySection | SomeTable | None = None,
        **unknown: Never,
    ) -> None:
        """Tables are checked against the schema; each kind brings its own defaults."""
        _check_sections(unknown)
        method = _made(
            "algorithm", algorithm, AlgorithmSection, lambda t: parse_kind("algorithm", "name", ALGORITHMS, t)
        )
        sections: dict[str, Section] = {
            "run": _made("run", run, RunSection, _run_section),
            "network": _made("network", network, NetworkSection, lambda t: _network(method, t)),
            "problem": _made("problem", problem, ProblemSection, lambda t: parse_kind("problem", "name", PROBLEMS, t)),
            "algorithm": method,
            "noise": _made("noise", noise, NoiseSection, lambda t: parse_section("noise", method.noise_section, t)),
            "privacy": _made("privacy", privacy, PrivacySection, lambda t: parse_section("privacy", PrivacySection, t)),
        }
        for name, section in sections.items():
            object.__setattr__(self, name, section)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        overrides: Iterable[str] | Mapping[str, Any] = (),
        note: Callable[[str], None] = warnings.warn,
    ) -> Experiment:
        """From a TOML file, or a shipped experiment by its name (none: the paper's), with overrides on top.

        Overrides are "section.key=value" strings (or one), the value being TOML or a bare word, or a mapping
        {"section.key": value}. One that picks another kind (algorithm.name, network.topology, problem.name) drops what
        the file says of the old kind alone; `note` hears of it.
        """
        given = _tabled(overrides)
        if path is None:
            return cls.parse(given)
        file = experiment_file(path)
        read, dropped = fitted(_placed(_read(file), given, file.parent), given)
        if dropped:
            note(f"{chosen_kinds(given)}, so these of {path} are left out: {', '.join(dropped)}")
        return cls.parse(_over(read, given))

    @classmethod
    def parse(cls, tables: Mapping[str, Any]) -> Experiment:
        """From tables by name, as a TOML file has them."""
        return cls(**tables)

    def replace(
        self,
        overrides: Iterable[str] | SomeTable = (),
        *,
        run: RunSection | SomeTable | None = None,
        network: NetworkSection | SomeTable | None = None,
        problem: ProblemSection | SomeTable | None = None,
        algorithm: AlgorithmSection | SomeTable | None = None,
        noise: NoiseSection | SomeTable | None = None,
        privacy: PrivacySection | SomeTable | None = None,
        **unknown: Never,
    ) -> Experiment:
        """A copy with some settings changed; overrides are as for `load`, and another kind drops the old one's keys.

        >>> Experiment().replace(["algorithm.name=dgd"], run={"rounds": 20}).run.rounds
        20
        """
        _check_sections(unknown)
        given = _tabled(overrides)
        sections = (run, network, problem, algorithm, noise, privacy)
        for field, section in zip(fields(self), sections, strict=True):
            if section is not None:
                given[field.name] = {**given.get(field.name, {}), **_given(field.name, section)}
        mine = {field.name: _given(field.name, getattr(self, field.name)) for field in fields(self)}
        kept, _ = fitted(mine, given)
        return Experiment.parse(_over(kept, given))

    def resolve(self) -> Experiment:
        """Settle what is open. Resolving a resolved experiment changes nothing."""
        network = self.network.resolve()
        self.algorithm.check_network(network)
        self.noise.check(network.agents)
        self.privacy.check()
        self._check_clip()
        problem = self.problem
        if problem.seed is None:
            # Without a run seed the data still need one: 1, as for a seeded run, since data are not secrets of the run.
            problem = problem.updated(seed=self.run.seed if isinstance(self.run.seed, int) else 1)
        settle = problem.resolve_for_records if self.privacy.adjacency == "record" else problem.resolve
        return self.algorithm.settled(replace(self, network=network, problem=settle(network.agents)))

    @property
    def shares_edge_secrets(self) -> bool:
        """Whether neighbours draw common noise from secrets of their own; with a seed, everybody knows them."""
        return self.algorithm.edge_noise and not isinstance(self.run.seed, int)

    def setting(self, name: str) -> Any:
        """A setting by the name that an override would give it, such as "noise.u_e"."""
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)

    def with_setting(self, name: str, value: Any) -> Experiment:
        """A copy with this setting changed."""
        section, _, key = name.partition(".")
        changed: Any = getattr(self, section).updated(**{key: value})
        return replace(self, **{section: changed})

    def objective(self, owned: Sequence[int] | None = None) -> Objective:
        """The f_i of these agents (none named: of all) as they are run: features bounded or gradients clipped.

        Of a resolved experiment. Everybody who needs an objective takes it from here.
        """
        agents, bound, clip = self.network.agents, self.privacy.feature_bound, self.privacy.clip
        problem = self.problem if bound is None else self.problem.bounded(bound)
        objective = problem.objective(range(agents) if owned is None else owned, agents)
        return objective if clip is None else clip_records(objective, clip)

    def _check_clip(self) -> None:
        """Clipping bounds what a record does to a gradient, and not how steep the gradient is."""
        if self.privacy.clip is None or not self.algorithm.needs_smoothness:
            return
        why = f"the account of {self.algorithm.name} needs a bound M on curvature, which clipping does not give"
        raise BadInput("privacy.clip", self.privacy.clip, f"nothing: {why} (privacy.feature_bound does)")

    def tables(self) -> Tables:
        """The experiment as TOML tables."""
        return {field.name: getattr(self, field.name).table() for field in fields(self)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that decides what is computed and sent, of a resolved experiment.

        Files count by their content, not by their path: the same experiment has one digest on every machine.
        """
        tables = {field.name: getattr(self, field.name).digest_table() for field in fields(self)}
        for key in _NOT_IN_DIGEST:
            del tables["run"][key]
        if self.run.largest == LARGEST_VALUE:  # said or not, it is the same run
            tables["run"].pop("largest_value", None)
        if self.run.start not in _NO_FILE:
            tables["run"]["start"] = hashlib.sha256(_start_bytes(self.run.start)).hexdigest()
        return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        """A file that `load` reads back, wherever it is put: what it names, it names by absolute paths."""
        sections = {field.name: getattr(self, field.name) for field in fields(self)}
        tables = {name: one.with_paths(one.table(), _absolute) for name, one in sections.items()}
        return "\n".join(f"[{name}]\n{_assignments(table)}" for name, table in tables.items())


def _made(name: str, given: Any, cls: Any, parse: Callable[[SomeTable], Section]) -> Any:
    """A section as it is, or of a table."""
    if isinstance(given, cls):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise BadInput(name, given, "a table of keys and values")
    return parse(given or {})


def _run_section(table: SomeTable) -> RunSection:
    run = parse_section("run", RunSection, table)
    if isinstance(run.seed, int) and run.seed < 0:
        raise BadInput("run.seed", run.seed, RunSection.model_fields["seed"].description or "")
    return run


def _given(name: str, section: Section | SomeTable) -> Table:
    """What somebody has set in a section, and its kind: the rest is the kind's own."""
    if not isinstance(section, Section):
        return dict(section)
    tag = {KINDS[name][0]: getattr(section, KINDS[name][0])} if name in KINDS else {}
    return {**section.model_dump(mode="json", exclude_unset=True, exclude_none=True), **tag}


def _network(algorithm: AlgorithmSection, table: Mapping[str, Any]) -> NetworkSection:
    """An algorithm that runs on one topology brings it along; resolving refuses others, by their shape."""
    only = algorithm.topology
    return parse_kind("network", "topology", TOPOLOGIES, table if only is None else {"topology": only, **table})


def _read(path: Path) -> Tables:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput("FILE", str(path), "a TOML file in UTF-8") from None
    except OSError as error:
        shipped = f"; `{path.stem}` alone is the shipped one" if path.stem in shipped_experiments() else ""
        raise BadInput("FILE", str(path), f"a readable TOML file ({error.strerror}{shipped})") from None
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # plain ValueError: an integer of thousands of digits
        raise BadInput("FILE", str(path), f"valid TOML ({error})") from None
    if not tables:
        raise BadInput("FILE", str(path), "at least one section; without any FILE the paper's experiment is run")
    return tables


def _check_sections(unknown: Iterable[str]) -> None:
    for name in unknown:
        raise UnknownName("section", name, name, [field.name for field in fields(Experiment)])


def _tabled(overrides: Iterable[str] | Mapping[str, Any]) -> Tables:
    """Overrides as tables."""
    tables: Tables = {}
    listed = [overrides] if isinstance(overrides, str) else overrides
    for name, value in listed.items() if isinstance(listed, Mapping) else map(_parse_override, listed):
        section, dot, key = name.partition(".")
        if not dot or not key:
            raise _no_section(name)
        tables.setdefault(section, {})[key] = value
    return tables


def _no_section(name: str) -> BadInput:
    """`rounds=100` without its section; most keys exist in one section only."""
    from dpp2.section_keys import full_name

    meant = full_name(name)
    return BadInput("--set", name, f"section.key=value{f' (did you mean {meant}?)' if meant else ''}")


def _placed(read: Tables, given: Tables, folder: Path) -> Tables:
    """What a file in `folder` says; paths in it are relative to it."""
    tables: Tables = {}
    for name, table in read.items():
        cls = _section_class(name, {**table, **given.get(name, {})}) if isinstance(table, Mapping) else None
        tables[name] = cls.with_paths(table, lambda path: str(folder / path)) if cls else table
    return tables


def _over(below: Tables, above: Tables) -> Tables:
    """Tables with others on top. One that is no table (the file says `run = 3`) stays, and `parse` refuses it."""
    names = [*below, *(name for name in above if name not in below)]
    tables = {name: (below.get(name, {}), above.get(name, {})) for name in names}
    return {name: {**low, **high} if isinstance(low, Mapping) else low for name, (low, high) in tables.items()}


def _section_class(name: str, table: Mapping[str, Any]) -> type[Section] | None:
    """Whose paths a table may hold; None for a section or a kind that does not exist, which `parse` refuses."""
    if name not in KINDS:
        return RunSection if name == "run" else None
    tag, kinds = KINDS[name]
    chosen = table.get(tag, kinds.names[0])
    if chosen not in kinds:
        return None
    return kinds[chosen]


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def _parse_override(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput("--set", text, "section.key=value")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        bare = value.strip()
        # ".9" is no TOML, but nobody who types it means a word
        return name.strip(), float(bare) if re.fullmatch(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", bare) else bare


def _start_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", error)
        raise BadInput("run.start", path, f'"normal", "zero" or a readable file with x⁰ ({reason})') from None


def _assignments(table: Mapping[str, Any]) -> str:
    # JSON's strings, numbers, booleans and lists are TOML's as well, and that is all a section holds.
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items())
