"""Noise on a grid: exact sums, exact probabilities, the same bytes alone and among others."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpp2.arrays import Array
from dpp2.grid import CARRIED, GridNoise, covered, grid, largest_carried, to_grid
from dpp2.inversion import LAWS, TAIL_BITS, Law, Uniforms
from dpp2.keys import SILENCE, Keystream

KEY = bytes(range(32))
LAPLACE, GAUSSIAN = LAWS
POINTS = 1 << 52  # values of m
MULTIPLIERS = (2.0**20, 1.37 * 2**20, math.nextafter(2.0**21, 0))
MULTIPLIER = st.floats(2.0**20, 2.0**21, exclude_max=True)


def stream(law: Law = LAPLACE, agents: Any = range(5), dimension: int = 3, u: Any = 1.0, r: Any = 0.9) -> GridNoise:
    n = len(agents)
    scales = np.broadcast_to(np.asarray(u, float), n), np.broadcast_to(np.asarray(r, float), n)
    return GridNoise([KEY] * n, "w", agents, dimension, scales, law)


def magnitudes(law: Law, points: list[int], steps: int, c: float) -> list[int]:
    """What the sampler makes of these values of m, for one G."""
    uniforms = Uniforms(np.array(points, dtype=np.uint64), np.full(len(points), steps, dtype=np.uint8))
    return [int(n) for n in law.sampler(uniforms, c)]


# --- the grid ----------------------------------------------------------------------------------------------------


@given(st.floats(1e-200, 1e200), st.integers(1, 30))
def test_the_grid_is_a_power_of_two_between_one_and_two_parts_in_2_to_the_b(scale: float, bits: int) -> None:
    g = float(grid(scale, bits))
    assert math.frexp(g)[0] == 0.5
    assert 2**bits <= Fraction(scale) / Fraction(g) < 2 ** (bits + 1)
    assert grid(np.array([[scale], [0.0]]), bits).tolist() == [[g], [0.0]]  # type: ignore[union-attr]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6))
def test_rounding_finds_the_nearest_multiple(value: float, scale: float) -> None:
    g = float(grid(scale, 20))
    found = to_grid(np.array([[value]]), g).item()
    assert (Fraction(found) / Fraction(g)).denominator == 1
    assert abs(Fraction(found) - Fraction(value)) <= Fraction(g) / 2


@settings(deadline=None)
@given(st.floats(-1, 1), st.floats(1e-9, 1e9), st.integers(0, 10**6), st.sampled_from(LAWS))
def test_the_sum_is_exact_while_it_is_covered(share: float, scale: float, k: int, law: Law) -> None:
    """(v + n) − n is the rounded v, to the last bit, up to the largest value that is said to be carried."""
    noise = stream(law, range(2), 4, scale, 1.0)
    values = np.full((2, 4), share * largest_carried(scale, law))
    drawn, g = np.asarray(noise(k)), noise.g(k)
    rounded = to_grid(values, g)
    released = noise.add(k, values)
    assert covered(rounded, drawn, g)
    assert (released - drawn).tobytes() == (rounded + 0.0).tobytes()
    exact = [Fraction(v) + Fraction(n) for v, n in zip(rounded.ravel().tolist(), drawn.ravel().tolist(), strict=True)]
    assert [Fraction(z) for z in released.ravel().tolist()] == exact


def test_beyond_two_to_the_53_grid_units_the_sum_is_not_covered() -> None:
    noise = stream(u=1.0, r=1.0)
    g = noise.g(0)
    assert covered(np.full((5, 3), 1e9), noise(0), g)
    assert not covered(np.full((5, 3), CARRIED * float(g)), noise(0), g)
    assert covered(np.full((5, 3), 1e300), SILENCE, 0.0)
    assert largest_carried(1.0, LAPLACE) == pytest.approx(2.0**33, rel=1e-6)


def test_a_zero_that_is_released_has_no_sign() -> None:
    """Otherwise −0 = −0 + −0 would tell that the value was rounded to zero from below."""
    noise = stream(Law("laplace", 1), range(40), 200, 1.0, 1.0)
    for k in range(5):
        assert not np.signbit(np.asarray(noise(k))[np.asarray(noise(k)) == 0]).any()
        below, above = (noise.add(k, np.full((40, 200), side)) for side in (-1e-9, 1e-9))
        assert (above == 0).any()
        assert below.tobytes() == above.tobytes()


# --- addressing --------------------------------------------------------------------------------------------------

# Origin: KEY = 00 01 … 1f, purpose "w", round 3, agents 1 and 2, d = 2, u = 1, r = 1, 20 bits, in units of the grid;
# recomputed below from AES blocks with Python's own whole numbers and mpmath. A change here makes old runs impossible
# to resume.
GOLDEN = {
    "laplace": [[272426, -207303], [-315569, 676793]],
    "gaussian": [[-1738293, 392030], [-787026, 372588]],
}


def dumb_variate(law: Law, k: int, position: int) -> int:
    """From the definition in `dpp2.inversion`, for c = 2^20."""
    from dpp2.keys import derive

    words = Keystream(derive(KEY, "grid noise", law.kind, "w"))
    word = int.from_bytes(words.bytes(k, 8 * position, 8), "little")
    field = int.from_bytes(words.bytes(k, 2**62 + 2 * position, 2), "little")
    G = (field & -field).bit_length()
    assert field
    with mpmath.workprec(200):
        U = (1 + mpmath.mpf(word % 2**52) / 2**52) / mpmath.mpf(2) ** G
        H = math.ceil(2**20 * math.log(2))
        X = (
            -mpmath.log(U) * H / mpmath.log(2)
            if law.kind == "laplace"
            else mpmath.sqrt(2) * mpmath.erfinv(1 - U) * 2**20
        )
        return int(mpmath.nint(X)) * (-1 if word >> 63 else 1)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_noise_is_golden(law: Law) -> None:
    ours = np.asarray(stream(law, [1, 2], 2, 1.0, 1.0)(3)) * 2.0**20
    assert ours.astype(int).tolist() == GOLDEN[law.kind]
    assert [[dumb_variate(law, 3, 2 * agent + n) for n in range(2)] for agent in (1, 2)] == GOLDEN[law.kind]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("dimension", [3, 9000, 40_000])
def test_an_agents_noise_is_the_same_alone_among_others_and_in_any_order(law: Law, dimension: int) -> None:
    u, r = np.linspace(0.3, 3, 4), np.array([0.9, 0.95, 0.9, 0.7])
    whole = stream(law, range(4), dimension, u, r)
    rounds = {k: np.asarray(whole(k)).tobytes() for k in (0, 1, 70)}
    for k in (70, 0, 1, 0):
        assert np.asarray(whole(k)).tobytes() == rounds[k]
        rows = [np.asarray(stream(law, [i], dimension, u[i], r[i])(k)) for i in range(4)]
        assert np.concatenate(rows).tobytes() == rounds[k]


@pytest.mark.parametrize(("agents", "dimension"), [(7, 9000), (3, 60_000), (40, 1300)])
def test_agents_with_keys_of_their_own_draw_the_same_together(agents: int, dimension: int) -> None:
    keys = [KEY if i % 3 else bytes([i] * 32) for i in range(agents)]
    scales = np.ones(agents), np.full(agents, 0.9)
    whole = np.asarray(GridNoise(keys, "w", range(agents), dimension, scales, LAPLACE)(4))
    for i in (0, 1, 2, agents - 1):
        alone = GridNoise(keys[i : i + 1], "w", [i], dimension, (np.ones(1), np.full(1, 0.9)), LAPLACE)(4)
        assert np.asarray(alone).tobytes() == whole[i].tobytes()


def test_variates_beyond_sixteen_zeros_are_the_same_alone_and_in_a_batch() -> None:
    """One in 65,536 reads a third word: find them, and ask for each one alone."""
    stream = Keystream(KEY)
    together = Uniforms.of([(stream, 0, 5, 200_000), (stream, 1, 0, 100_000)])
    rare = np.flatnonzero(together.steps > 16)
    assert 1 <= len(rare) <= 20
    for n in rare.tolist():
        k, position = (0, 5 + n) if n < 200_000 else (1, n - 200_000)
        alone = Uniforms.of([(stream, k, position, 1)])
        assert (alone.words[0], alone.steps[0]) == (together.words[n], together.steps[n])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_a_public_factor_on_the_scale_moves_the_grid_with_it(law: Law) -> None:
    """DIFF2's noise grows with the step: the same draws as under scales that have the factor in them."""
    factors, values = np.array([[0.5], [3.0], [0.0]]), np.full((3, 4), 1 / 3)
    released, noise = stream(law, range(3), 4, 1.0, 0.9).add_scaled(2, values, factors)
    other = stream(law, range(3), 4, factors[:, 0] * 0.9**2, 1.0)
    assert released.tobytes() == other.add(2, values).tobytes()
    assert noise.tobytes() == np.asarray(other(2)).tobytes()
    assert released[2].tolist() == values[2].tolist()


