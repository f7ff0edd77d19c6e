"""The privacy commands on DPP³."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.edge_keys import WITHOUT_TLS
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.cli.privacy_colluders import colluders
from tests.answers import strict

Call = Callable[..., Any]
SMALL = ("algorithm.name=dpp3", "network.topology=complete", "network.agents=6", "problem.samples=10")
HELP = next(str(command.epilog) for command in privacy.registered_commands if command.callback is colluders)
SETS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.mark.parametrize("solve", ["scale", "ratio", "gradient-rounds"])
def test_calibrate_solves_and_the_account_agrees(dpp2: Call, solve: str) -> None:
    given = {"scale": [], "ratio": ["--set", "noise.own=0.5"], "gradient-rounds": ["--set", "noise.own=0.3"]}[solve]
    found = strict(dpp2("privacy", "calibrate", *SETS, *given, "--epsilon", "2", "--solve", solve, "--json").out)
    assert found["feasible"]
    assert 1.8 < found["epsilon"] <= 2
    settings = [word for name, value in found["settings"].items() for word in ("--set", f"{name}={value}")]
    spent = strict(dpp2("privacy", "epsilon", *SETS, *settings, "--json").out)
    assert spent["epsilon"] == pytest.approx(found["epsilon"])


@pytest.mark.parametrize("solve", ["scale", "ratio", "gradient-rounds"])
def test_calibrate_looks_at_the_agent_that_pays_most(dpp2: Call, solve: str, tmp_path: Path) -> None:
    """The hub of a star is hidden best, but one of its three records moves its gradient most."""
    rng = np.random.default_rng(0)
    for agent, m in enumerate([3, 60, 60, 60]):
        drawn = {"features": rng.standard_normal((m, 2)), "labels": rng.choice([-1.0, 1.0], m)}
        np.savez(tmp_path / f"agent-{agent}.npz", allow_pickle=False, **drawn)
    given = ("algorithm.name=dpp3", "network.topology=star", "network.agents=4", "noise.own=2.0", "noise.ratio=3.0")
    records = ("problem.name=file", f"problem.path={tmp_path}", "privacy.adjacency=record", "privacy.clip=1.0")
    sets = [word for setting in (*given, *records) for word in ("--set", setting)]
    found = strict(dpp2("privacy", "calibrate", *sets, "--epsilon", "4", "--solve", solve, "--json").out)
    assert found["feasible"]
    settings = [word for name, value in found["settings"].items() for word in ("--set", f"{name}={value}")]
    spent = strict(dpp2("privacy", "epsilon", *sets, *settings, "--json").out)
    assert spent["epsilon"] == pytest.approx(found["epsilon"])
    assert spent["epsilon"] <= 4
    if solve == "scale":  # a scale for the hub's records behind a leaf's noise would spend 1.7 only
        assert spent["epsilon"] > 3.95
    first, *_ = json.loads(dpp2("privacy", "colluders", *sets, "--most", "0", "--json").out)
    assert first["weakest"][0]["agent"] == 0


def test_calibrate_says_what_it_cannot_do(dpp2: Call) -> None:
    ended = dpp2("privacy", "calibrate", *SETS, "--epsilon", "2", "--solve", "decay")
    assert ended.code == 2
    assert "scale, ratio, gradient-rounds" in ended.err
    quiet = ("--set", "noise.own=0.001")
    assert "infeasible" in dpp2("privacy", "calibrate", *SETS, *quiet, "--epsilon", "1", "--solve", "ratio").out


def test_colluders_prints_epsilon_against_their_number_and_cuts(dpp2: Call) -> None:
    star = [*SETS, "--set", "network.topology=star", "--most", "1"]
    printed = dpp2("privacy", "colluders", *star).out
    assert "disconnects" in printed or "disconnects" in dpp2("privacy", "colluders", *star).err
    refused = dpp2("privacy", "colluders", "--set", "network.agents=5", "--set", "network.topology=ring")
    assert refused.code == 2
    assert "share no noise" in refused.err


PAPER = Path(__file__).parents[2] / "experiments/paper.toml"


def test_a_kind_chosen_on_top_of_a_file_drops_its_keys_with_one_note(dpp2: Call, tmp_path: Path) -> None:
    small = ("--set", "network.topology=complete", "--set", "network.agents=6", "--set", "problem.samples=10")
    ended = dpp2("privacy", "epsilon", PAPER, *small, "--set", "algorithm.name=dpp3", "--json")
    assert ended.code == 0
    (note,) = [line for line in ended.err.splitlines() if "are left out" in line]
    for name in ("algorithm.beta", "noise.u_w", "network.radius"):
        assert name in note
    calibrated = dpp2(
        "privacy", "calibrate", PAPER, *small, "--set", "algorithm.name=dgd", "--epsilon", "9", "--solve", "scale"
    )
    assert calibrated.err.count("are left out") == 1


def test_epsilon_says_delta_once_and_the_rounds_that_are_run(dpp2: Call) -> None:
    ended = dpp2("privacy", "epsilon", *SETS)
    assert ended.out.count("δ_dp") == 1
    assert "at δ_dp = 1e-05" in ended.out
    resolved = Experiment.load(overrides=list(SMALL)).resolve()
    assert resolved.run.rounds != Experiment.load().run.rounds
    assert f"ε({resolved.run.rounds} rounds) = " in ended.out
    assert "(ε, δ_dp) = " in dpp2("privacy", "epsilon", *SETS, "--set", "noise.kind=laplace").out


@pytest.mark.parametrize("example", [word for word in HELP.split("`") if word.startswith("dpp2 ")])
def test_examples_of_colluders_work(dpp2: Call, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PAPER.parents[1])
    ended = dpp2(*example.split()[1:])
    assert ended.code == 0, ended.err
    assert "weakest agents" in ended.out


def test_publishing_is_free_and_says_why(dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda *args: None)
    assert dpp2("run", *SETS, "--out", tmp_path / "run").code == 0
    done = strict(dpp2("privacy", "publish", tmp_path / "run", "--json").out)
    assert done["epsilon"] == done["epsilon_before"]
    assert "+ w" not in done["what"]
    assert any("function of the messages" in note for note in done["notes"])


@pytest.mark.parametrize("tls", [False, True])
def test_a_run_over_nodes_without_tls_says_what_an_active_attacker_could_do(
    dpp2: Call, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are secret: the nodes exchange hellos. Beside ε, in privacy.json as well."""
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda *args: None)
    few = ["--set", "run.seed=os", "--set", "algorithm.gradient_rounds=2", "--set", "run.telemetry=none"]
    over = ["--transport", "grpc", "--processes", "2", *(["--tls"] if tls else [])]
    ended = dpp2("run", *SETS, *few, *over, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    notes = strict((tmp_path / "run" / "privacy.json").read_text())["notes"]
    assert (WITHOUT_TLS in notes) == (not tls)
    assert ("could sit between two neighbours" in " ".join(ended.err.split())) == (not tls)
