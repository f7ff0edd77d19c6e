"""The figures of an audit, each with its alternative text and one sentence that says how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import QUANTITIES, Finding
from dpp2.adversary.game_result import GameResult, Prediction
from dpp2.adversary.report.drawing import COLOURS, panel, panels, positive, power_of_ten
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
_HIGHEST = 12  # power of ten of an error that is drawn: no picture has room for a run that diverged altogether
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
    first, top = report.view.observation.first if report.view else 0, _top(scored)
    noise = next(iter(_noise_lines(report).items()), None)

    def picture(finding: Finding) -> str:
        def draw(axes: Axes) -> None:
            for what, (_, colour) in _DRAWN.items():
                if what in finding.errors:
                    _smoothed(axes, positive(finding.errors[what].rounds), first, colour)
            if noise is not None:
                k = np.arange(first, first + len(noise[1]))
                axes.semilogy(k, np.where(noise[1] > 0, noise[1], np.nan), ls=":", lw=1.5, color=COLOURS[-1])
            axes.set(title=finding.name, ylim=(1e-17, top), yscale="log")

        return panel(draw, f"Relative errors of {finding.name} against the round", (3.5, 2.5))

    key = {symbol: colour for what, (symbol, colour) in _DRAWN.items() if any(what in one.errors for one in scored)}
    if noise is not None:
        key[f"{noise[0]} (dotted)"] = COLOURS[-1]
    caption = (
        "Relative error against the round, on a logarithmic scale: 1 is as good as not listening, 1e-2 is two right "
        f"digits. Bold: the median of {_SMOOTH} rounds in a row. Pale: every single round. Where the pale line jumps, "
        "the attack finds the right answer in some rounds and a wrong one in others."
    )
    if any(_is_sparse(one.errors[what].rounds) for one in scored for what in one.errors.keys() & _DRAWN.keys()):
        caption += " Points: an attack that has an estimate in few rounds only."
    if _largest(scored) > top:
        caption += f" Errors above {power_of_ten(top)} are not shown."
    head, rows = _errors_as_numbers(report, first)
    return Shown("How close each attack comes", panels(map(picture, scored), key, small=True), caption, head, rows)


def _largest(scored: Sequence[Finding]) -> float:
    """Of all errors that are drawn."""
    rounds = [one.errors[what].rounds for one in scored for what in one.errors.keys() & _DRAWN.keys()]
    return max((float(np.max(values, where=np.isfinite(values), initial=0.0)) for values in rounds), default=0.0)


def _top(scored: Sequence[Finding]) -> float:
    """Of the axes of all attacks: the power of ten above the largest error, within reason."""
    return float(10.0 ** np.clip(np.ceil(np.log10(max(_largest(scored), 1.0))), 3, _HIGHEST))


def _is_sparse(values: Array) -> bool:
    return bool(np.count_nonzero(~np.isnan(values)) < len(values) / 2)


def _smoothed(axes: Axes, values: Array, first: int, colour: str) -> None:
    """Every round, pale, and the running median; points where most rounds have no estimate, and so no median."""
    k = np.arange(first, first + len(values))
    if _is_sparse(values):
        axes.semilogy(k, values, "o", ms=3, color=colour)
        return
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


def _decay(scale: Array) -> str:
    return "·r^k" if scale[-1] < scale[0] else ""


def _noise_lines(report: AuditReport) -> dict[str, Array]:
    """One dotted line per scale, or one for all where they are the same."""
    named = {f"noise scale {name}{_decay(scale)}": scale for name, scale in report.noise.items() if scale.any()}
    scales = list(named.values())
    if len(scales) > 1 and all(np.array_equal(scales[0], other) for other in scales[1:]):
        return {f"noise scale {' = '.join(report.noise)}{_decay(scales[0])}": scales[0]}
    return named


def epsilon(report: AuditReport) -> Shown | None:
    """ε over rounds: the exact account as far as it holds, the paper's, and what the game proves."""
    cost, played = report.cost, report.game
    if isinstance(cost.curve, Unsupported):
        return None
    end = cost.first_uncovered
    log10 = np.where(np.isfinite(cost.curve.log10), cost.curve.log10, np.nan)[:end]
    if not np.isfinite(log10).any():
        return None
    rounds = len(cost.curve.log10)
    short = played.game.rounds if isinstance(played, GameResult) else rounds
    account = "exact account" if "exact" in report.experiment.algorithm.account_in_words else "account of its author"
    lines = [_Line(account, COLOURS[0], np.arange(1.0, len(log10) + 1), log10, {"lw": 2})]
    if np.isfinite(cost.paper_log10).any():
        lines.append(_Line(_PAPERS, COLOURS[1], cost.paper_rounds, cost.paper_log10, {"lw": 1.4, "ls": "--"}))
    if isinstance(played, GameResult):
        lines.append(_proven(played))

    pictures = [_costs(lines, short, end, "as far as the game goes" if short < rounds else "the whole run")]
    if short < rounds:
        pictures.append(_costs(lines, rounds, end, "the whole run"))
    key = {line.label: line.colour for line in lines}
    if end is not None:
        key[f"from round {end} on no ε holds"] = COLOURS[-1]
    return Shown("What the run costs", panels(pictures, key), _costs_caption(report))


