"""Both ends of a Laplacian's spectrum by Lanczos, in a number of products that is fixed beforehand.

The null vector 1 is kept out, so that the lower end is λ_2. Three vectors are held, whatever the number of steps. They
lose their orthogonality after a while, which gives copies of Ritz values that have converged and moves none of them
(C. C. Paige, 1971): the outermost ones stay right. With T the tridiagonal matrix of m steps and (θ, s) an
eigenpair of it, an eigenvalue of P lies within |b_m s_m| of θ, and always λ_2 ≤ θ_1, θ_m ≤ λ_max up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpp2.arrays import Array

_LOOKS = 8  # how often the work may double before it is over: the first look is after steps / 2⁸


@dataclass(frozen=True)
class Ritz:
    """A Ritz value, and how far from it an eigenvalue lies at most."""

    value: float
    error: float

    def within(self, tolerance: float) -> bool:
        return self.error <= tolerance * abs(self.value)


Ends = tuple[Ritz, Ritz]  # (towards λ_2, towards λ_max)


def both_ends(product: Callable[[Array], Array], size: int, steps: int, enough: Callable[[Ends], bool]) -> Ends:
    """`product` gives P v. It stops early once `enough`. The start is fixed, so that everybody finds the same."""
    v = np.random.default_rng(0).standard_normal(size)
    v -= v.mean()
    v /= math.sqrt(_dot(v, v))
    before, b = np.zeros(size), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    looks = {max(steps >> shift, 2) for shift in range(_LOOKS)}
    for step in range(1, steps + 1):
        u = product(v)
        u -= b * before
        a = _dot(u, v)
        u -= a * v
        u -= u.mean()  # rounding brings 1 back in
        b = math.sqrt(_dot(u, u))
        diagonal.append(a)
        beside.append(b)
        found = _ends(diagonal, beside) if step in looks or b < 1e-14 * abs(a) or step == steps else None
        if found and (step == steps or b < 1e-14 * abs(a) or enough(found)):
            return found
        before, v = v, u / b
    raise AssertionError("steps ≥ 1")


def _dot(u: Array, v: Array) -> float:
    """Not by BLAS, which wakes all cores for every short sum; on a busy machine they wait for each other."""
    return float(np.einsum("n,n->", u, v))


def _ends(diagonal: list[float], beside: list[float]) -> Ends:
    from scipy.linalg import eigh_tridiagonal

    d, e = np.array(diagonal), np.array(beside)
    last, b = len(d) - 1, float(e[-1])

    def end(n: int) -> Ritz:
        values, vectors = eigh_tridiagonal(d, e[:-1], select="i", select_range=(n, n))
        return Ritz(float(values[0]), b * abs(float(vectors[-1, 0])))

    return end(0), end(last)
