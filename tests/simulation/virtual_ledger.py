"""The ledgers of one node in memory, which is as durable as SQLite: charging and settling are the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpp2.budget import RunBudget
from dpp2.privacy import Ledger
from dpp2.store.ledgers import LedgerFile


class VirtualLedger(LedgerFile):
    """Its own only transaction: nothing in it can be half done."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self._ledgers: dict[str, Ledger] = {}
        self._settled: dict[str, int] = {}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        yield self

    def load(self, budget: RunBudget) -> list[Ledger]:
        return [self._ledgers.get(fresh.agent, fresh) for fresh in budget.fresh_ledgers()]

    def settled(self, budget: RunBudget, ledgers: Sequence[Ledger]) -> list[int]:
        return [max(self._settled.get(ledger.agent, 0), budget.k) for ledger in ledgers]

    def store(self, run_id: str, ledgers: Sequence[Ledger], settled: int = 0) -> None:
        for ledger in ledgers:
            self._ledgers[ledger.agent] = ledger
            self._settled[ledger.agent] = max(self._settled.get(ledger.agent, 0), settled)

    def charged(self, run_id: str) -> list[int]:
        """Rounds of the run that each agent has been charged for."""
        return [ledger.entries[run_id].rounds for ledger in self._ledgers.values() if run_id in ledger.entries]
