"""The worst that colluding agents can do to the account of `correlated`: over all sets of a size, or over named sets.

Deleting agents never lowers an exposure, so sets of exactly c agents are enough: smaller ones are never worse.
All of them are looked at while that is cheap; otherwise the answer says what it would take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.correlated import NoiseNetwork, covariance, exposures, parts
from dpp2.privacy.epsilon_value import Unsupported

Colluders = tuple[int, ...]
MOST_OPERATIONS = 3e10  # of additions and multiplications: some ten seconds
_PER_SECOND = 3e9
_PER_SET = 3e6  # operations that one small set costs in any case: about a millisecond
_CONDITION = 1e6  # of Σ: up to here updates of its inverse keep 10 digits, beyond it every inverse is taken anew
_CANDIDATES = 2000  # edges that are tried, at most


@dataclass(frozen=True, eq=False)
class WorstCase:
    """For every agent its largest exposure, and the colluders who bring it about."""

    exposure: Array  # nan for an agent that colludes in every set
    colluders: tuple[Colluders, ...]
    sets: int  # how many were looked at

    def weakest(self, count: int) -> list[int]:
        """The agents with the largest exposure, worst first."""
        order = np.argsort(-np.nan_to_num(self.exposure, nan=-np.inf), kind="stable")
        return [int(agent) for agent in order[:count]]

    @property
    def largest(self) -> float:
        return float(np.nanmax(self.exposure))


def worst_case(network: NoiseNetwork, count: int, most: float = MOST_OPERATIONS) -> WorstCase | Unsupported:
    """Over all sets of at most `count` colluders; no number where that would take more than `most` operations."""
    if not 0 <= count < network.agents:
        raise BadInput("privacy.colluders", count, f"a whole number from 0 to {network.agents - 1}: somebody is honest")
    quick = count > 0 and _may_be_updated(network)
    needed = _operations(network, count, quick)
    if needed > most:
        return Unsupported(_too_many(network.agents, count, needed))
    if quick:
        return _worst_of_updates(network, count)
    return worst_of(network, combinations(range(network.agents), count))


def worst_of(network: NoiseNetwork, sets: Iterable[Sequence[int]]) -> WorstCase:
    """Over these sets, each by itself."""
    search = _Search(network.agents)
    for colluders in sets:
        for agent in colluders:
            if not 0 <= agent < network.agents:
                raise BadInput("privacy.colluders", list(colluders), f"agents from 0 to {network.agents - 1}")
        if len(set(colluders)) == network.agents:
            raise BadInput("privacy.colluders", list(colluders), "sets that leave somebody honest")
        search.offer(tuple(sorted(colluders)), exposures(network, colluders))
    return search.result()


def against_count(network: NoiseNetwork, most_colluders: int) -> list[WorstCase | Unsupported]:
    """The worst case for 0, 1, … colluders."""
    return [worst_case(network, count) for count in range(min(most_colluders, network.agents - 1) + 1)]


def alone(network: NoiseNetwork) -> Array:
    """The exposure of an agent all of whose neighbours collude: only its own noise is left. No set does worse."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / network.own)


class _Search:
    """Keeps the largest exposure of every agent."""

    def __init__(self, agents: int) -> None:
        self.exposure = np.full(agents, np.nan)
        self.colluders: list[Colluders] = [()] * agents
        self.sets = 0

    def offer(self, colluders: Colluders, found: Array) -> None:
        worse = ~np.isnan(found) & ~(found <= self.exposure)  # `not ≤` also replaces nan
        self.exposure[worse] = found[worse]
        for agent in np.flatnonzero(worse):
            self.colluders[agent] = colluders
        self.sets += 1

    def result(self) -> WorstCase:
        return WorstCase(self.exposure, tuple(self.colluders), self.sets)


def _may_be_updated(network: NoiseNetwork) -> bool:
    """Whether inverses may be updated: Gaussian noise, own noise everywhere, and scales not too far apart."""
    if network.kind != "gaussian" or not network.own.all():
        return False
    largest = 2 * covariance(network).diagonal().max()  # Gershgorin's bound on the eigenvalues
    return bool(largest < _CONDITION * network.own.min() ** 2)


def _worst_of_updates(network: NoiseNetwork, count: int) -> WorstCase:
    """One inverse for every set of c − 1; then each further colluder by an update of low rank."""
    search = _Search(network.agents)
    for known in combinations(range(network.agents), count - 1):
        rest = network.honest(known)
        # A colluder has no noise left: any number on its diagonal keeps the matrix regular and apart from the others.
        gone = np.isin(np.arange(network.agents), known)
        inverse = np.asarray(np.linalg.inv(covariance(rest) + np.diag(gone.astype(np.float64))), dtype=np.float64)
        for last in range(known[-1] + 1 if known else 0, network.agents):
            found = _diagonal_without(inverse, rest, last)
            found[[*known, last]] = np.nan
            search.offer((*known, last), np.sqrt(found))
    return search.result()


