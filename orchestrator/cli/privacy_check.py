"""`dpp2 privacy check`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import typer

from dpp2.errors import Inadmissible
from dpp2.orchestrator import plots
from dpp2.orchestrator.cli.app import Json, OptionalFile, Overrides, Plot, drawable, examples, load_experiment
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.cli.privacy_documents import account_document, spoken
from dpp2.orchestrator.cli.run import listed_conditions
from dpp2.orchestrator.output import console, print_json, print_notes, print_table
from dpp2.prepared import PreparedRun
from dpp2.privacy.account import Account
from dpp2.theory import Condition
from dpp2.weights import Spectrum

_SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)  # rounds of which the cost is printed


@privacy.command(
    epilog=examples("dpp2 privacy check paper", "dpp2 privacy check paper --set noise.decay=0.99 --plot epsilon.png")
)
def check(
    file: OptionalFile = None,
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
    console.print(f"admissible: `dpp2 run` accepts it, because the steps suit the graph (λ(P) from {least} to {most})")
    if checked.conditions:
        _print_conditions(checked.conditions)
    _print_curve(checked.account, checked.rounds)
    print_notes(checked.account.notes)


def _print_conditions(conditions: list[Condition]) -> None:
    """What is proved, before the table that says why."""
    failing, all_of = sum(not condition.holds for condition in conditions), len(conditions)
    if failing:
        console.print(
            f"convergence is not proved: {failing} of the paper's {all_of} sufficient conditions fail. "
            "A run may converge all the same, or diverge"
        )
    else:
        console.print(f"all {all_of} of the paper's sufficient conditions hold, under which it claims convergence")
    print_table(("condition", "left side", "right side", ""), map(_cells, conditions))


def _cells(condition: Condition) -> tuple[str, str, str, str]:
    right = f"{condition.right:.4g}" if condition.right > -np.inf else "no real root"
    return condition.name, f"{condition.left:.4g}", right, "holds" if condition.holds else "fails"


def _print_curve(account: Account, rounds: int) -> None:
    """A column that says the same in every row is a sentence instead."""
    counts = sorted({count for count in (*_SHOWN, rounds) if count <= rounds})
    columns = {
        "ε(K), worst-off agent": [spoken(account.epsilon(count)) for count in counts],
        "paper's Theorem 3": [spoken(account.paper_epsilon(count)) for count in counts],
    }
    changing = {name: cells for name, cells in columns.items() if len(set(cells)) > 1}
    if changing:
        print_table(("rounds K", *changing), zip(map(str, counts), *changing.values(), strict=True))
    for name in [name for name in columns if name not in changing]:
        console.print(f"{name}: {columns[name][0]}")
