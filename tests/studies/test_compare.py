"""`dpp2 compare`: equal ε by each method's own account, the same effort for all, the same numbers anywhere."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.store.files import json_text
from dpp2.store.locks import folder_alone
from dpp2.studies.compare import page, pictures, verdicts
from dpp2.studies.compare.claims import Rankings
from dpp2.studies.compare.comparison import Comparison, compare
from dpp2.studies.compare.contenders import Method, methods
from dpp2.studies.compare.kept import makers
from dpp2.studies.compare.laboratory import laboratory
from dpp2.studies.compare.plan import Job, Plan
from dpp2.studies.compare.references import REFERENCES, Curator
from dpp2.studies.compare.search import Effort
from dpp2.studies.compare.tasks import APPROXIMATE, PURE, TRACKS, Cell, DataSet, Task, bundled, of_files
from tests.conftest import Call

SMALL = {"network.agents": 6, "network.topology": "ring", "problem.dimension": 3, "problem.samples": 20}
DATA = DataSet.of("small", "a small problem", Experiment.load(overrides={**SMALL, "problem.labels": "planted"}))
EFFORT = Effort(first=4, waves=1, around=4, finalists=1, trials=1, more_waves=1)
NAMES = ["dpp2", "dpp2-damped", "dpp3", "dmsp", "decor", "wang-basar", "diff2", "diadsp", "ppdc", "privsgp-vr"]
PLAN = Plan((DATA,), tuple(methods(NAMES)), (10.0,), starts=("zero",), effort=EFFORT, seeds=3)
FILE = """
[network]
agents = 5
topology = "ring"
[problem]
dimension = 2
samples = 8
"""


OWN = """
from dpp2 import algorithm


@algorithm(noise={"x": 1.0}, carries_x="m")
def descent(s, k, own, *, alpha=0.2):
    m = own.noisy("x", s.x)
    Pm = yield m
    return {"x": m - Pm - alpha * own.gradient(s.x)}


@descent.account
def cost(agent):
    return agent.step_releases(agent.alpha)
"""


@pytest.fixture(scope="module")
def made() -> Comparison:
    return compare(PLAN, executor="processes:1")


def test_everybody_spends_the_budget_and_no_more(made: Comparison) -> None:
    for one in made.results:
        method = one.job.contender
        if isinstance(method, Method):
            assert 9.98 < method.spent(one.job.cell, one.search.best.point) <= 10 * (1 + 1e-9), one.label


def test_the_runs_own_account_agrees(made: Comparison) -> None:
    """Not the fitting's: that of the run."""
    pure = [one for one in made.results if one.job.cell.task.track == PURE]
    for one in pure:
        method = one.job.contender
        if not isinstance(method, Method):
            continue
        prepared = method.prepared(one.job.cell, one.search.best.point, 1)
        assert not isinstance(prepared, Unsupported)
        again = PreparedRun.of(prepared.experiment)
        spent = again.account().epsilon(again.experiment.run.rounds)
        assert not isinstance(spent, Unsupported)
        assert spent.value is not None
        assert 9.98 < spent.value <= 10 * (1 + 1e-9)


def test_nobody_is_dropped_in_silence(made: Comparison) -> None:
    names = set(NAMES)
    for task in PLAN.tasks:
        there = {one.label for one in made.results if one.job.cell.task == task and not one.reference}
        left_out = {one.label: one.reason for one in made.left_out if one.task == task}
        assert there | set(left_out) == names
        assert "no (ε, δ_dp) here accounts for" in left_out["privsgp-vr"]
        gaussian = {"wang-basar", "diff2", "decor"}
        assert gaussian <= (set(left_out) if task.track == PURE else there)


def test_every_algorithm_takes_part_or_says_why_not() -> None:
    reasons = {one.label: one.refusal(Task(DATA, "normal", PURE)) for one in methods()}
    refused = {label for label, reason in reasons.items() if reason}
    assert refused == {"privsgp-vr", "wang-basar", "diff2", "decor", "gradient-tracking"}
    assert reasons["gradient-tracking"] == "with noise it is diadsp, which is compared"


