"""Secrets that the two ends of an edge share, and the noise that they draw from them with opposite signs (DPP³).

    shared   = X25519(own private key, the peer's public key)
    run key  = HKDF-SHA256(shared; run id, digest of the experiment, both agents in ascending order with their
               public keys and their nonces)
    m_ij     = scale · standard variates of the AES-256-CTR stream of the run key, gradient round after gradient round

Agent i adds sgn(j − i)·m_ij to its noise, so what an edge adds vanishes from the sum over all agents. A nonce is drawn
anew by each end for every run and kept on disk with it: two runs never share a stream, and a round that is sent again
after a crash has the same bytes. No digest of data goes in, since the peer does not know it.
Whoever only listens learns nothing from public keys and nonces. Somebody who can change them on the way could sit in
between, so they must come over an authenticated channel (TLS).
In a run with a public seed, key pairs and nonces come from the seed: repeatable everywhere, and secret from nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import Keystream, Words, derive, seed_key, standard_laplace, uniform, words_of_many

WITHOUT_TLS = (
    "without TLS the nodes' hellos are not authenticated: somebody who can change what they send could sit between two "
    "neighbours and learn the noise of their edge, which ε takes to be secret"
)
_LENGTH = 32  # bytes of a key and of a nonce
_TOGETHER = 20  # gradient rounds whose noise is drawn at once, at most
_MOST_WORDS = 1 << 16  # that are drawn at once, unless a single round needs more


@dataclass(frozen=True)
class Hello:
    """What an agent tells its neighbours when a run begins. None of it is secret."""

    agent: int
    public_key: bytes
    nonce: bytes

    def __post_init__(self) -> None:
        for name in ("public_key", "nonce"):
            value: bytes = getattr(self, name)
            if len(value) != _LENGTH:
                raise BadInput(f"{name} of agent {self.agent}", value.hex(), f"{_LENGTH} bytes, not {len(value)}")

    def shared_with(self, private_key: bytes) -> bytes:
        """X25519; refuses a public key with which everybody's secret is 0, which everybody knows."""
        try:
            peer = X25519PublicKey.from_public_bytes(self.public_key)
            return X25519PrivateKey.from_private_bytes(private_key).exchange(peer)
        except ValueError:
            accepted = "a public key of a group of large order, from X25519"
            raise BadInput(f"public_key of agent {self.agent}", self.public_key.hex(), accepted) from None


@dataclass(frozen=True)
class EdgeIdentity:
    """An agent's part in a run: its private key, and what it says to its neighbours."""

    private_key: bytes = field(repr=False)
    hello: Hello

    @classmethod
    def of(cls, agent: int, private_key: bytes, nonce: bytes) -> EdgeIdentity:
        public = X25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()
        return cls(private_key, Hello(agent, public, nonce))

    @classmethod
    def derived(cls, agent: int, key: bytes, run_id: str) -> EdgeIdentity:
        """Of an agent's secret key, which a nonce of the run has gone into: `Secrets.with_nonce`."""
        labels = run_id, str(agent)
        return cls.of(agent, derive(key, "edge key pair", *labels), derive(key, "edge nonce", *labels))

    @classmethod
    def seeded(cls, agent: int, seed: int, run_id: str) -> EdgeIdentity:
        """For a run with a public seed."""
        key = seed_key(seed)
        return cls.of(agent, derive(key, "edge key pair", str(agent)), derive(key, "edge nonce", run_id, str(agent)))

    def run_key(self, peer: Hello, run_id: str, experiment: str) -> bytes:
        """The secret of the edge for this run; both ends get the same."""
        if peer.agent == self.hello.agent:
            raise BadInput("edge", peer.agent, "two different agents")
        ends = sorted((self.hello, peer), key=lambda hello: hello.agent)
        said = [part for end in ends for part in (str(end.agent), end.public_key, end.nonce)]
        return derive(peer.shared_with(self.private_key), "edge run key", run_id, experiment, *said)


