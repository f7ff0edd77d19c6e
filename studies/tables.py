"""A table as text, for whoever prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None
