"""A loss over samples of which each agent has its own number, for data that come from outside.

    f_i(x) = (1/m_i) Σ_s ℓ_s(xᵀa_is) + Σ_t λω x_t²/(1 + ω x_t²)
with ℓ the logistic loss (a_is = label · features) or ½(xᵀa_is − b_is)². M_i = c λ_max(A_iᵀA_i/m_i) + 2λω,
where c = sup ℓ'' is ¼ or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.problems.base import Counts, row_norms, slope_limits
from dpp2.problems.logistic import data_smoothness, logistic_loss, regularised, regulariser_gradient
from dpp2.problems.sources import Source

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Group:
    """Owned agents that have equally many samples: one batched product serves them all."""

    positions: Indices  # (g,): their places among the owned agents
    rows: Array  # (g, m, d)
    span: slice  # where their g·m samples lie among all samples


@dataclass(frozen=True, eq=False)
class RowLoss:
    """See the module. `loss` maps xᵀa of all samples, in the order of the groups, to (ℓ, ℓ')."""

    groups: tuple[Group, ...]
    loss: Callable[[Array], tuple[Array, Array]]
    curvature: float  # sup ℓ''
    lambda_: float
    omega: float
    sources: tuple[Source, ...] = ()  # of data from outside, one for each agent
    limits: Array | None = None  # the largest |ℓ'| of each sample in the gradient, where it is clipped

    @property
    def dimension(self) -> int:
        return int(self.groups[0].rows.shape[2])

    @cached_property
    def smoothness(self) -> Array:
        steepest = np.empty(sum(len(group.positions) for group in self.groups))
        for group in self.groups:  # data_smoothness carries the ¼ of the logistic loss
            steepest[group.positions] = 4 * self.curvature * data_smoothness(group.rows)
        return steepest + 2 * self.lambda_ * self.omega

    def __call__(self, x: Array) -> tuple[Array, Array]:
        loss, slope = self._slopes(x)
        value, grad = np.empty(len(x)), np.empty_like(x)
        for group in self.groups:
            g, m, _ = group.rows.shape
            value[group.positions] = loss[group.span].reshape(g, m).mean(axis=1)
            grad[group.positions] = np.matmul(slope[group.span].reshape(g, 1, m), group.rows)[:, 0, :] / m
        return regularised(value, grad, x, self.lambda_, self.omega)

    def sample_counts(self) -> Counts:
        counts = np.empty(sum(len(group.positions) for group in self.groups), dtype=np.intp)
        for group in self.groups:
            counts[group.positions] = group.rows.shape[1]
        return counts

    def sample_gradients(self, x: Array) -> Array:
        slopes = self._slopes(x)[1]
        regulariser = regulariser_gradient(x, self.lambda_, self.omega)
        gradients = np.zeros((len(x), int(self.sample_counts().max()), x.shape[1]))
        for group in self.groups:
            g, m, _ = group.rows.shape
            slope = slopes[group.span].reshape(g, m, 1)
            gradients[group.positions, :m] = slope * group.rows + regulariser[group.positions]
        return gradients

    def clipped(self, bound: float) -> RowLoss:
        norms = [row_norms(group.rows).ravel() for group in self.groups]
        return replace(self, limits=slope_limits(np.concatenate(norms), bound))

    def _slopes(self, x: Array) -> tuple[Array, Array]:
        """ℓ and ℓ' of all samples, in the order of the groups; ℓ' within its limits, where there are any."""
        products = [np.matmul(group.rows, x[group.positions, :, None]).ravel() for group in self.groups]
        loss, slope = self.loss(np.concatenate(products))
        return loss, slope if self.limits is None else np.clip(slope, -self.limits, self.limits)


def logistic_rows(features: Sequence[Array], labels: Sequence[Array], lambda_: float, omega: float) -> RowLoss:
    """Logistic loss of each agent's (m_i, d) features and (m_i,) labels ±1."""
    groups = _grouped([f * y[:, None] for f, y in zip(features, labels, strict=True)])
    return RowLoss(groups, logistic_loss, 0.25, lambda_, omega)


def square_rows(features: Sequence[Array], labels: Sequence[Array], lambda_: float, omega: float) -> RowLoss:
    """Half squared error of each agent's (m_i, d) features and (m_i,) labels."""
    groups = _grouped(features)
    targets = np.concatenate([labels[n] for group in groups for n in group.positions.tolist()])

    def loss(products: Array) -> tuple[Array, Array]:
        residual = products - targets
        return 0.5 * residual * residual, residual

    return RowLoss(groups, loss, 1.0, lambda_, omega)


def _grouped(rows: Sequence[Array]) -> tuple[Group, ...]:
    counts = np.array([len(own) for own in rows])
    groups, start = [], 0
    for count in np.unique(counts):
        positions = np.flatnonzero(counts == count)
        stop = start + len(positions) * int(count)
        groups.append(Group(positions, np.stack([rows[n] for n in positions.tolist()]), slice(start, stop)))
        start = stop
    return tuple(groups)
