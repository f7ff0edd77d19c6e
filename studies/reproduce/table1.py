"""The paper's Table I as measured here: each method on a problem of its class, how it converges, what it spends.

The paper's columns (DP guarantee, exact or not, rate) are claims about published methods; the rows here are runs of the
round programs of this project, whose docstrings say how sure their equations are. Convergence is read off the gap:

    exact            it reaches 1e-12 of its first value
    still falling    over the last half of the rounds it falls at least like k^−0.2, and not by chance:
                     K rounds do not tell where it ends
    neighbourhood    it has stopped falling before
and the rate is the better of two fits to the falling part: θ^k (log gap against k) or k^p (log gap against log k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpp2 import Experiment, run
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, Unsupported
from dpp2.store.files import write_text
from dpp2.studies.parallel import fan_out
from dpp2.studies.reproduce.study import Files, Order, Study
from dpp2.studies.tables import TextTable

_EXACT, _FLAT, _CLEAR, _BLOCKS = 1e-12, -0.2, 0.5, 8


@dataclass(frozen=True)
class Row:
    """A row of the paper, and the experiment that stands for it here; without one the method could not be found."""

    method: str
    problem_class: str
    claimed_exact: bool
    claimed_rate: str
    overrides: Mapping[str, Any] | None = None
    steps: str = ""  # the schedule of its step, with the names of its settings in braces
    ours: bool = field(default=False, kw_only=True)  # a row that the paper does not have


_PL = {"problem.name": "sine"}
_CONVEX = {"problem.name": "least-squares", "problem.rank": 5}
_STRONGLY_CONVEX = {"problem.name": "quadratic", "network.topology": "geometric"}
_WEAKENED = "λ_k = {alpha}/(1 + {slowdown}k)^{alpha_power}, χ_k = {chi}/(1 + {slowdown}k)^{chi_power}"
_DPP2 = "constant: α = {alpha}, β = {beta}, ρ = {rho}, τ = {damping}"
_PPDC = "constant: η = {eta}, γ = {gamma}, ω = {omega}"

ROWS = (
    Row(
        "PrivSGP-VR",
        "nonconvex",
        False,
        "O(1/√K)",
        {"algorithm.name": "privsgp-vr"},
        "constant: γ = {gamma}",
    ),
    Row("DIFF2", "nonconvex", False, "O(1/√K)", {"algorithm.name": "diff2"}, "constant: η = {eta}"),
    Row("Wang–Başar", "nonconvex", True, "asymptotic", {"algorithm.name": "wang-basar"}, _WEAKENED),
    Row("Wang–Nedić", "convex", True, "asymptotic", _CONVEX | {"algorithm.name": "wang-nedic"}, _WEAKENED),
    Row(
        "DMSP", "strongly convex", False, "asymptotic", _STRONGLY_CONVEX | {"algorithm.name": "dmsp"}, "γ_k = {c}·{q}^k"
    ),
    Row(
        "DiaDSP",
        "strongly convex",
        False,
        "O(θ^K)",
        _STRONGLY_CONVEX | {"algorithm.name": "diadsp"},
        "constant: α = {alpha}",
    ),
    Row("eDP-TN", "strongly convex", True, "O(θ^K)"),
    Row("PPDC", "nonconvex", False, "O(1/K)", {"algorithm.name": "ppdc"}, _PPDC),
    Row("PPDC", "P-Ł", False, "O(θ^K)", _PL | {"algorithm.name": "ppdc"}, _PPDC),
    Row(
        "PPDC, u_v = 0",
        "nonconvex",
        True,
        "–",
        {"algorithm.name": "ppdc", "noise.u_v": 0.0},
        _PPDC,
        ours=True,
    ),
    Row("DPP²", "nonconvex", True, "O(1/K)", {"algorithm.name": "dpp2"}, _DPP2),
    Row("DPP²", "P-Ł", True, "O(θ^K)", _PL | {"algorithm.name": "dpp2"}, _DPP2),
    Row(
        "DPP², τ = 1",
        "nonconvex",
        True,
        "–",
        {"algorithm.name": "dpp2", "algorithm.damping": 1.0},
        _DPP2,
        ours=True,
    ),
    Row("DPP², τ = 1", "P-Ł", True, "–", _PL | {"algorithm.name": "dpp2", "algorithm.damping": 1.0}, _DPP2, ours=True),
)


@dataclass(frozen=True)
class Convergence:
    """How a gap went: its kind, where it ended, and the fitted rate in words."""

    kind: str
    final: float
    rate: str

    @property
    def exact(self) -> bool | None:
        """None where the run does not tell."""
        return None if self.kind == "still falling" else self.kind == "exact"


@dataclass(frozen=True)
class Measured:
    row: Row
    convergence: Convergence | None  # None: there is no such method here
    noise: str
    steps: str
    epsilon: str

    @property
    def verdict(self) -> str:
        """Whether it is exact, against what the paper's table says."""
        if self.convergence is None:
            return "could not be found: no equations, no run"
        if self.row.ours:
            return "not in the paper's table"
        if self.convergence.exact is None:
            so_far = "consistent with" if self.row.claimed_exact else "better than"
            return f"falling after all rounds: {so_far} the paper so far"
        return "as the paper says" if self.convergence.exact == self.row.claimed_exact else "NOT as the paper says"


@dataclass(frozen=True)
class Table1:
    rounds: int
    seeds: int
    rows: tuple[Measured, ...]


@dataclass(frozen=True)
class Table1Job:
    overrides: Mapping[str, Any]