@pytest.mark.parametrize("name", ["dpp3", "decor", "diff2", "wang-basar", "dgd", "dpp2"])
def test_a_large_epsilon_is_kept_by_everybody_and_the_samplers_tail_with_it(name: str) -> None:
    """Gaussian words are as finite as Laplace's: who cannot spend all of ε spends less, and is not left out."""
    (method,), cell = methods([name]), Cell(Task(DATA, "zero", APPROXIMATE), 1000.0)
    prepared = method.prepared(cell, tuple(0.5 for _ in method.axes(cell.task)), 1)
    assert not isinstance(prepared, Unsupported)
    experiment, bounds = prepared.experiment, laboratory(DATA).bounds
    found = experiment.algorithm.accounts(experiment, bounds.dimension, bounds.adjacency, bounds.smoothness)
    assert not isinstance(found, Unsupported)
    assert max(one.log2_delta(experiment.run.rounds) for one in found) <= math.log2(APPROXIMATE.delta)
    assert 1 < method.spent(cell, tuple(0.5 for _ in method.axes(cell.task))) <= 1000 * (1 + 1e-9)


def test_what_wins_at_one_epsilon_is_tried_at_the_others() -> None:
    effort = replace(EFFORT, first=32)  # a quick look makes no exchange
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,), epsilons=(1.0, 10.0, 100.0), effort=effort)
    found = [one for one in compare(plan, executor="processes:1").results if one.label == "dmsp"]
    for one in found:
        assert one.search.exchanged
        assert all(found.search.runs == effort.runs(found.search.waves, others=2) for found in one.found)
        tried = {tried.point for tried in one.search.tried}
        assert all(len(tried & {other.point for other in two.search.tried}) >= 1 for two in found)


def test_every_reference_is_in_every_cell(made: Comparison) -> None:
    for cell in made.cells:
        assert {one.label for one in REFERENCES} <= {one.label for one in made.within(cell)}


def test_every_method_of_a_cell_had_as_many_runs(made: Comparison) -> None:
    for cell in made.cells:
        runs = {found.search.runs for one in made.within(cell) if one.settings for found in one.found}
        assert len(runs) == 1
        assert runs.pop() >= EFFORT.runs(EFFORT.waves)
        assert {len(one.found) for one in made.within(cell)} == {PLAN.searches}


def test_everybody_starts_where_the_reference_stays() -> None:
    """With one round and the smallest step, a method ends where it started."""
    for start in ("zero", "normal"):
        task = Task(DATA, start, PURE)
        stay = next(one for one in REFERENCES if one.label == "stay").ended(Cell(task, 10.0), (), 5)
        (method,) = methods(["yi"])
        ended = method.ended(Cell(task, 1e9), (-3.0, 0.0, 0.0, 1.0, 0.0), 5)
        assert ended is not None
        np.testing.assert_allclose(ended, stay, atol=1e-6)


def test_tuning_and_reporting_share_no_seed(made: Comparison) -> None:
    for one in made.results:
        if one.settings and one.search.best.gaps[0] != one.search.best.gaps[-1]:
            assert not set(one.search.best.gaps) & set(one.of("gap").tolist())


def test_no_two_searches_share_a_random_number(made: Comparison) -> None:
    """Of one comparison, or of two with different seeds; what they report on is the same for all of one comparison."""
    jobs = [replace(made.results[0].job, seed=seed, number=number) for seed in (1, 2) for number in (0, 1)]
    assert len({job.stream for job in jobs}) == 4
    everywhere = slice(1, EFFORT.first)  # after its defaults, which every search tries
    for one in made.results:
        if not one.reference:
            first, second = ({tried.point for tried in found.search.tried[everywhere]} for found in one.found)
            assert first.isdisjoint(second)


def test_the_report_is_of_the_search_that_was_tuned_best(made: Comparison) -> None:
    for one in made.results:
        assert one.search.best.score == min(found.search.best.score for found in one.found)


