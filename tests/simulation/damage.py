"""Checkpoint files as a stranger sees them: which are whole, which may be damaged, and how far a node may fall back.

It reads the format by itself: what the node's own code takes for whole is what is tested.
"""

from __future__ import annotations

import hashlib
import json
import random

from dpp2.privacy import MOST_ROUNDS
from tests.simulation.virtual_disk import VirtualDisk

_NEWER, _OLDER = "checkpoint.bin", "checkpoint-before.bin"


def damageable(disk: VirtualDisk) -> bool:
    """Whether there is a checkpoint."""
    return disk.read(_NEWER) is not None


def older_is_whole(disk: VirtualDisk) -> bool:
    """Or has never been written."""
    older = disk.read(_OLDER)
    return older is None or _whole(older)


def damage(disk: VirtualDisk, rng: random.Random) -> None:
    """Of the newer checkpoint one byte changes, or of the older one, or of both."""
    for name in rng.choice(((_NEWER,), (_NEWER,), (_OLDER,), (_NEWER, _OLDER))):
        if content := disk.read(name):
            disk.damage(name, rng.randrange(len(content)), rng.randint(1, 255))


def falls_back_to(disk: VirtualDisk) -> int:
    """The round at which the node would go on if the newer checkpoint were damaged now.

    Without a whole one before it would begin at round 0, and of all that the journal alone remembers.
    """
    older = disk.read(_OLDER)
    if older is None:
        return 0
    if not _whole(older):
        return MOST_ROUNDS
    length = int.from_bytes(older[32:40], "little")
    return int(json.loads(older[40 : 40 + length])["facts"]["round"])


def _whole(content: bytes) -> bool:
    return hashlib.sha256(content[32:]).digest() == content[:32]
