"""A node as gRPC sees it: one server, control calls. Methods decode, call and encode; faults become their status."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from node.admission import Admission
from node.cluster import Cluster
from node.disk import RealDisk
from node.errors import NodeFailed, PeerFault, Refusals
from node.gate import Gate
from node.hosting import Hosting
from node.keyring import Keyring
from node.limits import CHECKPOINT_EVERY, REPORT_EVERY, SERVER_OPTIONS
from node.machine import HostedRun
from node.peers import METHOD, SERVICE, Peers, transport_limit
from node.run import Keeping, open_run
from node.shell import Shell
from node.status import STATUS, status_of
from node.tls import ORCHESTRATOR, Identity, node_names, proven_names
from node.v1 import wire_pb2, wire_pb2_grpc
from store.files import write_text
from store.ledgers import LedgerFile

log = logging.getLogger("dpp2.node")


@dataclass(frozen=True)
class NodeConfig:
    """What a node takes from its own files and command line."""

    experiment: Experiment  # resolved
    owned: tuple[int, ...]
    cluster: Path  # cluster.toml, read when a run is prepared
    home: Path
    tls: Path | None  # folder with certificates; None is plaintext, which authenticates nobody
    every: int = CHECKPOINT_EVERY  # rounds between checkpoints
    telemetry: bool = False  # whether x, gradients and noise are written down, too
    keys: Path | None = None  # folder with the agents' keys; None: `home`
    eta_key: Path | None = None
    ledger: Path | None = None  # None: in `home`
    allow: Path | None = None  # fingerprints of the certificates that count; None: allowed.txt in `tls`, if it is there

    def identity(self) -> Identity | None:
        return None if self.tls is None else Identity.load(self.tls, node_names(self.owned))

    def admission(self) -> Admission | None:
        return None if self.tls is None else Admission.of(self.tls, self.allow)


def run_folder(home: Path, run_id: str) -> Path:
    """Where a node keeps one run; another run in the same home meets neither its journal nor its records."""
    return home / "runs" / run_id


class Node(wire_pb2_grpc.ControlServicer):
    """One node: its server, its links and, once prepared, its run."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.identity, self.admission = config.identity(), config.admission()
        self.hosting = Hosting(config.experiment, config.owned)
        self.shell: Shell | None = None
        self.refusals = Refusals()
        self.stopped = asyncio.Event()
        self._ledger = LedgerFile(config.ledger or config.home / "ledger.sqlite")
        self._peers: Peers | None = None
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._preparing = asyncio.Lock()

    @property
    def failure(self) -> str:
        """Why the run cannot go on, if so."""
        return self.shell.failure if self.shell is not None else ""

    async def start(self, listen: str) -> int:
        """Listen; returns the port. Port 0 lets the operating system choose."""
        gate = [] if self.admission is None else [Gate(self.admission, self.refusals)]
        server = grpc.aio.server(interceptors=gate, options=[*SERVER_OPTIONS, transport_limit(self.hosting)])
        wire_pb2_grpc.add_ControlServicer_to_server(self, server)
        handler: Any = grpc.stream_stream_rpc_method_handler(
            self._exchange, request_deserializer=None, response_serializer=None
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        names = [service.full_name for service in wire_pb2.DESCRIPTOR.services_by_name.values()]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        port = self._listen(server, listen)
        await server.start()
        self._server = server
        return port

    def _listen(self, server: grpc.aio.Server, listen: str) -> int:
        level = logging.INFO if listen.startswith("127.") else logging.WARNING
        if self.config.experiment.privacy.budget is None and self.config.experiment.run.seed == "os":
            log.log(level, "no privacy.budget: whoever orchestrates decides how much of the agents' privacy is spent")
        try:
            if self.identity is not None:
                return server.add_secure_port(listen, self.identity.listener())
            log.log(level, "plaintext on %s: whoever can reach it can read, and nobody is authenticated", listen)
            return server.add_insecure_port(listen)
        except RuntimeError:
            raise NodeFailed(f"{listen} is taken or cannot be listened on") from None

    async def stop(self) -> None:
        """In order: what has been run is durable, and what has been spent is settled."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self.shell is not None:
            with suppress(OSError):  # a full disk has been reported; the last checkpoint before it stands
                await self.shell.end()
            with suppress(BadInput) if self.shell.failure else nullcontext():  # the charge stands, and may be too high
                self.shell.run.settle(self._ledger)

    # -- control -----------------------------------------------------------------------------------------------

    async def Prepare(self, request: Any, context: Any) -> Any:
        """The experiment and the budget are this node's own; a call can only name a run of exactly that."""
        await self._authorise(context)
        try:
            shell = await self._prepare(request.run, request.digest)
        except PeerFault as fault:
            await self._refuse(fault, context)
        except (BadInput, NodeFailed, OSError) as refusal:  # something in this node's own files, or its disk
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        except Exception as error:  # a fault of ours: gRPC would tell nobody here
            log.exception("the run cannot be prepared")
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        allowance = shell.run.budget.allowance
        return wire_pb2.PrepareReply(
            agents=self.config.owned, round=shell.machine.k, allowed=allowance.rounds, reason=allowance.reason or ""
        )

    async def _prepare(self, run_id: str, digest: str) -> Shell:
        async with self._preparing:
            if digest != self.config.experiment.digest:
                raise PeerFault("wrong digest", "this node's experiment is another one")
            if self.shell is None:
                self._claim(run_id)
                self.shell = self._begin(run_id, Cluster.load(self.config.cluster))
            elif self.shell.run_id != run_id:
                raise PeerFault("run id used", f"this node is in run {self.shell.run_id[:8]}…")
            return self.shell

    def _begin(self, run_id: str, cluster: Cluster) -> Shell:
        config = self.config
        disk, keeping = RealDisk(run_folder(config.home, run_id)), Keeping(config.every, config.telemetry)
        run = open_run(self._hosted_run(run_id, cluster), disk, self._ledger, keeping)
        for complaint in run.folder.complaints:
            log.warning(complaint)
        shell = Shell(run)
        self._peers = Peers(shell, cluster, self.identity, self.refusals, self.admission)
        self._tasks = [asyncio.create_task(self._guard(shell)), *self._peers.dial()]
        return shell

    def _hosted_run(self, run_id: str, cluster: Cluster) -> HostedRun:
        config = self.config
        if (hosted := cluster.agents_of_node(cluster.node_of_agent().get(config.owned[0], -1))) != config.owned:
            raise BadInput(
                "--agents", list(config.owned), f"all agents of one address in {config.cluster}: {list(hosted)}"
            )
        if (agents := len(cluster.addresses)) != self.hosting.graph.agents:
            raise BadInput("--cluster", agents, f"the addresses of all {self.hosting.graph.agents} agents")
        neighbours = self.hosting.neighbours(cluster.node_of_agent())
        keyring = Keyring.of(config.experiment.run.seed, config.owned, config.keys or config.home, config.eta_key)
        return HostedRun.of(self.hosting, neighbours, keyring, run_id)

    def _claim(self, run_id: str) -> None:
        """A run id belongs to one experiment for ever: with it the noise would be the same."""
        if not re.fullmatch(r"[0-9a-f]{1,64}", run_id):  # it names a folder, too
            raise PeerFault("bad run id", f"{run_id[:20]!r} is not hexadecimal")
        self.config.home.mkdir(parents=True, exist_ok=True)
        path = self.config.home / "runs.txt"
        claimed = f"{run_id} {self.config.experiment.digest}"
        try:
            known = path.read_text().splitlines() if path.exists() else []
        except UnicodeDecodeError:
            raise NodeFailed(f"{path} is damaged: this node cannot tell which runs it has had") from None
        if any(line.startswith(f"{run_id} ") and line != claimed for line in known):
            raise PeerFault("run id used", "this node has run another experiment under that id")
        if claimed not in known:
            write_text(path, "".join(f"{line}\n" for line in (*known, claimed)))

    async def _guard(self, shell: Shell) -> None:
        """Whatever happens to the rounds is told: a task that dies by itself would be missed by nobody."""
        try:
            await shell.run_rounds()
            if shell.machine.finished:
                shell.run.settle(self._ledger)
        except Exception as error:
            shell.fail(error)

    async def Release(self, request: Any, context: Any) -> Any:
        shell = await self._current(request.run, context)
        await shell.release(request.until, last=request.last)
        return wire_pb2.ReleaseReply()

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        shell = await self._current(request.run, context)
        machine = shell.machine
        while True:
            report = wire_pb2.Progress(
                round=machine.k,
                finished=machine.finished and not shell.failure,
                waiting_for=machine.waiting_for(),
                frames_sent=machine.outbox.frames,
                bytes_sent=machine.outbox.bytes,
                refused=self.refusals.counts.total(),
                failure=shell.failure,
                diverged=shell.diverged,
            )
            yield report
            if report.finished or report.failure:  # what was said, not what has happened since
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(shell.credit_used(), REPORT_EVERY)

    async def Stop(self, request: Any, context: Any) -> Any:
        await self._current(request.run, context)
        self.stopped.set()
        return wire_pb2.StopReply()

    async def _current(self, run_id: str, context: Any) -> Shell:
        await self._authorise(context)
        if self.shell is None:
            await self._refuse(PeerFault("not prepared", "no run has been prepared"), context)
        assert self.shell is not None
        if self.shell.run_id != run_id:
            await self._refuse(PeerFault("wrong run", f"this node runs {self.shell.run_id[:8]}…"), context)
        return self.shell

    async def _authorise(self, context: Any) -> None:
        """Control calls are the orchestrator's: a neighbour's certificate opens streams, not this."""
        if self.identity is not None and ORCHESTRATOR not in proven_names(context.auth_context()):
            fault = PeerFault("not the orchestrator", f"a control call needs the certificate of {ORCHESTRATOR}")
            await self._refuse(fault, context)

    async def _refuse(self, fault: PeerFault, context: Any) -> None:
        self.refusals.count(fault)
        await context.abort(status_of(fault), str(fault))

    async def _exchange(self, requests: Any, context: Any) -> None:
        """A neighbour has dialled."""
        try:
            if self._peers is None:  # an early neighbour, not a bad one: it will call again
                await context.abort(STATUS["not prepared"], "not prepared: no run has been prepared")
            assert self._peers is not None
            await self._peers.answer(context)
        except PeerFault as fault:
            await self._refuse(fault, context)
