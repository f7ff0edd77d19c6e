"""Where a run lies, and where somebody listens to it."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpp2.store.files import plain_size, read_json

NODES = "nodes/node-*/runs/*/node.json"  # what nodes on this machine note, below a run
_MOST_FACTS = 2**24  # bytes of node.json, where a million agents have room
_MOST_AUDIT = 2**25  # bytes of audit.json: a curve for each of its attacks


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

    def audited(self, symbol: str) -> str:
        """What `dpp2 audit` has said of a quantity (x_i or ∇f_i) in this run, in one sentence; empty if nothing."""
        path = self.run / "audit.json"
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            plain_size(path)
            told = [str(sentence) for sentence in read_json(path, _MOST_AUDIT)["summary"][1:4]]
            return next((sentence[:500] for sentence in told if symbol in sentence), "")
        return ""

    @property
    def resume(self) -> str:
        """What goes on with the run when it is interrupted; of nodes elsewhere, whoever has driven them does."""
        elsewhere = (self.run / "cluster.toml").is_file()
        return "the same dpp2 orchestrate command" if elsewhere else f"dpp2 run --resume {shlex.quote(str(self.run))}"

    def uncovered(self) -> int | None:
        """The first round whose noise float64 did not carry. Nodes write it down, and tell nobody before the end."""
        noted = []
        for path in self.run.glob(NODES):
            with suppress(OSError, ValueError, AttributeError):
                plain_size(path)
                noted.append(read_json(path, _MOST_FACTS).get("uncovered"))
        return min((k for k in noted if isinstance(k, int)), default=None)
