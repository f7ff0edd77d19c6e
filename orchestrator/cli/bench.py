"""`dpp2 bench`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpp2 import BadInput
from dpp2.node.ranges import MOST_AGENTS
from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.output import errors, print_json, print_table
from dpp2.studies.bench import BENCHMARKS

if TYPE_CHECKING:
    from dpp2.studies.bench.benchmark import Benchmark

_LEAST = 100  # agents: the plan for a hundred hosts needs one for each


@app.command(
    no_args_is_help=True,
    epilog=examples(
        "dpp2 bench core --json",
        "dpp2 bench network --disropt ~/disropt/bin/python",
        "dpp2 bench scale --agents 10000",
    ),
)
def bench(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"{', '.join(BENCHMARKS)}.")],
    disropt: Annotated[
        str, typer.Option(metavar="PYTHON", help="With network: a Python that has DISROPT and mpi4py.")
    ] = sys.executable,
    agents: Annotated[
        str | None, typer.Option(metavar="N,…", help="With scale: networks of so many agents instead of all sizes.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure this machine: ratios taken in one run.

    core: the embedded driver against a loop over agents, hand-written NumPy, and the memory bus.

    network: nodes against bare gRPC streams, hosted together and apart, and what TLS and checkpoints cost. It takes
    about five minutes. Where DISROPT and mpirun are installed, its gradient tracking is measured beside them.

    scale: 1,000 to 1,000,000 agents embedded, up to 100,000 on 2 and 4 nodes: rounds, memory, set-up, bytes.
    It takes some minutes and 3 GB of memory; with --agents 10000 half a minute.

    audit: attacks and game against the run that made the data, and how close they come on the default experiment.

    page: what `--watch` costs a run while nobody looks, and while Chromium does, if it is installed.
    """
    from dpp2.studies.bench.benchmark import Bench

    benchmark: Benchmark[Any] = BENCHMARKS[what]
    if disropt != sys.executable and not benchmark.sets_disropt_beside:
        raise BadInput("--disropt", disropt, "nothing: only the network benchmark compares with DISROPT")
    if agents is not None and not benchmark.takes_sizes:
        raise BadInput("--agents", agents, "nothing: only the scale benchmark takes sizes")
    measured = benchmark.measure(Bench(_note, disropt, _sizes(agents) if agents is not None else ()))
    if json:
        print_json(benchmark.document(measured))
        return
    table = benchmark.table(measured)
    print_table(table.head, table.rows, table.title)


def _sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and _LEAST <= int(part) <= MOST_AGENTS for part in parts):
        raise BadInput("--agents", text, f"whole numbers from {_LEAST} to {MOST_AGENTS:,}, as in 10000 or 10000,100000")
    return tuple(sorted({int(part) for part in parts}))


def _note(what: str) -> None:
    errors.print(f"measuring {what} …")
