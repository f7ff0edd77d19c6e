"""Server: DIFF2's clients send gradients and differences of gradients to a server that tells everybody x.

x is public from the first round on. ĝ is the sum of what a client has sent since the last full gradient, and is off by
the noise of those messages alone: N(0, σ²) and ‖x − x⁻‖ N(0, σ_d²). The server's own gradient is never sent.
"""

from __future__ import annotations

import numpy as np

from adversary.attacks.base import Attack, Estimate, lacks_parameters, lacks_start, only
from adversary.views import View

_SERVER = 0  # the middle of the star


class Server(Attack):
    name = "server"
    summary = "Reads x from the server's broadcast and adds up each client's gradient differences."

    def needs(self, view: View) -> str | None:
        if view.knowledge.algorithm != "diff2":
            return f"rests on a server and its clients, but {view.knowledge.algorithm} was run"
        if not view.agents:
            return "no agent was overheard"
        return lacks_start(view) or lacks_parameters(view)

    def run(self, view: View) -> Estimate:
        d, x_new = view.observation.phases["d"], view.observation.phases["x_new"]
        x, grad = np.full_like(d, np.nan), np.full_like(d, np.nan)
        x[1:] = x_new[:-1, [_SERVER]]
        for k in range(1, len(d)):
            restarted = (k - 1) % view.knowledge.parameters["restart"] == 0
            grad[k] = d[k] if restarted else grad[k - 1] + d[k]
        grad[:, _SERVER] = np.nan
        return Estimate(self.name, x=only(view, x), grad=only(view, grad))
