"""Who may read a file: a secret is its owner's alone, whatever kind of secret it is."""

from __future__ import annotations

from pathlib import Path

from dpp2.errors import BadInput

_OTHERS = 0o077  # group and everybody


def check_private(field: str, path: Path, mode: int) -> None:
    """Refuse a secret that others can read; `mode` as `stat` gives it."""
    if mode & _OTHERS:
        raise BadInput(field, str(path), "a file that only its owner can read (mode 0600 or 0400)")
