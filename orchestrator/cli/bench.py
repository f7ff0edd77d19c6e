"""`dpp2 bench`."""

from __future__ import annotations

from typing import Any

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
    from orchestrator.bench.core import bench as measure

    figures = measure(lambda what: errors.print(f"measuring {what} …") if errors.is_terminal else None)
    print_json(figures) if json else console.print(_table(figures))


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
