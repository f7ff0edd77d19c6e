"""The product's round program and embedded driver, set up directly: with keys of the test's choosing, state kept.

Through an `Experiment` every parameter enters the digest and with it the noise; a test that changes η and nothing
else must choose its keys itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpp2.algorithms.base import AgentContext
from dpp2.algorithms.dpp2 import Dpp2Noise, Dpp2Section
from dpp2.arrays import Array
from dpp2.embedded import Block, EmbeddedDriver, blocks_of
from dpp2.keys import RunKeys
from dpp2.problems import PROBLEMS, ProblemSection
from dpp2.schema import parse_kind
from dpp2.topology import TOPOLOGIES, Graph
from dpp2.weights import weight_matrix

if TYPE_CHECKING:
    from dpp2.weights import Matrix

NOISE_KEY, ETA_KEY = bytes(range(32)), bytes(range(32, 64))
SILENT = {"u_w": 0.0, "u_e": 0.0}


@dataclass(frozen=True, eq=False)
class Trace:
    """A run: x, d, q have rows 0 … K, everything else rows 0 … K−1."""

    x: Array
    d: Array
    q: Array
    y: Array
    z: Array
    w: Array
    e: Array
    grad: Array
    eta: Array


def graph(topology: str, agents: int, **table: Any) -> Graph:
    section = parse_kind("network", "topology", TOPOLOGIES, {"topology": topology, "agents": agents, **table})
    return section.resolve().graph()


def matrix(topology: str, agents: int, weights: Any = "metropolis", **table: Any) -> Matrix:
    return weight_matrix(graph(topology, agents, **table), weights)


def problem(name: str, agents: int, seed: int = 1, **table: Any) -> ProblemSection:
    return parse_kind("problem", "name", PROBLEMS, {"name": name, **table}).updated(seed=seed).resolve(agents)


def host(
    P: Matrix,
    section: ProblemSection,
    x0: Array,
    *,
    noise: dict[str, Any] | None = None,
    block: int = 4096,
    **algorithm: Any,
) -> EmbeddedDriver:
    """All agents in blocks, at x0, ready for round 0."""
    agents, dimension = x0.shape
    blocks = []
    for owned in blocks_of(agents, block):
        keys = RunKeys((NOISE_KEY,) * len(owned), ETA_KEY)
        context = AgentContext(owned, agents, section.objective(owned, agents), keys)
        program = Dpp2Section(**algorithm).program(context, Dpp2Noise(**(SILENT if noise is None else noise)))
        rows = slice(owned.start, owned.stop)
        blocks.append(Block(rows, program, P[rows], program.start(x0[rows])))
    return EmbeddedDriver(blocks, agents, dimension)


def trace(P: Matrix, section: ProblemSection, x0: Array, rounds: int, **settings: Any) -> Trace:
    """Run and keep everything."""
    network = host(P, section, x0, **settings)
    kept: dict[str, list[Any]] = {name: [] for name in Trace.__dataclass_fields__}

    def keep_state() -> None:
        for name, rows in network.state().items():
            kept[name].append(rows)

    keep_state()
    for k in range(rounds):
        private = network.round(k, lambda phase, rows: kept[phase].append(rows.copy()))
        for name in ("w", "e"):
            parts = [np.broadcast_to(p.noise[name], p.grad.shape) for p in private]
            kept[name].append(np.concatenate(parts))
        kept["grad"].append(np.concatenate([p.grad for p in private]))
        kept["eta"].append(private[0].scalars["eta"])
        keep_state()
    return Trace(**{name: np.array(rows) for name, rows in kept.items()})


def normal(agents: int, dimension: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((agents, dimension))


def assert_close(actual: Any, desired: Any, tolerance: float = 1e-12, least: float = 1.0) -> None:
    """Equal up to `tolerance` of the largest entry (at least of `least`)."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    assert actual.shape == desired.shape
    scale = max(least, float(np.abs(desired).max()))
    assert float(np.abs(actual - desired).max()) <= tolerance * scale


def fit(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Slope and R² of the least-squares line through (x, y)."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slope, intercept = np.polyfit(x, y, 1)
    left = y - slope * x - intercept
    return float(slope), float(1 - left @ left / ((y - y.mean()) @ (y - y.mean())))
