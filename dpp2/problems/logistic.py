"""The paper's problem (section VI): logistic loss on random data with a nonconvex regulariser.

    f_i(x) = (1/m) Σ_s log(1 + exp(−y_is xᵀz_is)) + Σ_t λω x_t²/(1 + ω x_t²)
Only the products a_is = y_is z_is enter, so only they are kept. M_i = ¼ λ_max(Z_iᵀZ_i/m) + 2λω is a tight bound.
The paper states M̄ = 5.03 but not its features: standard normal ones, times the one scale that makes max_i M_i equal
`smoothness`, reproduce it. That scale looks at all agents' data, so it is computed once, when the experiment is
resolved, and stored as `problem.scale`, with a mark that says so.

Where single records are to be protected no record may decide on the scale: clipping bounds what a record does to its
own agent, but through the scale it would move all others. There the scale is the one that the distribution calls for,
    scale² · ¼ (1 + √(d/m))² + 2λω = smoothness        (Marchenko–Pastur: where λ_max(Z_iᵀZ_i/m) tends to)
and the clipping that follows is a clipping of the features as they are drawn, in other units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.problems.base import (
    DATA,
    LARGEST,
    SHARED,
    SURROGATE_SEED,
    Counts,
    ProblemSection,
    Sampled,
    agent_rng,
    row_norms,
    slope_limits,
)
from dpp2.schema import Table

_FLIPPED = 0.2  # of planted labels
_LARGEST = 100.0  # seven factors of exp of it are still a float64


class LogisticSection(ProblemSection):
    public_keys = ("name", "dimension", "samples", "lambda", "omega")
    regulariser = ("lambda", "omega")
    logistic_products = True

    name: Literal["logistic"] = "logistic"
    dimension: int = Field(10, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    samples: int = Field(200, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    smoothness: float = Field(5.03, gt=0, le=LARGEST, description="a number > 2·lambda·omega, at most 1e100")
    lambda_: float = Field(0.001, ge=0, le=LARGEST, alias="lambda", description="a number from 0 to 1e100")
    omega: float = Field(1.0, ge=0, le=LARGEST, description="a number from 0 to 1e100")
    labels: Literal["planted"] | None = Field(
        None, description='"planted" or nothing: signs that a common x explains, one in five flipped; or random ones'
    )
    scale: float | None = Field(
        None, gt=0, le=LARGEST, description="a number > 0, at most 1e100 (default: what `smoothness` needs)"
    )
    scale_from_data: bool | None = Field(
        None, description="true or nothing: set where `scale` is computed from the data"
    )
    _feature_bound: float | None = PrivateAttr(None)

    def resolve(self, agents: int) -> Self:
        if self.scale is not None:
            return self
        rest = self._data_smoothness()
        steepest = max(float(data_smoothness(self._draw(i)[None])[0]) for i in range(agents))
        return self.updated(scale=float(np.sqrt(rest / steepest)), scale_from_data=True)

    def resolve_for_records(self, agents: int) -> Self:
        """The scale from d and m alone; see the module."""
        if self.scale is not None:
            return self
        steepest = (1 + np.sqrt(self.dimension / self.samples)) ** 2 / 4
        return self.updated(scale=float(np.sqrt(self._data_smoothness() / steepest)))

    def _data_smoothness(self) -> float:
        """What of `smoothness` is left for the data."""
        regulariser = 2 * self.lambda_ * self.omega
        if self.smoothness <= regulariser:
            raise BadInput("problem.smoothness", self.smoothness, f"a number > 2·lambda·omega = {regulariser:g}")
        return self.smoothness - regulariser

    def looked_at(self) -> str | None:
        found = "problem.scale was computed from all agents' data and is outside ε: declare it"
        return found if self.scale_from_data else None

    def digest_table(self) -> Table:
        """Without the mark: where the scale came from does not change what is computed."""
        return {key: value for key, value in self.table().items() if key != "scale_from_data"}

    def objective(self, owned: Sequence[int], agents: int) -> Logistic:
        assert self.scale is not None, "the experiment is resolved before objectives are built"
        products = self.scale * np.stack([self._draw(agent) for agent in owned])
        if self._feature_bound is not None:
            products *= np.minimum(1, self._feature_bound / np.linalg.norm(products, axis=2, keepdims=True))
        return Logistic(products, self.lambda_, self.omega)

    def surrogate(self, agents: int, smoothness: float) -> LogisticSection:
        """Scaled by its own draw, so that it is exactly as steep."""
        return self.updated(seed=SURROGATE_SEED, smoothness=smoothness, scale=None, scale_from_data=None)

    @classmethod
    def with_signal(cls, objective: Sampled, smoothness: float, lambda_: float, omega: float) -> LogisticSection:
        """A public surrogate of real data: as many records of as many features, on average over the agents.

        With planted labels: where nothing is to be learned, the best plan hardly moves.
        """
        return cls(
            seed=SURROGATE_SEED,
            dimension=objective.dimension,
            samples=int(objective.sample_counts().mean()),
            smoothness=smoothness,
            labels="planted",
            lambda_=lambda_,
            omega=omega,
        )

    def bounded(self, feature_bound: float) -> Self:
        """Features clipped to this 2-norm."""
        copy = self.model_copy()
        copy._feature_bound = feature_bound
        return copy

    def record_adjacency(self, feature_bound: float) -> float:
        """A record's gradient is σ(·)·a/m with ‖a‖ ≤ bound; exchanging it moves the mean by at most twice that."""
        return 2 * feature_bound / self.samples

    def _draw(self, agent: int) -> Array:
        """label · features of one agent, unscaled: (m, d)."""
        rng = agent_rng(self.drawing_seed(), DATA, agent)
        features = rng.standard_normal((self.samples, self.dimension))
        if self.labels == "planted":
            return np.asarray(self._planted(features, rng) * features)
        labels = rng.choice([-1.0, 1.0], size=(self.samples, 1))
        return labels * features

    def _planted(self, features: Array, rng: np.random.Generator) -> Array:
        common = agent_rng(self.drawing_seed(), SHARED, 0).standard_normal(self.dimension)
        flipped = np.where(rng.random(self.samples) < _FLIPPED, -1.0, 1.0)
        return np.asarray((np.sign(features @ common) * flipped)[:, None])


