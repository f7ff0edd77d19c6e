"""A researcher's own method, in a file or in a program: it runs wherever ours do, and its mistakes are one sentence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, algorithm, run
from dpp2.orchestrator.runner import resume, start
from dpp2.privacy import Epsilon, Unsupported
from dpp2.studies.compare.comparison import compare
from dpp2.studies.compare.contenders import Method
from dpp2.studies.compare.plan import Plan
from dpp2.studies.compare.search import Effort
from dpp2.studies.compare.tasks import PURE, DataSet

DESCENT = '''
from dpp2 import algorithm


@algorithm(sends=["xa"], noise={"x": 0.0}, carries_x="xa")
def descent(s, k, own, *, alpha=0.2):
    """x⁺ = W x^a − α ∇f(x)"""
    xa = own.noisy("x", s.x)
    Pxa = yield xa
    return {"x": xa - Pxa - alpha * own.gradient(s.x)}


@descent.account
def cost(agent):
    return agent.step_releases(agent.alpha)


@descent.recovered
def solved(heard, *, alpha):
    m, Pm, after, _ = heard.only()
    return m, (m - Pm - after) / alpha
'''

TRACKING = """
from dpp2 import algorithm


@algorithm(sends=("m", "t"), state=["y", "g"], carries_x="m", carries_gradient="t")
def tracking(s, k, own, *, alpha=0.05):
    Pm = yield s.x
    Pt = yield s.y
    x = s.x - Pm - alpha * s.y
    g = own.gradient(x)
    return {"x": x, "y": s.y - Pt + g - s.g, "g": g}


@tracking.start
def from_gradients(x, own, *, alpha):
    g = own.gradient(x)
    return {"x": x, "y": g, "g": g}
