"""`dpp2 bench page` measures real runs, watched and not."""

from __future__ import annotations

import pytest

from dpp2.studies.bench.page import PAGE, WAYS, measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_way_has_a_row_and_is_set_beside_the_run_without_a_page() -> None:
    small = ("--set", "network.agents=4", "--set", "network.topology=ring", "--set", "run.rounds=50")
    rows = measure(turns=2, runs={"small": small})
    assert [row.way for row in rows] == list(WAYS[: len(rows)])
    assert len(rows) >= 2
    assert (rows[0].rate_ratio, rows[0].cpu_ratio) == (None, None)
    for row in rows[1:]:
        assert row.rate_ratio is not None
        assert row.cpu_quartiles is not None
        assert row.cpu_quartiles[0] <= (row.cpu_ratio or 0) <= row.cpu_quartiles[1]
    assert len(PAGE.table(rows).rows) == len(rows)
