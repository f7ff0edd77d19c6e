"""Server: DIFF2's clients send gradients and differences of gradients to a server that tells everybody x.

x is public from the first round on. ĝ is the sum of what a client has sent since the last full gradient, and is off by
the noise of those messages alone: N(0, σ²) and ‖x − x⁻‖ N(0, σ_d²). The server's own gradient is never sent.
"""

from __future__ import annotations

from dpp2.adversary.attacks.solved import Solved


class Server(Solved):
    name = "server"
    summary = "Reads x from the server's broadcast and adds up each client's gradient differences."
    algebra = "server"
    rests_on = "a server and its clients"
