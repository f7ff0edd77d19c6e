"""What is shipped for deployments has a budget, keeps it to the end of a run, converges, and says what it costs."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.orchestrator.demonstration import DIMENSION, Demonstration
from dpp2.privacy import Epsilon
from dpp2.privacy.account import Account

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Call = Callable[..., Any]
SHIPPED = {  # the runs on the same data that the budget is made for, and the gap at their end, of about 60 at the start
    "ring-6/experiment.toml": (4, 20.0),
    "ring-6/experiment-damped.toml": (4, 1e-3),
    "three-machines/experiment.toml": (1, 1.0),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make keys` draws them."""
    folder = tmp_path_factory.mktemp("data")
    runpy.run_path(str(ROOT / "tools" / "keys.py"), run_name="keys")["draw_data"](folder, 6)
    return folder


def cost(experiment: Experiment) -> float:
    """ε of one run, by the account."""
    spent = Account.of(experiment, np.full(experiment.network.agents, np.nan), DIMENSION).epsilon(experiment.run.rounds)
    assert isinstance(spent, Epsilon)
    assert spent.value is not None
    return spent.value


def test_every_experiment_of_a_deployment_is_looked_at_here() -> None:
    assert {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("experiment*.toml")} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_budget_is_enough_for_the_runs_and_the_cost_is_in_a_comment(name: str) -> None:
    experiment = Experiment.load(DEPLOY / name).resolve()
    assert experiment.run.seed == "os"
    assert experiment.privacy.smoothness is not None
    assert experiment.privacy.budget is not None
    assert experiment.privacy.budget // cost(experiment) == SHIPPED[name][0]
    assert f"ε = {cost(experiment):,.0f}" in " ".join((DEPLOY / name).read_text().split())


@pytest.mark.parametrize("name", SHIPPED)
def test_runs_go_to_their_end_and_the_next_one_is_stopped(name: str, dpp2: Call, data: Path, tmp_path: Path) -> None:
    runs, gap = SHIPPED[name]
    here = ("--set", "run.transport=embedded", "--set", f"problem.path={data}", "--json")
    wanted = Experiment.load(DEPLOY / name).run.rounds
    for number in range(runs + 1):
        done = dpp2("run", DEPLOY / name, *here, "--out", tmp_path / "runs" / str(number))
        privacy = json.loads((tmp_path / "runs" / str(number) / "privacy.json").read_text())
        if number < runs:
            assert done.code == 0, done.err
            assert (privacy["rounds"], privacy["stopped"]) == (wanted, None)
            with (tmp_path / "runs" / str(number) / "metrics.csv").open() as file:
                assert float(file.readlines()[-1].split(",")[1]) < gap
        else:
            assert privacy["rounds"] < wanted
            assert "budget" in privacy["stopped"]


def test_a_budget_follows_what_was_asked_for() -> None:
    """Of other rounds as well; one that somebody names stays, and without an ε there is none."""
    longer = Demonstration.of(6, "ring", ["run.rounds=300"])
    assert longer.experiment.privacy.budget is not None
    assert 4 * cost(longer.experiment) <= longer.experiment.privacy.budget < 5 * cost(longer.experiment)
    assert Demonstration.of(6, "ring", ["privacy.budget=7"]).experiment.privacy.budget == 7
    without = Demonstration.of(6, "ring", ["algorithm.name=extra"])
    assert without.experiment.privacy.budget is None
    assert without.to_toml().startswith("# The account knows no ε of such a run, so no budget can be kept.\n[run]\n")
