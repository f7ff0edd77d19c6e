"""`dpp2 bench hostile`: two honest nodes and a neighbour that abuses one of them, one kind of abuse after the other.

Each kind takes turns with the same neighbour without abuse, block of rounds after block of rounds.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.node.codec import RowFormat
from dpp2.node.limits import CHANNEL_OPTIONS
from dpp2.node.memory import MemoryBound
from dpp2.node.process import SETTINGS, most_connections
from dpp2.node.tls import ORCHESTRATOR, Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator import certs
from dpp2.prepared import PreparedRun
from dpp2.store.files import write_text
from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.bench.contenders import Nodes, Process, workers
from dpp2.studies.bench.hostile_peer import KINDS, STANDING
from dpp2.studies.tables import TextTable

DIMENSION = 20_000
_ABUSED, _OTHER = 1, 2  # nodes; 0 is the neighbour
_TURNS, _BLOCK_SECONDS = 5, 1.5
_WARM = 4  # blocks before anything counts
_LOOK = 0.1  # seconds between two looks at the memory


@dataclass(frozen=True)
class Block:
    """Some rounds, and what they took."""

    rounds: int
    seconds: float
    cpu: float  # seconds of the abused node
    abuser: float  # seconds of CPU of the neighbour
    peak: float  # bytes of the abused node's memory

    @property
    def rate(self) -> float:
        return self.rounds / self.seconds


@dataclass(frozen=True)
class Abuse:
    """One kind. Each block is set beside the block without abuse just before it; medians of these ratios count.

    Rounds come late because the node works for its abuser, because the abuser's process takes a part of the cores that
    all share, or because the abuser's own rows are late. Only the first is the node's: its CPU time for each round.
    """

    kind: str
    rounds_per_second: float
    of_honest: float | None  # None: the run waits
    cpu_of_honest: float | None  # CPU time of the abused node for a round
    abusers_cores: float  # CPU seconds of the abuser in a second
    megabytes: float  # at most
    more: float  # than without any abuse


@dataclass(frozen=True)
class HostileMeasured:
    dimension: int
    megabytes: float  # of the abused node without abuse, at most
    bound: MemoryBound  # by how much more it may grow
    rounds_per_second: float
    kinds: list[Abuse]


class HostileBenchmark(Benchmark[HostileMeasured]):
    """What a hostile neighbour costs an honest pair: memory, CPU time and rounds per second."""

    def measure(self, asked: Bench) -> HostileMeasured:
        return asyncio.run(measure(asked.note))

    def table(self, measured: HostileMeasured) -> TextTable:
        rows = [
            (
                one.kind,
                "waits" if one.of_honest is None else f"{one.rounds_per_second:.0f}",
                "" if one.of_honest is None else f"{one.of_honest:.2f}",
                "" if one.cpu_of_honest is None else f"{one.cpu_of_honest:.2f}",
                f"{one.abusers_cores:.2f}",
                f"{one.more:+.1f} MB",
            )
            for one in measured.kinds
        ]
        goals = ("goal", "", "≥ 0.80", "≤ 1.25", "", f"≤ {measured.bound.total / 1e6:+.1f} MB")
        terms = ", ".join(f"{name.replace('_', ' ')} {size / 1e6:.1f}" for name, size in asdict(measured.bound).items())
        title = (
            f"dpp2 bench hostile: rows of {measured.dimension:,} numbers, {measured.rounds_per_second:.0f} rounds/s, "
            f"{measured.megabytes:.0f} MB\nbound in MB: {terms}"
        )
        columns = ("a neighbour that", "rounds/s", "of honest", "node's CPU/round", "its own cores", "memory")
        return TextTable(columns, [*rows, goals], title)


async def measure(
    note: Note, dimension: int = DIMENSION, turns: int = _TURNS, kinds: Sequence[str] = ()
) -> HostileMeasured:
    """`kinds`: these alone."""
    settings = {"network.topology": "complete", "network.agents": 3, "problem.name": "quadratic"}
    overrides = {**settings, "problem.dimension": dimension, "run.rounds": 10**6}
    prepared = PreparedRun.of(Experiment.load(overrides=overrides))
    async with _pair(prepared) as (nodes, neighbour):
        trial = _Trial(nodes, neighbour)
        await trial.warm_up()
        found = []
        for kind in kinds or [kind for kind in KINDS | STANDING if kind != "nothing"]:
            note(kind)
            found.append(await trial.attempt(kind, turns))
    form = RowFormat.of(prepared.experiment.algorithm, dimension)
    bound = MemoryBound.of(form, (0, _OTHER), (0,), (_ABUSED,), most_connections(prepared.graph.agents))
    return HostileMeasured(dimension, trial.before / 1e6, bound, trial.rate, found)


class _Trial:
    """Blocks of rounds, with and without abuse."""

    def __init__(self, nodes: Nodes, neighbour: Process) -> None:
        self._nodes, self._neighbour = nodes, neighbour
        self.before = self.rate = 0.0  # bytes of the abused node, rounds per second

    async def warm_up(self) -> None:
        """An honest run's memory grows for a while, too."""
        await self._nodes.block(50)
        self.rate = 50 / await self._nodes.block(50)
        blocks = [await self._block("nothing") for _ in range(_WARM)]
        self.before = max(block.peak for block in blocks)
        self.rate = median(block.rate for block in blocks)

    async def attempt(self, kind: str, turns: int) -> Abuse:
        if kind in STANDING:
            return self._found(kind, [await self._stand(kind)])
        pairs = [(await self._block("nothing"), await self._block(kind)) for _ in range(turns)]
        of_honest = median(abused.rate / honest.rate for honest, abused in pairs)
        cpu = median(abused.cpu / abused.rounds * honest.rounds / honest.cpu for honest, abused in pairs)
        return self._found(kind, [abused for _, abused in pairs], of_honest, cpu)

    def _found(self, kind: str, blocks: list[Block], of_honest: float | None = None, cpu: float | None = None) -> Abuse:
        peak, cores = max(block.peak for block in blocks), median(block.abuser / block.seconds for block in blocks)
        rate = median(block.rate for block in blocks)
        return Abuse(kind, rate, of_honest, cpu, cores, peak / 1e6, (peak - self.before) / 1e6)

    async def _block(self, doing: str) -> Block:
        """As many rounds as take a block's time without abuse."""
        rounds = max(10, int(self.rate * _BLOCK_SECONDS))
        return await self._while(doing, rounds, self._nodes.block(rounds))

    async def _stand(self, kind: str) -> Block:
        """The run waits for rows that do not come; afterwards it goes on."""
        await self._nodes.release(10)
        found = await self._while(kind, 0, asyncio.sleep(4 * _BLOCK_SECONDS))
        await self._nodes.block(1)
        return found

    async def _while(self, doing: str, rounds: int, work: Coroutine[Any, Any, Any]) -> Block:
        """The neighbour does this from now on, and is told to stop when the work is done."""
        clock = asyncio.get_running_loop().time
        abuser = await self._neighbour.ask(doing)
        before, began, peak = (await self._nodes.used())[0], clock(), 0.0
        working = asyncio.create_task(work)
        while not working.done():
            await asyncio.wait({working}, timeout=_LOOK)
            after = (await self._nodes.used())[0]
            peak = max(peak, after.resident)
        seconds = clock() - began
        await working
        abused = (await self._neighbour.ask("nothing"))["cpu"] - abuser["cpu"]
        return Block(rounds, seconds, after.cpu - before.cpu, abused, peak)


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
