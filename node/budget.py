"""How far a node lets its agents go: their ledger and the budget in its own file decide, whatever anybody asks for."""

from __future__ import annotations

from dpp2.budget import RunBudget
from node.hosting import Hosting


class Budget(RunBudget):
    """What the hosted agents may spend in one run. The agents of other nodes answer for themselves."""

    def __init__(self, hosting: Hosting, run_id: str, k: int) -> None:
        super().__init__([hosting.agents], run_id, k)
