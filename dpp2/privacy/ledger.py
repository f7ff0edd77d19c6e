"""One agent's account over all runs on the same data: what was released, hence what was spent. No files.

Repeated runs on one data set compose: their ε add up, because each draws its own noise. Within a run the
noise is a function of (run key, round), so a round that is sent again is byte-identical and releases
nothing new. Hence:

* a run is known by its id, and its entry holds one number, the rounds charged: 0 … rounds−1 are paid for;
* charging round k pays for every round up to k. Doing it again changes nothing (no round is charged twice),
  and a round whose charge was lost in a crash is paid for by the next one (none is forgotten);
* an entry keeps the mechanism that the run used. The same id with another mechanism is refused;
* publishing x^K + w^K uses the w^K of round K. It costs its own term until round K has been released, and
  nothing more from then on: y^K has told s^K = x^K + w^K already.

Charge a round BEFORE its first message leaves. A ledger is a value: `charge` and `publish` return a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dpp2.errors import BadInput
from dpp2.privacy.accountant import epsilon, largest_rounds
from dpp2.privacy.baselines import BASELINES
from dpp2.privacy.dpp2_releases import Dpp2Releases
from dpp2.privacy.epsilon_value import Epsilon, Unsupported, add_up
from dpp2.privacy.grid import uncovered
from dpp2.privacy.releases import Plain, Releases, plain
from dpp2.schema import Table

VERSION = 1
_NOTHING: Mapping[str, Entry] = MappingProxyType({})  # shared by all who have spent nothing
_SHARED: Mapping[str, type[Releases]] = {cls.kind: cls for cls in (Dpp2Releases, *BASELINES)}


@dataclass(frozen=True)
class Entry:
    """What one run has released."""

    mechanism: Releases
    rounds: int = 0  # rounds 0 … rounds−1 are charged
    published: int | None = None  # the last K for which x^K + w^K was published
    uncovered: int | None = None  # the first round whose noise float64 did not carry (`dpp2.privacy.grid`)

    def epsilon(self) -> Epsilon | Unsupported:
        if self.uncovered is not None and self.uncovered < self.rounds:
            return uncovered(self.uncovered)
        return epsilon(self.mechanism, self.rounds, published=self.published == self.rounds)

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types. The ε figures are for readers: `Ledger.from_dict` computes them anew."""
        spent = self.epsilon()
        return {
            "mechanism": self.mechanism.to_dict(),
            "rounds": self.rounds,
            "published": self.published,
            **({} if self.uncovered is None else {"uncovered": self.uncovered}),
            "epsilon": spent.value if isinstance(spent, Epsilon) else None,
            "log10_epsilon": plain(spent.log10) if isinstance(spent, Epsilon) else None,
            "reason": spent.reason if isinstance(spent, Epsilon) else str(spent),
        }


@dataclass(frozen=True)
class Allowance:
    """How far a run may go: rounds 0 … rounds−1, which brings the ledger's total to `total`."""

    rounds: int
    total: Epsilon | Unsupported
    reason: str | None = None  # why fewer rounds than wanted


