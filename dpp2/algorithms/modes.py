"""Which mode of DPP² grows, how fast and why: the iteration linearised at a point.

With Hessians H of the f_i at the current x, G = αI − βL and t = 1 + τ, one noise-free round maps
    x ← x − G(Hx + q + tρLx),    q ← q + ρLx.
On a mode with eigenvalue λ of L and curvature h its determinant is 1 − G_λ(h + τρλ): it grows when h < −τρλ (negative
curvature, whatever the step) or when G_λρλ(1+2τ) + 2G_λh > 4 (step too large). Where the h_i differ the modes couple:
power iteration, on disagreement and on agreement separately, finds what wins, and its Rayleigh quotients stand for
(h, λ). The spectral radius itself is only to be had from all eigenvalues, which a small network can afford: near
convergence hundreds of them crowd just inside the unit circle, and no iteration tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dpp2.arrays import Array
from dpp2.stability import Divergence, Gradient

if TYPE_CHECKING:
    from dpp2.weights import Matrix

Advance = Callable[[Array, Array, Array], tuple[Array, Array]]  # (v, q, Hv) → the next (v, q)

_STEPS = 200  # of power iteration; the first half lets transients die, the second is measured
_MORE_STEPS = 2000  # where these explain nothing: a mode that grows slowly takes long to win
_FEW_NUMBERS = 10**5  # agents × dimension up to which so many steps are affordable
_REPAIRABLE = ("negative curvature", "step too large")
_MARGIN = 2.0  # on the damping that a mode needs: curvature is known where the run has been, not where it will go
_HALVINGS = 20
_OUTWEIGHS = 4.0  # ρλ over |h|; `auto_steps` has 2.8 at most
_STABLE = 1 + 1e-6
_ALL_EIGENVALUES = 64  # agents × dimension up to which all eigenvalues take milliseconds


@dataclass(frozen=True)
class StepParameters:
    """α, β, ρ and the damping τ."""

    alpha: float
    beta: float
    rho: float
    damping: float = 0.0

    def G(self, eigenvalue: float) -> float:
        """G_λ = α − βλ."""
        return self.alpha - self.beta * eigenvalue

    def changes(self, other: StepParameters) -> str:
        """What must be set to get from these steps to others, as a command line has it."""
        names = [one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)]
        return " ".join(f"--set algorithm.{name}={getattr(other, name)!r}" for name in names)


@dataclass(frozen=True)
class Mode:
    """A mode of the linearised iteration, by its Rayleigh quotients."""

    curvature: float  # h = vᵀHv/vᵀv
    eigenvalue: float  # λ = vᵀPv/vᵀv: 0 on consensus, up to λ_max on disagreement
    consensus: bool = False  # whether most of it is agreement

    def growth(self, step: StepParameters) -> float:
        """Spectral radius of the 2×2 map on (x, q) of this mode; on consensus there is no q."""
        h, lam, G, rho = self.curvature, self.eigenvalue, step.G(self.eigenvalue), step.rho
        if self.consensus:
            return abs(1 - step.alpha * h)
        if not np.isfinite([h, lam]).all():
            return float("nan")
        once = np.array([[1 - G * (h + (1 + step.damping) * rho * lam), -G], [rho * lam, 1]])
        return float(np.abs(np.linalg.eigvals(once)).max())


def spectral_radius(x: Array, gradient: Gradient, P: Matrix, step: StepParameters) -> float:
    """Of the iteration linearised at x, from all its eigenvalues; nan where there are too many of them."""
    agents, dimension = x.shape
    if x.size > _ALL_EIGENVALUES or not np.isfinite(x).all():
        return float("nan")
    curve = _curvature(x, gradient)
    columns = [curve(np.tile(unit, (agents, 1))) for unit in np.eye(dimension)]  # H is block-diagonal: d products do
    H = np.zeros((agents, dimension, agents, dimension))
    H[np.arange(agents), :, np.arange(agents), :] = np.stack(columns, axis=2)
    L, identity = np.kron(P.toarray(), np.eye(dimension)), np.eye(x.size)
    G = step.alpha * identity - step.beta * L
    apart = np.kron(_disagreements(agents), np.eye(dimension))  # q = ρLd has nothing in common to all agents
    once = np.block([
        [identity - G @ (H.reshape(x.size, x.size) + (1 + step.damping) * step.rho * L), -G @ apart],
        [step.rho * apart.T @ L, np.eye(apart.shape[1])],
    ])  # fmt: skip
    return float(np.abs(np.linalg.eigvals(once)).max()) if np.isfinite(once).all() else float("nan")


def _disagreements(agents: int) -> Array:
    """An orthonormal basis of what sums to 0 over agents, in columns."""
    return np.asarray(np.linalg.qr(np.eye(agents) - 1 / agents)[0][:, :-1])


def instability(x: Array, gradient: Gradient, P: Matrix, step: StepParameters, k: int) -> Divergence:
    """Why a run that diverges at x in round k does so, and steps with which it would not."""
    mode = fastest_mode(x, gradient, P, step)
    found = explain(mode, step, k)
    if found.cause == "unexplained" and x.size <= _FEW_NUMBERS:
        mode = fastest_mode(x, gradient, P, step, steps=_MORE_STEPS)
        found = explain(mode, step, k)
    if found.cause in _REPAIRABLE and x.size <= _FEW_NUMBERS:
        works = working_steps(x, gradient, P, step, mode)
        said = f"; try {step.changes(works)}" if works else ""
        found = replace(found, explanation=found.explanation + said)
    return found


def working_steps(x: Array, gradient: Gradient, P: Matrix, step: StepParameters, mode: Mode) -> StepParameters | None:
    """Steps under which no mode grows, neither at x nor at 0: enough damping for this one, then what is too large is
    halved until it is so. A run that diverged is far away, where a loss may be flat; it begins again near 0.

    That is ρ where it outweighs the curvature, since a small α would make the whole run slow; otherwise α and β.
    """
    lacking = -mode.curvature - step.damping * step.rho * mode.eigenvalue
    if not mode.consensus and lacking > 0:
        step = replace(step, damping=_rounded_up(_MARGIN * -mode.curvature / (step.rho * mode.eigenvalue)))
    for _ in range(_HALVINGS):
        found = [fastest_mode(at, gradient, P, step) for at in (x, np.zeros_like(x))]
        mode = max(found, key=lambda one: one.growth(step))
        if mode.growth(step) <= _STABLE:
            return step
        if lacking <= 0 and step.rho * mode.eigenvalue > _OUTWEIGHS * abs(mode.curvature):
            step = replace(step, rho=step.rho / 2)
        else:
            step = replace(step, alpha=step.alpha / 2, beta=step.beta / 2)
    return None


def _rounded_up(value: float) -> float:
    """To one digit: nobody wants to type more."""
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit) * unit:.1g}")


def fastest_mode(x: Array, gradient: Gradient, P: Matrix, step: StepParameters, *, steps: int = _STEPS) -> Mode:
    """Whichever grows faster at x: the leading mode among disagreements, or that of the agreed point itself."""
    curve = _curvature(x, gradient)

    def disagree(v: Array, q: Array, Hv: Array) -> tuple[Array, Array]:
        Pv = np.asarray(P @ v)
        z = Hv + q + (1 + step.damping) * step.rho * Pv
        return _disagreement(v - step.alpha * z + step.beta * (P @ z)), _disagreement(q + step.rho * Pv)

    def agree(v: Array, q: Array, Hv: Array) -> tuple[Array, Array]:
        return v - step.alpha * np.broadcast_to(Hv.mean(axis=0), v.shape), q

    rng = np.random.default_rng(0)  # any start will do; a fixed one makes the answer repeatable
    v, q = (_disagreement(rng.standard_normal(x.shape)) for _ in range(2))
    together = np.broadcast_to(rng.standard_normal(x.shape[1]), x.shape)
    apart = Mode(*_leading(disagree, (v, q), curve, P, steps))
    agreed = Mode(*_leading(agree, (together, np.zeros_like(x)), curve, P, steps), consensus=True)
    return max((apart, agreed), key=lambda mode: np.nan_to_num(mode.growth(step), nan=-1.0))


def _curvature(x: Array, gradient: Gradient) -> Gradient:
    """v ↦ Hv at x, by differences; exact for quadratics up to rounding."""
    at_x, reach = gradient(x), float(np.abs(x).max())

    def curve(v: Array) -> Array:
        h = 1e-6 * (1.0 + reach) / float(np.abs(v).max())
        return (gradient(x + h * v) - at_x) / h

    return curve


def _leading(
    advance: Advance, start: tuple[Array, Array], curve: Gradient, P: Matrix, steps: int
) -> tuple[float, float]:
    """(h, λ): Rayleigh quotients of what wins power iteration with `advance`.

    They are summed over the second half: a complex pair turns, its average does not.
    """
    v, q = start
    vv, vHv, vPv = 0.0, 0.0, 0.0
    for count in range(steps):
        Hv = curve(v)
        if count >= steps // 2:
            vv, vHv, vPv = vv + float(np.vdot(v, v)), vHv + float(np.vdot(v, Hv)), vPv + float(np.vdot(v, P @ v))
        v, q = advance(v, q, Hv)
        size = np.sqrt(np.vdot(v, v) + np.vdot(q, q))
        if not 0 < size < np.inf:
            return float("nan"), float("nan")  # parameters so absurd that one round leaves float64
        v, q = v / size, q / size
    return vHv / vv, vPv / vv


def _disagreement(v: Array) -> Array:
    """The part that differs between agents; q = ρLd has no other."""
    return np.asarray(v - v.mean(axis=0))


def explain(mode: Mode, step: StepParameters, k: int) -> Divergence:
    """Name the cause of a divergence from its fastest mode."""
    h, lam, growth = mode.curvature, mode.eigenvalue, mode.growth(step)
    repair = 0 - step.damping * step.rho * lam
    if mode.consensus and h < 0:
        cause = "unbounded below"
        why = f"the sum of the objectives curves downwards (h = {h:.3g} where all agents agree): it has no minimum near"
    elif h < repair:
        cause = "negative curvature"
        why = (
            f"negative curvature on the disagreement modes: h = {h:.3g} is below −τρλ = {repair:.3g} "
            f"(λ = {lam:.3g}), where no step size is stable; "
            f"algorithm.damping above about {-h / (step.rho * lam):.2g} repairs it"
        )
    elif growth > 1:
        load = step.G(lam) * (step.rho * lam * (1 + 2 * step.damping) + 2 * h)
        cause = "step too large"
        why = (
            f"step too large: G_λρλ(1+2τ) + 2G_λh = {load:.3g} on the fastest mode (λ = {lam:.3g}, h = {h:.3g}), "
            "where stability needs less than 4; a smaller algorithm.alpha or rho repairs it"
        )
    else:
        return Divergence(
            k, growth, "unexplained", "the gap grows without bound, and no mode of the iteration says why"
        )
    factor = f"{growth:.4f}" if growth < 1e6 else f"{growth:.2g}"
    return Divergence(k, growth, cause, f"{why}; this mode grows by {factor} a round")
