"""What a run tells those who watch it: lines of events.jsonl, from whatever carries the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from dpp2 import BadInput, Result, Simulation
from dpp2.arrays import Array
from dpp2.orchestrator.transports.base import Interrupted, RunFailed
from dpp2.prepared import PreparedRun
from dpp2.privacy.grid import uncovered
from dpp2.store.events import Began, Ended, EventLog, Happened, NodeState, Rounds
from dpp2.store.ledgers import LedgerFile
from dpp2.store.rundir import RunDirectory
from dpp2.thinning import chosen

if TYPE_CHECKING:
    from dpp2.orchestrator.drive import Drive, NodeStatus

_POINTS = 25  # rounds whose metrics are in one line
_POINTS_AT_THE_END = 400
_LATE_SECONDS = 1.0  # for which a node is waited for before it is called late
_METRICS = ("round", "gap", "consensus", "stationarity")


@contextmanager
def logged(simulation: Simulation, directory: RunDirectory) -> Iterator[Callable[[Result], None]]:
    """The last line of a run, however it ends; whoever has a result hands it to what is yielded."""
    log = directory.log
    try:
        yield lambda result: _end(log, result, simulation)
    except Interrupted as stopped:
        log.add(Ended(stopped.k, "interrupted", str(stopped), charged=stopped.charged))
        raise
    except (RunFailed, BadInput) as failure:
        if log.begun:  # a resumption that is refused is no news of the run
            log.add(Ended(simulation.k, "failed", str(failure), charged=charged(simulation, directory)))
        raise
    finally:
        log.close()


def charged(simulation: Simulation, directory: RunDirectory) -> int | None:
    """Rounds that the ledger holds against a run whose nodes charge by themselves, once they have ended.

    None for an embedded run: there a round is complete before the next one is sent.
    """
    if simulation.experiment.run.transport == "embedded" or not directory.ledger.exists():
        return None
    with suppress(BadInput):  # a ledger that cannot be read says so when the run goes on
        return LedgerFile(directory.ledger).rounds_charged(simulation.budget)
    return None


def _end(log: EventLog, result: Result, simulation: Simulation) -> None:
    seconds, sent, k = result.seconds, int(result.metrics.bytes.sum()), result.rounds
    points = _points(result.metrics, 0, k + 1, _POINTS_AT_THE_END) if result.truth else ()
    log.add(Rounds(k, seconds, sent, points))
    first = simulation.budget.uncovered
    if first is not None and result.experiment.run.transport != "embedded":  # nodes tell nobody before their files do
        log.add(Happened(first, "uncovered", uncovered(first).reason or ""))
    if result.divergence:
        log.add(Ended(k, "diverged", result.divergence.explanation))
    elif result.privacy.stopped:
        log.add(Ended(k, "stopped", f"by privacy.budget: {result.privacy.stopped}", result.report))
    else:
        log.add(Ended(k, "finished", "", result.report))


def _points(columns: Mapping[str, Array], first: int, last: int, most: int) -> list[list[float]]:
    """The metrics of some of the rounds first … last−1: the last one, and the peaks of the gap, among them."""
    if last <= first:
        return []
    rounds = first + chosen(np.asarray(columns["gap"][first:last]), most)
    return [[float(columns[name][k]) for name in _METRICS] for k in rounds]


class LoggedMetrics:
    """Looks at an embedded run whenever it has come on."""

    def __init__(self, simulation: Simulation, log: EventLog) -> None:
        self._simulation, self._log, self._told = simulation, log, simulation.k
        run, rounds = simulation.experiment.run, simulation.allowance.rounds
        self._telemetry, self._uncovered = run.telemetry == "full", False
        log.add(Began(simulation.k, simulation.run_id, rounds, run.transport, self._telemetry))

    def look(self) -> None:
        if self._log.due():
            k, recorder = self._simulation.k, self._simulation.recorder
            points = _points(recorder.columns, self._told, k, _POINTS) if self._telemetry else ()
            self._log.add(Rounds(k, self._simulation.seconds, k * recorder.bytes_per_round, points))
            self._told = k
        if (first := self._simulation.budget.uncovered) is not None and not self._uncovered:
            self._uncovered = True
            self._log.add(Happened(first, "uncovered", uncovered(first).reason or ""))


class LoggedDrive:
    """Looks at a drive whenever something was heard: rounds, bytes, and who goes, comes back or turns frames away."""

    def __init__(
        self,
        log: EventLog,
        prepared: PreparedRun,
        rounds: int,
        *,
        tls: bool,
        tap: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._prepared, self._rounds, self._tls, self._tap = log, prepared, rounds, tls, tap
        self._clock, self._began = clock, clock()
        self._waited: dict[int, float] = {}  # nodes that others wait for, and since when
        self._drive: Drive | None = None
        self._states: dict[int, str] = {}
        self._refused: dict[int, int] = {}
        self._said: set[str] = set()

    def begin(self, groups: Sequence[Sequence[int]], k: int) -> None:
        run = self._prepared.experiment.run
        told = run.telemetry == "full"
        self._log.add(Began(k, self._prepared.run_id, self._rounds, "grpc", told, self._tls, self._tap, groups))

    def look(self, drive: Drive) -> None:
        self._drive = drive
        if self._log.due():
            self._tell(drive)

    def _tell(self, drive: Drive) -> None:
        late = self._late(drive)
        nodes = [NodeState(n, one.round, self._state(n, one, late), one.bytes, one.refused) for n, one in _all(drive)]
        for happened in self._happened(drive, nodes):
            self._log.add(happened)
        seconds = self._clock() - self._began
        self._log.add(Rounds(drive.round, seconds, sum(node.bytes for node in nodes), nodes=nodes))
        self._states = {node.node: node.state for node in nodes}

    def end(self, how: str, text: str) -> None:
        """Of a run that nobody else has a result of."""
        if self._drive is not None:
            self._tell(self._drive)
        self._log.add(Ended(self._drive.round if self._drive else 0, how, text))

    def _late(self, drive: Drive) -> set[int]:
        """Nodes that the others have waited for all this while. At any moment somebody waits for somebody."""
        if not all(seen.prepared for seen in drive.seen.values()):
            return set()
        now = self._clock()
        self._waited = {node: self._waited.get(node, now) for node in drive.waited_for()}
        return {node for node, since in self._waited.items() if now - since >= _LATE_SECONDS}

    def _state(self, node: int, seen: NodeStatus, late: set[int]) -> str:
        if seen.finished:
            return "finished"
        if not seen.here:
            return "gone" if seen.prepared else "absent"
        return "late" if node in late else "ok"

    def _happened(self, drive: Drive, nodes: Sequence[NodeState]) -> Iterator[Happened]:
        for node in nodes:
            before, seen = self._states.get(node.node), drive.seen[node.node]
            if node.state == "gone" and before != "gone":
                yield Happened(drive.round, "gone", f"node {node.node} has gone in round {node.round} ({seen.trouble})")
            elif before == "gone" and node.state != "gone":
                back = f" and is back in round {node.round}" if node.round < seen.most else ""
                yield Happened(drive.round, "back", f"node {node.node} has come back{back}")
            if node.refused > self._refused.get(node.node, 0):
                more = node.refused - self._refused.get(node.node, 0)
                yield Happened(drive.round, "refused", f"node {node.node} has turned away {more} frames or calls")
            self._refused[node.node] = node.refused
        yield from self._budget(drive)

    def _budget(self, drive: Drive) -> Iterator[Happened]:
        """Whose budget ends the run early is known as soon as all are prepared."""
        if all(seen.prepared for seen in drive.seen.values()) and drive.last.reason not in ("", *self._said):
            self._said.add(drive.last.reason)
            yield Happened(
                drive.round, "budget", f"the run ends after {drive.last.allowed} rounds: {drive.last.reason}"
            )


def _all(drive: Drive) -> list[tuple[int, NodeStatus]]:
    return sorted(drive.seen.items())
