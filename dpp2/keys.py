"""Secret randomness: where η and the Laplace noise come from, so that any round can be replayed to the byte.

Two rules decide the shape (a round sent twice must be the same bytes, two runs must never share noise):
- noise is a FUNCTION of (run key, purpose, round, agent): an AES-256-CTR keystream per purpose whose counter block
  is (round, position), the agent's part being a slice of it. Nothing is stored, everything is seekable;
- the run key is HKDF-SHA256(agent's secret key; run id, digest of the experiment, digest of the agent's data), so
  another run, another experiment or other data get unrelated noise. A node with a key of its own draws a nonce for each
  run, which goes into that key first (`Secrets.with_nonce`): even a run whose files are lost gets other noise.
Laplace variates come by inversion: one word, one variate, whatever was drawn before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpp2.arrays import Array

Words = NDArray[np.uint64]

_BLOCK = AES.block_size // 8
_WORD = 8
_PIECE = 8192  # words that are turned into noise at a time: longer arrays leave the cache between two passes over them
_ROUNDS = 16  # whose noise is drawn together, at most
_ONE = np.uint64(0x3FF << 52)  # the bits of 1.0: with 52 random bits below them, a float in [1, 2)


def derive(key: bytes, *labels: str | bytes) -> bytes:
    """32 bytes from HKDF-SHA256; labels are length-prefixed so that no two label lists collide."""
    parts = [label.encode() if isinstance(label, str) else label for label in labels]
    info = b"dpp2/1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(key)


def fresh_key() -> bytes:
    """32 bytes from the operating system."""
    return secrets.token_bytes(32)


def seed_key(seed: int) -> bytes:
    """The key that stands for a public seed: for experiments, where repeatability matters and secrecy does not."""
    return derive(str(seed).encode(), "experiment seed")


@dataclass(frozen=True)
class RunKeys:
    """The keys of one run for the agents owned here: one noise key per agent, and the network's η key."""

    noise: tuple[bytes, ...]
    eta: bytes

    @classmethod
    def of(
        cls, agent_keys: Sequence[bytes], eta_key: bytes, run_id: str, experiment: str, data: Sequence[bytes]
    ) -> RunKeys:
        """`experiment` and `data` are digests; `data` has one per agent (empty: a function of the experiment)."""
        derived: dict[tuple[bytes, bytes], bytes] = {}
        for secret, digest in zip(agent_keys, data, strict=True):
            if (secret, digest) not in derived:  # 100,000 seeded agents share one key: derive it once
                derived[secret, digest] = derive(secret, "run key", run_id, experiment, digest)
        noise = tuple(derived[pair] for pair in zip(agent_keys, data, strict=True))
        return cls(noise, derive(eta_key, "eta key", run_id, experiment))


