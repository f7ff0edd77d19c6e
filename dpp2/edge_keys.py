"""Secrets that the two ends of an edge share, and the noise that they draw from them with opposite signs (DPP³).

    shared   = X25519(own private key, the peer's public key)
    run key  = HKDF-SHA256(shared; run id, digest of the experiment, both agents in ascending order with their
               public keys and their nonces)
    m_ij     = variates of the AES-256-CTR stream of the run key, gradient round after gradient round (`edge_noise`)

Agent i adds sgn(j − i)·m_ij to its noise, so what an edge adds vanishes from the sum over all agents. A nonce is drawn
anew by each end for every run and kept on disk with it: two runs never share a stream, and a round that is sent again
after a crash has the same bytes. No digest of data goes in, since the peer does not know it.
Whoever only listens learns nothing from public keys and nonces. Somebody who can change them on the way could sit in
between, so they must come over an authenticated channel (TLS).
In a run with a public seed, key pairs and nonces come from the seed: repeatable everywhere, and secret from nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpp2.errors import BadInput
from dpp2.keys import derive, seed_key

WITHOUT_TLS = (
    "without TLS the nodes' hellos are not authenticated: somebody who can change what they send could sit between two "
    "neighbours and learn the noise of their edge, which ε takes to be secret"
)
_LENGTH = 32  # bytes of a key and of a nonce


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
