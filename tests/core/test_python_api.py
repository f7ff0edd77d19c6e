"""`from dpp2 import Experiment, run`: objectives as plain objects, and results that can be looked at, kept and sent."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpp2 import BadInput, Experiment, Records, Result, run
from dpp2.experiment import RunSection
from dpp2.topology import Ring

Vector = NDArray[np.float64]
SMALL: dict[str, Any] = {"network": {"topology": "ring", "agents": 5}, "run": {"rounds": 40}}
ROOT = Path(__file__).parents[2]


class Bowl:
    """½‖x − c‖²"""

    dimension, smoothness = 3, 1.0

    def __init__(self, centre: float) -> None:
        self.centre = centre

    def value(self, x: Vector) -> float:
        return float(0.5 * ((x - self.centre) ** 2).sum())

    def gradient(self, x: Vector) -> Vector:
        return x - self.centre


def both(centre: float) -> Callable[[Vector], tuple[float, Vector]]:
    return lambda x: (float(0.5 * ((x - centre) ** 2).sum()), x - centre)


def value(centre: float) -> Callable[[Vector], float]:
    return lambda x: float(0.5 * ((x - centre) ** 2).sum())


@pytest.fixture(scope="module")
def result() -> Result:
    return run(Experiment(**SMALL))


# --- experiments --------------------------------------------------------------------------------------------------


def test_an_experiment_without_arguments_is_the_papers() -> None:
    assert Experiment() == Experiment.load()
    assert Experiment(run=RunSection(rounds=3), network=Ring(agents=4)).network.topology == "ring"


def test_replace_changes_what_is_named_and_drops_what_a_new_kind_does_not_have() -> None:
    first = Experiment(algorithm={"damping": 1.0}, noise={"u_w": 2.0, "decay": 0.5}, **SMALL)
    second = first.replace(["run.rounds=7"], algorithm={"name": "dgd"})
    assert (second.run.rounds, second.algorithm.name, second.network) == (7, "dgd", first.network)
    assert second.noise.table()["decay"] == 0.5
    assert first.replace({"noise.u_w": 3.0}).noise.table()["u_w"] == 3.0
    with pytest.raises(BadInput, match=r"run\.round = 3: expected a known key.*did you mean 'rounds'"):
        first.replace(run={"round": 3})
    with pytest.raises(BadInput, match="run = 3: expected a table of keys and values"):
        Experiment(run=3)  # type: ignore[arg-type]


def test_replace_does_not_fix_what_was_left_open() -> None:
    """A radius of one's own would refuse a graph that is not connected, and the default is redrawn."""
    assert not Experiment().replace(network={"agents": 10}).network.given("radius")


# --- objectives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Bowl, both, value], ids=["objects", "pairs", "values"])
def test_objectives_of_any_form_lead_to_the_same_optimum(kind: Callable[[float], Any]) -> None:
    dimension = None if kind is Bowl else 3
    experiment = Experiment(run={"rounds": 400}, network={"topology": "ring"}, noise={"u_w": 0.0, "u_e": 0.0})
    experiment = experiment.replace(algorithm={"damping": 1.0})
    result = run(experiment, objectives=[kind(c) for c in range(5)], dimension=dimension)
    np.testing.assert_allclose(result.x, np.full((5, 3), 2.0), atol=1e-4)
    assert result.experiment.network.agents == 5


def test_the_same_objectives_give_the_same_run_and_others_another() -> None:
    first, again, other = (run(Experiment(**SMALL), objectives=[Bowl(c + n) for c in range(5)]) for n in (0, 0, 1))
    np.testing.assert_array_equal(first.x, again.x)
    assert first.run_id == again.run_id != other.run_id