def measured(job: Table1Job) -> tuple[Array, str]:
    """The gaps of one run, and the ε that it spent."""
    result = run(Experiment.load(overrides=job.overrides), record=False)
    spent = result.privacy.epsilon
    said = f"{spent} (pure)" if isinstance(spent, Epsilon) else _unsupported(spent)
    return result.metrics.gap, said


@dataclass(frozen=True)
class Table1Document:
    csv: Path
    rounds: int
    rows: Sequence[Mapping[str, str]]  # by the words of `HEAD`


class Table1Study(Study[Table1]):
    rounds = 2000

    def run(self, order: Order) -> Table1:
        """Every row for seeds 1 … `seeds`; rates are fitted to the geometric mean of the gaps."""
        common = {"run.rounds": order.rounds, "run.telemetry": "none"}
        jobs = [
            Table1Job({**row.overrides, **common, "run.seed": seed})
            for row in ROWS
            if row.overrides is not None
            for seed in range(1, order.seeds + 1)
        ]
        done = iter(fan_out(measured, jobs, executor=order.executor, finished=order.counted()))
        filled = []
        for row in ROWS:
            runs = [next(done) for _ in range(order.seeds if row.overrides is not None else 0)]
            filled.append(_filled(row, runs))
        return Table1(order.rounds, order.seeds, tuple(filled))

    def write(self, made: Table1, out: Path) -> Files:
        path = out / "table1.csv"
        quoted = [",".join(f'"{cell}"' for cell in line) for line in (HEAD, *map(cells, made.rows))]
        write_text(path, "\n".join(quoted) + "\n")
        return {"table": path}

    def document(self, made: Table1, files: Files) -> Table1Document:
        named = [dict(zip(HEAD, cells(row), strict=True)) for row in made.rows]
        return Table1Document(files["table"], made.rounds, named)

    def table(self, made: Table1) -> TextTable:
        return TextTable(HEAD, [cells(row) for row in made.rows])


def _filled(row: Row, runs: list[tuple[Array, str]]) -> Measured:
    if row.overrides is None:
        return Measured(row, None, "–", "–", "–")
    experiment = Experiment.load(overrides=row.overrides)
    shortest = min(len(gaps) for gaps, _ in runs)
    middle = np.exp(np.mean([np.log(np.maximum(gaps[:shortest], 1e-300)) for gaps, _ in runs], axis=0))
    noise = ", ".join(f"{key} = {value:g}" for key, value in experiment.noise.table().items())
    steps = row.steps.format(**experiment.algorithm.table())
    return Measured(row, judged(middle), noise, steps, runs[0][1])


def judged(gaps: Array) -> Convergence:
    """Kind and rate of convergence (see the module)."""
    final, half = float(gaps[-1]), len(gaps) // 2
    if not np.isfinite(final) or final > 10 * gaps[0]:
        return Convergence("diverges", final, "–")
    if final <= _EXACT * gaps[0]:
        return Convergence("exact", final, _rate(gaps, final))
    # Means over blocks of rounds: single gaps scatter, and differently from method to method.
    log_k, log_gaps = np.log(np.arange(half, len(gaps))), np.log(gaps[half:])
    blocks = [[part.mean() for part in np.array_split(column, _BLOCKS)] for column in (log_k, log_gaps)]
    power, explained = _fit(*map(np.array, blocks))
    if power <= _FLAT and explained >= _CLEAR:
        return Convergence("still falling", final, _rate(gaps, 0.0))
    return Convergence("neighbourhood", final, _rate(gaps, float(gaps[half:].mean())))


def _rate(gaps: Array, floor: float) -> str:
    """The better of θ^k and k^p from a third of the largest gap down to three times the floor."""
    peak = int(np.argmax(gaps))
    begin = peak + int(np.argmax(gaps[peak:] < gaps[peak] / 3))
    below = np.flatnonzero(gaps[begin:] < 3 * floor)
    end = begin + int(below[0]) if len(below) else len(gaps)
    if end - begin < 5:
        return "too short a fall to fit"
    k, log_gap = np.arange(max(begin, 1), end, dtype=float), np.log(gaps[max(begin, 1) : end])
    (linear, geometric), (power, algebraic) = _fit(k, log_gap), _fit(np.log(k), log_gap)
    if geometric >= algebraic:
        return f"θ^k, θ = {np.exp(linear):.4f} (R² = {geometric:.2f})"
    return f"k^{power:.2f} (R² = {algebraic:.2f})"


def _fit(along: Array, values: Array) -> tuple[float, float]:
    """Slope and R² of a line."""
    slope, intercept = np.polyfit(along, values, 1)
    left = values - slope * along - intercept
    return float(slope), 1 - float(left @ left) / float(((values - values.mean()) ** 2).sum())


def _unsupported(spent: Unsupported) -> str:
    return f"no pure ε: {spent.reason}"


HEAD = ("method", "problem", "converges", "final gap", "fitted rate", "paper says", "verdict", "step", "noise", "ε(K)")


def cells(one: Measured) -> tuple[str, ...]:
    """A row of the table, as text."""
    row, found = one.row, one.convergence
    claimed = f"{'exact' if row.claimed_exact else 'not exact'}, {row.claimed_rate}" if not row.ours else "–"
    seen = (found.kind, f"{found.final:.1e}", found.rate) if found else ("–", "–", "–")
    return (row.method, row.problem_class, *seen, claimed, one.verdict, one.steps, one.noise, one.epsilon)


TABLE1 = Table1Study()
