"""Any algorithm's program in the embedded driver, set up directly, with everything that happens kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.base import AgentContext, AlgorithmSection, EdgeKey, NoiseSection, Program
from dpp2.arrays import Array
from dpp2.embedded import Block, EmbeddedDriver, blocks_of
from dpp2.keys import RunKeys, derive
from dpp2.problems.base import Objective, ProblemSection
from dpp2.schema import parse_kind, parse_section
from tests.core.programs import ETA_KEY, NOISE_KEY

if TYPE_CHECKING:
    from dpp2.weights import Matrix

Tables = dict[str, Any]
NAMES = tuple(section.model_fields["name"].default for section in ALGORITHMS)
EXACT = ("dpp2", "extra", "gradient-tracking", "prox-gpda", "yi", "diadsp", "ppdc", "pgtc")  # without noise
# Noise that is on by default, switched off.
SILENT: dict[str, Tables] = {
    "dpp2": {"u_w": 0.0, "u_e": 0.0},
    "dpp3": {"own": 0.0},
    "diadsp": {"u_x": 0.0, "u_y": 0.0},
    "ppdc": {"u_x": 0.0, "u_v": 0.0},
    "pgtc": {"u_x": 0.0, "u_y": 0.0},
    "dmsp": {"u_x": 0.0},
    "wang-nedic": {"u_x": 0.0},
    "wang-basar": {"sigma": 0.0},
    "privsgp-vr": {"sigma": 0.0},
    "decor": {"own": 0.0},
    "diff2": {"sigma": 0.0, "sigma_difference": 0.0},
}


def sections(name: str, algorithm: Tables, noise: Tables) -> tuple[AlgorithmSection, NoiseSection]:
    section = parse_kind("algorithm", "name", ALGORITHMS, {"name": name, **algorithm})
    return section, parse_section("noise", section.noise_section, noise)


def program(
    name: str,
    objective: Objective,
    owned: Any,
    agents: int,
    algorithm: Tables,
    noise: Tables,
    edges: Sequence[EdgeKey] = (),
) -> Program:
    section, noises = sections(name, algorithm, noise)
    keys = RunKeys((NOISE_KEY,) * len(owned), ETA_KEY)
    at = [edge for edge in edges if set(edge.ends) & set(owned)]
    return section.program(AgentContext(owned, agents, objective, keys, at, len(edges)), noises)


def edge_keys(P: Matrix) -> list[EdgeKey]:
    """A secret for every edge that P has."""
    ends = [(int(i), int(j)) for i, j in np.argwhere(np.triu(P.toarray(), 1))]
    return [EdgeKey(pair, number, derive(NOISE_KEY, "edge", str(number))) for number, pair in enumerate(ends)]


def host(
    name: str,
    P: Matrix,
    problem: ProblemSection,
    x0: Array,
    *,
    algorithm: Tables | None = None,
    noise: Tables | None = None,
    block: int = 4096,
) -> EmbeddedDriver:
    """All agents in blocks, at x0, ready for round 0; without noise unless it is given."""
    agents, dimension = x0.shape
    blocks = []
    for owned in blocks_of(agents, block):
        objective = problem.objective(owned, agents)
        drawn = SILENT.get(name, {}) if noise is None else noise
        own = program(name, objective, owned, agents, algorithm or {}, drawn, edge_keys(P))
        rows = slice(owned.start, owned.stop)
        blocks.append(Block(rows, own, P[rows], own.start(x0[rows])))
    return EmbeddedDriver(blocks, agents, dimension)


def trace(network: EmbeddedDriver, rounds: int, first: int = 0) -> dict[str, Array]:
    """x has rows 0 … K; every phase, noise and grad rows 0 … K−1."""
    kept: dict[str, list[Array]] = {"x": [np.concatenate(network.x)]}
    for k in range(first, first + rounds):
        private = network.round(k, lambda phase, rows: kept.setdefault(phase, []).append(rows.copy()))
        kept["x"].append(np.concatenate(network.x))
        kept.setdefault("grad", []).append(np.concatenate([p.grad for p in private]))
        for noise in private[0].noise:
            parts = [np.broadcast_to(p.noise[noise], p.grad.shape) for p in private]
            kept.setdefault(noise, []).append(np.concatenate(parts))
    return {name: np.array(rows) for name, rows in kept.items()}


def gap(x: Array, grad: Array) -> float:
    spread, total = x - x.mean(axis=0), grad.sum(axis=0)
    return float((spread * spread).sum() + total @ total / len(x))
