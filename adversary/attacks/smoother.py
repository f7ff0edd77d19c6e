"""Smoother: all rounds together, each weighed by its noise. The strongest of the attacks, from the first round on.

Given η, D follows from the y's, so the residuals s^{k+1} − s^k − i_k = αe^k + w^{k+1}, over their standard deviations
r^k√(2(α²u_e² + u_w²r²)), are a least-squares problem in the b's alone (`tracking`, `fitting`). What is left is noise,
and of the two noises that make up a residual the smaller one hides x:
    x̂^{k+1} = s^k + i_k + αê^k          ê^k = α v_e/(α² v_e + v_w) · residual          (v: the variances)
    ĝ^k = z^k − ê^k − ρP(D^k + t s^k)
so w protects x⁰ only; from then on x is hidden by αe alone. Estimates that noise dominates are shrunk towards the
prior (James and Stein). Once the noise is below the rounding of y, averaging over rounds is what helps, and x̂ is that
of the window attack, provided that the two agree on η. A record that begins in mid-run starts from what three rounds
reveal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpp2.adversary.attacks import three_round, window
from dpp2.adversary.attacks.algebra import Messages, completed, gradient, replay
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_steps, only
from dpp2.adversary.attacks.tracking import Track
from dpp2.adversary.views import View
from dpp2.arrays import Array

_EPS = float(np.finfo(np.float64).eps)
_ROUNDED = 3.0  # noise below so many roundings of y: averaging pays
_AGREED = 1e-12  # largest difference in η between two attacks that found the same


class Smoother(Attack):
    name = "smoother"
    summary = "Fits η to all rounds at once, weighs them by their noise, and removes what noise it can."
    quick = False
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        return lacks_messages(view) or lacks_steps(view) or three_round.lacks_three(Messages.of(view))

    def run(self, view: View) -> Estimate:
        return smoothed(view)


@lru_cache(maxsize=1)
def smoothed(view: View) -> Estimate:
    """The smoother's estimate of a view, computed once: the attack on the data starts from it."""
    messages = Messages.of(view)
    noise = NoiseScales.of(view, messages)
    eta, s, D = _followed(view, messages, noise)
    s, D = completed(messages, eta, s, D)
    e = np.zeros_like(s)
    e[:-1] = noise.gain[:-1, :, None] * np.nan_to_num(s[1:] - s[:-1] - messages.i[:-1])
    x = s.copy()
    predicted = s[:-1] + messages.i[:-1] + noise.alpha * e[:-1]
    x[1:] = np.where(np.isnan(predicted), s[1:], predicted)
    x = _averaged(view, messages, noise, eta, shrunk(x, noise.of_x))
    g = gradient(messages, view.knowledge.rho, s, D)
    return Estimate(
        Smoother.name,
        x=only(view, x),
        grad=None if g is None else only(view, shrunk(g - e, noise.of_gradient)),
        eta=eta,
    )


@dataclass(frozen=True, eq=False)
class NoiseScales:
    """Standard deviations (K, N) of a residual and of what the best x̂ and ĝ are left with; ê = gain · residual."""

    alpha: float
    rounding: Array  # (K,): that of y, in which everything else is lost
    residual: Array
    gain: Array
    of_x: Array
    of_gradient: Array

    @classmethod
    def of(cls, view: View, messages: Messages) -> NoiseScales:
        """An attacker who does not know the scales takes all rounds to be alike, and removes and shrinks nothing."""
        rounds, agents, _ = messages.y.shape
        k = np.arange(rounds + 1.0) + view.observation.first
        w, e = view.knowledge.scale("w", k), view.knowledge.scale("e", k[:-1])
        alpha = view.knowledge.alpha or 0.0
        rounding = _EPS * np.sqrt(np.mean(messages.flat(messages.y) ** 2, axis=1))
        if w is None or e is None:
            nothing = np.zeros((rounds, agents))
            return cls(alpha, rounding, nothing + 1.0, nothing, nothing, nothing)
        variance = (alpha * e) ** 2 + w[1:] ** 2 + rounding[:, None] ** 2
        gain = np.divide(alpha * e**2, variance, out=np.zeros_like(e), where=variance > 0)
        left = e * np.sqrt(np.maximum(1 - alpha * gain, 0.0))
        of_x = np.concatenate([w[:1], alpha * left[:-1]])
        return cls(alpha, rounding, np.sqrt(variance), gain, of_x, left)


def _followed(view: View, messages: Messages, noise: NoiseScales) -> tuple[Array, Array, Array]:
    """η̂ (K,), s and D (K, followed agents, d)."""
    first, known = view.observation.first, view.knowledge.eta
    y, i, t = messages.flat(messages.y), messages.flat(messages.i), messages.t
    D0 = three_round.solve(messages)[2][0].ravel() if first else np.zeros(messages.coordinates)
    D0 = np.nan_to_num(D0)
    if known is not None:
        eta = known[first : first + len(y)]
        s, D = replay(y, eta, t, D0)
    else:
        scale = np.repeat(noise.residual[:, messages.followed], messages.y.shape[2], axis=1)
        b, s, D = Track(y, i, scale, t, D0, exact=first == 0).follow()
        eta = 1 - b
    shape = (len(s), len(messages.followed), -1)
    return eta, s.reshape(shape), D.reshape(shape)


def shrunk(estimate: Array, noise: Array) -> Array:
    """Each round times 1 − ‖noise‖²/‖estimate‖², if positive: better than the estimate, whatever the truth is."""
    known = ~np.isnan(estimate)
    size = np.sum(np.where(known, estimate, 0.0) ** 2, axis=(1, 2))
    expected = np.sum(known * noise[:, :, None] ** 2, axis=(1, 2))
    factor = 1 - np.divide(expected, size, out=np.zeros(len(size)), where=size > 0)
    return np.asarray(estimate * np.maximum(factor, 0.0)[:, None, None])


def _averaged(view: View, messages: Messages, noise: NoiseScales, eta: Array, x: Array) -> Array:
    """x̂ of the window attack where noise is lost in rounding and both attacks found the same η."""
    residual = np.sqrt(np.mean(noise.residual[:, messages.followed] ** 2, axis=1))
    lost = residual < _ROUNDED * noise.rounding
    if not lost.any() or window.Window().needs(view):
        return x
    b, s, _ = window.solved(view)
    agreed = lost & (np.abs(1 - b - eta) < _AGREED)
    averaged = x.copy()
    averaged[np.ix_(agreed, messages.followed)] = s[agreed]
    return averaged
