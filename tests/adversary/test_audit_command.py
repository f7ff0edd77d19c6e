"""`dpp2 audit` and `dpp2 matrix` as typed: files, tables, one JSON document, and one sentence for bad input."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpp2 import Experiment
from dpp2 import run as dpp2_run
from dpp2.orchestrator.cli import main
from dpp2.studies.bench import audit as bench_audit
from dpp2.studies.bench import timing

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
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda result, path: None)
    assert call("run", *SETTINGS, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def test_audit_writes_its_files_and_prints_a_table(call: Call, run: Path) -> None:
    code, out, _ = call("audit", run, "--no-game", "--attack", "three-round", "--attack", "prior")
    assert code == 0
    assert "DID NOT HOLD: x_i hidden by tier one" in out
    assert "three-round" in out
    folder = run / "audit-global-prior-three-round-no-game"
    described = json.loads((folder / "audit.json").read_text())
    assert [attack["name"] for attack in described["attacks"]] == ["prior", "three-round"]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert not list(folder.glob(".*.part"))


def test_json_is_one_document_and_the_file_says_the_same(call: Call, run: Path) -> None:
    code, out, _ = call(
        "audit", run, "--no-game", "--attack", "telescope", "--attacker", "local", "--agent", 3, "--json"
    )
    assert code == 0
    assert json.loads(out) == json.loads((run / "audit-local-3-telescope-no-game" / "audit.json").read_text())
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
    monkeypatch.setattr(timing, "REPETITIONS", 1)
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


QUICK = ("--no-game", "--attack", "three-round")


def test_only_the_whole_audit_has_the_runs_own_report(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weaker attacker who came first would be taken for all that can be said."""
    monkeypatch.setattr("dpp2.adversary.game_result._MOST_TRIALS", 2_000)
    code, out, _ = call("audit", run, *QUICK, "--attacker", "local", "--agent", 3)
    folder = run / "audit-local-3-three-round-no-game"
    assert code == 0
    assert str(folder / "audit.json") in out
    assert json.loads((folder / "audit.json").read_text())["attacker"] == "local"
    assert (folder / "report.html").is_file()
    assert not (run / "audit.json").exists()
    assert not (run / "report.html").exists()
    narrow = (folder / "audit.json").read_bytes()
    assert call("audit", run)[0] == 0
    assert json.loads((run / "audit.json").read_text())["asked"] == "global"
    assert (run / "report.html").is_file()
    assert (folder / "audit.json").read_bytes() == narrow


def test_the_same_audit_takes_the_place_of_the_one_before(call: Call, run: Path) -> None:
    call("audit", run, *QUICK)
    page = run / "audit-global-three-round-no-game" / "report.html"
    page.write_text("old")
    assert call("audit", run, *QUICK)[0] == 0
    assert page.read_text() != "old"
    assert len(list(run.glob("audit-*"))) == 1


