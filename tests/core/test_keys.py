"""Secret randomness: replayable to the byte, never shared, Laplace by inversion. Golden vectors with their origin."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpp2 import Experiment, Simulation
from dpp2.keys import (
    EtaStream,
    NoiseStream,
    RunKeys,
    derive,
    fresh_key,
    keystream,
    seed_key,
    standard_laplace,
    uniform,
)
from dpp2.prepared import PreparedRun, Secrets
from tests import dumb

KEY = bytes(range(32))
LABELS = st.lists(st.binary(max_size=6), max_size=4)


def stream(purpose: str = "w", agents: Any = range(5), key: bytes = KEY, dimension: int = 3) -> NoiseStream:
    n = len(agents)
    return NoiseStream([key] * n, purpose, agents, dimension, np.ones(n), np.full(n, 0.9))


# --- golden vectors -------------------------------------------------------------------------------------------


def test_keystream_gives_the_nist_vector() -> None:
    """NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt), output blocks 1 to 4: counter f0f1…feff and the three after it."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    words = keystream(key, 0xF0F1F2F3F4F5F6F7, 2 * 0xF8F9FAFBFCFDFEFF, 8)
    assert words.astype("<u8").tobytes().hex() == (
        "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"
        "1bc12c9c01610d5d0d8bd6a3378eca622956e1c8693536b1bee99c73a31576b6"
    )


# Origin of the constants below: HKDF-SHA256 (RFC 5869) with Python's hmac and AES-256 block by block in ECB mode, as
# written out in tests/dumb.py; key = 000102…1f; printed on 2026-11-16. They pin labels, byte order and bit use:
# a change here makes old runs impossible to resume.
GOLDEN_DERIVED: dict[tuple[str, ...], str] = {
    ("run key", "id", "digest", ""): "3489a9d1db9b1dd6404e895de781ab6b4be2a49ecd71ce03c8bc3e0f59da0d07",
    ("eta key", "id", "digest"): "94b932c990a3b9f530262ded413d70d4b734508c4b199243abac332c24d7cab9",
    ("noise", "w"): "b13987d032c391f8e1a0ff40a57d4c1124fa7c6bbb95a3eab8b7cbba19fbd8c1",
    ("noise", "e"): "08c3375fc10855b0238eafe16ef80e6e89e0c0b55fd060bd2ab28a6c8b525e43",
    (): "2b5f1f8547a0bddecdc73a4dc2e9a4c22aee531c6d369aaf0e20e32d18b0b0cc",
}
GOLDEN_WORDS = ["d225f9bd01fb5437", "4d3069ce4f968d8f", "a8dff00d6f428604", "a02e16bbab9197e0"]
GOLDEN_LAPLACE = [[-0.005047814995932405, 0.2628903022570295], [0.4741800810776474, -1.339576494726362]]
GOLDEN_ETA = [0.8149305085444233, 0.48894361288678956, 0.34417083783344327]


@pytest.mark.parametrize("labels", GOLDEN_DERIVED)
def test_derived_keys_are_golden(labels: tuple[str, ...]) -> None:
    assert derive(KEY, *labels).hex() == GOLDEN_DERIVED[labels]
    assert dumb.hkdf(KEY, *(label.encode() for label in labels)).hex() == GOLDEN_DERIVED[labels]


def test_words_are_golden() -> None:
    """Words 0 … 3 of round 7 under 00…1f."""
    assert [f"{word:016x}" for word in keystream(KEY, 7, 0, 4).tolist()] == GOLDEN_WORDS
    assert [f"{dumb.word(KEY, 7, position):016x}" for position in range(4)] == GOLDEN_WORDS


def test_noise_is_golden() -> None:
    """w of agents 1 and 2 in round 3, d = 2, u = 1, r = 1, run key 00…1f."""
    ours = NoiseStream([KEY] * 2, "w", [1, 2], 2, np.ones(2), np.ones(2))(3)
    np.testing.assert_allclose(ours, GOLDEN_LAPLACE, rtol=1e-14)


