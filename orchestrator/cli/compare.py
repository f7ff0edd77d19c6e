"""`dpp2 compare`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpp2 import BadInput
from dpp2.orchestrator.cli.app import Executor, Json, app, check_counts, examples, load_experiment, new_folder
from dpp2.orchestrator.output import console, errors, print_json, print_table, progress_bar
from dpp2.store.files import read_json
from dpp2.store.locks import folder_alone

if TYPE_CHECKING:
    from dpp2.studies.compare.comparison import Comparison
    from dpp2.studies.compare.plan import Plan

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Experiments whose problems are compared on, or paper, planted, breast-cancer or digits (default: these).",
    ),
]
Algorithms = Annotated[
    str | None,
    typer.Option(metavar="A,B,…", help="Who is compared (default: everybody); FILE.py is a method of your own."),
]
Epsilons = Annotated[
    str | None, typer.Option("--epsilon", metavar="E,F,…", help="The ε that every agent may spend [0.1 to 1000].")
]
Seeds = Annotated[int, typer.Option(metavar="S", help="Fresh seeds that winners are reported on.")]
Evaluations = Annotated[
    int | None, typer.Option(metavar="N", help="Tuning runs of one search of a method in a cell [92; quick: 28].")
]
Searches = Annotated[
    int, typer.Option(metavar="S", help="Independent searches of every method; a ranking needs all of them to agree.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Another one searches and reports on other random numbers.")]
Against = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The compare.json of another seed: which rankings it turns round is said."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Three ε, start zero, 28 runs in a search: a look.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where the page goes; what is finished is kept there.")]


@app.command(
    epilog=examples(
        "dpp2 compare --quick",
        "dpp2 compare digits mine.toml --epsilon 1,10 --out compared",
        "dpp2 compare --quick --algorithms dpp2,dpp3,mine.py",
        "dpp2 compare --out docs --executor dask:127.0.0.1:8786",
        "dpp2 compare --seed 2 --out again --against docs/compare.json",
    )
)
def compare(
    files: Files = None,
    algorithms: Algorithms = None,
    epsilon: Epsilons = None,
    seeds: Seeds = 10,
    evaluations: Evaluations = None,
    searches: Searches = 2,
    seed: Seed = 1,
    against: Against = None,
    quick: Quick = False,
    executor: Executor = None,
    out: Out = Path("compared"),
    json: Json = False,
) -> None:
    """Compare methods at the same ε, each searched jointly over all its settings with as many runs as any other.

    What is finished is kept in DIR/kept: the same command goes on where it was stopped.
    """
    from dpp2.studies.compare import page
    from dpp2.studies.compare.claims import Rankings
    from dpp2.studies.compare.plan import MOST_SEARCHES, MOST_SEEDS

    check_counts(("--seeds", seeds))
    if seeds > MOST_SEEDS:
        raise BadInput("--seeds", seeds, f"a whole number from 1 to {MOST_SEEDS}")
    if seed < 0:
        raise BadInput("--seed", seed, "a whole number ≥ 0")
    if not 1 <= searches <= MOST_SEARCHES:
        raise BadInput("--searches", searches, f"a whole number from 1 to {MOST_SEARCHES}")
    new_folder(out)
    other = _other(against, seed) if against else None
    plan = _plan(files or [], algorithms, _numbers(epsilon), evaluations, quick=quick)
    plan = replace(plan, searches=searches, seeds=seeds, seed=seed)
    given = {"--algorithms": algorithms, "--epsilon": epsilon, "--evaluations": evaluations}
    counts = {"--searches": (searches, 2), "--seeds": (seeds, 10), "--seed": (seed, 1)}
    words = _words(files or [], given, counts, quick=quick)
    if not quick and not files and algorithms is None:
        whole = "all methods on all data take about 40 minutes of a processor, `dpp2 compare --quick` a tenth of that"
        errors.print(f"note: {whole}")
    with folder_alone(out):
        made = _compared(plan, out / "kept", executor)
        paths = {what: str(path) for what, path in page.write(made, out, words, other).items()}
    if json:
        print_json(page.document(made, Rankings(made, other)) | {"files": paths})
    else:
        _print(made, paths, other)


def _compared(plan: Plan, kept: Path, executor: str | None) -> Comparison:
    from dpp2.studies.compare import comparison

    try:
        with progress_bar("compare") as show:
            return comparison.compare(plan, kept=kept, executor=executor, progress=show)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; what is finished is in {kept}, and the same command goes on") from None


def _plan(
    files: list[Path], algorithms: str | None, epsilons: tuple[float, ...] | None, runs: int | None, *, quick: bool
) -> Plan:
    from dpp2.studies.compare.contenders import methods
    from dpp2.studies.compare.plan import EVALUATIONS, QUICK_EVALUATIONS, Plan
    from dpp2.studies.compare.search import Effort
    from dpp2.studies.compare.tasks import bundled, of_files

    names = [name.strip() for name in algorithms.split(",")] if algorithms is not None else None
    chosen = tuple(methods(names))
    data = of_files(files, lambda path: load_experiment(path, [])) if files else bundled()
    effort = Effort.of((QUICK_EVALUATIONS if quick else EVALUATIONS) if runs is None else runs)
    plan = Plan(tuple(data), chosen, effort=effort)
    if quick:
        plan = replace(plan, epsilons=(1.0, 10.0, 100.0), starts=plan.starts[:1])
    return replace(plan, epsilons=epsilons, fewer=epsilons) if epsilons else plan


def _other(path: Path, seed: int) -> Mapping[str, Any]:
    """Another comparison, checked before the work begins."""
    try:
        document = read_json(path)
        other_seed, known = document["plan"]["seed"], {"results", "rankings"} <= document.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known or other_seed == seed:
        raise BadInput("--against", str(path), f"the compare.json of a comparison with another seed than {seed}")
    return dict(document)


def _numbers(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    accepted = "finite numbers > 0, with commas between them"
    try:
        found = tuple(sorted({float(word) for word in text.split(",")}))
    except ValueError:
        raise BadInput("--epsilon", text, accepted) from None
    if not all(math.isfinite(value) and value > 0 for value in found):
        raise BadInput("--epsilon", text, accepted)
    return found


def _words(
    files: list[Path], given: Mapping[str, object], counts: Mapping[str, tuple[int, int]], *, quick: bool
) -> str:
    """The command, as the page names it: what decides about its numbers. `counts`: as asked for, and by default."""
    options = [f"{name} {value}" for name, value in given.items() if value is not None]
    options += ["--quick"] * quick + [f"{name} {count}" for name, (count, usual) in counts.items() if count != usual]
    return " ".join(["dpp2 compare", *(shlex.quote(path.name) for path in files), *options])


def _print(made: Comparison, paths: Mapping[str, str], other: Mapping[str, Any] | None) -> None:
    from dpp2.studies.compare import page, verdicts
    from dpp2.studies.compare.claims import Rankings, sentence

    rankings = Rankings(made, other)
    again = [sentence(page.document(made, rankings), other)] if other else []
    for task in made.plan.tasks:
        head, rows = page.table_of(made, task)
        print_table(head, rows, title=task.title, narrow=True)
    for said in (*verdicts.answer(made, rankings), *verdicts.may_conclude(made, rankings), *again):
        console.print(f"• {said}")
    console.print(f"page in {paths['page']}, numbers in {paths['numbers']} and {paths['table']}")
