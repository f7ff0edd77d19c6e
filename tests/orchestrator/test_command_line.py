"""What `dpp2` prints, and that everything it offers by name works."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from dpp2 import Experiment, __version__
from dpp2.orchestrator.cli import app
from dpp2.orchestrator.commands import load
from dpp2.problems import PROBLEMS
from dpp2.store.files import read_npz
from dpp2.store.rundir import read_metrics
from dpp2.topology import TOPOLOGIES

Call = Callable[..., Any]

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
EXPERIMENTS_BY_NAME = {path.stem: path for path in EXPERIMENTS}
DPP2 = [sys.executable, "-c", "from dpp2.orchestrator.cli import main; main()"]
REQUIRED = {
    *("run", "rounds", "gap_initial", "gap", "consensus", "stationarity", "diverged", "seconds", "rounds_per_second")
}


def document(text: str) -> dict[str, Any]:
    """One JSON document in the strict sense: no NaN, nothing after it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("quick_plot")
class TestJson:
    def test_one_document(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        ended = dpp2("run", "--json", "--out", tmp_path / "run", *small)
        printed = document(ended.out)
        metrics = read_metrics(tmp_path / "run/metrics.csv")
        assert (ended.code, ended.err) == (0, "")
        assert printed.keys() >= REQUIRED
        assert printed["run"] == str(tmp_path / "run")
        assert (printed["rounds"], printed["diverged"]) == (8, False)
        assert printed["gap_initial"] == metrics.gap[0]
        assert [printed[name] for name in ("gap", "consensus", "stationarity")] == [
            metrics[name][-1] for name in ("gap", "consensus", "stationarity")
        ]
        assert printed["seconds"] > 0
        assert printed["rounds_per_second"] == pytest.approx(8 / printed["seconds"])

    def test_diverged(self, tmp_path: Path, dpp2: Call) -> None:
        """A run that diverges: exit code 1, the records kept, the document printed, the cause named."""
        ended = dpp2("run", EXPERIMENTS_BY_NAME["counterexample"], "--json", "--out", tmp_path / "run")
        printed = document(ended.out)
        assert (ended.code, ended.err) == (1, "")
        assert printed["diverged"] is True
        assert printed["cause"] == "negative curvature"
        assert read_metrics(tmp_path / "run/metrics.csv").gap.max() > 10 * printed["gap_initial"]
        rounds = printed["rounds"]
        assert 0 < rounds < 500
        assert read_npz(tmp_path / "run/truth.npz").x.shape == (rounds, 3, 1)
        assert len(read_metrics(tmp_path / "run/metrics.csv").gap) == rounds + 1
        assert (tmp_path / "run/solution.npz").exists()

    def test_overflow(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        """What is not finite is null in JSON and inf or nan in the files; no warning reaches the user."""
        steep = ["--set=problem.name=quadratic", "--set=problem.curvature=1e100", "--set=run.largest_value=1e300"]
        ended = dpp2("run", "--json", "--out", tmp_path / "run", *small, *steep)
        printed = document(ended.out)
        assert (ended.code, ended.err) == (1, "")
        assert printed["diverged"] is True
        assert printed["gap"] is None
        assert not np.isfinite(read_metrics(tmp_path / "run/metrics.csv").gap[-1])


def test_overflow_can_be_drawn(tmp_path: Path, dpp2: Call, small: list[str]) -> None:
    steep = ["--set=problem.name=quadratic", "--set=problem.curvature=1e100", "--set=run.largest_value=1e300"]
    ended = dpp2("run", "--out", tmp_path / "run", *small, *steep)
    assert ended.code == 1
    assert "DIVERGED" in ended.err
    assert (tmp_path / "run/convergence.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("quick_plot")
class TestSummary:
    def test_says_what_happened_and_where(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        ended = dpp2("run", "--out", tmp_path / "run", *small)
        assert ended.code == 0
        assert "8 rounds in " in ended.out
        assert re.search(r"gap \S+ → \S+ ", ended.out)
        assert f"records in {tmp_path / 'run'}," in ended.out

    @pytest.mark.parametrize("name", ["[b]", "[/b]", ":smile:", "with space", "ünï"])
    def test_paths_are_printed_as_they_are(self, name: str, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        ended = dpp2("run", "--out", tmp_path / name, *small)
        assert f"records in {tmp_path / name}," in ended.out

    def test_divergence_is_explained(self, tmp_path: Path, dpp2: Call) -> None:
        ended = dpp2("run", EXPERIMENTS_BY_NAME["counterexample"], "--out", tmp_path / "run")
        assert ended.code == 1
        assert "DIVERGED" in ended.err
        assert "negative curvature" in ended.err

    def test_damping_repairs_the_counterexample(self, tmp_path: Path, dpp2: Call) -> None:
        file = EXPERIMENTS_BY_NAME["counterexample"]
        ended = dpp2("run", file, "--json", "--out", tmp_path / "run", "--set", "algorithm.damping=1.0")
        assert ended.code == 0
        assert document(ended.out)["gap"] < 1e-10

    def test_held_out_accuracy(self, tmp_path: Path, dpp2: Call) -> None:
        ended = dpp2(
            *("run", EXPERIMENTS_BY_NAME["breast-cancer"], "--out", tmp_path / "run", "--set", "run.rounds=3"),
        )
        assert re.search(r"^accuracy 0\.\d{4}$", ended.out, re.MULTILINE)

    def test_private_records_print_accuracy_beside_that_without_privacy_and_keep_their_budget(
        self, tmp_path: Path, dpp2: Call
    ) -> None:
        file = EXPERIMENTS_BY_NAME["private-records"]
        ended = dpp2("run", file, "--out", tmp_path / "run")
        accuracy, without = (
            float(found) for found in re.findall(r"^accuracy(?: without privacy)? (0\.\d{4})$", ended.out, re.MULTILINE)
        )
        assert 0.9 < accuracy < without
        spent = document((tmp_path / "run/privacy.json").read_text())
        assert 0.99 < spent["epsilon"] <= 1 == Experiment.load(file).privacy.budget
        assert "M̄" not in ended.err  # nothing that the noise or the steps rest on was computed from the data


@pytest.mark.usefixtures("quick_plot")
@pytest.mark.usefixtures("quick_plot")
class TestEveryName:
    """Choosing a kind alone brings that kind's defaults, and the record of it can be run again."""

    @pytest.mark.parametrize("topology", [kind.model_fields["topology"].default for kind in TOPOLOGIES])
    @pytest.mark.parametrize("agents", [None, 2, 3, 7])
    def test_topology(self, topology: str, agents: int | None, tmp_path: Path, dpp2: Call) -> None:
        sets = ["--set", f"network.topology={topology}", "--set", "run.rounds=2"]
        sets += ["--set", f"network.agents={agents}"] if agents else []
        if topology == "file":
            edges = "".join(f"{i} {i + 1}\n" for i in range((agents or 50) - 1))
            (tmp_path / "edges.txt").write_text(edges)
            sets += ["--set", f"network.path={tmp_path / 'edges.txt'}"]
        ended = dpp2("run", "--out", tmp_path / "run", *sets)
        assert ended.code == 0, ended.err
        assert read_npz(tmp_path / "run/solution.npz").x.shape == (agents or 50, 10)
        recorded = Experiment.load(tmp_path / "run/experiment.toml")
        assert recorded.resolve() == recorded
        assert dpp2("run", "--resume", tmp_path / "run", "--set", "run.rounds=3").code == 0

    @pytest.mark.parametrize("problem", [kind.model_fields["name"].default for kind in PROBLEMS])
    def test_problem(self, problem: str, tmp_path: Path, dpp2: Call) -> None:
        sets = ["--set", f"problem.name={problem}", "--set", "run.rounds=2"]
        if problem == "file":
            (tmp_path / "own.py").write_text(OWN)
            sets += ["--set", f"problem.path={tmp_path / 'own.py'}"]
        ended = dpp2("run", "--out", tmp_path / "run", *sets)
        assert ended.code == 0, ended.err
        assert len(read_npz(tmp_path / "run/solution.npz").x) == 50
        assert dpp2("run", "--resume", tmp_path / "run", "--set", "run.rounds=3").code == 0

    @pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda path: path.stem)
    def test_experiment(self, file: Path, tmp_path: Path, dpp2: Call) -> None:
        ended = dpp2("run", file, "--out", tmp_path / "run", "--set", "run.rounds=3")
        assert ended.code == 0, ended.err

    def test_eta_and_noise_in_every_form(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        forms = ("algorithm.eta=1", f"algorithm.eta={[0.5] * 8}", "noise.u_w=0", f"noise.u_e={[1, 2, 3, 4, 5]}")
        for number, form in enumerate((*forms, f"noise.decay={[0.5] * 5}", "noise.decay=0", "run.start=zero")):
            ended = dpp2("run", "--out", tmp_path / str(number), *small, "--set", form)
            assert ended.code == 0, ended.err


OWN = """
class Bowl:
    dimension = 2
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x
def objective(agent, agents): return Bowl()
"""


def test_without_a_file_it_is_the_paper() -> None:
    paper = Experiment.load(EXPERIMENTS_BY_NAME["paper"])
    assert paper == Experiment.load()
    network = paper.network.graph()
    assert (network.agents, len(network.edges)) == (50, 255)


@pytest.mark.parametrize(("records", "place"), [("npz", "in memory"), ("auto", "on the disk")])
def test_records_that_do_not_fit(records: str, place: str, tmp_path: Path, dpp2: Call) -> None:
    """A hundred thousand rounds of 2,000 numbers for 2,000 agents: 19 TB, refused before anything is written."""
    large = ("network.agents=2000", "problem.dimension=2000", "run.rounds=100000", f"run.records={records}")
    wanted = ("network.topology=ring", "problem.name=quadratic", *large)
    ended = dpp2("run", "--out", tmp_path / "run", *(word for key in wanted for word in ("--set", key)))
    assert (ended.code, ended.out) == (2, "")
    said = ended.err.splitlines()[-1]  # after a heartbeat, where the machine is busy
    accepted = f"expected rounds, agents and dimension whose records fit {place}"
    assert said.startswith(f"dpp2: run.rounds = 100000: {accepted}")
    assert not (tmp_path / "run").exists()


def test_version(dpp2: Call) -> None:
    assert dpp2("--version").out == f"dpp2 {__version__}\n"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, by the words that call it."""
    inner = getattr(group, "commands", None)
    if inner is None:
        yield path
        return
    for name, command in inner.items():
        yield from commands(command, (*path, name))


load()


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_has_an_example(words: tuple[str, ...], dpp2: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ended = dpp2(*words, "--help")
    assert ended.code == 0
    assert "Example" in ended.out
    assert re.search(rf"^\W*dpp2 {' '.join(words)}\b", ended.out.partition("Example")[2], re.MULTILINE)


class TestRealProcess:
    def test_nothing_but_words_in_a_pipe(self, tmp_path: Path, small: list[str], environment: dict[str, str]) -> None:
        """No bar, no colour; without a note to make, stderr stays empty."""
        command = [*DPP2, "run", "--out", "run", *small, "--set", "run.rounds=2000"]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8", check=True
        )
        assert "\x1b" not in ended.stdout + ended.stderr
        assert "\r" not in ended.stdout + ended.stderr
        assert all(line.startswith("note: ") for line in ended.stderr.splitlines())
        assert len(ended.stdout.splitlines()) == 4

    def test_a_bar_on_a_terminal(self, tmp_path: Path, small: list[str], environment: dict[str, str]) -> None:
        """On stderr, so that `--json > file` still shows it and the file stays JSON."""
        ours, theirs = pty.openpty()
        command = [*DPP2, "run", "--json", "--out", "run", *small, "--set", "run.rounds=3000"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True, encoding="utf-8"
        ) as process:
            os.close(theirs)
            shown = read_all(ours)
            assert process.stdout is not None
            printed = document(process.stdout.read())
        assert process.returncode == 0
        assert printed["rounds"] == 3000
        assert "/3000" in shown

    def test_reader_that_leaves(self, tmp_path: Path, small: list[str], environment: dict[str, str]) -> None:
        """`dpp2 run | head -0`: the run is finished, and nobody is shown a traceback."""
        reading, writing = os.pipe()
        os.close(reading)
        command = [*DPP2, "run", "--json", "--out", "run", *small]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(writing)
        assert ended.returncode == 1
        assert ended.stderr == ""
        assert (tmp_path / "run/metrics.csv").exists()


def read_all(terminal: int) -> str:
    """Everything written to a terminal until its last writer has gone (Linux says so with an error)."""
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            part = b""
        if not part:
            os.close(terminal)
            return shown.decode(errors="replace")
        shown += part