def test_winners_are_exchanged_along_epsilon_tracks_and_starts() -> None:
    plan = Plan((DATA,), PLAN.methods)
    cell = Cell(Task(DATA, "zero", PURE), 10.0)
    near = plan.near(cell)
    assert {one.epsilon for one in near if one.task == cell.task} == {0.1, 1.0, 100.0, 1000.0}
    assert {(one.task.start, one.task.track, one.epsilon) for one in near if one.task != cell.task} == {
        ("zero", APPROXIMATE, 10.0),
        ("normal", PURE, 10.0),
    }
    assert {one.task.start for one in plan.near(Cell(cell.task, 1000.0))} == {"zero"}


def test_many_rounds_need_less_noise_for_an_approximate_epsilon() -> None:
    """A pure ε is an (ε, δ_dp), and over 64 rounds of constant noise zCDP asks for less."""
    (method,) = methods(["dgd"])
    scales = []
    for track in TRACKS:
        prepared = method.prepared(Cell(Task(DATA, "zero", track), 1.0), (0.5, 0.0, 1.0, 1.0), 1)
        assert not isinstance(prepared, Unsupported)
        scales.append(prepared.experiment.setting("noise.u_x"))
    assert scales[1] < 0.8 * scales[0]


def test_the_curator_adds_an_nth_of_the_noise() -> None:
    """Without any noise it descends; at a small ε it may not move far."""
    task, curator = Task(DATA, "zero", APPROXIMATE), Curator()
    lab = laboratory(DATA)
    gaps = {}
    for epsilon in (0.01, 1e6):
        x = curator.ended(Cell(task, epsilon), (0.5, 0.8, 0.0, 0.0, 0.0), 3)
        gaps[epsilon] = lab.gap(x)[0]
    assert gaps[1e6] < 0.1 * lab.gap(np.zeros((6, 3)))[0]
    assert gaps[0.01] > gaps[1e6]


def test_no_privacy_is_the_optimum(made: Comparison) -> None:
    for one in made.results:
        if one.label == "no privacy":
            assert one.mean("excess") == 0
            assert one.mean("gap") < 1e-8
        assert one.of("excess").min() > -1e-9


@pytest.mark.parametrize("executor", ["processes:2"])
def test_workers_do_not_change_a_comparison(executor: str) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp", "dpp2-damped"])), tracks=(PURE,))
    one, two = (compare(plan, executor=kind) for kind in ("processes:1", executor))
    assert page.csv_text(one) == page.csv_text(two)
    assert json_text(page.document(one, Rankings(one))) == json_text(page.document(two, Rankings(two)))


def test_what_is_kept_is_not_run_again_and_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,))
    first = compare(plan, kept=tmp_path, executor="processes:1")
    files = sorted(tmp_path.iterdir())
    files[0].unlink()  # as if it had been stopped before this one
    files[1].write_text("{")  # or as if somebody had damaged it
    again = compare(plan, kept=tmp_path, executor="processes:1")
    monkeypatch.setattr(Method, "ended", lambda *_: pytest.fail("a finished run was made again"))
    kept = compare(plan, kept=tmp_path, executor="processes:1")
    assert page.csv_text(first) == page.csv_text(again) == page.csv_text(kept)
    assert not list(tmp_path.glob(".*"))


def test_damaged_work_is_done_again(tmp_path: Path) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,))
    first = page.csv_text(compare(plan, kept=tmp_path, executor="processes:1"))
    damages = ("[]", "{}", "[" * 200_000, '{"tried": 1, "outcomes": 2}', None)
    for path, damage in zip(sorted(tmp_path.iterdir()), itertools.cycle(damages), strict=False):
        path.unlink()
        os.mkfifo(path) if damage is None else path.write_text(damage)
    assert page.csv_text(compare(plan, kept=tmp_path, executor="processes:1")) == first


