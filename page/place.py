"""Where a run lies, and where somebody listens to it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpp2.store.files import plain_size, read_json

NODES = "nodes/node-*/runs/*/node.json"  # what nodes on this machine note, below a run
_MOST_FACTS = 2**24  # bytes of node.json, where a million agents have room


@dataclass(frozen=True)
class Place:
    """A run directory, or what an orchestrator keeps of a run over nodes elsewhere."""

    run: Path
    tap: Path | None = None  # captures that lie elsewhere

    @property
    def captures(self) -> Path:
        return self.tap or self.run / "tap"

    @property
    def cluster(self) -> Path:
        own = self.run / "nodes" / "cluster.toml"
        return own if own.is_file() else self.run / "cluster.toml"

    def uncovered(self) -> int | None:
        """The first round whose noise float64 did not carry. Nodes write it down, and tell nobody before the end."""
        noted = []
        for path in self.run.glob(NODES):
            with suppress(OSError, ValueError, AttributeError):
                plain_size(path)
                noted.append(read_json(path, _MOST_FACTS).get("uncovered"))
        return min((k for k in noted if isinstance(k, int)), default=None)