def test_eta_is_golden() -> None:
    """η^0 … η^2 under the η key 00…1f."""
    assert [EtaStream(KEY)(k) for k in range(3)] == GOLDEN_ETA


# --- addressing -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 9), st.binary(min_size=32, max_size=32))
def test_keystream_is_aes_block_by_block(k: int, start: int, count: int, key: bytes) -> None:
    """Odd starts, odd lengths, any round: always the words that the counter block (round, position) says."""
    assert keystream(key, k, start, count).tolist() == [dumb.word(key, k, start + n) for n in range(count)]


@given(st.integers(0, 10**6), st.integers(0, 300), st.integers(1, 40))
@settings(deadline=None)
def test_a_slice_is_the_slice_of_the_whole(k: int, start: int, count: int) -> None:
    np.testing.assert_array_equal(keystream(KEY, k, start, count), keystream(KEY, k, 0, 400)[start : start + count])


@pytest.mark.parametrize("purpose", ["w", "e"])
def test_any_round_is_replayed_alone_to_the_byte(purpose: str) -> None:
    forwards = [np.asarray(stream(purpose)(k)).tobytes() for k in range(30)]
    for k in (29, 0, 17, 17, 3):
        assert np.asarray(stream(purpose)(k)).tobytes() == forwards[k]
    assert len(set(forwards)) == 30


@pytest.mark.parametrize("owned", [[0], [3], [1, 2], [4, 0, 2], [0, 1, 3, 4]])
def test_an_agents_noise_does_not_depend_on_who_is_hosted_beside_it(owned: list[int]) -> None:
    for k in (0, 5):
        whole = np.asarray(stream()(k))
        np.testing.assert_array_equal(stream(agents=owned)(k), whole[owned])


def test_an_agents_scale_is_the_same_to_the_byte_alone_and_among_others() -> None:
    """Scales r_i^k of many agents come as a column, one agent's as a number; the powers must not differ by a bit."""
    rng = np.random.default_rng(0)
    u, decay = rng.uniform(0.1, 2, 40), rng.uniform(0.5, 1, 40)
    together = NoiseStream([KEY] * 40, "w", range(40), 2, u, decay)
    alone = [NoiseStream([KEY], "w", [i], 2, u[i : i + 1], decay[i : i + 1]) for i in range(40)]
    for k in (0, 1, 2, 7, 100, 499):
        np.testing.assert_array_equal(together(k), np.concatenate([np.asarray(own(k)) for own in alone]))


def test_agents_with_keys_of_their_own() -> None:
    """A node of its own has its own secret; hosted in one process the parts are what each would draw alone."""
    keys = [derive(KEY, str(i)) for i in range(4)]
    together = np.asarray(NoiseStream(keys, "e", range(4), 3, np.ones(4), np.ones(4))(2))
    for i, key in enumerate(keys):
        alone = NoiseStream([key], "e", [i], 3, np.ones(1), np.ones(1))(2)
        np.testing.assert_array_equal(together[i : i + 1], alone)


def test_no_two_addresses_share_words() -> None:
    """Other run, experiment, data, secret, purpose or round: disjoint words, all of them, and disjoint from η's."""
    addresses = [("run", "digest", b"", KEY)]
    addresses += [("run2", "digest", b"", KEY), ("run", "digest2", b"", KEY), ("run", "digest", b"data", KEY)]
    addresses += [("run", "digest", b"", bytes(32)), ("digest", "run", b"", KEY)]
    drawn: dict[tuple[object, ...], set[int]] = {}
    for run_id, digest, data, secret in addresses:
        keys = RunKeys.of([secret], secret, run_id, digest, [data])
        for purpose in ("w", "e"):
            for k in (0, 1, 2):
                words = keystream(derive(keys.noise[0], "noise", purpose), k, 0, 100)
                drawn[run_id, digest, data, secret, purpose, k] = set(words.tolist())
        if not data:
            drawn[run_id, digest, "eta", secret] = {int(keystream(keys.eta, k, 0, 1)[0]) for k in range(100)}
    assert all(len(words) == 100 for words in drawn.values())  # and within a round, agents differ
    for one, other in combinations(drawn.values(), 2):
        assert not one & other


