"""`dpp2 bench`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.table import Table

from orchestrator.cli.app import Json, app
from orchestrator.output import console, errors, print_json

bench = typer.Typer(help="Measure this machine: ratios taken in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command()
def core(json: Json = False) -> None:
    """The embedded driver against a loop over agents, hand-written NumPy, and the memory bus.

    Example:

        dpp2 bench core --json
    """
    from studies.bench.core import bench as measure

    figures = measure(lambda what: errors.print(f"measuring {what} …") if errors.is_terminal else None)
    print_json(figures) if json else console.print(_table(figures))


@bench.command()
def network(
    json: Json = False,
    disropt: Annotated[
        str, typer.Option(metavar="PYTHON", help="A Python with DISROPT and mpi4py, if this one has them not.")
    ] = sys.executable,
) -> None:
    """Nodes against bare gRPC streams, hosted together and apart, and what TLS and checkpoints cost.

    Takes about five minutes. Where DISROPT and mpirun are installed, its gradient tracking is measured beside them.

    Example:

        dpp2 bench network --json
        dpp2 bench network --disropt ~/disropt/bin/python
    """
    from studies.bench.network import bench as measure

    figures = measure(lambda what: errors.print(f"measuring {what} …") if errors.is_terminal else None, disropt)
    print_json(figures) if json else console.print(_network_table(figures))


def _network_table(figures: dict[str, Any]) -> Table:
    table = Table("what", "measured", "bare streams", "of bare", "goal", title="dpp2 bench network")
    names = {
        "two_processes": "50 agents, 255 edges, 2 processes",
        "fifty_processes": "50 agents, 255 edges, a process each",
        "ten_agents": "10 agents, 25 edges, a process each",
    }
    for key, what in names.items():
        one = figures[key]
        rates = f"{one['rounds_per_second']:.1f} rounds/s, {one['messages_per_second']:,.0f} messages/s"
        table.add_row(
            what, rates, f"{one['messages_per_second_bare']:,.0f} messages/s", f"{one['of_bare']:.2f}", "≥ 0.70"
        )
        untuned = f"{one['rounds_per_second_untuned']:.1f} rounds/s"
        table.add_row("  streams with gRPC's own settings", "", untuned, f"{one['of_untuned']:.2f}", "")
        if "rounds_per_second_disropt" in one:
            table.add_row("  DISROPT over MPI", f"{one['rounds_per_second_disropt']:.1f} rounds/s", "", "", "")
    wide, apart = figures["wide"], figures["together"]
    bare_rate = f"{wide['bytes_per_second_bare'] / 1e6:,.0f} MB/s"
    table.add_row(
        "4 agents, d = 100,000",
        f"{wide['bytes_per_second'] / 1e6:,.0f} MB/s",
        bare_rate,
        f"{wide['of_bare']:.2f}",
        "≥ 0.50",
    )
    rates = f"{apart['rounds_per_second']:,.0f} rounds/s, {apart['times_apart']:.0f}× a process each"
    table.add_row("50 agents in 2 nodes", rates, "", "", "≥ 20×")
    overhead, start = figures["overhead"], figures["start_up"]
    table.add_row("TLS costs", f"{overhead['tls']:+.0%}", "", "", "")
    table.add_row("a checkpoint every 10 rounds costs", f"{overhead['checkpoints']:+.0%}", "", "", "")
    growth = max(figures["memory"]["growth"])
    table.add_row("memory from round 2,000 to 10,000", f"{growth:+.1%}", "", "", "flat")
    loaded = ", ".join(start["heavy_imports"]) or "nothing heavy"
    table.add_row("CPU until a node listens", f"{start['cpu_seconds']:.2f} s ({loaded} loaded)", "", "", "< 0.5 s")
    table.add_row("  NumPy, gRPC, pydantic and uvloop alone", f"{start['libraries_alone']:.2f} s", "", "", "")
    return table


def _table(figures: dict[str, Any]) -> Table:
    paper, large = figures["paper"], figures["large"]
    peak = large["peak_times_state"]
    table = Table("what", "measured", "goal", title="dpp2 bench core")
    table.add_row("paper's experiment, records on", f"{paper['rounds_per_second']:,.0f} rounds/s", "")
    table.add_row("  hand-written vectorised NumPy", f"{paper['rounds_per_second_vectorised']:,.0f} rounds/s", "")
    table.add_row("  loop over agents", f"{paper['rounds_per_second_per_agent']:,.0f} rounds/s", "")
    table.add_row("  ours against vectorised", f"{paper['times_vectorised']:.2f}×", "≥ 1")
    table.add_row("  ours against the loop", f"{paper['times_per_agent']:.1f}×", "≥ 5")
    sizes = ", ".join(f"{ms:.2f}" for ms in large["milliseconds_per_round"])
    table.add_row("1,000 / 10,000 / 100,000 agents, ms per round", sizes, "")
    table.add_row("  fitted exponent in edges", f"{large['exponent_in_edges']:.2f}", "about 1")
    table.add_row("  streaming x, d, q, y, z, P once, ms", f"{large['milliseconds_stream']:.2f}", "")
    table.add_row("  round without noise against streaming", f"{large['times_stream']:.1f}×", "≤ 6")
    table.add_row("  round with noise against without", f"{large['noise_on_times_off']:.2f}×", "≤ 3")
    table.add_row(
        "  peak memory in rounds against x, d, q", f"{peak['noise_off']:.2f}×, noise {peak['noise_on']:.2f}×", "≤ 3"
    )
    return table
