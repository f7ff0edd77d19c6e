"""The figures of an audit, each with its alternative text and one sentence that says how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.audit import AuditReport
from dpp2.adversary.game_result import GameResult, Prediction
from dpp2.adversary.report.drawing import COLOURS, positive, svg
from dpp2.adversary.report.network import network
from dpp2.adversary.report.page import Shown
from dpp2.adversary.report.trajectory import trajectory
from dpp2.adversary.verdicts import percent
from dpp2.arrays import Array
from dpp2.privacy import Unsupported

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE = (9.0, 3.9)
_ROWS = 40  # of a table behind a figure


def figures(report: AuditReport, agent: int) -> list[Shown]:
    """All figures that this report has the material for; `agent` is the one whose trajectory is shown."""
    made = [network(report), trajectory(report, agent), errors(report), epsilon(report), trade_off(report)]
    return [one for one in made if one is not None]


def errors(report: AuditReport) -> Shown | None:
    """Relative error against the round for every attack; the scale of the noise beside it."""
    if not any(finding.errors for finding in report.findings):
        return None
    colours = {attack.name: COLOURS[n % len(COLOURS)] for n, attack in enumerate(ATTACKS)}
    first = report.view.observation.first if report.view else 0
    scales = _noise_lines(report)

    def panel(axes: Axes, what: str, symbol: str) -> None:
        for finding in report.findings:
            if what in finding.errors:
                values = positive(finding.errors[what].rounds)
                k = np.arange(first, first + len(values))
                axes.semilogy(k, values, lw=1.2, color=colours.get(finding.name, COLOURS[-1]), label=finding.name)
        for label, scale in scales.items():
            k = np.arange(first, first + len(scale))
            axes.semilogy(k, np.where(scale > 0, scale, np.nan), ls=":", lw=1.5, color=COLOURS[-1], label=label)
        axes.set(title=f"relative error of {symbol}", xlabel="round k", ylabel="error (1 = knows nothing)")
        axes.set_ylim(1e-17, 1e3)

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        panel(left, "x", "x_i")
        panel(right, "gradient", "∇f_i")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)

    caption = (
        "Relative error over all agents seen, on a logarithmic scale: 1 is as good as not listening, 1e-2 is two right "
        "digits. The dotted line is the scale of the noise in the same round, in the problem's units."
    )
    alt = "Relative errors of every attack on x and on the gradient against the round, with the noise scale"
    head, rows = _errors_as_numbers(report, first)
    return Shown("How close each attack comes", svg(draw, alt, (9.0, 4.6)), caption, head, rows)


def _errors_as_numbers(report: AuditReport, first: int) -> tuple[list[str], list[list[str]]]:
    """Errors of x in some rounds."""
    scored = [one for one in report.findings if "x" in one.errors]
    if not scored:
        return [], []
    rounds = len(scored[0].errors["x"].rounds)
    chosen = np.unique(np.linspace(0, rounds - 1, min(rounds, _ROWS)).astype(int))
    rows = [[str(first + k), *(_shown(one.errors["x"].rounds[k]) for one in scored)] for k in chosen]
    return ["round", *(one.name for one in scored)], rows


def _shown(error: float) -> str:
    return f"{error:.1e}" if np.isfinite(error) else "–"


def _noise_lines(report: AuditReport) -> dict[str, Array]:
    """One dotted line per scale, or one for all where they are the same."""
    named = {f"noise scale {name}·r^k": scale for name, scale in report.noise.items() if scale.any()}
    scales = list(named.values())
    if len(scales) > 1 and all(np.array_equal(scales[0], other) for other in scales[1:]):
        return {f"noise scale {' = '.join(report.noise)}": scales[0]}
    return named


def epsilon(report: AuditReport) -> Shown | None:
    """ε over rounds: the exact account, the paper's, and what the game proves."""
    cost, played = report.cost, report.game
    if isinstance(cost.curve, Unsupported) or not np.isfinite(cost.curve.log10).any():
        return None
    log10 = np.where(np.isfinite(cost.curve.log10), cost.curve.log10, np.nan)
    rounds = np.arange(1, len(log10) + 1)

    def panel(axes: Axes, until: int, title: str) -> None:
        axes.plot(rounds[:until], log10[:until], lw=2, color=COLOURS[0], label="exact account")
        shown = cost.paper_rounds <= until
        paper = cost.paper_log10[shown]
        axes.plot(cost.paper_rounds[shown], paper, lw=1.2, ls="--", color=COLOURS[1], label="paper's Theorem 3")
        if isinstance(played, GameResult):
            proven = np.array([bound.value for bound in played.bounds])
            with np.errstate(divide="ignore"):
                points = np.where(proven > 0, np.log10(proven), np.nan)
            axes.plot(played.stops, points, "o-", ms=4, lw=1, color=COLOURS[2], label="proven by the game")
        axes.set(title=title, xlabel="rounds K", ylabel="log₁₀ ε(K)")
        axes.legend(loc="best")

    def draw(figure: Figure) -> None:
        short = played.game.rounds if isinstance(played, GameResult) else len(rounds)
        if short == len(rounds):
            panel(figure.subplots(), short, "what K rounds cost the worst-off agent")
            return
        left, right = figure.subplots(1, 2)
        panel(left, len(rounds), "the whole run")
        panel(right, short, f"the first {short} rounds, which the game plays")

    caption = "Powers of ten: 0 is ε = 1, and e^ε is the factor by which what was overheard can change anybody's odds."
    if isinstance(played, GameResult):
        caption += (
            f" Each point is a lower bound from {played.trials:,} games at confidence "
            f"{percent(played.bound.confidence)}; what the first rounds prove holds for the whole run."
        )
    return Shown("What the run costs", svg(draw, "ε against the number of rounds", _WIDE), caption)


