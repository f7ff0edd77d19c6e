"""`dpp2 privacy`: what a run costs, which noise keeps a budget, and what may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from dpp2 import BadInput, Experiment, Simulation
from dpp2.privacy import (
    Calibration,
    Epsilon,
    Unsupported,
    epsilon,
)
from dpp2.privacy.account import Account
from orchestrator import plots
from orchestrator.cli.app import Json, Overrides, app
from orchestrator.cli.privacy_query import (
    PrivacyQuery,
    account_document,
    approximate_document,
    calibration_document,
    cost_document,
    print_notes,
    spoken,
)
from orchestrator.output import console, print_json
from orchestrator.publish import publish as publish_run
from store.ledgers import LedgerFile
from store.rundir import epsilon_document

privacy = typer.Typer(help="Account for ε: what a run costs, which noise keeps a budget.", no_args_is_help=True)
app.add_typer(privacy, name="privacy")

File = Annotated[Path | None, typer.Argument(help="Experiment file; its worst-off agent is accounted for.")]
Rounds = Annotated[int | None, typer.Option(help="K: rounds 0 … K−1 [500].")]
Dimension = Annotated[int | None, typer.Option(help="d, of the decision variable [10].")]
Alpha = Annotated[float | None, typer.Option(help="Step size α [0.1].")]
Smoothness = Annotated[float | None, typer.Option(help="M, a public bound on the gradient's slope [5.03].")]
Adjacency = Annotated[float | None, typer.Option(help="δ: how far adjacent gradients differ [0.1].")]
UE = Annotated[float | None, typer.Option("--u-e", help="First scale of the noise e in z [1].")]
UW = Annotated[float | None, typer.Option("--u-w", help="First scale of the noise w in y [1].")]
Decay = Annotated[float | None, typer.Option(help="r in (0, 1]; 0: noise in round 0 only [0.9].")]
Published = Annotated[bool, typer.Option("--published", help="Count the release of x^K + w^K in.")]
Plot = Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the curve ε(K) here.")]


@privacy.command("epsilon")
def epsilon_command(
    file: File = None,
    overrides: Overrides = None,
    rounds: Rounds = None,
    dimension: Dimension = None,
    alpha: Alpha = None,
    smoothness: Smoothness = None,
    adjacency: Adjacency = None,
    u_e: UE = None,
    u_w: UW = None,
    decay: Decay = None,
    delta: Annotated[
        float | None, typer.Option(help="Also the ε of (ε, δ)-privacy at this δ (needs dpp2[dp]).")
    ] = None,
    published: Published = False,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """What K rounds cost one agent, exactly, beside what the paper says.

    Examples:

        dpp2 privacy epsilon --rounds 100 --decay 0.99 --u-e 20 --u-w 20

        dpp2 privacy epsilon experiments/damped.toml --rounds 100 --json

        dpp2 privacy epsilon --rounds 100 --decay 1 --u-e 50 --u-w 50 --delta 1e-5
    """
    question = PrivacyQuery.of(
        file, overrides, rounds,
        dimension=dimension, alpha=alpha, smoothness=smoothness, adjacency=adjacency, u_e=u_e, u_w=u_w, decay=decay,
    )  # fmt: skip
    mechanism = question.worst(published)
    document = cost_document(mechanism, question.rounds, published)
    if delta is not None:
        document |= approximate_document(question, delta, published)
    if plot is not None:
        plots.epsilon(Account(question.mechanisms, None, None, ()), question.rounds, _drawable(plot))
    if json:
        print_json({**document, "notes": list(question.notes)})
        return
    console.print(f"ε({question.rounds} rounds) = {spoken(epsilon(mechanism, question.rounds, published=published))}")
    if mechanism.papers_own:
        claimed = spoken(mechanism.paper_epsilon(question.rounds))
        console.print(f"the paper's Theorem 3 says {claimed} — a claim, not a guarantee")
    if delta is not None:
        known = document["epsilon_at_delta"]
        reason = document["delta_reason"]
        console.print(f"(ε, δ)-privacy at δ = {delta:g}: {reason if known is None else f'ε = {known:.6g}'}")
    print_notes(question.notes)


@privacy.command("calibrate")
def calibrate_command(
    budget: Annotated[float, typer.Option("--epsilon", help="The budget ε that must be kept.")],
    solve: Annotated[str, typer.Option(help="What to solve for: decay, scale or rounds.")],
    file: File = None,
    overrides: Overrides = None,
    rounds: Rounds = None,
    dimension: Dimension = None,
    alpha: Alpha = None,
    smoothness: Smoothness = None,
    adjacency: Adjacency = None,
    u_e: UE = None,
    u_w: UW = None,
    decay: Decay = None,
    published: Published = False,
    json: Json = False,
) -> None:
    """Which decay, scale of noise or number of rounds keeps a budget; checked by the accountant.

    Examples:

        dpp2 privacy calibrate --epsilon 5 --rounds 100 --solve scale

        dpp2 privacy calibrate --epsilon 5 --u-e 100 --u-w 100 --solve rounds --json
    """
    if solve not in ("decay", "scale", "rounds"):
        raise BadInput("--solve", solve, "decay, scale or rounds")
    question = PrivacyQuery.of(
        file, overrides, rounds,
        dimension=dimension, alpha=alpha, smoothness=smoothness, adjacency=adjacency, u_e=u_e, u_w=u_w, decay=decay,
    )  # fmt: skip
    try:
        found = question.calibrated(budget, solve, published)  # type: ignore[arg-type]
    except BadInput as refusal:
        raise BadInput(f"--{refusal.field}", refusal.value, refusal.accepted) from None
    if isinstance(found, Unsupported):
        raise BadInput("--epsilon", budget, f"an algorithm and a bound M that have an account ({found.reason})")
    if json:
        print_json({**calibration_document(found, published), "notes": list(question.notes)})
        return
    _print_calibration(found, budget)


@privacy.command()
def check(
    file: Annotated[Path, typer.Argument(help="Experiment file.")],
    overrides: Overrides = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Is an experiment admissible, which of the paper's conditions hold, and what does each round cost?

    Example:

        dpp2 privacy check experiments/paper.toml --set noise.decay=0.99 --plot epsilon.png
    """
    experiment = Experiment.load(file, overrides or [])
    try:
        simulation = Simulation(experiment, record=False)
    except BadInput as refusal:
        if refusal.field not in ("algorithm.beta", "network.weights", "network.topology"):
            raise
        print_json({"admissible": False, "reason": str(refusal)}) if json else console.print(
            f"not admissible: {refusal}"
        )
        return
    account, rounds = simulation.account, simulation.experiment.run.rounds
    conditions = simulation.conditions()
    if plot is not None:
        plots.epsilon(account, rounds, _drawable(plot))
    if json:
        print_json({
            "admissible": True,
            "reason": None,
            "conditions": [{"name": c.name, "left": c.left, "right": c.right, "holds": c.holds} for c in conditions],
            **account_document(account, rounds),
            "notes": list(account.notes),
        })  # fmt: skip
        return
    eigenvalues = simulation.prepared.spectrum
    console.print(f"admissible: λ(P) from {eigenvalues.connectivity:.4g} to {eigenvalues.largest:.4g}, G ≻ 0")
    table = Table("condition (paper, sufficient)", "left", "right", "")
    for c in conditions:
        table.add_row(
            c.name,
            f"{c.left:.4g}",
            f"{c.right:.4g}" if c.right > -np.inf else "no real root",
            "holds" if c.holds else "fails",
        )
    console.print(table)
    _print_curve(account, rounds)
    print_notes(account.notes)


