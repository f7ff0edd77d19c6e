"""Notes after a command: few lines, nothing lost, and what matters most comes last."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from dpp2.orchestrator.notes import grouped
from dpp2.prepared import PreparedRun

Call = Callable[..., Any]
SMALL = ["network.agents=4", "network.topology=ring"]


@pytest.mark.parametrize(
    "changes", [SMALL, [*SMALL, "run.seed=os", "run.telemetry=none"], [*SMALL, "algorithm.name=dpp3"]]
)
def test_of_an_account_take_two_lines_for_two_things_and_lose_no_word(changes: list[str]) -> None:
    notes = [*_account_notes(changes), "run.start is a file: whatever data its x⁰ was made from are outside ε"]
    lines = grouped(notes)
    assert sum("outside ε" in line for line in lines) == 1
    assert sum("no ε" in line for line in lines) <= 1
    assert len(lines) < len(notes)
    said = set(re.findall(r"[\w.^⁰̄]+", " ".join(lines)))
    lost = {word for note in notes for word in re.findall(r"[\w.^⁰̄]+", note)} - said
    assert lost <= {"is", "are", "and", "which", "no", "covers"}


def _account_notes(changes: list[str]) -> tuple[str, ...]:
    prepared = PreparedRun.of(Experiment.load(overrides=changes))
    return prepared.account(prepared.objective()).notes


@pytest.mark.usefixtures("quick_plot")
def test_of_a_run_that_got_worse_end_with_that(dpp2: Call, tmp_path: Path) -> None:
    words = [word for change in [*SMALL, "run.rounds=40"] for word in ("--set", change)]
    *_, outside, void, worse = dpp2("run", *words, "--out", tmp_path / "run").err.splitlines()
    assert outside == (
        "note: outside ε: M_i is computed from the private data (declare privacy.smoothness); problem.scale was "
        "computed from all agents' data (declare it); solution.npz holds x^K as it is (release it with `dpp2 privacy "
        "publish`)"
    )
    assert void == (
        "note: experiment: no ε holds, because run.seed is public, so everybody can draw the noise; "
        "and x, gradients and noise are recorded (truth.npz)"
    )
    assert worse.startswith("note: the gap is larger at the end than at the start; ")
