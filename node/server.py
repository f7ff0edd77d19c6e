"""A node: one server, its links and its run. `node/control.py` decodes calls, and turns faults into their status."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from dpp2.budget import RunBudget
from dpp2.edge_keys import WITHOUT_TLS
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.node.admission import Admission
from dpp2.node.cluster import Cluster
from dpp2.node.control import answering, control_handler
from dpp2.node.disk import RealDisk
from dpp2.node.errors import NodeFailed, PeerFault, Refusals
from dpp2.node.folder import Keeping, may_have_sent
from dpp2.node.gate import LITTER_BIN, Gate
from dpp2.node.health import Health
from dpp2.node.hosting import Hosting
from dpp2.node.keyring import Keyring, check_outside, folder_of_keys
from dpp2.node.lifetime import Contradictions, Lifetime
from dpp2.node.limits import CHECKPOINT_EVERY, REPORT_EVERY, SERVER_OPTIONS
from dpp2.node.machine import RunSetup
from dpp2.node.peers import METHOD, SERVICE, Peers, transport_limits
from dpp2.node.process import most_connections
from dpp2.node.ranges import few_words
from dpp2.node.run import open_run
from dpp2.node.shell import Shell
from dpp2.node.status import STATUS
from dpp2.node.tls import ORCHESTRATOR, PROBE, Identity, node_name, proven_names
from dpp2.node.v1 import wire_pb2
from dpp2.prepared import PreparedRun
from dpp2.privacy.ledger import Allowance
from dpp2.store.files import write_text
from dpp2.store.ledgers import LedgerFile

log = logging.getLogger("dpp2.node")

_WAITED_FOR = 1000  # agents that a report names at most: it comes every second, and gRPC takes 4 MB


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
    keys: Path | None = None  # folder with the agents' keys; None: beside `home`
    eta_key: Path | None = None
    ledger: Path | None = None  # None: in `home`
    trust_journal: bool = False  # also after a loss of power: its neighbours are honest
    allow: Path | None = None  # fingerprints of the certificates that count; None: allowed.txt in `tls`, if it is there
    prepared: PreparedRun | None = None  # of `experiment`, where its graph and weights are known already

    def key_folder(self) -> Path:
        """Outside the home, where an unseeded run has keys at all."""
        folder = folder_of_keys(self.home, self.keys)
        if self.experiment.run.seed == "os":
            check_outside(self.home, folder, self.eta_key)
        return folder

    def identity(self) -> Identity | None:
        return None if self.tls is None else Identity.load(self.tls, [node_name(self.owned)], self.owned)

    def admission(self) -> Admission | None:
        return None if self.tls is None else Admission.of(self.tls, self.allow)

    def __post_init__(self) -> None:
        """Absolute, so that `told` sees where the name of a file begins."""
        object.__setattr__(self, "home", self.home.absolute())


def run_folder(home: Path, run_id: str) -> Path:
    """Where a node keeps one run; another run in the same home meets neither its journal nor its records."""
    return home / "runs" / run_id


class Node:
    """One node: its server, its links and, once prepared, its run. The methods of Control have their names in it."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.identity, self.admission = config.identity(), config.admission()
        self._keys = config.key_folder()
        self.hosting = Hosting(config.experiment, config.owned, config.prepared)
        self.shell: Shell | None = None
        self.refusals = Refusals()
        self.life = Lifetime()
        self._health = Health()
        self._ledger = LedgerFile(config.ledger or config.home / "ledger.sqlite")
        self._peers: Peers | None = None
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._preparing = asyncio.Lock()

    @property
    def stopped(self) -> asyncio.Event:
        """Set when the node is to end."""
        return self.life.stopped

    @property
    def failure(self) -> str:
        """Why the run cannot go on, if so."""
        return self.shell.failure if self.shell is not None else ""

    async def start(self, listen: str) -> int:
        """Listen; returns the port. Port 0 lets the operating system choose."""
        gate = [] if self.admission is None else [Gate(self.admission, self.refusals)]
        connections = ("grpc.max_allowed_incoming_connections", most_connections(self.hosting.graph.agents))
        options = [*SERVER_OPTIONS, connections, *transport_limits(self.hosting)]
        server = grpc.aio.server(interceptors=gate, options=options)
        handler: Any = grpc.stream_stream_rpc_method_handler(
            self._exchange, request_deserializer=None, response_serializer=None
        )
        peers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        control = control_handler(self, self._authorise, self.refusals)
        server.add_generic_rpc_handlers((control, peers, self._health.handler(self._may_probe, self.refusals)))
        if self.identity is None:  # for whoever looks around; under TLS callers know what they call
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
            if self.config.experiment.shares_edge_secrets:
                log.log(level, WITHOUT_TLS)
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

    async def Prepare(self, request: Any) -> Any:
        """The experiment and the budget are this node's own; a call can only name a run of exactly that."""
        try:
            shell = await self._prepare(request.run, request.digest)
        except PeerFault:
            raise
        except Exception:
            self._health.well = False  # it may be prepared again, or started again
            raise
        self._health.well = not shell.failure
        allowance = shell.run.budget.allowance
        return wire_pb2.PrepareReply(
            agents=self.config.owned, round=shell.machine.k, allowed=allowance.rounds, reason=self._why_fewer(allowance)
        )

    def _why_fewer(self, allowance: Allowance) -> str:
        """ε may be computed from private data: it stays in the log of this node."""
        if not allowance.reason:
            return ""
        return f"the budget of agents {list(self.config.owned[:5])} admits no more; their node's log has the numbers"

    async def _prepare(self, run_id: str, digest: str) -> Shell:
        async with self._preparing:
            if digest != self.config.experiment.digest:
                raise PeerFault("wrong digest", "this node's experiment is another one")
            if self.shell is None:
                known = self._known_runs(run_id)
                self.shell = self._begin(run_id, Cluster.load(self.config.cluster), known)
            elif self.shell.run_id != run_id:
                raise PeerFault("run id used", f"this node is in run {self.shell.run_id[:8]}…")
            return self.shell

    def _begin(self, run_id: str, cluster: Cluster, known: list[str]) -> Shell:
        config = self.config
        setup, keeping = self._setup(run_id, cluster), Keeping(config.every, config.telemetry, config.trust_journal)
        if self._claimed(run_id) not in known:
            self._check_ledger(run_id, known)
        disk = RealDisk(run_folder(config.home, run_id))
        run = open_run(setup, disk, self._ledger, keeping, seen=self._claimed(run_id) in known)
        with run.closed_on_error():
            self._claim(run_id, known)
        allowance = run.budget.allowance
        if allowance.reason:
            log.warning("the budget admits %d rounds: %s", allowance.rounds, allowance.reason)
        for complaint in run.folder.complaints:
            log.warning(complaint)
        shell = Shell(run)
        self._peers = Peers(shell, cluster, self.identity, self.refusals, self.admission)
        self._tasks = [
            asyncio.create_task(self._guard(shell)),
            asyncio.create_task(self._look_for_contradictions(shell)),
            *self._peers.dial(),
        ]
        return shell

    def _setup(self, run_id: str, cluster: Cluster) -> RunSetup:
        config = self.config
        if (hosted := cluster.agents_of_node(cluster.node_of_agent().get(config.owned[0], -1))) != config.owned:
            accepted = f"all agents of one address in {config.cluster}: {few_words(hosted)}"
            raise BadInput("--agents", few_words(config.owned), accepted)
        if (agents := len(cluster.addresses)) != self.hosting.graph.agents:
            raise BadInput("--cluster", agents, f"the addresses of all {self.hosting.graph.agents} agents")
        neighbours = self.hosting.neighbours(cluster.node_of_agent())
        keyring = Keyring.of(config.experiment.run.seed, config.owned, self._keys, config.eta_key)
        return RunSetup(run_id, self.hosting, neighbours, keyring)

    def _known_runs(self, run_id: str) -> list[str]:
        """A run id belongs to one experiment for ever: with it the noise would be the same."""
        if not re.fullmatch(r"[0-9a-f]{1,64}", run_id):  # it names a folder, too
            raise PeerFault("bad run id", f"{run_id[:20]!r} is not hexadecimal")
        path = self.config.home / "runs.txt"
        try:
            known = path.read_text().splitlines() if path.exists() else []
        except UnicodeDecodeError:
            raise NodeFailed(f"{path} is damaged: this node cannot tell which runs it has had") from None
        if any(line.startswith(f"{run_id} ") and line != self._claimed(run_id) for line in known):
            raise PeerFault("run id used", "this node has run another experiment under that id")
        return known

    def _claimed(self, run_id: str) -> str:
        return f"{run_id} {self.config.experiment.digest}"

    def _check_ledger(self, run_id: str, known: list[str]) -> None:
        """A ledger that lacks an earlier run of this experiment was lost: it would grant the budget a second time."""
        earlier = [line.split()[0] for line in known if line.endswith(f" {self.config.experiment.digest}")]
        folders = {one: run_folder(self.config.home, one) for one in (self._ledger.lacks(earlier) if earlier else ())}
        sent = [one for one, folder in folders.items() if folder.is_dir() and may_have_sent(RealDisk(folder))]
        if sent and RunBudget([self.hosting.agents], run_id).account.mechanisms:
            raise NodeFailed(
                f"{self._ledger.path} lacks run {sent[0]}, which has sent rounds from here: it was lost, and a fresh "
                "one would grant the budget twice; put it back, or prepare that run again, which charges it again"
            )

    def _claim(self, run_id: str, known: list[str]) -> None:
        """Once the run's folder is durable: a run that is known and has none has lost it."""
        if (claimed := self._claimed(run_id)) not in known:
            write_text(self.config.home / "runs.txt", "".join(f"{line}\n" for line in (*known, claimed)))

    async def _guard(self, shell: Shell) -> None:
        """Whatever happens to the rounds is told: a task that dies by itself would be missed by nobody."""
        try:
            await shell.run_rounds()
            if shell.machine.finished:
                shell.run.settle(self._ledger)
        except Exception as error:
            shell.fail(error)
        if shell.failure:
            self._health.well = False
            await self.life.end_after_saying_why()

    async def _look_for_contradictions(self, shell: Shell) -> None:
        """Not under TLS: there only a neighbour can contradict itself. The log names it, and it is waited for."""
        if self.identity is not None:
            return
        contradictions = Contradictions(shell.machine, self.refusals)
        while not shell.failure and not shell.machine.finished:
            if (failure := contradictions.look(time.monotonic())) is not None:
                shell.break_off(failure)
            await asyncio.sleep(REPORT_EVERY)

    async def Release(self, request: Any) -> Any:
        shell = self._current(request.run)
        await shell.release(request.until, last=request.last)
        return wire_pb2.ReleaseReply()

    async def Watch(self, request: Any) -> AsyncIterator[Any]:
        shell = self._current(request.run)
        machine = shell.machine
        while True:
            self.life.hear()
            report = wire_pb2.Progress(
                round=machine.k,
                finished=machine.finished and not shell.failure,
                waiting_for=machine.waiting_for()[:_WAITED_FOR],
                frames_sent=machine.outbox.frames,
                bytes_sent=machine.outbox.bytes,
                refused=self.refusals.counts.total(),
                failure=shell.failure,
                diverged=shell.diverged,
            )
            try:
                yield report
            finally:
                if report.failure:  # what was said, not what has happened since
                    self.life.said_why()
            if report.finished or report.failure:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(shell.credit_used(), REPORT_EVERY)

    async def Stop(self, request: Any) -> Any:
        self._current(request.run)
        self.stopped.set()
        return wire_pb2.StopReply()

    def _current(self, run_id: str) -> Shell:
        if self.shell is None:
            raise PeerFault("not prepared", "no run has been prepared")
        if self.shell.run_id != run_id:
            raise PeerFault("wrong run", f"this node runs {self.shell.run_id[:8]}…")
        return self.shell

    def _authorise(self, context: Any) -> None:
        """Control calls are the orchestrator's: a neighbour's certificate opens streams, not this."""
        if self.identity is not None and ORCHESTRATOR not in proven_names(context.auth_context()):
            raise PeerFault("not the orchestrator", f"a control call needs the certificate of {ORCHESTRATOR}")
        self.life.hear()

    def _may_probe(self, context: Any) -> None:
        if self.identity is not None and not {PROBE, ORCHESTRATOR} & proven_names(context.auth_context()):
            raise PeerFault("not a probe", f"a health check needs the certificate of {PROBE}")

    async def _exchange(self, requests: Any, context: Any) -> None:
        """A neighbour has dialled."""
        async with answering(context, self.refusals):
            if self._peers is None:  # an early neighbour, not a bad one: it will call again
                await context.abort(STATUS["not prepared"], "not prepared: no run has been prepared")
            assert self._peers is not None
            try:
                await self._peers.answer(context)
            finally:
                LITTER_BIN.add()
