"""A node as a process: `dpp2 node`, or `python -m dpp2.node`, which is the same.

It outlives an absent orchestrator and waits; the same command line resumes a node that died. Heavy imports happen
after the options are read, and a node's own problem decides how heavy: most need NumPy and gRPC and no more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dpp2.node.limits import CHECKPOINT_EVERY
from dpp2.node.process import Announcement, ready_for_rounds, set_up

if TYPE_CHECKING:
    from dpp2.prepared import PreparedRun

log = logging.getLogger("dpp2.node")

_PR_SET_PDEATHSIG = 1
_ANYWHERE = "0.0.0.0:7000"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EXAMPLES = """Examples:
  dpp2 node --agents 3 --experiment experiment.toml --cluster cluster.toml --home agent-3 --tls certs/node-3
  dpp2 node --probe --agents 3 --listen 127.0.0.1:7000 --tls certs/probe
"""


@dataclass(frozen=True)
class Known:
    """An experiment that was read before this process was forked from another one, with its graph and weights."""

    path: Path
    prepared: PreparedRun


def main(arguments: list[str] | None = None, known: Known | None = None) -> int:
    """Run until told to stop.

    Exit codes: 0 done, 1 failed (or a probe that found the node ill), 2 bad input, 130 interrupted.
    """
    options = _options(arguments)
    if options.die_with_parent:
        die_with(options.die_with_parent)
    set_up()  # before the imports below
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
    logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it complains of every stream that a stop ends
    from dpp2.errors import BadInput
    from dpp2.node.errors import NodeFailed

    try:
        return int(_event_loop()(_probe(options) if options.probe else _serve(options, known)))
    except (BadInput, NodeFailed) as refusal:
        print(f"dpp2 node: {refusal}", file=sys.stderr)
        return 2 if isinstance(refusal, BadInput) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        ready_for_rounds()


async def _serve(options: argparse.Namespace, known: Known | None) -> NoReturn:
    from dpp2.experiment import Experiment
    from dpp2.node.server import Node, NodeConfig
    from dpp2.store.modes import make_private

    os.umask(0o077)  # whatever a node writes is its owner's alone
    make_private(options.home)
    announcement = Announcement(options.announce)  # before an objective is loaded, which may print
    prepared = known.prepared if known and known.path == options.experiment else None
    config = NodeConfig(
        experiment=prepared.experiment if prepared else Experiment.load(options.experiment).resolve(),
        prepared=prepared,
        owned=_agents(options.agents),
        cluster=options.cluster,
        home=options.home,
        tls=options.tls,
        allow=options.allow,
        every=options.checkpoint_every,
        telemetry=options.telemetry == "full",
        keys=options.keys,
        eta_key=options.eta_key,
        ledger=options.ledger,
        trust_journal=options.trust_journal,
    )
    _check_agents(options.agents, config.owned, config.experiment.network.agents)
    node = Node(config)
    port = await node.start(options.listen or _listening(config.owned, options.cluster))
    _check_port(options.listen, config.owned, options.cluster)
    ready_for_rounds()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):  # before it is announced: whoever hears of it may stop it at once
        loop.add_signal_handler(number, node.stopped.set)
    announcement.make(port)
    if await node.life.over(options.patience):
        log.warning("no orchestrator has called for %g s (--patience): this node ends", options.patience)
    await asyncio.sleep(0.05)  # the answer to the call that stopped us must still leave
    await node.stop()
    if node.failure:
        print("dpp2 node: the run has failed, as said above; the same command line goes on with it", file=sys.stderr)
    sys.stdout.flush()
    logging.shutdown()
    # Everything is closed and on disk. To close the event loop, too, would cancel tasks of gRPC's own, and now and then
    # these print a traceback.
    os._exit(1 if node.failure else 0)


def _check_port(listen: str | None, owned: tuple[int, ...], cluster: Path) -> None:
    """Say it if others will look for this node elsewhere. No reason to refuse: a port may be forwarded."""
    from dpp2.errors import BadInput
    from dpp2.node.cluster import Cluster

    own = (listen or "").rpartition(":")[2]
    if own in ("", "0"):  # that of the file, or any: then whoever starts the node writes the file when it listens
        return
    with contextlib.suppress(BadInput):  # nor is a file that is not there yet
        address = Cluster.load(cluster).addresses.get(owned[0], f":{own}")
        if address.rpartition(":")[2] != own:
            told = "%s has agent %d at %s, and this node listens on port %s: others will not find it there"
            log.warning(f"{told}, unless that port is forwarded", cluster, owned[0], address, own)


async def _probe(options: argparse.Namespace) -> int:
    """Tell whether a node serves, as a container's health check asks."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from dpp2.node.limits import PROBE_SECONDS
    from dpp2.node.tls import PROBE, Identity, node_name, open_channel

    identity = None if options.tls is None else Identity.load(options.tls, [PROBE])
    listen = options.listen or (_listening(_agents(options.agents), options.cluster) if options.cluster else _ANYWHERE)
    host, _, port = listen.rpartition(":")
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"
    async with open_channel(identity, address, node_name(_agents(options.agents)), []) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=PROBE_SECONDS)
        except grpc.aio.AioRpcError as error:
            print(f"dpp2 node: {address} does not answer ({error.code().name.lower()})", file=sys.stderr)
            return 1
    return 0 if reply.status == health_pb2.HealthCheckResponse.SERVING else 1


