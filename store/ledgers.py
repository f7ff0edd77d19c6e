"""Where ledgers live: one SQLite file, a row for every agent of every run on every data set.

SQLite gives what a ledger needs and nobody should write by hand: a charge is durable before it returns, and two runs
that start at once on the same data cannot both be granted the last of the budget.

A run is charged in full before its first round and settled when it ends. If it is killed in between, the charge
stays until the run is resumed: a ledger may say too much for a while, never too little. `settled` remembers how many
rounds are known to have been run, because a seeded run can be run again, for fewer rounds, under the same id.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dpp2.errors import BadInput
from dpp2.privacy import Epsilon, Ledger, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.ledger import Allowance

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    data TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, entry TEXT NOT NULL, settled INTEGER NOT NULL,
    PRIMARY KEY (data, run, agent)
)
"""


class Spender(Protocol):
    """Agents in a run that spend: all of them in one process, or those of one node."""

    account: Account  # one mechanism per agent
    allowance: Allowance

    @property
    def run_id(self) -> str: ...

    @property
    def k(self) -> int:
        """Rounds that have been run."""

    def fresh_ledgers(self) -> list[Ledger]: ...

    def allow(self, ledgers: Sequence[Ledger]) -> None:
        """Sets `allowance`."""


@dataclass(frozen=True)
class Total:
    """One agent's account of one data set."""

    agent: str
    data: str
    runs: int
    spent: Epsilon | Unsupported


class LedgerFile:
    """All ledgers of the agents that run here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reserve(self, spender: Spender) -> None:
        """Tell the run how far its budget goes, and charge every agent for that far."""
        with self._transaction() as rows:
            ledgers = rows.load(spender)
            spender.allow(ledgers)
            if rounds := spender.allowance.rounds:
                pairs = zip(ledgers, spender.account.mechanisms, strict=True)
                run_id = spender.run_id
                rows.store(run_id, [ledger.charge(run_id, mechanism, rounds - 1) for ledger, mechanism in pairs])

    def consult(self, spender: Spender) -> None:
        """Tell the run how far its budget goes; others will charge."""
        with self._transaction() as rows:
            spender.allow(rows.load(spender))

    def settle(self, spender: Spender) -> None:
        """The run has ended: it is charged for the rounds that were run, now or earlier under the same id."""
        run_id = spender.run_id
        with self._transaction() as rows:
            charged = [ledger for ledger in rows.load(spender) if run_id in ledger.entries]
            ran = [max(spender.k, rows.settled(run_id, ledger)) for ledger in charged]
            settled = [_charged_exactly(*pair, run_id) for pair in zip(charged, ran, strict=True)]
            rows.store(run_id, settled, spender.k)

    def knows(self, spender: Spender) -> bool:
        """Whether every agent of the run has been charged for it here."""
        run_id = spender.run_id
        with self._transaction() as rows:
            return all(run_id in ledger.entries for ledger in rows.load(spender))

    def totals(self) -> list[Total]:
        """What every agent has spent on each of its data sets, over all runs."""
        with self._transaction() as rows:
            ledgers = rows.everything()
        return [Total(ledger.agent, ledger.data_digest, len(ledger.entries), ledger.spent()) for ledger in ledgers]

    def publish(self, spender: Spender) -> None:
        """Charge for x^K + w^K, or refuse where an agent's budget does not reach."""
        run_id, budget = spender.run_id, spender.account.budget
        with self._transaction() as rows:
            published = [ledger.publish(run_id, spender.k) for ledger in rows.load(spender)]
            for ledger in published:
                spent = ledger.spent()
                if budget is not None and not (isinstance(spent, Epsilon) and spent.fits(budget)):
                    raise BadInput(
                        "privacy.budget",
                        budget,
                        f"enough to publish, which would bring agent {ledger.agent} to ε = {spent}",
                    )
            rows.store(run_id, published, spender.k)

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

    def load(self, spender: Spender) -> list[Ledger]:
        """One ledger per agent of the run, with what earlier runs on its data have charged."""
        return [self._ledger(empty) for empty in spender.fresh_ledgers()]

    def _ledger(self, empty: Ledger) -> Ledger:
        """Of each run the agent's own entry; of a run where the data lay with others, each of theirs."""
        question = "SELECT run, agent, entry FROM entries WHERE data = ?"
        found = self._connection.execute(question, (empty.data_digest,)).fetchall()
        runs = {run: _plain(entry) for run, agent, entry in found if agent == empty.agent}
        others = {f"{run} of agent {agent}": _plain(entry) for run, agent, entry in found if run not in runs}
        return Ledger.from_dict({**empty.to_dict(), "runs": runs | others})

    def everything(self) -> list[Ledger]:
        """All ledgers of the file."""
        owners = self._connection.execute(
            "SELECT DISTINCT agent, data FROM entries ORDER BY CAST(agent AS INTEGER), data"
        )
        return [self._ledger(Ledger(agent, data)) for agent, data in owners.fetchall()]

    def settled(self, run_id: str, ledger: Ledger) -> int:
        """How many rounds of the run are known to have been run."""
        question = "SELECT settled FROM entries WHERE data = ? AND run = ? AND agent = ?"
        return int(self._connection.execute(question, (ledger.data_digest, run_id, ledger.agent)).fetchone()[0])

    def store(self, run_id: str, ledgers: Sequence[Ledger], settled: int = 0) -> None:
        self._connection.executemany(
            "INSERT INTO entries (data, run, agent, entry, settled) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET entry = excluded.entry, settled = max(settled, excluded.settled)",
            [(ledger.data_digest, run_id, ledger.agent, _entry(ledger, run_id), settled) for ledger in ledgers],
        )


def _charged_exactly(ledger: Ledger, rounds: int, run_id: str) -> Ledger:
    settled = ledger.settle(run_id, rounds)
    return settled.charge(run_id, ledger.entries[run_id].mechanism, rounds - 1) if rounds else settled


def _plain(entry: Any) -> dict[str, Any]:
    try:
        plain = json.loads(entry)
    except (TypeError, ValueError):
        plain = None
    if not isinstance(plain, dict):
        raise BadInput("ledger entry", entry, "a JSON object")
    return plain


def _entry(ledger: Ledger, run_id: str) -> str:
    return json.dumps(ledger.entries[run_id].to_dict())
