"""`dpp2 privacy epsilon` and `calibrate`; the other commands of the group have files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, get_args

import typer

from dpp2 import BadInput, Experiment
from dpp2.algorithms.base import AlgorithmSection
from dpp2.orchestrator import plots
from dpp2.orchestrator.cli.app import Json, Overrides, Plot, app, drawable, examples, load_experiment
from dpp2.orchestrator.cli.privacy_documents import approximate_document, calibration_document, cost_document, spoken
from dpp2.orchestrator.output import console, print_json, print_notes
from dpp2.privacy import Calibration, Epsilon, Unsupported, epsilon
from dpp2.privacy.account import Account
from dpp2.privacy.calibrate import Unknown
from dpp2.privacy.query import PrivacyQuery

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
Delta = Annotated[float | None, typer.Option(help="Also the ε of (ε, δ)-privacy at this δ (needs dp-accounting).")]
Grid = Annotated[int | None, typer.Option(help="Bits of the noise's grid; 0: doubles [20].")]
Published = Annotated[bool, typer.Option("--published", help="Include the release of x^K + w^K.")]
Budget = Annotated[float, typer.Option("--epsilon", help="The budget ε that must be kept.")]
Solve = Annotated[
    str, typer.Option(help="What to solve for: decay, scale or rounds; for dpp3 scale, ratio or gradient-rounds.")
]


@privacy.command(
    "epsilon",
    epilog=examples(
        "dpp2 privacy epsilon --rounds 100 --decay 0.99 --u-e 20 --u-w 20",
        "dpp2 privacy epsilon experiments/damped.toml --rounds 100 --json",
        "dpp2 privacy epsilon --rounds 100 --decay 1 --u-e 50 --u-w 50 --delta 1e-5",
    ),
)
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
    grid: Grid = None,
    delta: Delta = None,
    published: Published = False,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """What K rounds cost one agent, exactly, beside what the paper says."""
    query = _query(
        _experiment(file, overrides), rounds,
        dimension=dimension, alpha=alpha, smoothness=smoothness, adjacency=adjacency, u_e=u_e, u_w=u_w, decay=decay,
        bits=grid,
    )  # fmt: skip
    if plot is not None:
        plots.epsilon(Account(query.mechanisms, None, None, ()), query.rounds, drawable(plot))
    _print_document(query, delta, published) if json else _print_epsilon(query, delta, published)


@privacy.command(
    "calibrate",
    epilog=examples(
        "dpp2 privacy calibrate --epsilon 5 --rounds 100 --solve scale",
        "dpp2 privacy calibrate --epsilon 5 --u-e 100 --u-w 100 --solve rounds --json",
        "dpp2 privacy calibrate --set algorithm.name=dpp3 --epsilon 1 --solve scale",
    ),
)
def calibrate_command(
    budget: Budget,
    solve: Solve,
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
    grid: Grid = None,
    published: Published = False,
    json: Json = False,
) -> None:
    """Which decay, scale of noise or number of rounds keeps a budget; checked by the accountant.

    For dpp3: the own scale, the ratio of the edges' noise to it, or the number of gradients.
    """
    experiment = _experiment(file, overrides)
    if (by_itself := _calibrated_by_itself(experiment, budget, solve)) is not None:
        print_json(by_itself) if json else _print_settings(by_itself, budget)
        return
    query = _query(
        experiment, rounds,
        dimension=dimension, alpha=alpha, smoothness=smoothness, adjacency=adjacency, u_e=u_e, u_w=u_w, decay=decay,
        bits=grid,
    )  # fmt: skip
    found = _calibrated(query, budget, solve, published)
    if json:
        print_json({**calibration_document(found, published=published), "notes": query.notes})
    else:
        _print_calibration(found, budget)


def _experiment(file: Path | None, overrides: list[str] | None) -> Experiment | None:
    """None: the question is about numbers that options give."""
    return load_experiment(file, overrides) if file is not None or overrides else None


def _calibrated_by_itself(experiment: Experiment | None, budget: float, solve: str) -> dict[str, object] | None:
    """The document of an algorithm that knows more than one factor on all scales; None for all others."""
    if experiment is None or type(experiment.algorithm).calibrated is AlgorithmSection.calibrated:
        return None
    with _named_as_options():
        found = experiment.algorithm.calibrated(experiment.resolve(), budget, solve)
    assert found is not None  # it has one of its own
    return {
        "solved": found.solved,
        "feasible": found.feasible,
        "settings": found.settings,
        "epsilon": found.epsilon.value,
        "log10_epsilon": found.epsilon.log10,
        "delta": 2.0**found.epsilon.log2_delta,
        "reason": found.reason or found.epsilon.reason,
    }


def _print_settings(found: dict[str, object], budget: float) -> None:
    if not found["feasible"]:
        console.print(f"infeasible, because {found['reason']}")
        return
    assert isinstance(found["settings"], dict)
    settings = " ".join(f"{name}={value!r}" for name, value in found["settings"].items())
    at = f" at δ_dp = {found['delta']:g}" if found["delta"] else ""
    console.print(f"{settings}: ε = {found['epsilon']:.6g}{at} of a budget of {budget:g}")


def _query(experiment: Experiment | None, rounds: int | None, **given: float | None) -> PrivacyQuery:
    """From a file, from options, or from the paper's experiment."""
    asked = PrivacyQuery() if experiment is None else PrivacyQuery.of(experiment)
    with _named_as_options():
        return asked.changed(rounds, {name: value for name, value in given.items() if value is not None})