@dataclass(frozen=True, slots=True)
class Ledger:
    """All runs of one agent on one digest of its data. Agents that have spent the same may share their `entries`."""

    agent: str
    data_digest: str
    entries: Mapping[str, Entry] = field(default_factory=lambda: _NOTHING)
    known_as: tuple[str, ...] = ()  # other names of the same data: what was charged under them counts, too

    def charge(self, run_id: str, mechanism: Releases, round_index: int) -> Ledger:
        """Round `round_index` of this run, and every one before it, is paid for. Idempotent."""
        if round_index < 0:
            raise BadInput("round", round_index, "a whole number ≥ 0")
        if _class_of(mechanism.kind) is not type(mechanism):  # what is written now could not be read again
            raise BadInput("mechanism", type(mechanism).__name__, "a class that an algorithm's `releases` declares")
        entry = self._entry(run_id, mechanism)
        return self._with(run_id, replace(entry, rounds=max(entry.rounds, round_index + 1)))

    def settle(self, run_id: str, rounds: int) -> Ledger:
        """Give back rounds that were charged in advance and never sent: the run has ended, after `rounds` rounds."""
        entry = self.entries[run_id]
        return self._with(run_id, replace(entry, rounds=min(entry.rounds, rounds)))

    def uncover(self, run_id: str, k: int | None) -> Ledger:
        """Round k of this run, and every one after it, is not covered (None: all are, as far as is known)."""
        entry = self.entries[run_id]
        known = [one for one in (k, entry.uncovered) if one is not None]
        return self._with(run_id, replace(entry, uncovered=min(known, default=None)))

    def publish(self, run_id: str, rounds: int) -> Ledger:
        """x^K + w^K of this run, K = `rounds`, is paid for. Idempotent."""
        if run_id not in self.entries:
            raise BadInput("run id", run_id, "a run that this ledger has charged")
        entry = self.entries[run_id]
        if not 0 <= rounds <= entry.rounds:
            raise BadInput("rounds", rounds, f"a number from 0 to {entry.rounds}, the rounds charged so far")
        return self._with(run_id, replace(entry, published=max(rounds, entry.published or 0)))

    def spent(self, *, except_run: str | None = None) -> Epsilon | Unsupported:
        """The sum over all runs (but one, if asked). One run without a guarantee leaves none for the sum."""
        parts: list[Epsilon] = []
        for run_id, entry in self.entries.items():
            if run_id == except_run:
                continue
            part = entry.epsilon()
            if isinstance(part, Unsupported):
                return Unsupported(f"in run {run_id} {part.reason}")
            parts.append(part)
        return add_up(parts)

    def rounds_within(
        self,
        budget: float,
        mechanism: Releases,
        run_id: str,
        wanted_rounds: int,
        *,
        resumed_at: int | None = None,
        publishing: bool = False,
    ) -> Allowance:
        """How many rounds this run may have in all so that the total over all runs stays within the budget.

        Rounds that are charged already count as granted: repeating them releases nothing new. A run that starts anew
        says so with `resumed_at` (the rounds it has behind it, 0 at the start): where its own earlier charge is over
        the budget, it gets no more than those. With `publishing`, room is kept for x^K + w^K at the end.
        """
        if not budget > 0:
            raise BadInput("budget", budget, "a number > 0")
        entry, others = self._entry(run_id, mechanism), self.spent(except_run=run_id)
        charged = entry.rounds if resumed_at is None else min(entry.rounds, resumed_at)
        share = _Share(budget, others, mechanism, publishing)
        granted = share.granted(max(wanted_rounds, entry.rounds))
        if isinstance(granted, Unsupported):
            return Allowance(min(charged, wanted_rounds), granted, f"no budget can be kept: {granted.reason}")
        if resumed_at is not None and granted < entry.rounds:
            return share.overdrawn(entry, min(wanted_rounds, charged))
        return share.allowance(entry, min(wanted_rounds, max(granted, charged)), wanted_rounds)

    def to_dict(self) -> Table:
        runs = {run_id: entry.to_dict() for run_id, entry in self.entries.items()}
        return {"version": VERSION, "agent": self.agent, "data_digest": self.data_digest, "runs": runs}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Ledger:
        if stored.get("version") != VERSION:
            raise BadInput("ledger.version", stored.get("version"), str(VERSION))
        for key in ("agent", "data_digest", "runs"):
            if key not in stored:
                raise BadInput(f"ledger.{key}", None, "a value")
        entries = {run_id: _entry_from_dict(run_id, run) for run_id, run in stored["runs"].items()}
        return cls(str(stored["agent"]), str(stored["data_digest"]), MappingProxyType(entries))

    def _entry(self, run_id: str, mechanism: Releases) -> Entry:
        entry = self.entries.get(run_id, Entry(mechanism))
        if entry.mechanism != mechanism:
            raise BadInput("run id", run_id, "an id not used yet: this one has run with other privacy parameters")
        return entry

    def holding(self, entries: Mapping[str, Entry]) -> Ledger:
        """The same agent's ledger with these entries. Without `replace`, which a million agents would feel."""
        return Ledger(self.agent, self.data_digest, entries, self.known_as)

    def _with(self, run_id: str, entry: Entry) -> Ledger:
        return replace(self, entries=MappingProxyType({**self.entries, run_id: entry}))


def changed_alike(
    ledgers: Iterable[Ledger], mechanisms: Iterable[Releases], change: Callable[[Ledger, Releases], Ledger]
) -> list[Ledger]:
    """`change` of every ledger. Where agents share entries and mechanism, it is asked once for all of them."""
    found: dict[tuple[int, int], Mapping[str, Entry]] = {}
    changed = []
    for ledger, mechanism in zip(ledgers, mechanisms, strict=True):
        alike = id(ledger.entries), id(mechanism)
        if alike not in found:
            found[alike] = change(ledger, mechanism).entries
        changed.append(ledger.holding(found[alike]))
    return changed


def distinct_pairs(ledgers: Sequence[Ledger], mechanisms: Sequence[Releases]) -> Iterable[tuple[Ledger, Releases]]:
    """One agent for each way of sharing entries and mechanism."""
    pairs = zip(ledgers, mechanisms, strict=True)
    return {(id(ledger.entries), id(mechanism)): (ledger, mechanism) for ledger, mechanism in pairs}.values()


