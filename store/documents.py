"""Documents: what commands print and folders keep, as dataclasses. In JSON a field goes by its own name,
unless its metadata say otherwise (`called`), and is always there, unless it is `OPTIONAL`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypedDict

OPTIONAL = {"optional": True}  # metadata of a field that is left out where it is None


def called(name: str) -> dict[str, str]:
    """Metadata of a field that JSON calls by this name, because Python keeps the word for itself."""
    return {"name": name}


class EpsilonDocument(TypedDict):
    """ε, its log10 and log2 of its δ_dp beside the paper's; null where there is no number: the reason says why."""

    epsilon: float | None
    log10_epsilon: float | None
    log2_delta: float | None  # of the δ_dp beside ε, with noise on a grid
    reason: str | None
    paper_epsilon: float | None
    paper_log10_epsilon: float | None
    paper_reason: str | None


def plain(value: Any) -> Any:
    """What JSON knows: objects, lists, text, numbers. It knows no infinity, so what is not finite becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(inner) for name, inner in _named(value)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _named(document: Any) -> list[tuple[str, Any]]:
    found = [(one.metadata, one.name, getattr(document, one.name)) for one in fields(document)]
    shown = [one for one in found if one[2] is not None or "optional" not in one[0]]
    return [(metadata.get("name", name), value) for metadata, name, value in shown]
