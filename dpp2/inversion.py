"""Rounded Laplace and Gaussian variates from keystream words: whole numbers whose probabilities are known.

*What is wanted.* rint(c·X) for X ~ Lap(1) or N(0, 1), where c = scale/g lies in [2^b, 2^(b+1)) for a grid of b bits.
*What is used.* Bits at fixed places of the round's keystream, so that any variate can be drawn alone:

    64 bits   m = 1 + (the lower 52)·2^−52 in [1, 2), and the sign from the topmost
    16 bits   the position of the lowest 1: G ∈ {1, …, 16}, P(G) = 2^−G
    64 bits   read once in 65,536 variates, where those 16 are all 0: G = 16 + the position of the lowest 1, up to 80
    U = m·2^−G is uniform in (0, 1): near U its lattice is as fine as U·2^−52, however far out

(Whoever can time one agent's draws to a microsecond may notice that third read, and so noise beyond 11 scales.)

*Laplace.* |X| = −ln U = G·ln 2 − ln m. As one float64 that number would lose its low bits far out. So c is first made
a little larger, by less than 1.5·2^−b of itself, such that c·ln 2 is a whole number H = ⌈c·ln 2⌉. More noise than was
accounted for costs no privacy, and now

    rint(c·|X|) = G·H − rint(c·ln m)                       with c·ln m ≤ H, and G·H exact

*How far a bin's probability can be off.* np.log is within one ulp. In units of a bin, an edge at m is misplaced by
    c·ulp(ln m) + ½ulp(c·ln m) ≤ 2^(b−52) + 2^(b−53)       and a fourth of that or less where m < 1.28,
and a bin holds m·2^52/c points of the lattice of m, give or take one: relative to the bin's probability that is
    two edges and the lattice, m > 1.64:                   3·2^(b−52) + 1.22·2^(b−52)
    the bin at G·H, which lies half in each of two blocks: 1.5·2^(b−52) + 3·2^(b−52), and ½·2^(b−52) since c = H/ln 2
                                                           is rounded
so η ≤ 5·2^(b−52), which at b = 20 is 1.2e-9. It is 1e-9 in all bins but those at multiples of H.

*Gauss.* |X| = −Φ⁻¹(U/2), by `scipy.special.ndtri`, which keeps its relative accuracy in the tail: within 3.4 ulp
where we measured it (tests/core/test_grid.py), and we allow 8. With |X| ≤ 10.4 an edge is misplaced by at most
(8 + ½)·10.4·c·2^−52 bins, and a bin holds at least √(2/π)·m·2^52/c points:

    η ≤ 2·8.5·10.4·2^(b−51) + 1.3·2^(b−51) ≤ 180·2^(b−51)  8.4e-8 at b = 20

*What this costs.* A mechanism whose every bin is right to a factor within 1 ± η spends at most ln((1+η)/(1−η)) more
than the exact one, for every variate: `Law.extra_epsilon`.

*The tail.* P(G) is exact but for G = 80, which also has the mass 2^−80 of all G > 80. For every event S,
sampled(S) ≤ (1+η)·exact(S) + 2^−80 and exact(S) ≤ sampled(S)/(1−η) + 2^−80. A pure ε therefore becomes
(ε + extra, (1 + e^ε)·2^−80) for one variate: see `dpp2.privacy.grid`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.keys import Keystream, Words

MOST_BITS = 30  # of a grid: all bounds above hold, and G·H stays far below 2⁵³
TAIL_BITS = 80  # s: what is not where it should be has at most the probability 2^−s, for every variate
_LN2 = math.log(2)
_SIGN, _FRACTION, _ONE = np.uint64(1 << 63), np.uint64((1 << 52) - 1), np.uint64(0x3FF << 52)
_EXPONENT = np.uint64(52)  # where the exponent of a float64 begins
_WORD, _FIELD = 8, 2  # bytes
_FIELDS, _THIRD = 1 << 62, 1 << 63  # bytes of a round's keystream from which on the 16 bits, and the last 64, lie

Multiplier = Array | float
Steps = NDArray[np.uint8]
Part = tuple[Keystream, int, int, int]  # of the variates: stream, round, number of the first one, how many


@dataclass(frozen=True, eq=False)
class Uniforms:
    """U = m·2^−G and a sign for each variate: words whose lower 52 bits are m's, and G."""

    words: Words
    steps: Steps

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Uniforms:
        """Of all these variates, one part after the other."""
        words = _bits("<u8", [s.bytes(k, _WORD * start, _WORD * count) for s, k, start, count in parts])
        fields = _bits("<u2", [s.bytes(k, _FIELDS + _FIELD * start, _FIELD * count) for s, k, start, count in parts])
        steps = np.bitwise_count((fields - np.uint16(1)) ^ fields)
        if not fields.min(initial=1):
            _continue(steps, np.flatnonzero(fields == 0), parts)
        return cls(words, steps)

    def numbers(self, halvings: int = 0) -> Array:
        """U·2^−halvings, without rounding."""
        bits = _mantissas(self.words).view(np.uint64)
        bits -= (self.steps.astype(np.uint64) + np.uint64(halvings)) << _EXPONENT
        return bits.view(np.float64)

    def signed(self, magnitudes: Array, g: Array, out: Array | None = None) -> Array:
        """±g times these whole numbers, which are overwritten; never −0, whose sign would tell on a value near 0."""
        factors = self.words & _SIGN
        factors |= g.view(np.uint64)
        magnitudes *= factors.view(np.float64)
        return np.add(magnitudes, 0.0, out=magnitudes if out is None else out)

    def reshape(self, *shape: int) -> Uniforms:
        return Uniforms(self.words.reshape(shape), self.steps.reshape(shape))


