"""`dpp2 compare`: equal ε by each method's own accountant, the same tuning for all, the same numbers anywhere."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.algorithms import ALGORITHMS
from dpp2.privacy import Unsupported
from studies.compare import Comparison, Grid, GridPoint, compare, named, of_files, page, tables
from studies.compare.fair import Bounds, Fitted, fitted
from studies.compare.methods import further_settings
from tests.conftest import Call

PROBLEM = Experiment.load(
    overrides={"network.agents": 6, "network.topology": "ring", "problem.dimension": 3, "problem.samples": 20}
).resolve()
GRID = Grid(rounds=(4, 12), decays=(1.0, 0.9), steps=(0.3, 1.0), finalists=2, trials=2)
NO_PURE = ("diff2", "privsgp-vr", "wang-basar")
SMALL = ("--set", "network.agents=6", "--set", "network.topology=ring", "--set", "problem.dimension=3")


@pytest.fixture(scope="module")
def made() -> Comparison:
    return compare(PROBLEM, named(None, PROBLEM), 10.0, grid=GRID, seeds=2, executor="processes:1")


def test_everybody_spends_the_budget_and_no_more(made: Comparison) -> None:
    for entry in made.entries:
        assert entry.epsilon.value == pytest.approx(10.0, rel=1e-9)
        assert entry.epsilon.fits(10.0)
        assert all(one.epsilon[-1] <= 10.0 for one in entry.curves)


def test_the_runs_own_account_agrees(made: Comparison) -> None:
    """Not the fitting's: that of a simulation of the fitted experiment."""
    for entry in made.entries:
        assert Simulation(entry.experiment, record=False).account.epsilon(entry.point.rounds) == entry.epsilon


def test_nobody_is_dropped_in_silence(made: Comparison) -> None:
    known = {*ALGORITHMS.names, "dpp2-damped-1", "dpp2-damped-2"}
    left_out = {one.label: one.reason for one in made.left_out}
    assert {entry.method.label for entry in made.entries} | set(left_out) == known
    assert set(left_out) == set(NO_PURE)
    assert all("Gaussian noise has no pure ε" in reason for reason in left_out.values())


def test_everybody_meets_the_same_problem_from_the_same_starts(made: Comparison) -> None:
    starts = {tuple(one.gap[0] for one in entry.curves) for entry in made.entries}
    assert len(starts) == 1
    assert made.start_gap == pytest.approx(np.mean(starts.pop()))


def test_entries_are_ranked_by_what_was_measured(made: Comparison) -> None:
    means = [entry.mean for entry in made.entries]
    assert means == sorted(means)
    assert tables.sentences(made)[0].startswith(f"{made.entries[0].method.label} ends lowest at ε = 10")


@pytest.mark.parametrize("executor", ["processes:2"])
def test_processes_do_not_change_a_comparison(executor: str) -> None:
    methods = named(["dmsp", "dpp2-damped-1"], PROBLEM)
    grid = replace(GRID, rounds=(4,), steps=(1.0,))
    one, two = (compare(PROBLEM, methods, 10.0, grid=grid, seeds=2, executor=e) for e in ("processes:1", executor))
    assert tables.csv_text(one) == tables.csv_text(two)
    assert tables.document(one) == tables.document(two)


def test_tuning_takes_the_runs_that_it_states() -> None:
    totals: dict[str, int] = {}
    methods = named(["dmsp"], PROBLEM)
    compare(
        PROBLEM,
        methods,
        10.0,
        grid=GRID,
        seeds=1,
        executor="processes:1",
        progress=lambda done, total, note: totals.update({note: total}),
    )
    assert totals == {"tuning": 8, "tuning: the best few": 12, "measuring": 1}
    assert GRID.runs == 8 + 12


def test_tuning_and_measuring_share_no_noise(made: Comparison) -> None:
    """The point that won on the tuning seeds is measured on others: its figures differ from those it won by."""
    from studies.compare.running import Trial, final_gap

    entry = made.entries[0]
    bounds = Bounds.of(PROBLEM)
    tuned = final_gap(Trial(entry.method.at(entry.point), 10.0, bounds, 0x74756E65))
    measured = final_gap(Trial(entry.method.at(entry.point), 10.0, bounds, 1))
    assert measured == pytest.approx(entry.curves[0].final, rel=1e-12)
    assert tuned not in entry.finals


