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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import Keystream, Words, derive, fresh_key, seed_key, standard_laplace, uniform

_LENGTH = 32  # bytes of a key and of a nonce
_TOGETHER = 16  # gradient rounds whose noise is drawn at once, at most
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
    def fresh(cls, agent: int, private_key: bytes) -> EdgeIdentity:
        """For a new run: the nonce comes from the operating system."""
        return cls.of(agent, private_key, fresh_key())

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
        return derive(self._shared(peer), "edge run key", run_id, experiment, *said)

    def _shared(self, peer: Hello) -> bytes:
        own = X25519PrivateKey.from_private_bytes(self.private_key)
        try:
            return own.exchange(X25519PublicKey.from_public_bytes(peer.public_key))
        except ValueError:  # the shared secret is 0 for every private key: anybody knows it
            accepted = "a public key of a group of large order, from X25519"
            raise BadInput(f"public_key of agent {peer.agent}", peer.public_key.hex(), accepted) from None


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
        self._scale = np.array([edge.scale for edge in ordered])[:, None, None]
        self._words = dimension + dimension % 2 if kind == "gaussian" else dimension  # of a gradient round
        self._sums = _SignedSums([edge.ends for edge in ordered], owned)
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
        words = np.empty((len(self._streams), count), dtype=np.uint64)
        for row, stream in zip(words, self._streams, strict=True):
            row[:] = stream.words(0, start, count)
        shaped = words.reshape(len(words), self._together, self._words)
        standard = standard_gaussian(shaped) if self._kind == "gaussian" else standard_laplace(shaped)
        standard *= self._scale
        return standard[..., : self._dimension]


class _SignedSums:
    """Adds up the noise of the edges at every agent owned here: + at the lower end, − at the upper one."""

    def __init__(self, ends: Sequence[tuple[int, int]], owned: Sequence[int]) -> None:
        row = {agent: number for number, agent in enumerate(owned)}
        parts = [
            (row[agent], edge, 1.0 - 2.0 * end)
            for edge, pair in enumerate(ends)
            for end, agent in enumerate(pair)
            if agent in row
        ]
        parts.sort(key=lambda part: part[:2])
        rows = np.array([part[0] for part in parts], dtype=np.intp)
        self._edges = np.array([part[1] for part in parts], dtype=np.intp)
        self._signs = np.array([part[2] for part in parts])[:, None, None]
        self._present, self._starts = np.unique(rows, return_index=True)
        self._agents = len(owned)

    def __call__(self, noise: Array) -> Array:
        total = np.zeros((self._agents, *noise.shape[1:]))
        if len(self._edges):
            signed = noise[self._edges]
            signed *= self._signs
            total[self._present] = np.add.reduceat(signed, self._starts, axis=0)
        return total


def standard_gaussian(words: Words) -> Array:
    """N(0, 1) by Box and Muller: two words give two variates. The first half of the last axis holds the radii.

    Radii end at √(2·53·ln 2) ≈ 8.6. Both halves are copied, because NumPy's functions may differ in the last bit
    between arrays that are in one piece and arrays that are not.
    """
    radius, angle = (np.ascontiguousarray(half) for half in np.split(uniform(words), 2, axis=-1))
    np.sqrt(-2 * np.log(radius), out=radius)
    angle *= 2 * np.pi
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
