"""`dpp2 privacy plan`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dpp2 import BadInput, Experiment
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.privacy.account import adjacency_of
from dpp2.privacy.plan import frontier
from dpp2.privacy.plans import Effort, Plan, Plans
from orchestrator import plots
from orchestrator.cli.app import Json, Overrides, drawable_later, load_experiment
from orchestrator.cli.privacy import privacy
from orchestrator.output import console, print_json, print_notes, progress_bar

_AROUND = (0.01, 0.1, 1.0, 10.0, 100.0)  # the frontier: these multiples of the budget

Budget = Annotated[float, typer.Option("--epsilon", help="The budget ε of every agent.")]
File = Annotated[Path | None, typer.Argument(help="Experiment file; without one, the paper's experiment.")]
Out = Annotated[Path, typer.Option(metavar="PNG", help="Where the frontier is drawn.")]
MostRounds = Annotated[int | None, typer.Option(help="Plan at most this many rounds [run.rounds].")]
KeepRatio = Annotated[bool, typer.Option("--keep-ratio", help="Keep the experiment's u_e/u_w.")]
KeepSteps = Annotated[bool, typer.Option("--keep-steps", help="Keep the experiment's α, β and ρ.")]
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
    """Choose rounds, noise, steps and damping for the smallest expected gap within a budget.

    Prints the frontier gap against ε around the budget, for the paper's algorithm and the damped one side by side. It
    plans on public data of the same size and with the same bounds, unless it is told to look at the data.

    Examples:

        dpp2 privacy plan --epsilon 1000

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
        frontier_documents = [_document(one) for one in plans]
        print_json({**_document(chosen), "planned_on": planned_on, "frontier": frontier_documents, "png": str(out)})
        return
    _print_frontier(plans)
    _print_choice(chosen.chosen, file, overrides or [])
    console.print(f"frontier drawn in {out}")
    print_notes((*chosen.chosen.notes, *chosen.notes))


def _planned(experiment: Experiment, budget: float, effort: Effort, name: str) -> tuple[Plans, ...]:
    """The frontier around the budget; `name` is what a refusal calls the experiment."""
    adjacency, smoothness = _assumed(experiment)
    if not 0 < budget < 1e300:
        raise BadInput("--epsilon", budget, "a finite number > 0")
    with progress_bar("planning") as show:
        budgets = [factor * budget for factor in _AROUND]
        plans = frontier(experiment, budgets, adjacency, smoothness, effort=effort, progress=show)
    if isinstance(plans, Unsupported):
        raise BadInput("FILE", name, f"an experiment that can be planned ({plans.reason})")
    return plans


def _assumed(experiment: Experiment) -> tuple[float, float]:
    """δ and M as the account of the experiment has them."""
    prepared = PreparedRun.of(experiment)
    account = prepared.account()
    if account.unsupported_reason:
        accepted = f"one with an account ({account.unsupported_reason.reason})"
        raise BadInput("algorithm.name", experiment.algorithm.name, accepted)
    return adjacency_of(prepared.experiment), max(mechanism.smoothness for mechanism in account.distinct)


def _document(plans: Plans) -> dict[str, object]:
    return {
        "budget": plans.budget,
        "start_gap": plans.start_gap,
        "worthwhile": plans.worthwhile,
        **asdict(plans.chosen),
        "undamped": asdict(plans.undamped),
        "damped": asdict(plans.damped),
    }


def _print_frontier(plans: tuple[Plans, ...]) -> None:
    table = Table("ε", "gap, τ = 0 (paper)", "K, r, u_e", "gap, τ > 0 (damped)", "K, r, u_e, τ")
    for one in plans:
        paper, damped = one.undamped, one.damped
        table.add_row(
            f"{one.budget:g}",
            _gap(paper),
            f"{paper.rounds}, {paper.decay:.4g}, {paper.u_e:.3g}",
            _gap(damped),
            f"{damped.rounds}, {damped.decay:.4g}, {damped.u_e:.3g}, {damped.damping:.3g}",
        )
    console.print(table)


def _gap(plan: Plan) -> str:
    spread = f" ({plan.spread[0]:.2g} to {plan.spread[1]:.2g})" if plan.spread else " (model)"
    return f"{plan.gap:.3g}{spread}"


def _print_choice(plan: Plan, file: Path | None, overrides: Sequence[str]) -> None:
    console.print(command(plan, file, overrides))
    console.print(f"spends ε = {plan.epsilon:.6g} and leaves a gap of about {plan.gap:.3g}")


def command(plan: Plan, file: Path | None, overrides: Sequence[str]) -> str:
    """What runs the plan: on the experiment that was planned, with what was overridden in it."""
    chosen = {
        "run.rounds": plan.rounds,
        "noise.decay": plan.decay,
        "noise.u_e": plan.u_e,
        "noise.u_w": plan.u_w,
        "algorithm.damping": plan.damping,
        "algorithm.alpha": plan.alpha,
        "algorithm.beta": plan.beta,
        "algorithm.rho": plan.rho,
    }
    kept = [one for one in overrides if one.partition("=")[0].strip() not in chosen]
    sets = [*kept, *(f"{name}={value!r}" for name, value in chosen.items())]
    words = ["dpp2", "run", *([str(file)] if file else []), *(word for one in sets for word in ("--set", one))]
    return shlex.join(words)