@dataclass(frozen=True, eq=False)
class _Line:
    """One account of what rounds cost, in powers of ten."""

    label: str
    colour: str
    rounds: Array
    log10: Array
    style: dict[str, Any]


_PAPERS = "paper's Theorem 3"
_LARGEST_AXIS = 280  # beyond this power of ten matplotlib cannot scale an axis


def _proven(played: GameResult) -> _Line:
    """What the first rounds prove holds for more of them, so the bound never falls."""
    proven = np.maximum.accumulate([bound.value for bound in played.bounds])
    log10 = np.log10(np.where(proven > 0, proven, np.nan))
    return _Line("proven by the game", COLOURS[2], np.array(played.stops), log10, {"marker": "o", "ms": 4, "lw": 1})


def _costs(lines: Sequence[_Line], last: int, end: int | None, which: str) -> str:
    """One panel: ε on a logarithmic axis in whole powers of ten, or its logarithm where it is too large for that."""
    inside = [(line, line.rounds <= last) for line in lines]
    values = np.concatenate([line.log10[shown] for line, shown in inside])
    low, high = float(np.floor(np.nanmin(values))), float(np.ceil(np.nanmax(values)))
    plain = low > -_LARGEST_AXIS and high < _LARGEST_AXIS

    def draw(axes: Axes) -> None:
        for line, shown in inside:
            log10 = line.log10[shown]
            axes.plot(line.rounds[shown], 10**log10 if plain else log10, color=line.colour, **line.style)
        if end is not None and end <= last:
            axes.axvline(end, color=COLOURS[-1], ls=":", lw=1.4)
        axes.set(title=f"{'ε(K)' if plain else 'log₁₀ ε(K)'}, {which}", xlabel="rounds K")
        if plain:
            axes.set(yscale="log", ylim=(10**low, 10 ** max(high, low + 1)))
        axes.locator_params("x", integer=True)

    return panel(draw, f"ε against the number of rounds, {which}")


def _costs_caption(report: AuditReport) -> str:
    played, end = report.game, report.cost.first_uncovered
    caption = "e^ε is the factor by which what was overheard can change anybody's odds."
    if end is not None:
        caption += f" From round {end} on float64 cannot carry the noise: there the exact ε is infinite."
    if isinstance(played, GameResult):
        caption += (
            f" Each point is a lower bound from {played.trials:,} games at confidence "
            f"{percent(played.bound.confidence)}; what the first rounds prove holds for the whole run."
        )
    return caption


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
