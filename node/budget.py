"""How far a node lets its agents go: their ledger and the budget in its own file decide, whatever anybody asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpp2.privacy import Ledger
from dpp2.privacy.account import Account
from dpp2.privacy.ledger import Allowance
from node.hosting import Hosting


class Budget:
    """What the hosted agents may spend in one run. `k` counts the rounds of which anything has left."""

    def __init__(self, hosting: Hosting, run_id: str, k: int) -> None:
        self.hosting, self.run_id, self.k = hosting, run_id, k
        self.account = _account(hosting)
        self.allowance = Allowance(0, self.account.epsilon(0))

    def fresh_ledgers(self) -> list[Ledger]:
        """One for each hosted agent; none where no account is kept."""
        owned = self.hosting.owned if self.account.mechanisms else ()
        problem, agents = self.hosting.experiment.problem, self.hosting.graph.agents
        data = (hashlib.sha256(problem.data_identity(agent, agents)).hexdigest() for agent in owned)
        return [Ledger(str(agent), digest) for agent, digest in zip(owned, data, strict=True)]

    def allow(self, ledgers: Sequence[Ledger]) -> None:
        rounds = self.hosting.experiment.run.rounds
        self.allowance = self.account.allowance(ledgers, self.run_id, rounds, resumed_at=self.k)


def _account(hosting: Hosting) -> Account:
    """The network's account, of which this node can fill in its own agents only; they are all it answers for."""
    smoothness = np.zeros(hosting.graph.agents)
    smoothness[list(hosting.owned)] = hosting.objective.smoothness
    account = Account.of(hosting.experiment, smoothness, hosting.dimension)
    own = hosting.owned if account.mechanisms else ()
    return replace(account, mechanisms=tuple(account.mechanisms[agent] for agent in own))
