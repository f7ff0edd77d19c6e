"""`dpp2 bench core`: the embedded driver against other ways to write it, and against the memory bus.

Times are medians of interleaved repetitions, because a busy machine slows neighbours in time alike; what counts is
the ratios.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.studies.bench import loops
from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.bench.noise import noise
from dpp2.studies.bench.tier3 import BesideDpp2, edge_noise, rounds
from dpp2.studies.bench.timing import interleaved, timed
from dpp2.studies.tables import TextTable

_ROUNDS = 200  # of the paper's experiment, per repetition
_SIZES = (1_000, 10_000, 100_000)
_LARGE = ("network.topology=small-world", "network.neighbours=10", "network.rewire=0.1", "problem.name=quadratic")


@dataclass(frozen=True)
class PaperRates:
    """Rounds per second of the paper's experiment with records: ours, hand-written NumPy, a loop over agents.

    The loops draw noise in doubles, so ours is compared with noise in doubles; what users get is noise on a grid.
    """

    rounds_per_second: float
    rounds_per_second_doubles: float
    rounds_per_second_vectorised: float
    rounds_per_second_per_agent: float
    times_vectorised: float
    times_per_agent: float


@dataclass(frozen=True)
class PeakMemory:
    """In units of the bytes of x, d and q."""

    noise_off: float
    noise_on: float


@dataclass(frozen=True)
class LargeRuns:
    """A ring with chords (mean degree 10), d = 10, quadratic, nothing recorded, up to 100,000 agents."""

    agents: list[int]
    edges: list[int]
    milliseconds_per_round: list[float]
    exponent_in_edges: float
    milliseconds_stream: float
    milliseconds_noise_off: float
    milliseconds_noise_on: float
    times_stream: float
    noise_on_times_off: float
    peak_times_state: PeakMemory


@dataclass(frozen=True)
class CoreMeasured:
    paper: PaperRates
    large: LargeRuns
    noise: list[dict[str, float]]  # seconds per round of one stream, in doubles and on a grid
    tier3: BesideDpp2  # a round
    edge_noise: BesideDpp2  # all noise of a dpp2 round, edge noise of a gradient round


class CoreBenchmark(Benchmark[CoreMeasured]):
    """The embedded driver against a loop over agents, hand-written NumPy, and the memory bus."""

    def measure(self, asked: Bench) -> CoreMeasured:
        note = asked.note
        return CoreMeasured(paper(note), large(note), noise(note), rounds(note), edge_noise(note))

    def table(self, measured: CoreMeasured) -> TextTable:
        rows = [*_paper_rows(measured.paper), *_large_rows(measured.large), *map(_noise_row, measured.noise)]
        rows += measured.tier3.rows("a round of dpp3", "≤ 1")
        rows += measured.edge_noise.rows("noise of 255 edges against both noises of dpp2", "≤ 2")
        return TextTable(("what", "measured", "goal"), rows, "dpp2 bench core")


def _paper_rows(paper: PaperRates) -> list[tuple[str, str, str]]:
    return [
        ("paper's experiment, records on", f"{paper.rounds_per_second:,.0f} rounds/s", ""),
        ("  with noise in doubles", f"{paper.rounds_per_second_doubles:,.0f} rounds/s", ""),
        ("  hand-written vectorised NumPy", f"{paper.rounds_per_second_vectorised:,.0f} rounds/s", ""),
        ("  loop over agents", f"{paper.rounds_per_second_per_agent:,.0f} rounds/s", ""),
        ("  ours against vectorised", f"{paper.times_vectorised:.2f}×", "≥ 1"),
        ("  ours against the loop", f"{paper.times_per_agent:.1f}×", "≥ 5"),
    ]


def _large_rows(large: LargeRuns) -> list[tuple[str, str, str]]:
    sizes = ", ".join(f"{ms:.2f}" for ms in large.milliseconds_per_round)
    peak = large.peak_times_state
    return [
        ("1,000 / 10,000 / 100,000 agents, ms per round", sizes, ""),
        ("  fitted exponent in edges", f"{large.exponent_in_edges:.2f}", "about 1"),
        ("  streaming x, d, q, y, z, P once, ms", f"{large.milliseconds_stream:.2f}", ""),
        ("  round without noise against streaming", f"{large.times_stream:.1f}×", "≤ 6"),
        ("  round with noise against without", f"{large.noise_on_times_off:.2f}×", "≤ 3"),
        ("  peak memory in rounds against x, d, q", f"{peak.noise_off:.2f}×, noise {peak.noise_on:.2f}×", "≤ 3"),
    ]


def _noise_row(row: Mapping[str, float]) -> tuple[str, str, str]:
    shape = f"noise of {row['agents']:,.0f} × {row['dimension']:,.0f}, doubles and grid"
    times = f"{1e6 * row['doubles']:,.1f} and {1e6 * row['grid']:,.1f} µs, {row['times']:.2f}×"
    return shape, times, "≤ 1.5"


def paper(note: Note) -> PaperRates:
    """All on the same run, but for the grid."""
    note("paper's experiment: ours, a hand-written NumPy loop, a loop over agents")
    grid = Experiment.load(overrides={"run.rounds": _ROUNDS})
    doubles = grid.with_setting("noise.grid", 0)
    other = loops.PaperRun.of(Simulation(doubles))

    def ours(experiment: Experiment) -> float:
        simulation = Simulation(experiment)
        simulation.advance(_ROUNDS)
        return simulation.seconds

    seconds = interleaved(
        {
            "ours": lambda: ours(grid),
            "doubles": lambda: ours(doubles),
            "vectorised": lambda: timed(lambda: loops.vectorised(other, _ROUNDS)),
            "per_agent": lambda: timed(lambda: loops.per_agent(other, _ROUNDS // 10)) * 10,
        }
    )
    rates = {name: _ROUNDS / value for name, value in seconds.items()}
    return PaperRates(
        rounds_per_second=rates["ours"],
        rounds_per_second_doubles=rates["doubles"],
        rounds_per_second_vectorised=rates["vectorised"],
        rounds_per_second_per_agent=rates["per_agent"],
        times_vectorised=rates["doubles"] / rates["vectorised"],
        times_per_agent=rates["doubles"] / rates["per_agent"],
    )


def large(note: Note) -> LargeRuns:
    """Every size without noise, the largest with noise and beside a copy through memory."""
    edges, per_round = [], []
    for agents in _SIZES[:-1]:
        note(f"{agents:,} agents")
        quiet = _large(agents, noise=False)
        edges.append(len(quiet.prepared.graph.edges))
        per_round.append(interleaved({"round": lambda s=quiet: _rounds(s)})["round"])  # type: ignore[misc]
    note(f"{_SIZES[-1]:,} agents, noise off and on, beside a copy of x, d, q, y, z and P through memory")
    quiet, noisy = _large(_SIZES[-1], noise=False), _large(_SIZES[-1], noise=True)
    stream = _stream(quiet)
    seconds = interleaved(
        {"quiet": lambda: _rounds(quiet), "noisy": lambda: _rounds(noisy), "stream": lambda: timed(stream)}
    )
    edges.append(len(quiet.prepared.graph.edges))
    per_round.append(seconds["quiet"])
    return LargeRuns(
        agents=list(_SIZES),
        edges=edges,
        milliseconds_per_round=[1e3 * value for value in per_round],
        exponent_in_edges=float(np.polyfit(np.log(edges), np.log(per_round), 1)[0]),
        milliseconds_stream=1e3 * seconds["stream"],
        milliseconds_noise_off=1e3 * seconds["quiet"],
        milliseconds_noise_on=1e3 * seconds["noisy"],
        times_stream=seconds["quiet"] / seconds["stream"],
        noise_on_times_off=seconds["noisy"] / seconds["quiet"],
        peak_times_state=PeakMemory(_peak(quiet), _peak(noisy)),
    )


def _large(agents: int, *, noise: bool) -> Simulation:
    u = 0.01 if noise else 0.0  # small: what is timed is rounds, not the trial that a tenfold rise would call for
    settings = [*_LARGE, f"network.agents={agents}", f"noise.u_w={u}", f"noise.u_e={u}", "run.rounds=100000"]
    simulation = Simulation(Experiment.load(overrides=settings), record=False)
    simulation.advance(2)  # first-time costs are not what is measured
    return simulation


def _rounds(simulation: Simulation) -> float:
    """Seconds per round, over enough rounds to see."""
    rounds = max(10, 100_000 // simulation.prepared.graph.agents)
    before = simulation.seconds
    simulation.advance(rounds)
    return (simulation.seconds - before) / rounds


def _stream(simulation: Simulation) -> Callable[[], None]:
    """Copies one array each the size of x, d, q, y, z, and P, from memory to memory."""
    P, x = simulation.prepared.P, np.concatenate(simulation.driver.x)
    sources = [x + i for i in range(5)] + [P.data, P.indices, P.indptr]
    targets = [np.zeros_like(source) for source in sources]

    def copy() -> None:
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    return copy


def _peak(simulation: Simulation) -> float:
    """Greatest memory taken during rounds above state, graph and data, in units of the bytes of x, d and q."""
    state = sum(array.nbytes for array in simulation.driver.state().values())
    tracemalloc.start()
    simulation.advance(1)  # now everything that a round replaces is known to the tracer
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    simulation.advance(2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - before) / state


CORE = CoreBenchmark()
