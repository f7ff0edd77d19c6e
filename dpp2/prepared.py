"""From an experiment to agents that can run: the one place where objectives, keys and starting points are put together.

`PreparedRun` is the public part: resolved, and admissible. `HostedAgents` is what belongs to the agents of one block of
an embedded run, or of one node: the same lines for both, so that both compute the same and refuse the same.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpp2 import keys as keyed
from dpp2.algorithms.base import AgentContext, EdgeKey, Program
from dpp2.arrays import Array
from dpp2.edge_keys import EdgeIdentity, Hello
from dpp2.errors import BadInput, one_line
from dpp2.experiment import Experiment
from dpp2.keys import RunKeys
from dpp2.privacy.account import Account
from dpp2.privacy.ledger import Ledger
from dpp2.problems.base import START, Objective, Sampled, agent_rng
from dpp2.problems.draws import standard_normals
from dpp2.problems.sources import Source, sources_of
from dpp2.theory import Condition
from dpp2.topology import Graph
from dpp2.weights import (
    DENSE_UP_TO,
    Spectrum,
    check_weights,
    edge_weights,
    laplacian,
    network_spectrum,
    sparse_laplacian,
)

if TYPE_CHECKING:
    from dpp2.weights import Matrix

NOBODY: Mapping[int, Hello] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Secrets:
    """The long-lived keys that a run's keys derive from, and the run's id."""

    agent: bytes | Mapping[int, bytes] = field(repr=False)  # one key for all agents here, or one for each
    eta: bytes = field(repr=False)
    run_id: str

    @classmethod
    def of(cls, experiment: Experiment) -> Secrets:
        """With `run.seed` everything follows from the seed and the digest; without, from the operating system."""
        if isinstance(experiment.run.seed, str):
            return cls(keyed.fresh_key(), keyed.fresh_key(), keyed.fresh_key().hex()[:32])
        return cls(*seeded_keys(experiment.run.seed), experiment.digest[:32])

    def with_nonce(self, nonce: bytes) -> Secrets:
        """The keys of agents whose node has drawn a nonce for this run: all that the run draws is of it alone.

            key of the run = HKDF-SHA256(key; nonce)

        Should the run ever be started anew, because everything about it was lost, nothing that it draws is drawn again.
        Without a nonce the keys are what they are: with `run.seed`, and where they were drawn for the run anyway.
        """
        if not nonce:
            return self
        if isinstance(self.agent, bytes):
            return replace(self, agent=keyed.derive(self.agent, "nonce", nonce))
        return replace(self, agent={agent: keyed.derive(key, "nonce", nonce) for agent, key in self.agent.items()})

    def agent_keys(self, owned: Sequence[int]) -> list[bytes]:
        """The key of each of these agents."""
        key = self.agent
        return [key] * len(owned) if isinstance(key, bytes) else [key[agent] for agent in owned]


def seeded_keys(seed: int) -> tuple[bytes, bytes]:
    """The key of all agents, and the η key."""
    key = keyed.seed_key(seed)
    return keyed.derive(key, "agent"), keyed.derive(key, "eta")


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A resolved, admissible experiment: its graph, its weights, its secrets. It holds no agent's data."""

    experiment: Experiment
    secrets: Secrets
    graph: Graph
    edge_weights: Array
    spectrum: Spectrum

    @classmethod
    def of(cls, experiment: Experiment, secrets: Secrets | None = None) -> PreparedRun:
        """Resolve and check; whatever is not admissible is refused here, before anything is computed or written."""
        return cls.resolved(experiment.resolve(), secrets)

    @classmethod
    def resolved(cls, experiment: Experiment, secrets: Secrets | None = None) -> PreparedRun:
        """The same of an experiment that has been resolved: a node need not draw its graph twice."""
        graph = experiment.network.graph()
        weights = edge_weights(graph, experiment.network.weights)
        eigenvalues = network_spectrum(graph, weights)
        prepared = cls(experiment, secrets or Secrets.of(experiment), graph, weights, eigenvalues)
        check_weights(prepared.P if graph.agents > DENSE_UP_TO else laplacian(graph, weights), eigenvalues)
        experiment.algorithm.check(eigenvalues, experiment.run.rounds)
        return prepared

    def again(self, experiment: Experiment) -> Self:
        """Another settled experiment on the same graph and weights, which are not computed anew."""
        experiment.algorithm.check(self.spectrum, experiment.run.rounds)
        return type(self)(experiment, Secrets.of(experiment), self.graph, self.edge_weights, self.spectrum)

    @cached_property
    def P(self) -> Matrix:
        """The weight matrix. Sparse, and made when it is asked for: a node needs its own rows only."""
        return sparse_laplacian(self.graph, self.edge_weights)

    @property
    def run_id(self) -> str:
        return self.secrets.run_id

    def objective(self, owned: Sequence[int] | None = None) -> Objective:
        """The f_i of these agents (none named: of all) as they are run."""
        return self.experiment.objective(owned)

    def run_keys(self, owned: Sequence[int], data: Sequence[bytes] = ()) -> RunKeys:
        """The keys of this run for these agents; `data` has their digests where data come from outside."""
        experiment, secrets = self.experiment, self.secrets
        data = data or [b""] * len(owned)
        return RunKeys.of(secrets.agent_keys(owned), secrets.eta, secrets.run_id, experiment.digest, data)

    def edge_keys(self, owned: Sequence[int], met: Mapping[int, Hello] = NOBODY) -> list[EdgeKey]:
        """The secrets of all edges at these agents; `met`: hellos of neighbours whose keys are not here."""
        if not self.experiment.algorithm.edge_noise:
            return []
        at = np.isin(self.graph.edges, np.asarray(owned)).any(axis=1)
        ends = [(number, *self.graph.edges[number].tolist()) for number in np.flatnonzero(at).tolist()]
        identities = self.edge_identities({agent for _, *pair in ends for agent in pair} - met.keys())
        run = self.run_id, self.experiment.digest

        def key(i: int, j: int) -> bytes:
            own, peer = (i, j) if i in identities else (j, i)
            return identities[own].run_key(met.get(peer) or identities[peer].hello, *run)

        return [EdgeKey((i, j), number, key(i, j)) for number, i, j in ends]

    def edge_identities(self, agents: Iterable[int]) -> dict[int, EdgeIdentity]:
        """From the seed, or from the secret key of each of these agents, which is of this run alone."""
        seed, secrets = self.experiment.run.seed, self.secrets
        if isinstance(seed, int):
            return {agent: EdgeIdentity.seeded(agent, seed, secrets.run_id) for agent in agents}
        named = [*agents]
        keys = zip(named, secrets.agent_keys(named), strict=True)
        return {agent: EdgeIdentity.derived(agent, key, secrets.run_id) for agent, key in keys}

    def starts(self, dimension: int, owned: Sequence[int] | None = None) -> Array:
        """x⁰ of these agents (none named: of all): standard normal, zero, or a file's."""
        run, agents = self.experiment.run, range(self.graph.agents) if owned is None else owned
        if run.start == "zero":
            return np.zeros((len(agents), dimension))
        if run.start == "normal":
            return self._normal_starts(agents, dimension)
        return np.asarray(_read_start(Path(run.start), self.graph.agents, dimension)[np.asarray(agents)])

    def _normal_starts(self, owned: Sequence[int], dimension: int) -> Array:
        """From the run's seed for everybody, or from a seed that the secret key of each agent gives."""
        seed, secrets = self.experiment.run.seed, self.secrets

        def secret(key: bytes) -> int:
            return int.from_bytes(keyed.derive(key, "start", secrets.run_id))

        if isinstance(seed, int) or isinstance(secrets.agent, bytes):
            one = seed if isinstance(seed, int) else secret(secrets.agent)  # type: ignore[arg-type]  # just asked
            return standard_normals(one, START, owned, dimension)
        seeds = zip(map(secret, secrets.agent_keys(owned)), owned, strict=True)
        return np.stack([agent_rng(own, START, agent).standard_normal(dimension) for own, agent in seeds])

    def hosted(self, owned: Sequence[int]) -> HostedAgents:
        """These agents, with their objectives."""
        return HostedAgents(self, owned, self.objective(owned))

    def conditions(self, smoothness: float) -> list[Condition]:
        """Sufficient conditions that the algorithm declares, with M̄ = `smoothness`; none where M̄ is not known."""
        known = np.isfinite([smoothness, self.spectrum.connectivity]).all()
        return self.experiment.algorithm.conditions(smoothness, self.spectrum) if known else []

    def account(self, objective: Objective | None = None) -> Account:
        """What the run costs its agents. Every M_i enters, so this takes the objective of all agents."""
        everybody = range(self.graph.agents)
        return account_of([HostedAgents(self, everybody, objective or self.objective())])


