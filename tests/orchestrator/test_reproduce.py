"""`dpp2 reproduce`: every curve, every claim, and a verdict that depends on the numbers."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Call

from studies.reproduce.curves import FIGURES, Reproduction, reproduce, write

FIG1 = FIGURES["fig1"]


def test_long_enough_curves_bear_the_papers_claims_out() -> None:
    made = reproduce(replace(FIG1, values=(0.0, 0.9, 0.95)), seeds=1, rounds=750, executor="processes:1")
    assert [claim.held for claim in made.claims] == [True, True]
    assert made.gaps.shape == (3, 1, 751)
    assert (made.gaps[:, :, -1] < 1e-12).all()


def test_curves_that_end_too_early_prove_nothing() -> None:
    made = reproduce(replace(FIG1, values=(0.0, 0.9)), seeds=1, rounds=30, executor="processes:1")
    assert [claim.held for claim in made.claims] == [False, False]
    assert "not within 30 rounds" in made.claims[0].evidence
    assert "not reached" in made.claims[1].evidence


def test_processes_do_not_change_the_numbers() -> None:
    figure = replace(FIG1, values=(0.5, 0.9))
    one, two = (reproduce(figure, seeds=2, rounds=20, executor=f"processes:{n}").gaps for n in (1, 2))
    assert np.array_equal(one, two)


def test_an_order_that_is_broken_is_seen() -> None:
    """Larger values that arrive earlier: the claim does not hold."""
    from studies.reproduce.curves import _orders

    falling = np.geomspace(1, 1e-20, 101)
    gaps = np.array([[np.repeat(falling, 2)[:101]], [falling]])
    assert not _orders(Reproduction(replace(FIG1, values=(0.1, 0.9)), 1, gaps, [])).held


def test_everything_is_written(tmp_path: Path) -> None:
    made = reproduce(replace(FIG1, values=(0.5, 0.9)), seeds=2, rounds=10, executor="processes:1")
    table, picture = write(made, tmp_path)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 11
    assert float(rows[11 + 5]["gap"]) == made.gaps[0, 1, 5]
    assert picture.read_bytes().startswith(b"\x89PNG")


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
        (["fig9"], "WHAT = 'fig9': expected one of fig1, fig2, fig3, table1, comparison"),
        (["fig3", "--seeds", 0], "--seeds = 0: expected a whole number ≥ 1"),
        (["table1", "--rounds", -1], "--rounds = -1: expected a whole number ≥ 1"),
    ],
)
def test_bad_input_is_one_sentence(words: list[object], said: str, dpp2: Call) -> None:
    ended = dpp2("reproduce", *words)
    assert (ended.code, ended.err) == (2, f"dpp2: {said}\n")
