"""The page of `dpp2 reproduce comparison`: made of what was measured, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpp2 import Experiment
from studies.compare import Grid, compare, named
from studies.reproduce import curves, fig3, overview, table1
from studies.reproduce.overview import Leak, Overview

SMALL = {"network.agents": 5, "network.topology": "ring", "problem.dimension": 2, "problem.samples": 10}


@pytest.fixture(scope="module")
def made() -> Overview:
    here = {"seeds": 1, "executor": "processes:1"}
    problem = Experiment.load(overrides=SMALL).resolve()
    grid = Grid(rounds=(4,), decays=(1.0,), steps=(1.0,), finalists=1, trials=1)
    methods = named(["dpp2", "dmsp", "wang-basar"], problem)
    return Overview(
        seeds=1,
        figures=(curves.reproduce(replace(curves.FIGURES["fig1"], values=(0.5,)), rounds=4, **here),),  # type: ignore[arg-type]
        fig3=fig3.reproduce(rounds=2, decays=(0.5,), **here),  # type: ignore[arg-type]
        table1=table1.reproduce(rounds=20, **here),  # type: ignore[arg-type]
        comparisons=(compare(problem, methods, 10.0, grid=grid, seeds=1, executor="processes:1"),),
        leaks=(Leak("dgd", ("direct", 0.0), ("increments", 1.4e-15)), Leak("diadsp", None, ("tracked", 36.0))),
    )


def test_every_measured_part_is_on_the_page(made: Overview) -> None:
    page = "\n\n".join(overview.paragraphs(made))
    for measured in (
        f"{made.fig3.of('steep', 'DiaDSP', 0, 'gap')[0]:.1e}",
        f"{made.comparisons[0].entries[0].mean:.3g}",
        made.figures[0].claims[0].evidence,
        made.comparisons[0].left_out[0].reason,
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
