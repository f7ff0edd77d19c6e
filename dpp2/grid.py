"""Noise that a computer can really draw: values and noise on one grid, added without rounding.

Doubles betray what was added: most sums of a double and a sampled double cannot be reached from another value (Mironov
2012). So each round has a grid, a power of two that is 2^−b of the noise scale,

    g = 2^(⌊log2 scale⌋ − b),        released = rint(v/g)·g + rint(X·scale/g)·g

Both parts are multiples of g, and their sum is exact while |v|/g < 2⁵³. Since rint(n) + integer = rint(n + integer),
this is rint of the real-valued mechanism on rounded values: post-processing, at the price that rounding moves two
values apart by up to g in each coordinate (`dpp2.privacy.grid`). Whatever is computed from `released` and from messages
may be rounded as floats are; it is post-processing, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpp2.arrays import Array, shorter
from dpp2.inversion import Law, Part, Uniforms
from dpp2.keys import SILENCE, Keystream, Noise, _one_or_column, _power, _runs, derive

CARRIED = 2.0**53  # in units of the grid: larger values and the noise do not fit into one float64
_LOWEST = -900  # g is no smaller than 2^this: its inverse must be a number
_PIECE = 12_000  # variates drawn at a time: fewer cost more calls, more make the allocator fetch fresh pages each time
_ROUNDS = 64  # whose noise is drawn together, at most


def grid(scale: Array | float, bits: int) -> Array | float:
    """g of these noise scales: 2^(⌊log2 scale⌋ − bits), and 0 where there is no noise."""
    if isinstance(scale, float):
        return math.ldexp(1.0, _exponent(math.frexp(scale)[1], bits)) if scale else 0.0
    exponents = np.maximum(np.frexp(scale)[1] - (bits + 1), _LOWEST)
    return np.where(scale > 0, np.ldexp(1.0, exponents), 0.0)


def _exponent(binary: int, bits: int) -> int:
    """frexp's exponent is ⌊log2⌋ + 1."""
    return max(binary - (bits + 1), _LOWEST)


def to_grid(values: Array, g: Array | float) -> Array:
    """The nearest multiples of g (a number, or a column with one per row); values as they are where g is 0."""
    if isinstance(g, float):
        return _rounded(values, g) if g else values
    return np.where(g > 0, _rounded(values, np.where(g > 0, g, 1.0)), values)


def _rounded(values: Array, g: Array | float) -> Array:
    steps = values * (1.0 / g)
    np.rint(steps, out=steps)
    steps *= g
    return steps


def largest_carried(scale: float, law: Law) -> float:
    """Values below this are carried with any noise that can be drawn: |v|/g + the farthest noise/g < 2⁵³."""
    g = float(grid(scale, law.bits))
    return CARRIED * g - (law.farthest * scale + g)


def covered(values: Array, noise: Noise, g: Array | float) -> bool:
    """Whether float64 carried every sum of a value and its noise on this grid, without rounding it."""
    sizes, step = np.abs(values) + np.abs(np.asarray(noise)), np.asarray(g)
    return bool(np.all((sizes < CARRIED * step) | (step == 0)))  # without noise there is nothing to carry


class _Lattice(NamedTuple):
    """Of round k: its scale, its grid, and what a value must stay below to be carried (as `largest_carried`)."""

    k: int
    scale: Array | float
    g: Array | float
    most: Array | float


