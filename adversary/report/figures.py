"""The figures of an audit, each with its alternative text and one sentence that says how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import QUANTITIES, Finding
from dpp2.adversary.game_result import GameResult, Prediction
from dpp2.adversary.report.drawing import COLOURS, panel, panels, positive
from dpp2.adversary.report.network import network
from dpp2.adversary.report.page import Shown
from dpp2.adversary.report.trajectory import trajectory
from dpp2.adversary.verdicts import percent
from dpp2.arrays import Array
from dpp2.privacy import Unsupported

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DRAWN = {"x": (QUANTITIES["x"], COLOURS[1]), "gradient": (QUANTITIES["gradient"], COLOURS[0])}
_SMOOTH = 15  # rounds
_JUMP = 10.0  # a gap that grows by such a factor from one round to the next
_ROWS = 40  # of a table behind a figure


def figures(report: AuditReport, agent: int) -> list[Shown]:
    """All figures that this report has the material for; `agent` is the one whose trajectory is shown."""
    made = [
        convergence(report),
        errors(report),
        trajectory(report, agent),
        network(report),
        epsilon(report),
        trade_off(report),
    ]
    return [one for one in made if one is not None]


def convergence(report: AuditReport) -> Shown | None:
    """The gap against the round, where the run wrote it down."""
    gap = report.gaps
    if gap is None or len(gap) < 2 or not np.isfinite(gap).any():
        return None
    shown = np.where(np.isfinite(gap) & (gap < 1e250), np.maximum(gap, 1e-32), np.nan)

    def draw(axes: Axes) -> None:
        axes.semilogy(shown, lw=1.8, color=COLOURS[0])
        axes.set(title="gap", xlabel="round k")

    begins, ends = float(gap[0]), float(gap[-1])
    caption = f"The gap went from {begins:.3e} to {ends:.3e} in {len(gap) - 1} rounds."
    if report.divergence is not None:
        caption += f" The run diverged: this was plain in round {report.divergence.round}."
    elif _averages_noise_out(report) and np.count_nonzero(gap[1:] > _JUMP * gap[:-1]) > 1:
        caption += " Where it jumps, a round has added noise that the rounds after it average out."
    return Shown("Did it converge?", panels([panel(draw, "The gap against the round")]), caption)


def _averages_noise_out(report: AuditReport) -> bool:
    """Whether there is noise, and noise that stays: otherwise a jump has another cause."""
    return report.noise_left is not None and report.noise_left >= 1


def errors(report: AuditReport) -> Shown | None:
    """Relative error against the round, a picture for each attack; the scale of the noise beside it."""
    scored = [one for one in report.findings if one.attack.listens and one.errors.keys() & _DRAWN.keys()]
    if not scored:
        return None
    first = report.view.observation.first if report.view else 0
    noise = next(iter(_noise_lines(report).items()), None)

    def picture(finding: Finding) -> str:
        def draw(axes: Axes) -> None:
            for what, (_, colour) in _DRAWN.items():
                if what in finding.errors:
                    _smoothed(axes, positive(finding.errors[what].rounds), first, colour)
            if noise is not None:
                k = np.arange(first, first + len(noise[1]))
                axes.semilogy(k, np.where(noise[1] > 0, noise[1], np.nan), ls=":", lw=1.5, color=COLOURS[-1])
            axes.set(title=finding.name, ylim=(1e-17, 1e3), yscale="log")

        return panel(draw, f"Relative errors of {finding.name} against the round", (3.5, 2.5))

    key = {symbol: colour for what, (symbol, colour) in _DRAWN.items() if any(what in one.errors for one in scored)}
    if noise is not None:
        key[f"{noise[0]} (dotted)"] = COLOURS[-1]
    caption = (
        "Relative error against the round, on a logarithmic scale: 1 is as good as not listening, 1e-2 is two right "
        f"digits. Bold: the median of {_SMOOTH} rounds in a row. Pale: every single round. Where the pale line jumps, "
        "the attack finds the right answer in some rounds and a wrong one in others."
    )
    head, rows = _errors_as_numbers(report, first)
    return Shown("How close each attack comes", panels(map(picture, scored), key, small=True), caption, head, rows)


def _smoothed(axes: Axes, values: Array, first: int, colour: str) -> None:
    """Every round, pale, and the running median; a median of which most rounds have no estimate is none."""
    k = np.arange(first, first + len(values))
    axes.semilogy(k, values, lw=0.6, alpha=0.3, color=colour)
    half = _SMOOTH // 2
    padded = np.pad(np.where(np.isnan(values), np.inf, values), half, mode="edge")
    median = np.median(np.lib.stride_tricks.sliding_window_view(padded, _SMOOTH), axis=1)
    axes.semilogy(k, np.where(np.isfinite(median), median, np.nan), lw=1.6, color=colour)


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

    short = played.game.rounds if isinstance(played, GameResult) else len(rounds)
    account = "exact account" if "exact" in report.experiment.algorithm.account_in_words else "account of its author"
    key = {account: COLOURS[0], "paper's Theorem 3": COLOURS[1], "proven by the game": COLOURS[2]}

    def whole(axes: Axes) -> None:
        axes.plot(rounds, log10, lw=2, color=COLOURS[0])
        axes.set(title="log₁₀ ε(K), the whole run", xlabel="rounds K")

    def begun(axes: Axes) -> None:
        axes.plot(rounds[:short], log10[:short], lw=2, color=COLOURS[0])
        shown = cost.paper_rounds <= short
        axes.plot(cost.paper_rounds[shown], cost.paper_log10[shown], lw=1.4, ls="--", color=COLOURS[1])
        if isinstance(played, GameResult):
            proven = np.array([bound.value for bound in played.bounds])
            with np.errstate(divide="ignore"):
                points = np.where(proven > 0, np.log10(proven), np.nan)
            axes.plot(played.stops, points, "o-", ms=4, lw=1, color=COLOURS[2])
        axes.set(title=f"log₁₀ ε(K), the first {short} rounds", xlabel="rounds K")
        axes.locator_params("x", integer=True)

    pictures = [panel(begun, "ε against the number of rounds, as far as the game goes")]
    if short < len(rounds):
        pictures.append(panel(whole, "ε against the number of rounds, the whole run"))
    if not np.isfinite(cost.paper_log10).any():
        del key["paper's Theorem 3"]
    if not isinstance(played, GameResult):
        del key["proven by the game"]

    caption = "Powers of ten: 0 is ε = 1, and e^ε is the factor by which what was overheard can change anybody's odds."
    if isinstance(played, GameResult):
        caption += (
            f" Each point is a lower bound from {played.trials:,} games at confidence "
            f"{percent(played.bound.confidence)}; what the first rounds prove holds for the whole run."
        )
    return Shown("What the run costs", panels(pictures, key), caption)


def trade_off(report: AuditReport) -> Shown | None:
    """True against false positives of the optimal test: measured, and predicted by the privacy-loss distribution."""
    played = report.game
    if not isinstance(played, GameResult):
        return None
    measured, prediction = played.trade_off, played.prediction

    def curve(axes: Axes, left: bool) -> None:
        if isinstance(prediction, Prediction):
            for rates, colour in ((prediction.pair, COLOURS[0]), (prediction.account, COLOURS[2])):
                shown = 1 - rates if left else np.where(rates > 0, rates, np.nan)
                axes.plot(prediction.false_positive, shown, color=colour, lw=1.4)
        low, high = measured.false_negative_band
        spread = np.stack([measured.false_negative - low, high - measured.false_negative])
        sides = measured.false_positive_band
        across = np.stack([measured.false_positive - sides[0], sides[1] - measured.false_positive])
        y = 1 - measured.false_negative if left else measured.false_negative
        spread = spread[::-1] if left else spread
        axes.errorbar(
            measured.false_positive, y, spread, across, ".", ms=4, lw=0.8, color=COLOURS[1], errorevery=2, alpha=0.8
        )

    def linear(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], ":", color=COLOURS[-1])
        curve(axes, True)
        axes.set(title="true positives (rate)", xlabel="false positives (rate)")

    def logarithmic(axes: Axes) -> None:
        curve(axes, False)
        axes.set(title="false negatives (rate)", xlabel="false positives (rate)")
        axes.set(xscale="log", yscale="log", xlim=(1e-5, 1), ylim=(1e-5, 1))

    alt = "True against false positives of the likelihood-ratio test, measured and predicted"
    key = {"measured, with band": COLOURS[1]}
    if isinstance(prediction, Prediction):
        key |= {"predicted for this pair": COLOURS[0], "limit set by the account": COLOURS[2]}
    key["blind guessing (dotted)"] = COLOURS[-1]
    pictures = [panel(linear, alt), panel(logarithmic, f"{alt}, logarithmic")]
    return Shown("Telling two objectives apart", panels(pictures, key), _trade_off_caption(played))


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