@dataclass(frozen=True)
class _Share:
    """What of a budget is left to one run beside all others."""

    budget: float
    others: Epsilon | Unsupported  # spent by the other runs
    mechanism: Releases
    publishing: bool  # whether room is kept for the result

    def total(self, rounds: int, published: bool) -> Epsilon:
        own = epsilon(self.mechanism, rounds, published=published)
        assert isinstance(own, Epsilon)  # `granted` has asked
        assert isinstance(self.others, Epsilon)
        return add_up([self.others, own])

    def granted(self, most: int) -> int | Unsupported:
        """The most rounds that the budget admits."""
        if isinstance(self.others, Unsupported):
            return self.others
        left = self.budget - self.others.value if self.others.value is not None else -math.inf
        granted = largest_rounds(self.mechanism, left, most, published=self.publishing)
        if isinstance(granted, Unsupported):
            return granted
        while granted > 0 and not self.total(granted, self.publishing).fits(self.budget):
            granted -= 1  # `left` was rounded
        return granted

    def overdrawn(self, entry: Entry, rounds: int) -> Allowance:
        """The run was charged for more rounds than the budget admits: it may repeat those that it has behind it."""
        before = self.total(entry.rounds, entry.published == entry.rounds)
        why = f"ε = {before} is spent already, over the budget of {self.budget:g}: this very run was charged for "
        return Allowance(rounds, before, why + f"{entry.rounds} rounds before")

    def allowance(self, entry: Entry, rounds: int, wanted: int) -> Allowance:
        total = self.total(rounds, self.publishing or entry.published == rounds)
        if rounds == wanted and total.fits(self.budget):
            return Allowance(rounds, total)
        following = self.total(rounds + 1, self.publishing)
        why = f"round {rounds} would bring the total to ε = {following}, over the budget of {self.budget:g}"
        assert isinstance(self.others, Epsilon)
        if self.others.value != 0:
            why += f"; earlier runs on the same data have spent {self.others}"
        return Allowance(rounds, total, why)


def _entry_from_dict(run_id: str, run: Mapping[str, Any]) -> Entry:
    where = f"ledger.runs.{run_id}"
    parameters = run.get("mechanism")
    rounds, published = run.get("rounds"), run.get("published")
    if not isinstance(parameters, Mapping):
        raise BadInput(f"{where}.mechanism", parameters, "a table of parameters")
    if type(rounds) is not int or rounds < 0:
        raise BadInput(f"{where}.rounds", rounds, "a whole number ≥ 0")
    uncarried = run.get("uncovered")
    if uncarried is not None and (type(uncarried) is not int or uncarried < 0):
        raise BadInput(f"{where}.uncovered", uncarried, "null or a whole number ≥ 0")
    if published is not None and (type(published) is not int or not 0 <= published <= rounds):
        raise BadInput(f"{where}.published", published, f"null or a whole number from 0 to {rounds}")
    return Entry(_mechanism_from_dict(f"{where}.mechanism", parameters), rounds, published, uncarried)


def _class_of(kind: object) -> type[Releases] | None:
    """The releases of this name: shared ones, or those that one algorithm brings along."""
    if not isinstance(kind, str):
        return None
    return _SHARED.get(kind) or _declared().get(kind)


def _declared() -> Mapping[str, type[Releases]]:
    """What the algorithms declare. This loads them all, so it is asked only for a kind that is not shared."""
    from dpp2.algorithms import ALGORITHMS  # which import this package

    return {cls.kind: cls for section in ALGORITHMS for cls in section.releases}


def _mechanism_from_dict(where: str, parameters: Mapping[str, Any]) -> Releases:
    given = dict(parameters)
    kind = given.pop("kind", Dpp2Releases.kind)  # ledgers of a time when there was but one kind do not name it
    cls = _class_of(kind)
    if cls is None:
        raise BadInput(f"{where}.kind", kind, f"one of {', '.join([*_SHARED, *_declared()])}")
    columns, given = cls.all_columns(), {**cls.added, **given}
    for name in given:
        if name not in columns:
            raise BadInput(where, name, f"only {', '.join(columns)}")
    for name, wanted in columns.items():
        if name not in given:
            raise BadInput(f"{where}.{name}", None, "a word" if wanted is str else "a number")
    read = {name: _read(f"{where}.{name}", wanted, given[name]) for name, wanted in columns.items()}
    return cls.from_columns(read)


def _read(where: str, wanted: type[Plain], value: object) -> Plain:
    """What JSON held, as the column's type; infinities come as words."""
    if wanted is not float:
        if type(value) is not wanted:
            raise BadInput(where, value, "a whole number" if wanted is int else "a word")
        return value
    try:
        return float(value)  # type: ignore[arg-type]  # whatever is no number raises
    except (TypeError, ValueError):
        raise BadInput(where, value, "a number") from None