def test_silence_is_silence_and_one_silent_agent_gets_zeros() -> None:
    assert stream(u=0.0)(3) is SILENCE
    assert stream(r=0.0)(1) is SILENCE
    assert np.asarray(stream(r=0.0)(0)).all()
    noise = stream(u=[1.0, 0.0, 1.0, 2.0, 0.5], r=1.0)
    drawn, values = np.asarray(noise(2)), np.full((5, 3), 1 / 3)
    assert not drawn[1].any()
    assert drawn[[0, 2, 3, 4]].all()
    assert noise.add(2, values)[1].tolist() == [1 / 3] * 3
    assert np.asarray(noise.g(2)).ravel().tolist() == [2.0**-20, 0, 2.0**-20, 2.0**-19, 2.0**-21]


def test_a_node_that_draws_laplace_noise_does_not_load_scipy() -> None:
    code = "import sys, dpp2.grid; sys.exit('scipy.special' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the distribution, exactly -----------------------------------------------------------------------------------


def below(law: Law, steps: int, c: float, n: int) -> int:
    """How many m give a magnitude ≤ n for this G: by bisection, since magnitudes fall as m grows."""
    low, high = 0, POINTS  # magnitude(low − 1) > n, magnitude(high) ≤ n
    while high > low:
        middle = (low + high) // 2
        if magnitudes(law, [middle], steps, c)[0] <= n:
            high = middle
        else:
            low = middle + 1
    around = range(max(low - 50, 0), min(low + 50, POINTS))
    flipped = [found <= n for found in magnitudes(law, list(around), steps, c)]
    assert flipped == sorted(flipped)  # the logarithm is monotone here, so that the count is exact
    return POINTS - low


