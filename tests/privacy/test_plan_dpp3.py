"""The planner of DPP³: plans keep their budget by the account, beat staying, and run as printed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dpp2 import Experiment, run
from dpp2.orchestrator.cli.plan import command
from dpp2.privacy import Epsilon, Unsupported
from dpp2.privacy.plans import LOOKED, SURROGATE, Effort, SettingsPlans

QUICK = Effort(generations=1, finalists=1, trials=1)
SMALL = {
    "algorithm.name": "dpp3",
    "network.topology": "complete",
    "network.agents": 8,
    "problem.dimension": 2,
    "problem.samples": 20,
    "problem.labels": "planted",
    "problem.smoothness": 5.0,
}


def small(**more: object) -> Experiment:
    return Experiment.load(overrides=SMALL | {key.replace("__", "."): value for key, value in more.items()})


def planned(experiment: Experiment, budgets: list[float], effort: Effort = QUICK) -> tuple[SettingsPlans, ...]:
    found = experiment.algorithm.planner()(experiment, budgets, effort, None)
    assert not isinstance(found, Unsupported), found.reason
    assert all(isinstance(one, SettingsPlans) for one in found)
    return tuple(one for one in found if isinstance(one, SettingsPlans))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_plan_spends_its_budget_by_the_account_of_the_run_that_it_describes(kind: str) -> None:
    first, second = planned(small(noise__kind=kind), [10.0, 1.0])
    assert (first.budget, second.budget) == (1.0, 10.0)
    assert second.chosen.gap <= first.chosen.gap < first.start_gap
    for one in (first, second):
        spent = run(small(noise__kind=kind, **{k.replace(".", "__"): v for k, v in one.chosen.settings.items()}))
        assert isinstance(spent.privacy.epsilon, Epsilon)
        assert spent.privacy.epsilon.value == pytest.approx(one.chosen.epsilon, rel=1e-9)
        assert one.chosen.epsilon <= one.budget
        assert SURROGATE in one.chosen.notes


def test_what_is_to_be_kept_is_kept_and_rounds_are_bounded() -> None:
    effort = Effort(
        generations=0, finalists=1, trials=0, free_ratio=False, free_steps=False, most_rounds=12, on_data=True
    )
    (one,) = planned(small(noise__ratio=50.0, algorithm__alpha=0.3, algorithm__slowdown=1.0), [1.0], effort)
    found = one.chosen.settings
    assert (found["noise.ratio"], found["algorithm.alpha"], found["algorithm.slowdown"]) == (50.0, 0.3, 1.0)
    assert found["run.rounds"] <= 12
    assert LOOKED in one.chosen.notes


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"noise__own": 0.0}, "ε = ∞"),
        ({"noise__own": 1.0, "noise__edge": 5.0}, "one noise for all agents"),
        ({"algorithm__smoothness": 0.0}, "declare privacy.smoothness"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(more: dict[str, object], why: str) -> None:
    experiment = small(**more)
    found = experiment.algorithm.planner()(experiment, [1.0], QUICK, None)
    assert isinstance(found, Unsupported)
    assert why in found.reason


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_ratio_is_no_larger_than_it_must_be_and_at_no_edge(kind: str) -> None:
    """All agents are neighbours, so mixing is perfect and no ratio is too large: beyond some point none gains."""
    (one,) = planned(small(noise__kind=kind), [1.0], Effort(generations=1, trials=0))
    assert 3 < one.chosen.settings["noise.ratio"] <= 1000


def test_the_printed_command_runs_and_keeps_what_was_planned(tmp_path: Path) -> None:
    """As a person would run it: planned on the data, so the gap is the one that was measured, but for other noise."""
    given = [f"{key}={value}" for key, value in SMALL.items()]
    (one,) = planned(small(), [2.0], Effort(generations=1, finalists=1, trials=3, on_data=True))
    words = shlex.split(command(one.chosen, None, given))
    assert words[:2] == ["dpp2", "run"]
    told = dict(word.split("=", 1) for word in words[3::2])
    assert {key: float(told[key]) for key in one.chosen.settings} == dict(one.chosen.settings)
    answer = subprocess.run(
        [sys.executable, "-m", *words, "--out", str(tmp_path / "run"), "--json"], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["privacy"]["epsilon"] == pytest.approx(one.chosen.epsilon, rel=1e-9)
    assert one.chosen.spread is not None
    low, high = one.chosen.spread
    assert low / 5 < found["gap"] < 5 * high
    assert found["gap"] < one.start_gap / 10
