"""`dpp2 audit` and `dpp2 matrix`: where the command line meets the adversary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpp2.errors import BadInput, UnknownName
from dpp2.orchestrator.cli.app import (
    Executor,
    Json,
    OptionalFile,
    Overrides,
    app,
    check_counts,
    examples,
    load_experiment,
    new_folder,
)
from dpp2.orchestrator.output import Show, console, print_json, print_table, progress_bar
from dpp2.store.files import json_text, write_text
from dpp2.store.locks import locked, opened_run

if TYPE_CHECKING:
    from dpp2.adversary.attacker import Attacker
    from dpp2.adversary.attacks import Attack
    from dpp2.adversary.audit import AuditReport
    from dpp2.studies.matrix import Matrix

Attacks = Annotated[
    list[str] | None, typer.Option("--attack", metavar="NAME", help="Run this attack only (repeatable; default: all).")
]


Who = Annotated[str, typer.Option(help="global, local, neighbour or partial.")]
Agent = Annotated[
    int, typer.Option(metavar="I", help="The victim (local), the curious one (neighbour), or whom the page shows.")
]
Last = Annotated[
    int | None, typer.Option(metavar="ROUNDS", help="Only the last rounds: of large records no more is read.")
]
NoGame = Annotated[bool, typer.Option("--no-game", help="Leave out the distinguishing game.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where audit.json and report.html go (default: RUN for the whole audit, RUN/audit-… for a narrower one).",
    ),
]


@app.command(
    epilog=examples(
        "dpp2 audit runs/paper-1",
        "dpp2 audit runs/paper-1 --attacker local --agent 7",
        "dpp2 audit runs/paper-1 --attack three-round --attack window --no-game --json",
    )
)
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    attack: Attacks = None,
    attacker: Who = "global",
    agent: Agent = 0,
    no_game: NoGame = False,
    last: Last = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Attack a run with what was overheard, and judge the paper's claims: audit.json, report.html and a table."""
    from dpp2.adversary.attacker import Attacker
    from dpp2.adversary.report import document, render

    chosen, who = _chosen(attack), Attacker(attacker, agent)
    check_counts(("--last", last))
    if last is not None and who.kind == "neighbour":
        raise BadInput("--last", last, "another --attacker: a neighbour has taken part in all rounds")
    with progress_bar("audit") as show:
        with opened_run(run, shared=True):
            folder = _folder(run, out, who.asked(chosen, game=not no_game, last=last))
            report = _examined(run, chosen, who, show, game=not no_game, last=last)
        described, page = document(report), render(report, _shown_agent(report, agent))
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "--out"):
            write_text(folder / "audit.json", json_text(described))
            write_text(folder / "report.html", page)
    print_json(described) if json else _print(report, folder)


def _folder(run: Path, out: Path | None, asked: str) -> Path:
    """Where the files go. The run's own report is that of the strongest audit, whichever came first."""
    if out is not None:
        return new_folder(out)
    from dpp2.adversary.attacker import WHOLE

    return run if asked == WHOLE else run / f"audit-{asked}"


def _examined(run: Path, attacks: tuple[Attack, ...], attacker: Attacker, show: Show, **options: Any) -> AuditReport:
    """Every attack is a step, and so are the account, the game and the page."""
    from dpp2.adversary.audit import audit as examine

    steps, total = iter(range(len(attacks) + 3)), len(attacks) + 3
    report = examine(run, attacks, attacker, **options, note=lambda what: show(next(steps), total, what))
    show(total - 1, total, "report")
    return report


def _chosen(names: Sequence[str] | None) -> tuple[Attack, ...]:
    from dpp2.adversary.attacks import ATTACKS

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
    from dpp2.adversary.report import sentences
    from dpp2.adversary.verdicts import Outcome

    _print_errors(report)
    for reason in sentences.not_run(report.skipped):
        console.print(reason)
    for sentence in sentences.summary(report):
        console.print(f"• {sentence}")
    for verdict in report.verdicts:
        loud = verdict.outcome in (Outcome.BROKEN, Outcome.IN_NAME, Outcome.VOID)
        word = verdict.outcome.words.upper() if loud else verdict.outcome.words
        console.print(f"{word}: {verdict.claim} — {verdict.evidence}")
    console.print(f"details in {path / 'audit.json'}, the page to read is {path / 'report.html'}")


def _print_errors(report: AuditReport) -> None:
    from dpp2.adversary.findings import QUANTITIES

    errors = [(one.name, [one.error(what) for what in QUANTITIES]) for one in report.findings]
    rows = [(name, *("–" if error is None else f"{error:.1e}" for error in found)) for name, found in errors]
    if rows:
        print_table(("attack", *(f"error of {symbol}" for symbol in QUANTITIES.values())), rows, _title(report))


def _title(report: AuditReport) -> str:
    return f"{report.attacker.words}; medians over rounds {report.last[0]}–{report.last[1]}"


@app.command(
    epilog=examples(
        "dpp2 matrix",
        "dpp2 matrix --set network.agents=20 --set network.topology=ring --set run.rounds=300 --out runs/matrix",
    )
)
def matrix(
    file: OptionalFile = None,
    overrides: Overrides = None,
    attack: Attacks = None,
    agent: Annotated[int, typer.Option(metavar="I", help="The victim, and the curious neighbour.")] = 0,
    executor: Executor = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where matrix.json, .png and .html go.")] = Path("matrix"),
    json: Json = False,
) -> None:
    """Try every attacker against every protection, on one experiment: four attackers and six protections.

    The tables show the smallest error that any attack reaches. 1 is as good as not listening.
    """
    from dpp2.studies.heatmap import document, write
    from dpp2.studies.matrix import compare

    experiment, chosen, folder = load_experiment(file, overrides), _chosen(attack), new_folder(out)
    with progress_bar("matrix") as show:
        compared = compare(experiment, chosen, agent, note=show, executor=executor)
    write(compared, folder)
    print_json(document(compared)) if json else _print_matrix(compared, folder)


def _print_matrix(compared: Matrix, out: Path) -> None:
    from dpp2.studies.heatmap import SHOWN, headed

    for key in SHOWN:
        rows = [
            (attacker, *(compared.cell(attacker, protection).number(key) for protection in compared.protections))
            for attacker in compared.attackers
        ]
        print_table(("attacker", *compared.protections), rows, headed(key), narrow=True)
    for note in compared.notes:
        console.print(note)
    console.print(f"details in {out / 'matrix.json'}, picture in {out / 'matrix.png'}, page in {out / 'matrix.html'}")
