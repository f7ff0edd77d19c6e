"""A comparison as files: comparison.md with a picture for each data set, compare.json and compare.csv."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dpp2.store.files import json_text, write_text
from dpp2.studies.compare import pictures, verdicts
from dpp2.studies.compare.claims import Document, Rankings, ranking_of, sentence
from dpp2.studies.compare.comparison import Comparison, LeftOut, Result
from dpp2.studies.compare.plan import Plan
from dpp2.studies.compare.tasks import DELTA, DataSet, Task

_LINK = re.compile(r"\[(?P<words>[^\]]+)\]\((?P<to>[\w-]+\.md)\)")


def write(made: Comparison, out: Path, command: str, other: Document | None = None) -> dict[str, Path]:
    """Everything, into a folder; the paths by what they hold. `other`: one with another seed, to hold it against."""
    rankings = Rankings(made, other)
    numbers = document(made, rankings)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for data in made.plan.data:
        pictures.draw(made, data, out / "figures" / _picture(data))
    paths = {"page": out / "comparison.md", "numbers": out / "compare.json", "table": out / "compare.csv"}
    write_text(paths["numbers"], json_text(numbers))
    write_text(paths["table"], csv_text(made))
    again = [str(numbers["agreement"])] if other else []
    text = "\n\n".join(paragraphs(made, rankings, command, again)) + "\n"
    write_text(paths["page"], linked(text, out))
    return paths


def linked(text: str, folder: Path) -> str:
    """Links lead to pages beside this one. Where a page is not there, its place in the project is named instead."""
    return _LINK.sub(lambda found: found[0] if (folder / found["to"]).is_file() else _unlinked(found), text)


def _unlinked(found: re.Match[str]) -> str:
    return f"{found['words']} (docs/{found['to']})"


def paragraphs(made: Comparison, rankings: Rankings, command: str, again: Sequence[str] = ()) -> list[str]:
    """The page, part by part. `again`: what came of doing it again."""
    return [
        "# Comparison with other methods",
        *_opening(verdicts.answer(made, rankings)),
        _standings(made, rankings),
        "## What may be concluded, and what not",
        _items((*verdicts.may_conclude(made, rankings), *again)),
        "It may not be concluded:",
        _items(verdicts.may_not_conclude(made, rankings)),
        "## How it was made",
        *_method(made, command),
        *(part for data in made.plan.data for part in _data(made, rankings, data)),
        "## Left out",
        _left_out(made.left_out),
    ]


def _opening(answer: Sequence[str]) -> list[str]:
    """The answer in a sentence, and a list of what else is to be said."""
    first, *others = answer
    return [first, *([_items(others)] if others else [])]


def _standings(made: Comparison, rankings: Rankings) -> str:
    """The gap of the paper's method over that of the best other one, task by task."""
    found = {one.cell: one for one in verdicts.standings(made, rankings)}
    epsilons = made.plan.epsilons
    rows = []
    for task in made.plan.tasks:
        cells = {cell.epsilon: found.get(cell) for cell in made.plan.cells(task)}
        rows.append((task.title, *(_standing(cells.get(epsilon)) for epsilon in epsilons)))
    head = ("DPP²'s gap over the best other method's", *(f"ε = {epsilon:g}" for epsilon in epsilons))
    return _markdown(head, rows) + "\n\nBold: the ranking is claimed, by the rule below. –: not compared at this ε."


def _standing(one: verdicts.Standing | None) -> str:
    if one is None:
        return "–"
    said = f"{verdicts.figure(one.factor)} ({one.best.label})"
    sure = one.best.label in one.lower or one.best.label in one.higher
    return f"**{said}**" if sure else said


