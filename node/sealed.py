"""Small facts in JSON with a checksum of their own: a damaged number is not believed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from dpp2.node.disk import Disk
from dpp2.node.errors import NodeFailed

_CHECKSUM = "checksum"


def read_facts(disk: Disk, name: str) -> dict[str, Any] | None:
    """What `write_facts` wrote; None if there is no such file. What is damaged stops the node."""
    content = disk.read(name)
    if content is None:
        return None
    try:
        facts = json.loads(content)
        if facts.pop(_CHECKSUM) == _checksum(facts):
            return dict(facts)
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise NodeFailed(f"{disk.path(name)} is damaged: this node cannot go on with this run, but can with another run id")


def write_facts(disk: Disk, name: str, facts: Mapping[str, Any]) -> None:
    """Whole or not at all, and durable when this returns."""
    disk.replace(name, json.dumps({**facts, _CHECKSUM: _checksum(facts)}).encode())
    disk.sync_names()


def _checksum(facts: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(facts, sort_keys=True).encode()):08x}"
