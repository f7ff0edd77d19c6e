"""Gradients of single samples, for the methods that draw one: f_i = (1/m_i) Σ_s f_is.

The problems with data are sums over samples; the regulariser belongs to every one of them in equal parts. An objective
that is no such sum counts as one sample. Agents may have different m_i: rows beyond an agent's own are zero.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from dpp2.algorithms.noise import Indices
from dpp2.arrays import Array
from dpp2.problems.base import Objective
from dpp2.problems.least_squares import LeastSquares
from dpp2.problems.logistic import Logistic, logistic_loss, regularised
from dpp2.problems.rows import RowLoss


@singledispatch
def sample_counts(objective: Objective) -> Indices:
    """m_i of every agent."""
    return np.ones(len(objective.smoothness), dtype=np.intp)


@singledispatch
def sample_gradients(objective: Objective, x: Array) -> Array:
    """∇f_is(x_i) of every agent and sample: (agents, max m_i, d)."""
    return objective(x)[1][:, None, :]


@sample_counts.register
def _(objective: Logistic) -> Indices:
    agents, m, _ = objective.products.shape
    return np.full(agents, m, dtype=np.intp)


@sample_gradients.register
def _(objective: Logistic, x: Array) -> Array:
    margins = np.matmul(objective.products, x[:, :, None])[:, :, 0]
    slopes = logistic_loss(margins)[1]
    return slopes[:, :, None] * objective.products + _regulariser(x, objective.lambda_, objective.omega)


@sample_counts.register
def _(objective: LeastSquares) -> Indices:
    agents, m, _ = objective.a.shape
    return np.full(agents, m, dtype=np.intp)


@sample_gradients.register
def _(objective: LeastSquares, x: Array) -> Array:
    residual = np.matmul(objective.a, x[:, :, None]) - objective.b[:, :, None]
    return np.asarray(residual * objective.a)


@sample_counts.register
def _(objective: RowLoss) -> Indices:
    counts = np.empty(sum(len(group.positions) for group in objective.groups), dtype=np.intp)
    for group in objective.groups:
        counts[group.positions] = group.rows.shape[1]
    return counts


@sample_gradients.register
def _(objective: RowLoss, x: Array) -> Array:
    products = [np.matmul(group.rows, x[group.positions, :, None]).ravel() for group in objective.groups]
    slopes = objective.loss(np.concatenate(products))[1]
    regulariser = _regulariser(x, objective.lambda_, objective.omega)
    gradients = np.zeros((len(x), int(sample_counts(objective).max()), x.shape[1]))
    for group in objective.groups:
        g, m, _ = group.rows.shape
        slope = slopes[group.span].reshape(g, m, 1)
        gradients[group.positions, :m] = slope * group.rows + regulariser[group.positions]
    return gradients


def _regulariser(x: Array, lambda_: float, omega: float) -> Array:
    """Its gradient, (agents, 1, d)."""
    return regularised(np.zeros(len(x)), np.zeros_like(x), x, lambda_, omega)[1][:, None, :]
