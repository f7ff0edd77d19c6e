"""`Result.audit`: the audit of a run that is still in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dpp2 import BadInput, Result
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.audit import AuditReport
from dpp2.adversary.audit import audit as examine
from dpp2.errors import UnknownName
from dpp2.store.files import write_text
from dpp2.store.results import save


def audit(
    result: Result,
    attacks: Sequence[str] | None,
    *,
    attacker: str,
    agent: int,
    game: bool,
    page: str | Path | None,
) -> AuditReport:
    """As `dpp2 audit` of the same run on disk."""
    if not result.observation:
        raise BadInput("record", False, "a run with record=True: nothing was kept of what an eavesdropper hears")
    chosen, who = _chosen(attacks), Attacker(attacker, agent)
    with TemporaryDirectory(prefix="dpp2-audit-") as folder:
        report = examine(save(result, Path(folder) / "run"), chosen, who, game=game)
    report = replace(report, run=f"run {result.run_id[:12]}")
    if page is not None:
        from dpp2.adversary.report import render  # which draws

        write_text(Path(page), render(report, agent))
    return report


def _chosen(names: Sequence[str] | None) -> tuple[Attack, ...]:
    known = {one.name: one for one in ATTACKS}
    for name in names or ():
        if name not in known:
            raise UnknownName("attacks", name, name, list(known))
    return tuple(one for one in ATTACKS if names is None or one.name in names)
