"""`dpp2 reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from dpp2 import BadInput, Experiment, run
from orchestrator.cli.app import Json, app
from orchestrator.cli.compare import Executor
from orchestrator.output import console, print_json, progress_bar

if TYPE_CHECKING:
    from adversary.findings import Finding
    from studies.reproduce.claims import Claim
    from studies.reproduce.overview import Leak

_ATTACKED: dict[str, dict[str, object]] = {
    "dpp2": {},
    "dpp2, τ = 1": {"algorithm.damping": 1.0},
    **{name: {"algorithm.name": name} for name in ("dgd", "extra", "gradient-tracking", "prox-gpda", "yi")},
    "dgd, u_x = 1": {"algorithm.name": "dgd", "noise.u_x": 1.0},
    "prox-gpda, u_x = 1": {"algorithm.name": "prox-gpda", "noise.u_x": 1.0},
    "ppdc, u_v = 0": {"algorithm.name": "ppdc", "noise.u_v": 0.0},
    **{name: {"algorithm.name": name} for name in ("ppdc", "diadsp", "pgtc", "dmsp", "wang-nedic")},
    **{name: {"algorithm.name": name} for name in ("wang-basar", "privsgp-vr", "diff2")},
}
WHAT = ("fig1", "fig2", "fig3", "table1", "comparison")


@dataclass(frozen=True)
class Asked:
    """What every part of this command is given."""

    what: str
    seeds: int
    rounds: int | None
    executor: str | None
    out: Path
    json: bool


@app.command()
def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="fig1, fig2, fig3, table1, or comparison: a page of all.")
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds; each decides data, starting points and noise.")] = 3,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds (default: fig1, table1 2000, fig2 2500, fig3 and comparison 500).")
    ] = None,
    executor: Executor = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("reproductions"),
    json: Json = False,
) -> None:
    """Measure a figure or the table of the paper from runs made here, and judge what the paper says of it.

    Examples:

        dpp2 reproduce fig1

        dpp2 reproduce fig3 --seeds 5 --out figures

        dpp2 reproduce comparison --out docs
    """
    if what not in WHAT:
        raise BadInput("WHAT", what, f"one of {', '.join(WHAT)}")
    for name, value in (("--seeds", seeds), ("--rounds", rounds)):
        if value is not None and value < 1:
            raise BadInput(name, value, "a whole number ≥ 1")
    if out.exists() and not out.is_dir():
        raise BadInput("--out", str(out), "a directory, not a file")
    asked = Asked(what, seeds, rounds, executor, out, json)
    {"fig3": _fig3, "table1": _table1, "comparison": _comparison}.get(what, _curves)(asked)


def _curves(asked: Asked) -> None:
    from studies.reproduce import curves

    wanted = curves.FIGURES[asked.what]
    with progress_bar(asked.what) as show:
        made = curves.reproduce(
            wanted,
            seeds=asked.seeds,
            rounds=asked.rounds or wanted.rounds,
            executor=asked.executor,
            finished=lambda done, total: show(done, total, "runs"),
        )
    csv, png = curves.write(made, asked.out)
    final = dict(zip(map(str, made.figure.values), made.middle[:, -1].tolist(), strict=True))
    if asked.json:
        print_json(
            {"figure": asked.what, "csv": str(csv), "png": str(png), "gap": final, "claims": _listed(made.claims)}
        )
        return
    _print_claims(made.claims)
    console.print(f"curves in {csv}, picture in {png}")


def _fig3(asked: Asked) -> None:
    from studies.reproduce import fig3

    with progress_bar("fig3") as show:
        made = fig3.reproduce(
            seeds=asked.seeds,
            rounds=asked.rounds or fig3.ROUNDS,
            executor=asked.executor,
            finished=lambda done, total: show(done, total, "runs"),
        )
    csv, png = fig3.write(made, asked.out)
    if asked.json:
        ends = {
            data: {
                method: {metric: made.of(data, method, 0, metric).tolist() for metric in fig3.METRICS}
                for method in fig3.METHODS
            }
            for data in fig3.DATA
        }
        described = {"figure": "fig3", "csv": str(csv), "png": str(png), "decays": made.decays}
        print_json(described | {"ends": ends, "claims": _listed(made.claims)})
        return
    _print_claims(made.claims)
    console.print(f"values in {csv}, picture in {png}")


def _table1(asked: Asked) -> None:
    from studies.reproduce import table1

    with progress_bar("table1") as show:
        made = table1.reproduce(
            seeds=asked.seeds,
            rounds=asked.rounds or table1.ROUNDS,
            executor=asked.executor,
            finished=lambda done, total: show(done, total, "runs"),
        )
    csv = table1.write(made, asked.out)
    rows = [table1.cells(row) for row in made.rows]
    if asked.json:
        named = [dict(zip(table1.HEAD, row, strict=True)) for row in rows]
        print_json({"csv": str(csv), "rounds": made.rounds, "rows": named})
        return
    table = Table(*table1.HEAD, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"table in {csv}")


def _comparison(asked: Asked) -> None:
    from studies.reproduce import overview

    with progress_bar("comparison") as show:
        path = overview.write(
            asked.out,
            seeds=asked.seeds,
            rounds=asked.rounds or 500,
            executor=asked.executor,
            leaks=_leaks,
            progress=show,
        )
    print_json({"page": str(path)}) if asked.json else console.print(f"page in {path}")


def _leaks(rounds: int) -> list[Leak]:
    """Every method attacked with everything that applies. Here, since only the command line knows the adversary."""
    from studies.reproduce.overview import Leak

    found = []
    for label, overrides in _ATTACKED.items():
        findings = _attacked({"run.rounds": rounds, **overrides})
        best = {}
        for what in ("x", "gradient"):
            errors = [(one.name, error) for one in findings if (error := one.error(what)) is not None]
            best[what] = min(errors, key=lambda pair: pair[1], default=None)
        found.append(Leak(label, best["x"], best["gradient"]))
    return found


def _attacked(overrides: dict[str, object]) -> list[Finding]:
    from adversary.attacks import ATTACKS
    from adversary.findings import Finding, attempt
    from adversary.knowledge import Knowledge
    from adversary.observation import Observation
    from adversary.scoring import Truth
    from adversary.views import global_view

    result = run(Experiment.load(overrides=overrides))
    assert result.observation is not None
    assert result.truth is not None
    view = global_view(Observation.of(result.observation), Knowledge.of(result.experiment))
    truth = Truth.of(result.truth, result.experiment)
    tried = [attempt(one, view, truth) for one in ATTACKS if one.name not in ("prior", "data")]
    return [one for one in tried if isinstance(one, Finding)]


def _listed(claims: Sequence[Claim]) -> list[dict[str, object]]:
    return [asdict(claim) for claim in claims]


def _print_claims(claims: Sequence[Claim]) -> None:
    for claim in claims:
        console.print(f"{'held' if claim.held else 'DID NOT HOLD'}: {claim.claim} — {claim.evidence}")