def test_two_comparisons_do_not_share_a_folder(tmp_path: Path, dpp2: Call) -> None:
    out = tmp_path / "out"
    with folder_alone(out):
        ended = dpp2("compare", "--out", out)
    assert ended.code == 2
    assert "a directory that no other command is using: one is at work there now" in ended.err
    assert not out.exists()  # nothing came into it


def test_a_method_in_a_file_is_kept_by_its_content(tmp_path: Path) -> None:
    task = Task(DATA, "zero", PURE)
    keys = []
    for folder, source in (("one", OWN), ("two", OWN), ("three", OWN.replace("0.2", "0.3"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(source)
        (method,) = methods([str(tmp_path / folder / "mine.py")])
        keys.append(Job(Cell(task, 1.0), method, EFFORT, 1, 1).key)
    assert keys[0] == keys[1] != keys[2]


def test_work_is_kept_by_the_code_that_makes_numbers_and_not_by_that_which_tells_them() -> None:
    names = {path.name for path in makers()}
    assert {"fair.py", "search.py", "dgd.py", "account.py", "logistic.py", "embedded.py"} <= names
    assert not {"page.py", "verdicts.py", "pictures.py", "claims.py"} & names


def test_progress_ends_at_the_end_and_counts_what_is_kept_as_done(tmp_path: Path) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,))
    for fresh in (True, False):
        seen: list[tuple[int, int]] = []
        compare(plan, kept=tmp_path, executor="processes:1", progress=lambda *at, seen=seen: seen.append(at[:2]))
        assert (seen[0][0] == 0) is fresh
        assert seen[-1][0] == seen[-1][1]
        assert seen == sorted(seen)


def test_what_it_cost_is_kept_with_it(tmp_path: Path) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,))
    first, again = (compare(plan, kept=tmp_path, executor="processes:1").seconds for _ in range(2))
    assert again == first > 0


def test_another_seed_is_another_comparison(tmp_path: Path) -> None:
    plan = replace(PLAN, methods=tuple(methods(["dmsp"])), tracks=(PURE,))
    one, two = (compare(replace(plan, seed=seed), kept=tmp_path, executor="processes:1") for seed in (1, 2))
    assert page.csv_text(one) != page.csv_text(two)


