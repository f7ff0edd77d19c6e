"""What attacks found besides x, gradients and η: parameters and data, each with how far off it is.

A parameter counts as recovered up to `PARAMETER_RECOVERED`, data up to `RECOVERED`. With damping τ messages tell (1+τ)α
and (1+τ)β only, so these are what is claimed and measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import Finding
from dpp2.adversary.verdicts import PARAMETER_RECOVERED, RECOVERED

_DATA = {"gradient_at_zero": "∇f_i(0)", "hessian": "the Hessians", "samples": "the samples"}
_SYMBOLS = {"alpha": "α", "beta": "β"}


def is_damped(report: AuditReport) -> bool:
    return report.view is not None and report.view.knowledge.t != 1.0


def further(findings: Sequence[Finding], *, damped: bool) -> str:
    """A sentence or two for the summary; empty where there is nothing to say."""
    claims = [claim for one in findings for claim in _claims(one, damped)]
    recovered = [f"{text} (off by {_percent(error)})" for text, error in claims if _is_recovered(error)]
    recovered += [text for one in findings for text in _data(one, RECOVERED)]
    missed = [f"{text} (off by {_percent(error)})" for text, error in claims if not _is_recovered(error)]
    said = [f"Also recovered: {', '.join(recovered)}."] if recovered else []
    said += [f"Not recovered by these attacks: {', '.join(missed)}."] if missed else []
    if claims and damped:
        said.append("With damping τ, messages tell (1+τ)α and (1+τ)β, never α, β and τ themselves.")
    return " ".join(said)


def also_found(finding: Finding, *, damped: bool) -> str:
    """A cell of the table of attacks."""
    told = [
        f"{text} ({'' if _is_recovered(error) else 'not recovered, '}off by {_percent(error)})"
        for text, error in _claims(finding, damped)
    ]
    return ", ".join([*told, *_data(finding)])


def _claims(finding: Finding, damped: bool) -> list[tuple[str, float]]:
    """Each parameter whose error is known: its claimed value in words, and that error."""
    claimed = finding.estimate.parameters
    return [(f"{_symbol(name, damped)} = {claimed[name]:.6g}", error) for name, error in finding.parameters.items()]


def _data(finding: Finding, worst: float = float("inf")) -> list[str]:
    return [f"{_DATA.get(name, name)} to {error:.0e}" for name, error in finding.data.items() if error < worst]


def _symbol(name: str, damped: bool) -> str:
    symbol = _SYMBOLS.get(name, name)
    return f"(1+τ){symbol}" if damped else symbol


def _is_recovered(error: float) -> bool:
    return error <= PARAMETER_RECOVERED


def _percent(error: float) -> str:
    return f"{100 * error:.2g} %"
