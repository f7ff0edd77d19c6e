"""The last bits of one message: with doubles they rule out the adjacent objective, with a grid nothing."""

from __future__ import annotations

import numpy as np
import pytest

from dpp2.adversary.attacks.float_bits import Exclusion, FloatBits, could_have_produced
from dpp2.adversary.candidates import Setting, ruled_out, share_in
from dpp2.adversary.views import local_view
from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import NoiseStream, seed_key
from tests.adversary.attacked import attacked, small

DELTA = 1.0


@pytest.mark.parametrize("epsilon", [0.003, 0.03, 0.3])
def test_one_z_of_a_real_run_rules_out_the_adjacent_objective(epsilon: float) -> None:
    """The paper's experiment, 50 agents, d = 10: one message of each is enough, with u so large that ε is small."""
    u = float(np.sqrt(10) * DELTA / epsilon)
    run = attacked({"run.rounds": 1, "noise.u_e": u, "noise.grid": 0, "privacy.adjacency": DELTA})
    claim = FloatBits().run(run.everything)
    assert claim.excludes is not None
    found = ruled_out(claim.excludes, run.truth, range(50))
    assert (found["true_ruled_out"], found["adjacent_ruled_out"]) == (0.0, 1.0)
    assert found["message_epsilon"] == pytest.approx(epsilon)
    assert found["value_over_scale"] < 10 * epsilon


@pytest.mark.parametrize("epsilon", [0.003, 0.3, 30.0])
@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_on_the_grid_no_z_of_a_real_run_rules_out_anything(epsilon: float, damping: float) -> None:
    """The regression test for ever: the default experiment, whatever its scale."""
    u = float(np.sqrt(10) * DELTA / epsilon)
    run = attacked({"run.rounds": 1, "noise.u_e": u, "privacy.adjacency": DELTA, "algorithm.damping": damping})
    claim = FloatBits().run(run.everything)
    assert claim.excludes is not None
    found = ruled_out(claim.excludes, run.truth, range(50))
    assert (found["true_ruled_out"], found["adjacent_ruled_out"]) == (0.0, 0.0)


def test_an_eavesdropper_on_one_victim_is_enough() -> None:
    run = small(noise__u_e=100.0, noise__grid=0)
    claim = FloatBits().run(local_view(run.observation, run.knowledge, 2))
    assert claim.excludes is not None
    wrong = run.truth.grad[0] + 0.01
    assert claim.excludes(wrong).tolist() == [agent == 2 for agent in range(6)]
    assert not claim.excludes(run.truth.grad[0]).any()


@pytest.mark.parametrize("epsilon", [0.001, 0.03])
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 1.0])
def test_doubles_betray_their_value_at_small_epsilon(epsilon: float, ratio: float) -> None:
    assert share_in(Setting(epsilon, ratio), 500) >= 0.95


def test_large_values_hide_the_bits_of_small_noise() -> None:
    """Where |value| is far above u the sum is rounded, and fewer messages tell; some still do, and ε is void."""
    shares = [share_in(Setting(0.03, ratio), 500) for ratio in (1.0, 10.0, 1000.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.2


@pytest.mark.parametrize("epsilon", [0.001, 0.03, 1.0, 10.0])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e6])
def test_the_grid_rules_out_nothing_in_a_hundred_thousand_messages(epsilon: float, ratio: float) -> None:
    assert share_in(Setting(epsilon, ratio, bits=20, dimension=2), 100_000) == 0.0


@pytest.mark.parametrize("bits", [0, 20])
@pytest.mark.parametrize("u", [0.37, 1.0, 105.4])
def test_what_was_sent_is_never_held_for_impossible(bits: int, u: float) -> None:
    values = np.random.default_rng(2).standard_normal((300, 10)) * np.logspace(-6, 6, 300)[:, None]
    scales = np.full(300, u), np.ones(300)
    where = [seed_key(4)] * 300, "e", range(300), 10
    if bits:
        sent = GridNoise(*where, scales, Law("laplace", bits)).add(0, values)
    else:
        sent = values + np.asarray(NoiseStream(*where, *scales)(0))
    assert could_have_produced(sent, values, u, bits).all()


def test_on_the_grid_what_no_value_can_send_is_impossible() -> None:
    """The test has teeth: off the grid, beyond the tail, and −0."""
    message = np.array([0.1, 100.0, -0.0, 0.5, 0.0])
    assert could_have_produced(message, np.zeros(5), 1.0, 20).tolist() == [False, False, False, True, True]


def test_it_says_what_it_lacks() -> None:
    run = small()
    assert FloatBits().needs(run.everything) is None
    assert isinstance(FloatBits().run(run.everything), Exclusion)
    silent = small(noise__u_e=0.0)
    assert "no noise" in str(FloatBits().needs(silent.everything))
