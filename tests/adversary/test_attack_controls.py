"""Every attack has a run on which it must succeed and one on which it must fail: real runs, no constructed messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.scoring import Score, Truth
from dpp2.adversary.views import neighbour_view
from tests.adversary.attacked import BY_NAME, SILENT, Attacked, attacked, small


def worst(score: Score) -> tuple[float, float]:
    """Largest relative error of x and of the gradient over all rounds."""
    assert score.x is not None
    assert score.grad is not None
    return float(score.x.rounds.max()), float(score.grad.rounds.max())


def test_names_are_unique_and_summaries_are_sentences() -> None:
    assert len(BY_NAME) == len(ATTACKS) == len({attack.summary for attack in ATTACKS})
    assert all(attack.summary.endswith(".") and attack.summary.count(". ") == 0 for attack in ATTACKS)


def test_prior_is_off_by_one_whatever_is_run() -> None:
    _, score = small().tried("prior")
    assert worst(score) == (1.0, 1.0)


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_direct_reads_x_where_both_tiers_are_off(damping: float) -> None:
    _, score = small(algorithm__eta=1.0, algorithm__damping=damping, **_silent()).tried("direct")
    assert score.x is not None
    assert score.x.rounds.max() < 1e-12


def test_direct_is_lost_under_tier_one_and_never_reads_the_gradient() -> None:
    _, mixed = attacked({"run.rounds": 300} | SILENT).tried("direct")
    _, bare = attacked({"run.rounds": 300, "algorithm.eta": 1.0} | SILENT).tried("direct")
    assert mixed.x is not None
    assert mixed.x.median is not None
    assert mixed.x.median > 10
    for score in (mixed, bare):  # z carries q with tier one on or off, and vanishes in the end
        assert score.grad is not None
        assert score.grad.rounds.min() > 0.5


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_telescope_is_exact_under_tier_one_alone(damping: float) -> None:
    """Tier one by itself protects neither x nor the gradient, damped or not."""
    x, grad = worst(small(algorithm__damping=damping, **_silent()).tried("telescope")[1])
    assert x < 1e-12
    assert grad < 1e-10


def test_telescope_is_lost_under_noise() -> None:
    x, grad = worst(small().tried("telescope")[1])
    assert x > 0.5
    assert grad > 0.5


def test_three_rounds_recover_everything_once_the_noise_has_decayed() -> None:
    _, score = small(noise__decay=0.5, run__rounds=80).tried("three-round")
    assert score.x is not None
    assert score.grad is not None
    assert score.eta is not None
    assert np.median(score.x.rounds[50:]) < 1e-6
    assert np.median(score.grad.rounds[50:]) < 1e-6
    assert np.median(score.eta.rounds[50:]) < 1e-8


def test_three_rounds_need_no_beginning() -> None:
    """Three rounds in mid-run by themselves say the same as within the whole record."""
    run = small(noise__decay=0.5, run__rounds=80)
    phases = {phase: rows[50:53] for phase, rows in run.observation.phases.items()}
    late = Attacked(replace(run.observation, phases=phases, first=50), run.knowledge, run.truth)
    _, score = late.tried("three-round")
    assert score.x is not None
    assert score.x.rounds.max() < 1e-5
    assert score.x.since[0.01] == 50
    for name in ("telescope", "window"):
        assert BY_NAME[name].needs(late.everything) is not None


def test_three_rounds_find_nothing_under_full_noise() -> None:
    """Noise that does not decay, as large as the start: x comes back no better than by guessing."""
    _, score = small(noise__decay=1.0, noise__u_w=5.0, noise__u_e=5.0).tried("three-round")
    assert score.x is not None
    assert score.grad is not None
    assert np.median(score.x.rounds) > 0.5
    assert np.median(score.grad.rounds) > 1.0


def test_window_works_near_consensus_and_not_before() -> None:
    """A damped run stands still after some 60 rounds, where three rounds find nothing and ten do."""
    run = small(algorithm__damping=1.0, noise__decay=0.8, run__rounds=200)
    _, ten = run.tried("window")
    _, three = run.tried("three-round")
    assert ten.x is not None
    assert three.x is not None
    assert ten.grad is not None
    assert np.median(ten.x.rounds[:10]) > 0.5
    assert np.median(ten.x.rounds[150:]) < 1e-9
    assert np.median(ten.grad.rounds[150:]) < 1e-9
    assert np.median(three.x.rounds[150:]) > 1.0


def test_parameters_come_back_from_who_hides_them() -> None:
    """Damped, they are (1+τ)α and (1+τ)β, whether or not τ is known; who does not know it gets (1+τ)x as well."""
    run = small(noise__decay=0.5, algorithm__damping=0.5, run__rounds=80)
    knowing, score = run.tried("parameter-free")
    assert knowing.parameters["alpha"] == pytest.approx(0.15, rel=1e-6)
    assert max(score.parameters.values()) < 1e-6
    view = run.everything
    ignorant = type(view)("global", view.observation, view.knowledge.hidden(), view.agents)
    estimate, _ = run.tried("parameter-free", ignorant)
    assert BY_NAME["three-round"].needs(ignorant) == "needs α and β, which this attacker does not know"
    assert estimate.parameters["alpha"] == pytest.approx(0.15, rel=1e-6)
    assert estimate.parameters["beta"] == pytest.approx(0.075, rel=1e-6)
    assert estimate.grad is None  # ρ is hidden, too
    assert estimate.x is not None
    np.testing.assert_allclose(estimate.x[40] / 1.5, run.truth.x[40], rtol=1e-4)


def test_parameters_do_not_come_back_from_noise() -> None:
    estimate, _ = small(noise__decay=1.0, noise__u_w=5.0, noise__u_e=5.0).tried("parameter-free")
    assert abs(estimate.parameters["alpha"] - 0.1) > 0.01


@pytest.mark.parametrize(
    "name", ["telescope", "known-eta", "three-round", "window", "parameter-free", "smoother", "data"]
)
def test_attacks_on_dpp2_say_that_they_do_not_apply_to_others(name: str) -> None:
    view = small(algorithm__name="dgd").everything
    assert BY_NAME[name].needs(view) == "rests on the messages y and z of DPP², but dgd was run"


def test_direct_reads_what_others_send_in_the_clear() -> None:
    _, score = small(algorithm__name="dgd").tried("direct")
    assert score.x is not None
    assert score.x.rounds.max() < 1e-12
    assert score.grad is None


STOPS = 40  # the first round whose numbers have exploded
ATTACKED_INSTEAD: dict[str, dict[str, Any]] = {
    "increments": {"algorithm__name": "dgd"},
    "tracked": {"algorithm__name": "gradient-tracking"},
    "best-linear": {
        "algorithm__name": "dpp3",
        "algorithm__mixings": 1,
        "algorithm__gradient_rounds": 60,
        "algorithm__final_mixings": 0,
    },
    "server": {"algorithm__name": "diff2", "network__topology": "star"},
}


def exploded(run: Attacked, large: float) -> Attacked:
    """The same run with everything from round `STOPS` on multiplied by a large number."""
    growth = np.where(np.arange(60) < STOPS, 1.0, large)[:, None, None]
    with np.errstate(invalid="ignore"):  # 0 · ∞: an agent that sends zeros
        phases = {phase: rows * growth for phase, rows in run.observation.phases.items()}
        truth = Truth(run.truth.x * growth, run.truth.grad * growth, run.truth.eta, run.truth.w, run.truth.e)
    return Attacked(replace(run.observation, phases=phases), run.knowledge, truth)


@pytest.mark.parametrize("large", [1e30, 1e160, np.inf])
@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS])
def test_attacks_survive_a_run_that_diverged(name: str, large: float) -> None:
    """Numbers that can be squared are attacked, others are as good as not overheard.

    Rounds before the explosion keep an estimate that can be scored, and no error is ever negative.
    """
    run = exploded(small(**ATTACKED_INSTEAD.get(name, {})), large)
    view = neighbour_view(run.observation, run.inside(2), 2) if name == "known-eta" else run.everything
    missing = BY_NAME[name].needs(view)
    assert missing is None or (large >= 1e160 and "overheard" in missing)
    if missing is None:
        _, found = run.tried(name, view)
        scored = [errors.rounds for errors in (found.x, found.grad) if errors is not None]
        assert scored or name in ("data", "float-bits")
        for errors in scored:
            assert errors.shape == (60,)
            assert np.isfinite(errors[1 : STOPS - 2]).all()  # the server tells nothing in round 0
            assert not (errors < 0).any()


@pytest.mark.parametrize("name", ["direct", "telescope", "three-round", "increments", "tracked", "server"])
def test_an_explosion_does_not_change_what_is_known_of_the_rounds_before(name: str) -> None:
    run = small(**ATTACKED_INSTEAD.get(name, {}))
    (_, calm), (_, after) = run.tried(name), exploded(run, 1e30).tried(name)
    assert calm.x is not None
    assert after.x is not None
    np.testing.assert_allclose(after.x.rounds[: STOPS - 2], calm.x.rounds[: STOPS - 2], rtol=1e-9)


def _silent() -> dict[str, float]:
    return {key.replace(".", "__"): value for key, value in SILENT.items()}
