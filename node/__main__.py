"""A node as a process: `python -m node`, or `dpp2 node`, which is the same."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str] | None = None) -> int:
    """Run until told to stop; the same command line resumes a node that died."""
    options = _parser().parse_args(arguments)
    if options.die_with_parent:
        _die_with(options.die_with_parent)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy is loaded, so before the imports below
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
    logging.getLogger("grpc").setLevel(logging.ERROR)  # it warns of every stream that an orderly stop ends
    from dpp2.errors import BadInput
    from node.errors import NodeFailed

    try:
        _event_loop()(_serve(options))
    except (BadInput, NodeFailed) as refusal:
        print(f"dpp2 node: {refusal}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace) -> None:
    from dpp2.experiment import Experiment
    from node.server import Node, NodeConfig

    config = NodeConfig(
        experiment=Experiment.load(options.experiment).resolve(),
        owned=tuple(sorted(map(int, options.agents.split(",")))),
        cluster=options.cluster,
        home=options.home,
        every=options.checkpoint_every,
        eta_key=options.eta_key,
    )
    node = Node(config)
    port = await node.start(options.listen)
    print(json.dumps({"listening": port}), flush=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, node.stopped.set)
    await node.stopped.wait()
    await asyncio.sleep(0.05)  # the answer to the call that stopped us must still leave
    await node.stop()


def _event_loop() -> Any:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run
    return asyncio.run


def _die_with(parent: int) -> None:
    """Linux: be killed when the parent dies, however it dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpp2 node",
        description="Host agents behind a gRPC service.",
        epilog="example: dpp2 node --agents 3 --experiment experiment.toml --cluster cluster.toml --home agent-3",
    )
    parser.add_argument("--agents", required=True, metavar="I,J,…", help="the agents that this node hosts")
    parser.add_argument("--experiment", required=True, type=Path, help="this node's own copy of the experiment")
    parser.add_argument("--cluster", required=True, type=Path, help="cluster.toml: where every agent listens")
    parser.add_argument("--home", required=True, type=Path, help="folder for keys, records and checkpoints")
    parser.add_argument("--listen", default="0.0.0.0:7000", help="address to listen on (port 0: any)")
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="C", help="rounds between checkpoints")
    parser.add_argument("--eta-key", type=Path, help='file with the network\'s η key (run.seed = "os")')
    parser.add_argument("--die-with-parent", type=int, default=0, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
