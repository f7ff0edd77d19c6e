"""Noise that cancels, as a computer draws it: sums rounded once, whole noise in whole steps, digits enough."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpp2 import Experiment, run
from dpp2.algorithms.cancelling_noise import CancellingNoise, released
from dpp2.edge_keys import EdgeSecret
from dpp2.edge_noise import WITHIN, EdgeNoise
from dpp2.inversion import Uniforms, gaussian_numbers
from dpp2.keys import Keystream, derive, uniform
from dpp2.privacy import Epsilon


def experiment(**more: object) -> Experiment:
    tables: dict[str, object] = {"algorithm.name": "dpp3", "network.topology": "ring", "network.agents": 6}
    tables |= {"problem.dimension": 3, "problem.samples": 5}
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


def test_the_sum_of_own_and_edge_noise_is_rounded_once_and_exactly() -> None:
    rng, g = np.random.default_rng(3), 2.0**-20
    grad, own, edge = rng.normal(size=(4, 50)), rng.normal(size=(4, 50)), 1e5 * rng.normal(size=(4, 50))
    found = released(grad, {"own": own, "edge": edge}, g)
    for value, a, b, sent in zip(
        *(map(Fraction, one.ravel().tolist()) for one in (grad, own, edge, found)), strict=True
    ):
        assert sent == (round(value / Fraction(g)) + round((a + b) / Fraction(g))) * Fraction(g)


@pytest.mark.parametrize("more", [{"noise__ratio": 0.0}, {"privacy__colluders": 2}])
def test_whole_laplace_noise_is_in_whole_steps_of_the_grid(more: dict[str, object]) -> None:
    """A ring is cut by two colluders, so a few hold whole noise; with ratio 0 everybody does."""
    result = run(experiment(noise__kind="laplace", **more))
    noise = result.experiment.noise
    assert isinstance(noise, CancellingNoise)
    assert noise.shares == 1
    assert result.truth is not None
    for drawn in (result.truth.own, result.truth.edge):
        steps = np.array(drawn) / noise.g
        np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.any(result.truth.own)


def test_the_tail_of_noise_that_nothing_else_hides_is_charged_at_eighty_bits() -> None:
    spent = run(experiment(noise__kind="laplace", noise__ratio=0.0)).privacy.epsilon
    assert isinstance(spent, Epsilon)
    assert -80 < spent.log2_delta < -70


def test_gaussian_edge_noise_is_within_what_is_charged_of_an_exact_variate() -> None:
    """The same radii and angles with 64 bits of mantissa; cells are a hundredth of what is allowed, or finer."""
    d, key = 100_000, derive(bytes(32), "exact")
    drawn = EdgeNoise("gaussian", [EdgeSecret((0, 1), key, 1.0)], [0], d)(0)[0]
    words = Keystream(derive(key, "noise")).words(0, 0, d)
    u, turn = (uniform(words[start::2].copy()).astype(np.longdouble) for start in (0, 1))
    inside = (u > 2.0**-16) & (u < 1 - 2.0**-16)
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.arccos(np.longdouble(-1)) * turn
    for start, exact in ((0, radius * np.cos(angle)), (1, radius * np.sin(angle))):
        assert np.abs(drawn[start::2] - exact)[inside].max() < WITHIN / 100
    assert inside.mean() > 0.999


def test_own_gaussian_noise_fills_bins_evenly_wherever_they_begin() -> None:
    """A million variates: the fraction beyond a multiple of the grid does not depend on what the edges left over."""
    numbers = gaussian_numbers(Uniforms.of([(Keystream(bytes(32)), 0, 0, 1_000_000)]), np.array([2.0**20]))
    for offset in (0.0, 0.3, 0.5):
        rest = (numbers + offset) % 1
        counts = np.histogram(rest, bins=16, range=(0, 1))[0]
        assert np.abs(counts - 62_500).max() < 5 * np.sqrt(62_500)


@pytest.mark.parametrize(("kind", "most"), [("gaussian", 1e-4), ("laplace", 1e-5)])
def test_what_finite_words_cost_is_little_and_falls_with_the_ratio(kind: str, most: float) -> None:
    """The paper's graph; of the ε of a gradient round. Larger edge noise needs more digits."""
    found = []
    for ratio in (0.0, 100.0, 1e5):
        resolved = Experiment.load(
            overrides={"algorithm.name": "dpp3", "noise.kind": kind, "noise.ratio": ratio, "noise.own": 1.0}
        ).resolve()
        assert isinstance(resolved.noise, CancellingNoise)
        found.append(resolved.noise.precision(resolved.network.graph(), 10))
    assert 0 < found[0] <= found[1] <= found[2]
    assert found[1] < most
