"""Who listens, what such an audit is called, and what it is called that lies in a folder already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpp2 import BadInput
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth, insider
from dpp2.adversary.views import ATTACKERS, View, global_view, local_view, neighbour_view, partial_view


@dataclass(frozen=True)
class Attacker:
    """Who listens. `agent` is the victim of a local eavesdropper, or the curious participant itself."""

    kind: str = "global"
    agent: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ATTACKERS:
            raise BadInput("--attacker", self.kind, f"one of {', '.join(ATTACKERS)}")

    @property
    def words(self) -> str:
        return {
            "global": "an eavesdropper on all channels",
            "local": f"an eavesdropper on the channels of agent {self.agent}",
            "neighbour": f"agent {self.agent}, a curious neighbour who knows η",
            "partial": "an eavesdropper on half of the channels",
        }[self.kind]

    def view(self, observation: Observation, knowledge: Knowledge, truth: Truth | None) -> View:
        """What this attacker has of an observation."""
        if self.kind == "global":
            return global_view(observation, knowledge)
        if self.kind == "local":
            return local_view(observation, knowledge, self.agent)
        if self.kind == "partial":
            return partial_view(observation, knowledge)
        if truth is None:
            raise BadInput(
                "--attacker", "neighbour", "a run with truth.npz, which holds the neighbour's own state and η"
            )
        return neighbour_view(observation, insider(truth, knowledge, self.agent), self.agent)

    def check(self, agents: int) -> None:
        """Refuse an agent that is not there."""
        if not 0 <= self.agent < agents:
            raise BadInput("--agent", self.agent, f"a whole number from 0 to {agents - 1}")

    def asked(self, attacks: Sequence[Attack], *, game: bool) -> str:
        """A name for what an audit is asked. Only an audit of the same name takes its place."""
        who = f"{self.kind}-{self.agent}" if self.kind in ("local", "neighbour") else self.kind
        some = [one.name for one in attacks] if len(attacks) < len(ATTACKS) else []
        return "-".join([who, *some, *([] if game else ["no-game"])])


def kept_audit(folder: Path) -> str | None:
    """What the audit in this folder was asked; None where there is none that can be read."""
    try:
        kept = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
        return str(kept.get("asked", kept["attacker"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