@privacy.command()
def ledger(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """What every agent has spent over all its runs, by data set.

    Example:

        dpp2 privacy ledger runs
    """
    file = folder / "ledger.sqlite"
    if not file.is_file():
        raise BadInput("FOLDER", str(folder), "a folder with runs and their ledger.sqlite in it")
    totals = LedgerFile(file).totals()
    if json:
        unknown = Unsupported("the paper keeps no ledger")
        print_json([
            {"agent": total.agent, "data": total.data, "runs": total.runs, **epsilon_document(total.spent, unknown)}
            for total in totals
        ])  # fmt: skip
        return
    table = Table("agent", "data", "runs", "ε over all of them")
    for total in totals:
        table.add_row(total.agent, total.data[:12], str(total.runs), spoken(total.spent))
    console.print(table)


@privacy.command()
def publish(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Json = False,
) -> None:
    """Release x^K + w^K of a run, and charge every agent's ledger for it.

    Example:

        dpp2 privacy publish runs/paper-1
    """
    done = publish_run(run)
    if json:
        document = epsilon_document(done.epsilon, Unsupported("the paper does not speak of publishing"))
        before = done.before.value if isinstance(done.before, Epsilon) else None
        print_json({"published": str(done.path), "rounds": done.rounds, "epsilon_before": before, **document,
                    "notes": list(done.notes)})  # fmt: skip
        return
    console.print(f"x^{done.rounds} + w^{done.rounds} is in {done.path}")
    console.print(f"ε of the worst-off agent: {spoken(done.before)} before, {spoken(done.epsilon)} with the release")
    print_notes(done.notes)


def _drawable(plot: Path) -> Path:
    if plot.is_dir() or not plot.parent.is_dir():
        raise BadInput("--plot", str(plot), "a file in a directory that exists")
    return plot


def _print_calibration(found: Calibration, budget: float) -> None:
    if not found.feasible:
        console.print(f"infeasible, because {found.reason}")
        return
    answers = {
        "decay": f"decay {found.decay}",  # every digit: a rounded answer might not keep the budget
        "scale": " and ".join(f"{name} {getattr(found.mechanism, name)}" for name in found.mechanism.scales),
        "rounds": f"{found.rounds} rounds",
    }
    console.print(f"{answers[found.solved]}: ε = {spoken(found.epsilon)} of a budget of {budget:g}")
    if found.reason:
        console.print(f"note: {found.reason}")
    if found.solved == "decay":
        recipe = found.mechanism.paper_decay(found.rounds, budget)
        if not isinstance(recipe, Unsupported) and 0 < recipe.decay <= 1:
            spends = epsilon(found.mechanism.changed(decay=recipe.decay), found.rounds)
            console.print(
                f"the paper's Corollary 1 would take {recipe.decay:.10g}, which really spends {spoken(spends)}"
            )


def _print_curve(account: Account, rounds: int) -> None:
    table = Table("rounds K", "ε(K), worst-off agent", "paper's Theorem 3")
    for count in sorted({1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, rounds}):
        if count <= rounds:
            table.add_row(str(count), spoken(account.epsilon(count)), spoken(account.paper_epsilon(count)))
    console.print(table)