def data_smoothness(products: Array) -> Array:
    """¼ λ_max(Z_iᵀZ_i/m) for each agent: the logistic loss has second derivative at most ¼."""
    _, m, d = products.shape
    transposed = products.transpose(0, 2, 1)
    gram = transposed @ products if d <= m else products @ transposed  # the same eigenvalue, the smaller matrix
    return np.asarray(np.linalg.eigvalsh(gram / m)[:, -1] / 4)


@dataclass(frozen=True, eq=False)
class Logistic:
    """Logistic loss of products (n, m, d) with the nonconvex regulariser."""

    products: Array
    lambda_: float
    omega: float
    limits: Array | None = None  # (n, m): the largest slope of each record in the gradient, where it is clipped

    @cached_property
    def columns(self) -> Array:
        """The products with samples last, (n, d, m): the long axis contiguous halves the time of both products."""
        return np.ascontiguousarray(self.products.transpose(0, 2, 1))

    @property
    def dimension(self) -> int:
        return int(self.products.shape[2])

    @property
    def smoothness(self) -> Array:
        return data_smoothness(self.products) + 2 * self.lambda_ * self.omega

    def __call__(self, x: Array) -> tuple[Array, Array]:
        margins = np.matmul(x[:, None, :], self.columns)[:, 0, :]
        total, share = odds(margins)
        if self.limits is not None:
            np.minimum(share, self.limits, out=share)
        grad = np.matmul(self.columns, share[:, :, None])[:, :, 0]
        grad /= -share.shape[1]
        loss = _mean_log(total)
        if np.minimum.reduce(margins, axis=None) < -_LARGEST:
            loss += _beyond_the_cap(margins).mean(axis=-1)
        return regularised(loss, grad, x, self.lambda_, self.omega)

    def sample_counts(self) -> Counts:
        agents, m, _ = self.products.shape
        return np.full(agents, m, dtype=np.intp)

    def sample_gradients(self, x: Array) -> Array:
        margins = np.matmul(self.products, x[:, :, None])[:, :, 0]
        slopes = logistic_loss(margins)[1]
        if self.limits is not None:
            slopes = np.maximum(slopes, -self.limits)
        return slopes[:, :, None] * self.products + regulariser_gradient(x, self.lambda_, self.omega)

    def clipped(self, bound: float) -> Logistic:
        return replace(self, limits=slope_limits(row_norms(self.products), bound))


def logistic_loss(margins: Array) -> tuple[Array, Array]:
    """log(1 + exp(−margin)) and its derivative, for each margin."""
    total, share = odds(margins)
    return np.log(total) + _beyond_the_cap(margins), -share


def odds(margins: Array) -> tuple[Array, Array]:
    """(1 + o, o/(1 + o)) for the odds o = exp(−margin), which are capped so that nothing overflows."""
    o = -margins
    np.minimum(o, _LARGEST, out=o)
    np.exp(o, out=o)
    total = 1 + o
    return total, np.divide(o, total, out=o)


def _beyond_the_cap(margins: Array) -> Array:
    """What the cap takes from log(1 + o): beyond it the loss is a straight line."""
    return np.maximum(-margins - _LARGEST, 0)


def _mean_log(total: Array) -> Array:
    """Mean of log over the last axis. Four factors are multiplied first: a logarithm costs as much as ten products."""
    count = total.shape[-1]
    for _ in range(2):
        half = total.shape[-1] // 2
        if half:
            odd = total[..., 2 * half :]
            total = total[..., :half] * total[..., half : 2 * half]
            if odd.size:
                total[..., : odd.shape[-1]] *= odd
    return np.asarray(np.add.reduce(np.log(total), axis=-1) / count)


def regularised(value: Array, grad: Array, x: Array, lambda_: float, omega: float) -> tuple[Array, Array]:
    """Adds Σ_t λω x_t²/(1 + ω x_t²) = λ Σ_t (1 − 1/(1 + ω x_t²)) and its gradient, in place."""
    shrunk = 1 / (1 + omega * (x * x))
    value += lambda_ * (x.shape[1] - np.add.reduce(shrunk, axis=1))
    shrunk *= shrunk
    shrunk *= x
    grad += (2 * lambda_ * omega) * shrunk
    return value, grad


def regulariser_gradient(x: Array, lambda_: float, omega: float) -> Array:
    """The regulariser's share in the gradient of every sample: (agents, 1, d)."""
    return regularised(np.zeros(len(x)), np.zeros_like(x), x, lambda_, omega)[1][:, None, :]