@dataclass(frozen=True, eq=False)
class HostedAgents:
    """Agents that are run together: a block of an embedded run, or what one node hosts. Their data are read."""

    prepared: PreparedRun
    owned: Sequence[int]
    objective: Objective

    def with_secrets(self, secrets: Secrets) -> HostedAgents:
        """The same agents in the run that these secrets belong to."""
        return replace(self, prepared=replace(self.prepared, secrets=secrets))

    def program(self, met: Mapping[int, Hello] = NOBODY) -> Program:
        """The round program with the keys of the run; `met`: hellos of neighbours that are hosted elsewhere."""
        return self._program(self.prepared.edge_keys(self.owned, met))

    def program_without_edges(self) -> Program:
        """To start from, while neighbours are still to say hello. No round may be run with it."""
        return self._program(())

    def hellos(self) -> dict[int, Hello]:
        """What these agents tell neighbours elsewhere about their edges; nothing where a seed tells everything."""
        if not self.prepared.experiment.shares_edge_secrets:
            return {}
        return {agent: one.hello for agent, one in self.prepared.edge_identities(self.owned).items()}

    def _program(self, edge_keys: Sequence[EdgeKey]) -> Program:
        experiment, graph = self.prepared.experiment, self.prepared.graph
        run_keys = self.prepared.run_keys(self.owned, self._digests())
        context = AgentContext(self.owned, graph.agents, self.objective, run_keys, edge_keys, len(graph.edges))
        return experiment.algorithm.program(context, experiment.noise)

    def start(self, program: Program) -> Any:
        """The state before round 0."""
        return program.start(self.prepared.starts(self.objective.dimension, self.owned))

    @cached_property
    def _sources(self) -> Mapping[int, Source]:
        """Of the data as they were read, whatever lies in their place now; none where the experiment draws them."""
        sources = sources_of(self.objective)
        return dict(zip(self.owned, sources, strict=True)) if sources else {}

    def _digests(self) -> list[bytes]:
        return [source.digest for source in self._sources.values()]

    @property
    def data_digest(self) -> bytes:
        """Of all data that come from outside; nothing where the experiment draws them. Private, as the data are."""
        digests = self._digests()
        return hashlib.sha256(b"".join(digests)).digest() if digests else b""

    def ledger(self, agent: int) -> Ledger:
        """An empty one, under the agent's data: by value where they come from outside."""
        problem, agents = self.prepared.experiment.problem, self.prepared.graph.agents
        source = self._sources.get(agent, Source(b""))
        identity = hashlib.sha256(problem.data_identity(agent, agents, source.digest)).hexdigest()
        named = () if problem.dataset is None else (f"dataset {problem.dataset}",)
        return Ledger(str(agent), identity, known_as=(*source.known_as, *named))


def account_of(hosted: Sequence[HostedAgents]) -> Account:
    """The account of these agents. Of others nothing is known here but what the experiment says."""
    prepared = hosted[0].prepared
    smoothness = np.zeros(prepared.graph.agents)
    for part in hosted:
        smoothness[np.asarray(part.owned)] = part.objective.smoothness
    records = _record_counts(hosted) if prepared.experiment.privacy.clip is not None else None
    account = Account.of(prepared.experiment, smoothness, hosted[0].objective.dimension, records)
    own = [agent for part in hosted for agent in part.owned] if account.mechanisms else ()
    return replace(account, mechanisms=tuple(account.mechanisms[agent] for agent in own))


def _record_counts(hosted: Sequence[HostedAgents]) -> list[int]:
    """m_i of every agent. Of those that are not hosted nothing is known: they get the number of one that is."""
    known: dict[int, int] = {}
    for part in hosted:
        assert isinstance(part.objective, Sampled)  # `privacy.clip` takes no other
        known |= zip(part.owned, part.objective.sample_counts().tolist(), strict=True)
    some = next(iter(known.values()))
    return [known.get(agent, some) for agent in range(hosted[0].prepared.graph.agents)]


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
