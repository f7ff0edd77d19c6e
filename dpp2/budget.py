"""How far agents may go in one run: what their ledgers hold and the budget decide."""

from __future__ import annotations

from collections.abc import Sequence

from dpp2.prepared import HostedAgents, account_of
from dpp2.privacy import Ledger
from dpp2.privacy.ledger import Allowance


class RunBudget:
    """What agents that are hosted together may spend: all of them in one process, or those of one node."""

    def __init__(self, hosted: Sequence[HostedAgents], run_id: str, k: int = 0) -> None:
        """`k` counts the rounds of which anything has left."""
        self.run_id, self.k = run_id, k
        self.account = account_of(hosted)  # one mechanism per agent
        self.allowance = Allowance(0, self.account.epsilon(0))
        self._hosted = tuple(hosted) if self.account.mechanisms else ()
        self._wanted = hosted[0].prepared.experiment.run.rounds

    def fresh_ledgers(self) -> list[Ledger]:
        """One empty ledger for each agent; none where no account is kept."""
        return [Ledger(str(agent), part.data_identity(agent)) for part in self._hosted for agent in part.owned]

    def allow(self, ledgers: Sequence[Ledger]) -> None:
        """Set how far the run may go: it stops before the round that would exceed the budget of any agent."""
        self.allowance = self.account.allowance(ledgers, self.run_id, self._wanted, resumed_at=self.k)