def _agents(text: str) -> tuple[int, ...]:
    from dpp2.errors import BadInput
    from dpp2.node.ranges import read_ranges

    listed = _file(text[1:]) if text.startswith("@") else text
    try:
        return read_ranges(listed)
    except ValueError:
        raise BadInput("--agents", text, "numbers of agents, each once, as in 3 or 0,1,2 or 0-24999") from None


def _file(name: str) -> str:
    """Agents that lie scattered may not fit into a command line."""
    from dpp2.errors import BadInput

    try:
        return Path(name).read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise BadInput("--agents", f"@{name}", f"a readable file of such numbers ({error.strerror})") from None


def _check_agents(text: str, owned: tuple[int, ...], agents: int) -> None:
    from dpp2.errors import BadInput

    if owned and owned[-1] >= agents:
        raise BadInput("--agents", text, f"agents of the experiment, which has 0 to {agents - 1}")


def _listening(owned: tuple[int, ...], cluster: Path) -> str:
    """Where others look for these agents: the port of cluster.toml, and the loopback interface if it says that.

    Any other host there is a name or an address as others see it, which need not be an interface of this machine.
    """
    from dpp2.errors import BadInput
    from dpp2.node.cluster import Cluster
    from dpp2.node.ranges import ranges_text

    loaded = Cluster.load(cluster)
    addresses = loaded.addresses
    if owned[0] not in addresses:
        raise BadInput("--agents", owned[0], f"an agent that {cluster} has an address for")
    together = next(agents for agents in map(loaded.agents_of_node, loaded.nodes()) if owned[0] in agents)
    if together != owned:
        accepted = f"the agents that {cluster} has at {addresses[owned[0]]}: {ranges_text(together)}"
        raise BadInput("--agents", ranges_text(owned), accepted)
    host, _, port = addresses[owned[0]].rpartition(":")
    return f"{host if host in _LOOPBACK else '0.0.0.0'}:{port}"


def _event_loop() -> Any:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run
    return asyncio.run


def die_with(parent: int) -> None:
    """Linux: be killed when the parent dies, however it dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, not the whole usage."""
        self.exit(2, f"{self.prog}: {message} (--help shows what is accepted)\n")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="dpp2 node",
        description="Host agents behind a gRPC service. The same command line resumes a node that died.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--agents", required=True, metavar="I,J,K-L,…", help="the agents that this node hosts; @FILE: as it says")
    add("--experiment", type=Path, metavar="FILE", help="this node's own copy of the experiment")
    add("--cluster", type=Path, metavar="FILE", help="cluster.toml: where every agent listens")
    add("--home", type=Path, metavar="DIR", help="folder for ledger, records and checkpoints")
    add(
        "--listen",
        metavar="ADDRESS",
        help="address to listen on (port 0: any; default: the port that --cluster says, else 0.0.0.0:7000)",
    )
    security = parser.add_mutually_exclusive_group(required=True)
    security.add_argument("--tls", type=Path, metavar="DIR", help="ca.pem, cert.pem and key.pem, made by dpp2 certs")
    security.add_argument("--plaintext", action="store_true", help="no TLS: anybody can read, and nobody is checked")
    add("--allow", type=Path, metavar="FILE", help="fingerprints of the valid certificates (allowed.txt in --tls)")
    add("--telemetry", choices=("full", "none"), default="none", help="full: write down x, gradients and noise, too")
    add(
        "--checkpoint-every",
        type=int,
        default=CHECKPOINT_EVERY,
        metavar="C",
        help="rounds between checkpoints (%(default)s)",
    )
    add("--keys", type=Path, metavar="DIR", help="folder with agent-I.key of each agent, or agents.key (HOME-keys)")
    add("--eta-key", type=Path, metavar="FILE", help='the network\'s η key (run.seed = "os")')
    add("--ledger", type=Path, metavar="FILE", help="what the agents have spent (default: ledger.sqlite in --home)")
    add(
        "--trust-journal",
        action="store_true",
        help="go on after a loss of power, although the journal may not say everything that was sent: "
        "a neighbour that lies about its own rows could get a second noisy copy of one value",
    )
    add("--probe", action="store_true", help="tell by the exit code whether the node at --listen serves (0: it does)")
    add(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="end when no orchestrator has called for so long (default: wait for one)",
    )
    add("--announce", type=int, metavar="FD", help=argparse.SUPPRESS)
    add("--die-with-parent", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    missing = [name for name in ("experiment", "cluster", "home") if not getattr(options, name)]
    if missing and not options.probe:
        parser.error(f"--{missing[0]} is needed")
    if options.allow and options.plaintext:
        parser.error("--allow needs --tls: in plaintext nobody shows a certificate")
    if options.patience is not None and not options.patience > 0:
        parser.error(f"--patience must be a number > 0, not {options.patience:g}")
    if options.checkpoint_every < 1:
        parser.error(f"--checkpoint-every must be a whole number ≥ 1, not {options.checkpoint_every}")
    return options


if __name__ == "__main__":
    sys.exit(main())