def test_what_is_wrong_with_objectives_is_one_sentence_with_file_and_line() -> None:
    def fails(x: Vector) -> float:
        return float(1 / (x[0] * 0))

    with (
        pytest.raises(
            BadInput, match=r"objectives = 'objectives\[0\]': .*\) in test_python_api\.py, line \d+"
        ) as error,
        np.errstate(divide="raise"),
    ):
        run(objectives=[fails, fails], dimension=2)
    assert isinstance(error.value.__cause__, FloatingPointError)
    with pytest.raises(BadInput, match=r"run\(…, dimension=d\) beside plain functions"):
        run(objectives=[fails, fails])
    with pytest.raises(BadInput, match=r"objectives = '3 of them': expected 5, as network\.agents says"):
        run(Experiment(**SMALL), objectives=[Bowl(1), Bowl(2), Bowl(3)])
    with pytest.raises(BadInput, match="a method gradient"):
        run(objectives=[type("Half", (), {"value": lambda self, x: 0.0})()] * 3)
    with pytest.raises(BadInput, match="objects of this program"):
        run(
            Experiment(**SMALL, algorithm={}).replace(run={"transport": "grpc"}), objectives=[Bowl(c) for c in range(5)]
        )


def test_metrics_of_ones_own_become_columns() -> None:
    objectives = [Bowl(c) for c in range(5)]
    distance = {"distance": lambda x: np.abs(x - 2).max(), "first": lambda x: x[0, 0]}
    kept = run(Experiment(**SMALL), objectives=objectives, metrics=distance)
    bare = run(Experiment(**SMALL), objectives=objectives, metrics=distance, record=False)
    np.testing.assert_array_equal(kept.metrics.first, [*kept.truth.x[:, 0, 0], kept.x[0, 0]])
    np.testing.assert_array_equal(kept.metrics.distance, bare.metrics.distance)
    with pytest.raises(BadInput, match="metrics = 'gap': expected a word of your own"):
        run(metrics={"gap": lambda x: 0.0})
    with pytest.raises(BadInput, match=r"metrics = 'bad': expected a function .*KeyError: 'no'\) in test_python"):
        run(Experiment(**SMALL), metrics={"bad": lambda x: {"yes": 1.0}["no"]})


def test_a_problem_file_may_report_on_the_solution(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    bowl = (
        "class B:\n    dimension = 2\n    def value(self, x): return x @ x / 2\n    def gradient(self, x): return x\n"
    )
    path.write_text(f"{bowl}def objective(i, n): return B()\ndef report(x): return {{'size': abs(x).max()}}\n")
    experiment = Experiment(**SMALL, problem={"name": "file", "path": str(path)})
    result = run(experiment)
    assert result.report["size"] == np.abs(result.x.mean(axis=0)).max()
    path.write_text(f"{bowl}def objective(i, n): return B()\ndef report(x): return {{'size': 'large'}}\n")
    with pytest.raises(BadInput, match="a dict of names and numbers from report"):
        run(experiment)


# --- transports ---------------------------------------------------------------------------------------------------


def test_grpc_really_runs_over_nodes_and_leaves_nothing_behind() -> None:
    experiment = Experiment(**SMALL)
    apart, here = run(experiment.replace(run={"transport": "grpc"}), processes=2), run(experiment)
    assert apart.experiment.run.transport == "grpc"
    np.testing.assert_array_equal(apart.x, here.x)
    with pytest.raises(BadInput, match=r"processes = 2: expected run\.transport = grpc beside it"):
        run(experiment, processes=2)
    with pytest.raises(BadInput, match="record = False"):
        run(experiment.replace(run={"transport": "grpc"}), record=False)


async def test_within_an_event_loop_it_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="from outside of a running event loop"):
        run(Experiment(**SMALL).replace(run={"transport": "grpc"}))


def test_out_keeps_a_run_directory(tmp_path: Path) -> None:
    kept = run(Experiment(**SMALL), out=tmp_path / "kept")
    assert (tmp_path / "ledger.sqlite").is_file()
    np.testing.assert_array_equal(Result.load(tmp_path / "kept").x, kept.x)
    with pytest.raises(BadInput, match="a new or empty directory"):
        run(Experiment(**SMALL), out=tmp_path / "kept")


# --- results ------------------------------------------------------------------------------------------------------


def same(first: Result, second: Result) -> None:
    for name in ("x", "run_id", "seconds", "report", "conditions", "privacy", "divergence"):
        np.testing.assert_equal(getattr(first, name), getattr(second, name))
    for name in ("metrics", "observation", "truth"):
        mine, theirs = getattr(first, name), getattr(second, name)
        assert list(mine) == list(theirs)
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])
            assert not theirs[key].flags.writeable


