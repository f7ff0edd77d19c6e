"""Where ledgers live: one SQLite file, a row for every agent of every run on every data set.

Data from outside are known by their values (format 2). Format 1 knew them by the bytes of a file; its entries stay as
they are. Names of the same data (the bytes of a file, a data set's name, a program without its comments) are linked for
ever when they are charged together. What was charged under one of them counts under all: a name can join budgets and
never open a fresh one.

SQLite gives what a ledger needs and nobody should write by hand: a charge is durable before it returns, and two runs
that start at once on the same data cannot both be granted the last of the budget.

A run is charged in full before its first round and settled when it ends. If it is killed in between, the charge
stays until the run is resumed: a ledger may say too much for a while, never too little. `settled` remembers how many
rounds are known to have been run, because a seeded run can be run again, for fewer rounds, under the same id.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from dpp2.budget import RunBudget
from dpp2.errors import BadInput
from dpp2.privacy import Epsilon, Ledger, Unsupported
from dpp2.privacy.ledger import Entry, changed_alike
from dpp2.privacy.releases import Releases
from dpp2.store.turns import descriptors_are_used_up, transaction

log = logging.getLogger("dpp2.ledger")

_Row = tuple[str, str, str, Any]  # run, agent, data, entry
_AT_ONCE = 20_000  # agents in one question
_FORMAT = 2
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries (data TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, "
    "entry TEXT NOT NULL, settled INTEGER NOT NULL, PRIMARY KEY (data, run, agent))",
    "ALTER TABLE entries ADD COLUMN format INTEGER NOT NULL DEFAULT 1",  # of the file when the entry was made
    "CREATE TABLE same (data TEXT NOT NULL, known_as TEXT NOT NULL, PRIMARY KEY (data, known_as))",  # both ways
    f"PRAGMA user_version = {_FORMAT}",
)
# Everything that is linked to some names of data, however far.
_ALIKE = """
WITH RECURSIVE alike(name) AS (
    SELECT value FROM json_each(?) UNION SELECT same.known_as FROM same JOIN alike ON same.data = alike.name
)
"""


@dataclass(frozen=True)
class Total:
    """One agent's account of one data set."""

    agent: str
    data: str  # the identity of one version
    names: tuple[str, ...]  # of the data set, if it has any
    runs: int
    spent: Epsilon | Unsupported