"""

Written = Callable[[str], Path]
SMALL: dict[str, Any] = {
    "network": {"topology": "ring", "agents": 5},
    "problem": {"samples": 10, "dimension": 3},
    "run": {"rounds": 30},
}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(source: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(source)
        return path

    return write


def mine(path: Path, **more: Any) -> Experiment:
    return Experiment(**SMALL, algorithm={"name": "file", "path": str(path), **more})


def small(**algorithm_table: Any) -> Experiment:
    return Experiment(**SMALL, algorithm=algorithm_table)


def test_descent_in_a_file_is_dgd_to_the_bit_and_costs_the_same(written: Written) -> None:
    ours = small(name="dgd", power=0.0).replace(noise={"u_x": 1.0})
    own, built_in = run(mine(written(DESCENT)).replace(noise={"u_x": 1.0})), run(ours)
    # Another digest means other noise, so what is compared is a run without any.
    silent, textbook = run(mine(written(DESCENT))), run(small(name="dgd", power=0.0))
    np.testing.assert_array_equal(silent.x, textbook.x)
    np.testing.assert_array_equal(silent.observation.xa, textbook.observation.xa)
    assert isinstance(own.privacy.epsilon, Epsilon)
    assert own.privacy.epsilon == built_in.privacy.epsilon
    assert any("descent brings along" in note for note in own.privacy.notes)


def test_state_of_its_own_and_no_account(written: Written) -> None:
    result = run(mine(written(TRACKING)).replace(run={"rounds": 400}))
    assert result.metrics.gap[-1] < 1e-12 * result.metrics.gap[0]  # gradient tracking is exact
    assert isinstance(result.privacy.epsilon, Unsupported)
    assert "tracking comes without an account" in result.privacy.epsilon.reason


def test_over_nodes_it_gives_the_same_bytes(written: Written) -> None:
    experiment = mine(written(DESCENT)).replace(noise={"u_x": 1.0})
    apart, here = run(experiment.replace(run={"transport": "grpc"}), processes=2), run(experiment)
    np.testing.assert_array_equal(apart.x, here.x)
    np.testing.assert_array_equal(apart.observation.xa, here.observation.xa)


def test_attackers_know_it(written: Written) -> None:
    audited = run(mine(written(DESCENT))).audit(game=False)
    errors = {one.name: (one.error("x"), one.error("gradient")) for one in audited.findings}
    assert errors["direct"][0] == 0  # no noise, and the message is x
    assert errors["increments"][1] < 1e-9
    assert "telescope" in {one.name for one in audited.skipped}


def test_it_is_compared_at_equal_epsilon(written: Written) -> None:
    path = written(DESCENT)
    method = Method("mine", "file", (("path", str(path)),))
    data = DataSet.of("small", "small", small())
    effort = Effort(first=4, waves=1, around=4, finalists=1, trials=1, more_waves=0)
    plan = Plan((data,), (method,), (10.0,), starts=("zero",), tracks=(PURE,), effort=effort, seeds=2)
    entry = next(one for one in compare(plan, executor="processes:1").results if one.label == "mine")
    assert method.spent(entry.job.cell, entry.search.best.point) == pytest.approx(10.0)


def test_a_resumed_run_refuses_another_program(written: Written, tmp_path: Path) -> None:
    path = written(DESCENT)
    start(mine(path), tmp_path / "run", stem="run", force=False, progress=lambda *_: None)
    longer = resume(tmp_path / "run", ["run.rounds=40"], lambda *_: None)
    assert longer.result.rounds == 40
    written(DESCENT.replace("alpha=0.2", "alpha=0.3"))
    with pytest.raises(BadInput, match=r"algorithm\.path = .*the file has changed"):
        resume(tmp_path / "run", ["run.rounds=50"], lambda *_: None)


def test_the_digest_is_of_the_program_and_not_of_its_place(written: Written, tmp_path: Path) -> None:
    first = mine(written(DESCENT)).resolve()
    (tmp_path / "elsewhere.py").write_text(DESCENT)
    assert mine(tmp_path / "elsewhere.py").resolve().digest == first.digest
    assert mine(written(f"{DESCENT}\n")).resolve().digest != first.digest


def test_paths_are_relative_to_the_experiment_file_and_another_kind_drops_its_keys(
    written: Written, tmp_path: Path
) -> None:
    written(DESCENT)
    file = tmp_path / "own.toml"
    file.write_text('[algorithm]\nname = "file"\npath = "mine.py"\nalpha = 0.3\n[noise]\nu_x = 2.0\n')
    assert Experiment.load(file).algorithm.table()["alpha"] == 0.3
    notes: list[str] = []
    other = Experiment.load(file, ["algorithm.name=dpp2"], note=notes.append)
    assert other.algorithm.table()["alpha"] == 0.3  # which dpp2 has as well
    assert "algorithm.path" in notes[0]
    assert "noise.u_x" in notes[0]


def test_it_can_be_sent_to_another_process(written: Written) -> None:
    experiment = mine(written(DESCENT), alpha=0.1)
    program = "import pickle, sys; from dpp2 import run; print(run(pickle.load(sys.stdin.buffer)).metrics.gap[-1])"
    ended = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(experiment), capture_output=True)
    assert float(ended.stdout) == run(experiment).metrics.gap[-1], ended.stderr


def test_a_method_of_this_program_runs_and_is_audited_here_and_is_refused_elsewhere() -> None:
    @algorithm(noise={"x": 1.0}, carries_x="m")
    def local(s: Any, k: int, own: Any, *, alpha: float = 0.1) -> Any:
        m = own.noisy("x", s.x)
        Pm = yield m
        return {"x": m - Pm - alpha * own.gradient(s.x)}

    experiment = Experiment(**SMALL, algorithm=local(alpha=0.3))
    result = run(experiment.replace(noise={"u_x": 0.0}))
    assert result.experiment.algorithm.table()["alpha"] == 0.3
    assert "direct" in {one.name for one in result.audit(game=False).findings}
    with pytest.raises(BadInput, match="local was defined in this program"):
        run(experiment.replace(run={"transport": "grpc"}))
    with pytest.raises(BadInput, match=r"algorithm\.speed = 1: expected a known key"):
        local(speed=1)


ROUND = "    xa = own.noisy('x', s.x)\n    Pxa = yield xa\n    return {'x': xa - Pxa - alpha * own.gradient(s.x)}\n"
HEAD = "from dpp2 import algorithm\n@algorithm(noise={'x': 1.0})\ndef own_way(s, k, own, *, alpha=0.1):\n"
BROKEN = {
    "syntax": ("def (", "a Python file that can be loaded (SyntaxError"),
    "none": ("x = 1", "a Python file with a function under @algorithm: at least one"),
    "two": (HEAD + ROUND + (HEAD + ROUND).replace("own_way", "other"), "one of own_way, other as algorithm.function"),
    "no generator": (HEAD + "    return {'x': s.x}\n", "a generator function (s, k, own, *, alpha=…)"),
    "no parameters": (HEAD.replace(", *, alpha=0.1", "") + ROUND, "at least one parameter, such as a step"),
    "taken": (HEAD.replace("noise=", "sends=['grad'], noise=") + ROUND, "names of their own: not x, grad, values"),
    "a field": (HEAD.replace("alpha=0.1", "step=0.1") + ROUND, "another name for the parameter step"),
    "one message less": (HEAD.replace("noise=", "sends=['a', 'b'], noise=") + ROUND, "a message b from own_way"),
    "one message more": (HEAD + "    yield s.x\n" + ROUND, "1 yields in a round of own_way"),
    "shape": (HEAD + ROUND.replace("yield xa", "yield xa[0]"), "the message m of shape (n, d) = (3, 4)"),
    "state": (HEAD + ROUND.replace("{'x':", "{'y':"), "a state {x} at the end of a round, not ['y']"),
    "other rows": (HEAD + ROUND.replace("xa - Pxa", "xa.mean(axis=0) - Pxa"), "depends on other rows here"),
    "in place": (HEAD + "    s.x += 1\n" + ROUND, "read-only) in mine.py, line 4"),
    "fails": (
        HEAD + "    1 / 0\n" + ROUND,
        "a round that runs (ZeroDivisionError: division by zero) in mine.py, line 4",
    ),
    "twice": (HEAD + ROUND.replace("yield xa", "yield own.noisy('x', s.x)"), "noise 'x' once a round"),
    "no such noise": (HEAD + ROUND.replace("'x', s.x", "'y', s.x"), "a noise that @algorithm names, not 'y'"),
    "late": (
        HEAD + "    m = yield s.x\n    return {'x': own.noisy('x', m)}\n@own_way.account\ndef cost(agent): pass\n",
        "noise 'x' before the first yield, where there is an account",
    ),
    "runs itself": (HEAD + ROUND + "from dpp2 import run\nrun()\n", 'under `if __name__ == "__main__":`'),
}


@pytest.mark.parametrize(("source", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_with_it_is_one_sentence(written: Written, source: str, said: str) -> None:
    path = written(source)
    with pytest.raises(BadInput) as refused:
        mine(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_account_of_a_kind_that_no_ledger_knows_is_refused(written: Written) -> None:
    path = written(DESCENT.replace("agent.step_releases(agent.alpha)", "3.0"))
    with pytest.raises(BadInput, match=r"releases \(dpp2\.privacy\) as an account, not a float"):
        run(mine(path))


def test_parameters_are_checked_like_all_others(written: Written) -> None:
    path = written(DESCENT)
    with pytest.raises(BadInput, match=r"algorithm\.alpha = 'fast': expected a number \(default: 0\.2\)"):
        mine(path, alpha="fast")
    with pytest.raises(BadInput, match=r"did you mean 'alpha'"):
        mine(path, alfa=0.1)
    with pytest.raises(BadInput, match=r"algorithm\.path = nothing: expected the path of a Python file"):
        small(name="file")
    with pytest.raises(BadInput, match=r"algorithm\.path = .*a readable file \(No such file or directory\)"):
        mine(path.with_name("none.py"))