def test_eta_does_not_depend_on_anybodys_data() -> None:
    """One η for the whole network: agents with different data must agree on it."""
    one, other = (RunKeys.of([KEY], KEY, "run", "digest", [data]) for data in (b"a", b"b"))
    assert one.eta == other.eta
    assert one.noise != other.noise


@given(LABELS, LABELS)
def test_label_lists_never_collide(one: list[bytes], other: list[bytes]) -> None:
    """Labels are length-prefixed: ("ab", "c") and ("a", "bc") are different keys."""
    assert (derive(KEY, *one) == derive(KEY, *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [(("ab", "c"), ("a", "bc")), (("a",), ("a", "")), ((), ("",)), (("run key",), ("eta key",))]
)
def test_label_separation(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert derive(KEY, *one) != derive(KEY, *other)


def test_text_labels_are_their_utf8_bytes() -> None:
    assert derive(KEY, "η") == derive(KEY, b"\xce\xb7")


# --- distributions --------------------------------------------------------------------------------------------

EDGES = np.array([0, 1, 2**12 - 1, 2**12, 2**63, 2**64 - 2, 2**64 - 1], dtype=np.uint64)


def test_uniform_stays_strictly_inside_0_and_1() -> None:
    assert uniform(EDGES).min() == 2.0**-53
    assert uniform(EDGES).max() == 1 - 2.0**-53


def test_laplace_of_the_extreme_words_is_finite() -> None:
    drawn = standard_laplace(EDGES)
    assert np.isfinite(drawn).all()
    assert np.abs(drawn).max() == pytest.approx(52 * np.log(2), rel=1e-15)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_laplace_is_the_inversion_written_out(words: list[int]) -> None:
    ours = standard_laplace(np.array(words, dtype=np.uint64))
    np.testing.assert_allclose(ours, [dumb.laplace(word) for word in words], rtol=1e-14, atol=0)


def test_laplace_leaves_its_words_alone() -> None:
    words = keystream(KEY, 0, 0, 100)
    before = words.copy()
    standard_laplace(words)
    np.testing.assert_array_equal(words, before)


def test_noise_is_laplace() -> None:
    """Kolmogorov–Smirnov and four moments of 200,000 draws under a fixed key: the test is the same every time."""
    drawn = standard_laplace(keystream(KEY, 0, 0, 200_000))
    assert stats.kstest(drawn, "laplace").pvalue > 0.01
    assert stats.kstest(np.abs(drawn), "expon").pvalue > 0.01
    assert drawn.mean() == pytest.approx(0, abs=0.01)
    assert drawn.var() == pytest.approx(2, rel=0.02)
    assert stats.skew(drawn) == pytest.approx(0, abs=0.1)
    assert stats.kurtosis(drawn) == pytest.approx(3, rel=0.1)


def test_sign_and_magnitude_are_independent() -> None:
    drawn = standard_laplace(keystream(KEY, 1, 0, 200_000))
    assert (drawn > 0).mean() == pytest.approx(0.5, abs=0.005)
    assert stats.ks_2samp(drawn[drawn > 0], -drawn[drawn < 0]).pvalue > 0.01


def test_eta_is_uniform() -> None:
    drawn = [EtaStream(KEY)(k) for k in range(4000)]
    assert stats.kstest(drawn, "uniform").pvalue > 0.01


@pytest.mark.parametrize("other", ["agent", "round", "purpose"])
def test_draws_of_different_addresses_are_uncorrelated(other: str) -> None:
    wide: Any = {"agents": range(2), "dimension": 50_000}
    first = np.asarray(stream(**wide)(0))[0]
    second = {
        "agent": lambda: np.asarray(stream(**wide)(0))[1],
        "round": lambda: np.asarray(stream(**wide)(1))[0],
        "purpose": lambda: np.asarray(stream("e", **wide)(0))[0],
    }[other]()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


def test_scales_are_per_agent() -> None:
    u, decay = np.array([1.0, 0.0, 2.0]), np.array([0.5, 0.9, 0.0])
    unscaled = NoiseStream([KEY] * 3, "w", range(3), 4, np.ones(3), np.ones(3))
    scaled = NoiseStream([KEY] * 3, "w", range(3), 4, u, decay)
    for k, factor in ((0, [1.0, 0.0, 2.0]), (3, [0.125, 0.0, 0.0])):
        np.testing.assert_array_equal(scaled(k), np.asarray(unscaled(k)) * np.array(factor)[:, None])


def test_silence_costs_nothing() -> None:
    """All scales zero, or decayed to zero: the array itself comes back, and no keystream is drawn."""
    x = np.ones((1, 4))
    for stream, k in (
        (NoiseStream([KEY], "w", [0], 4, np.zeros(1), np.ones(1)), 0),
        (NoiseStream([KEY], "w", [0], 4, np.ones(1), np.zeros(1)), 1),
    ):
        assert x + stream(k) is x
        assert x - stream(k) is x
        assert np.asarray(stream(k)) == 0.0


# --- whole runs -----------------------------------------------------------------------------------------------

SMALL = ["network.topology=ring", "network.agents=6", "problem.name=quadratic", "run.rounds=8"]


def truth(*overrides: str, secrets: Secrets | None = None) -> Any:
    simulation = Simulation(PreparedRun.of(Experiment.load(overrides=[*SMALL, *overrides]), secrets))
    simulation.advance(simulation.remaining)
    return simulation.result().truth


def test_a_seeded_run_repeats_itself() -> None:
    np.testing.assert_array_equal(truth().w, truth().w)


def test_a_longer_run_begins_with_the_shorter_one() -> None:
    """Rounds are not part of the digest: a resumed run sends the same bytes again."""
    short, long = truth(), truth("run.rounds=16")
    for name in ("x", "w", "e", "eta"):
        np.testing.assert_array_equal(long[name][:8], short[name])


@pytest.mark.parametrize("change", ["run.seed=2", "algorithm.alpha=0.11", "problem.spread=2.0", "noise.decay=0.91"])
def test_another_experiment_has_unrelated_noise(change: str) -> None:
    """With one key for both, the difference of two runs would be a difference of gradients under full noise."""
    assert not set(np.ravel(truth().w[0]).tolist()) & set(np.ravel(truth(change).w[0]).tolist())
    assert not set(truth().eta.tolist()) & set(truth(change).eta.tolist())


def test_unseeded_runs_differ_every_time() -> None:
    one, other = truth("run.seed=os"), truth("run.seed=os")
    for name in ("x", "w", "e", "eta"):
        assert (one[name] != other[name]).any()


def test_unseeded_run_repeats_under_its_kept_secrets() -> None:
    """What a resume does: the same secrets, the same noise and the same start."""
    secrets = PreparedRun.of(Experiment.load(overrides=[*SMALL, "run.seed=os"])).secrets
    one, other = (truth("run.seed=os", secrets=secrets) for _ in range(2))
    for name in ("x", "w", "e", "eta"):
        np.testing.assert_array_equal(one[name], other[name])


def test_fresh_and_seeded_keys() -> None:
    assert len({fresh_key() for _ in range(50)} | {seed_key(seed) for seed in range(50)}) == 100
    assert all(len(key) == 32 for key in (fresh_key(), seed_key(0)))
