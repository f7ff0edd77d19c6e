"""`dpp2 bench scale`: how time and memory grow with the number of agents, in one process and over nodes.

A small world of mean degree 10, quadratic objectives, d = 10, nothing recorded. Every embedded run has a process of its
own. What 100 hosts would do is computed from these figures, not measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpp2 import Experiment
from dpp2.node.codec import encode
from dpp2.partition import blocks, crossing
from dpp2.prepared import PreparedRun
from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.bench.contenders import Nodes, Process, nodes, together
from dpp2.studies.bench.scale_numbers import HOSTS, EmbeddedRun, NodesRun, ScaleMeasured, exponent, planned, table
from dpp2.studies.bench.scale_run import SETTINGS, block_rounds
from dpp2.studies.tables import TextTable
from dpp2.topology import Graph

_EMBEDDED = (1_000, 10_000, 100_000, 1_000_000)
_MOST_OVER_NODES, _NODES = 100_000, (2, 4)
_REPETITIONS = 5
_PATIENCE = 300.0  # seconds for one run over nodes
_NUMBER = 8  # bytes


class ScaleBenchmark(Benchmark[ScaleMeasured]):
    """Agents from a thousand to a million: rounds per second, memory, set-up, bytes on the wire."""

    takes_sizes = True

    def measure(self, asked: Bench) -> ScaleMeasured:
        sizes = asked.sizes or _EMBEDDED
        runs = [_embedded(agents, asked.note) for agents in sizes]
        over_nodes = [
            _over_nodes(agents, count, asked.note) for agents in sizes if agents <= _MOST_OVER_NODES for count in _NODES
        ]
        prepared = _prepared(max(sizes))
        sent = rows_sent(prepared.graph, blocks(prepared.graph.agents, HOSTS))
        phases = len(prepared.experiment.algorithm.phases)
        busiest = int(sent.sum(axis=1).max()) * phases * _row_bytes(prepared)
        return ScaleMeasured(
            embedded=runs,
            nodes=over_nodes,
            round_exponent_in_edges=exponent([r.edges for r in runs], [1 / r.rounds_per_second for r in runs]),
            setup_exponent_in_agents=exponent([r.agents for r in runs], [r.setup_seconds for r in runs]),
            hosts=planned(runs, over_nodes, busiest, phases),
        )

    def table(self, measured: ScaleMeasured) -> TextTable:
        return table(measured)


def _embedded(agents: int, note: Note) -> EmbeddedRun:
    note(f"{agents:,} agents embedded")
    command = [sys.executable, "-m", "dpp2.studies.bench.scale_run", str(agents)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return EmbeddedRun(**json.loads(ended.stdout))


def _prepared(agents: int) -> PreparedRun:
    return PreparedRun.of(Experiment.load(overrides=[*SETTINGS, f"network.agents={agents}"]))


def _over_nodes(agents: int, count: int, note: Note) -> NodesRun:
    """A run that does not start, or not in time, is told as one."""
    note(f"{agents:,} agents on {count} nodes")
    prepared = _prepared(agents)
    try:
        return asyncio.run(asyncio.wait_for(_driven(prepared, count), _PATIENCE))
    except TimeoutError:
        return NodesRun(agents, count, failure=f"no result within {_PATIENCE:.0f} s")
    except Exception as error:  # gRPC, a child that died: whatever it is, the other sizes are still measured
        return NodesRun(agents, count, failure=f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")


async def _driven(prepared: PreparedRun, count: int) -> NodesRun:
    agents, began = prepared.graph.agents, time.perf_counter()
    async with nodes(prepared, together(agents, count)) as driven:
        await driven.block(1)
        ready = time.perf_counter() - began
        turns = await _turns(driven, agents)
        held = sum(used.resident for used in await driven.used())
    owner = blocks(agents, count)
    phases = prepared.experiment.algorithm.phases
    return NodesRun(
        agents,
        count,
        setup_seconds=ready,
        rounds_per_second=block_rounds(agents) / median(turn.nodes.seconds for turn in turns),
        of_embedded=median(turn.embedded.seconds / turn.nodes.seconds for turn in turns),
        cpu_of_embedded=median(turn.embedded.cpu / turn.nodes.cpu for turn in turns),
        bytes_per_agent=held / agents,
        frame_bytes=frame_bytes(prepared, owner),
        least_bytes=int(rows_sent(prepared.graph, owner).sum()) * len(phases) * _row_bytes(prepared),
    )


class _Took(NamedTuple):
    seconds: float
    cpu: float


class _Turn(NamedTuple):
    nodes: _Took
    embedded: _Took


async def _turns(driven: Nodes, agents: int) -> list[_Turn]:
    """Blocks of rounds, by turns over nodes and embedded: whatever else the machine does slows both down alike."""
    rounds, module = block_rounds(agents), "dpp2.studies.bench.scale_run"
    embedded = await Process.start(sys.executable, "-m", module, str(agents), "turns")
    try:
        await embedded.hear()
        await embedded.ask("3")  # the first rounds take longer than others
        turns = []
        for _ in range(_REPETITIONS):
            before = await _cpu(driven)
            seconds = await driven.block(rounds)
            over_nodes = _Took(seconds, await _cpu(driven) - before)
            turns.append(_Turn(over_nodes, _Took(*await embedded.ask(str(rounds)))))
        return turns
    finally:
        await embedded.end()


async def _cpu(driven: Nodes) -> float:
    return sum(used.cpu for used in await driven.used())


def rows_sent(graph: Graph, owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """(hosts, hosts): rows that one must send to the other in a phase, each agent's once. The cut's minimum."""
    hosts, across = int(owner.max()) + 1, crossing(graph, owner)
    sent = np.zeros((hosts, hosts), dtype=np.int64)
    np.add.at(sent, (owner[across[:, 0]], across[:, 1]), 1)
    return sent


def frame_bytes(prepared: PreparedRun, owner: NDArray[np.int64]) -> int:
    """Bytes of all frames of a round, as nodes encode them."""
    across, dimension = crossing(prepared.graph, owner), prepared.objective([0]).dimension
    sent: dict[tuple[int, int], Any] = {}
    for sender, host in across.tolist():
        sent.setdefault((int(owner[sender]), host), []).append(sender)
    return sum(
        len(encode(prepared.run_id, 1, phase, senders, np.ones((len(senders), dimension))))
        for phase in prepared.experiment.algorithm.phases
        for senders in sent.values()
    )


def _row_bytes(prepared: PreparedRun) -> int:
    return _NUMBER * prepared.objective([0]).dimension


SCALE = ScaleBenchmark()