@contextmanager
def _named_as_options() -> Iterator[None]:
    """What is refused is named as it was typed."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"--{refusal.field.replace('_', '-')}", refusal.value, refusal.accepted) from None


def _print_document(query: PrivacyQuery, delta: float | None, published: bool) -> None:
    document: dict[str, object] = {**cost_document(query.worst(published=published), query.rounds, published=published)}
    if delta is not None:
        with _named_as_options():
            document |= approximate_document(query, delta, published=published)
    print_json({**document, "notes": query.notes})


def _print_epsilon(query: PrivacyQuery, delta: float | None, published: bool) -> None:
    mechanism, rounds = query.worst(published=published), query.rounds
    with _named_as_options():
        approximate = query.epsilon_at(delta, published=published) if delta is not None else None
    spent = epsilon(mechanism, rounds, published=published)
    console.print(f"ε({rounds} round{'s' * (rounds != 1)}) = {spoken(spent)}")
    if isinstance(spent, Epsilon) and spent.tail and not spent.tail_counts:  # one that counts is said already
        console.print(f"with noise on a grid of {mechanism.bits} bits: (ε, δ_dp) = ({spent}, {spent.tail})")
    if mechanism.papers_own:
        claimed = mechanism.paper_epsilon(rounds)
        says = f"says {spoken(claimed)} — a claim, not a guarantee"
        if isinstance(claimed, Unsupported):
            says = f"does not apply: {claimed.reason}"
        console.print(f"the paper's Theorem 3 {says}")
    if approximate is not None:
        told = approximate.reason if isinstance(approximate, Unsupported) else f"ε = {approximate:.6g}"
        console.print(f"(ε, δ)-privacy at δ = {delta:g}: {told}")
    print_notes(query.notes)


def _calibrated(query: PrivacyQuery, budget: float, solve: str, published: bool) -> Calibration:
    if solve not in get_args(Unknown):
        raise BadInput("--solve", solve, "decay, scale or rounds")
    with _named_as_options():
        found = query.calibrated(budget, solve, published=published)  # type: ignore[arg-type]
    if isinstance(found, Unsupported):
        raise BadInput("--epsilon", budget, f"an algorithm and a bound M that have an account ({found.reason})")
    return found


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
        _print_recipe(found, budget)


def _print_recipe(found: Calibration, budget: float) -> None:
    """The paper's decay for the same budget, where it has one."""
    recipe = found.mechanism.paper_decay(found.rounds, budget)
    if not isinstance(recipe, Unsupported) and 0 < recipe.decay <= 1:
        spends = spoken(epsilon(found.mechanism.changed(decay=recipe.decay), found.rounds))
        console.print(f"the paper's Corollary 1 would take {recipe.decay:.10g}, which really spends {spends}")
