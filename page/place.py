"""Where a run lies, and where somebody listens to it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NODES = "nodes/node-*/runs/*/node.json"  # what nodes on this machine note, below a run


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
                noted.append(json.loads(path.read_text()).get("uncovered"))
        return min((k for k in noted if isinstance(k, int)), default=None)
