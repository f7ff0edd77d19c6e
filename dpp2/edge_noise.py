"""Noise of an edge, as both of its ends draw it (DPP³): ± the same numbers, from words of the edge's keystream.

A gradient round has its words one after the other, so that many rounds of an edge are one read.

*Laplace.* A word for each variate: lower 52 bits m, topmost bit the sign, and the 11 between them G, as in
`dpp2.inversion`; 64 further bits are read where those 11 are all 0. With a grid g, rint(c·X)·g for c = scale/g:
multiples of g, whose sums are exact. A shift runs along one path of edges, in whole steps of g, so every edge of it may
be rounded by itself. Without a grid, X as a double.

*Gauss*, by Box and Muller: two words, a radius and an angle, for two variates, r·cos 2θ and r·sin 2θ.
    upper 52 bits    u and θ/π, in the middle of their cells
    r = √(−2 ln u)   where u or 1 − u is less than 2^−16, from 64 further bits below those of u
*How far a Gaussian variate is from an exact one.* Let the exact one come from a point of the same cell, drawn evenly.
Then r differs by at most 2^−53/(u r): below 2^−39 where u > 2^−16 and r > 2^−8, and by less still where 64 further bits
are read, but for a probability of 2^−80. An angle differs by π·2^−52, and floats add a few ulp of 11. Together that is
less than 2^−38: `WITHIN`. What this costs, `algorithms.cancelling_noise` says.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dpp2.arrays import Array
from dpp2.edge_keys import EdgeSecret
from dpp2.inversion import Uniforms, further, laplace_integers, laplace_numbers, lowest_one
from dpp2.keys import Keystream, RoomForWords, Words, derive, uniform

Kind = Literal["gaussian", "laplace"]

WITHIN = 2.0**-38  # of an exact Gaussian variate
_TOGETHER = 20  # gradient rounds whose words are drawn at once, at most
_MOST_WORDS = 1 << 16  # that are drawn at once, unless a single round needs more
_PIECE = 1 << 16  # words that are turned into noise at a time: fewer cost more calls, more leave the cache
_ENDS = np.uint64(1 << 48)  # words below this, and so near to 2⁶⁴, have u below 2^−16 or above 1 − 2^−16


class EdgeNoise:
    """Σ_j sgn(j − i) m_ij for the agents owned here, (agents, d), in every gradient round.

    The sum runs over an agent's neighbours in ascending order, alone in a container as among others: the same bytes.
    """

    def __init__(
        self,
        kind: Kind,
        edges: Sequence[EdgeSecret],
        owned: Sequence[int],
        dimension: int,
        g: float = 0.0,
        gradient_rounds: int | None = None,
    ) -> None:
        """g: the grid that Laplace noise lies on; 0: doubles. `gradient_rounds`: no more are drawn ahead."""
        ordered = sorted((edge for edge in edges if edge.scale > 0), key=lambda edge: edge.ends)
        streams = [Keystream(derive(edge.key, "noise")) for edge in ordered]
        scales = np.array([edge.scale for edge in ordered])
        on_grid = kind == "laplace" and g > 0
        ahead = min(gradient_rounds or _TOGETHER, _TOGETHER)
        self._law: _Law = _Gaussian(streams, dimension, ahead)
        if kind == "laplace":
            self._law = _Laplace(streams, dimension, ahead, scales[:, None] / g if on_grid else None, g)
        self._sums = _SignedSums(ordered, owned, np.ones_like(scales) if on_grid else scales)
        self._drawn: tuple[int, Array] = -1, np.empty(0)

    def __call__(self, gradient_round: int) -> Array:
        law = self._law
        first = gradient_round - gradient_round % law.together
        if first != self._drawn[0]:
            summed = self._sums(law.drawn(first))
            self._drawn = first, summed.reshape(len(summed), law.together, law.width)
        drawn: Array = self._drawn[1][:, gradient_round - first, : law.dimension]
        return drawn


class _Law(ABC):
    """m of all edges, in units of their scales or on a grid. `width`: words of a gradient round.

    All arrays that a draw needs are made once: fresh memory costs as much as what is computed in it.
    """

    def __init__(self, streams: Sequence[Keystream], dimension: int, width: int, ahead: int) -> None:
        self.streams, self.dimension, self.width = streams, dimension, width
        self.together = min(max(_MOST_WORDS // max(len(streams) * width, 1), 1), ahead)
        self.count = self.together * width
        self.step = max(min(_PIECE // max(self.count, 1), len(streams)), 1)
        self._room = RoomForWords(self.step, self.count)
        self._variates = np.empty((len(streams), self.count))
        self._scratch = np.empty(self.step * self.count)

    def drawn(self, first: int) -> Array:
        """Those of the `together` gradient rounds from `first` on, (edges, together·width); used again and again."""
        start = first * self.width
        for top in range(0, len(self._variates), self.step):
            some = range(top, min(top + self.step, len(self._variates)))
            words = self._room.filled(self.streams[some.start : some.stop], 0, start)
            self.turn(words, self._variates[some.start : some.stop], some, start)
        return self._variates

    @abstractmethod
    def turn(self, words: Words, variates: Array, edges: range, start: int) -> None:
        """These words, the first of which is word `start` of its stream, into variates of these edges."""


class _Laplace(_Law):
    def __init__(
        self, streams: Sequence[Keystream], dimension: int, ahead: int, multipliers: Array | None, g: float
    ) -> None:
        super().__init__(streams, dimension, dimension, ahead)
        self.multipliers, self.g = multipliers, np.array([g])
        self._fields = np.empty((self.step, self.count), dtype=np.uint16)

    def turn(self, words: Words, variates: Array, edges: range, start: int) -> None:
        fields, scratch = self._fields[: len(words)], self._scratch[: words.size].reshape(words.shape)
        np.right_shift(words, np.uint64(52), out=fields, casting="unsafe")  # the lower 16 bits of what is left
        fields &= np.uint16(0x7FF)
        steps = np.bitwise_count((fields - np.uint16(1)) ^ fields)
        for place in np.flatnonzero(fields == 0).tolist():
            edge, n = divmod(place, words.shape[1])
            steps[edge, n] = 11 + lowest_one(further(self.streams[edges[edge]], 0, start + n))
        uniforms = Uniforms(words, steps)
        if self.multipliers is None:
            laplace_numbers(uniforms, out=variates, scratch=scratch)
        else:
            laplace_integers(uniforms, self.multipliers[edges.start : edges.stop], out=variates, scratch=scratch)
            uniforms.signed(variates, self.g)


class _Gaussian(_Law):
    def __init__(self, streams: Sequence[Keystream], dimension: int, ahead: int) -> None:
        super().__init__(streams, dimension, dimension + dimension % 2, ahead)

    def turn(self, words: Words, variates: Array, edges: range, start: int) -> None:
        # In one piece: NumPy's functions may differ in the last bit between such arrays and others.
        flat, out = words.reshape(-1), variates.reshape(-1)
        radii, t = self._scratch[: flat.size].reshape(2, -1)
        moved = np.add(flat[::2], _ENDS, out=t.view(np.uint64))
        at_ends = np.flatnonzero(moved < 2 * _ENDS)
        radii_of(flat[::2], radii)
        for n in at_ends.tolist():
            edge, position = divmod(2 * n, words.shape[1])
            radii[n] = radius_at_an_end(int(flat[2 * n]), further(self.streams[edges[edge]], 0, start + position))
        box_muller(radii, uniform(flat[1::2], t), out)


def radii_of(words: Words, out: Array | None = None) -> Array:
    """√(−2 ln u)"""
    radii = uniform(words, out)
    np.log(radii, out=radii)
    radii *= -2
    return np.sqrt(radii, out=radii)


def radius_at_an_end(word: int, further: int) -> float:
    """The same where u is near 0 or 1, from 64 further bits: u = (upper 52 of the word, further, ½)/2¹¹⁶."""
    whole = ((word >> 12) << 64) + further
    if word >> 63:  # near 1: by way of 1 − u, which has all its digits
        return math.sqrt(-2 * math.log1p(-((1 << 116) - 1 - whole + 0.5) * 2.0**-116))
    return math.sqrt(-2 * math.log((whole + 0.5) * 2.0**-116))


def box_muller(radii: Array, t: Array, out: Array) -> None:
    """N(0, 1) of such radii and of θ/π, both overwritten: a cosine, a sine, and so on.

    Cosine and sine of 2θ are (1 − t²)/(1 + t²) and 2t/(1 + t²) with t = tan θ: one function instead of two, and a
    faster one.
    """
    t *= np.pi
    np.tan(t, out=t)
    square = t * t
    radii /= 1 + square
    np.subtract(1, square, out=square)
    np.multiply(radii, square, out=out[::2])
    radii *= 2
    np.multiply(radii, t, out=out[1::2])


class _SignedSums:
    """Adds up what edges draw at every agent owned here: + at the lower end, − at the upper one, times a factor."""

    def __init__(self, edges: Sequence[EdgeSecret], owned: Sequence[int], factors: Array) -> None:
        from scipy.sparse import coo_array, csr_array  # heavy, and needed by noise of edges alone

        row = {agent: number for number, agent in enumerate(owned)}
        parts = [
            (row[agent], number, factors[number] * (1.0 - 2.0 * end))
            for number, edge in enumerate(edges)
            for end, agent in enumerate(edge.ends)
            if agent in row
        ]
        rows, columns, signed = np.array(sorted(parts)).reshape(-1, 3).T
        shape = len(owned), len(edges)
        self._matrix = csr_array(coo_array((signed, (rows.astype(np.intp), columns.astype(np.intp))), shape=shape))

    def __call__(self, noise: Array) -> Array:
        """Of (edges, …). Sparse products add row by row, one edge after the other: the same bits alone and together."""
        return np.asarray(self._matrix @ noise)
