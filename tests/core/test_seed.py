"""What a seed decides alone, and what it decides together with the experiment (docs/experiments.md says so)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpp2 import Experiment, Records, run

BOWL = """class Bowl:
    dimension = smoothness = 1
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x
def objective(agent, agents): return Bowl()
"""


def truth(folder: Path, *changes: str, program: str = BOWL) -> Records:
    path = folder / "bowl.py"
    path.write_text(program)
    small = ["network.topology=ring", "network.agents=4", "problem.name=file", f"problem.path={path}", "run.rounds=3"]
    return run(Experiment.load(overrides=[*small, *changes])).truth


@pytest.mark.parametrize("change", ["run.rounds=2", "privacy.budget=1e9"])
def test_a_change_of_when_a_run_ends_changes_no_number(change: str, tmp_path: Path) -> None:
    before, after = truth(tmp_path), truth(tmp_path, change)
    for name in ("x", "w", "e"):
        np.testing.assert_array_equal(before[name][:2], after[name][:2])


def test_another_setting_draws_other_noise_and_mixing_and_leaves_the_start(tmp_path: Path) -> None:
    before, after = truth(tmp_path), truth(tmp_path, "algorithm.alpha=0.11")
    assert same(before, after) == {"x"}


def test_a_comment_in_ones_own_program_draws_other_noise(tmp_path: Path) -> None:
    before, after = truth(tmp_path), truth(tmp_path, program=f"{BOWL}# why\n")
    assert same(before, after) == {"x", "eta"}


def same(before: Records, after: Records) -> set[str]:
    """What round 0 has in common."""
    return {name for name in ("x", "w", "e", "eta") if np.isclose(before[name][0], after[name][0]).any()}
