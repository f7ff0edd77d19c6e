"""`dpp2 reproduce`: every curve, every claim, and a verdict that depends on the numbers."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpp2.store.files import json_text
from dpp2.studies.reproduce.curves import FIG1, Curves, CurveStudy
from dpp2.studies.reproduce.study import Claim, Order
from tests.conftest import Call


def study(*values: float) -> CurveStudy:
    """Fig. 1 with these decays."""
    return CurveStudy(replace(FIG1.figure, values=values), rounds=10)


def made(one: CurveStudy, *, seeds: int, rounds: int, processes: int = 1) -> tuple[Curves, list[Claim]]:
    found = one.run(Order(seeds, rounds, f"processes:{processes}"))
    return found, one.judge(found)


def test_long_enough_curves_bear_the_papers_claims_out() -> None:
    found, claims = made(study(0.0, 0.9, 0.95), seeds=1, rounds=750)
    assert [claim.held for claim in claims] == [True, True]
    assert found.gaps.shape == (3, 1, 751)
    assert (found.gaps[:, :, -1] < 1e-12).all()


def test_curves_that_end_too_early_prove_nothing() -> None:
    _, claims = made(study(0.0, 0.9), seeds=1, rounds=30)
    assert [claim.held for claim in claims] == [False, False]
    assert "not within 30 rounds" in claims[0].evidence
    assert "not reached" in claims[1].evidence


def test_a_run_that_diverges_is_said_to_and_the_others_are_shown(tmp_path: Path) -> None:
    """α = 60 overflows within a few rounds, so its curves end early; α = 0.1 converges."""
    diverging = CurveStudy(replace(FIG1.figure, keys=("algorithm.alpha",), values=(0.1, 60.0)), rounds=10)
    found, claims = made(diverging, seeds=2, rounds=400)
    assert np.isfinite(found.gaps[0]).all()
    assert np.isinf(found.gaps[1, :, -1]).all()
    assert not claims[0].held
    assert claims[0].evidence.endswith(", r = 60 diverged")
    assert claims[1].evidence.endswith("r = 60: not reached")
    files = diverging.write(found, tmp_path)
    assert '"gap": {' in json_text(diverging.document(found, files))


def test_processes_do_not_change_the_numbers() -> None:
    one, two = (made(study(0.5, 0.9), seeds=2, rounds=20, processes=n)[0].gaps for n in (1, 2))
    assert np.array_equal(one, two)


def test_an_order_that_is_broken_is_seen() -> None:
    """Larger values that arrive earlier: the claim does not hold."""
    falling = np.geomspace(1, 1e-20, 101)
    gaps = np.array([[np.repeat(falling, 2)[:101]], [falling]])
    one = study(0.1, 0.9)
    assert not one.judge(Curves(one.figure, 1, gaps))[1].held


def test_everything_is_written(tmp_path: Path) -> None:
    one = study(0.5, 0.9)
    found, _ = made(one, seeds=2, rounds=10)
    files = one.write(found, tmp_path)
    with files["curves"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 11
    assert float(rows[11 + 5]["gap"]) == found.gaps[0, 1, 5]
    assert files["picture"].read_bytes().startswith(b"\x89PNG")


def test_command_prints_one_document(tmp_path: Path, dpp2: Call) -> None:
    ended = dpp2(
        "reproduce", "fig2", "--rounds", 3, "--seeds", 1, "--executor", "processes:1", "--out", tmp_path, "--json"
    )
    printed = json.loads(ended.out)
    assert (ended.code, len(printed["gap"]), len(printed["claims"])) == (0, 7, 2)
    assert Path(printed["png"]).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fig9"], "WHAT = 'fig9': expected one of fig1, fig2, fig3, table1, tier3, zero-sum, overview"),
        (["fig3", "--seeds", 0], "--seeds = 0: expected a whole number ≥ 1"),
        (["table1", "--rounds", -1], "--rounds = -1: expected a whole number ≥ 1"),
    ],
)
def test_bad_input_is_one_sentence(words: list[object], said: str, dpp2: Call) -> None:
    ended = dpp2("reproduce", *words)
    assert (ended.code, ended.err) == (2, f"dpp2: {said}\n")
