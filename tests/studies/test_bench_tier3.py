"""`studies.bench.tier3`: both noises of DPP³ really run beside DPP², embedded and over nodes."""

from __future__ import annotations

import asyncio

import pytest

from dpp2.studies.bench import tier3, timing


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (timing, "REPETITIONS", 1), (tier3, "REPETITIONS", 1), (tier3, "_ROUNDS", 1), (tier3, "_DRAWS", 40),
        (tier3, "_AGENTS", 8), (tier3, "_BLOCK", 12), (tier3, "_GRADIENTS", 5),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    small = {"network.agents": 8, "problem.samples": 5}
    monkeypatch.setattr(tier3, "SIDES", {name: {**small, **more} for name, more in tier3.SIDES.items()})


def is_whole(found: tier3.BesideDpp2) -> bool:
    times = found.gaussian / found.dpp2, found.laplace / found.dpp2
    return min(found.dpp2, found.gaussian, found.laplace) > 0 and times == (found.gaussian_times, found.laplace_times)


def test_embedded_rounds_and_edge_noise_are_set_beside_those_of_dpp2() -> None:
    heard: list[str] = []
    rounds, noise = tier3.rounds(heard.append), tier3.edge_noise(heard.append)
    assert is_whole(rounds)
    assert is_whole(noise)
    assert noise.dpp2 < rounds.dpp2
    assert len(heard) == 2
    assert [row[2] for row in rounds.rows("a round", "≤ 1")] == ["≤ 1", "≤ 1"]


@pytest.mark.slow
def test_rounds_over_nodes_are_set_beside_those_of_dpp2() -> None:
    assert is_whole(asyncio.run(tier3.networked(lambda what: None)))
