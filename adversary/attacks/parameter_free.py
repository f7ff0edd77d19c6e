"""Parameter-free: the same three rounds also give α and β, or with damping (1+τ)α and (1+τ)β.

In the dependence that `three_round` rests on, i_k = −αz^k + βPz^k is written out. The seven vectors
    y^k, y^{k+1}, y^{k+2}, z^k, Pz^k, z^{k+1}, Pz^{k+1}
are then dependent up to noise, and z^{k+1} enters with the coefficient c_2·tα, Pz^{k+1} with −c_2·tβ:
    tα = c_{z'}/c_2          tβ = −c_{Pz'}/c_2
t = 1 + τ itself cannot be told: a damped run is equivalent to an undamped one with tα and tβ, and these are what the
attack claims. Whoever does not know τ gets t·x instead of x. Where a run stands still z and Pz have vanished into
rounding, and the numbers that come out are none.
"""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks import three_round
from dpp2.adversary.attacks.algebra import Messages, completed, gradient, mix
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_steps, only
from dpp2.adversary.views import View
from dpp2.arrays import Array

_VECTORS = 7
_CONFIDENT = 10  # α and β are taken from one round in so many: those whose dependence stands out most


class ParameterFree(Attack):
    name = "parameter-free"
    summary = "Finds the steps (1+τ)α and (1+τ)β first, and then what three rounds reveal."
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        if missing := lacks_messages(view):
            return missing
        messages = Messages.of(view, alpha=0.0, beta=1.0)
        if messages.coordinates <= _VECTORS:
            return (
                f"needs more than {_VECTORS} coordinates of agents whose own and whose neighbours' messages were all "
                f"overheard, not {messages.coordinates}"
            )
        return three_round.lacks_three(messages)

    def made_for(self, view: View) -> bool:
        """Whoever knows the steps finds nothing here that the three rounds alone would not give."""
        return super().made_for(view) and lacks_steps(view) is not None

    def run(self, view: View) -> Estimate:
        t = view.knowledge.t
        scaled, gap = steps(Messages.of(view, alpha=0.0, beta=1.0))
        confident = np.argsort(gap)[-max(len(gap) // _CONFIDENT, 1) :]
        alpha, beta = np.median(scaled[confident], axis=0)
        messages = Messages.of(view, alpha=float(alpha / t), beta=float(beta / t))
        b, s, D = three_round.solve(messages)
        s, D = completed(messages, 1 - b, s, D)
        curves = np.full((2, len(messages.y)), np.nan)
        curves[:, : len(gap)] = scaled.T
        return Estimate(
            self.name,
            x=only(view, s),
            grad=only(view, gradient(messages, view.knowledge.rho, s, D)),
            eta=1 - b,
            parameters={"alpha": float(alpha), "beta": float(beta)},
            curves={"alpha": curves[0], "beta": curves[1]},
        )


def steps(messages: Messages) -> tuple[Array, Array]:
    """(tα, tβ) found in each window of three rounds (W, 2), and by how much the dependence stands out there (W,)."""
    y, z = messages.flat(messages.y), messages.flat(messages.z)
    Pz = messages.flat(mix(messages.P, messages.z))
    windows = np.stack([y[:-2], y[1:-1], y[2:], z[:-2], Pz[:-2], z[1:-1], Pz[1:-1]], axis=1)
    c, gap = three_round.null_vector(windows)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([c[:, 5] / c[:, 2], -c[:, 6] / c[:, 2]], axis=1), np.nan_to_num(gap, nan=0.0)
