"""How far agents may go in one run: what their ledgers hold and the budget decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpp2.prepared import HostedAgents, account_of
from dpp2.privacy import Ledger
from dpp2.privacy.account import Note
from dpp2.privacy.grid import uncovered
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
        return [part.ledger(agent) for part in self._hosted for agent in part.owned]

    def allow(self, ledgers: Sequence[Ledger]) -> None:
        """Set how far the run may go: it stops before the round that would exceed the budget of any agent."""
        self.allowance = self.account.allowance(ledgers, self.run_id, self._wanted, resumed_at=self.k)
        self._keep_to_covered_rounds()

    @property
    def uncovered(self) -> int | None:
        """The first round whose noise float64 does not carry, if one was met."""
        return self.account.uncovered

    @property
    def stops_uncovered(self) -> bool:
        """Whether a run stops before such a round: a budget cannot be kept beyond it."""
        return self.account.budget is not None

    @property
    def stopped_uncovered(self) -> bool:
        """Whether it has stopped for that reason."""
        return self.stops_uncovered and self.uncovered is not None and self.uncovered >= self.k

    def remark(self, note: Note) -> None:
        """Something about how the run is carried out, which the experiment does not say."""
        self.account = replace(self.account, remarks=(*self.account.remarks, note))

    def uncover(self, k: int) -> None:
        """Round k is not covered: ε = ∞ from there on, and a run with a budget ends before it."""
        first = k if self.uncovered is None else min(k, self.uncovered)
        self.account = replace(self.account, uncovered=first)
        self._keep_to_covered_rounds()

    def _keep_to_covered_rounds(self) -> None:
        first = self.uncovered
        if first is not None and self.stops_uncovered and self.allowance.rounds > first:
            rounds = max(first, self.k)
            why = f"round {first} would bring the total to ε = ∞: {uncovered(first).reason}"
            self.allowance = Allowance(rounds, self.account.epsilon(rounds), why)
