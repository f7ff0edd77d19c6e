"""Bad input: one sentence that names the field, its value and what is accepted; exit code 2; nothing written.

Each row of the tables is a command line (and the files it needs) with the sentence it must be answered by. Rows run
inside this process; a few run as real processes as well, where a traceback or a warning could not hide.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2.orchestrator.cli import main

Prepare = Callable[[Path], object]
SMALL = ("problem.name=quadratic", "problem.dimension=2", "network.agents=4", "network.topology=ring")


@dataclass(frozen=True)
class Row:
    """A refusal: what is typed, `field = value` as it must be shown, and words of what would be accepted."""

    name: str
    shown: str
    accepted: str
    args: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    files: Mapping[str, str | bytes | Prepare] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return ["run", *self.args, *(word for text in self.sets for word in ("--set", text))]

    def prepare(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)


def refused(name: str, shown: str, accepted: str, *sets: str, **files: Any) -> Row:
    """A row that only `--set`s."""
    return Row(name, shown, accepted, args=("--out", "out"), sets=sets, files=files)


def from_file(name: str, shown: str, accepted: str, text: str | bytes) -> Row:
    """A row whose experiment file holds `text`."""
    return Row(name, shown, accepted, args=("bad.toml", "--out", "out"), files={"bad.toml": text})


def graph(name: str, shown: str, accepted: str, file: str, text: str | bytes, *sets: str) -> Row:
    """A row with a network of the user's own."""
    given = ("network.topology=file", f"network.path={file}", *sets)
    return Row(name, shown, accepted, args=("--out", "out"), sets=given, files={file: text})


def code(name: str, accepted: str, text: str, *sets: str) -> Row:
    """A row with an objective of the user's own."""
    given = ("problem.name=file", "problem.path=own.py", "network.agents=4", "network.topology=ring", *sets)
    return Row(name, "problem.path = 'own.py'", accepted, ("--out", "out"), given, {"own.py": text})


def data(name: str, shown: str, accepted: str, *contents: str) -> Row:
    """A row with a folder of data: one file for each of the first agents."""
    given = ("problem.name=file", "problem.path=data", "network.agents=4", "network.topology=ring")
    files = {f"data/agent-{agent}.csv": content for agent, content in enumerate(contents)}
    return Row(name, shown, accepted, ("--out", "out"), given, files)


def start(name: str, shown: str, accepted: str, file: str, content: str | bytes | Prepare) -> Row:
    """A row with a file of starting points (4 agents, 2 coordinates)."""
    return Row(name, shown, accepted, ("--out", "out"), (*SMALL, f"run.start={file}"), {file: content})


def saved(array: Any) -> Prepare:
    return lambda path: np.save(path, array)


