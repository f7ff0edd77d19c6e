"""Increments: of methods that send one message a round, the gradient is what their update leaves unexplained.

Whoever hears m^k = x^k + noise and m^{k+1} subtracts everything else from the update; for DGD, with W = I − P,
g = (Wm − m⁺)/α_k. Exact without noise, except where the algorithm says otherwise. With noise the error is that of the
messages over the step, so it dies with the noise; PPDC's noise on v adds up and stays.
"""

from __future__ import annotations

from dpp2.adversary.attacks.solved import Solved


class Increments(Solved):
    name = "increments"
    summary = "Subtracts from each update what the messages explain; what is left is the gradient."
    algebra = "one message"
    rests_on = "an update with one message a round"
