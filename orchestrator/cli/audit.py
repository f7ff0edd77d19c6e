"""`dpp2 audit` and `dpp2 matrix`: where the command line meets the adversary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from dpp2 import BadInput, Experiment
from dpp2.errors import UnknownName
from orchestrator.cli.app import Json, Overrides, app
from orchestrator.output import console, print_json, progress_bar
from store.files import json_text, write_text
from store.rundir import RunDirectory

if TYPE_CHECKING:
    from adversary.attacks import Attack
    from adversary.audit import AuditReport
    from studies.matrix import Matrix

Attacks = Annotated[
    list[str] | None, typer.Option("--attack", metavar="NAME", help="Run this attack only (repeatable; default: all).")
]


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    attack: Attacks = None,
    attacker: Annotated[str, typer.Option(help="global, local, neighbour or partial.")] = "global",
    agent: Annotated[
        int, typer.Option(metavar="I", help="The victim (local), the curious one (neighbour), or whom the page shows.")
    ] = 0,
    no_game: Annotated[bool, typer.Option("--no-game", help="Leave out the distinguishing game.")] = False,
    json: Json = False,
) -> None:
    """Attack a run with what was overheard, and judge the paper's claims: audit.json, report.html and a table.

    Examples:

        dpp2 audit runs/paper-1

        dpp2 audit runs/paper-1 --attacker local --agent 7

        dpp2 audit runs/paper-1 --attack three-round --attack window --no-game --json
    """
    from adversary.audit import Attacker
    from adversary.audit import audit as examine
    from adversary.report import document, render

    directory, chosen = RunDirectory.open(run), _chosen(attack)
    with progress_bar("audit") as show:
        steps = iter(range(len(chosen) + 3))
        report = examine(
            directory.path,
            chosen,
            Attacker(attacker, agent),
            game=not no_game,
            note=lambda what: show(next(steps), len(chosen) + 3, what),
        )
        show(len(chosen) + 2, len(chosen) + 3, "report")
        described = document(report)
        write_text(directory.path / "audit.json", json_text(described))
        write_text(directory.path / "report.html", render(report, _shown_agent(report, agent)))
    print_json(described) if json else _print(report, directory.path)


def _chosen(names: Sequence[str] | None) -> tuple[Attack, ...]:
    from adversary.attacks import ATTACKS

    known = {one.name: one for one in ATTACKS}
    for name in names or ():
        if name not in known:
            raise UnknownName("--attack", name, name, list(known))
    return tuple(one for one in ATTACKS if not names or one.name in names)


def _shown_agent(report: AuditReport, wanted: int) -> int:
    """The agent asked for if it was attacked, and else the first that was."""
    attacked = report.view.agents if report.view else ()
    return wanted if wanted in attacked or not attacked else attacked[0]


def _print(report: AuditReport, path: Path) -> None:
    from adversary.findings import QUANTITIES
    from adversary.report import sentences

    if report.findings:
        table = Table("attack", *(f"error of {symbol}" for symbol in QUANTITIES.values()), title=_title(report))
        for one in report.findings:
            found = [one.error(what) for what in QUANTITIES]
            table.add_row(one.name, *("–" if error is None else f"{error:.1e}" for error in found))
        console.print(table)
    for left_out in report.skipped:
        console.print(f"{left_out.name} was not run: {left_out.reason}")
    for sentence in sentences.summary(report):
        console.print(f"• {sentence}")
    for verdict in report.verdicts:
        word = {True: "held", False: "DID NOT HOLD", None: "not judged"}[verdict.held]
        console.print(f"{word}: {verdict.claim} — {verdict.evidence}")
    console.print(f"details in {path / 'audit.json'}, the page to read is {path / 'report.html'}")


def _title(report: AuditReport) -> str:
    return f"{report.attacker.words}; medians over rounds {report.last[0]}–{report.last[1]}"


@app.command()
def matrix(
    file: Annotated[Path | None, typer.Argument(help="Experiment file (TOML); without one, the paper's.")] = None,
    overrides: Overrides = None,
    attack: Attacks = None,
    agent: Annotated[int, typer.Option(metavar="I", help="The victim, and the curious neighbour.")] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where matrix.json, .png and .html go.")] = Path("matrix"),
    json: Json = False,
) -> None:
    """Who learns what under which protection: four attackers against six protections on one experiment.

    Examples:

        dpp2 matrix

        dpp2 matrix --set network.agents=20 --set network.topology=ring --set run.rounds=300 --out runs/matrix
    """
    from studies.heatmap import document, png, render
    from studies.matrix import compare

    experiment, chosen = Experiment.load(file, overrides or []), _chosen(attack)
    if out.exists() and not out.is_dir():
        raise BadInput("--out", str(out), "a directory, not a file")
    with progress_bar("matrix") as show:
        compared = compare(experiment, chosen, agent, note=lambda done, total, what: show(done, total, what))
    out.mkdir(parents=True, exist_ok=True)
    described = document(compared)
    write_text(out / "matrix.json", json_text(described))
    write_text(out / "matrix.html", render(compared))
    png(compared, out / "matrix.png")
    print_json(described) if json else _print_matrix(compared, out)


def _print_matrix(compared: Matrix, out: Path) -> None:
    from studies.heatmap import SHOWN, headed

    for key in SHOWN:
        table = Table("attacker", *compared.protections, title=headed(key), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for attacker in compared.attackers:
            cells = [compared.cell(attacker, protection) for protection in compared.protections]
            table.add_row(attacker, *(cell.number(key) for cell in cells))
        console.print(table)
    for note in compared.notes:
        console.print(note)
    console.print(f"details in {out / 'matrix.json'}, picture in {out / 'matrix.png'}, page in {out / 'matrix.html'}")
