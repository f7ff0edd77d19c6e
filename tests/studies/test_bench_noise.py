"""`studies.bench.noise`: both streams are drawn, and the row says what it is about."""

from __future__ import annotations

import pytest

from dpp2.studies.bench import noise, timing


def test_a_row_for_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SHAPES", ((3, 2), (2, 500)))
    monkeypatch.setattr(noise, "_VARIATES", 1000)
    monkeypatch.setattr(timing, "REPETITIONS", 1)
    rows = noise.noise()
    assert [(row["agents"], row["dimension"]) for row in rows] == [(3, 2), (2, 500)]
    assert all(row["times"] == pytest.approx(row["grid"] / row["doubles"]) for row in rows)
