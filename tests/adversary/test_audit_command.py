"""`dpp2 audit` and `dpp2 matrix` as typed: files, tables, one JSON document, and one sentence for bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpp2 import Experiment
from dpp2 import run as dpp2_run
from orchestrator.cli import main
from studies.bench import audit as bench_audit
from studies.bench import core

SETS = (
    "network.topology=ring",
    "network.agents=5",
    "problem.name=least-squares",
    "problem.dimension=3",
    "noise.decay=0.8",
    "run.rounds=60",
)
SETTINGS = [word for one in SETS for word in ("--set", one)]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def calling(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpp2", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return calling


@pytest.fixture
def run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("orchestrator.plots.convergence", lambda result, path: None)
    assert call("run", *SETTINGS, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def test_audit_writes_its_files_and_prints_a_table(call: Call, run: Path) -> None:
    code, out, _ = call("audit", run, "--no-game", "--attack", "three-round", "--attack", "prior")
    assert code == 0
    assert "DID NOT HOLD: x_i hidden by tier one" in out
    assert "three-round" in out
    described = json.loads((run / "audit.json").read_text())
    assert [attack["name"] for attack in described["attacks"]] == ["prior", "three-round"]
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    assert not list(run.glob(".*.part"))


def test_json_is_one_document_and_the_file_says_the_same(call: Call, run: Path) -> None:
    code, out, _ = call(
        "audit", run, "--no-game", "--attack", "telescope", "--attacker", "local", "--agent", 3, "--json"
    )
    assert code == 0
    assert json.loads(out) == json.loads((run / "audit.json").read_text())
    assert json.loads(out)["attacker"] == "local"
    assert json.loads(out)["game"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--attack", "windw"), "did you mean 'window'?"),
        (("--attacker", "nosy"), "one of global, local, neighbour, partial"),
        (("--attacker", "local", "--agent", "5"), "from 0 to 4"),
        (("--attacker", "neighbour", "--agent", "-1"), "from 0 to 4"),
    ],
)
def test_bad_input_is_one_sentence(call: Call, run: Path, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = call("audit", run, "--no-game", *words)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert not (run / "audit.json").exists()


def test_what_is_no_run_is_refused(call: Call, tmp_path: Path) -> None:
    code, _, err = call("audit", tmp_path)
    assert code == 2
    assert "a run directory" in err


def test_matrix_writes_table_picture_and_page(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "matrix"
    code, printed, _ = call(
        "matrix", *SETTINGS, "--attack", "telescope", "--attack", "known-eta", "--out", out, "--json"
    )
    assert code == 0
    assert sorted(file.name for file in out.iterdir()) == ["matrix.html", "matrix.json", "matrix.png"]
    described = json.loads(printed)
    assert described == json.loads((out / "matrix.json").read_text())
    assert len(described["cells"]) == 24


def test_matrix_refuses_a_file_as_its_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    code, _, err = call("matrix", *SETTINGS, "--out", tmp_path / "taken")
    assert code == 2
    assert "a directory, not a file" in err


def test_the_benchmark_measures_every_goal_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """On short runs and few trials: what the figures are is for the benchmark itself to say."""
    monkeypatch.setattr(core, "_REPETITIONS", 1)
    for name, value in {"_LENGTHS": (20, 40, 60), "_TRIALS": 300, "_ONE_BY_ONE": 3}.items():
        monkeypatch.setattr(bench_audit, name, value)
    small = Experiment.load(overrides=[*SETS, "run.rounds=500"])
    accurate = bench_audit.accuracy(dpp2_run(small), dpp2_run(small))
    measured = bench_audit.AuditMeasured(
        bench_audit.attack_times(print),
        bench_audit.game_times(print),
        relay_costs=0.0,  # real nodes: the benchmark itself runs them
        accuracy=accurate,
    )
    found = bench_audit.AUDIT.document(measured)
    assert all(float(str(found[key])) >= 0 for key in bench_audit.GOALS)
    assert measured.times.three_round_times_run > 0
    table = bench_audit.AUDIT.table(measured)
    assert [row[0] for row in table.rows] == [what for what, _ in bench_audit.GOALS.values()]
