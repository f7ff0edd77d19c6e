"""ε per agent against the budget, round by round, as the exact account has it; the paper's claim beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpp2 import BadInput
from dpp2.arrays import Array
from dpp2.page.documents import AccountDocument
from dpp2.prepared import PreparedRun
from dpp2.privacy import PaperEpsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.accountant import cumulative
from dpp2.privacy.releases import Releases

_POINTS = 60
_MOST_NUMBERS = 20_000  # in one document
_MOST_AGENTS = 200


def account_document(prepared: PreparedRun, rounds: int, uncovered: int | None = None, now: int = 0) -> AccountDocument:
    """Of this run alone, after up to `rounds` rounds, `now` among them. What earlier runs spent is in the ledger."""
    try:
        account = prepared.account()
    except BadInput as refused:  # data that are not here
        why = f"the objectives are not here ({refused})"
        return AccountDocument(prepared.experiment.privacy.budget, (), (), (), None, why, ())
    return spent(account, rounds, uncovered, now)


def spent(account: Account, rounds: int, uncovered: int | None = None, now: int = 0) -> AccountDocument:
    """`uncovered`: the first round whose noise float64 does not carry, if the run has met one."""
    outside = account.notes
    if account.unsupported_reason:
        return AccountDocument(account.budget, (), (), (), None, account.unsupported_reason.reason, outside)
    most = max(rounds, 1)
    curves = _curves(account.mechanisms, most)
    counts = np.union1d(_counts(list(curves.values()), most), min(max(now, 1), most))
    rows = _rows(account.mechanisms, curves, counts)
    claims = [account.paper_epsilon(int(count)) for count in counts]
    paper = [claim.log10 if isinstance(claim, PaperEpsilon) else None for claim in claims]
    return AccountDocument(account.budget, counts.tolist(), rows, paper, uncovered, None, outside)


def _curves(mechanisms: Sequence[Releases], rounds: int) -> dict[Releases, Array | None]:
    """log10 ε(1), …, ε(K) of each mechanism: agents with the same one are computed once."""
    found = {one: cumulative(one, rounds) for one in dict.fromkeys(mechanisms[:_MOST_AGENTS])}
    return {one: None if isinstance(curve, Unsupported) else curve.log10 for one, curve in found.items()}


def _counts(curves: Sequence[Array | None], rounds: int) -> NDArray[np.intp]:
    """Numbers of rounds after which ε is shown: all steps where it goes up in a few steps, or else some of them."""
    spread = np.unique(np.concatenate([f(1, rounds, _POINTS).astype(int) for f in (np.geomspace, np.linspace)]))
    steps = {int(k) for curve in curves if curve is not None for k in _steps(curve)}
    if not steps or 2 * len(steps) > max(_MOST_NUMBERS // len(curves), _POINTS):
        return spread
    return np.union1d(spread, [*steps, *(k + 1 for k in steps)])


def _steps(curve: Array) -> NDArray[np.intp]:
    """Counts after which ε goes up with the next round, after having stood still; none where it always goes up."""
    rises = np.flatnonzero(curve[1:] > curve[:-1]) + 1
    return rises if len(rises) < len(curve) / 2 else rises[:0]


def _rows(
    mechanisms: Sequence[Releases], curves: Mapping[Releases, Array | None], counts: NDArray[np.intp]
) -> list[list[float | None]]:
    """log10 ε of each agent; one row where all are the same."""
    none: list[float | None] = [None] * len(counts)
    known = {one: none if curve is None else curve[counts - 1].tolist() for one, curve in curves.items()}
    rows = [known[mechanism] for mechanism in mechanisms[:_MOST_AGENTS]]
    return rows if len(known) > 1 else rows[:1]