def test_everything_is_written(made: Comparison, tmp_path: Path) -> None:
    paths = page.write(made, tmp_path, "dpp2 compare")
    with paths["table"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == PLAN.seeds * len(made.results)
    assert float(rows[0]["gap"]) == made.results[0].outcomes[0].gap
    document = json.loads(paths["numbers"].read_text())
    assert {one["method"] for one in document["results"]} == {one.label for one in made.results}
    text = paths["page"].read_text()
    assert all(one.reason.split(";")[0] in text for one in made.left_out)
    assert text.startswith("# Comparison with other methods\n\n**Is DPP² best at the same ε? ")
    assert "](privacy.md)" not in text  # this page is not beside it
    assert "see what is private (docs/privacy.md)." in text
    for picture in ("compare-small.png",):
        assert f"figures/{picture}" in text
        assert (tmp_path / "figures" / picture).read_bytes().startswith(b"\x89PNG")
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1


def test_links_stay_where_the_pages_are(tmp_path: Path) -> None:
    (tmp_path / "python.md").write_text("")
    text = "see [Python](python.md) and [what is private](privacy.md), ![a picture](figures/a.png)"
    assert page.linked(text, tmp_path) == (
        "see [Python](python.md) and what is private (docs/privacy.md), ![a picture](figures/a.png)"
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 second"), (60, "60 seconds"), (100, "2 minutes"), (2460, "41 minutes")]
)
def test_minutes_are_counted_as_people_count(seconds: float, said: str, made: Comparison) -> None:
    text = "\n".join(page.paragraphs(replace(made, seconds=seconds), Rankings(made), "dpp2 compare"))
    assert f" in {said} of one processor;" in text


def test_the_answer_begins_with_one_sentence_that_the_numbers_carry(made: Comparison) -> None:
    first, *others = verdicts.answer(made, Rankings(made))
    factors = [one.factor for one in verdicts.standings(made, Rankings(made))]
    above = sum(factor > 1 for factor in factors)
    assert above
    said = "No" if above == len(factors) else "Not everywhere"
    assert first.startswith(
        f"**Is DPP² best at the same ε? {said}: in {above} of {len(factors)} cells some other method"
    )
    assert len(first.split()) < 30
    assert max(len(one.split()) for one in others) < 100


def test_the_answer_is_true_where_dpp2_wins(made: Comparison) -> None:
    """The same numbers, with the methods that end lower taken out."""
    lowest = {one.cell: one.own for one in verdicts.standings(made, Rankings(made))}
    kept = [
        one
        for one in made.results
        if one.reference or one.papers_own or verdicts.typical(one) > verdicts.typical(lowest[one.job.cell])
    ]
    alone = replace(made, results=tuple(kept))
    first, *others = verdicts.answer(alone, Rankings(alone))
    assert re.match(
        r"\*\*Is DPP² best at the same ε\? Yes: in (\d+) of \1 cells? no other method has a lower mean\.\*\*", first
    )
    assert not any(said.startswith("Why:") or "Methods that win" in said for said in others)


def test_a_row_that_stands_upright_says_what_its_cells_have(made: Comparison) -> None:
    text = "\n\n".join(page.paragraphs(made, Rankings(made), "dpp2 compare"))
    assert "| method: gap Ŵ; F(x̄) − F*; rounds K | ε = 10 |" in text


def test_bundled_data_have_what_the_page_promises() -> None:
    found = {data.name: laboratory(data) for data in bundled()}
    assert [*found] == ["paper", "planted", "breast-cancer", "digits"]
    x = np.full((10, found["digits"].objective.dimension), 1.0)
    assert 0 < found["digits"].judged(x).accuracy < 1
    assert math.isnan(found["paper"].judged(np.ones((50, 10))).accuracy)


def test_the_papers_own_variants_differ_in_damping_alone() -> None:
    task = Task(DATA, "zero", PURE)
    plain, damped = ({axis.name for axis in one.axes(task)} for one in methods(["dpp2", "dpp2-damped"]))
    assert damped - plain == {"algorithm.damping"}
    assert plain < damped
    assert all(one.algorithm in ALGORITHMS.names for one in methods())


def test_command_prints_one_document_for_a_file(tmp_path: Path, dpp2: Call) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    words = ("--algorithms", "dmsp,wang-basar", "--epsilon", "10", "--seeds", 2, "--evaluations", 28, "--searches", 1)
    out = ("--executor", "processes:1", "--out", tmp_path / "out", "--json")
    ended = dpp2("compare", tmp_path / "mine.toml", *words, *out)
    printed = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert {one["data"] for one in printed["results"]} == {"mine"}
    assert {one["method"] for one in printed["left_out"]} == {"wang-basar"}
    assert Path(printed["files"]["page"]).read_text().count("`dpp2 compare mine.toml --algorithms dmsp,wang-basar") == 1


def test_a_researchers_own_method_is_searched_like_any_other(tmp_path: Path, dpp2: Call) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    (tmp_path / "own.py").write_text(OWN)
    words = (
        "--algorithms",
        f"dgd,{tmp_path / 'own.py'}",
        "--epsilon",
        "10",
        "--seeds",
        2,
        "--evaluations",
        28,
        "--searches",
        1,
    )
    out = ("--executor", "processes:1", "--out", tmp_path / "out", "--json")
    ended = dpp2("compare", tmp_path / "mine.toml", *words, *out)
    assert ended.code == 0
    found = {one["method"]: one for one in json.loads(ended.out)["results"] if one["track"] == "pure"}
    assert set(found["descent"]["settings"]) == {"algorithm.alpha", "noise.decay", "run.rounds"}
    assert found["descent"]["evaluations"] == found["dgd"]["evaluations"]


def test_what_is_held_against_a_comparison_is_checked_before_the_work(tmp_path: Path, dpp2: Call) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    words = ("--algorithms", "dmsp", "--epsilon", "10", "--seeds", 2, "--evaluations", 28, "--executor", "processes:1")
    first = dpp2("compare", tmp_path / "mine.toml", *words, "--out", tmp_path / "one")
    numbers = tmp_path / "one" / "compare.json"
    assert first.code == 0
    for seed, path in ((1, numbers), (2, tmp_path / "mine.toml"), (2, tmp_path / "missing")):
        refused = dpp2(
            "compare", tmp_path / "mine.toml", *words, "--seed", seed, "--out", tmp_path / "x", "--against", path
        )
        assert refused.code == 2
        assert "--against" in refused.err
    again = dpp2(
        "compare", tmp_path / "mine.toml", *words, "--seed", 2, "--out", tmp_path / "two", "--against", numbers
    )
    assert again.code == 0
    page = (tmp_path / "two" / "comparison.md").read_text()
    assert "A comparison on mine with seed 1, which shares no random number with this one, turns round" in page


def test_data_sets_are_files_or_names() -> None:
    (digits,) = of_files([Path("digits")], load=lambda path: pytest.fail(f"{path} is no file"))
    assert digits == next(one for one in bundled() if one.name == "digits")
    with pytest.raises(BadInput, match="names of their own"):
        of_files([Path("a/mine.toml"), Path("b/mine.toml")], load=lambda path: Experiment.load(overrides=SMALL))


def test_names_of_lines_do_not_overlap() -> None:
    places = pictures.spread([0.0, 0.01, 0.5, 0.52, 0.9, 0.99, 1.0])
    assert np.diff(places).min() > 0.05
    assert (min(places), max(places)) == pytest.approx((0.0, 1.0))
    assert pictures.spread([0.2, 0.6]) == [0.2, 0.6]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithms", "dpp9"], "--algorithms = 'dpp9': expected FILE.py, or one of"),
        (["digit"], "FILE = 'digit': expected a file, or one of breast-cancer, counterexample, damped, digits,"),
        (["--algorithms", "nowhere.py"], "algorithm.path = "),
        (["nowhere.toml"], "FILE = 'nowhere.toml': expected a readable TOML file"),
        (["--algorithms", "dgd,dgd"], "--algorithms = 'dgd,dgd': expected every name once"),
        (["--epsilon", "0"], "--epsilon = '0': expected finite numbers > 0"),
        (["--epsilon", "1,inf"], "--epsilon = '1,inf': expected finite numbers > 0"),
        (["--epsilon", "ten"], "--epsilon = 'ten': expected finite numbers > 0"),
        (["--evaluations", "5"], "--evaluations = 5: expected a whole number ≥ 28"),
        (["--seeds", "99999999999"], "--seeds = 99999999999: expected a whole number from 1 to 1000"),
        (["--seed", "-1"], "--seed = -1: expected a whole number ≥ 0"),
        (["--seeds", "0"], "--seeds = 0: expected a whole number ≥ 1"),
        (["--executor", "threads:3", "--algorithms", "dmsp"], "--executor = 'threads:3': expected processes:N"),
    ],
)
def test_bad_input_of_compare_is_one_sentence(words: list[str], said: str, dpp2: Call) -> None:
    ended = dpp2("compare", *words)
    assert ended.code == 2
    assert ended.err.startswith(f"dpp2: {said}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("name", ["diff2", "wang-basar", "decor", "dpp3", "dpp2"])
def test_an_epsilon_that_no_noise_keeps_is_no_run_and_does_not_end_the_comparison(name: str) -> None:
    """The grid costs something at any scale."""
    (method,), cell = methods([name]), Cell(Task(DATA, "zero", APPROXIMATE), 1e-9)
    answer = method.prepared(cell, tuple(0.9 for _ in method.axes(cell.task)), 1)
    assert isinstance(answer, Unsupported)
    assert "inf" not in answer.reason
