"""Increments: of methods that send one message a round, the gradient is what their update leaves unexplained.

Everything in such an update but the gradient is made of messages m = x + noise, of P and of public parameters; whoever
hears m^k and m^{k+1} subtracts it. With W = I − P and Σ over the rounds since 0:
    dgd                  g = (Wm − m⁺)/α_k
    extra                αg = Σ_{j≤k} (2h^j − m^{j+1}) − Σ_{j<k} h^j − m⁰,    h = m − ½Pm
    prox-gpda            g = (m − m⁺)/α − βPm − β Σ_{1≤j≤k} Pm^j
    yi, ppdc             g = (m − m⁺)/η − γPm − ηω² Σ_{j<k} Pm^j
    dmsp                 g = (Wm − m⁺)/γ_k, at the point Wm, which near consensus is x
    wang-nedic, -basar   g = (m − m⁺ − χ_k Pm)/λ_k
    privsgp-vr           x⁺ = Wm outright, and g = (x − m)/γ, up to the noise and the sample that was drawn
Exact without noise, except where said. With noise the error is that of the messages over the step, so it dies with the
noise; PPDC's noise on v adds up and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adversary.attacks.algebra import mix
from adversary.attacks.base import Attack, Estimate, lacks_parameters, lacks_start, only
from adversary.views import View
from dpp2.arrays import Array


@dataclass(frozen=True, eq=False)
class _Heard:
    """Messages m (K, N, d), what neighbours make of them, those of the next round, and the parameters."""

    m: Array
    Pm: Array
    after: Array  # NaN in the last round
    k: Array  # (K, 1, 1)
    p: Mapping[str, Any]


class Increments(Attack):
    name = "increments"
    summary = "Subtracts from each update what the messages explain; what is left is the gradient."

    def needs(self, view: View) -> str | None:
        if view.knowledge.algorithm not in _GRADIENTS or len(view.observation.phases) != 1:
            return f"rests on an update that sends one message a round, but {view.knowledge.algorithm} was run"
        if not view.agents:
            return "no agent was overheard"
        return lacks_start(view) or lacks_parameters(view)

    def run(self, view: View) -> Estimate:
        (m,) = view.observation.phases.values()
        after = np.concatenate([m[1:], np.full_like(m[:1], np.nan)])
        rounds = np.arange(len(m), dtype=np.float64)[:, None, None]
        heard = _Heard(m, mix(view.observation.P, m), after, rounds, view.knowledge.parameters)
        x, grad = _GRADIENTS[view.knowledge.algorithm](heard)
        return Estimate(self.name, x=only(view, x), grad=only(view, grad))


def _dgd(h: _Heard) -> tuple[Array, Array]:
    return h.m, (h.m - h.Pm - h.after) * (1 + h.k) ** h.p["power"] / h.p["alpha"]


def _extra(h: _Heard) -> tuple[Array, Array]:
    half = h.m - h.Pm / 2
    left = 2 * half - h.after
    left[1:] -= half[:-1]
    left[0] -= h.m[0]
    return h.m, np.cumsum(left, axis=0) / h.p["alpha"]


def _prox_gpda(h: _Heard) -> tuple[Array, Array]:
    lam = h.p["beta"] * (np.cumsum(h.Pm, axis=0) - h.Pm[0])
    return h.m, (h.m - h.after) / h.p["alpha"] - h.p["beta"] * h.Pm - lam


def _primal_dual(h: _Heard) -> tuple[Array, Array]:
    eta, omega = h.p["eta"], h.p["omega"]
    v = eta * omega * (np.cumsum(h.Pm, axis=0) - h.Pm)
    return h.m, (h.m - h.after) / eta - h.p["gamma"] * h.Pm - omega * v


def _dmsp(h: _Heard) -> tuple[Array, Array]:
    return h.m, (h.m - h.Pm - h.after) / (h.p["c"] * h.p["q"] ** h.k)


def _weakened(h: _Heard) -> tuple[Array, Array]:
    slower = 1 + h.p["slowdown"] * h.k
    chi, step = h.p["chi"] / slower ** h.p["chi_power"], h.p["alpha"] / slower ** h.p["alpha_power"]
    return h.m, (h.m - h.after - chi * h.Pm) / step


def _push(h: _Heard) -> tuple[Array, Array]:
    x = np.concatenate([np.full_like(h.m[:1], np.nan), (h.m - h.Pm)[:-1]])
    return x, (x - h.m) / h.p["gamma"]


_GRADIENTS: dict[str, Callable[[_Heard], tuple[Array, Array]]] = {
    "dgd": _dgd,
    "extra": _extra,
    "prox-gpda": _prox_gpda,
    "yi": _primal_dual,
    "ppdc": _primal_dual,
    "dmsp": _dmsp,
    "wang-nedic": _weakened,
    "wang-basar": _weakened,
    "privsgp-vr": _push,
}
