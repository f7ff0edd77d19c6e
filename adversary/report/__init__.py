"""report.html: plain words first, then verdicts, figures and all numbers, in one file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from dpp2.adversary.attacker import WHOLE
from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import QUANTITIES, Finding
from dpp2.adversary.report import sentences
from dpp2.adversary.report.document import document, notes
from dpp2.adversary.report.figures import figures
from dpp2.adversary.report.further import also_found, is_damped
from dpp2.adversary.report.page import Markup, badge, listed, number, page, section, summary, table
from dpp2.adversary.report.what_was_run import what_was_run

__all__ = ["document", "render"]


def render(report: AuditReport, agent: int = 0) -> str:
    """The whole page; `agent` is the one whose trajectory is shown."""
    verdict = sentences.verdict(report)
    unsaid = [one for one in sentences.summary(report) if one not in verdict]
    verdicts = [[one.claim, badge(one.outcome), one.evidence] for one in report.verdicts]
    return page(
        _title(report),
        sentences.headline(report),
        [
            summary(unsaid),
            what_was_run(report.experiment, report.made),
            section("The paper's claims, judged by this run", table(["claim", "verdict", "evidence"], verdicts)),
            *(figure.html() for figure in figures(report, agent)),
            section("All attacks", _attacks(report)) if report.view else "",
            section("To keep in mind", listed([*report.interception.leaks, *map(_alone, notes(report))])),
        ],
        verdict,
        sentences.measured(report),
    )


def _alone(note: str) -> str:
    """A note that stands by itself needs no word that says what it is about."""
    plain = note.removeprefix("experiment: ")
    return plain[:1].upper() + plain[1:] if plain.startswith("no ") else plain


def _title(report: AuditReport) -> str:
    """A narrower attacker than the usual one is named: its report is about less."""
    who = "" if report.attacker.kind == WHOLE else f": {report.attacker.words}"
    return f"Audit of {Path(report.run).resolve().name}{who}"


def _attacks(report: AuditReport) -> str:
    first, last = report.last
    measured = [f"error of {symbol}" for symbol in QUANTITIES.values()]
    head = ["attack", "what it does", *measured, "x within 1 % from", "also found"]
    rows = [
        [one.name, one.attack.summary, *_measured(one), _since(one), also_found(one, damped=is_damped(report))]
        for one in report.findings
    ]
    what = f"Relative errors (η: absolute), medians over rounds {first}–{last}; a dash where there is no estimate."
    return table(head, rows) + listed([report.unscored or what, *sentences.not_run(report.skipped)])


def _measured(finding: Finding) -> list[Markup]:
    found = [finding.error(what) for what in QUANTITIES]
    return [number("–" if error is None else f"{error:.1e}") for error in found]


def _since(finding: Finding) -> str:
    since = finding.errors["x"].since.get(0.01) if "x" in finding.errors else None
    return "–" if since is None else f"round {since}"
