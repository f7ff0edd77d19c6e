"""A node as gRPC sees it: servers, channels, calls. Methods decode, call and encode; faults become their status."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from node.cluster import Cluster
from node.codec import decode, message_limit
from node.errors import NodeFailed, PeerFault
from node.hosting import Hosting, Neighbour
from node.keyring import Keyring
from node.limits import BACKOFF_FIRST, BACKOFF_MOST, CHANNEL_OPTIONS, REPORT_EVERY, SERVER_OPTIONS
from node.run import NodeRun
from node.v1 import wire_pb2, wire_pb2_grpc

log = logging.getLogger("dpp2.node")

EXCHANGE = "/dpp2.node.v1.Peer/Exchange"


@dataclass(frozen=True)
class NodeConfig:
    """What a node takes from its own files and command line."""

    experiment: Experiment  # resolved
    owned: tuple[int, ...]
    cluster: Path  # cluster.toml, read when a run is prepared
    home: Path
    every: int = 10  # rounds between checkpoints
    eta_key: Path | None = None

    @property
    def name(self) -> int:
        return min(self.owned)


def run_folder(home: Path, run_id: str) -> Path:
    """Where a node keeps one run; another run in the same home meets neither its journal nor its records."""
    return home / "runs" / run_id


def address_of(neighbour: Neighbour, cluster: Cluster) -> str:
    """Where to dial a neighbour: the address of one of the links, if it has its own."""
    for ours in neighbour.ours:
        for theirs in neighbour.theirs:
            if (override := cluster.links.get((min(ours, theirs), max(ours, theirs)))) is not None:
                return override
    return cluster.addresses[neighbour.node]


class Node(wire_pb2_grpc.ControlServicer):
    """One node: its server, its links and, once prepared, its run."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.run: NodeRun | None = None
        self.refused: Counter[str] = Counter()
        self.failure = ""
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._preparing = asyncio.Lock()
        self.stopped = asyncio.Event()

    async def start(self, listen: str) -> int:
        """Listen; returns the port. Port 0 lets the operating system choose."""
        hosting = len(self.config.owned)
        limit = message_limit(10**6, 1) * hosting  # until the experiment's own dimension is known
        options = [*SERVER_OPTIONS, ("grpc.max_receive_message_length", max(limit, 4 << 20))]
        server = grpc.aio.server(options=options)
        wire_pb2_grpc.add_ControlServicer_to_server(self, server)
        handler: Any = grpc.stream_stream_rpc_method_handler(
            self._exchange, request_deserializer=None, response_serializer=None
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("dpp2.node.v1.Peer", {"Exchange": handler}),)
        )
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        names = [service.full_name for service in wire_pb2.DESCRIPTOR.services_by_name.values()]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        try:
            port = server.add_insecure_port(listen)
        except RuntimeError:
            raise NodeFailed(f"{listen} is taken or cannot be listened on") from None
        await server.start()
        self._server = server
        return port

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self.run is not None:
            self.run.close()

    # -- control -----------------------------------------------------------------------------------------------

    async def Prepare(self, request: Any, context: Any) -> Any:
        """The experiment and the budget are this node's own; a call can only name a run of exactly that."""
        try:
            run = await self._prepare(request.run, request.digest)
        except PeerFault as fault:
            await self._refuse(fault, context)
        except (BadInput, NodeFailed) as refusal:  # something in this node's own files
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        return wire_pb2.PrepareReply(agents=self.config.owned, round=run.k, allowed=run.rounds)

    async def _prepare(self, run_id: str, digest: str) -> NodeRun:
        async with self._preparing:
            if digest != self.config.experiment.digest:
                raise PeerFault("wrong digest", "this node's experiment is another one")
            if self.run is None:
                self._claim(run_id)
                cluster = Cluster.load(self.config.cluster)
                hosting = Hosting(self.config.experiment, self.config.owned, cluster.place())
                seed, home = self.config.experiment.run.seed, self.config.home
                keyring = Keyring.of(seed, self.config.owned, home, self.config.eta_key)
                rounds = self.config.experiment.run.rounds
                self.run = NodeRun(hosting, keyring, run_id, run_folder(home, run_id), self.config.every, rounds)
                for complaint in self.run.complaints:
                    log.warning(complaint)
                self._tasks = [asyncio.create_task(self._guard(self.run))]
                dialled = [n for n in hosting.neighbours if self.config.name < n.node]
                self._tasks += [asyncio.create_task(self._dial(n, address_of(n, cluster))) for n in dialled]
            elif self.run.run_id != run_id:
                raise PeerFault("run id used", f"this node is in run {self.run.run_id[:8]}…")
            return self.run

    def _claim(self, run_id: str) -> None:
        """A run id belongs to one experiment for ever: with it the noise would be the same."""
        if not re.fullmatch(r"[0-9a-f]{1,64}", run_id):  # it names a folder, too
            raise PeerFault("bad run id", f"{run_id[:20]!r} is not hexadecimal")
        self.config.home.mkdir(parents=True, exist_ok=True)
        path = self.config.home / "runs.txt"
        claimed = f"{run_id} {self.config.experiment.digest}"
        known = path.read_text().splitlines() if path.exists() else []
        if any(line.startswith(f"{run_id} ") and line != claimed for line in known):
            raise PeerFault("run id used", "this node has run another experiment under that id")
        if claimed not in known:
            with path.open("a") as file:
                file.write(claimed + "\n")

    async def _guard(self, run: NodeRun) -> None:
        try:
            await run.go()
        except (NodeFailed, ArithmeticError, ValueError, OSError) as failure:
            self.failure = str(failure)
            log.error(self.failure)
            run.give_up()

    async def Release(self, request: Any, context: Any) -> Any:
        run = await self._current(request.run, context)
        run.release(request.until)
        return wire_pb2.ReleaseReply()

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        run = await self._current(request.run, context)
        while True:
            report = wire_pb2.Progress(
                round=run.k,
                finished=run.finished,
                waiting_for=run.waiting_for(),
                frames_sent=run.frames,
                bytes_sent=run.bytes,
                refused=sum(self.refused.values()),
                failure=self.failure,
            )
            yield report
            if report.finished or report.failure:  # what was said, not what has happened since
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(run.exhausted(), REPORT_EVERY)

    async def Stop(self, request: Any, context: Any) -> Any:
        await self._current(request.run, context)
        self.stopped.set()
        return wire_pb2.StopReply()

    async def _current(self, run_id: str, context: Any) -> NodeRun:
        if self.run is None:
            await self._refuse(PeerFault("not prepared", "no run has been prepared"), context)
        assert self.run is not None
        if self.run.run_id != run_id:
            await self._refuse(PeerFault("wrong run", f"this node runs {self.run.run_id[:8]}…"), context)
        return self.run

    async def _refuse(self, fault: PeerFault, context: Any) -> None:
        self._count(fault)
        await context.abort(fault.status, str(fault))

    def _count(self, fault: PeerFault) -> None:
        self.refused[fault.kind] += 1
        if self.refused[fault.kind] == 1:
            log.warning("refused (further ones are only counted): %s", fault)

    # -- peers -------------------------------------------------------------------------------------------------

    async def _exchange(self, requests: Any, context: Any) -> None:
        """A neighbour has dialled."""
        try:
            run, neighbour, need = self._welcome(dict(context.invocation_metadata()))
            await context.send_initial_metadata(self._metadata(run))
            await self._speak(run, neighbour, need, context.read, context.write)
        except PeerFault as fault:
            await self._refuse(fault, context)

    async def _dial(self, neighbour: Neighbour, address: str) -> None:
        """Keep a stream open to a higher-numbered neighbour, for as long as this node lives."""
        assert self.run is not None
        run, wait = self.run, BACKOFF_FIRST
        async with grpc.aio.insecure_channel(address, options=self._channel_options(run)) as channel:
            method: Any = channel.stream_stream(EXCHANGE)  # bytes: the codec reads them
            while True:
                call = method(metadata=self._metadata(run))
                try:
                    metadata = dict(await call.initial_metadata())
                    if "dpp2-run" not in metadata:
                        continue  # turned away: it is not prepared yet
                    _, found, need = self._welcome(metadata)
                    if found != neighbour:
                        raise PeerFault("unknown sender", f"{address} hosts other agents")
                    wait = BACKOFF_FIRST
                    await self._speak(run, neighbour, need, call.read, call.write)
                except PeerFault as fault:
                    self._count(fault)
                except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    pass  # not there yet, or gone: a late neighbour is waited for
                finally:
                    call.cancel()
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, BACKOFF_MOST)

    async def _speak(self, run: NodeRun, neighbour: Neighbour, need: int, read: Any, write: Any) -> None:
        backlog = run.frames_since(neighbour, need)
        dimension = run.hosting.dimension
        await run.links[neighbour.node].serve(
            read, write, backlog, lambda frame: run.take(decode(frame, dimension), neighbour)
        )

    def _metadata(self, run: NodeRun) -> tuple[tuple[str, str], ...]:
        agents = ",".join(map(str, run.hosting.owned))
        return ("dpp2-run", run.run_id), ("dpp2-agents", agents), ("dpp2-need", str(run.k))

    def _welcome(self, metadata: Mapping[str, Any]) -> tuple[NodeRun, Neighbour, int]:
        """Who is at the other end, and from which round on it needs frames."""
        if self.run is None:
            raise PeerFault("not prepared", "no run has been prepared")
        if metadata.get("dpp2-run") != self.run.run_id:
            raise PeerFault("wrong run", f"this node runs {self.run.run_id[:8]}…")
        try:
            agents = {int(agent) for agent in str(metadata["dpp2-agents"]).split(",")}
            need = int(metadata["dpp2-need"])
        except (KeyError, ValueError):
            raise PeerFault("bad metadata", "dpp2-agents and dpp2-need must be numbers") from None
        for neighbour in self.run.hosting.neighbours:
            if neighbour.node == min(agents) and agents >= set(neighbour.theirs):
                return self.run, neighbour, need
        raise PeerFault("not a neighbour", f"no neighbouring node hosts {sorted(agents)[:5]}")

    def _channel_options(self, run: NodeRun) -> list[tuple[str, Any]]:
        limit = message_limit(run.hosting.dimension, len(run.hosting.foreign) or 1)
        return [*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", max(limit, 4 << 20))]
