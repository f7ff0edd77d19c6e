"""`dpp2 reproduce table1`: kinds and rates of convergence are read off curves of which they are known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dpp2.studies.reproduce import table1
from dpp2.studies.reproduce.table1 import ROWS, Convergence, Measured, judged
from tests.conftest import Call

K = np.arange(2001, dtype=float)
NOISE = np.exp(0.2 * np.random.default_rng(1).standard_normal(len(K)))


def test_a_line_in_the_logarithm_is_a_geometric_rate() -> None:
    found = judged(np.maximum(100 * 0.95**K, 1e-28))
    assert (found.kind, found.exact) == ("exact", True)
    assert found.rate.startswith("θ^k, θ = 0.9500 ")


def test_a_power_that_goes_on_is_still_falling() -> None:
    found = judged(100 * (1 + K) ** -0.7 * NOISE)
    assert (found.kind, found.exact) == ("still falling", None)
    assert found.rate.startswith(("k^-0.69", "k^-0.70", "k^-0.71"))


@pytest.mark.parametrize("towards", [0.9**K, (1 + K) ** -2.0])
def test_a_gap_that_stops_is_a_neighbourhood(towards: np.ndarray) -> None:
    assert judged((100 * towards + 0.5) * NOISE).kind == "neighbourhood"


def test_growth_is_divergence() -> None:
    assert judged(1.01**K).kind == "diverges"


def test_the_verdict_follows_the_numbers() -> None:
    claimed_exact, not_found = ROWS[-4], next(row for row in ROWS if row.overrides is None)
    for kind, said in (("exact", "as the paper says"), ("neighbourhood", "NOT as the paper says")):
        assert Measured(claimed_exact, Convergence(kind, 1.0, ""), "", "", "").verdict == said
    assert Measured(not_found, None, "", "", "").verdict.startswith("could not be found")


def test_the_papers_rows_are_all_there() -> None:
    papers = [row.method for row in ROWS if not row.ours]
    assert papers == [
        *("PrivSGP-VR", "DIFF2", "Wang–Başar", "Wang–Nedić", "DMSP"),
        *("DiaDSP", "eDP-TN", "PPDC", "PPDC", "DPP²", "DPP²"),
    ]


def test_command_measures_every_row(tmp_path: Path, dpp2: Call) -> None:
    words = ("--rounds", 24, "--seeds", 1, "--executor", "processes:1", "--out", tmp_path, "--json")
    printed = json.loads(dpp2("reproduce", "table1", *words).out)
    assert len(printed["rows"]) == len(ROWS)
    with Path(printed["csv"]).open(newline="") as file:
        rows = {(row["method"], row["problem"]): row for row in csv.DictReader(file)}
    assert "(ε, δ_dp)" in rows["DIFF2", "nonconvex"]["ε(K)"]
    assert rows["DMSP", "strongly convex"]["step"] == "γ_k = 1.0·0.985^k"
    assert rows["eDP-TN", "strongly convex"]["verdict"].startswith("could not be found")
    assert set(table1.HEAD) == set(rows["DPP²", "P-Ł"])
