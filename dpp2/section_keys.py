"""Which keys every section of an experiment may have, whatever kinds are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from dpp2.algorithms import ALGORITHMS
from dpp2.changed_kinds import KINDS
from dpp2.experiment import Experiment, RunSection
from dpp2.privacy.section import PrivacySection
from dpp2.schema import Section, keys_of

SECTIONS = tuple(field.name for field in fields(Experiment))


def section_kinds(section: str) -> Iterator[tuple[str, type[Section]]]:
    """The models that a section may have, by kind; the algorithm decides about [noise]."""
    if section in KINDS:
        yield from ((name, KINDS[section][1][name]) for name in KINDS[section][1].known)
    elif section == "noise":
        yield from ((name, ALGORITHMS[name].noise_section) for name in ALGORITHMS.names)
    else:
        yield section, RunSection if section == "run" else PrivacySection


def full_name(key: str) -> str | None:
    """`run.rounds` for `rounds`: the first section that has such a key in one of its kinds.

    >>> full_name("rounds"), full_name("u_e"), full_name("colour")
    ('run.rounds', 'noise.u_e', None)
    """
    return next((f"{section}.{key}" for section in SECTIONS if _has(section, key)), None)


def _has(section: str, key: str) -> bool:
    return any(key in keys_of(cls) for _, cls in section_kinds(section))