def test_out_says_where_an_audit_goes(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("audit", run, *QUICK, "--out", tmp_path / "deep" / "here")[0] == 0
    assert sorted(file.name for file in (tmp_path / "deep" / "here").iterdir()) == ["audit.json", "report.html"]
    assert not (run / "audit.json").exists()


def test_an_agent_that_is_not_there_is_refused_whoever_listens(call: Call, run: Path) -> None:
    code, _, err = call("audit", run, *QUICK, "--agent", 99)
    assert (code, err) == (2, "dpp2: --agent = 99: expected a whole number from 0 to 4\n")
    assert not (run / "audit.json").exists()


@pytest.mark.parametrize("name", ["observation.npz", "truth.npz"])
def test_records_of_another_run_are_refused_although_they_have_the_same_shape(
    call: Call, run: Path, tmp_path: Path, name: str
) -> None:
    assert call("run", *SETTINGS, "--set", "run.seed=77", "--out", tmp_path / "other")[0] == 0
    (run / name).write_bytes((tmp_path / "other" / name).read_bytes())
    code, out, err = call("audit", run, *QUICK)
    assert (code, out) == (2, "")
    assert err.endswith(f"expected the {name} that this run has written, but this is another one\n")
    assert not (run / "audit.json").exists()


@pytest.mark.parametrize("name", ["observation", "truth"])
def test_chunks_of_another_run_are_refused_by_an_audit_and_by_a_resume(call: Call, tmp_path: Path, name: str) -> None:
    for seed in (1, 7):
        sets = ["--set", "run.records=zarr", "--set", f"run.seed={seed}"]
        assert call("run", *SETTINGS, *sets, "--out", tmp_path / str(seed))[0] == 0
    run, chunked = tmp_path / "1", f"{name}.zarr"
    assert call("audit", run, *QUICK)[0] == 0
    assert call("audit", run, *QUICK, "--last", 20)[0] == 0
    shutil.rmtree(run / chunked)
    shutil.copytree(tmp_path / "7" / chunked, run / chunked)
    said = f"expected the {chunked} that this run has written, but this is another one\n"
    for words in (("audit", run, *QUICK), ("audit", run, *QUICK, "--last", 20), ("run", "--resume", run)):
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert err.endswith(said)
    (run / "result.json").unlink()  # as in a run that was stopped before its end
    code, _, err = call("run", "--resume", run, "--set", "run.rounds=70")
    assert code == 2
    assert f"{chunked} is of another run" in err


def test_a_chunk_that_was_changed_is_refused(call: Call, tmp_path: Path) -> None:
    assert call("run", *SETTINGS, "--set", "run.records=zarr", "--out", tmp_path / "run")[0] == 0
    chunk = tmp_path / "run/observation.zarr/y/c.0.0.0"
    chunk.write_bytes(bytes(8) + chunk.read_bytes()[8:])
    code, _, err = call("audit", tmp_path / "run", *QUICK)
    assert (code, "observation.zarr that this run has written" in err) == (2, True)


@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_records_without_their_checksums_are_refused(call: Call, tmp_path: Path, kind: str) -> None:
    assert call("run", *SETTINGS, "--set", f"run.records={kind}", "--out", tmp_path / "run")[0] == 0
    for damage in ("{", "[]", "{}", "[" * 200_000, None):
        path = tmp_path / "run/result.json"
        path.unlink() if damage is None else path.write_text(damage)
        code, out, err = call("audit", tmp_path / "run", *QUICK)
        assert (code, out) == (2, "")
        assert err.endswith("expected a run with its result.json, which has the checksums of its records\n")


def _shape(words: str) -> str:
    return f'{{"shape": {words}, "data_type": "float64", "chunk_grid": {{"configuration": {{"chunk_shape": [3]}}}}}}'


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", "{}", *map(_shape, ("[60]", "[-60, 5, 3]", "[1e400, 5, 3]", '["a"]', "7")), "[" * 200_000],
)
def test_damaged_chunk_metadata_are_one_sentence(call: Call, tmp_path: Path, damage: str) -> None:
    assert call("run", *SETTINGS, "--set", "run.records=zarr", "--out", tmp_path / "run")[0] == 0
    (tmp_path / "run/observation.zarr/y/zarr.json").write_text(damage)
    for words in (("audit", tmp_path / "run", *QUICK), ("run", "--resume", tmp_path / "run")):
        code, out, err = call(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert "unexpected" not in err


@pytest.mark.parametrize("command", ["run", "privacy epsilon", "audit"])
def test_where_the_papers_theorem_does_not_apply_it_is_named_once(call: Call, tmp_path: Path, command: str) -> None:
    """Its condition is αM̄ < 1."""
    sets = [*SETTINGS, "--set", "run.rounds=5", "--set", "privacy.smoothness=1000"]
    run = ("run", *sets, "--out", tmp_path / "run")
    words = {"run": run, "privacy epsilon": ("privacy", "epsilon", *sets), "audit": ("audit", tmp_path / "run", *QUICK)}
    if command == "audit":
        assert call(*run)[0] == 0
    code, out, err = call(*words[command])
    assert code == 0, err
    told = " ".join(out.split())
    assert re.search(r"the paper's Theorem 3 does not apply(: | \()it needs αM̄ < 1", told)
    assert "Theorem 3 says" not in told


def test_a_truth_that_is_gone_is_not_said_never_to_have_been_kept(call: Call, tmp_path: Path) -> None:
    assert call("run", *SETTINGS, "--set", "run.records=zarr", "--out", tmp_path / "run")[0] == 0
    shutil.rmtree(tmp_path / "run/truth.zarr")
    code, out, _ = call("audit", tmp_path / "run", *QUICK, "--json")
    assert code == 0
    assert "errors cannot be measured: the truth that the run kept is not in its directory any more" in out
    assert "telemetry = none" not in out