Sampler = Callable[[Uniforms, Multiplier], Array]


def laplace_integers(
    uniforms: Uniforms, c: Multiplier, out: Array | None = None, scratch: Array | None = None
) -> Array:
    """rint(c·|X|), X ~ Lap(1), as whole float64 numbers; c is one number, or fits the variates' shape."""
    H = np.ceil(c * _LN2)
    rest = _mantissas(uniforms.words, scratch)
    np.log(rest, out=rest)
    rest *= H / _LN2
    np.rint(rest, out=rest)
    magnitudes = np.multiply(uniforms.steps, H, out=out, dtype=np.float64)
    magnitudes -= rest
    return magnitudes


def gaussian_integers(uniforms: Uniforms, c: Multiplier) -> Array:
    """rint(c·|X|), X ~ N(0, 1), as whole float64 numbers; c is one number, or fits the variates' shape."""
    from scipy.special import ndtri  # who draws Laplace noise alone never loads SciPy

    magnitudes = uniforms.numbers(1)
    ndtri(magnitudes, out=magnitudes)
    magnitudes *= -c
    return np.rint(magnitudes, out=magnitudes)


def gaussian_numbers(uniforms: Uniforms, scale: Array) -> Array:
    """N(0, scale²) before any rounding: bins of every width g lie as right as those above, wherever they begin."""
    from scipy.special import ndtri

    magnitudes = uniforms.numbers(1)
    ndtri(magnitudes, out=magnitudes)
    np.negative(magnitudes, out=magnitudes)
    return uniforms.signed(magnitudes, scale)


def laplace_numbers(uniforms: Uniforms, out: Array | None = None, scratch: Array | None = None) -> Array:
    """Lap(1) as doubles, for those who add up many of them before rounding."""
    rest = _mantissas(uniforms.words, scratch)
    np.log(rest, out=rest)
    magnitudes: Array = np.multiply(uniforms.steps, _LN2, out=out, dtype=np.float64)
    magnitudes -= rest
    bits = magnitudes.view(np.uint64)
    bits |= np.bitwise_and(uniforms.words, _SIGN, out=rest.view(np.uint64))  # a sum loses the sign of 0
    return magnitudes


@dataclass(frozen=True)
class Law:
    """Laplace or Gaussian noise on a grid of b bits. 0 bits: no grid, the doubles of `dpp2.keys`."""

    kind: Literal["laplace", "gaussian"] = "laplace"
    bits: int = 20

    @property
    def sampler(self) -> Sampler:
        return laplace_integers if self.kind == "laplace" else gaussian_integers

    @property
    def farthest(self) -> float:
        """No |X| is larger, rounding and the enlarged c included."""
        reach = TAIL_BITS * _LN2 if self.kind == "laplace" else 10.4
        return reach * (1 + 2.0 ** (1 - self.bits))

    @property
    def bin_error(self) -> float:
        """η: how far, relatively, the probability of any bin can be off. Derived above."""
        return 5 * 2.0 ** (self.bits - 52) if self.kind == "laplace" else 180 * 2.0 ** (self.bits - 51)

    @property
    def extra_epsilon(self) -> float:
        """What bins that are not quite right add to ε, for every variate."""
        return math.log1p(self.bin_error) - math.log1p(-self.bin_error)


LAWS = (Law("laplace"), Law("gaussian"))


def _bits(kind: str, parts: list[bytes]) -> Any:
    """The unsigned numbers that these bytes are, in the machine's own order."""
    numbers = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), dtype=kind)
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


def _continue(steps: Steps, where: NDArray[np.intp], parts: Sequence[Part]) -> None:
    """G of the variates whose 16 bits are all 0."""
    ends = np.cumsum([count for *_, count in parts])
    for n, part in zip(where.tolist(), np.searchsorted(ends, where, side="right").tolist(), strict=True):
        stream, k, start, count = parts[part]
        variate = start + n - (int(ends[part]) - count)
        steps[n] += lowest_one(further(stream, k, variate))


def further(stream: Keystream, k: int, variate: int) -> int:
    """64 further bits of a variate whose first ones were too few."""
    return int.from_bytes(stream.bytes(k, _THIRD + _WORD * variate, _WORD), "little")


def lowest_one(word: int) -> int:
    """Its position among 64 bits, from 1 on; 64 if there is none."""
    return (word & -word).bit_length() if word else 64


def _mantissas(words: Words, out: Array | None = None) -> Array:
    """m of these words."""
    bits = np.bitwise_and(words, _FRACTION, out=None if out is None else out.view(np.uint64))
    bits |= _ONE
    return bits.view(np.float64)
