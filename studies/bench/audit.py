"""`dpp2 bench audit`: attacks and game against the run that made the data, and how close the attacks come.

Times are medians of interleaved repetitions in one process; what counts is the ratios. Errors are medians over the
stated rounds of the default experiment (N = 50, K = 500, d = 10, M̄ = 5.03, r = 0.9).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dpp2 import Experiment, Result, Simulation, run
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.attacks.base import Estimate
from dpp2.adversary.findings import Finding, attempt
from dpp2.adversary.game import Game, play
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.tap.local import RelayTap
from dpp2.adversary.views import View, global_view
from dpp2.arrays import Array
from dpp2.privacy import Dpp2Releases
from dpp2.store.documents import plain
from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.bench.contenders import nodes, separately, taking_turns
from dpp2.studies.bench.network import ten_agents
from dpp2.studies.bench.timing import interleaved, timed
from dpp2.studies.tables import TextTable

_LENGTHS = (500, 1000, 2000)  # rounds over which the smoother's time is fitted
_TRIALS, _ONE_BY_ONE, _GAME_ROUNDS = 100_000, 1_000, 20
_OTHERS = ("direct", "telescope", "three-round", "window", "parameter-free")

GOALS = {
    "three_round_times_run": ("three-round on every round, in units of the run's time", "< 1"),
    "smoother_times_run": ("smoother, in units of the run's time", "≤ 100"),
    "smoother_exponent": ("smoother: fitted exponent of its time in K, 500 to 2000", "about 1"),
    "game_times_one_by_one": ("10⁵ games together in units of 10³ one by one, d = 1", "< 1"),
    "game_times_one_by_one_d10": ("the same, d = 10", "< 1"),
    "relay_costs": ("a relay on every link, in rounds per second, 10 agents / 25 edges", "≤ 0.25"),
    "three_round_x": ("three-round, x, rounds 200–320", "≤ 1e-7"),
    "three_round_gradient": ("three-round, gradient, rounds 200–320", "≤ 1e-7"),
    "window_x": ("window, x, from round 400 on", "≤ 1e-10"),
    "window_gradient": ("window, gradient, from round 400 on", "≤ 1e-10"),
    "window_x_damped": ("window, x, damping 1, from round 300 on", "≤ 1e-9"),
    "parameter_free_alpha": ("parameter-free, relative error of α, rounds 200–320", "≤ 1e-6"),
    "parameter_free_beta": ("parameter-free, relative error of β, rounds 200–320", "≤ 1e-6"),
    "smoother_x_from_5": ("smoother, greatest error of x from round 5 on", "< 0.1"),
    "smoother_x_from_20": ("smoother, greatest error of x from round 20 on", "< 0.015"),
    "smoother_times_best": ("smoother, greatest error of x in units of the best other's", "≤ 2"),
}


@dataclass(frozen=True)
class AttackTimes:
    seconds_run: float
    seconds_three_round: float
    seconds_smoother: dict[str, float]  # by the number of rounds
    three_round_times_run: float
    smoother_times_run: float
    smoother_exponent: float


@dataclass(frozen=True)
class GameTimes:
    """In one dimension and in ten."""

    seconds_games_together: float
    seconds_games_one_by_one: float
    game_times_one_by_one: float
    seconds_games_together_d10: float
    seconds_games_one_by_one_d10: float
    game_times_one_by_one_d10: float


@dataclass(frozen=True)
class Accuracy:
    """Of the undamped run; `window_x_damped` of the run with damping 1."""

    three_round_x: float
    three_round_gradient: float
    window_x: float
    window_gradient: float
    parameter_free_alpha: float
    parameter_free_beta: float
    smoother_x_from_5: float
    smoother_x_from_20: float
    smoother_times_best: float
    window_x_damped: float


@dataclass(frozen=True)
class AuditMeasured:
    times: AttackTimes
    games: GameTimes
    relay_costs: float
    accuracy: Accuracy


class AuditBenchmark(Benchmark[AuditMeasured]):
    """Attacks and game against the run that made the data, and how close they come on the default experiment."""

    def measure(self, asked: Bench) -> AuditMeasured:
        asked.note("the default experiment, undamped and damped")
        undamped, damped = run(), run(Experiment.load(overrides={"algorithm.damping": 1.0}))
        asked.note("accuracy")
        accurate = accuracy(undamped, damped)
        costs = asyncio.run(relay_costs(asked.note))
        return AuditMeasured(attack_times(asked.note), game_times(asked.note), costs, accurate)

    def document(self, measured: AuditMeasured) -> Mapping[str, object]:
        """All in one, by the names that `GOALS` has."""
        parts: dict[str, object] = {**plain(measured.times), **plain(measured.games)}
        return {**parts, "relay_costs": measured.relay_costs, **plain(measured.accuracy)}

    def table(self, measured: AuditMeasured) -> TextTable:
        found = self.document(measured)
        rows = [(what, f"{found[key]:.3g}", goal) for key, (what, goal) in GOALS.items()]
        return TextTable(("what", "measured", "goal"), rows, "dpp2 bench audit")


async def relay_costs(note: Note) -> float:
    """The part of the rounds per second that is lost when every link goes through a relay that records it."""
    note("nodes with a relay and without")
    with ten_agents() as simulation, tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        groups = separately(10, 10)
        async with nodes(simulation, groups) as plain, nodes(simulation, groups, tap=RelayTap(Path(folder))) as tapped:
            rates = await taking_turns({"plain": plain, "tapped": tapped}, {"plain": 60, "tapped": 60})
    return 1 - rates["tapped"] / rates["plain"]


def attack_times(note: Note) -> AttackTimes:
    """Three-round and the smoother against the default run; the smoother on longer ones too."""
    note("three-round and smoother against the run")
    attacks = {attack.name: attack for attack in ATTACKS}
    longest = run(Experiment.load(overrides={"run.rounds": _LENGTHS[-1]}))
    views = {length: _view(longest, length) for length in _LENGTHS}
    default, short = Experiment.load(overrides={"run.rounds": _LENGTHS[0]}), views[_LENGTHS[0]]

    def embedded() -> float:
        simulation = Simulation(default)
        simulation.advance(simulation.remaining)
        return simulation.seconds

    def smoothed(view: View) -> float:
        return timed(lambda: attacks["smoother"].run(view))

    measured = {"run": embedded, "three-round": lambda: timed(lambda: attacks["three-round"].run(short))}
    measured |= {f"smoother {length}": lambda view=view: smoothed(view) for length, view in views.items()}  # type: ignore[misc]
    seconds = interleaved(measured)
    by_length = [seconds[f"smoother {length}"] for length in _LENGTHS]
    return AttackTimes(
        seconds_run=seconds["run"],
        seconds_three_round=seconds["three-round"],
        seconds_smoother=dict(zip(map(str, _LENGTHS), by_length, strict=True)),
        three_round_times_run=seconds["three-round"] / seconds["run"],
        smoother_times_run=by_length[0] / seconds["run"],
        smoother_exponent=float(np.polyfit(np.log(_LENGTHS), np.log(by_length), 1)[0]),
    )


def game_times(note: Note) -> GameTimes:
    """Games together against games one after the other, by the same round program."""
    one, ten = (_game_seconds(dimension, note) for dimension in (1, 10))
    return GameTimes(*one, one[0] / one[1], *ten, ten[0] / ten[1])


def _game_seconds(dimension: int, note: Note) -> tuple[float, float]:
    """Many games together, and a few of them one by one."""
    note(f"games in {dimension} dimension{'s' if dimension > 1 else ''}")
    mechanism = Dpp2Releases(
        dimension=dimension, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9
    )
    game = Game(mechanism, _GAME_ROUNDS)
    seconds = interleaved(
        {
            "together": lambda: timed(lambda: play(game, _TRIALS, seed=1)),
            "one_by_one": lambda: timed(lambda: [play(game, 1, seed) for seed in range(_ONE_BY_ONE)]),
        }
    )
    return seconds["together"], seconds["one_by_one"]


def accuracy(undamped: Result, damped: Result) -> Accuracy:
    found = _scored(undamped)
    off = {name: _off(found["parameter-free"].estimate, undamped, name) for name in ("alpha", "beta")}
    smoother = found["smoother"].errors["x"].rounds
    others = np.nanmin([found[name].errors["x"].rounds for name in _OTHERS], axis=0)
    return Accuracy(
        three_round_x=_error(found, "three-round", "x", 200, 321),
        three_round_gradient=_error(found, "three-round", "gradient", 200, 321),
        window_x=_error(found, "window", "x", 400, 500),
        window_gradient=_error(found, "window", "gradient", 400, 500),
        parameter_free_alpha=_median(off["alpha"], 200, 321),
        parameter_free_beta=_median(off["beta"], 200, 321),
        smoother_x_from_5=float(smoother[5:].max()),
        smoother_x_from_20=float(smoother[20:].max()),
        smoother_times_best=float((smoother / others).max()),
        window_x_damped=_error(_scored(damped, ["window"]), "window", "x", 300, 500),
    )


def _view(result: Result, rounds: int) -> View:
    assert result.observation is not None
    whole = Observation.of(result.observation)
    heard = replace(whole, phases={name: rows[:rounds] for name, rows in whole.phases.items()})
    return global_view(heard, Knowledge.of(result.experiment))


def _scored(result: Result, names: Sequence[str] = (*_OTHERS, "smoother")) -> dict[str, Finding]:
    assert result.truth is not None
    view, truth = _view(result, result.rounds), Truth.of(result.truth, result.experiment)
    found = [attempt(attack, view, truth) for attack in ATTACKS if attack.name in names]
    return {one.name: one for one in found if isinstance(one, Finding)}


def _error(found: Mapping[str, Finding], attack: str, what: str, first: int, last: int) -> float:
    return _median(found[attack].errors[what].rounds, first, last)


def _off(estimate: Estimate, result: Result, name: str) -> Array:
    return np.abs(estimate.curves[name] / Knowledge.of(result.experiment).identifiable[name] - 1)


def _median(values: Array, first: int, last: int) -> float:
    return float(np.nanmedian(values[first:last]))


AUDIT = AuditBenchmark()
