"""Gaussian noise and sample indices: functions of (key, agent, round), and of the distribution they claim."""

from __future__ import annotations

import numpy as np
import pytest

from dpp2.algorithms.base import AgentContext
from dpp2.algorithms.noise import gaussian, indices
from dpp2.keys import RunKeys
from tests import dumb
from tests.core.programs import ETA_KEY, NOISE_KEY, problem


def context(owned: list[int], agents: int, dimension: int) -> AgentContext:
    section = problem("quadratic", agents, dimension=dimension)
    return AgentContext(owned, agents, section.objective(owned, agents), RunKeys((NOISE_KEY,) * len(owned), ETA_KEY))


def test_gaussian_noise_is_box_muller_of_the_agents_own_words() -> None:
    agents, dimension, owned, k = 5, 3, [1, 2, 4], 7
    drawn = np.asarray(gaussian("g", [0.0, 1.0, 2.0, 0.0, 0.5], 0, context(owned, agents, dimension))(k))
    key = dumb.hkdf(NOISE_KEY, b"noise", b"g")
    for row, (agent, sigma) in zip(drawn, ((1, 1.0), (2, 2.0), (4, 0.5)), strict=True):
        words = [dumb.uniform(dumb.word(key, k, 2 * dimension * agent + n)) for n in range(2 * dimension)]
        by_hand = [
            sigma * np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
            for radius, angle in zip(words[:dimension], words[dimension:], strict=True)
        ]
        np.testing.assert_allclose(row, by_hand, rtol=1e-13)


@pytest.mark.parametrize("bits", [0, 20])
def test_gaussian_noise_is_standard_normal_times_sigma(bits: int) -> None:
    from scipy.stats import kstest

    draw = gaussian("g", 3.0, bits, context(list(range(50)), 50, 20))
    sample = np.concatenate([np.asarray(draw(k)).ravel() for k in range(20)])
    assert kstest(sample / 3, "norm").pvalue > 1e-3
    lag = np.corrcoef(sample[:-1], sample[1:])[0, 1]
    assert abs(lag) < 4 / np.sqrt(len(sample))


@pytest.mark.parametrize("owned", [[0, 1, 2, 3], [2], [0, 3]])
def test_indices_do_not_depend_on_who_else_is_hosted(owned: list[int]) -> None:
    counts = np.array([1, 7, 200, 50])
    everybody = indices("sample", counts, context([0, 1, 2, 3], 4, 2))
    few = indices("sample", counts[owned], context(owned, 4, 2))
    for k in range(20):
        np.testing.assert_array_equal(few(k), everybody(k)[owned])


def test_indices_are_uniform() -> None:
    draw = indices("sample", np.full(100, 7), context(list(range(100)), 100, 1))
    counts = np.bincount(np.concatenate([draw(k) for k in range(100)]), minlength=7)
    assert len(counts) == 7
    expected = 100 * 100 / 7
    assert float(((counts - expected) ** 2 / expected).sum()) < 22.5  # χ² with 6 degrees of freedom, 0.1 %
