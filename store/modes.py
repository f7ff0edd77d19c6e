"""Who may read a file: a secret is its owner's alone, whatever kind of secret it is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dpp2.errors import BadInput

_OTHERS = 0o077  # group and everybody


def check_private(field: str, path: Path, mode: int) -> None:
    """Refuse a secret that others can read; `mode` as `stat` gives it."""
    if mode & _OTHERS:
        raise BadInput(field, str(path), "a file that only its owner can read (mode 0600 or 0400)")


def make_private(folder: Path) -> None:
    """A folder for its owner alone. One that is there is closed to others, if it is ours to close."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    elif folder.stat().st_mode & _OTHERS and folder.stat().st_uid == os.geteuid():
        with suppress(OSError):  # a volume that knows no modes
            folder.chmod(0o700)