def _diagonal_without(inverse: Array, network: NoiseNetwork, agent: int) -> Array:
    """The diagonal of Σ⁻¹ after `agent` and its edges are gone, from that with them.

    Its row and column go first, then σ_e² comes off the diagonal of each neighbour (Woodbury's formula).
    """
    column = inverse[:, agent]
    diagonal = np.asarray(inverse.diagonal() - column * column / column[agent])
    touching = (network.edges == agent).any(axis=1)
    if not touching.any():
        return diagonal
    near = network.edges[touching].sum(axis=1) - agent
    block = inverse[:, near] - np.outer(column, column[near]) / column[agent]
    middle = np.diag(network.edge[touching] ** -2.0) - block[near]
    return np.asarray(diagonal + (block * np.linalg.solve(middle, block.T).T).sum(axis=1))


def _operations(network: NoiseNetwork, count: int, quick: bool) -> float:
    """About how many operations a search over all sets takes."""
    N, E = network.agents, len(network.edges)
    if network.kind == "laplace":
        return math.comb(N, count) * (_PER_SET + 100.0 * (N + E))
    if not quick:
        return math.comb(N, count) * (_PER_SET + 2.0 * N**3)
    degrees = np.bincount(network.edges.ravel(), minlength=N).astype(np.float64)
    updates = N * _PER_SET / 10 + 4.0 * N * float((degrees + degrees**2).sum())
    return math.comb(N, count - 1) * (_PER_SET + 2.0 * N**3 + updates)


def _too_many(agents: int, count: int, needed: float) -> str:
    return (
        f"{count} colluders among {agents} agents can be chosen in {math.comb(agents, count):.3g} ways, and looking at "
        f"all of them would take about {needed / _PER_SECOND:.2g} s; ask for fewer colluders, or name sets"
    )


# --- cuts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Colluders who separate agents from the rest, and the edge that would keep them together."""

    colluders: Colluders
    agents: tuple[int, ...]  # cut off: all honest ones but the largest part
    edge: tuple[int, int] | None  # None: no edge between honest agents is missing

    def __str__(self) -> str:
        who = f"agent {self.colluders[0]}" if len(self.colluders) == 1 else f"agents {_listed(self.colluders)}"
        whom = f"agent {self.agents[0]}" if len(self.agents) == 1 else f"agents {_listed(self.agents)}"
        verb = "disconnects" if len(self.colluders) == 1 else "disconnect"
        help_ = f"; the edge {self.edge} would help" if self.edge else ""
        return f"colluding, {who} {verb} {whom}{help_}"


def cuts(network: NoiseNetwork, count: int, most: int = 20_000) -> list[Cut] | Unsupported:
    """The sets of `count` colluders that cut somebody off, those that cut off most agents first.

    None where no edge has noise: there nobody hides behind others, and no edge would help.
    """
    if not network.edge.any():
        return []
    sets = math.comb(network.agents, count)
    if sets > most:
        return Unsupported(f"there are {sets:.3g} sets of {count} agents, and at most {most} are tried")
    noisy = network.edges[network.edge > 0]
    found = [Cut(colluders, lost, None) for colluders, lost in _all_cuts(network.agents, noisy.tobytes(), count)]
    return sorted(found, key=lambda cut: (-len(cut.agents), cut.colluders))


@lru_cache(maxsize=16)
def _all_cuts(agents: int, edges: bytes, count: int) -> tuple[tuple[Colluders, tuple[int, ...]], ...]:
    """Who is cut off by whom. Kept: scales of noise do not matter, and the same network is asked about often."""
    pairs = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    network = NoiseNetwork("gaussian", pairs, np.ones(agents), np.ones(len(pairs)))
    every = ((colluders, _cut_off(network, colluders)) for colluders in combinations(range(agents), count))
    return tuple((colluders, lost) for colluders, lost in every if lost)


def with_remedy(network: NoiseNetwork, cut: Cut) -> Cut:
    """The same cut with the edge under which its worst exposure is smallest."""
    scale = float(np.median(network.edge)) if len(network.edge) else 1.0
    outside = set(cut.colluders) | set(cut.agents)
    rest = [agent for agent in range(network.agents) if agent not in outside]
    pairs = [(min(a, b), max(a, b)) for a in cut.agents for b in rest]

    def worst(pair: tuple[int, int]) -> float:
        return float(np.nanmax(exposures(network.with_edge(pair, scale), cut.colluders)))

    return Cut(cut.colluders, cut.agents, _smallest(worst, pairs))


def _cut_off(network: NoiseNetwork, colluders: Colluders) -> tuple[int, ...]:
    """The honest agents outside the largest honest part."""
    honest = [part for part in parts(network.honest(colluders)) if part[0] not in colluders]
    largest = max(honest, key=len, default=np.empty(0, dtype=np.intp))
    return tuple(sorted(int(agent) for part in honest if part is not largest for agent in part))


def _smallest(worst: Callable[[tuple[int, int]], float], pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The best pair of the first `_CANDIDATES`."""
    return min(islice(sorted(pairs), _CANDIDATES), key=worst, default=None)


def _listed(agents: Sequence[int]) -> str:
    shown = [str(agent) for agent in agents[:8]]
    return ", ".join(shown) + (f" and {len(agents) - 8} more" if len(agents) > 8 else "")
