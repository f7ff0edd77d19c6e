"""`dpp2 privacy check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dpp2.errors import Inadmissible
from dpp2.orchestrator import plots
from dpp2.orchestrator.cli.app import Json, Overrides, Plot, drawable, examples, load_experiment
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.cli.privacy_documents import account_document, spoken
from dpp2.orchestrator.cli.run import listed_conditions
from dpp2.orchestrator.output import console, print_json, print_notes, print_table
from dpp2.prepared import PreparedRun
from dpp2.privacy.account import Account
from dpp2.theory import Condition
from dpp2.weights import Spectrum

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
    experiment = load_experiment(file, overrides)
    try:
        checked = Checked.of(PreparedRun.of(experiment))
    except Inadmissible as refusal:
        _print_refusal(refusal, json)
        raise typer.Exit(1) from None
    if plot is not None:
        plots.epsilon(checked.account, checked.rounds, drawable(plot))
    _print_document(checked) if json else _print(checked)


@dataclass(frozen=True)
class Checked:
    """An admissible experiment: its eigenvalues, its account and its conditions."""

    eigenvalues: Spectrum
    account: Account
    conditions: list[Condition]
    rounds: int

    @classmethod
    def of(cls, prepared: PreparedRun) -> Checked:
        objective = prepared.objective()
        conditions = prepared.conditions(float(objective.smoothness.max()))
        return cls(prepared.spectrum, prepared.account(objective), conditions, prepared.experiment.run.rounds)


def _print_refusal(refusal: Inadmissible, json: bool) -> None:
    if json:
        print_json({"admissible": False, "reason": str(refusal)})
    else:
        console.print(f"not admissible: {refusal}")


def _print_document(checked: Checked) -> None:
    print_json(
        {
            "admissible": True,
            "reason": None,
            "conditions": listed_conditions(checked.conditions),
            **account_document(checked.account, checked.rounds),
            "notes": checked.account.notes,
        }
    )


def _print(checked: Checked) -> None:
    found = checked.eigenvalues
    least = "an unknown λ_2 (too costly to find here)" if np.isnan(found.connectivity) else f"{found.connectivity:.4g}"
    most = f"{'at most ' * found.bounded}{found.largest:.4g}"
    console.print(f"admissible: it can be run, since λ(P) from {least} to {most} leaves G ≻ 0")
    print_table(("condition (paper, sufficient)", "left", "right", ""), map(_cells, checked.conditions))
    failing = sum(not condition.holds for condition in checked.conditions)
    if failing:
        console.print(f"{failing} of {len(checked.conditions)} fail: convergence may be observed, and is not proved")
    _print_curve(checked.account, checked.rounds)
    print_notes(checked.account.notes)


def _cells(condition: Condition) -> tuple[str, str, str, str]:
    right = f"{condition.right:.4g}" if condition.right > -np.inf else "no real root"
    return condition.name, f"{condition.left:.4g}", right, "holds" if condition.holds else "fails"


def _print_curve(account: Account, rounds: int) -> None:
    counts = sorted({count for count in (*_SHOWN, rounds) if count <= rounds})
    rows = [(str(count), spoken(account.epsilon(count)), spoken(account.paper_epsilon(count))) for count in counts]
    print_table(("rounds K", "ε(K), worst-off agent", "paper's Theorem 3"), rows)
