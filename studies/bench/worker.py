"""Several nodes in one process, for the benchmark alone: everywhere else a process is one node.

`python -m dpp2.studies.bench.worker` reads its settings as one line of JSON on stdin, prints the ports, answers every
further line with what it has used, and ends when stdin does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

import uvloop

from dpp2 import Experiment
from dpp2.node.process import ready_for_rounds
from dpp2.node.server import Node, NodeConfig


async def main() -> None:
    settings = json.loads(sys.stdin.readline())
    experiment = Experiment.load(Path(settings["experiment"])).resolve()
    nodes, ports = [], {}
    for group in settings["groups"]:
        config = NodeConfig(
            experiment=experiment,
            owned=tuple(group),
            cluster=Path(settings["cluster"]),
            home=Path(settings["home"]) / f"node-{group[0]}",
            tls=Path(settings["tls"]) / f"node-{group[0]}" if settings["tls"] else None,
            every=settings["every"],
        )
        nodes.append(Node(config))
        ports[group[0]] = await nodes[-1].start("127.0.0.1:0")
    ready_for_rounds()
    print(json.dumps(ports), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(_used()), flush=True)
    await asyncio.gather(*(node.stop() for node in nodes))


def _used() -> dict[str, float]:
    """The memory held now, in bytes, and the CPU time so far, in seconds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"resident": pages * resource.getpagesize(), "cpu": time.process_time()}


if __name__ == "__main__":
    uvloop.run(main())