def test_half_the_budget_takes_twice_the_noise() -> None:
    method, bounds = named(["diadsp"], PROBLEM)[0], Bounds.of(PROBLEM)
    point = method.at(GridPoint(10, 0.9, 1.0)).with_setting("noise.grid", 0)  # whose price no scale changes
    once, twice = (fitted(point, budget, bounds) for budget in (10.0, 5.0))
    assert isinstance(once, Fitted)
    assert isinstance(twice, Fitted)
    for name in ("u_x", "u_y"):
        assert getattr(twice.experiment.noise, name) == pytest.approx(2 * getattr(once.experiment.noise, name))


def test_gaussian_noise_is_refused_with_the_accountants_reason() -> None:
    answer = fitted(named(["wang-basar"], PROBLEM)[0].experiment, 10.0, Bounds.of(PROBLEM))
    assert isinstance(answer, Unsupported)


def test_a_smaller_step_of_dpp2_keeps_beta_below_alpha() -> None:
    section = named(["dpp2"], PROBLEM)[0].at(GridPoint(10, 0.9, 0.03)).algorithm.table()
    assert (section["alpha"], section["beta"]) == pytest.approx((0.003, 0.0015))


def test_the_further_setting_is_the_one_that_is_named() -> None:
    settings = further_settings()
    assert len(settings) == 11
    for name, further in settings.items():
        section, _, field = further.key.partition(".")
        factor = further.factors[0] or 0.5
        plain, varied = (named([name], PROBLEM)[0].at(GridPoint(5, 0.9, 1.0, by)) for by in (1.0, factor))
        before, after = (getattr(getattr(one, section), field) for one in (plain, varied))
        assert after == pytest.approx(before * factor), name


def test_files_are_compared_on_one_problem_only() -> None:
    other = Experiment.parse({**PROBLEM.tables(), "algorithm": {"name": "dgd"}, "noise": {}})
    assert [method.label for method in of_files([("a", PROBLEM), ("b", other)])] == ["a (dpp2)", "b (dgd)"]
    elsewhere = replace(other, network=other.network.updated(agents=7))
    with pytest.raises(BadInput, match=r"the same \[network\] as a, but agents differs"):
        of_files([("a", PROBLEM), ("b", elsewhere)])


def test_everything_is_written(made: Comparison, tmp_path: Path) -> None:
    paths = page.write(made, tmp_path)
    with Path(paths["csv"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(2 * (entry.point.rounds + 1) for entry in made.entries)
    assert float(rows[0]["gap"]) == made.entries[0].curves[0].gap[0]
    assert json.loads(Path(paths["json"]).read_text())["tuning"]["runs_per_method"] == GRID.runs
    html = Path(paths["html"]).read_text()
    assert all(one.reason.split(";")[0] in html for one in made.left_out)
    assert "data:image/png;base64," in html
    assert Path(paths["png"]).read_bytes().startswith(b"\x89PNG")


def test_command_prints_one_document(tmp_path: Path, dpp2: Call) -> None:
    words = ("--algorithms", "dmsp,wang-basar", "--rounds", 5, "--seeds", 1, "--executor", "processes:1")
    ended = dpp2("compare", *words, *SMALL, "--out", tmp_path, "--json")
    printed = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert [one["method"] for one in printed["methods"]] == ["dmsp"]
    assert [one["method"] for one in printed["left_out"]] == ["wang-basar"]
    assert printed["methods"][0]["epsilon"] <= 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithms", "dpp9"], "--algorithms = 'dpp9': expected one of"),
        (["--algorithms", "dgd,dgd"], "--algorithms = 'dgd,dgd': expected every name once"),
        (["--epsilon", "0"], "--epsilon = 0.0: expected a finite number > 0"),
        (["--epsilon", "inf"], "--epsilon = inf: expected a finite number > 0"),
        (["--rounds", "0"], "--rounds = 0: expected a whole number ≥ 1"),
        (["--executor", "threads:3", "--algorithms", "dmsp"], "--executor = 'threads:3': expected processes:N"),
    ],
)
def test_bad_input_of_compare_is_one_sentence(words: list[str], said: str, dpp2: Call) -> None:
    ended = dpp2("compare", *words)
    assert ended.code == 2
    assert ended.err.startswith(f"dpp2: {said}")
    assert ended.err.count("\n") == 1
