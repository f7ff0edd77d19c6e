"""Who listens, and what such an audit is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpp2 import BadInput
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth, insider
from dpp2.adversary.views import ATTACKERS, View, global_view, local_view, neighbour_view, partial_view

WHOLE = "global"  # what the audit is called in which everybody is heard, every attack is run and the game is played


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

    def asked(self, attacks: Sequence[Attack], *, game: bool, last: int | None = None) -> str:
        """A name for what an audit is asked, and for its folder unless it is the `WHOLE` one."""
        who = f"{self.kind}-{self.agent}" if self.kind in ("local", "neighbour") else self.kind
        some = [one.name for one in attacks] if len(attacks) < len(ATTACKS) else []
        return "-".join([who, *some, *([] if game else ["no-game"]), *([f"last-{last}"] if last else [])])
