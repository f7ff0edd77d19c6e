"""`dpp2 node` and `dpp2 orchestrate` refuse what `dpp2 run` refuses, in the same words, before anything is made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from dpp2.orchestrator.local import for_nodes
from dpp2.prepared import PreparedRun

Call = Callable[..., Any]
EXPERIMENT = """[run]
rounds = 12
[network]
topology = "ring"
agents = 3
[problem]
name = "least-squares"
dimension = 3
"""
CLUSTER = "[agents]\n" + "".join(f'{agent} = "127.0.0.1:1"\n' for agent in range(3))
INADMISSIBLE = {
    "[algorithm]\neta = [0.5, 0.5, 0.5]\n": "algorithm.eta = [0.5, 0.5, 0.5]: expected at least run.rounds = 12",
    "[algorithm]\nbeta = 0.3\n": "algorithm.beta = 0.3: expected a value below alpha/λ_max(P)",
    '[algorithm]\nname = "dgd"\n[network]\nweights = "plain"\n': "network.weights = 'P with λ_max = 3'",
}


@pytest.fixture(params=INADMISSIBLE)
def inadmissible(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    text = str(request.param)
    parts = text.split("[network]\n")
    (tmp_path / "experiment.toml").write_text(
        EXPERIMENT.replace("[network]\n", f"[network]\n{''.join(parts[1:])}") + parts[0]
    )
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    return tmp_path, INADMISSIBLE[text]


def test_a_run_is_refused(inadmissible: tuple[Path, str], dpp2: Call) -> None:
    folder, sentence = inadmissible
    answer = dpp2("run", folder / "experiment.toml", "--out", folder / "run")
    assert (answer.code, sentence in answer.err) == (2, True)


def test_an_orchestration_is_refused(inadmissible: tuple[Path, str], dpp2: Call) -> None:
    folder, sentence = inadmissible
    files = ["--experiment", folder / "experiment.toml", "--cluster", folder / "cluster.toml"]
    answer = dpp2("orchestrate", *files, "--plaintext", "--state", folder / "state.json")
    assert (answer.code, sentence in answer.err) == (2, True)
    assert not (folder / "state.json").exists()


def test_a_node_does_not_start(inadmissible: tuple[Path, str]) -> None:
    folder, sentence = inadmissible
    files = [
        "--experiment",
        folder / "experiment.toml",
        "--cluster",
        folder / "cluster.toml",
        "--home",
        folder / "home",
    ]
    words = ["--agents", "0,1,2", "--listen", "127.0.0.1:0", "--plaintext", *files]
    answer = subprocess.run(
        [sys.executable, "-m", "dpp2.node", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"dpp2 node: {sentence}")
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("weights", ["metropolis", "laplacian-spectral"])
def test_to_check_a_node_loads_nothing_heavy(weights: str, tmp_path: Path) -> None:
    prepared = PreparedRun.of(Experiment.load(overrides={"network.weights": weights}))
    (tmp_path / "experiment.toml").write_text(for_nodes(prepared, tmp_path).to_toml())
    program = (
        "import sys; from dpp2.experiment import Experiment; from dpp2.node.hosting import Hosting\n"
        "Hosting(Experiment.load(sys.argv[1]).resolve(), [0])\n"
        "print([name for name in ('scipy', 'networkx', 'matplotlib', 'sklearn') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "experiment.toml")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"
