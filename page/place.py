"""Where a run lies, and where somebody listens to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