class Keystream:
    """The words of one key: AES-256-CTR with the counter block round (8 bytes) ‖ position in blocks (8 bytes).

    The cipher's context is kept and its counter moved, since setting one up costs more than a small network's noise.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(AES(key), CTR(bytes(_BLOCK))).encryptor()

    def words(self, round_: int, start: int, count: int) -> Words:
        """Words start … start+count−1 of a round, whatever was asked before."""
        stream = self.bytes(round_, start * _WORD, count * _WORD)
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def bytes(self, round_: int, start: int, count: int) -> bytes:
        """The same, counted in bytes."""
        block, skipped = divmod(start, _BLOCK)
        self._cipher.reset_nonce(round_.to_bytes(8, "big") + block.to_bytes(8, "big"))
        stream = self._cipher.update(bytes(skipped + count))
        return stream[skipped:] if skipped else stream


class RoomForWords:
    """Room for words of many keys, `count` of each, that is filled again and again."""

    def __init__(self, keys: int, count: int) -> None:
        self.count = count
        self._zeros = bytes(_WORD * (count + count % 2))
        room = np.empty((keys, len(self._zeros)), dtype=np.uint8)
        self._rows, self._words = [row.data for row in room], room.view("<u8")

    def filled(self, streams: Sequence[Keystream], round_: int, start: int) -> Words:
        """`Keystream.words` of these keys, (keys, count). The counter is the same for all, and made once.

        `start` is a multiple of the count: where a row begins within a block, the row has room for that block.
        """
        block, skipped = divmod(start * _WORD, _BLOCK)
        counter = round_.to_bytes(8, "big") + block.to_bytes(8, "big")
        for cipher, row in zip([stream._cipher for stream in streams], self._rows, strict=False):
            cipher.reset_nonce(counter)
            cipher.update_into(self._zeros, row)
        first = skipped // _WORD
        words = self._words[: len(streams), first : first + self.count]
        return np.ascontiguousarray(words.astype(np.uint64, copy=False))


def keystream(key: bytes, round_: int, start: int, count: int) -> Words:
    """The same, asked once."""
    return Keystream(key).words(round_, start, count)


def uniform(words: Words, out: Array | None = None) -> Array:
    """52 bits m of each word as a number strictly inside (0, 1): (2m + 1)/2⁵³, without rounding.

    By way of 1 + m/2⁵², whose bits these are: to turn whole numbers into floats takes longer.
    """
    bits = np.right_shift(words, np.uint64(12), out=None if out is None else out.view(np.uint64))
    bits |= _ONE
    numbers: Array = bits.view(np.float64)
    numbers -= 1 - 2.0**-53
    return numbers


def standard_laplace(words: Words) -> Array:
    """Lap(1) by inversion: −log of a uniform in (0, 1] from the top 52 bits, its sign from the lowest bit.

    Magnitudes are exponential and end at 52·ln 2 ≈ 36; the grid of doubles is that of any floating-point Laplace
    sampler, whose known limits (least bits can tell inputs apart) the accountant's ε does not cover.
    """
    sign = words << np.uint64(63)
    bits = words >> np.uint64(12)
    bits |= _ONE
    magnitude = bits.view(np.float64)
    np.subtract(2.0, magnitude, out=magnitude)
    np.log(magnitude, out=magnitude)
    bits ^= sign
    return magnitude


class Silence:
    """No noise: adding it to an array, or taking it away, gives that array, without a pass over memory."""

    __array_ufunc__ = None  # tells arrays to leave `array + silence` to us

    def __radd__(self, other: Array) -> Array:
        return other

    __rsub__ = __radd__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.zeros((), dtype or np.float64)


SILENCE = Silence()
Noise = Array | Silence


class NoiseStream:
    """Lap(u_i r_i^k) for the agents owned here, coordinate-wise and independent (paper, section III-B)."""

    def __init__(
        self,
        keys: Sequence[bytes],
        purpose: str,
        agents: Sequence[int],
        dimension: int,
        u: Array,
        decay: Array,
    ) -> None:
        self.u, self.decay = _one_or_column(u), _one_or_column(decay)
        self.dimension = dimension
        self.silent = not u.any()
        self.slices = [
            (Keystream(derive(key, "noise", purpose)), first * dimension, count * dimension)
            for key, first, count in _runs(keys, agents)
        ]
        self._together = min(max(_PIECE // (len(agents) * dimension), 1), _ROUNDS)
        self._drawn: tuple[int, Array] = -1, np.empty(0)

    def __call__(self, k: int) -> Noise:
        """The noise of round k, (agents, d); silence where every scale is zero."""
        scale = self.u * _power(self.decay, k)
        if self.silent or (isinstance(scale, float) and scale == 0.0):
            return SILENCE
        if self._together > 1:
            return np.asarray(scale * self._ahead(k))
        noise: Array = self._standard(range(k, k + 1))[0]
        noise *= scale
        return noise

    def _ahead(self, k: int) -> Array:
        """Where a round needs few words, those of some rounds are turned into noise together."""
        first = k - k % self._together
        if first != self._drawn[0]:
            self._drawn = first, self._standard(range(first, first + self._together))
        drawn: Array = self._drawn[1][k - first]
        return drawn

    def _standard(self, rounds: range) -> Array:
        """Lap(1) for these rounds: (rounds, agents, d)."""
        parts = [words for k in rounds for stream, *where in self.slices for words in _pieces(stream, k, *where)]
        return _laplace_of(parts).reshape(len(rounds), -1, self.dimension)


def _pieces(stream: Keystream, k: int, start: int, count: int) -> Iterator[Words]:
    """The words of one slice, no more than a piece at a time."""
    for first in range(start, start + count, _PIECE):
        yield stream.words(k, first, min(_PIECE, start + count - first))


def _laplace_of(parts: Sequence[Words]) -> Array:
    """Noise of many words while they are in the cache; of few, all at once."""
    if len(parts[0]) * 8 >= _PIECE:
        return np.concatenate([standard_laplace(words) for words in parts])
    return standard_laplace(np.concatenate(parts))


def _one_or_column(values: Array) -> Array | float:
    """Usually every agent has the same scale and decay; one number is then much cheaper than a column of them."""
    return float(values[0]) if np.ptp(values) == 0 else values[:, None]


def _power(decay: Array | float, k: int) -> Array | float:
    """r^k, where 0⁰ = 1: decay 0 means noise in round 0 only.

    By Python's own power for every agent: NumPy's over a column may differ from it in the last bit, and an agent must
    draw the same bytes alone in a container and among others.
    """
    if isinstance(decay, float):
        return decay**k
    return np.array([[r**k] for (r,) in decay.tolist()])


class EtaStream:
    """η^k, uniform in (0, 1): one scalar for the whole network, secret from the eavesdropper."""

    def __init__(self, eta_key: bytes) -> None:
        self._stream = Keystream(eta_key)

    def __call__(self, k: int) -> float:
        """As `uniform` of the round's first word; for one number, arrays take four times as long."""
        word = int.from_bytes(self._stream.bytes(k, 0, _WORD), "little")
        return (2 * (word >> 12) + 1) * 2.0**-53


def _runs(keys: Sequence[bytes], agents: Sequence[int]) -> list[tuple[bytes, int, int]]:
    """Stretches of consecutive agents that share a key, as (key, first agent, how many)."""
    runs: list[tuple[bytes, int, int]] = []
    for key, agent in zip(keys, agents, strict=True):
        if runs and runs[-1][0] == key and agent == runs[-1][1] + runs[-1][2]:
            runs[-1] = (key, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((key, agent, 1))
    return runs