def test_results_can_be_copied_and_sent(result: Result) -> None:
    for other in (copy.deepcopy(result), copy.copy(result), pickle.loads(pickle.dumps(result))):
        same(result, other)
        assert other.experiment == result.experiment
    with pytest.raises(AttributeError, match="no array 'nothing' here, only a"):
        _ = Records({"a": np.zeros(1)}).nothing


def test_results_of_plain_functions_can_be_sent_too() -> None:
    result = run(Experiment(**SMALL), objectives=[both(c) for c in range(5)], dimension=3)
    program = "import pickle, sys; r = pickle.load(sys.stdin.buffer); print(r.x[0, 0]); r.experiment.objective()"
    ended = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(result), capture_output=True)
    assert float(ended.stdout) == result.x[0, 0]
    assert b"run(objectives=" in ended.stderr  # they cannot be run again there, and that is said


def test_saved_and_loaded_they_are_the_same(result: Result, tmp_path: Path) -> None:
    same(result, Result.load(result.save(tmp_path / "a")))
    diverged = run(Experiment(**SMALL, problem={"name": "quadratic", "curvature": -1.0}), record=False)
    assert diverged.diverged
    same(diverged, Result.load(diverged.save(tmp_path / "b")))
    with pytest.raises(BadInput, match="a new or empty directory"):
        result.save(tmp_path / "a")
    assert result.save(tmp_path / "a", force=True) == tmp_path / "a"
    (tmp_path / "a" / "result.json").write_text("{")
    with pytest.raises(BadInput, match=r"a finished run of this version, with result\.json"):
        Result.load(tmp_path / "a")


def test_they_say_what_they_are(result: Result) -> None:
    assert repr(result).startswith("Result(run dpp2 on logistic, network ring, 5 agents, rounds 40, gap ")
    assert len(repr(result)) < 160
    assert "<th>gap</th>" in result._repr_html_()


def test_they_are_drawn(result: Result) -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    assert result.plot(axes) is axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), result.metrics.gap)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_metrics_become_a_frame(result: Result, library: Any) -> None:
    frame = result.to_frame(library)
    assert list(frame.columns) == list(result.metrics)
    assert frame.shape == (41, 7)
    assert list(frame["gap"]) == result.metrics.gap.tolist()
    with pytest.raises(BadInput, match="library = 'excel': expected pandas or polars"):
        result.to_frame("excel")  # type: ignore[arg-type]


def test_a_frame_without_its_library_says_how_to_get_it(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that fit a clone as well as an installed package."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        BadInput, match=r"library = 'pandas': expected a library that is installed: pip install pandas$"
    ):
        result.to_frame()


def test_they_are_audited(result: Result, tmp_path: Path) -> None:
    audited = result.audit(["direct", "three-round"], game=False, page=tmp_path / "report.html")
    assert {one.name for one in (*audited.findings, *audited.skipped)} == {"direct", "three-round"}
    assert "three-round" in (tmp_path / "report.html").read_text()
    with pytest.raises(BadInput, match=r"attacks = 'tree-round'.*did you mean 'three-round'"):
        result.audit(["tree-round"])
    with pytest.raises(BadInput, match="a run with record=True"):
        run(Experiment(**SMALL), record=False).audit()


def test_audits_know_objectives_of_this_program() -> None:
    result = run(Experiment(**SMALL), objectives=[Bowl(c) for c in range(5)])
    assert result.audit(["direct"], game=False).verdicts[-1].evidence.startswith("ε = ")


def test_a_shipped_experiment_runs_by_its_name_and_a_file_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[run]\nrounds = 4\n[network]\ntopology = "ring"\nagents = 3\n')
    assert run("counterexample").diverged
    for file in (tmp_path / "mine.toml", str(tmp_path / "mine.toml")):
        assert run(file).observation.y.shape == (4, 3, 10)
    with pytest.raises(BadInput, match=r"FILE = 'nope': expected a file, or one of "):
        run("nope")


def test_what_is_no_experiment_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"experiment = 3: expected an Experiment, a TOML file or the name of a shipped"):
        run(3)  # type: ignore[arg-type]