def trade_off(report: AuditReport) -> Shown | None:
    """True against false positives of the optimal test: measured, and predicted by the privacy-loss distribution."""
    played = report.game
    if not isinstance(played, GameResult):
        return None
    measured, prediction = played.trade_off, played.prediction

    def curve(axes: Axes, left: bool) -> None:
        if isinstance(prediction, Prediction):
            for rates, label, style in (
                (prediction.pair, "predicted for this pair", "-"),
                (prediction.account, "limit set by the account", "--"),
            ):
                shown = 1 - rates if left else np.where(rates > 0, rates, np.nan)
                axes.plot(prediction.false_positive, shown, style, color=COLOURS[0], lw=1.4, label=label)
        low, high = measured.false_negative_band
        spread = np.stack([measured.false_negative - low, high - measured.false_negative])
        sides = measured.false_positive_band
        across = np.stack([measured.false_positive - sides[0], sides[1] - measured.false_positive])
        y = 1 - measured.false_negative if left else measured.false_negative
        spread = spread[::-1] if left else spread
        axes.errorbar(
            measured.false_positive, y, spread, across, ".", ms=4, lw=0.8, color=COLOURS[1], label="measured, with band"
        )

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        curve(left, True)
        left.plot([0, 1], [0, 1], ":", color=COLOURS[-1], label="blind guessing")
        left.set(title="the optimal test", xlabel="false positives (rate)", ylabel="true positives (rate)")
        left.legend(loc="lower right")
        curve(right, False)
        right.set(title="the same, logarithmic", xlabel="false positives (rate)", ylabel="false negatives (rate)")
        right.set(xscale="log", yscale="log", xlim=(1e-5, 1), ylim=(1e-5, 1))

    alt = "True against false positives of the likelihood-ratio test, measured and predicted"
    return Shown("Telling two objectives apart", svg(draw, alt, _WIDE), _trade_off_caption(played))


def _trade_off_caption(played: GameResult) -> str:
    m = played.game.mechanism
    text = (
        f"{played.trials:,} games of {played.game.rounds} rounds in {m.dimension} dimensions: which of two objectives, "
        f"whose gradients differ by δ = {m.adjacency:g}, was the agent's? "
    )
    if isinstance(played.prediction, Unsupported):
        return text + f"No predicted curve: {played.prediction.reason}."
    agreed = "agree" if played.prediction.agrees else "DO NOT agree"
    return text + (
        f"Measurement and the privacy-loss distribution {agreed} at every threshold at once, at confidence "
        f"{percent(played.trade_off.confidence)}."
    )