@dataclass(frozen=True)
class EdgeSecret:
    """One edge of an agent that is owned here."""

    ends: tuple[int, int]  # ascending
    key: bytes = field(repr=False)
    scale: float


Kind = Literal["gaussian", "laplace"]


class EdgeNoise:
    """Σ_j sgn(j − i) m_ij for the agents owned here, (agents, d), in every gradient round.

    The sum runs over an agent's neighbours in ascending order, alone in a container as among others: the same bytes.
    """

    def __init__(self, kind: Kind, edges: Sequence[EdgeSecret], owned: Sequence[int], dimension: int) -> None:
        self._kind, self._dimension = kind, dimension
        ordered = sorted((edge for edge in edges if edge.scale > 0), key=lambda edge: edge.ends)
        self._streams = [Keystream(derive(edge.key, "noise")) for edge in ordered]
        self._words = dimension + dimension % 2 if kind == "gaussian" else dimension  # of a gradient round
        self._sums = _SignedSums(ordered, owned)
        together = _MOST_WORDS // max(len(ordered) * self._words, 1)
        self._together = min(max(together, 1), _TOGETHER)
        self._drawn: tuple[int, Array] = -1, np.empty(0)

    def __call__(self, gradient_round: int) -> Array:
        first = gradient_round - gradient_round % self._together
        if first != self._drawn[0]:
            self._drawn = first, self._sums(self._variates(first))
        drawn: Array = self._drawn[1][:, gradient_round - first]
        return drawn

    def _variates(self, first: int) -> Array:
        """m of some gradient rounds from `first` on: (edges, rounds, d)."""
        start, count = first * self._words, self._together * self._words
        words = words_of_many(self._streams, 0, start, count)
        shaped = words.reshape(len(words), self._together, self._words)
        standard = standard_gaussian(shaped) if self._kind == "gaussian" else standard_laplace(shaped)
        return standard[..., : self._dimension]


class _SignedSums:
    """Adds up scaled variates of the edges at every agent owned here: + at the lower end, − at the upper one."""

    def __init__(self, edges: Sequence[EdgeSecret], owned: Sequence[int]) -> None:
        from scipy.sparse import coo_array, csr_array  # heavy, and needed by noise of edges alone

        row = {agent: number for number, agent in enumerate(owned)}
        parts = [
            (row[agent], number, edge.scale * (1.0 - 2.0 * end))
            for number, edge in enumerate(edges)
            for end, agent in enumerate(edge.ends)
            if agent in row
        ]
        rows, columns, scales = np.array(sorted(parts)).reshape(-1, 3).T
        shape = len(owned), len(edges)
        self._matrix = csr_array(coo_array((scales, (rows.astype(np.intp), columns.astype(np.intp))), shape=shape))

    def __call__(self, noise: Array) -> Array:
        """Of (edges, …). Sparse products add row by row, one edge after the other: the same bits alone and together."""
        flat = noise.reshape(len(noise), math.prod(noise.shape[1:]))
        return np.asarray(self._matrix @ flat).reshape(-1, *noise.shape[1:])


def standard_gaussian(words: Words) -> Array:
    """N(0, 1) by Box and Muller: two words give two variates. The first half of the last axis holds the radii.

    Cosine and sine of the angle 2θ are (1 − t²)/(1 + t²) and 2t/(1 + t²) with t = tan θ: one function instead of two,
    and a faster one. Radii end at √(2·53·ln 2) ≈ 8.6. Both halves are copied, because NumPy's functions may differ in
    the last bit between arrays that are in one piece and arrays that are not.
    """
    numbers, half = uniform(words), words.shape[-1] // 2
    radius, t = numbers[..., :half].copy(), numbers[..., half:].copy()
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    t *= np.pi
    np.tan(t, out=t)
    square = t * t
    radius /= 1 + square
    np.multiply(radius, 1 - square, out=numbers[..., :half])
    t *= 2
    np.multiply(radius, t, out=numbers[..., half:])
    return numbers
