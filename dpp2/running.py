"""`run`: an experiment from Python, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput
from dpp2.experiment import TRANSPORTS, Experiment
from dpp2.metrics import COLUMNS
from dpp2.records import Records
from dpp2.result import Result
from dpp2.rooms import registered
from dpp2.simulation import Simulation
from dpp2.userpython import UserCode, check_not_loading

Metric = Callable[[Array], float]  # of x (N, d)


def run(
    experiment: Experiment | str | Path | None = None,
    *,
    objectives: Sequence[Any] | None = None,
    dimension: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    record: bool = True,
    out: str | Path | None = None,
    processes: int | None = None,
) -> Result:
    """Run an experiment (a file or a shipped one by its name; none: the paper's) and return its result.

    `objectives` has one for each agent: an object with value(x) and gradient(x), or a function of x that returns the
    value, or the value and the gradient; functions take `dimension` beside them. `metrics` are further columns, each a
    function of x (N, d) at x^0 … x^K. `record=False` keeps neither observation nor truth, for runs too large to write
    down. With `run.transport = "grpc"` agents are services in `processes` processes of this machine (default: one
    each). `out` keeps a run directory and charges the ledger beside it, as `dpp2 run` does.

    >>> run(Experiment(network={"agents": 5, "topology": "ring"}, run={"rounds": 3})).observation.y.shape
    (3, 5, 10)
    """
    check_not_loading()
    chosen = Experiment.load(experiment) if isinstance(experiment, str | Path) else experiment or Experiment()
    if not isinstance(chosen, Experiment):
        raise BadInput("experiment", chosen, "an Experiment, a TOML file or the name of a shipped experiment")
    if objectives is not None:
        from dpp2.problems.objects import with_objectives

        chosen = with_objectives(chosen, objectives, dimension)
    elif dimension is not None:
        raise BadInput("dimension", dimension, "objectives beside it; elsewhere problem.dimension says it")
    hook = _Metrics(metrics or {})
    here = chosen.run.transport == TRANSPORTS[0]
    if here and processes is not None:
        raise BadInput("processes", processes, f"run.transport = {TRANSPORTS[1]} beside it: this run is one process")
    if here and out is None:
        return hook.watched(Simulation(chosen, record=record))
    if not record:
        raise BadInput("record", record, "True: a run over nodes, or one that is kept, is on record anyway")
    hook.check(chosen)
    return hook.measured(registered("run")(chosen, out=None if out is None else Path(out), processes=processes))


class _Metrics:
    """The caller's own columns."""

    def __init__(self, functions: Mapping[str, Metric]) -> None:
        self._functions = dict(functions)
        for name in self._functions:
            if name in COLUMNS or not name.isidentifier():
                raise BadInput("metrics", name, f"a word of your own: not {', '.join(COLUMNS)}")

    def check(self, experiment: Experiment) -> None:
        if self._functions and experiment.run.telemetry == "none":
            raise BadInput("metrics", [*self._functions], 'run.telemetry = "full": they are computed from recorded x')

    def watched(self, simulation: Simulation) -> Result:
        """Run to the end; with metrics round by round, so that nothing need be on record."""
        if not self._functions:
            simulation.advance(simulation.remaining)
            return simulation.result()
        found = {0: self._at(np.concatenate(simulation.driver.x))}
        while simulation.remaining:
            simulation.advance(1)
            found[simulation.k] = self._at(np.concatenate(simulation.driver.x))
        return self._with(simulation.result(), [found[k] for k in sorted(found)])

    def measured(self, result: Result) -> Result:
        """The same afterwards, of recorded x."""
        if not self._functions:
            return result
        return self._with(result, [self._at(x) for x in [*result.truth.x, result.x]])

    def _at(self, x: Array) -> list[float]:
        fixed = frozen(x)
        wanted = "a function of x (N, d) that returns a number"
        return [
            UserCode("metrics", name).guarded(wanted, partial(_number, one, fixed))
            for name, one in self._functions.items()
        ]

    def _with(self, result: Result, rows: list[list[float]]) -> Result:
        columns = dict(zip(self._functions, np.array(rows).T, strict=True))
        return replace(result, metrics=Records({**result.metrics, **columns}))


def _number(metric: Metric, x: Array) -> float:
    return float(metric(x))