DIGRAPH = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">
<node id="0"/><node id="1"/><edge source="0" target="1"/></graph></graphml>"""
BOWL = """
class Bowl:
    dimension = 2
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return {gradient}
def objective(agent, agents): return Bowl()
"""

FILES = [
    from_file("empty file", "FILE = 'bad.toml'", "at least one section", ""),
    from_file("nothing but comments", "FILE = 'bad.toml'", "at least one section", "# later\n"),
    from_file("not TOML", "FILE = 'bad.toml'", "valid TOML", "rounds: 5\n"),
    from_file("brackets without end", "FILE = 'bad.toml'", "valid TOML", "a = " + "[" * 5000),
    from_file("not UTF-8", "FILE = 'bad.toml'", "UTF-8", b"[run]\nstart = '\xff'\n"),
    from_file("a key twice", "FILE = 'bad.toml'", "valid TOML", "[run]\nrounds = 1\nrounds = 2\n"),
    from_file("unknown section", "section = 'netwrk'", "did you mean 'network'?", "[netwrk]\nagents = 5\n"),
    from_file("key outside a section", "section = 'rounds'", "one of algorithm, network", "rounds = 5\n"),
    from_file("section that is a number", "run = 3", "a table of keys and values", "run = 3\n"),
    from_file("section that is a list", "run = [{'rounds': 3}]", "a table", "[[run]]\nrounds = 3\n"),
    Row("no such file", "FILE = 'no.toml'", "a readable TOML file (No such file", ("no.toml",)),
    Row("file below a file", "FILE = 'f/x.toml'", "a readable TOML file (Not a dir", ("f/x.toml",), files={"f": "x"}),
    Row("a directory", "FILE = 'folder'", "(Is a directory)", ("folder",), files={"folder": Path.mkdir}),
    Row(
        "--set into a section that is a number",
        "run = 3",
        "a table of keys and values",
        ("bad.toml",),
        ("run.rounds=5",),
        {"bad.toml": "run = 3\n"},
    ),
]

VALUES = [
    refused("--set without =", "--set = 'run.rounds'", "section.key=value", "run.rounds"),
    refused("--set without a dot", "--set = 'rounds'", "section.key=value", "rounds=5"),
    refused("--set without a key", "--set = 'run.'", "section.key=value", "run.=5"),
    refused("--set of an unknown section", "section = 'nois'", "did you mean 'noise'?", "nois.u_w=1"),
    refused("unknown key", "algorithm.alhpa = 0.1", "did you mean 'alpha'?", "algorithm.alhpa=0.1"),
    refused("key of a key", "run.rounds.x = 5", "did you mean 'rounds'?", "run.rounds.x=5"),
    refused(
        "key of another kind", "network.radius = 0.3", "agents, topology", "network.topology=ring", "network.radius=0.3"
    ),
    refused("unknown topology", "network.topology = 'rign'", "did you mean 'ring'?", "network.topology=rign"),
    refused("topology that is a number", "network.topology = 3", "one of complete", "network.topology=3"),
    refused("unknown problem", "problem.name = 'quadratc'", "did you mean 'quadratic'?", "problem.name=quadratc"),
    refused("unknown algorithm", "algorithm.name = 'ddp2'", "did you mean 'dpp2'?", "algorithm.name=ddp2"),
    refused("unknown weights", "network.weights = 'metro'", "metropolis, laplacian", "network.weights=metro"),
    refused("unknown transport", "run.transport = 'pigeon'", '"embedded"', "run.transport=pigeon"),
    refused("text for a number", "algorithm.alpha = '0.1'", "a number > 0", 'algorithm.alpha="0.1"'),
    refused("bare word for a number", "algorithm.alpha = 'small'", "a number > 0", "algorithm.alpha=small"),
    refused("truth value for a number", "noise.u_w = True", "a number ≥ 0", "noise.u_w=true"),
    refused("truth value for a count", "network.agents = True", "a whole number from 2", "network.agents=true"),
    refused("fraction for a count", "run.rounds = 1.5", "a whole number", "run.rounds=1.5"),
    refused("list for a number", "algorithm.rho = [1.0]", "a number > 0", "algorithm.rho=[1.0]"),
    refused("table for a number", "algorithm.rho = {'a': 1}", "a number > 0", "algorithm.rho={a = 1}"),
    refused("not a number", "algorithm.alpha = nan", "a number > 0", "algorithm.alpha=nan"),
    refused("infinite", "noise.u_e = inf", "a number ≥ 0", "noise.u_e=inf"),
    refused("too large for a double", "algorithm.rho = inf", "a number > 0", "algorithm.rho=1e999"),
    refused("nan in a list", "noise.u_w = [1.0, nan]", "one per agent", "noise.u_w=[1.0, nan]"),
    refused("one agent", "network.agents = 1", "a whole number from 2", "network.agents=1"),
    refused("no rounds", "run.rounds = 0", "a whole number from 1", "run.rounds=0"),
    refused("negative rounds", "run.rounds = -5", "a whole number from 1", "run.rounds=-5"),
    refused("rounds beyond counting", f"run.rounds = {10**18}", "to 10,000,000", f"run.rounds={10**18}"),
    refused("negative seed", "run.seed = -1", 'a whole number ≥ 0, or "os"', "run.seed=-1"),
    refused("seed that is a word", "run.seed = 'random'", '"os"', "run.seed=random"),
    refused("negative network seed", "network.seed = -1", "a whole number ≥ 0", "network.seed=-1"),
    refused("negative problem seed", "problem.seed = -1", "a whole number ≥ 0", "problem.seed=-1"),
    refused("features that overflow", "problem.scale = 1e+308", "a number > 0, at most 1e100", "problem.scale=1e308"),
    refused("a loss that overflows", "problem.smoothness = 1e+300", "at most 1e100", "problem.smoothness=1e300"),
    refused(
        "a regulariser that overflows", "problem.lambda = 1e+101", "a number from 0 to 1e100", "problem.lambda=1e101"
    ),
    refused(
        "centres that overflow",
        "problem.spread = 1e+308",
        "from 0 to 1e100",
        "problem.name=quadratic",
        "problem.spread=1e308",
    ),
    refused(
        "more in a quorum than hold noise",
        "noise.quorum = 51",
        "at most 50, the number of agents with own noise",
        "algorithm.name=dpp3",
        "noise.kind=laplace",
        "noise.quorum=51",
    ),
    refused(
        "a quorum of more than the holders",
        "noise.quorum = 3",
        "at most 2, the number of agents with own noise",
        "algorithm.name=dpp3",
        "noise.kind=laplace",
        "noise.quorum=3",
        "noise.holders=[4, 7]",
    ),
    refused("negative noise", "noise.u_w = -1", "a number ≥ 0", "noise.u_w=-1"),
    refused("negative noise of one agent", "noise.u_e = [1, -1]", "a number ≥ 0", "noise.u_e=[1, -1]"),
    refused("growing noise", "noise.decay = 1.1", "a number in [0, 1]", "noise.decay=1.1"),
    refused("growing noise of one agent", "noise.decay = [0.9, 1.1]", "in [0, 1]", "noise.decay=[0.9, 1.1]"),
    refused("eta 0", "algorithm.eta = 0", "a number in (0, 1]", "algorithm.eta=0"),
    refused("eta above 1", "algorithm.eta = 1.5", "a number in (0, 1]", "algorithm.eta=1.5"),
    refused("eta in a list above 1", "algorithm.eta = [0.5, 2]", "a number in (0, 1]", "algorithm.eta=[0.5, 2]"),
    refused("unknown law of eta", "algorithm.eta = 'normal'", '"uniform"', "algorithm.eta=normal"),
    refused("step of 0", "algorithm.alpha = 0", "a number > 0", "algorithm.alpha=0"),
    refused("negative damping", "algorithm.damping = -1", "a number ≥ 0", "algorithm.damping=-1"),
    refused("no dimensions", "problem.dimension = 0", "a whole number from 1", "problem.dimension=0"),
    refused("negative radius", "network.radius = -0.3", "a number > 0", "network.radius=-0.3"),
    refused("empty start", "run.start = ''", '"normal", "zero"', "run.start="),
    refused("misspelt start", "run.start = 'nromal'", '"normal", "zero" or', *SMALL, "run.start=nromal"),
    refused("start no file can have", "run.start = 'a\\x00b'", '"normal"', *SMALL, 'run.start="a\\u0000b"'),
]

MEANING = [
    refused("beta too large", "algorithm.beta = 0.1", "below alpha/λ_max(P) = 0.1/", *SMALL, "algorithm.beta=0.1"),
    refused("plain weights", "algorithm.beta = 0.05", "times that bound", "network.weights=plain"),
    refused("normalised, not regular", "network.weights = 'normalised'", "same degree", "network.weights=normalised"),
    refused(
        "radius too small", "network.topology = 'geometric'", "radius = 0.1, agents = 50 gives 24", "network.radius=0.1"
    ),
    refused(
        "too few links",
        "network.topology = 'erdos-renyi'",
        "a connected graph, but probability = 0.001",
        "network.topology=erdos-renyi",
        "network.probability=0.001",
    ),
    refused(
        "too many neighbours",
        "network.neighbours = 9",
        "at most agents = 5",
        "network.topology=small-world",
        "network.agents=5",
        "network.neighbours=9",
    ),
    refused(
        "noise for two of four", "noise.u_w = [1.0, 2.0]", "each of the 4 agents, not 2", *SMALL, "noise.u_w=[1, 2]"
    ),
    refused("decay for none", "noise.decay = []", "each of the 4 agents, not 0", *SMALL, "noise.decay=[]"),
    refused(
        "curvature for three of four",
        "problem.curvature = [1.0, 2.0, 3.0]",
        "each of the 4 agents, not 3",
        *SMALL,
        "problem.curvature=[1, 2, 3]",
    ),
    refused(
        "eta for two rounds",
        "algorithm.eta = [0.5, 0.5]",
        "at least run.rounds = 500",
        *SMALL,
        "algorithm.eta=[0.5, 0.5]",
    ),
    refused(
        "rank above dimension", "problem.rank = 11", "dimension = 10", "problem.name=least-squares", "problem.rank=11"
    ),
    refused("too smooth", "problem.smoothness = 0.001", "2·lambda·omega = 0.002", "problem.smoothness=0.001"),
    refused(
        "nothing to train on", "problem.held_out = 1.0", "< 1", "problem.name=classification", "problem.held_out=1.0"
    ),
    refused(
        "more agents than samples",
        "network.agents = 600",
        "at most 455",
        "problem.name=classification",
        "network.topology=ring",
        "network.agents=600",
    ),
    refused("file problem without a path", "problem.path = nothing", "a Python file (.py) or", "problem.name=file"),
    refused("file network without a path", "network.path = nothing", "an edge list", "network.topology=file"),
    refused(
        "no such graph",
        "network.path = 'no.txt'",
        "a readable file (No such file",
        "network.topology=file",
        "network.path=no.txt",
    ),
    graph("graph that is binary", "network.path = 'g.txt'", "an edge list or GraphML", "g.txt", b"\xff\xfe\x00\x01"),
    graph("graph with commas", "network.path = 'g.txt'", "two names and a space a line", "g.txt", "0,1\n1,2\n"),
    graph("graph that is not XML", "network.path = 'g.graphml'", "an edge list or GraphML", "g.graphml", "0 1\n"),
    graph("directed graph", "network.path = 'g.graphml'", "an undirected graph", "g.graphml", DIGRAPH),
    graph("graph in two parts", "network.topology = 'file'", "2 separate parts", "g.txt", "0 1\n2 3\n"),
    graph(
        "another number of agents",
        "network.agents = 5",
        "3, the number of nodes",
        "g.txt",
        "0 1\n1 2\n",
        "network.agents=5",
    ),
    refused(
        "no such problem file",
        "problem.path = 'no.py'",
        "a readable file (No such file",
        *SMALL[2:],
        "problem.name=file",
        "problem.path=no.py",
    ),
    code("code that does not load", "can be loaded (ZeroDivisionError", "1 / 0\n"),
    code("code without the function", "a function objective(agent, agents)", "x = 1\n"),
    code("code with a wrong gradient", "central differences", BOWL.format(gradient="2 * x")),
    code("code with a gradient too long", "an array of 2 numbers", BOWL.format(gradient="[1.0, 2.0, 3.0]")),
    data("folder without an agent", "problem.path = 'data'", "agent-1.npz or agent-1.csv", "1,2,1\n"),
    data(
        "nan in data",
        "problem.path = 'data/agent-1.csv'",
        "not nan in sample 0",
        "1,2,1\n",
        "1,nan,1\n",
        *["1,2,1\n"] * 2,
    ),
    data("label 0", "problem.path = 'data/agent-0.csv'", "−1 or 1 for the logistic loss, not 0", *["1,2,0\n"] * 4),
    data(
        "ragged data",
        "problem.path = 'data/agent-2.csv'",
        "2 features like agent 0's",
        *["1,2,1\n"] * 2,
        *["1,1\n"] * 2,
    ),
    start(
        "start of another shape",
        "run.start = 'x.csv'",
        "4 rows of 2 finite numbers, not an array of shape (1, 2)",
        "x.csv",
        "1,2\n",
    ),
    start("start with nan", "run.start = 'x.npy'", "not nan in row 0", "x.npy", saved(np.full((4, 2), np.nan))),
    start("start that is complex", "run.start = 'x.npy'", "4 rows of 2", "x.npy", saved(np.ones((4, 2)) * 1j)),
    start("start that is empty text", "run.start = 'x.csv'", "4 rows of 2", "x.csv", ""),
    start("start that is an empty array file", "run.start = 'x.npy'", "4 rows of 2", "x.npy", ""),
    start("start that is half a zip", "run.start = 'x.npz'", "4 rows of 2", "x.npz", b"PK\x03\x04half"),
    start(
        "start without x", "run.start = 'x.npz'", "(array x)", "x.npz", lambda path: np.savez(path, y=np.ones((4, 2)))
    ),
    start("start that is a folder", "run.start = 'x'", "(Is a directory)", "x", Path.mkdir),
]

PLACES = [
    Row("--out is a file", "--out = 'f'", "a directory, not a file", ("--out", "f"), SMALL, {"f": "mine"}),
    Row("--out below a file", "--out = 'f/run'", "that can be made", ("--out", "f/run"), SMALL, {"f": "mine"}),
    Row("--out in use", "--out = 'd'", "--force replaces the run", ("--out", "d"), SMALL, {"d/notes.txt": "mine"}),
    Row("--force and a bad experiment", "run.rounds = 0", "a whole", ("--out", "done", "--force"), ("run.rounds=0",)),
    Row("--force on a file", "--out = 'f'", "a directory", ("--out", "f", "--force"), SMALL, {"f": "mine"}),
]


def resumed(name: str, shown: str, accepted: str, *more: str, **files: Any) -> Row:
    """A row that resumes `done`, a finished run of 6 rounds, after something was done to its files."""
    changed = {f"done/{file.replace('__', '/').replace('_', '.')}": content for file, content in files.items()}
    return Row(name, shown, accepted, ("--resume", "done", *more), files=changed)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


RESUMES = [
    Row("resume of nothing", "RUN = 'nowhere'", "a run directory", ("--resume", "nowhere")),
    Row("resume of a folder", "RUN = 'd'", "experiment.toml in it", ("--resume", "d"), files={"d": Path.mkdir}),
    Row("resume of a file", "RUN = 'f'", "a run directory", ("--resume", "f"), files={"f": "x"}),
    resumed("resume with FILE", "--resume = 'done'", "no FILE", "done/experiment.toml"),
    resumed("resume with --out", "--resume = 'done'", "--out", "--out", "new"),
    resumed("resume with --force", "--resume = 'done'", "--force", "--force"),
    resumed("resume with --no-truth", "--resume = 'done'", "--no-truth", "--no-truth"),
    resumed("resume with another step", "--set = 'algorithm.alpha=1'", "run.rounds=K", "--set", "algorithm.alpha=1"),
    resumed(
        "resume with a second change",
        "--set = 'run.seed=2'",
        "run.rounds=K",
        *("--set", "run.rounds=9", "--set", "run.seed=2"),
    ),
    resumed("resume with a key that begins alike", "--set = 'run.rounds2=9'", "run.rounds=K", "--set", "run.rounds2=9"),
    resumed("resume for fewer rounds", "run.rounds = 3", "at least 6", "--set", "run.rounds=3"),
    resumed("resume for no rounds", "run.rounds = 0", "a whole number", "--set", "run.rounds=0"),
    resumed("half a state", "--resume = 'done'", "but checkpoint/state.npz cannot be used", checkpoint__state_npz=cut),
    resumed("no state at all in it", "--resume = 'done'", "checkpoint/state.npz", checkpoint__state_npz=""),
    resumed("state of something else", "--resume = 'done'", "'k'", checkpoint__state_npz=lambda p: np.savez(p, x=1)),
    resumed("half an observation", "--resume = 'done'", "but observation.npz", observation_npz=cut),
    resumed("half a truth", "--resume = 'done'", "but truth.npz", truth_npz=cut),
    resumed("no truth", "--resume = 'done'", "but truth.npz", truth_npz=Path.unlink),
    resumed("no metrics", "--resume = 'done'", "the records of rounds 0 to 5 are gone", metrics_csv=Path.unlink),
    resumed("metrics of another kind", "--resume = 'done'", "but metrics.csv", metrics_csv="round,gap\n0,x\n"),
    resumed("experiment cut short", "FILE = 'done/experiment.toml'", "at least one section", experiment_toml=""),
    resumed(
        "experiment edited by hand",
        "--resume = 'done'",
        "experiment.toml or a file named in it has changed",
        experiment_toml=lambda p: p.write_text(p.read_text().replace("alpha = 0.1", "alpha = 0.09")),
    ),
    resumed(
        "unseeded without its secrets",
        "--resume = 'done'",
        "but checkpoint/secrets.json cannot be used",
        experiment_toml=lambda p: p.write_text(p.read_text().replace("seed = 1", 'seed = "os"', 1)),
    ),
]

TABLE = [*FILES, *VALUES, *MEANING, *PLACES, *RESUMES]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    path = tmp_path_factory.mktemp("finished") / "done"
    sets = [word for text in (*SMALL, "run.rounds=6") for word in ("--set", text)]
    code, _, err = dpp2(["run", "--out", str(path), *sets])
    assert code == 0, err
    return path


def dpp2(args: list[str]) -> tuple[int, str, str]:
    """The command line inside this process: (exit code, stdout, stderr)."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["dpp2", *args]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
            main()
    finally:
        sys.argv = before
    code = stopped.value.code
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content (a folder: None)."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def check(row: Row, code: int, out: str, err: str) -> None:
    assert "Traceback" not in err
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, f"more than one line:\n{err}"
    assert err.startswith(f"dpp2: {row.shown}: expected "), err
    assert row.accepted in err.removeprefix(f"dpp2: {row.shown}: expected "), err
    assert code == 2


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_refused_in_one_sentence(row: Row, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(done, "done")
    row.prepare(tmp_path)
    before = snapshot(tmp_path)
    check(row, *dpp2(row.command))
    assert snapshot(tmp_path) == before


REAL = (
    "empty file",
    "beta too large",
    "start that is empty text",
    "half a state",
    "--set into a section that is a number",
)


@pytest.mark.parametrize("row", [row for row in TABLE if row.name in REAL], ids=lambda row: row.name)
def test_refused_by_a_real_process(row: Row, done: Path, tmp_path: Path) -> None:
    """As a user sees it: warnings are printed there, not raised."""
    shutil.copytree(done, tmp_path / "done")
    row.prepare(tmp_path)
    before = snapshot(tmp_path)
    command = [sys.executable, "-c", "from dpp2.orchestrator.cli import main; main()", *row.command]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
    check(row, ended.returncode, ended.stdout, ended.stderr)
    assert snapshot(tmp_path) == before


def test_the_table_is_a_table() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names) >= 40
    assert set(REAL) <= set(names)
