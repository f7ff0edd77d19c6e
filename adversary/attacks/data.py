"""Data: the objectives themselves, recovered from the pairs (x̂^k, ĝ^k) of the smoother.

Around the point x★ where a run ends, ∇f_i(x) = g★ + H_i (x − x★) + ½T_i[x − x★, x − x★] + …, so a regression of ĝ on x̂,
each round weighed by its noise and by how far from x★ it lies, gives H_i and g★, and ∇f_i(0) ≈ g★ − H_i x★. (The third
derivative T_i serves to keep its share out of H_i; by itself it is too uncertain to extrapolate with.)
For the logistic loss of products a = label · features ∇f_i(0) = −½ mean(a), so the mean of them is recovered; and where
an agent holds few samples, all of them are (`samples`).
"""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks.algebra import Messages
from dpp2.adversary.attacks.base import Attack, Estimate
from dpp2.adversary.attacks.samples import Pairs, fitted_samples, gradient_at_zero, hessian
from dpp2.adversary.attacks.smoother import NoiseScales, Smoother, smoothed
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.views import View
from dpp2.arrays import Array

_SMOOTHER = Smoother()
_LARGEST = 200  # coordinates; a Hessian has d² entries, and takes as many rounds as d to be seen
_SAMPLE_NUMBERS = 60  # m·d: numbers of an agent's data that are fitted one by one
_PASSES = 3  # of the regression; each learns from the one before how far the polynomial reaches
_TINY = float(np.finfo(np.float64).tiny)


class Data(Attack):
    """Per agent `point` x★, `hessian` there, `gradient_at_zero`; of logistic products `mean` and, if few, `samples`."""

    name = "data"
    summary = "Fits the local objectives to what the smoother found: Hessians, mean of the data, few samples."
    quick = False
    compared = False  # it estimates objectives

    def needs(self, view: View) -> str | None:
        if missing := _SMOOTHER.needs(view):
            return missing
        rounds, _, dimension = view.observation.shape
        if view.knowledge.rho is None:
            return "needs ρ, without which no gradient is recovered"
        if dimension > _LARGEST or rounds < 2 * (dimension + 1):
            return f"needs d ≤ {_LARGEST} and 2(d + 1) rounds, but d = {dimension} and there are {rounds} rounds"
        return None

    def run(self, view: View) -> Estimate:
        found, noise = smoothed(view), NoiseScales.of(view, Messages.of(view)).of_gradient
        if found.x is None or found.grad is None:
            return Estimate(self.name)
        _, agents, d = found.x.shape
        data: dict[str, Array] = {}
        for agent in view.agents:
            pairs = Pairs.of(found.x[:, agent], found.grad[:, agent], noise[:, agent])
            if len(pairs.x) >= 2 * (d + 1):
                for name, value in _recovered(pairs, view.knowledge).items():
                    data.setdefault(name, np.full((agents, *value.shape), np.nan))[agent] = value
        return Estimate(self.name, data=data)


def _recovered(pairs: Pairs, knowledge: Knowledge) -> dict[str, Array]:
    """What is recovered of one agent."""
    problem, point = knowledge.problem, pairs.x[-1]
    if knowledge.logistic_products and problem["samples"] * problem["dimension"] <= _SAMPLE_NUMBERS:
        a = fitted_samples(pairs, problem)
        found = {"point": point, "hessian": hessian(a, point, problem), "gradient_at_zero": gradient_at_zero(a)}
        return found | {"mean": a.mean(axis=0), "samples": a}
    H, g0 = expanded(pairs, affine=knowledge.affine_gradient)
    found = {"point": point, "hessian": H, "gradient_at_zero": g0}
    return found | {"mean": -2 * g0} if knowledge.logistic_products else found


def expanded(pairs: Pairs, *, affine: bool) -> tuple[Array, Array]:
    """H at the last point and ∇f(0), from a Taylor polynomial of degree 2, or 1 where rounds are few or ∇f is affine.

    Rounds are weighed by their noise and by the polynomial's own error, which grows with the distance from that point.
    """
    away, d = pairs.x - pairs.x[-1], pairs.x.shape[1]
    degree = 1 if affine or len(away) < (d + 1) * (d + 2) else 2
    monomials = _monomials(away, degree)
    distance = np.linalg.norm(away, axis=1)
    size = np.linalg.norm(pairs.g, axis=1)
    beyond = float(np.max(size)) / max(float(np.max(distance)) ** (degree + 1), _TINY) * (not affine)
    for _ in range(_PASSES):
        weight = 1 / np.hypot(pairs.noise, beyond * distance ** (degree + 1))
        fitted = _least_squares(monomials * weight[:, None], pairs.g * weight[:, None])
        off = np.linalg.norm(pairs.g - monomials @ fitted, axis=1)
        told = (off > 10 * pairs.noise) & (distance > 0)  # rounds whose misfit is the polynomial's, not the noise's
        if told.any() and not affine:
            beyond = float(np.median(off[told] / distance[told] ** (degree + 1)))
    hessian = (fitted[1 : d + 1] + fitted[1 : d + 1].T) / 2
    return hessian, fitted[0] - hessian @ pairs.x[-1]


def _monomials(x: Array, degree: int) -> Array:
    """1, the coordinates and (for degree 2) their products, one row per point."""
    first, second = np.triu_indices(x.shape[1])
    pairwise = x[:, first] * x[:, second] if degree > 1 else x[:, :0]
    return np.concatenate([np.ones((len(x), 1)), x, pairwise], axis=1)


def _least_squares(left: Array, right: Array) -> Array:
    """Columns are brought to unit length first: a run that has come to rest moves in some directions far more."""
    units = np.linalg.norm(left, axis=0)
    units[units == 0] = 1.0
    return np.asarray(np.linalg.lstsq(left / units, right, rcond=None)[0] / units[:, None])
