"""Is a growing gap divergence, and which kind? The linearised iteration answers both (mode analysis of DPP²).

With Hessians H of the f_i at the current x, G = αI − βL and t = 1 + τ, one noise-free round maps
    x ← x − G(Hx + q + tρLx),    q ← q + ρLx.
On a mode with eigenvalue λ of L and curvature h its determinant is 1 − G_λ(h + τρλ): it grows when h < −τρλ (negative
curvature, whatever the step) or when G_λρλ(1+2τ) + 2G_λh > 4 (step too large). Where the h_i differ the modes couple:
power iteration, on disagreement and on agreement separately, finds what wins, and its Rayleigh quotients stand for
(h, λ). Iterating to the spectral radius itself is hopeless near convergence, where hundreds of eigenvalues crowd just
inside the unit circle.
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
Step = Callable[[Array, Array, Array], tuple[Array, Array]]  # (v, q, Hv) → the next (v, q)

_STEPS = 200  # of power iteration; the first half lets transients die, the second is measured
WATCH_EVERY = 25  # rounds between looks
_TRIAL = 200  # rounds without noise that settle a suspicion
_SUSPICIOUS = 10.0  # times the gap at x⁰
HOPELESS = 1e100  # a gap that no noise of a sane experiment reaches


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
    consensus: bool = False  # whether most of it is agreement

    def growth(self, alpha: float, beta: float, rho: float, damping: float) -> float:
        """Spectral radius of the 2×2 map on (x, q) of this mode; on consensus there is no q."""
        h, lam = self.curvature, self.eigenvalue
        if self.consensus:
            return abs(1 - alpha * h)
        G = alpha - beta * lam
        if not np.isfinite([h, lam]).all():
            return float("nan")
        step = np.array([[1 - G * (h + (1 + damping) * rho * lam), -G], [rho * lam, 1]])
        return float(np.abs(np.linalg.eigvals(step)).max())


class DivergenceDetector:
    """Tells divergence from the rise that noise alone drives (by orders of magnitude, where it starts large).

    A rising gap only raises the suspicion. What convicts is that the run, continued on trial without any noise, goes on
    growing; curvature at one point would not do, since a nonconvex run passes through negative curvature and recovers.
    """

    def __init__(
        self, instability: Callable[[Array, int], Divergence | None], continued: Callable[[int, int], Array]
    ) -> None:
        self._instability = instability
        self._continued = continued
        self._start: Array | None = None
        self._cleared = 0.0  # a rise up to here has been looked into and was noise
        self.divergence: Divergence | None = None

    def check(self, gaps: Array, k: int, x: Sequence[Array]) -> None:
        """Judge the gap at x^k, given all gaps up to it; every `WATCH_EVERY` rounds is often enough."""
        if self._start is None:
            self._start = np.concatenate(x)
        gap, before = gaps[k], gaps[max(k - WATCH_EVERY, 0)]
        broken = not gap < HOPELESS  # nan is broken, too
        rising = gap > max(_SUSPICIOUS * gaps[0], 2 * self._cleared, before)
        if broken or (rising and _grows(self._continued(k + 1, _TRIAL))):
            unknown = Divergence(k, float("nan"), "unexplained", "the gap grows without bound")
            self.divergence = self._instability(self._sane(np.concatenate(x)), k) or unknown
        elif rising:
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


def _grows(gaps: Array) -> bool:
    """Whether the gap at the end of a trial is twice that at its beginning, averaged because it oscillates."""
    first, last = gaps[:WATCH_EVERY].mean(), gaps[-WATCH_EVERY:].mean()
    return not last <= 2 * first  # nan grows, too


def fastest_mode(
    x: Array, gradient: Gradient, P: Matrix, alpha: float, beta: float, rho: float, damping: float
) -> Mode:
    """Whichever grows faster at x: the leading mode among disagreements, or that of the agreed point itself."""
    at_x, reach = gradient(x), float(np.abs(x).max())

    def curve(v: Array) -> Array:
        h = 1e-6 * (1.0 + reach) / float(np.abs(v).max())  # Hv by differences; exact for quadratics up to rounding
        return (gradient(x + h * v) - at_x) / h

    def disagree(v: Array, q: Array, Hv: Array) -> tuple[Array, Array]:
        Pv = np.asarray(P @ v)
        z = Hv + q + (1 + damping) * rho * Pv
        return _disagreement(v - alpha * z + beta * (P @ z)), _disagreement(q + rho * Pv)

    def agree(v: Array, q: Array, Hv: Array) -> tuple[Array, Array]:
        return v - alpha * np.broadcast_to(Hv.mean(axis=0), v.shape), q

    rng = np.random.default_rng(0)  # any start will do; a fixed one makes the answer repeatable
    v, q = (_disagreement(rng.standard_normal(x.shape)) for _ in range(2))
    together = np.broadcast_to(rng.standard_normal(x.shape[1]), x.shape)
    modes = (
        _leading(disagree, v, q, curve, P, consensus=False),
        _leading(agree, together, np.zeros_like(x), curve, P, consensus=True),
    )
    return max(modes, key=lambda mode: np.nan_to_num(mode.growth(alpha, beta, rho, damping), nan=-1.0))


def _leading(step: Step, v: Array, q: Array, curve: Gradient, P: Matrix, *, consensus: bool) -> Mode:
    """Rayleigh quotients of what wins power iteration with `step`.

    They are summed over the second half: a complex pair turns, its average does not.
    """
    vv, vHv, vPv = 0.0, 0.0, 0.0
    for count in range(_STEPS):
        Hv = curve(v)
        if count >= _STEPS // 2:
            vv, vHv, vPv = vv + float(np.vdot(v, v)), vHv + float(np.vdot(v, Hv)), vPv + float(np.vdot(v, P @ v))
        v, q = step(v, q, Hv)
        size = np.sqrt(np.vdot(v, v) + np.vdot(q, q))
        if not 0 < size < np.inf:
            return Mode(float("nan"), float("nan"), consensus)  # parameters so absurd that one round leaves float64
        v, q = v / size, q / size
    return Mode(vHv / vv, vPv / vv, consensus)


def _disagreement(v: Array) -> Array:
    """The part that differs between agents; q = ρLd has no other."""
    return np.asarray(v - v.mean(axis=0))


def explain(mode: Mode, alpha: float, beta: float, rho: float, damping: float, k: int) -> Divergence:
    """Name the cause of a divergence from its fastest mode."""
    h, lam = mode.curvature, mode.eigenvalue
    G = alpha - beta * lam
    growth = mode.growth(alpha, beta, rho, damping)
    if mode.consensus and h < 0:
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
