"""`dpp2 privacy plan`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dpp2 import BadInput, Experiment
from dpp2.orchestrator import plots
from dpp2.orchestrator.cli.app import Json, Overrides, drawable_later, load_experiment
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.output import console, print_json, print_notes, progress_bar
from dpp2.privacy import Unsupported
from dpp2.privacy.plans import AnyPlan, AnyPlans, Effort

_AROUND = (0.01, 0.1, 1.0, 10.0, 100.0)  # the frontier: these multiples of the budget

Budget = Annotated[float, typer.Option("--epsilon", help="The budget ε of every agent.")]
File = Annotated[Path | None, typer.Argument(help="Experiment file; without one, the paper's experiment.")]
Out = Annotated[Path, typer.Option(metavar="PNG", help="Where the frontier is drawn.")]
MostRounds = Annotated[int | None, typer.Option(help="Plan at most this many rounds [dpp2: run.rounds].")]
KeepRatio = Annotated[bool, typer.Option("--keep-ratio", help="Keep the experiment's u_e/u_w, or noise.ratio.")]
KeepSteps = Annotated[bool, typer.Option("--keep-steps", help="Keep the experiment's steps.")]
OnData = Annotated[
    bool, typer.Option("--on-data", help="Plan on the data themselves, not on a public surrogate: outside ε.")
]
Trials = Annotated[int, typer.Option(help="Runs per finalist; 0: the model alone decides.")]


@privacy.command()
def plan(
    budget: Budget,
    file: File = None,
    overrides: Overrides = None,
    out: Out = Path("runs/frontier.png"),
    most_rounds: MostRounds = None,
    keep_ratio: KeepRatio = False,
    keep_steps: KeepSteps = False,
    on_data: OnData = False,
    trials: Trials = 3,
    json: Json = False,
) -> None:
    """Choose an algorithm's settings for the smallest expected gap within a budget.

    For dpp2 rounds, noise, steps and damping; for dpp3 gradient rounds, mixings, step, slowdown, ratio and scale.
    Prints the frontier gap against ε around the budget. It plans on public data of the same size and with the same
    bounds, unless it is told to look at the data.

    Examples:

        dpp2 privacy plan --epsilon 1000

        dpp2 privacy plan --epsilon 1 --set algorithm.name=dpp3

        dpp2 privacy plan --epsilon 100 experiments/breast-cancer.toml --set privacy.smoothness=50 --on-data
    """
    experiment, out = load_experiment(file, overrides), drawable_later(out)
    effort = Effort(
        most_rounds=most_rounds, free_ratio=not keep_ratio, free_steps=not keep_steps, on_data=on_data, trials=trials
    )
    plans = _planned(experiment, budget, effort, str(file or "the paper's experiment"))
    chosen = plans[_AROUND.index(1.0)]
    out.parent.mkdir(parents=True, exist_ok=True)
    plots.frontier(plans, out)
    if json:
        planned_on = "data" if on_data else "surrogate"
        frontier_documents = [one.document() for one in plans]
        print_json({**chosen.document(), "planned_on": planned_on, "frontier": frontier_documents, "png": str(out)})
        return
    _print_frontier(plans)
    _print_choice(chosen.chosen, file, overrides or [])
    console.print(f"frontier drawn in {out}")
    print_notes((*chosen.chosen.notes, *chosen.notes))


def _planned(experiment: Experiment, budget: float, effort: Effort, name: str) -> Sequence[AnyPlans]:
    """The frontier around the budget; `name` is what a refusal calls the experiment."""
    if not 0 < budget < 1e300:
        raise BadInput("--epsilon", budget, "a finite number > 0")
    with progress_bar("planning") as show:
        budgets = [factor * budget for factor in _AROUND]
        plans = experiment.algorithm.planner()(experiment, budgets, effort, show)
    if isinstance(plans, Unsupported):
        raise BadInput("FILE", name, f"an experiment that can be planned ({plans.reason})")
    return plans


def _print_frontier(plans: Sequence[AnyPlans]) -> None:
    heads = [head for kind in plans[0].kinds for head in (f"gap, {kind}", "settings")]
    table = Table("ε", *heads)
    for one in plans:
        table.add_row(f"{one.budget:g}", *(cell for plan in one.kinds.values() for cell in (_gap(plan), plan.summary)))
    console.print(table)


def _gap(plan: AnyPlan) -> str:
    spread = f" ({plan.spread[0]:.2g} to {plan.spread[1]:.2g})" if plan.spread else " (model)"
    return f"{plan.gap:.3g}{spread}"


def _print_choice(plan: AnyPlan, file: Path | None, overrides: Sequence[str]) -> None:
    console.print(command(plan, file, overrides))
    console.print(f"spends ε = {plan.epsilon:.6g} and leaves a gap of about {plan.gap:.3g}")


def command(plan: AnyPlan, file: Path | None, overrides: Sequence[str]) -> str:
    """What runs the plan: on the experiment that was planned, with what was overridden in it."""
    kept = [one for one in overrides if one.partition("=")[0].strip() not in plan.settings]
    sets = [*kept, *(f"{name}={value!r}" for name, value in plan.settings.items())]
    words = ["dpp2", "run", *([str(file)] if file else []), *(word for one in sets for word in ("--set", one))]
    return shlex.join(words)
