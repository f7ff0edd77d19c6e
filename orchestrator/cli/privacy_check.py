"""`dpp2 privacy check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dpp2 import Experiment
from dpp2.errors import Inadmissible
from dpp2.prepared import PreparedRun
from dpp2.privacy.account import Account
from dpp2.theory import Condition
from orchestrator import plots
from orchestrator.cli.app import Json, Overrides, Plot, drawable, examples
from orchestrator.cli.privacy import privacy
from orchestrator.cli.privacy_documents import account_document, spoken
from orchestrator.cli.run import listed_conditions
from orchestrator.output import console, print_json, print_notes, print_table

_SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)  # rounds of which the cost is printed


@privacy.command(epilog=examples("dpp2 privacy check experiments/paper.toml --set noise.decay=0.99 --plot epsilon.png"))
def check(
    file: Annotated[Path, typer.Argument(help="Experiment file.")],
    overrides: Overrides = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Is an experiment admissible, which of the paper's conditions hold, and what does each round cost?

    Exit code 1 says that it is not admissible: `dpp2 run` would refuse it.
    """
    try:
        prepared = PreparedRun.of(Experiment.load(file, overrides or []))
    except Inadmissible as refusal:
        _print_refusal(refusal, json)
        raise typer.Exit(1) from None
    objective = prepared.objective()
    account, conditions = prepared.account(objective), prepared.conditions(float(objective.smoothness.max()))
    if plot is not None:
        plots.epsilon(account, prepared.experiment.run.rounds, drawable(plot))
    show = _print_document if json else _print
    show(prepared, account, conditions)


def _print_refusal(refusal: Inadmissible, json: bool) -> None:
    if json:
        print_json({"admissible": False, "reason": str(refusal)})
    else:
        console.print(f"not admissible: {refusal}")


def _print_document(prepared: PreparedRun, account: Account, conditions: Sequence[Condition]) -> None:
    print_json(
        {
            "admissible": True,
            "reason": None,
            "conditions": listed_conditions(conditions),
            **account_document(account, prepared.experiment.run.rounds),
            "notes": account.notes,
        }
    )


def _print(prepared: PreparedRun, account: Account, conditions: Sequence[Condition]) -> None:
    eigenvalues = prepared.spectrum
    console.print(f"admissible: λ(P) from {eigenvalues.connectivity:.4g} to {eigenvalues.largest:.4g}, G ≻ 0")
    print_table(("condition (paper, sufficient)", "left", "right", ""), map(_cells, conditions))
    _print_curve(account, prepared.experiment.run.rounds)
    print_notes(account.notes)


def _cells(condition: Condition) -> tuple[str, str, str, str]:
    right = f"{condition.right:.4g}" if condition.right > -np.inf else "no real root"
    return condition.name, f"{condition.left:.4g}", right, "holds" if condition.holds else "fails"


def _print_curve(account: Account, rounds: int) -> None:
    counts = sorted({count for count in (*_SHOWN, rounds) if count <= rounds})
    rows = [(str(count), spoken(account.epsilon(count)), spoken(account.paper_epsilon(count))) for count in counts]
    print_table(("rounds K", "ε(K), worst-off agent", "paper's Theorem 3"), rows)