class LedgerFile:
    """All ledgers of the agents that run here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reserve(self, budget: RunBudget) -> None:
        """Tell the run how far its budget goes, and charge every agent for that far."""
        run_id = budget.run_id
        with self._transaction() as rows:
            ledgers = rows.load(budget)
            budget.allow(ledgers)
            if rounds := budget.allowance.rounds:

                def charged(ledger: Ledger, mechanism: Releases) -> Ledger:
                    return ledger.charge(run_id, mechanism, rounds - 1).uncover(run_id, budget.uncovered)

                rows.store(run_id, changed_alike(ledgers, budget.account.mechanisms, charged))

    def consult(self, budget: RunBudget) -> None:
        """Tell the run how far its budget goes; others will charge."""
        with self._transaction() as rows:
            budget.allow(rows.load(budget))

    def settle(self, budget: RunBudget) -> None:
        """The run has ended: it is charged for the rounds that were run, now or earlier under the same id.

        Also where the charge is gone, since the file was lost meanwhile.
        """
        run_id = budget.run_id
        with self._transaction() as rows:
            ledgers = rows.load(budget)
            ran = rows.settled(budget, ledgers)
            known = [n for n, ledger in enumerate(ledgers) if run_id in ledger.entries or budget.k > 0]
            for rounds in {ran[n] for n in known}:  # one number for all agents, but for what other runs left behind

                def settled(ledger: Ledger, mechanism: Releases, rounds: int = rounds) -> Ledger:
                    if run_id not in ledger.entries:
                        ledger = ledger.charge(run_id, mechanism, budget.k - 1)
                    return _charged_exactly(ledger, rounds, run_id).uncover(run_id, budget.uncovered)

                these = [n for n in known if ran[n] == rounds]
                mechanisms = (budget.account.mechanisms[n] for n in these)
                rows.store(run_id, changed_alike((ledgers[n] for n in these), mechanisms, settled), budget.k)

    def rounds_charged(self, budget: RunBudget) -> int:
        """For how many rounds of the run the agent that is charged for most is charged here."""
        with self._transaction() as rows:
            own = [ledger.entries[budget.run_id] for ledger in rows.load(budget) if budget.run_id in ledger.entries]
        return max((entry.rounds for entry in own), default=0)

    def knows(self, budget: RunBudget) -> bool:
        """Whether every agent of the run has been charged for it here."""
        run_id = budget.run_id
        with self._transaction() as rows:
            return all(run_id in ledger.entries for ledger in rows.load(budget))

    def has_seen(self, budget: RunBudget) -> bool:
        """Whether any agent of the run has been charged for it here."""
        with self._transaction() as rows:
            return any(budget.run_id in ledger.entries for ledger in rows.load(budget))

    def lacks(self, runs: Sequence[str]) -> list[str]:
        """Those of these runs for which nobody has been charged here."""
        with self._transaction() as rows:
            return [run_id for run_id in runs if not rows.has_run(run_id)]

    def totals(self) -> list[Total]:
        """What every agent has spent on each of its data sets, over all runs."""
        with self._transaction() as rows:
            return [
                Total(ledger.agent, ledger.data_digest, rows.names(ledger), len(ledger.entries), ledger.spent())
                for ledger in rows.everything()
            ]

    def join(self, data: str, dataset: str) -> None:
        """Entries under this identity count for the named data set from now on."""
        with self._transaction() as rows:
            if not rows.has(data):
                raise BadInput("--join", data, f"the identity of data that {self.path} has entries for")
            rows.link([Ledger("", data, known_as=(f"dataset {dataset}",))])

    def publish(self, budget: RunBudget) -> None:
        """Charge for x^K + w^K, or refuse where an agent's budget does not reach."""
        run_id, most = budget.run_id, budget.account.budget
        with self._transaction() as rows:
            published = [ledger.publish(run_id, budget.k) for ledger in rows.load(budget)]
            for ledger in published:
                spent = ledger.spent()
                if most is not None and not (isinstance(spent, Epsilon) and spent.fits(most)):
                    raise BadInput(
                        "privacy.budget",
                        most,
                        f"enough to publish, which would bring agent {ledger.agent} to ε = {spent}",
                    )
            rows.store(run_id, published, budget.k)

    @contextmanager
    def _transaction(self) -> Iterator[_Rows]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(transaction(self.path)) as connection:  # without a commit this rolls back
                _bring_up_to_date(connection, self.path)
                yield _Rows(connection)
                connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            why = os.strerror(errno.EMFILE).lower() if descriptors_are_used_up() else str(error)
            raise BadInput("ledger", str(self.path), f"a ledger that can be used ({why})") from None


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()  # 0: a new file, or one of format 1
    if found not in (0, _FORMAT):
        raise BadInput("ledger", str(path), f"a ledger of format 1 or {_FORMAT}, not of {found}")
    for statement in _SCHEMA if found == 0 else ():
        connection.execute(statement)


