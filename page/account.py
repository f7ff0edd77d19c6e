"""ε per agent against the budget, round by round, as the exact account has it; the paper's claim beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpp2 import BadInput
from dpp2.page.documents import AccountDocument
from dpp2.prepared import PreparedRun
from dpp2.privacy import PaperEpsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.accountant import cumulative
from dpp2.privacy.releases import Releases

_POINTS = 60
_MOST_AGENTS = 200


def account_document(prepared: PreparedRun, rounds: int, uncovered: int | None = None) -> AccountDocument:
    """Of this run alone. What earlier runs spent on the same data is in the ledger."""
    try:
        account = prepared.account()
    except BadInput as refused:  # data that are not here
        why = f"the objectives are not here ({refused})"
        return AccountDocument(prepared.experiment.privacy.budget, (), (), (), None, why, ())
    return spent(account, rounds, uncovered)


def spent(account: Account, rounds: int, uncovered: int | None = None) -> AccountDocument:
    """`uncovered`: the first round whose noise float64 does not carry, if the run has met one."""
    outside = account.notes
    if account.unsupported_reason:
        return AccountDocument(account.budget, (), (), (), None, account.unsupported_reason.reason, outside)
    counts = np.unique(np.geomspace(1, max(rounds, 1), _POINTS).astype(int))
    rows = _rows(account.mechanisms, counts.tolist())
    claims = [account.paper_epsilon(int(count)) for count in counts]
    paper = [claim.log10 if isinstance(claim, PaperEpsilon) else None for claim in claims]
    return AccountDocument(account.budget, counts.tolist(), rows, paper, uncovered, None, outside)


def _rows(mechanisms: Sequence[Releases], counts: Sequence[int]) -> list[list[float | None]]:
    """log10 ε of each agent; agents with the same mechanism are computed once."""
    known: dict[Releases, list[float | None]] = {}
    for mechanism in mechanisms[:_MOST_AGENTS]:
        if mechanism not in known:
            curve = cumulative(mechanism, counts[-1])
            none: list[float | None] = [None] * len(counts)
            known[mechanism] = none if isinstance(curve, Unsupported) else [float(curve.log10[k - 1]) for k in counts]
    rows = [known[mechanism] for mechanism in mechanisms[:_MOST_AGENTS]]
    return rows if len(known) > 1 else rows[:1]
