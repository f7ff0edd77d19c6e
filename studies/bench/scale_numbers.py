"""What `dpp2 bench scale` measures, how it is fitted and shown, and what it would mean for many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpp2.studies.tables import TextTable

MOST_SETUP, MOST_BYTES, MOST_EXPONENT, LEAST_OF_EMBEDDED = 60.0, 3000.0, 1.05, 0.5

HOSTS, GIGABITS, DELAY = 100, 10.0, 0.2e-3  # the machines that are planned for: links in Gbit/s, one-way delay in s


@dataclass(frozen=True)
class EmbeddedRun:
    """All agents in one process."""

    agents: int
    edges: int
    network_seconds: float  # to draw the graph and check its weights
    data_seconds: float  # to draw data and starting points
    ledger_seconds: float  # to charge all agents
    settle_seconds: float  # and to settle with them at the end
    rounds_per_second: float
    bytes_per_agent: float  # at the peak, above an empty process

    @property
    def setup_seconds(self) -> float:
        return self.network_seconds + self.data_seconds + self.ledger_seconds


@dataclass(frozen=True)
class NodesRun:
    """The same agents on nodes of this machine, each a process; `failure` says why there is no figure."""

    agents: int
    nodes: int
    failure: str | None = None
    setup_seconds: float = float("nan")
    rounds_per_second: float = float("nan")
    of_embedded: float = float("nan")  # rounds per second divided by those of the embedded run: median of turns
    cpu_of_embedded: float = float("nan")  # CPU of an embedded round divided by that of all nodes: median of turns
    bytes_per_agent: float = float("nan")  # held by all processes together
    frame_bytes: int = 0  # of all frames of a round
    least_bytes: int = 0  # every row once to every other node that needs it


@dataclass(frozen=True)
class Hosts:
    """A round on many machines, on paper: what each part would take, in seconds."""

    hosts: int
    agents: int
    compute: float  # rounds of a host's own agents, from the embedded run
    wire: float  # the frames of the busiest host, at the speed of its link
    delay: float  # one way for each phase
    handling: float  # what nodes spend on frames, from the runs over nodes; 0 where none ran

    @property
    def rounds_per_second(self) -> float:
        """Nothing overlaps in this plan."""
        return 1 / (self.compute + self.wire + self.delay + self.handling)

    @property
    def saturates_first(self) -> str:
        parts = {"computing": self.compute, "links": self.wire, "delay": self.delay, "handling frames": self.handling}
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True)
class ScaleMeasured:
    embedded: list[EmbeddedRun]
    nodes: list[NodesRun]
    round_exponent_in_edges: float
    setup_exponent_in_agents: float
    hosts: list[Hosts]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """p of seconds ∝ sizes^p by least squares; small sizes are left out, whose time is mostly that of calls."""
    large = [(size, took) for size, took in zip(sizes, seconds, strict=True) if size >= max(sizes) / 100]
    if len(large) < 2:
        return float("nan")
    x, y = np.log(np.array(large).T)
    return float(np.polyfit(x, y, 1)[0])


def planned(runs: Sequence[EmbeddedRun], nodes: Sequence[NodesRun], busiest: int, phases: int) -> list[Hosts]:
    """The largest measured run spread over all hosts, and as much on every host; `busiest`: bytes a host sends."""
    largest = max(runs, key=lambda run: run.agents)
    round_seconds = 1 / largest.rounds_per_second
    handled = [
        max(1 / run.rounds_per_second - _embedded_seconds(runs, run.agents), 0.0) / run.frame_bytes
        for run in nodes
        if run.failure is None and run.frame_bytes
    ]
    per_byte = min(handled, default=0.0)
    wire, delay = 8 * busiest / (GIGABITS * 1e9), phases * DELAY
    spread = Hosts(HOSTS, largest.agents, round_seconds / HOSTS, wire, delay, per_byte * busiest)
    full = Hosts(
        HOSTS, largest.agents * HOSTS, round_seconds, wire * HOSTS, delay, per_byte * busiest * HOSTS
    )  # the same graph a hundred times as large: a host has as many more agents, and as many more links cut
    return [spread, full]


def _embedded_seconds(runs: Sequence[EmbeddedRun], agents: int) -> float:
    return next((1 / run.rounds_per_second for run in runs if run.agents == agents), 0.0)


def table(measured: ScaleMeasured) -> TextTable:
    rows = [row for run in measured.embedded for row in _embedded_rows(run)]
    rows += [
        ("exponent of round time in edges", f"{measured.round_exponent_in_edges:.2f}", f"≤ {MOST_EXPONENT}"),
        ("exponent of set-up time in agents", f"{measured.setup_exponent_in_agents:.2f}", "about 1"),
    ]
    rows += [row for run in measured.nodes for row in _nodes_rows(run)]
    rows += [row for plan in measured.hosts for row in _hosts_rows(plan)]
    return TextTable(("what", "measured", "goal"), rows, "dpp2 bench scale")


def _embedded_rows(run: EmbeddedRun) -> list[tuple[str, str, str]]:
    parts = f"{run.network_seconds:.1f} network, {run.data_seconds:.1f} data, {run.ledger_seconds:.1f} ledgers"
    large = run.agents >= 10**6
    return [
        (f"{run.agents:,} agents embedded, {run.edges:,} edges", f"{run.rounds_per_second:,.2f} rounds/s", ""),
        ("  set-up", f"{run.setup_seconds:.1f} s ({parts})", f"< {MOST_SETUP:.0f} s" * large),
        ("  settling at the end", f"{run.settle_seconds:.1f} s", ""),
        ("  memory per agent", f"{run.bytes_per_agent:,.0f} bytes", f"< {MOST_BYTES:,.0f}" * large),
    ]


def _nodes_rows(run: NodesRun) -> list[tuple[str, str, str]]:
    what = f"{run.agents:,} agents on {run.nodes} nodes"
    if run.failure is not None:
        return [(what, f"not run: {run.failure}", "")]
    goal = f"≥ {LEAST_OF_EMBEDDED}" * (run.nodes == 2 and run.agents >= 10**5)
    times = run.frame_bytes / max(run.least_bytes, 1)
    return [
        (what, f"{run.rounds_per_second:,.2f} rounds/s, {run.of_embedded:.2f} of embedded in turns", goal),
        ("  the same by CPU time", f"{run.cpu_of_embedded:.2f}", ""),
        ("  set-up, memory per agent", f"{run.setup_seconds:.1f} s, {run.bytes_per_agent:,.0f} bytes", ""),
        ("  bytes of frames per round", f"{run.frame_bytes:,}, {times:.3f} of the least", ""),
    ]


def _hosts_rows(plan: Hosts) -> list[tuple[str, str, str]]:
    parts = (plan.compute, plan.wire, plan.delay, plan.handling)
    shown = " + ".join(f"{1e3 * part:,.2f}" for part in parts)
    return [
        (f"on paper: {plan.agents:,} agents on {plan.hosts} hosts", f"{plan.rounds_per_second:,.1f} rounds/s", ""),
        ("  computing + links + delay + handling, ms", f"{shown}; {plan.saturates_first} first", ""),
    ]