class _Rows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._linked = bool(connection.execute("SELECT count(*) FROM (SELECT 1 FROM same LIMIT 1)").fetchone()[0])

    def load(self, budget: RunBudget) -> list[Ledger]:
        """One ledger per agent of the run, with what earlier runs on its data have charged.

        Those with the same entries share them, so that whoever computes with them may do it once.
        """
        empty, seen = budget.fresh_ledgers(), _Seen()
        if self._linked or any(ledger.known_as for ledger in empty):
            return [self._ledger(ledger, self._entries(ledger), seen, budget.run_id) for ledger in empty]
        whose: dict[str, list[int]] = {}
        for n, ledger in enumerate(empty):
            whose.setdefault(ledger.data_digest, []).append(n)
        for data, rows in groupby(self._of_data("run, agent, data, entry", empty), key=itemgetter(2)):
            found = list(rows)  # and no more at a time: a million rows take a gigabyte
            for n in whose[data]:
                empty[n] = self._ledger(empty[n], found, seen, budget.run_id)
        return empty

    def _ledger(self, empty: Ledger, found: Sequence[_Row], seen: _Seen, current: str | None = None) -> Ledger:
        """Of each run the agent's own entry; of a run where the data lay with others, each of theirs.

        Another version of the data has other noise, so under one id it is another run. In the current run other agents
        have other parts of a data set: these entries are theirs alone.
        """
        data = empty.data_digest
        took_part = {run for run, agent, _, _ in found if agent == empty.agent}
        runs = [
            (_entry_name(run, agent, version, empty), entry)
            for run, agent, version, entry in found
            if agent == empty.agent or (run not in took_part and (run != current or version == data))
        ]
        return empty.holding(seen.entries(tuple(runs)))

    def _entries(self, ledger: Ledger) -> list[_Row]:
        """Everything charged for these data, under whatever name."""
        columns = "SELECT run, agent, data, entry FROM entries WHERE data"
        if not (self._linked or ledger.known_as):
            return self._connection.execute(f"{columns} = ?", (ledger.data_digest,)).fetchall()
        return self._connection.execute(f"{_ALIKE} {columns} IN alike", (_names(ledger),)).fetchall()

    def _of_data(self, columns: str, ledgers: Sequence[Ledger], run_id: str | None = None) -> Iterator[Any]:
        """These columns of all entries (of one run) for the data of many agents, some thousand to a question."""
        if self._connection.execute("SELECT data FROM entries LIMIT 1").fetchone() is None:
            return
        digests, only = sorted({ledger.data_digest for ledger in ledgers}), "" if run_id is None else "AND run = ?"
        wanted = f"data IN (SELECT value FROM json_each(?)) {only}"
        question = f"SELECT {columns} FROM entries WHERE {wanted} ORDER BY data, run, agent"
        for first in range(0, len(digests), _AT_ONCE):
            asked = json.dumps(digests[first : first + _AT_ONCE])
            yield from self._connection.execute(question, (asked,) if run_id is None else (asked, run_id)).fetchall()

    def names(self, ledger: Ledger) -> tuple[str, ...]:
        """What the data set is called by its owner."""
        found = self._connection.execute(f"{_ALIKE} SELECT name FROM alike ORDER BY name", (_names(ledger),))
        return tuple(name.removeprefix("dataset ") for (name,) in found if name.startswith("dataset "))

    def link(self, ledgers: Sequence[Ledger]) -> None:
        """All names of the same data, both ways."""
        pairs = [(ledger.data_digest, name) for ledger in ledgers for name in ledger.known_as]
        both = [*pairs, *((name, data) for data, name in pairs)]
        self._connection.executemany("INSERT OR IGNORE INTO same (data, known_as) VALUES (?, ?)", both)

    def has(self, data: str) -> bool:
        return self._connection.execute("SELECT 1 FROM entries WHERE data = ?", (data,)).fetchone() is not None

    def has_run(self, run_id: str) -> bool:
        return self._connection.execute("SELECT 1 FROM entries WHERE run = ?", (run_id,)).fetchone() is not None

    def _tell_of_format_1(self, run_id: str, ledgers: Sequence[Ledger]) -> None:
        """Nobody can tell whether an old entry was on these data, if the file has changed since: so say it."""
        fresh = [ledger for ledger in ledgers if ledger.known_as and set(ledger.entries) == {run_id}]
        agents = [ledger.agent for ledger in fresh if not self._is_linked(ledger.data_digest)]
        question = (
            "SELECT count(*) FROM entries WHERE format = 1 AND data NOT IN (SELECT data FROM same) "
            "AND agent IN (SELECT value FROM json_each(?))"
        )
        (count,) = self._connection.execute(question, (json.dumps(agents),)).fetchone() if agents else (0,)
        if count:
            log.warning(
                "%d ledger entries of format 1 belong to no data seen since, and the data of agent %s are new: "
                "if their file has changed, dpp2 privacy ledger --join brings both under one name",
                *(count, ", ".join(agents)),
            )

    def _is_linked(self, data: str) -> bool:
        return self._connection.execute("SELECT 1 FROM same WHERE data = ?", (data,)).fetchone() is not None

    def everything(self) -> Iterator[Ledger]:
        """All ledgers of the file; versions of one data set are one."""
        owners = self._connection.execute(
            "SELECT agent, data FROM entries GROUP BY agent, data ORDER BY CAST(agent AS INTEGER), data"
        )
        shown: set[tuple[str, str]] = set()
        seen = _Seen()
        for agent, data in owners.fetchall():
            if (agent, data) not in shown:
                ledger = Ledger(agent, data)
                found = self._entries(ledger)
                shown |= {(agent, version) for _, _, version, _ in found}
                yield self._ledger(ledger, found, seen)

    def settled(self, budget: RunBudget, ledgers: Sequence[Ledger]) -> list[int]:
        """How many rounds of the run are known to have been run, by each agent: now, or earlier."""
        rows = self._of_data("data, agent, settled", ledgers, budget.run_id)
        longer = {(data, agent): ran for data, agent, ran in rows if ran > budget.k}
        return [longer.get((ledger.data_digest, ledger.agent), budget.k) for ledger in ledgers]

    def store(self, run_id: str, ledgers: Sequence[Ledger], settled: int = 0) -> None:
        self._tell_of_format_1(run_id, ledgers)
        self.link(ledgers)
        entries = {id(ledger.entries): ledger.entries for ledger in ledgers}
        texts = {which: _entry(one, run_id) for which, one in entries.items()}
        self._connection.executemany(
            f"INSERT INTO entries (data, run, agent, entry, settled, format) VALUES (?, ?, ?, ?, ?, {_FORMAT}) "
            "ON CONFLICT DO UPDATE SET entry = excluded.entry, settled = max(settled, excluded.settled)",
            (
                (ledger.data_digest, run_id, ledger.agent, texts[id(ledger.entries)], settled)
                for ledger in sorted(ledgers, key=_by_data)  # a million rows then go to the end of their tree
            ),
        )


