"""Secrets of an edge: the same at both ends, never the same in two runs, and noise that cancels. Published vectors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpp2.arrays import Array
from dpp2.edge_keys import EdgeIdentity, EdgeNoise, EdgeSecret, Hello, Kind, standard_gaussian
from dpp2.errors import BadInput
from dpp2.keys import Keystream, derive, fresh_key
from tests import dumb

# Published: they pin labels, order and byte use. With a change there, runs cannot be resumed, and old nodes disagree
# with new ones.
PUBLISHED = json.loads((Path(__file__).parents[1] / "vectors" / "edge-secrets.json").read_text())
BOB = bytes.fromhex(PUBLISHED["upper"]["private_key"])
BOB_PUBLIC: str = PUBLISHED["upper"]["public_key"]
ALICE_PUBLIC = bytes.fromhex(PUBLISHED["lower"]["public_key"])
SHARED = bytes.fromhex(PUBLISHED["shared"])
NONCES = bytes.fromhex(PUBLISHED["lower"]["nonce"]), bytes.fromhex(PUBLISHED["upper"]["nonce"])
RUN_KEY, WORDS, VARIATES, SEEDED = (PUBLISHED[name] for name in ("run_key", "words", "variates", "seeded"))
KINDS = ("laplace", "gaussian")

LOW_ORDER = [  # points of small order, and the same numbers written as n + p
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def alice() -> Hello:
    return Hello(3, ALICE_PUBLIC, NONCES[0])


def bob() -> EdgeIdentity:
    return EdgeIdentity.of(8, BOB, NONCES[1])


def seeded(agents: int, edges: list[tuple[int, int]], scale: float = 1.0) -> list[EdgeSecret]:
    """Every edge of a run with seed 7."""
    all_ = [EdgeIdentity.seeded(agent, 7, "run") for agent in range(agents)]
    return [EdgeSecret((i, j), all_[i].run_key(all_[j].hello, "run", "digest"), scale * (1 + i)) for i, j in edges]


# --- vectors --------------------------------------------------------------------------------------------------


def test_exchange_gives_the_vector_of_rfc_7748() -> None:
    assert bob().hello.public_key.hex() == BOB_PUBLIC
    assert alice().shared_with(BOB) == SHARED


def test_run_key_is_the_published_vector() -> None:
    """HKDF written out by hand in tests/dumb.py gives the same."""
    assert bob().run_key(alice(), "run", "digest").hex() == RUN_KEY
    said = [b"3", ALICE_PUBLIC, NONCES[0], b"8", bytes.fromhex(BOB_PUBLIC), NONCES[1]]
    assert dumb.hkdf(SHARED, b"edge run key", b"run", b"digest", *said).hex() == RUN_KEY


def test_first_words_are_the_published_vector() -> None:
    stream = dumb.hkdf(bytes.fromhex(RUN_KEY), b"noise")
    assert [f"{dumb.word(stream, 0, position):016x}" for position in range(4)] == WORDS


@pytest.mark.parametrize("kind", KINDS)
def test_first_variates_are_the_published_vector(kind: Kind) -> None:
    noise = EdgeNoise(kind, [EdgeSecret((3, 8), bytes.fromhex(RUN_KEY), 1.0)], [3, 8], 3)
    drawn = np.array([noise(0)[0], noise(1)[0]])
    np.testing.assert_allclose(drawn, VARIATES[kind], rtol=1e-14)
    np.testing.assert_array_equal(noise(1)[1], -drawn[1])


def test_laplace_variates_are_the_words_one_by_one() -> None:
    stream = dumb.hkdf(bytes.fromhex(RUN_KEY), b"noise")
    written_out = [[dumb.laplace(dumb.word(stream, 0, 3 * k + t)) for t in range(3)] for k in range(2)]
    np.testing.assert_allclose(written_out, VARIATES["laplace"], rtol=1e-14)


def test_gaussian_variates_are_box_and_muller_written_out() -> None:
    """d = 3 takes four words: two radii, then two angles; the cosines come first."""
    stream = dumb.hkdf(bytes.fromhex(RUN_KEY), b"noise")
    for k, expected in enumerate(VARIATES["gaussian"]):
        u = [dumb.uniform(dumb.word(stream, 0, 4 * k + t)) for t in range(4)]
        radii, angles = [math.sqrt(-2 * math.log(r)) for r in u[:2]], [2 * math.pi * a for a in u[2:]]
        pairs = list(zip(radii, angles, strict=True))
        both = [r * math.cos(a) for r, a in pairs] + [r * math.sin(a) for r, a in pairs]
        np.testing.assert_allclose(both[:3], expected, rtol=1e-12)


def test_seeded_keys_are_the_published_vector() -> None:
    one, other = (EdgeIdentity.seeded(agent, 7, "run") for agent in (3, 8))
    assert one.hello.public_key.hex() == SEEDED["public_key"]
    assert one.hello.nonce.hex() == SEEDED["nonce"]
    assert one.run_key(other.hello, "run", "digest").hex() == SEEDED["run_key"]


# --- keys -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(101, 200))
def test_both_ends_derive_the_same_key(i: int, j: int) -> None:
    one, other = (EdgeIdentity.of(agent, fresh_key(), fresh_key()) for agent in (i, j))
    assert one.run_key(other.hello, "run", "digest") == other.run_key(one.hello, "run", "digest")


def test_whatever_changes_gives_an_unrelated_key() -> None:
    """Another run, experiment, agent, nonce of either end, or key pair."""
    own, peer = bob(), alice()
    other_nonce = bytes(32)
    keys = [
        own.run_key(peer, "run", "digest"),
        own.run_key(peer, "run2", "digest"),
        own.run_key(peer, "run", "digest2"),
        own.run_key(Hello(4, peer.public_key, peer.nonce), "run", "digest"),
        own.run_key(Hello(3, peer.public_key, other_nonce), "run", "digest"),
        EdgeIdentity.of(8, BOB, other_nonce).run_key(peer, "run", "digest"),
        EdgeIdentity.of(9, BOB, NONCES[1]).run_key(peer, "run", "digest"),
        EdgeIdentity.of(8, bytes(range(32)), NONCES[1]).run_key(peer, "run", "digest"),
        own.run_key(Hello(3, bob_again().public_key, peer.nonce), "run", "digest"),
    ]
    assert len(set(keys)) == len(keys)


def bob_again() -> Hello:
    return EdgeIdentity.of(3, bytes([7] * 32), NONCES[0]).hello


def test_a_fresh_run_has_a_fresh_key_pair_and_a_fresh_nonce() -> None:
    """Another id, or another nonce of the run at this node."""
    runs = [("run", NONCES[0]), ("run2", NONCES[0]), ("run", NONCES[1])]
    hellos = [EdgeIdentity.derived(0, derive(BOB, "nonce", nonce), run_id).hello for run_id, nonce in runs]
    assert len({hello.nonce for hello in hellos}) == len({hello.public_key for hello in hellos}) == 3


def test_seeded_runs_with_other_ids_share_nothing() -> None:
    keys = {
        EdgeIdentity.seeded(0, seed, run).run_key(EdgeIdentity.seeded(1, seed, run).hello, run, "digest")
        for seed in (1, 2)
        for run in ("a", "b")
    }
    assert len(keys) == 4


@pytest.mark.parametrize("point", LOW_ORDER)
def test_refuses_public_keys_of_low_order(point: str) -> None:
    """The shared secret would be 0, whatever the private key: anybody could know it."""
    with pytest.raises(BadInput, match="public_key of agent 3"):
        bob().run_key(Hello(3, bytes.fromhex(point), NONCES[0]), "run", "digest")


@pytest.mark.parametrize(
    ("key", "nonce"), [(b"", NONCES[0]), (ALICE_PUBLIC, b"short"), (ALICE_PUBLIC + b"1", NONCES[0])]
)
def test_refuses_hellos_of_another_length(key: bytes, nonce: bytes) -> None:
    with pytest.raises(BadInput, match="32 bytes"):
        Hello(3, key, nonce)


def test_refuses_an_edge_to_oneself() -> None:
    with pytest.raises(BadInput, match="two different agents"):
        bob().run_key(Hello(8, ALICE_PUBLIC, NONCES[0]), "run", "digest")


def test_secrets_do_not_show() -> None:
    secret = EdgeSecret((3, 8), bob().run_key(alice(), "run", "digest"), 1.0)
    noise = EdgeNoise("laplace", [secret], [3], 2)
    for shown in (repr(bob()), str(bob()), repr(secret), repr(noise)):
        for hidden in (BOB, SHARED, secret.key):
            assert hidden.hex() not in shown
            assert repr(hidden)[2:-1] not in shown


# --- noise ----------------------------------------------------------------------------------------------------

GRAPH = sorted(tuple(sorted(edge)) for edge in nx.random_geometric_graph(12, 0.5, seed=4).edges())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 2, 3, 10])
def test_an_agent_alone_draws_the_same_bytes_as_among_others(kind: Kind, dimension: int) -> None:
    edges = seeded(12, GRAPH)
    together = EdgeNoise(kind, edges, range(12), dimension)
    for agent in range(12):
        own = EdgeNoise(kind, [edge for edge in edges if agent in edge.ends], [agent], dimension)
        for k in (0, 1, 15, 16, 40):
            assert own(k).tobytes() == together(k)[agent].tobytes(), (agent, k)


@pytest.mark.parametrize("kind", KINDS)
def test_what_edges_add_vanishes_from_the_sum(kind: Kind) -> None:
    noise = EdgeNoise(kind, seeded(12, GRAPH, scale=100.0), range(12), 4)
    for k in range(20):
        assert np.abs(noise(k)).max() > 10
        np.testing.assert_allclose(noise(k).sum(axis=0), 0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_any_gradient_round_is_drawn_again_to_the_byte(kind: Kind) -> None:
    forwards = [EdgeNoise(kind, seeded(12, GRAPH), range(12), 3)(k).tobytes() for k in range(40)]
    again = EdgeNoise(kind, seeded(12, GRAPH), range(12), 3)
    for k in (39, 0, 17, 17, 3):
        assert again(k).tobytes() == forwards[k]
    assert len(set(forwards)) == 40


def test_edges_without_noise_and_agents_without_edges_are_silent() -> None:
    edges = [EdgeSecret((0, 1), derive(BOB, "a"), 0.0), EdgeSecret((1, 2), derive(BOB, "b"), 1.0)]
    drawn = EdgeNoise("laplace", edges, [0, 1, 2, 5], 2)(0)
    assert not drawn[[0, 3]].any()
    np.testing.assert_array_equal(drawn[1], -drawn[2])
    assert not EdgeNoise("gaussian", [], [4], 2)(7).any()


@pytest.mark.parametrize(("kind", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_variates_follow_their_law(kind: Kind, law: stats.rv_continuous) -> None:
    noise = EdgeNoise(kind, [EdgeSecret((0, 1), derive(BOB, "law"), 2.0)], [0], 500)
    drawn = np.concatenate([noise(k)[0] for k in range(100)]) / 2
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3
    assert abs(stats.pearsonr(drawn[:-1], drawn[1:]).statistic) < 0.02
    halves: Array = drawn.reshape(100, 2, 250)  # cosines and sines share radii: uncorrelated, also in their squares
    assert abs(stats.pearsonr(halves[:, 0].ravel() ** 2, halves[:, 1].ravel() ** 2).statistic) < 0.03


@pytest.mark.parametrize("width", [2, 4, 10])
def test_gaussian_variates_of_a_row_are_the_same_alone_and_among_others(width: int) -> None:
    """Halves of one row lie in one piece, where those of several do not."""
    words = Keystream(BOB).words(0, 0, 50 * width).reshape(50, width)
    together = standard_gaussian(words)
    for row, number in zip(words, range(50), strict=True):
        assert standard_gaussian(row[None]).tobytes() == together[number].tobytes()
        assert standard_gaussian(row).tobytes() == together[number].tobytes()
    again = Keystream(BOB).words(0, 0, 50 * width).reshape(50, width)
    np.testing.assert_array_equal(words, again)


def test_gaussian_variates_of_the_extreme_words_are_finite() -> None:
    extreme = np.array([0, 2**64 - 1, 0, 2**64 - 1], dtype=np.uint64)
    assert np.isfinite(standard_gaussian(extreme)).all()
    assert np.abs(standard_gaussian(extreme)).max() == pytest.approx(math.sqrt(2 * 53 * math.log(2)), rel=1e-12)