def sampled(law: Law, c: float, n: int) -> Fraction:
    """The exact probability that the sampler gives a magnitude of n."""
    total = Fraction(0)
    for steps in range(1, TAIL_BITS):
        farthest, nearest = magnitudes(law, [0, POINTS - 1], steps, c)
        if nearest <= n <= farthest:
            total += Fraction(below(law, steps, c, n) - below(law, steps, c, n - 1), POINTS << steps)
    return total


def exact(law: Law, c: float, n: int) -> Any:
    """P(rint(c|X|) = n) for the real-valued variate; for Laplace with the c that makes c·ln 2 whole."""
    low, high = mpmath.mpf(max(n - 0.5, 0)), mpmath.mpf(n + 0.5)
    if law.kind == "laplace":
        c = mpmath.mpf(math.ceil(c * math.log(2))) / mpmath.log(2)
        return mpmath.exp(-low / c) - mpmath.exp(-high / c)
    below, above = (mpmath.erfc(x / c / mpmath.sqrt(2)) for x in (low, high))
    return below - above


def off(law: Law, c: float, n: int) -> float:
    with mpmath.workprec(250):
        found = sampled(law, c, n)
        return abs(float(mpmath.mpf(found.numerator) / found.denominator / exact(law, c, n) - 1))


@pytest.mark.parametrize("c", MULTIPLIERS)
@pytest.mark.parametrize("far", [0.0, 1e-6, 1e-3, 0.3, 0.68, 1.0, 3.0, 10.0, 22.2, 40.0])
def test_laplace_bins_are_right_to_1e_9_near_the_centre_and_forty_scales_out(c: float, far: float) -> None:
    assert off(LAPLACE, c, round(far * c)) < 1e-9


@pytest.mark.parametrize("c", MULTIPLIERS)
@pytest.mark.parametrize("blocks", [1, 2, 30])
def test_laplace_bins_that_lie_in_two_blocks_keep_the_bound(c: float, blocks: int) -> None:
    assert off(LAPLACE, c, blocks * math.ceil(c * math.log(2))) < LAPLACE.bin_error


@settings(deadline=None, max_examples=30)
@given(MULTIPLIER, st.floats(0, 40))
def test_any_laplace_bin_keeps_the_bound(c: float, far: float) -> None:
    assert off(LAPLACE, c, round(far * c)) < LAPLACE.bin_error < 1.2e-9


@pytest.mark.parametrize("c", MULTIPLIERS)
@pytest.mark.parametrize("far", [0.0, 1e-5, 0.1, 0.7, 1.5, 3.0, 6.0, 9.0])
def test_gaussian_bins_keep_their_bound(c: float, far: float) -> None:
    assert off(GAUSSIAN, c, round(far * c)) < GAUSSIAN.bin_error < 1e-7


