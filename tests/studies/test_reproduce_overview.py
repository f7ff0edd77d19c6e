"""The page of `dpp2 reproduce overview`: made of what was measured, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpp2.studies.reproduce import overview
from dpp2.studies.reproduce.curves import FIG1, CurveStudy, judged
from dpp2.studies.reproduce.fig3 import Fig3Study
from dpp2.studies.reproduce.leaks import Leak
from dpp2.studies.reproduce.overview import Overview
from dpp2.studies.reproduce.study import Order
from dpp2.studies.reproduce.table1 import TABLE1


def order(rounds: int) -> Order:
    return Order(seeds=1, rounds=rounds, executor="processes:1")


@pytest.fixture(scope="module")
def made() -> Overview:
    return Overview(
        seeds=1,
        figures=(CurveStudy(replace(FIG1.figure, values=(0.5,)), rounds=4).run(order(4)),),
        fig3=Fig3Study(decays=(0.5,)).run(order(2)),
        table1=TABLE1.run(order(20)),
        leaks=(Leak("dgd", ("direct", 0.0), ("increments", 1.4e-15)), Leak("diadsp", None, ("tracked", 36.0))),
    )


def test_every_measured_part_is_on_the_page(made: Overview) -> None:
    page = "\n\n".join(overview.paragraphs(made))
    for measured in (
        f"{made.fig3.of('steep', 'DiaDSP', 0, 'gap')[0]:.1e}",
        judged(made.figures[0])[0].evidence,
        "could not be found",
    ):
        assert measured in page


def test_figures_that_failed_are_said_to_have_failed(made: Overview) -> None:
    page = "\n".join(overview.paragraphs(made))
    assert "**did not hold**: exact convergence for every r — not within 4 rounds" in page


def test_recovery_is_told_as_audits_tell_it(made: Overview) -> None:
    page = "\n".join(overview.paragraphs(made))
    assert "| dgd | recovered exactly (direct) | recovered to 1e-15 (increments) |" in page
    assert (
        "| diadsp | not recovered by these attacks | not recovered by these attacks (closest: 4e+01, tracked) |" in page
    )


def test_tables_have_as_many_cells_as_heads(made: Overview) -> None:
    for block in "\n\n".join(overview.paragraphs(made)).split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1