def _method(made: Comparison, command: str) -> list[str]:
    plan = made.plan
    took = f" in {_long(made.seconds)} of one processor" if made.seconds else ""
    return [
        f"Written by `{command}`{took}; every number is from runs of that command. {len(made.results)} results in "
        f"{len(made.cells)} cells; seed {plan.seed}.",
        _items(
            (
                "A task is a data set, a start (zero, or a standard normal x⁰ that all methods share) and a kind of ε: "
                f"pure, or (ε, δ_dp = {DELTA:g}). δ and M̄ are public and the same for everybody. In the second kind "
                "Laplace noise is accounted by zCDP where that is less than its pure ε, which is an upper bound, and "
                "Gaussian noise exactly; dpp3 and decor also hold against any one colluding agent.",
                _effort(plan),
                "For every candidate the noise is scaled, by the method's own account, until its rounds spend just ε. "
                "Of an (ε, δ_dp) the finite words of the sampler take their share, from Gaussian and Laplace noise "
                "alike; where they would take all of δ_dp, as they do at large ε, the run spends less than ε.",
                f"Reported are {plan.seeds} fresh seeds: mean ± standard error. Ŵ is the gap, F(x̄) − F* the excess of "
                "the mean objective at the agents' mean, accuracy that on held-out records, and the last number the "
                "winner's rounds (dpp3: its gradient rounds).",
                "References: stay; the best local step (no message, no ε); one noisy gradient each, averaged by "
                "gossip; a curator who is trusted with every gradient and adds noise once; no privacy.",
                "Tuning and reporting share no random numbers. `dpp2 compare mine.toml` does the same on a problem of "
                "your own, `--algorithms dpp2,mine.py` with a method of your own: see [work from Python](python.md).",
            )
        ),
        "What of the paper's figures and of its Table I reproduces: [the paper's figures, measured](reproduced.md).",
    ]


def _long(seconds: float) -> str:
    """In minutes, or in seconds where these are few."""
    count, unit = (round(seconds / 60), "minute") if seconds >= 90 else (max(round(seconds), 1), "second")
    return f"{count} {unit}{'s' * (count != 1)}"


def _effort(plan: Plan) -> str:
    effort = plan.effort
    each = f"on {effort.exchange} seeds each"
    where = "at the other ε of the same task, with the other kind of ε and from the other start"
    exchange = f"then what won {where}, {each}; " if effort.exchanges else ""
    others = sorted({len(plan.near(cell)) for task in plan.tasks for cell in plan.cells(task)})
    runs = " or ".join(dict.fromkeys(str(effort.runs(effort.waves, count)) for count in others))
    return (
        "Every method is searched jointly over all settings that it declares and over the number of rounds, from 1 on: "
        f"{effort.first} points, its defaults and a scrambled Sobol sequence; then {effort.waves} waves of "
        f"{effort.around} points around the best, with {effort.finalists} finalists on {effort.trials} new seeds each; "
        f"{exchange}in all {runs} runs, as many for everybody in a cell. Where a winner lies at an end of a range, the "
        "range is widened and everybody in that cell gets another wave. Everybody is searched "
        f"{plan.searches} times like this, from the beginning and with other random numbers; reported is the search "
        "that did best while it was tuned."
    )


def _data(made: Comparison, rankings: Rankings, data: DataSet) -> list[str]:
    tasks = [task for task in made.plan.tasks if task.data == data]
    parts = [
        f"## {data.name}",
        f"{data.about[0].upper()}{data.about[1:]}.",
        f"![{data.name}: gap against ε](figures/{_picture(data)})",
    ]
    for task in tasks:
        (shown, *epsilons), rows = table_of(made, task)
        head = (f"method: {shown}", *epsilons)  # beside a row that stands upright it says what the cells have
        parts += [f"### {task.title}", _items(verdicts.of_task(made, rankings, task)), _markdown(head, rows)]
    return parts