class _Seen:
    """What was read already: agents whose rows say the same share what they say."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, Any], ...], Mapping[str, Entry]] = {}

    def entries(self, rows: tuple[tuple[str, Any], ...]) -> Mapping[str, Entry]:
        """Of (name of the run, entry as JSON) pairs."""
        if rows not in self._known:
            runs = {name: _plain(entry) for name, entry in rows}
            self._known[rows] = Ledger.from_dict({**Ledger("", "").to_dict(), "runs": runs}).entries
        return self._known[rows]


def _charged_exactly(ledger: Ledger, rounds: int, run_id: str) -> Ledger:
    settled = ledger.settle(run_id, rounds)
    return settled.charge(run_id, ledger.entries[run_id].mechanism, rounds - 1) if rounds else settled


def _entry_name(run: str, agent: str, version: str, ledger: Ledger) -> str:
    """What a ledger calls an entry: its own by the run alone."""
    whose = "" if agent == ledger.agent else f" of agent {agent}"
    return f"{run}{whose}" if version == ledger.data_digest else f"{run}{whose} on {version[:12]}"


def _names(ledger: Ledger) -> str:
    return json.dumps([ledger.data_digest, *ledger.known_as])


def _plain(entry: Any) -> dict[str, Any]:
    try:
        plain = json.loads(entry)
    except (TypeError, ValueError):
        plain = None
    if not isinstance(plain, dict):
        raise BadInput("ledger entry", entry, "a JSON object")
    return plain


def _entry(entries: Mapping[str, Entry], run_id: str) -> str:
    return json.dumps(entries[run_id].to_dict())


def _by_data(ledger: Ledger) -> str:
    return ledger.data_digest