def test_log_and_ndtri_are_as_accurate_as_the_derivation_takes_them() -> None:
    """log within 1 ulp, and ndtri within 8, of what mpmath says."""
    from scipy.special import ndtri

    rng = np.random.default_rng(1)
    m = 1 + rng.random(2000)
    with mpmath.workprec(200):
        logs = [abs(mpmath.log(a) - b) / math.ulp(b) for a, b in zip(m.tolist(), np.log(m).tolist(), strict=True)]
        p = np.ldexp(m, -rng.integers(2, TAIL_BITS + 2, len(m)))
        normal = []
        for a, x in zip(p.tolist(), ndtri(p).tolist(), strict=True):
            slope = mpmath.npdf(x)
            normal.append(abs((mpmath.ncdf(x) - a) / slope) / math.ulp(x))
    assert max(logs) < 1
    assert max(normal) < 8


def test_what_is_charged_for_bins_and_tail() -> None:
    assert LAPLACE.extra_epsilon == pytest.approx(2 * LAPLACE.bin_error)
    assert LAPLACE.bin_error == pytest.approx(1.16e-9, rel=0.01)
    for law in LAWS:
        last = Uniforms(np.zeros(1, dtype=np.uint64), np.array([TAIL_BITS], dtype=np.uint8))
        assert law.sampler(last, 2.0**20)[0] <= law.farthest * 2.0**20


# --- the distribution, drawn -------------------------------------------------------------------------------------


def chi_square(law: Law, draws: int, bits: int) -> float:
    """p-value of a χ² test of all bins that expect 20 draws or more, and the rest of both tails as two more."""
    c = 1.37 * 2**bits
    uniforms = Uniforms.of([(Keystream(KEY), 11, 0, draws)])
    found = uniforms.signed(law.sampler(uniforms, c), np.array(1.0)).astype(int)
    enlarged = math.ceil(c * math.log(2)) / math.log(2)
    true = stats.laplace(scale=enlarged) if law.kind == "laplace" else stats.norm(scale=c)
    edges = np.arange(-60 * 2**bits, 60 * 2**bits + 1) - 0.5
    kept = np.flatnonzero(draws * np.diff(true.cdf(edges)) >= 20)
    edges = edges[kept[0] : kept[-1] + 2]
    expected = draws * np.concatenate([[true.cdf(edges[0])], np.diff(true.cdf(edges)), [true.sf(edges[-1])]])
    lowest = math.floor(edges[0])
    counts = np.bincount(np.clip(found, lowest, math.ceil(edges[-1])) - lowest)
    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("bits", [3, 8])
def test_a_million_draws_have_the_exact_histogram(law: Law, bits: int) -> None:
    assert 1e-4 < chi_square(law, 10**6, bits) < 1 - 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("bits", [3, 8, 12])
def test_ten_million_draws_have_the_exact_histogram(law: Law, bits: int) -> None:
    assert 1e-4 < chi_square(law, 10**7, bits) < 1 - 1e-4


@settings(deadline=None, max_examples=25)
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-3, 1e3), st.sampled_from(LAWS))
def test_another_value_shifts_the_histogram_by_whole_grid_steps(v: float, w: float, scale: float, law: Law) -> None:
    """For every draw the two outputs differ by the same multiple of g, so the two distributions are exact shifts."""
    noise = stream(law, range(3), 400, scale, 1.0)
    g = float(noise.g(0))
    one, other = (noise.add(0, np.full((3, 400), value)) for value in (v, w))
    steps = {Fraction(a) / Fraction(g) - Fraction(b) / Fraction(g) for a, b in zip(flat(one), flat(other), strict=True)}
    assert len(steps) == 1
    assert steps.pop() == round(Fraction(v) / Fraction(g)) - round(Fraction(w) / Fraction(g))
    assert {(Fraction(a) / Fraction(g)).denominator for a in flat(one) + flat(other)} == {1}


def flat(values: Array) -> list[float]:
    listed: list[float] = values.ravel().tolist()
    return listed


def test_both_samplers_give_every_whole_number_near_the_centre() -> None:
    """No gaps: what one value can release, any other can."""
    for law in LAWS:
        uniforms = Uniforms.of([(Keystream(KEY), 2, 0, 200_000)])
        found = set(law.sampler(uniforms, 100.0).astype(int).tolist())
        assert set(range(200)) <= found
