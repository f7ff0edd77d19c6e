"""`dpp2 bench network`: nodes against bare gRPC streams in as many processes, and what TLS and checkpoints cost.

Everything that is compared is running at the same time and takes turns, block of rounds after block of rounds, because
a busy machine slows neighbours in time alike. Medians of five; what counts is the ratios.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from dpp2 import Experiment
from dpp2.orchestrator.local import for_nodes
from dpp2.prepared import PreparedRun
from dpp2.store.files import write_text
from dpp2.studies.bench import tier3
from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.bench.contenders import (
    REPETITIONS,
    Groups,
    bare,
    disropt,
    frame_bytes,
    has_disropt,
    nodes,
    separately,
    taking_turns,
    together,
)
from dpp2.studies.bench.delays import Delayed, delayed
from dpp2.studies.bench.network_numbers import (
    AgainstBare,
    Memory,
    NetworkMeasured,
    Overhead,
    StartUp,
    Together,
    Wide,
    table,
)
from dpp2.studies.tables import TextTable

_NEVER = 10**9  # rounds between checkpoints
_DELAYS = (0.001, 0.01, 0.05)  # seconds, one way


class NetworkBenchmark(Benchmark[NetworkMeasured]):
    """Nodes against bare gRPC streams, hosted together and apart, and what TLS and checkpoints cost."""

    sets_disropt_beside = True

    def measure(self, asked: Bench) -> NetworkMeasured:
        """DISROPT beside it where that Python has it."""
        return asyncio.run(_bench(asked.note, asked.disropt if has_disropt(asked.disropt) else None))

    def table(self, measured: NetworkMeasured) -> TextTable:
        return table(measured)


async def _bench(note: Note, python: str | None) -> NetworkMeasured:
    paper, two, fifty = _prepared(), "50 agents, a service each, 2 processes", "50 agents, a process each"
    return NetworkMeasured(
        two_processes=await _against_bare(paper, separately(50, 2), 20, note, two),
        fifty_processes=await _against_bare(paper, separately(50, 50), 10, note, fifty, python),
        together=await _together(paper, note),
        ten_agents=await _ten_agents(note, python),
        wide=await _wide(note),
        overhead=await _overhead(note),
        delayed=await _delayed(note),
        memory=await _memory(note),
        start_up=_start_up(note),
        tier3=await tier3.networked(note),
    )


def _prepared(**overrides: Any) -> PreparedRun:
    """An experiment that is only ever run by nodes, for as many rounds as are asked for."""
    return PreparedRun.of(Experiment.load(overrides={"run.rounds": 10**5, **overrides}))


async def _against_bare(
    prepared: PreparedRun, groups: Groups, rounds: int, note: Note, what: str, python: str | None = None
) -> AgainstBare:
    """Nodes, bare streams with their settings, bare streams as gRPC comes, and DISROPT if there is a Python for it."""
    note(what)
    async with AsyncExitStack() as stack:
        starts = {"ours": nodes(prepared, groups), "bare": bare(prepared, groups)}
        starts["untuned"] = bare(prepared, groups, tuned=False)
        if python is not None:
            starts["disropt"] = disropt(prepared, python)
        sides = {name: await stack.enter_async_context(start) for name, start in starts.items()}
        rates = await taking_turns(sides, dict.fromkeys(sides, rounds))
    messages = _messages(prepared)
    return AgainstBare(
        rounds_per_second=rates["ours"],
        rounds_per_second_bare=rates["bare"],
        rounds_per_second_untuned=rates["untuned"],
        messages_per_second=rates["ours"] * messages,
        messages_per_second_bare=rates["bare"] * messages,
        of_bare=rates["ours"] / rates["bare"],
        of_untuned=rates["ours"] / rates["untuned"],
        rounds_per_second_disropt=rates.get("disropt"),
    )


def _messages(prepared: PreparedRun) -> int:
    """In one round: every phase in both directions of every link."""
    return len(prepared.experiment.algorithm.phases) * 2 * len(prepared.graph.edges)


async def _together(prepared: PreparedRun, note: Note) -> Together:
    """The same fifty agents, hosted by two nodes and by fifty."""
    note("50 agents in 2 nodes, and in 50")
    shapes = {"together": together(50, 2), "apart": separately(50, 50)}
    async with nodes(prepared, shapes["together"]) as two, nodes(prepared, shapes["apart"]) as fifty:
        rates = await taking_turns({"together": two, "apart": fifty}, {"together": 200, "apart": 10})
    return Together(rates["together"], rates["apart"], times_apart=rates["together"] / rates["apart"])


@contextmanager
def ten_agents() -> Iterator[PreparedRun]:
    """10 agents and 25 edges, drawn at random."""
    import networkx as nx

    with tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        path = Path(folder) / "graph.edges"
        graph = next(g for g in (nx.gnm_random_graph(10, 25, seed=seed) for seed in range(100)) if nx.is_connected(g))
        write_text(path, "".join(f"{i} {j}\n" for i, j in graph.edges))
        yield _prepared(**{"network.topology": "file", "network.path": str(path), "network.agents": 10})


async def _ten_agents(note: Note, python: str | None) -> AgainstBare:
    """One process each."""
    with ten_agents() as prepared:
        return await _against_bare(prepared, separately(10, 10), 60, note, "10 agents, 25 edges", python)


async def _wide(note: Note) -> Wide:
    """4 agents that send 800,000 bytes a message."""
    wide = {"network.topology": "complete", "network.agents": 4, "problem.name": "quadratic"}
    prepared = _prepared(**wide, **{"problem.dimension": 100_000})
    found = await _against_bare(prepared, separately(4, 4), 10, note, "4 agents, d = 100,000")
    bytes_per_message = frame_bytes(prepared)
    ours, plain = found.messages_per_second, found.messages_per_second_bare
    return Wide(ours * bytes_per_message, plain * bytes_per_message, found.of_bare)


async def _overhead(note: Note) -> Overhead:
    """Of TLS, and of a checkpoint every 10 rounds, on 50 agents in 2 processes, a service each."""
    note("TLS and checkpoints")
    prepared, groups = _prepared(), separately(50, 2)
    async with (
        nodes(prepared, groups, every=_NEVER) as plain,
        nodes(prepared, groups, every=_NEVER, tls=True) as tls,
        nodes(prepared, groups, every=10) as saving,
    ):
        sides = {"plain": plain, "tls": tls, "saving": saving}
        rates = await taking_turns(sides, dict.fromkeys(sides, 20))
    plain_rate = rates["plain"]
    return Overhead(plain_rate, tls=plain_rate / rates["tls"] - 1, checkpoints=plain_rate / rates["saving"] - 1)


async def _delayed(note: Note) -> list[Delayed]:
    """A ring of 6, a process each, on a network that takes its time."""
    prepared = _prepared(**{"network.topology": "ring", "network.agents": 6})
    found = []
    for seconds in _DELAYS:
        note(f"6 agents, {1000 * seconds:g} ms one way")
        found.append(await delayed(prepared, seconds))
    return found


async def _memory(note: Note) -> Memory:
    """What a node holds after 2,000 and after 10,000 rounds."""
    note("memory over 10,000 rounds")
    prepared = _prepared(**{"network.topology": "ring", "network.agents": 4, "problem.name": "quadratic"})
    async with nodes(prepared, separately(4, 4)) as ours:
        await ours.block(2_000)
        before = [used.resident for used in await ours.used()]
        await ours.block(8_000)
        after = [used.resident for used in await ours.used()]
    growth = [(b - a) / a for a, b in zip(before, after, strict=True)]
    return Memory([value / 1e6 for value in after], growth)


def _start_up(note: Note) -> StartUp:
    """CPU seconds until a node of the paper's experiment listens, and whether it has loaded what it does not need."""
    note("start-up")
    with tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        write_text(Path(folder) / "experiment.toml", for_nodes(_prepared(), Path(folder)).to_toml())
        scripts = {"node": _START, "libraries": _LIBRARIES}
        turns = [{name: _started(script, folder) for name, script in scripts.items()} for _ in range(REPETITIONS)]
    seconds = {name: median(turn[name].cpu_seconds for turn in turns) for name in scripts}
    return StartUp(seconds["node"], seconds["libraries"], turns[0]["node"].heavy_imports)


