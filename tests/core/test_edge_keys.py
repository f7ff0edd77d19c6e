"""Secrets of an edge: the same at both ends, never the same in two runs, and noise that cancels. Published vectors."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpp2.arrays import Array
from dpp2.edge_keys import EdgeIdentity, EdgeSecret, Hello
from dpp2.edge_noise import EdgeNoise, Kind, box_muller, radii_of, radius_at_an_end
from dpp2.errors import BadInput
from dpp2.keys import Keystream, Words, derive, fresh_key, uniform
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


def drawn_by(kind: Kind, g: float = 0.0) -> Array:
    """The lower agent's noise of gradient rounds 0 and 1, in three dimensions; the upper one has its opposite."""
    noise = EdgeNoise(kind, [EdgeSecret((3, 8), bytes.fromhex(RUN_KEY), 1.0)], [3, 8], 3, g)
    np.testing.assert_array_equal(noise(1)[1], -noise(1)[0])
    return np.array([noise(0)[0], noise(1)[0]])


@pytest.mark.parametrize("kind", KINDS)
def test_first_variates_are_the_published_vector(kind: Kind) -> None:
    np.testing.assert_allclose(drawn_by(kind), VARIATES[kind], rtol=1e-14)


def test_laplace_variates_are_the_words_one_by_one() -> None:
    stream = dumb.hkdf(bytes.fromhex(RUN_KEY), b"noise")
    written_out = [[dumb.edge_laplace(dumb.word(stream, 0, 3 * k + t)) for t in range(3)] for k in range(2)]
    np.testing.assert_allclose(written_out, VARIATES["laplace"], rtol=1e-14)


def test_on_a_grid_they_are_whole_steps_of_it() -> None:
    """2^−10; the scale that is drawn is up to 0.15 % larger."""
    on_grid = drawn_by("laplace", 2.0**-10)
    np.testing.assert_array_equal(on_grid, VARIATES["laplace, grid 2^-10"])
    np.testing.assert_array_equal(on_grid * 2**10, np.rint(on_grid * 2**10))
    np.testing.assert_allclose(on_grid, VARIATES["laplace"], rtol=2e-3, atol=2.0**-10)


def test_gaussian_variates_are_box_and_muller_written_out() -> None:
    """d = 3 takes four words: radius and angle, twice."""
    stream = dumb.hkdf(bytes.fromhex(RUN_KEY), b"noise")
    for k, expected in enumerate(VARIATES["gaussian"]):
        u = [dumb.uniform(dumb.word(stream, 0, 4 * k + t)) for t in range(4)]
        pairs = [(math.sqrt(-2 * math.log(r)), 2 * math.pi * a) for r, a in (u[:2], u[2:])]
        both = [r * turn(a) for r, a in pairs for turn in (math.cos, math.sin)]
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 3, 4])
def test_how_many_rounds_are_drawn_ahead_does_not_change_a_byte(kind: Kind, dimension: int) -> None:
    """An odd number of words ahead: every second time the first of them lies within a block of the keystream."""
    wanted = EdgeNoise(kind, seeded(12, GRAPH), range(12), dimension)
    for ahead in (1, 3, 7):
        found = EdgeNoise(kind, seeded(12, GRAPH), range(12), dimension, gradient_rounds=ahead)
        for k in (0, 1, 2, 3, 6, 7, 21):
            assert found(k).tobytes() == wanted(k).tobytes(), (ahead, k)


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


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_gaussian_variates_of_an_edge_are_the_same_alone_and_among_others(pairs: int) -> None:
    words = Keystream(BOB).words(0, 0, 100 * pairs)
    together = gaussian(words)
    for start in range(0, 100 * pairs, 2 * pairs):
        assert gaussian(words[start : start + 2 * pairs]).tobytes() == together[start : start + 2 * pairs].tobytes()


def gaussian(words: Words) -> Array:
    out = np.empty(len(words))
    box_muller(radii_of(words[::2].copy()), uniform(words[1::2].copy()), out)
    return out


@pytest.mark.parametrize("word", [0, 1 << 20, (1 << 48) - 1, 2**64 - (1 << 48), 2**64 - 1])
def test_a_radius_at_an_end_lies_in_the_cell_of_its_word(word: int) -> None:
    """And is as fine as 64 further bits make it: beyond 2^−52 on one side, near 0 on the other."""
    exact = [_radius(word, extra) for extra in (0, 2**63, 2**64 - 1)]
    found = [radius_at_an_end(word, extra) for extra in (0, 2**63, 2**64 - 1)]
    np.testing.assert_allclose(found, exact, rtol=1e-15)
    assert found[0] > found[2]
    if 0 < word < 2**64 - 1:
        middle = float(radii_of(np.array([word], dtype=np.uint64))[0])
        assert found[2] * (1 - 1e-12) <= middle <= found[0] * (1 + 1e-12)


def _radius(word: int, extra: int) -> float:
    """With 60 digits."""
    with localcontext(prec=60):
        u = (Decimal(((word >> 12) << 64) + extra) + Decimal("0.5")) / Decimal(2**116)
        return float((-2 * u.ln()).sqrt())


def test_radii_near_both_ends_are_drawn_from_further_bits() -> None:
    """2e6 radii: about sixty of them. The smallest is not on the coarse lattice that u alone has near 1."""
    d = 20_000
    noise = EdgeNoise("gaussian", [EdgeSecret((0, 1), derive(BOB, "ends"), 1.0)], [0], d)
    drawn = np.concatenate([noise(k)[0] for k in range(200)])
    squares = (drawn[::2] ** 2 + drawn[1::2] ** 2) / 2  # Exp(1)
    near, far = (squares < 2.0**-16).sum(), (squares > 16 * math.log(2)).sum()
    assert 10 < near < 60
    assert 10 < far < 60
    assert stats.kstest(np.exp(-squares), "uniform").pvalue > 1e-3
