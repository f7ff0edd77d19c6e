"""`dpp2 bench hostile`: two honest nodes and a neighbour that abuses one of them, one kind of abuse after the other.

Each kind takes turns with the same neighbour without abuse, block of rounds after block of rounds; medians count.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dpp2 import Experiment
from dpp2.prepared import PreparedRun
from node.cluster import Cluster
from node.codec import RowFormat, message_limit
from node.limits import CHANNEL_OPTIONS, rounds_in_hand
from node.process import SETTINGS
from node.tls import ORCHESTRATOR, Identity, node_name, open_channel
from node.v1 import wire_pb2, wire_pb2_grpc
from orchestrator import certs
from store.files import write_text
from studies.bench.benchmark import Bench, Benchmark, Note
from studies.bench.contenders import Nodes, Process, workers
from studies.bench.hostile_peer import KINDS, STANDING
from studies.tables import TextTable

DIMENSION = 20_000
SLACK = 96 << 20  # bytes, chosen after measuring (+91 MB at most): where they go besides gRPC is not known
_ABUSED, _OTHER = 1, 2  # nodes; 0 is the neighbour
_TURNS, _BLOCK_SECONDS = 5, 2.0
_LOOK = 0.1  # seconds between two looks at the memory


@dataclass(frozen=True)
class Abuse:
    """One kind: rounds per second of the honest pair as part of those without, and the memory of the abused node."""

    kind: str
    rounds_per_second: float
    of_honest: float | None  # None: the run waits
    megabytes: float  # at most
    more: float  # than without any abuse


@dataclass(frozen=True)
class HostileMeasured:
    dimension: int
    megabytes: float  # of the abused node, before
    bound: float  # by how many more it may grow
    rounds_per_second: float
    kinds: list[Abuse]


class HostileBenchmark(Benchmark[HostileMeasured]):
    """What a hostile neighbour costs an honest pair: memory, and rounds per second."""

    def measure(self, asked: Bench) -> HostileMeasured:
        return asyncio.run(measure(asked.note))

    def table(self, measured: HostileMeasured) -> TextTable:
        rows = [
            (
                one.kind,
                "waits" if one.of_honest is None else f"{one.rounds_per_second:.0f}",
                "" if one.of_honest is None else f"{one.of_honest:.2f}",
                f"{one.more:+.1f} MB",
            )
            for one in measured.kinds
        ]
        goals = ("goal", "", "≥ 0.80", f"≤ {measured.bound:+.1f} MB")
        title = f"dpp2 bench hostile: rows of {measured.dimension:,} numbers, {measured.rounds_per_second:.0f} rounds/s"
        return TextTable(("a neighbour that", "rounds/s", "of honest", "memory"), [*rows, goals], title)


def allowed_growth(form: RowFormat, theirs: tuple[int, ...], ours: tuple[int, ...]) -> int:
    """Bytes by which one neighbour can raise a node's memory: what waits each way, a frame each way, and some slack."""
    sizes = [form.round_size(senders) for senders in (theirs, ours)]
    frames = 2 * message_limit(form, theirs) + message_limit(form, ours)
    return sum(rounds_in_hand(size) * size for size in sizes) + frames + SLACK


async def measure(note: Note, dimension: int = DIMENSION, turns: int = _TURNS) -> HostileMeasured:
    settings = {"network.topology": "complete", "network.agents": 3, "problem.name": "quadratic"}
    overrides = {**settings, "problem.dimension": dimension, "run.rounds": 10**6}
    prepared = PreparedRun.of(Experiment.load(overrides=overrides))
    async with _pair(prepared) as (nodes, neighbour):
        await nodes.block(50)
        rate = 50 / await nodes.block(50)
        before = (await nodes.resident())[0]
        found = []
        for kind in [kind for kind in KINDS | STANDING if kind != "nothing"]:
            note(kind)
            found.append(await _try(nodes, neighbour, kind, max(10, int(rate * _BLOCK_SECONDS)), before, turns))
    form = RowFormat.of(prepared.experiment.algorithm, dimension)
    bound = allowed_growth(form, (0,), (_ABUSED,))
    honest = median(one.rounds_per_second / one.of_honest for one in found if one.of_honest)
    return HostileMeasured(dimension, before / 1e6, bound / 1e6, honest, found)


async def _try(nodes: Nodes, neighbour: Process, kind: str, rounds: int, before: float, turns: int) -> Abuse:
    peak = before
    rates: dict[str, list[float]] = {"nothing": [], kind: []}
    for _ in range(1 if kind in STANDING else turns):
        for doing in rates:
            await neighbour.ask(doing)
            working = asyncio.create_task(_worked(nodes, rounds, stands=doing in STANDING))
            while not working.done():
                await asyncio.wait({working}, timeout=_LOOK)
                peak = max(peak, (await nodes.resident())[0])
            rates[doing].append(working.result())
    await neighbour.ask("nothing")
    await nodes.block(1)  # and what stood
    rate, honest = median(rates[kind]), median(rates["nothing"])
    return Abuse(kind, rate, None if kind in STANDING else rate / honest, peak / 1e6, (peak - before) / 1e6)


async def _worked(nodes: Nodes, rounds: int, *, stands: bool) -> float:
    """Rounds per second; of a run that stands, none."""
    if not stands:
        return rounds / await nodes.block(rounds)
    await nodes.release(rounds)
    await asyncio.sleep(2 * _BLOCK_SECONDS)
    return 0.0


@asynccontextmanager
async def _pair(prepared: PreparedRun) -> Any:
    """Nodes 1 and 2, a process each, and the neighbour of both, all with certificates."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpp2-bench-")))
        certs.make(folder / "certs", [[0], [_ABUSED], [_OTHER]], days=1)
        processes, ports = await workers(stack, prepared, [[[_ABUSED]], [[_OTHER]]], folder, folder / "certs", 50)
        addresses = {agent: f"127.0.0.1:{ports[str(agent)]}" for agent in (_ABUSED, _OTHER)}
        write_text(folder / "cluster.toml", Cluster({0: "127.0.0.1:1", **addresses}, {}).to_toml())
        identity = Identity.load(folder / "certs" / "orchestrator", [ORCHESTRATOR])
        channels = [open_channel(identity, addresses[a], node_name([a]), CHANNEL_OPTIONS) for a in addresses]
        controls = [wire_pb2_grpc.ControlStub(await stack.enter_async_context(channel)) for channel in channels]
        request = wire_pb2.PrepareRequest(run=prepared.run_id, digest=prepared.experiment.digest)
        await asyncio.gather(*(control.Prepare(request) for control in controls))
        neighbour = await _neighbour(prepared, addresses, folder / "certs" / "node-0")
        stack.push_async_callback(neighbour.end)
        side = Nodes(controls, prepared.run_id, processes)
        stack.callback(side.cancel)
        yield side, neighbour


async def _neighbour(prepared: PreparedRun, addresses: dict[int, str], tls: Path) -> Process:
    phases, dimension = prepared.experiment.algorithm.phases, prepared.objective([0]).dimension
    settings = {"run": prepared.run_id, "phases": phases, "dimension": dimension, "tls": str(tls)}
    return await Process.module("hostile_peer", {**settings, "addresses": addresses}, SETTINGS)


HOSTILE = HostileBenchmark()