def table_of(made: Comparison, task: Task) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: who ended where, at every ε."""
    cells = made.plan.cells(task)
    results = {(one.label, one.job.cell): one for one in made.results if one.job.cell.task == task}
    middle = cells[len(cells) // 2]
    first = [one.label for one in made.within(middle)]
    labels = dict.fromkeys([*first, *(label for label, _ in results)])
    rows = [(label, *(_cell(results.get((label, cell))) for cell in cells)) for label in labels]
    accurate = any(math.isfinite(one.mean("accuracy")) for one in results.values())
    shown = "gap Ŵ; F(x̄) − F*" + ("; accuracy" if accurate else "") + "; rounds K"
    return (shown, *(f"ε = {cell.epsilon:g}" for cell in cells)), rows


def _cell(one: Result | None) -> str:
    if one is None:
        return "no run"
    if not one.complete:
        return f"lost in {sum(not math.isfinite(gap) for gap in one.of('gap'))} seeds"
    error = one.error("gap")
    sure = f"{one.mean('gap'):.2g}" + (f" ± {error:.1g}" if error > 1e-6 * one.mean("gap") else "")
    parts = [sure, f"{one.mean('excess'):.1e}"]
    if math.isfinite(one.mean("accuracy")):
        parts.append(f"{100 * one.mean('accuracy'):.1f} ± {100 * one.error('accuracy'):.1f} %")
    rounds = [value for name, value in one.settings.items() if name.endswith("rounds")]
    return "; ".join([*parts, *(f"{value:g}" for value in rounds)])


def _left_out(found: Sequence[LeftOut]) -> str:
    by: dict[tuple[str, str], list[str]] = {}
    for one in found:
        by.setdefault((one.label, one.reason), []).append(one.task.track.title)
    return _items(
        f"**{label}** ({', '.join(dict.fromkeys(tracks))}): {reason}" for (label, reason), tracks in by.items()
    )


def document(made: Comparison, rankings: Rankings) -> dict[str, object]:
    """What `--json` prints and compare.json holds."""
    plan, other = made.plan, rankings.other
    found: dict[str, object] = {
        "answer": " ".join(verdicts.answer(made, rankings)),
        "concluded": verdicts.may_conclude(made, rankings),
        "not_concluded": [_LINK.sub(_unlinked, said) for said in verdicts.may_not_conclude(made, rankings)],
        "plan": {
            "data": [data.name for data in plan.data],
            "methods": [one.label for one in plan.methods],
            "starts": plan.starts,
            "tracks": [track.name for track in plan.tracks],
            "epsilons": plan.epsilons,
            "searches": plan.searches,
            "seeds": plan.seeds,
            "seed": plan.seed,
            "effort": asdict(plan.effort),
        },
        "cpu_seconds": made.seconds,
        "results": [_result(one) for one in made.results],
        "standing": verdicts.standing(made, rankings),
        "rankings": [ranking_of(one) for one in rankings.claimed.values()],
        "withdrawn": [ranking_of(one) for one in rankings.withdrawn],
        "left_out": [_where(one.task) | {"method": one.label, "reason": one.reason} for one in made.left_out],
    }
    return found | ({"agreement": sentence(found, other)} if other else {})


def _where(task: Task) -> dict[str, object]:
    return {"data": task.data.name, "start": task.start, "track": task.track.name}


def _result(one: Result) -> dict[str, object]:
    cell = one.job.cell
    return {
        **_where(cell.task),
        "epsilon": cell.epsilon,
        "method": one.label,
        "reference": one.reference,
        "evaluations": one.runs,
        "searches_gap": [float(np.mean(found.of("gap"))) if found.outcomes else math.inf for found in one.found],
        "at_an_end": one.edges,
        "settings": one.settings,
        **{metric: one.mean(metric) for metric in _METRICS},
        **{f"{metric}_se": one.error(metric) for metric in _METRICS},
        "seeds": [asdict(outcome) for outcome in one.outcomes],
    }


_METRICS = ("gap", "excess", "accuracy")


def csv_text(made: Comparison) -> str:
    """One line for each contender, cell and seed."""
    lines = ["data,start,track,epsilon,method,reference,evaluations,seed,gap,consensus,excess,accuracy"]
    for one in made.results:
        cell = one.job.cell
        about = (cell.task.data.name, cell.task.start, cell.task.track.name, cell.epsilon, f'"{one.label}"')
        for seed, outcome in enumerate(one.outcomes, start=1):
            row = (*about, one.reference, one.runs, seed, *asdict(outcome).values())
            lines.append(",".join(map(str, row)))
    return "\n".join(lines) + "\n"


def _items(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _picture(data: DataSet) -> str:
    return f"compare-{data.name}.png"
