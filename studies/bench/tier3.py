"""DPP³ beside DPP²: CPU time of a round, embedded and over nodes, and of the noise that edges add.

DPP³ runs as its defaults have it, one gradient round among many that mix; a round is the mean over a whole run. Over
nodes a run never ends, so there one round in T is a gradient round: more than the defaults have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.edge_keys import EdgeSecret
from dpp2.edge_noise import EdgeNoise
from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import derive, seed_key
from dpp2.prepared import PreparedRun
from dpp2.studies.bench.benchmark import Note
from dpp2.studies.bench.contenders import REPETITIONS, Nodes, nodes, together
from dpp2.studies.bench.timing import cpu_timed, interleaved

SIDES: Mapping[str, Mapping[str, object]] = {
    "paper": {},
    "gaussian": {"algorithm.name": "dpp3"},
    "laplace": {"algorithm.name": "dpp3", "noise.kind": "laplace"},
}
_ROUNDS = 460  # at least, per repetition
_DRAWS = 1_000
_AGENTS, _NODES, _BLOCK = 50, 2, 220  # over nodes: a multiple of the T that the paper's graph needs
_GRADIENTS = 1_000  # that never end while they are measured


@dataclass(frozen=True)
class BesideDpp2:
    """CPU microseconds with DPP² and with both noises of DPP³, and how often DPP²'s time they take."""

    dpp2: float
    gaussian: float
    laplace: float
    gaussian_times: float
    laplace_times: float

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> BesideDpp2:
        dpp2, gaussian, laplace = (1e6 * seconds[name] for name in SIDES)
        return cls(dpp2, gaussian, laplace, gaussian / dpp2, laplace / dpp2)

    def rows(self, what: str, goal: str) -> list[tuple[str, str, str]]:
        return [
            (f"{what}, {name} noise", f"{taken:,.0f} µs of CPU, dpp2 {self.dpp2:,.0f}, {times:.2f}×", goal)
            for name, taken, times in (
                ("Gaussian", self.gaussian, self.gaussian_times),
                ("Laplace", self.laplace, self.laplace_times),
            )
        ]


def rounds(note: Note) -> BesideDpp2:
    """Embedded: the paper's network, 50 agents, d = 10, records on."""
    note("a round of dpp3 beside one of dpp2")
    asked = {name: Experiment.load(overrides=dict(more)).resolve() for name, more in SIDES.items()}
    return BesideDpp2.of(interleaved({name: _of_runs(one) for name, one in asked.items()}))


def _of_runs(experiment: Experiment) -> Callable[[], float]:
    """Per round, of whole runs; what comes before the first round is not measured."""
    K = experiment.run.rounds
    count = -(-_ROUNDS // K)

    def measure() -> float:
        runs = [Simulation(experiment) for _ in range(count)]

        def advance() -> None:
            for run in runs:
                run.advance(K)

        return cpu_timed(advance) / (count * K)

    return measure


def edge_noise(note: Note) -> BesideDpp2:
    """Of a gradient round on the paper's graph: 255 edges, d = 10; of dpp2, w and e of all agents."""
    note("noise of edges beside both noises of dpp2")
    resolved = Experiment.load().resolve()
    graph, d, key = resolved.network.graph(), resolved.objective([0]).dimension, seed_key(1)
    secrets = [EdgeSecret((int(i), int(j)), derive(key, f"{i} {j}"), 100.0) for i, j in graph.edges]
    everybody, scales = range(graph.agents), (np.ones(graph.agents), np.full(graph.agents, 0.999))
    both = [GridNoise([key] * graph.agents, purpose, everybody, d, scales, Law()) for purpose in ("w", "e")]
    draws: dict[str, Callable[[int], object]] = {
        "paper": lambda k: (both[0](k), both[1](k)),
        "gaussian": EdgeNoise("gaussian", secrets, everybody, d),
        "laplace": EdgeNoise("laplace", secrets, everybody, d),
    }
    return BesideDpp2.of(interleaved({name: _of_draws(draw) for name, draw in draws.items()}))


def _of_draws(draw: Callable[[int], object]) -> Callable[[], float]:
    """No round's noise is kept."""

    def all_rounds() -> None:
        for k in range(_DRAWS):
            draw(k)

    return lambda: cpu_timed(all_rounds) / _DRAWS


async def networked(note: Note) -> BesideDpp2:
    """The same agents in two nodes over gRPC; the CPU time of both processes."""
    note(f"dpp3 beside dpp2, {_AGENTS} agents in {_NODES} nodes")
    async with AsyncExitStack() as stack:
        sides = {
            name: await stack.enter_async_context(nodes(_endless(more), together(_AGENTS, _NODES)))
            for name, more in SIDES.items()
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(1 + REPETITIONS):  # the first one warms up
            for name, side in sides.items():
                taken[name].append(await _cpu_of_block(side))
    return BesideDpp2.of({name: median(values[1:]) for name, values in taken.items()})


def _endless(more: Mapping[str, object]) -> PreparedRun:
    gradients = {"algorithm.gradient_rounds": _GRADIENTS} if "algorithm.name" in more else {"run.rounds": 10**5}
    return PreparedRun.of(Experiment.load(overrides={**more, **gradients, "network.agents": _AGENTS}))


async def _cpu_of_block(side: Nodes) -> float:
    """Per round."""
    before = await side.used()
    await side.block(_BLOCK)
    after = await side.used()
    return sum(now.cpu - then.cpu for now, then in zip(after, before, strict=True)) / _BLOCK
