"""`dpp2 reproduce tier3`: its rows, its curator, and its claims."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpp2 import Experiment, Result, run
from dpp2.arrays import Array
from dpp2.studies.reproduce import tier3
from dpp2.studies.reproduce.curator import curated
from dpp2.studies.reproduce.study import Order
from dpp2.studies.reproduce.tier3 import TIER3, Measured, Row
from dpp2.studies.reproduce.tier3_search import Choice, Chosen, Scores, SearchJob, Stage, choices, search
from dpp2.studies.reproduce.tier3_settings import Setting

CHOSEN = Chosen(*[Choice(20, 0.4, 4.0, 25.0)] * 3)
KEYS = ["data", "epsilon", "delta", "noise", "colluders", "gap", "gap_se", "local", "curator", "stay", "accuracy"]


def rows(**changed: float) -> list[Row]:
    one = Measured(1.0, 9.0, 0.9, 5.0, np.nan, np.nan, np.nan, np.nan, 1.0)
    cancer = replace(one, accuracy=0.95, local_accuracy=0.9, curator_accuracy=0.95, without_privacy=0.97)
    settings = (Setting("paper", 1, "laplace"), Setting("breast-cancer", 1, "gaussian"))
    return [Row(settings[0], CHOSEN, (replace(one, **changed), one)), Row(settings[1], CHOSEN, (cancer, cancer))]


def test_the_document_has_what_others_rely_on(tmp_path: Path) -> None:
    files = TIER3.write(rows(), tmp_path)
    written = json.loads(files["rows"].read_text())["rows"]
    assert all(set(KEYS) <= set(row) for row in written)
    assert [row["accuracy"] for row in written] == [None, 0.95]
    assert [row["delta"] for row in written] == [0.0, 1e-5]
    assert [claim.held for claim in TIER3.judge(rows())] == [True, True, True]


@pytest.mark.parametrize(("changed", "failed"), [({"gap": 3.0}, 0), ({"gap": 1.2, "stay": 1.1}, 1)])
def test_claims_fail_where_they_should(changed: dict[str, float], failed: int) -> None:
    held = [claim.held for claim in TIER3.judge(rows(**changed))]
    assert not held[failed]


def test_every_method_is_given_its_own_best_settings_from_the_same_tries() -> None:
    """Scores that are made up: the first seed alone would mislead one of them."""
    setting = Setting("planted", 1, "gaussian")
    offered = choices(setting, 6)
    assert len(set(offered)) == 6
    jobs: list[SearchJob] = []

    def tried(asked: Sequence[SearchJob]) -> list[Scores]:
        jobs.extend(asked)
        return [_made_up(offered.index(job.choice), job.seed) for job in asked]

    (chosen,) = search([setting], [Stage(6, 1), Stage(2, 3)], tried)
    assert [offered.index(one) for one in (chosen.ours, chosen.local, chosen.curator)] == [3, 5, 0]
    assert [job.seed for job in jobs if job.choice == offered[0]] == [5101, 5102, 5103]  # the defaults: on all seeds
    assert not {job.seed for job in jobs} & set(range(tier3.FIRST_SEED, tier3.FIRST_SEED + 10))


def _made_up(number: int, seed: int) -> Scores:
    lucky = number == 1 and seed == 5101
    return Scores(ours=-1.0 if lucky else abs(number - 3), local=abs(number - 5), curator=number)


def own(result: Result) -> Array:
    assert result.truth is not None
    return np.array(result.truth.own)


def test_the_curator_has_the_runs_noise_and_no_more() -> None:
    """With edges that carry nothing and one agent's share for all, the run IS the curator's, but for the scale."""
    tables = {"algorithm.name": "dpp3", "network.topology": "complete", "network.agents": 6, "problem.samples": 20}
    results = [run(Experiment.load(overrides=tables | {"run.seed": seed, "privacy.budget": 5.0})) for seed in range(6)]
    ratios = [result.metrics.gap[-1] / curated(result.experiment, own(result), 5.0).gap for result in results]
    assert np.mean(ratios) == pytest.approx(1.2, abs=0.2)  # one of six colludes: its own noise is not counted


def test_it_runs_from_its_settings_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = (Setting("planted", 10, "gaussian"),)
    monkeypatch.setattr(tier3, "SETTINGS", few)
    monkeypatch.setattr(tier3, "QUICK", [Stage(2, 1)])
    made = TIER3.run(Order(1, 1, "processes:1"))
    (row,) = made
    assert row.mean("gap") < 0.1 * row.mean("local")
    assert row.mean("spent") <= 10
    table = TIER3.table(made)
    assert len(table.rows) == 1
