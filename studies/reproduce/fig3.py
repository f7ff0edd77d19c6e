"""The paper's Fig. 3: DPP², DiaDSP and PPDC after K rounds, over the decay r of their noise.

The paper plots ‖(1/N)∇f̃(x^K)‖², which can be read in two ways, and three things are left open; all are shown:
    mean      ‖(1/N) Σ_i ∇f_i(x_i)‖²            the gradients add up, as the paper's curves need it
    stacked   (1/N²) Σ_i ‖∇f_i(x_i)‖²           ∇f̃ is a vector of N·d entries; at a common optimum this is not 0
    gap       Ŵ, which counts disagreement, too, as everywhere else here
    noise     begins at u (r⁰), or at u·r (r¹)
    v-noise   PPDC as the paper has it, and with u_v = 0, which costs no ε (see `dpp2.algorithms.ppdc`)
    data      as steep as the paper's (M̄ = 5.03), and flat (M̄ = 0.4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.arrays import Array
from dpp2.privacy import Epsilon
from dpp2.store.files import write_text
from dpp2.studies.parallel import fan_out
from dpp2.studies.reproduce.study import Claim, Files, Order, Study

DECAYS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
METRICS = ("mean", "stacked", "gap")
STARTS = (0, 1)  # the power of r that the first noise has
DATA = {"steep": 5.03, "flat": 0.4}
Setting = str | float
_DPP2: Mapping[str, Setting] = {
    "algorithm.name": "dpp2",
    "algorithm.alpha": 0.0994,
    "noise.u_w": 0.994,
    "noise.u_e": 1.0,
}
METHODS: Mapping[str, Mapping[str, Setting]] = {
    "DPP²": _DPP2,
    "DiaDSP": {"algorithm.name": "diadsp", "noise.u_x": 2.0, "noise.u_y": 5.0},
    "PPDC": {"algorithm.name": "ppdc", "noise.u_x": 1.0, "noise.u_v": 1.0},
    "PPDC, u_v = 0": {"algorithm.name": "ppdc", "noise.u_x": 1.0, "noise.u_v": 0.0},
    "DPP², τ = 1": {**_DPP2, "algorithm.damping": 1.0},
}
PAPERS = ("DPP²", "DiaDSP", "PPDC")


@dataclass(frozen=True)
class Fig3Job:
    overrides: Mapping[str, Setting]


@dataclass(frozen=True, eq=False)
class Fig3:
    """values: (data, method, start, decay, seed, metric), ∞ where a run diverged; log10_epsilon: (method, start, decay)
    at δ = 0.1."""

    rounds: int
    seeds: int
    decays: tuple[float, ...]
    values: Array
    log10_epsilon: Array

    def of(self, data: str, method: str, start: int, metric: str) -> Array:
        """Geometric mean over seeds, one value per decay."""
        where = list(DATA).index(data), list(METHODS).index(method), STARTS.index(start)
        drawn = self.values[where][..., METRICS.index(metric)]
        return np.asarray(np.exp(np.log(np.maximum(drawn, 1e-300)).mean(axis=1)))


def final_values(job: Fig3Job) -> tuple[float, float, float, float]:
    """The three metrics at x^K, and log10 ε(K)."""
    simulation = Simulation(Experiment.load(overrides=job.overrides), record=False)
    simulation.advance(simulation.remaining)
    spent = simulation.account.epsilon(simulation.k)
    log10 = spent.log10 if isinstance(spent, Epsilon) else np.nan
    x = np.concatenate(simulation.driver.x)
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged
        grads = simulation.driver.gradient(x)
        total, apart, agents = grads.sum(axis=0), x - x.mean(axis=0), len(x)
        mean = float(total @ total) / agents**2
        stacked, gap = float((grads**2).sum()) / agents**2, float((apart**2).sum()) + agents * mean
    diverged = simulation.remaining > 0 or not np.isfinite(gap)
    return (np.inf, np.inf, np.inf, log10) if diverged else (mean, stacked, gap, log10)


@dataclass(frozen=True)
class Fig3Document:
    figure: str
    csv: Path
    png: Path
    decays: tuple[float, ...]
    ends: Mapping[str, Mapping[str, Mapping[str, list[float]]]]  # data → method → metric → one per decay; noise from r⁰
    claims: Sequence[Claim]


class Fig3Study(Study[Fig3]):
    rounds = 500

    def __init__(self, decays: tuple[float, ...] = DECAYS) -> None:
        self.decays = decays

    def run(self, order: Order) -> Fig3:
        """Every combination for seeds 1 … `seeds`; a seed decides data, starting points and noise."""
        jobs = [
            Fig3Job(_overrides(method, start, decay, M, seed, order.rounds))
            for M in DATA.values()
            for method in METHODS
            for start in STARTS
            for decay in self.decays
            for seed in range(1, order.seeds + 1)
        ]
        done = np.array(fan_out(final_values, jobs, executor=order.executor, finished=order.counted()))
        done = done.reshape(len(DATA), len(METHODS), len(STARTS), len(self.decays), order.seeds, 4)
        return Fig3(order.rounds, order.seeds, self.decays, done[..., :3], done[0, :, :, :, 0, 3])

    def judge(self, made: Fig3) -> tuple[Claim, ...]:
        return judged(made)

    def write(self, made: Fig3, out: Path) -> Files:
        """A CSV with every value, and a picture: the two readings of the metric and the gap, on both kinds of data."""
        files = {"values": out / "fig3.csv", "picture": out / "fig3.png"}
        write_text(files["values"], "\n".join(_lines(made)) + "\n")
        draw(made, files["picture"])
        return files

    def document(self, made: Fig3, files: Files) -> Fig3Document:
        ends = {
            data: {
                method: {metric: made.of(data, method, 0, metric).tolist() for metric in METRICS} for method in METHODS
            }
            for data in DATA
        }
        return Fig3Document("fig3", files["values"], files["picture"], made.decays, ends, self.claims(made))


def _overrides(method: str, start: int, decay: float, M: float, seed: int, rounds: int) -> dict[str, Setting]:
    settings = dict(METHODS[method])
    for key, value in METHODS[method].items():
        if key.startswith("noise.u_") and not isinstance(value, str):
            settings[key] = value * decay**start
    common: dict[str, Setting] = {"run.rounds": rounds, "run.seed": seed, "run.telemetry": "none"}
    return {**settings, **common, "problem.smoothness": M, "noise.decay": decay}


def judged(made: Fig3) -> tuple[Claim, ...]:
    """What the paper says of the figure, and what it leaves out."""
    return (
        _wins("under the paper's settings DPP² ends lowest at every r (gradients added up)", made, "mean", PAPERS),
        _wins("the same, if the stacked gradient is meant", made, "stacked", PAPERS),
        _wins("the same on the gap Ŵ", made, "gap", PAPERS),
        _wins("the same on Ŵ and against PPDC without v-noise as well", made, "gap", (*PAPERS, "PPDC, u_v = 0")),
        _wins("the same on Ŵ, flat data", made, "gap", (*PAPERS, "PPDC, u_v = 0"), "flat"),
        _same_privacy(made),
    )


def _wins(claim: str, made: Fig3, metric: str, methods: tuple[str, ...], data: str = "steep") -> Claim:
    """Lowest at every r, whether the noise starts at r⁰ or at r¹; the evidence shows by how much."""
    held, said = True, []
    for start in STARTS:
        ends = {method: made.of(data, method, start, metric) for method in methods}
        others = np.min([ends[method] for method in methods if method != "DPP²"], axis=0)
        held = held and bool((ends["DPP²"] < others).all())
        shown = ", ".join(f"{method} {_range(values)}" for method, values in ends.items())
        said.append(f"noise from r^{start}: {shown}")
    return Claim(claim, held, "; ".join(said))


def _same_privacy(made: Fig3) -> Claim:
    """Equal u and r are not equal ε; and a guarantee beyond ε = 100 says nothing."""
    spent = {method: made.log10_epsilon[list(METHODS).index(method), 0] for method in PAPERS}
    lowest = np.min(list(spent.values()), axis=0)
    with np.errstate(invalid="ignore"):  # ∞ − ∞: two that promise nothing are not compared at one level
        apart = np.max(list(spent.values()), axis=0) - lowest
    shown = ", ".join(f"{method} 10^{log10.min():.1f} … 10^{log10.max():.1f}" for method, log10 in spent.items())
    held = bool((apart < 0.05).all() and (lowest < 2).all())
    return Claim("the three are compared at one, meaningful level of DP", held, f"ε at δ = 0.1: {shown}")


def _range(values: Array) -> str:
    return " … ".join(f"{end:.1e}" if np.isfinite(end) else "diverged" for end in (values.min(), values.max()))


def _lines(made: Fig3) -> list[str]:
    lines = ["data,method,first_noise,decay,seed,log10_epsilon," + ",".join(METRICS)]
    for (a, b, c, e, s), _ in np.ndenumerate(made.values[..., 0]):
        head = (
            f'{list(DATA)[a]},"{list(METHODS)[b]}",{STARTS[c]},{made.decays[e]},{s + 1},{made.log10_epsilon[b, c, e]}'
        )
        lines.append(f"{head}," + ",".join(repr(value) for value in made.values[a, b, c, e, s].tolist()))
    return lines


def draw(made: Fig3, path: Path) -> None:
    """Solid: noise from r⁰; dashed: from r¹."""
    from dpp2.studies.compare.pictures import panels, save

    titles = {"mean": "‖(1/N) Σ ∇f_i‖²", "stacked": "(1/N²) Σ ‖∇f_i‖²", "gap": "gap Ŵ"}
    figure, grid = panels(len(DATA), len(METRICS))
    for row, data in zip(grid, DATA, strict=True):
        for axes, metric in zip(row, METRICS, strict=True):
            for number, method in enumerate(METHODS):
                for start, style in zip(STARTS, ("o-", "x--"), strict=True):
                    label = method if start == 0 else None
                    values = np.maximum(made.of(data, method, start, metric), 1e-32)
                    axes.semilogy(made.decays, values, style, color=f"C{number}", label=label, ms=3, lw=1)
            axes.set_title(f"{titles[metric]}, {data} data (M̄ = {DATA[data]:g})", fontsize=9)
            axes.set_xlabel("decay r")
    grid[0][0].legend(fontsize=7)
    save(figure, path)


FIG3 = Fig3Study()
