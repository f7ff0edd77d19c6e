"""Everything a run needs before its first round, built and checked from an experiment."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpp2 import keys as keyed
from dpp2.algorithms.base import AgentContext
from dpp2.arrays import Array
from dpp2.embedded import Block, EmbeddedDriver, blocks_of
from dpp2.errors import BadInput, one_line
from dpp2.experiment import Experiment
from dpp2.keys import RunKeys
from dpp2.problems.base import START, agent_rng
from dpp2.topology import Graph
from dpp2.weights import Spectrum, check_weights, spectrum, weight_matrix

if TYPE_CHECKING:
    from dpp2.weights import Matrix


@dataclass(frozen=True, eq=False)
class Secrets:
    """The long-lived keys that a run's keys derive from, and the run's id."""

    agent: bytes
    eta: bytes
    run_id: str

    @classmethod
    def of(cls, experiment: Experiment) -> Secrets:
        """With `run.seed` everything follows from the seed and the digest; without, from the operating system."""
        if isinstance(experiment.run.seed, str):
            return cls(keyed.fresh_key(), keyed.fresh_key(), keyed.fresh_key().hex()[:32])
        seed = keyed.seed_key(experiment.run.seed)
        return cls(keyed.derive(seed, "agent"), keyed.derive(seed, "eta"), experiment.digest[:32])


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A resolved, admissible experiment: its graph, its weights, its secrets."""

    experiment: Experiment
    secrets: Secrets
    graph: Graph
    P: Matrix
    spectrum: Spectrum

    @classmethod
    def of(cls, experiment: Experiment, secrets: Secrets | None = None) -> PreparedRun:
        """Resolve and check; whatever is not admissible is refused here, before anything is computed or written."""
        experiment = experiment.resolve()
        graph = experiment.network.graph()
        P = weight_matrix(graph, experiment.network.weights)
        eigenvalues = spectrum(P)
        check_weights(P, eigenvalues)
        experiment.algorithm.check(eigenvalues, experiment.run.rounds)
        return cls(experiment, secrets or Secrets.of(experiment), graph, P, eigenvalues)

    def driver(self, block: int) -> EmbeddedDriver:
        """All agents, hosted in blocks of at most `block`, at their starting points."""
        hosted = [self._block(owned) for owned in blocks_of(self.graph.agents, block)]
        dimension = hosted[0].program.objective.dimension
        starts = self.starts(dimension)
        for part in hosted:
            part.state = part.program.start(starts[part.rows])
        return EmbeddedDriver(hosted, self.graph.agents, dimension)

    def starts(self, dimension: int) -> Array:
        """x⁰ of all agents."""
        everybody = range(self.graph.agents)
        keys = [self.secrets.agent] * len(everybody)
        return starting_points(self.experiment, everybody, dimension, keys, self.secrets.run_id)

    def data_identity(self, agent: int) -> str:
        """What an agent's ledger is kept under: its data, by content where they come from outside."""
        return hashlib.sha256(self.experiment.problem.data_identity(agent, self.graph.agents)).hexdigest()

    def run_keys(self, owned: Sequence[int]) -> RunKeys:
        """The keys of this run for these agents, which in one process all have the same secret."""
        experiment, secrets = self.experiment, self.secrets
        data = [experiment.problem.data_digest(agent) for agent in owned]
        keys = [secrets.agent] * len(owned)
        return RunKeys.of(keys, secrets.eta, secrets.run_id, experiment.digest, data)

    def _block(self, owned: range) -> Block:
        experiment, agents, bound = self.experiment, self.graph.agents, self.experiment.privacy.feature_bound
        problem = experiment.problem if bound is None else experiment.problem.bounded(bound)
        context = AgentContext(owned, agents, problem.objective(owned, agents), self.run_keys(owned))
        program = experiment.algorithm.program(context, experiment.noise)
        rows = slice(owned.start, owned.stop)
        return Block(rows, program, self.P[rows], state=None)


def starting_points(
    experiment: Experiment, owned: Sequence[int], dimension: int, keys: Sequence[bytes], run_id: str
) -> Array:
    """x⁰ of the owned agents: standard normal (from the seed, or else their secret keys), zero, or a file's."""
    start = experiment.run.start
    if start == "zero":
        return np.zeros((len(owned), dimension))
    if start == "normal":
        seed = experiment.run.seed
        secret = (int.from_bytes(keyed.derive(key, "start", run_id)) for key in keys)
        seeds = secret if isinstance(seed, str) else repeat(seed)
        drawn = [agent_rng(s, START, agent).standard_normal(dimension) for s, agent in zip(seeds, owned, strict=False)]
        return np.stack(drawn)
    return np.asarray(_read_start(Path(start), experiment.network.agents, dimension)[np.asarray(owned)])


def _read_start(path: Path, agents: int, dimension: int) -> Array:
    wanted = f"a .npy, .npz (array x) or .csv file with {agents} rows of {dimension} finite numbers"
    try:
        x = _load(path)
    except Exception as error:  # zip, numpy and csv raise a dozen kinds on a file that is not theirs
        raise BadInput("run.start", str(path), f"{wanted} ({one_line(error)})") from None
    if x.shape != (agents, dimension):
        raise BadInput("run.start", str(path), f"{wanted}, not an array of shape {x.shape}")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise BadInput("run.start", str(path), f"{wanted}, not {x[row, column]:g} in row {row}")
    return x


def _load(path: Path) -> Array:
    if path.suffix not in (".npy", ".npz"):
        with warnings.catch_warnings(action="error"):  # numpy only warns of an empty file
            return np.loadtxt(path, delimiter=",", ndmin=2)
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        x: Array = (loaded["x"] if path.suffix == ".npz" else loaded).astype(np.float64, casting="safe")
        return x