class GridNoise:
    """Laplace or Gaussian noise of scale u_i r_i^k on each agent's grid, for the agents owned here.

    A function of (key, purpose, round, agent) like `keys.NoiseStream`; `scales` are u and r, one per agent.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        purpose: str,
        agents: Sequence[int],
        dimension: int,
        scales: tuple[Array, Array],
        law: Law,
    ) -> None:
        self.u, self.decay = map(_one_or_column, scales)
        self.silent = not scales[0].any()
        self.agents, self.dimension, self.law = len(agents), dimension, law
        self.slices = [
            (Keystream(derive(key, "grid noise", law.kind, purpose)), first, count)
            for key, first, count in _runs(keys, agents)
        ]
        self._together = min(max(_PIECE // (len(agents) * dimension), 1), _ROUNDS)
        self._drawn: tuple[int, Sequence[Noise]] = -1, ()
        self._lately = _Lattice(-1, 0.0, 0.0, 0.0)
        self._farthest = law.farthest

    def scale(self, k: int) -> Array | float:
        """u r^k: one number, or a column."""
        return self.u * _power(self.decay, k)

    def g(self, k: int) -> Array | float:
        """The grid of round k: one number, or a column; 0 where there is no noise."""
        return self._of(k).g

    def _of(self, k: int) -> _Lattice:
        if self._lately.k != k:  # a round asks several times
            scale = self.scale(k)
            g = grid(scale, self.law.bits)
            self._lately = _Lattice(k, scale, g, (CARRIED - 1) * g - self._farthest * scale)
        return self._lately

    def add(self, k: int, values: Array) -> Array:
        """What round k releases: the values on the grid, and its noise."""
        g = self.g(k)
        if not isinstance(g, float) or not g:
            return to_grid(values, g) + self(k)
        released = _rounded(values, g)
        released += self(k)
        return released

    def add_beside(self, k: int, values: Array, shared: Array) -> Array:
        """The same beside what everybody knows: it is put on the grid by itself, and never rounded with the values."""
        return self.add(k, values) + to_grid(shared, self.g(k))

    def covers(self, k: int, values: Array, factors: Array | None = None) -> bool:
        """Whether float64 carries every one of these values with any noise that round k can draw."""
        lately = self._of(k)
        if factors is None and isinstance(lately.most, float):
            fits = shorter(values, lately.most) or bool((np.abs(values) < lately.most).all())
            return fits or not lately.scale
        scale = lately.scale if factors is None else factors * lately.scale
        assert not isinstance(scale, float)
        each = np.array([[largest_carried(one, self.law) if one else np.inf] for (one,) in scale.tolist()])
        return bool((np.abs(values) < each).all())

    def add_scaled(self, k: int, values: Array, factors: Array) -> tuple[Array, Array]:
        """The same where the scale of a round is u r^k times a public factor per agent, (agents, 1); and its noise."""
        scale = factors * self.scale(k)
        noise = self._large(k, scale)
        return to_grid(values, grid(scale, self.law.bits)) + noise, noise

    def __call__(self, k: int) -> Noise:
        """The noise of round k, (agents, d); silence where every scale is zero."""
        if self.silent:
            return SILENCE
        first = k - k % self._together
        if first != self._drawn[0]:
            self._drawn = first, self._draw(range(first, first + self._together))
        return self._drawn[1][k - first]

    def _draw(self, rounds: range) -> list[Noise]:
        """Rounds of few variates are drawn together; a round of many, in pieces that stay in the cache."""
        scales = [self.scale(k) for k in rounds]
        noise = self._small(rounds, scales) if len(rounds) > 1 else self._large(rounds[0], scales[0])[None]
        noise.flags.writeable = False  # handed out round by round
        return [SILENCE if _is_zero(scale) else drawn for drawn, scale in zip(noise, scales, strict=True)]

    def _small(self, rounds: range, scales: Sequence[Array | float]) -> Array:
        g, c = _lattice(np.array(scales).reshape(len(rounds), -1, 1), self.law.bits)  # (rounds, agents or 1, 1)
        d = self.dimension
        uniforms = Uniforms.of([(s, k, first * d, count * d) for k in rounds for s, first, count in self.slices])
        uniforms = uniforms.reshape(len(rounds), self.agents, d)
        return uniforms.signed(self.law.sampler(uniforms, c), g)

    def _large(self, k: int, scale: Array | float) -> Array:
        steps, multipliers = (np.broadcast_to(part, (self.agents, 1)) for part in _lattice(scale, self.law.bits))
        noise = np.empty((self.agents, self.dimension))
        for parts, rows, columns in self._pieces(k):
            piece = noise[rows, columns]
            uniforms = Uniforms.of(parts).reshape(*piece.shape)
            uniforms.signed(self.law.sampler(uniforms, multipliers[rows]), steps[rows], out=piece)
        return noise

    def _pieces(self, k: int) -> Iterator[tuple[list[Part], slice, slice]]:
        """Some whole agents, or a part of one: its variates, and its rows and columns here."""
        d, row = self.dimension, 0
        for some in self._grouped(max(_PIECE // d, 1)):
            rows = slice(row, row + sum(count for _, _, count in some))
            row = rows.stop
            for left in range(0, d, _PIECE):  # beyond the first only where a piece is less than one agent
                right = min(left + _PIECE, d)
                parts = [(s, k, first * d + left, count * (right - left)) for s, first, count in some]
                yield parts, rows, slice(left, right)

    def _grouped(self, together: int) -> Iterator[list[tuple[Keystream, int, int]]]:
        """The slices, cut and put together such that each group has so many agents; the last one may have fewer."""
        group: list[tuple[Keystream, int, int]] = []
        room = together
        for stream, first, count in self.slices:
            while count:
                taken = min(count, room)
                group.append((stream, first, taken))
                first, count, room = first + taken, count - taken, room - taken
                if not room:
                    yield group
                    group, room = [], together
        if group:
            yield group


def _is_zero(scale: Array | float) -> bool:
    return scale == 0 if isinstance(scale, float) else not scale.any()


def _lattice(scale: Array | float, bits: int) -> tuple[Array, Array]:
    """g and scale/g, which is exact; where the scale is 0, every draw is 0 on any grid."""
    found = np.asarray(grid(scale, bits))
    g = np.where(found > 0, found, 1.0)
    return g, np.asarray(scale / g)
