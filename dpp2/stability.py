"""Is a growing gap divergence, and which kind? The linearised iteration answers both (mode analysis of DPP²).

With Hessians H of the f_i at the current x, G = αI − βL and t = 1 + τ, one noise-free round maps
    x ← x − G(Hx + q + tρLx),    q ← q + ρLx.
On a mode with eigenvalue λ of L and curvature h its determinant is 1 − G_λ(h + τρλ): it grows when h < −τρλ (negative
curvature, whatever the step) or when G_λρλ(1+2τ) + 2G_λh > 4 (step too large). Where the h_i differ the modes couple:
power iteration on the whole map finds the mode that wins, and its Rayleigh quotients stand for (h, λ). Iterating to the
spectral radius itself is hopeless near convergence, where hundreds of eigenvalues crowd just inside the unit circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpp2.arrays import Array

if TYPE_CHECKING:
    from dpp2.weights import Matrix

Gradient = Callable[[Array], Array]

_STEPS = 200  # of power iteration; the first half lets transients die, the second is measured
_WATCH_EVERY = 25  # rounds between looks
_SUSPICIOUS = 10.0  # times the gap at x⁰
_CONSENSUS = 1e-6  # a mode with λ below this is agreement, not disagreement
_HOPELESS = 1e100  # a gap that no noise of a sane experiment reaches


@dataclass(frozen=True)
class Divergence:
    """That a run diverged, in which round this was plain, how fast it grows and why."""

    round: int
    growth: float  # of the amplitude, per round; nan where nothing could be linearised
    cause: str  # "negative curvature", "step too large", "unbounded below" or "unexplained"
    explanation: str


@dataclass(frozen=True)
class Mode:
    """A mode of the linearised iteration, by its Rayleigh quotients."""

    curvature: float  # h = vᵀHv/vᵀv
    eigenvalue: float  # λ = vᵀPv/vᵀv: 0 on consensus, up to λ_max on disagreement

    def growth(self, alpha: float, beta: float, rho: float, damping: float) -> float:
        """Spectral radius of the 2×2 map on (x, q) of this mode; on consensus there is no q."""
        h, lam = self.curvature, self.eigenvalue
        if lam < _CONSENSUS:
            return abs(1 - alpha * h)
        G = alpha - beta * lam
        if not np.isfinite([h, lam]).all():
            return float("nan")
        step = np.array([[1 - G * (h + (1 + damping) * rho * lam), -G], [rho * lam, 1]])
        return float(np.abs(np.linalg.eigvals(step)).max())


class Watch:
    """Tells divergence from the rise that noise alone drives (ten-thousand-fold in the paper's experiment).

    A rising gap only raises the suspicion. What convicts is that the linearised iteration itself grows, and fast
    enough to explain a quarter of the rise (in logarithms).
    """

    def __init__(self, instability: Callable[[Array, int], Divergence | None]) -> None:
        self._instability = instability
        self._start: Array | None = None
        self._cleared = 0.0  # a rise up to here has been looked into and was noise
        self.divergence: Divergence | None = None

    def look(self, gaps: Array, k: int, x: Sequence[Array], at_end: bool = False) -> None:
        """Judge the gap at x^k, given all gaps up to it."""
        if self._start is None:
            self._start = np.concatenate(x)
        gap, before = gaps[k], gaps[max(k - _WATCH_EVERY, 0)]
        broken = not np.isfinite(gap) or gap > _HOPELESS
        rising = gap > max(_SUSPICIOUS * gaps[0], 2 * self._cleared, before) and (at_end or k % _WATCH_EVERY == 0)
        if not broken and not rising:
            return
        found = self._instability(self._sane(np.concatenate(x)), k)
        if found is None:
            found = Divergence(k, float("nan"), "unexplained", "the gap left the range of floating point")
        if broken or _explains(found.growth, gap / before, min(_WATCH_EVERY, k)):
            self.divergence = found
        self._cleared = gap

    def state(self) -> dict[str, Array]:
        """What a checkpoint must keep so that a resumed run is judged like one that never stopped."""
        start = np.empty((0, 0)) if self._start is None else self._start
        return {"watch.start": start, "watch.cleared": np.array(self._cleared)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self._start = state["watch.start"] if len(state["watch.start"]) else None
        self._cleared = float(state["watch.cleared"])

    def _sane(self, x: Array) -> Array:
        """Where to linearise: at x, unless nothing is left of it; then where the run began."""
        assert self._start is not None
        return x if np.isfinite(x).all() and np.abs(x).max() < 1e30 else self._start


def _explains(growth: float, rise: float, rounds: int) -> bool:
    """Whether growth of the amplitude accounts for a quarter of a rise of the (squared) gap, in logarithms."""
    return growth > 1 and 2 * rounds * np.log(growth) > 0.25 * np.log(rise)


def fastest_mode(
    x: Array, gradient: Gradient, P: Matrix, alpha: float, beta: float, rho: float, damping: float
) -> Mode:
    """The mode that wins power iteration on the linearised round at x."""
    rng = np.random.default_rng(0)  # any start will do; a fixed one makes the answer repeatable
    v, q = rng.standard_normal(x.shape), rng.standard_normal(x.shape)
    at_x, reach = gradient(x), float(np.abs(x).max())
    vv, vHv, vPv = 0.0, 0.0, 0.0  # summed over the second half: a complex pair turns, its average does not
    for step in range(_STEPS):
        h = 1e-6 * (1.0 + reach) / float(np.abs(v).max())  # Hv by differences; exact for quadratics up to rounding
        q -= q.mean(axis=0)  # q = ρLd never has a consensus part
        Hv, Pv = (gradient(x + h * v) - at_x) / h, np.asarray(P @ v)
        if step >= _STEPS // 2:
            vv, vHv, vPv = vv + float(np.vdot(v, v)), vHv + float(np.vdot(v, Hv)), vPv + float(np.vdot(v, Pv))
        z = Hv + q + (1 + damping) * rho * Pv
        v, q = v - alpha * z + beta * (P @ z), q + rho * Pv
        size = np.sqrt(np.vdot(v, v) + np.vdot(q, q))
        if not 0 < size < np.inf:
            return Mode(float("nan"), float("nan"))  # parameters so absurd that one round leaves float64
        v, q = v / size, q / size
    return Mode(vHv / vv, vPv / vv)


def explain(mode: Mode, alpha: float, beta: float, rho: float, damping: float, k: int) -> Divergence:
    """Name the cause of a divergence from its fastest mode."""
    h, lam = mode.curvature, mode.eigenvalue
    G = alpha - beta * lam
    growth = mode.growth(alpha, beta, rho, damping)
    if lam < _CONSENSUS and h < 0:
        cause = "unbounded below"
        why = f"the sum of the objectives curves downwards (h = {h:.3g} where all agents agree): it has no minimum near"
    elif h + damping * rho * lam < 0:
        cause = "negative curvature"
        why = (
            f"negative curvature on the disagreement modes: h = {h:.3g} is below −τρλ = {0 - damping * rho * lam:.3g} "
            f"(λ = {lam:.3g}), where no step size is stable; "
            f"algorithm.damping above about {-h / (rho * lam):.2g} repairs it"
        )
    elif growth > 1:
        load = G * rho * lam * (1 + 2 * damping) + 2 * G * h
        cause = "step too large"
        why = (
            f"step too large: G_λρλ(1+2τ) + 2G_λh = {load:.3g} on the fastest mode (λ = {lam:.3g}, h = {h:.3g}), "
            "where stability needs less than 4; a smaller algorithm.alpha or rho repairs it"
        )
    else:
        return Divergence(k, growth, "unexplained", "the gap left the range of floating point")
    return Divergence(k, growth, cause, f"{why}; this mode grows by {growth:.4f} a round")