_START = """
import json, resource, sys
from dpp2.node.process import set_up, ready_for_rounds
set_up()
import asyncio
from pathlib import Path
import uvloop
async def main():
    from dpp2.experiment import Experiment
    from dpp2.node.server import Node, NodeConfig
    folder = Path(sys.argv[1])
    experiment = Experiment.load(folder / "experiment.toml").resolve()
    await Node(NodeConfig(experiment, (0,), folder / "cluster.toml", folder / "home", None)).start("127.0.0.1:0")
    ready_for_rounds()
    used = resource.getrusage(resource.RUSAGE_SELF)
    heavy = [name for name in ("scipy", "matplotlib", "networkx", "sklearn") if name in sys.modules]
    print(json.dumps({"cpu_seconds": used.ru_utime + used.ru_stime, "heavy_imports": heavy}), flush=True)
    import os
    os._exit(0)
uvloop.run(main())
"""


_LIBRARIES = """
import json, resource
import grpc.aio, numpy, pydantic, uvloop
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu_seconds": used.ru_utime + used.ru_stime}))
"""


@dataclass(frozen=True)
class _Started:
    """What one of these scripts prints."""

    cpu_seconds: float
    heavy_imports: list[str] = field(default_factory=list)


def _started(script: str, folder: str) -> _Started:
    answer = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True)
    return _Started(**json.loads(answer.stdout))


NETWORK = NetworkBenchmark()
