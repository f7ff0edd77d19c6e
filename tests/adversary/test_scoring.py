"""Errors as the report prints them, on numbers small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, run
from dpp2.adversary.attacks.base import Estimate
from dpp2.adversary.scoring import Stretch, Truth, hessians, insider, score
from tests.adversary.attacked import SMALL, attacked, recursion


def constant(*errors: float) -> tuple[Estimate, Truth]:
    """Two agents, one coordinate, x = 1: an estimate with these errors, the same for both, round by round."""
    x = np.ones((len(errors), 2, 1))
    return Estimate("test", x=x + np.array(errors)[:, None, None]), Truth(x, x)


def test_errors_are_relative_and_frobenius() -> None:
    truth = Truth(x=np.array([[[3.0], [4.0]]]), grad=np.zeros((1, 2, 1)))
    result = score(Estimate("test", x=np.array([[[3.0], [5.0]]])), truth, (0, 1))
    assert result.x is not None
    assert result.x.rounds.tolist() == [0.2]  # 1/‖(3, 4)‖
    assert result.x.agents is not None
    assert result.x.agents.tolist() == [[0.0, 0.25]]
    assert result.grad is None
    assert result.eta is None


def test_only_the_agents_seen_count() -> None:
    truth = Truth(x=np.array([[[3.0], [4.0]]]), grad=np.zeros((1, 2, 1)))
    result = score(Estimate("test", x=np.array([[[3.0], [5.0]]])), truth, (1,))
    assert result.x is not None
    assert result.x.rounds.tolist() == [0.25]


def test_what_is_not_claimed_is_not_counted() -> None:
    x = np.array([[[3.0], [np.nan]], [[np.nan], [np.nan]]])
    result = score(Estimate("test", x=x), Truth(np.full((2, 2, 1), 4.0), np.zeros((2, 2, 1))), (0, 1))
    assert result.x is not None
    assert result.x.rounds[0] == 0.25
    assert np.isnan(result.x.rounds[1])
    assert result.x.median is None


@pytest.mark.parametrize(
    ("errors", "since"),
    [
        ((1.0, 0.05, 0.05, 0.005, 1e-9), (1, 3, 4)),
        ((0.05, 0.05, 0.5, 0.005, 0.05), (3, None, None)),
        ((1.0, 1.0), (None, None, None)),
        ((0.0, 0.0), (0, 0, 0)),
    ],
)
def test_since_is_the_round_from_which_it_stays_below(errors: tuple[float, ...], since: tuple[int | None, ...]) -> None:
    result = score(*constant(*errors), (0, 1))
    assert result.x is not None
    assert tuple(result.x.since.values()) == since


def test_the_median_is_that_of_the_last_tenth() -> None:
    result = score(*constant(*([1.0] * 27), 0.25, 0.5, 0.125), (0, 1))
    assert result.x is not None
    assert result.x.median == 0.25


@pytest.mark.parametrize(
    ("errors", "closest"),
    [
        ((1.0, 0.5, 0.25, 0.125, 1.0, 1.0), (1, 3, 0.5)),  # the worst of three in a row, wherever they lie
        ((1.0, 1e-9, 1.0, 1.0), (0, 2, 1.0)),  # one alone may be luck
        ((np.nan, 0.5, np.nan, 0.25, np.nan, 0.125, 1.0), (1, 5, 0.5)),  # what is not claimed is passed over
        ((np.nan, 0.25), (1, 1, 0.25)),
    ],
)
def test_the_closest_stretch_is_three_claims_in_a_row(
    errors: tuple[float, ...], closest: tuple[int, int, float]
) -> None:
    result = score(*constant(*errors), (0, 1))
    assert result.x is not None
    assert result.x.closest == Stretch(*closest)


@pytest.mark.parametrize(("agents", "dimension", "rounds"), [(1, 1, 6), (1, 3, 2), (2, 3, 1), (5, 3, 1)])
def test_fewer_numbers_must_be_close_for_longer(agents: int, dimension: int, rounds: int) -> None:
    x = np.ones((20, agents, dimension))
    wrong = np.where(np.arange(20) < 20 - rounds, 9.0, 0.5)[:, None, None] * x
    result = score(Estimate("test", x=x + wrong), Truth(x, x), range(agents))
    assert result.x is not None
    assert result.x.closest is not None
    assert (result.x.closest.first, result.x.closest.last) == (20 - rounds, 19)
    assert result.x.closest.error == pytest.approx(0.5)


def test_without_a_claim_there_is_no_closest_stretch() -> None:
    for error in (np.nan, np.inf):
        result = score(*constant(error, error), (0, 1))
        assert result.x is not None
        assert result.x.closest is None


def test_a_record_that_begins_in_mid_run_is_compared_with_its_own_rounds() -> None:
    _, truth = constant(*([0.0] * 10))
    late = Truth(np.arange(1.0, 11.0)[:, None, None] * truth.x, truth.grad, eta=np.linspace(0, 1, 10))
    result = score(Estimate("test", x=late.x[6:], eta=np.linspace(0, 1, 10)[6:]), late, (0, 1), first=6)
    assert result.x is not None
    assert result.eta is not None
    assert result.x.rounds.tolist() == [0.0] * 4
    assert result.x.since[1e-6] == 6
    assert result.eta.rounds.tolist() == [0.0] * 4


def test_zero_is_recovered_exactly_or_not_at_all() -> None:
    truth = Truth(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)))
    result = score(Estimate("test", x=np.array([[[0.0]], [[1e-100]]])), truth, (0,))
    assert result.x is not None
    assert result.x.rounds.tolist() == [0.0, np.inf]


def test_truth_is_read_from_a_runs_folder(tmp_path: Path) -> None:
    result = run(Experiment.load(overrides=SMALL))
    assert result.truth is not None
    (tmp_path / "experiment.toml").write_text(result.experiment.to_toml())
    np.savez(tmp_path / "truth.npz", **result.truth)  # type: ignore[arg-type]
    truth = Truth.load(tmp_path)
    np.testing.assert_array_equal(truth.x, result.truth.x)
    assert truth.objective is not None
    np.testing.assert_array_equal(truth.objective(truth.x[3])[1], truth.grad[3])


def test_folders_without_truth_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"truth\.npz"):
        Truth.load(tmp_path)
    (tmp_path / "truth.npz").write_bytes(b"junk")
    with pytest.raises(BadInput, match="intact"):
        Truth.load(tmp_path)


def test_an_insider_gets_its_own_rows_and_eta_only() -> None:
    drawn = recursion(np.random.default_rng(0), damping=0.0, noise=1.0)
    inside = insider(drawn.truth, drawn.knowledge, 3)
    assert inside.own is not None
    assert inside.own.x.shape == drawn.truth.x[:, 3].shape
    assert inside.eta is drawn.truth.eta
    with pytest.raises(BadInput, match="a run of dpp2"):
        insider(Truth(drawn.truth.x, drawn.truth.grad), drawn.knowledge, 3)


def test_true_hessians_are_those_of_the_objective() -> None:
    network = {"network.topology": "ring", "network.agents": 3, "run.rounds": 2}
    truth = attacked(network | {"problem.name": "quadratic", "problem.curvature": [1.0, -2.0, 3.0]}).truth
    assert truth.objective is not None
    found = hessians(truth.objective, truth.x[0])
    np.testing.assert_allclose(found[1], -2 * np.eye(found.shape[1]), atol=1e-9)
