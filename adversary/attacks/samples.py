"""Few samples: the logistic problem's data themselves, fitted to points and gradients.

Only the products a = label · features enter
    ∇f(x) = −(1/m) Σ_s a_s/(1 + exp(a_sᵀx)) + ∇ Σ_t λω x_t²/(1 + ω x_t²)
so they can be recovered, in no order; labels and features apart cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.problems.logistic import odds, regularised

_SHARPEST = 1e-7  # no gradient is weighed as if it were known better than that: the search would get stuck
_STARTS = 12  # random ones; the fit is not convex
_EVALUATIONS = 300
_FLOOR = 1e-12  # of a gradient's size: what rounding leaves of it
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Points, gradients there (k, d), and the standard deviation of the noise in those (k,)."""

    x: Array
    g: Array
    noise: Array

    @classmethod
    def of(cls, x: Array, g: Array, noise: Array) -> Pairs:
        """One agent's rounds in which both are known."""
        known = ~np.isnan(x + g).any(axis=1)
        x, g = x[known], g[known]
        return cls(x, g, noise[known] + _FLOOR * np.linalg.norm(g, axis=1) + _TINY)


def fitted_samples(pairs: Pairs, problem: Mapping[str, Any]) -> Array:
    """The products (m, d) whose gradients are nearest to the pairs, in units of their noise."""
    from scipy.optimize import least_squares

    m, d, x = problem["samples"], problem["dimension"], pairs.x
    wanted = pairs.g - _regulariser(x, problem)
    size = float(np.max(np.linalg.norm(wanted, axis=1)))
    weight = 1 / (pairs.noise + _SHARPEST * size + _TINY)[:, None]

    def residuals(flat: Array) -> Array:
        a = flat.reshape(m, d)
        return np.asarray(((-_share(x, a) @ a / m - wanted) * weight).ravel())

    def jacobian(flat: Array) -> Array:
        a = flat.reshape(m, d)
        share = _share(x, a)[:, :, None, None]
        of_a = share * (1 - share) * (a[:, :, None] * x[:, None, None, :]) - share * np.eye(d)
        return np.asarray((of_a * weight[:, :, None, None] / m).transpose(0, 2, 1, 3).reshape(-1, m * d))

    starts = m * size / np.sqrt(d) * np.random.default_rng(0).standard_normal((_STARTS, m * d))
    fits = (least_squares(residuals, start, jacobian, x_scale="jac", max_nfev=_EVALUATIONS) for start in starts)
    return np.asarray(min(fits, key=lambda fit: float(fit.cost)).x.reshape(m, d))


def gradient_at_zero(a: Array) -> Array:
    """−½ mean(a)"""
    return np.asarray(-a.mean(axis=0) / 2)


def hessian(a: Array, x: Array, problem: Mapping[str, Any]) -> Array:
    """(1/m) Σ_s σ_s(1 − σ_s) a_s a_sᵀ with σ_s = 1/(1 + exp(a_sᵀx)), and the regulariser's 2λω(1 − 3ωx²)/(1 + ωx²)³."""
    share = _share(x[None], a)[0]
    curved = problem["omega"] * x * x
    bent = 2 * problem["lambda"] * problem["omega"] * (1 - 3 * curved) / (1 + curved) ** 3
    return np.asarray((a.T * (share * (1 - share))) @ a / len(a) + np.diag(bent))


def _share(x: Array, a: Array) -> Array:
    """(k, m): 1/(1 + exp(a_sᵀx)), the share of each sample in the gradient at each point."""
    return odds(x @ a.T)[1]


def _regulariser(x: Array, problem: Mapping[str, Any]) -> Array:
    return regularised(np.zeros(len(x)), np.zeros_like(x), x, problem["lambda"], problem["omega"])[1]
