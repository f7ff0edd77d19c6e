"""The report in plain words: what happened, who listened, what was recovered, and what it means."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import Finding, Skipped
from dpp2.adversary.game_result import GameResult
from dpp2.adversary.report.further import further, is_damped
from dpp2.adversary.report.one_line import Heard, how_far, one_line
from dpp2.adversary.verdicts import RECOVERED, Outcome, amount, best, papers, percent
from dpp2.privacy import Unsupported

_FOR_ANOTHER_METHOD = re.compile(r"(rests on .*), but (\S+) was run")  # how `Attack.needs` puts it
_COUNTS = {3: "Three", 10: "Ten"}
_NAMES = {"x": "positions x_i", "gradient": "gradients ∇f_i"}


def verdict(report: AuditReport) -> str:
    """The line that the live page shows, too; after a divergence, beside which little else matters."""
    if report.view is None:
        said = "The eavesdropper hears ciphertext: no attack has anything to work on."
    else:
        said = one_line(report.experiment, report.findings, scored=report.truth is not None, heard=_heard(report))[1]
    return f"The run diverged, seen in round {report.divergence.round}. {said}" if report.divergence else said


def not_run(skipped: Sequence[Skipped]) -> list[str]:
    """A line for each reason, with all attacks that were left out for it; attacks on other methods share one."""
    reasons: dict[str, list[str]] = {}
    for one in skipped:
        reasons.setdefault(one.reason, []).append(one.name)
    lines, others = list[str](), dict[str, list[str]]()
    for why, names in reasons.items():
        if found := _FOR_ANOTHER_METHOD.fullmatch(why):
            others.setdefault(found[2], []).append(f"{', '.join(names)} ({found[1]})")
        elif len(names) == 1:
            lines.append(f"{names[0]} was not run: {why}")
        else:
            lines.append(f"not run ({why}): {', '.join(names)}")
    return [*lines, *(f"not made for {method}: {'; '.join(listed)}" for method, listed in others.items())]


def _heard(report: AuditReport) -> Heard:
    """Of whom the verdict speaks: an attack is scored on the agents that its attacker has heard."""
    assert report.view is not None
    agents, attacker = report.view.agents, report.attacker
    everybody = len(agents) == report.view.observation.shape[1]
    listener = f"agent {attacker.agent}" if attacker.kind == "neighbour" else "the eavesdropper"
    return Heard(None if everybody else agents, listener)


def _diverged(report: AuditReport) -> str:
    """That the run diverged, why, and what repairs it, as `dpp2 run` says it; empty if it did not."""
    found = report.divergence
    if found is None:
        return ""
    finite = report.gaps[np.isfinite(report.gaps)] if report.gaps is not None else np.empty(0)
    peak = f" (peak gap {finite.max():.3g})" if len(finite) else ""
    return f"The run diverged, seen in round {found.round}{peak}: {found.explanation}."


def measured(report: AuditReport) -> list[tuple[str, str]]:
    """The four numbers that a report is about; a dash for what nobody knows."""
    gap = report.gaps[-1] if report.gaps is not None and len(report.gaps) else np.nan
    x = "sent openly" if report.experiment.algorithm.result_is_covered else _least_error(report, "x")
    return [
        ("gap at the end", f"{gap:.1e}" if np.isfinite(gap) else "–"),
        ("error of x_i", x),
        ("error of ∇f_i", _least_error(report, "gradient")),
        ("ε", _shown_epsilon(report)),
    ]


def _least_error(report: AuditReport, what: str) -> str:
    found = best(report.findings, what)
    return f"{found.error:.1e}" if found else "–"


def _shown_epsilon(report: AuditReport) -> str:
    """∞ where the run has none, whatever the formula says."""
    spent = report.cost.epsilon
    if isinstance(spent, Unsupported):
        return "–"
    if report.cost.first_uncovered is not None or spent.log10 == math.inf:
        return "∞"
    return f"{spent.value:.3g}" if spent.value is not None and spent.value < 1e6 else amount(spent)


def headline(report: AuditReport) -> str:
    """One line under the title."""
    experiment = report.experiment
    return (
        f"{experiment.algorithm.name} on the {experiment.problem.name} problem, {experiment.network.agents} agents, "
        f"{report.cost.rounds} rounds; attacker: {report.attacker.words}; heard from {report.interception.source}"
    )


def summary(report: AuditReport) -> list[str]:
    """A handful of sentences for somebody who reads no further."""
    said = [_diverged(report), _who(report)]
    if report.view is None:
        said.append("Nothing to work on: the channels carried ciphertext, and no attack reads that.")
        said.append(f"What still leaks: {'; '.join(report.interception.leaks)}.")
    elif report.truth is None:
        said.append(f"{len(report.findings)} attacks were run, but {report.unscored}.")
    else:
        said += [_came_back(report, what) for what in _NAMES]
        said += [_when(report), _few_rounds(report), _meaning(report)]
        said.append(further(report.findings, damped=is_damped(report)))
        said += [_bits(one.ruled_out) for one in report.findings if one.ruled_out]
    return [*(sentence for sentence in said if sentence), _cost(report), _proof(report)]


def _who(report: AuditReport) -> str:
    who = report.attacker.words
    if report.view is None:
        return f"The attacker: {who}."
    observation = report.view.observation
    rounds, agents, dimension = observation.shape
    joined = f", from round {observation.first} on" if observation.first else ""
    each = "1 number" if dimension == 1 else f"{dimension} numbers"
    return (
        f"The attacker, {who}, heard {rounds} rounds{joined} from {len(report.view.agents)} of {agents} agents, "
        f"{each} per message."
    )


def _came_back(report: AuditReport, what: str) -> str:
    found = best(report.findings, what)
    name = _NAMES[what]
    if found is None:
        return f"No attack that applies here gives an estimate of the {name}."
    if what == "x" and report.experiment.algorithm.result_is_covered:
        return f"The {name} are no secret of this algorithm: its messages give them away, and ε counts that."
    attack, error = found.finding.name, found.error
    when = f" in {found.rounds.words}" if found.rounds else ""
    if found.recovered:
        return f"The {name} were recovered to a relative error of {error:.0e}, by the {attack} attack{when}."
    return f"The {name} were not recovered by these attacks: {how_far(found)}{when}."


def _when(report: AuditReport) -> str:
    """From which round on x was known to one per cent; nothing where x is no secret."""
    if report.experiment.algorithm.result_is_covered:
        return ""
    since = {one.name: one.errors["x"].since.get(0.01) for one in _successful(report)}
    reached = {name: k for name, k in since.items() if k is not None}
    if not reached:
        return ""
    name = min(reached, key=lambda key: reached[key])
    k = reached[name]
    first = report.view.observation.first if report.view else 0
    scales = ", ".join(f"{scale[k - first]:.2g} ({noise})" for noise, scale in report.noise.items() if scale.any())
    noise = f"the noise then has the scale {scales}" if scales else "there was no noise"
    return f"From round {k} on, the {name} attack knows x to 1 % or better; {noise}."


def _successful(report: AuditReport) -> list[Finding]:
    """Attacks that recovered x in some stretch of rounds."""
    return [one for one in report.findings if (at := one.closest("x")) and at.error <= RECOVERED]


def _few_rounds(report: AuditReport) -> str:
    """The main finding, where it holds: nobody has to listen for long."""
    enough = [one for one in _successful(report) if one.attack.rounds_in_a_row is not None]
    if not enough:
        return ""
    found = min(enough, key=lambda one: one.attack.rounds_in_a_row or 0)
    window, errors = found.attack.rounds_in_a_row or 0, found.errors["x"].rounds
    first = report.view.observation.first if report.view else 0
    k = int(np.nanargmin(errors))
    start = first + min(k, len(errors) - window)  # the last rounds belong to the window that ends the record
    alone = f"rounds {start} to {start + window - 1} alone give x to {errors[k]:.0e}"
    return f"{_COUNTS.get(window, window)} rounds in a row are enough: {alone}."


def _meaning(report: AuditReport) -> str:
    """What the first three verdicts come to."""
    hidden, _, persists, _ = report.verdicts
    later = "" if report.noise_left is None else " once the noise had gone"
    if report.experiment.algorithm.tier_one is None:
        return f"So nothing hid them{later}." if persists.outcome is Outcome.BROKEN else ""
    if persists.outcome is Outcome.BROKEN:
        return f"So tier one, the mixing through a secret η, did not keep them hidden{later}."
    if hidden.outcome is Outcome.BROKEN:
        return "So tier one, the mixing through a secret η, did not keep them hidden."
    return ""


def _bits(shares: Mapping[str, float]) -> str:
    """What the last bits of one message say, whatever its ε."""
    share = shares["adjacent_ruled_out"]
    told = f"rule out an adjacent objective for {100 * share:.0f} % of the agents" if share else "rule out nothing"
    return f"The bits of the first z {told} (by the account, that message costs ε = {shares['message_epsilon']:.2g})."


def _cost(report: AuditReport) -> str:
    spent, claimed = report.cost.epsilon, report.cost.paper_epsilon
    if isinstance(spent, Unsupported):
        return f"No ε can be given: {spent.reason}."
    if spent.log10 == math.inf:
        return f"The run guarantees no ε at all ({spent.reason})."
    if (first := report.cost.first_uncovered) is not None:
        return f"No ε holds from round {first} on (float64 cannot carry the noise). {_formulas(report)}"
    tail = f" (and δ_dp = {spent.tail}{': no promise' if spent.log2_delta >= 0 else ''})" if spent.tail else ""
    whose = report.experiment.algorithm.account_in_words
    return f"The run costs its worst-off agent ε = {amount(spent)}{tail} by {whose}; {papers(claimed)}."


def _formulas(report: AuditReport) -> str:
    """What the account would say if numbers were real numbers, and what the paper says."""
    spent, claimed = report.cost.epsilon, report.cost.paper_epsilon
    alone = f"The formula alone gives {amount(spent)}"
    if isinstance(claimed, Unsupported):
        return f"{alone}; {papers(claimed)}."
    return f"{alone}, the paper's {amount(claimed)}."


def _proof(report: AuditReport) -> str:
    played = report.game
    if played is None:
        return "The distinguishing game was not played."
    if isinstance(played, Unsupported):
        return f"The distinguishing game was not played: {played.reason}."
    assert isinstance(played, GameResult)
    return (
        f"In {played.trials:,} games on the first {played.game.rounds} rounds (whose account is "
        f"ε = {played.game.epsilon:.3g}) {played.game.test} proved ε ≥ {played.bound.value:.3g}, "
        f"at confidence {percent(played.bound.confidence)}. {_sharpness(played)}"
    )


def _sharpness(played: GameResult) -> str:
    if played.refuted:
        return "That is more than the account admits: ε is understated."
    if not math.isfinite(played.caught):
        return "So few games would have caught no understatement of ε at all."
    return f"An account that understates ε by a factor of {played.caught:.3g} or more would have been caught."
