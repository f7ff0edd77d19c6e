"""Where ledgers live: one SQLite file, a row for every run on every data set of this machine's agents.

SQLite gives what a ledger needs and nobody should write by hand: a charge is durable before it returns, and two runs
that start at once on the same data cannot both be granted the last of the budget.

A run is charged in full before its first round and settled when it ends. If it is killed in between, the charge
stays until the run is resumed: a ledger may say too much for a while, never too little.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpp2 import BadInput, Simulation
from dpp2.privacy import Ledger

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    data TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (data, run)
)
"""


class LedgerFile:
    """All ledgers of the agents that run here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reserve(self, simulation: Simulation) -> None:
        """Tell the run how far its budget goes, and charge every agent for that far."""
        with self._transaction() as rows:
            ledgers = rows.load(simulation)
            simulation.allow(ledgers)
            if rounds := simulation.allowance.rounds:
                pairs = zip(ledgers, simulation.account.mechanisms, strict=True)
                run_id = simulation.setting.secrets.run_id
                rows.store(run_id, [ledger.charge(run_id, mechanism, rounds - 1) for ledger, mechanism in pairs])

    def settle(self, simulation: Simulation) -> None:
        """The run has ended: it is charged for the rounds that were run."""
        run_id = simulation.setting.secrets.run_id
        with self._transaction() as rows:
            charged = [ledger for ledger in rows.load(simulation) if run_id in ledger.entries]
            rows.store(run_id, [ledger.settle(run_id, simulation.k) for ledger in charged])

    def publish(self, simulation: Simulation) -> None:
        """Charge for x^K + w^K, or refuse where an agent's budget does not reach."""
        run_id, budget = simulation.setting.secrets.run_id, simulation.account.budget
        with self._transaction() as rows:
            published = [ledger.publish(run_id, simulation.k) for ledger in rows.load(simulation)]
            for ledger in published:
                spent = ledger.spent()
                if budget is not None and not (hasattr(spent, "fits") and spent.fits(budget)):
                    raise BadInput(
                        "privacy.budget",
                        budget,
                        f"enough to publish, which would bring agent {ledger.agent} to ε = {spent}",
                    )
            rows.store(run_id, published)

    @contextmanager
    def _transaction(self) -> Iterator[_Rows]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            try:
                connection.execute(_SCHEMA)
                connection.execute("BEGIN IMMEDIATE")
                yield _Rows(connection)
                connection.execute("COMMIT")
            finally:
                connection.close()  # without a commit this rolls back
        except sqlite3.DatabaseError as error:
            raise BadInput("ledger", str(self.path), f"a ledger that can be used ({error})") from None


class _Rows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self, simulation: Simulation) -> list[Ledger]:
        """One ledger per agent of the run, with what earlier runs on its data have charged."""
        return [self._ledger(empty) for empty in simulation.fresh_ledgers()]

    def _ledger(self, empty: Ledger) -> Ledger:
        found = self._connection.execute("SELECT run, entry FROM entries WHERE data = ?", (empty.data_digest,))
        runs = {run: json.loads(entry) for run, entry in found}
        return Ledger.from_dict({**empty.to_dict(), "runs": runs})

    def store(self, run_id: str, ledgers: Sequence[Ledger]) -> None:
        rows = [(ledger.data_digest, run_id, ledger.agent, _entry(ledger, run_id)) for ledger in ledgers]
        self._connection.executemany(
            "INSERT OR REPLACE INTO entries (data, run, agent, entry) VALUES (?, ?, ?, ?)", rows
        )


def _entry(ledger: Ledger, run_id: str) -> str:
    return json.dumps(ledger.to_dict()["runs"][run_id])
