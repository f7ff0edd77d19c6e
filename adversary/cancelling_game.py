"""The distinguishing game for DPP³: was the worst-off agent's gradient 0 or v, for an attacker that hears everything?

*The pair.* Everybody's gradient is 0 but the victim's, which is b·v with a secret coin b and ‖v‖ = δ. The attacker has
the worst colluders beside it: the noise of their edges is taken off before it judges.

*Gaussian noise.* What is left of a gradient round is r ~ N(b·v·e_i, Σ), so the logarithm of the likelihood ratio is
Σ_g vᵀ(S r)_i − ½‖v‖² S_ii with S = Σ⁻¹: the optimal test, and exactly N(∓μ²/2, μ²). Noise is alike in every direction,
so one coordinate is as good as d. A test of a μ-GDP run is right with probability at most Φ(μ/2) for a fair coin: right
guesses bound μ from below, and μ gives ε at the run's δ_dp.

*Laplace noise.* The likelihood of all releases is an integral over the noise of all edges that nobody has solved. The
attacker adds up the honest agents' releases, in which edges cancel. What is left has a law that is known exactly: the
difference of two Gamma(a) variates of scale s, where a is the number of honest holders, in units of the quorum,

    f(y) ∝ |y|^(a−½) K_{a−½}(|y|)        (y in units of s; a = 1: Lap(s), as under shares)

and v = (δ, 0, …, 0) shifts it. So the likelihood ratio of the sum is exact, and for a = 1 its curve is that of Laplace
mechanisms. What edges tell beside the sum is not used: their noise is `ratio` times as large, and so is what is missed.
This pair spends 1/√d of the pure ε, which covers the ℓ1-worst direction, too. So in d dimensions no account is caught
that understates ε by less than √d.

*Mixing rounds* release nothing, so none are played: T = 1 here. Many trials are one run, a column for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, expit, kve, ndtr, ndtri

from dpp2.adversary.bounds import LowerBound, Trials, lower_bound
from dpp2.algorithms.base import AgentContext, EdgeKey
from dpp2.arrays import Array
from dpp2.experiment import Experiment
from dpp2.keys import RunKeys, derive, seed_key
from dpp2.privacy import gdp
from dpp2.privacy.cancelling_releases import CancellingReleases, worst_exposures
from dpp2.privacy.correlated import NoiseNetwork, covariance
from dpp2.privacy.epsilon_value import Unsupported

_COLUMNS = 4096  # played together
_SHARE = 130  # variates that one share takes as long as


@dataclass(frozen=True, eq=False)
class CancellingGame:
    """The worst-off agent of a run, and who colludes against it."""

    experiment: Experiment
    network: NoiseNetwork
    mechanism: CancellingReleases
    victim: int
    colluders: tuple[int, ...]
    exposure: float  # in units of the own scale, not rounded up
    gradient_rounds: int

    @classmethod
    def of(
        cls, experiment: Experiment, releases: list[CancellingReleases], rounds: int
    ) -> CancellingGame | Unsupported:
        network = experiment.algorithm.noise_network(experiment)
        if isinstance(network, Unsupported):
            return network
        worst = worst_exposures(network.in_units(), experiment.privacy.colluders)
        if isinstance(worst, Unsupported):
            return worst
        honest = np.flatnonzero(~np.isnan(worst.exposure)).tolist()
        victim = max(honest, key=lambda agent: (releases[agent].cost(), worst.exposure[agent]))
        mechanism = releases[victim]
        if math.isinf(mechanism.cost()):
            return Unsupported(f"{mechanism.why_infinite()}: the two objectives are told apart with certainty")
        against, exposure = worst.colluders[victim], float(worst.exposure[victim])
        return cls(experiment, network, mechanism, victim, against, exposure, mechanism.released(rounds))

    @property
    def rounds(self) -> int:
        """Of the run, up to the last gradient that is played."""
        return (self.gradient_rounds - 1) * self.mechanism.mixings + 1

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon_of(self.gradient_rounds, self.mechanism.delta)

    @property
    def gaussian(self) -> bool:
        return self.mechanism.noise == "gaussian"

    @property
    def test(self) -> str:
        return "the optimal test" if self.gaussian else "the optimal test of the honest agents' sum"

    @property
    def work(self) -> int:
        """Variates of a trial."""
        edges = len(self.network.edges)
        own = self.mechanism.variates - edges
        return (edges + own * (_SHARE if self.network.quorum > 1 else 1)) * self.gradient_rounds

    @property
    def shift(self) -> float:
        """δ in units of the own scale: what one gradient round moves the sum by."""
        return self.mechanism.adjacency / self.mechanism.own

    @property
    def shape(self) -> float:
        """a: how many Laplace variates the honest agents' own noise adds up to."""
        holders = np.flatnonzero(self.network.own).tolist()
        return len(set(holders) - set(self.colluders)) / self.network.quorum

    @property
    def mu(self) -> float:
        """Of this pair, without what the grid adds to the account."""
        return self.shift * self.exposure * math.sqrt(self.gradient_rounds)


@dataclass(frozen=True)
class GaussianTradeOff:
    """The least false-negative rates of any test between N(0, 1) and N(μ, 1)."""

    mu: float

    def trade_off(self, false_positive: Array, points: int = 0) -> Array:
        return np.asarray(ndtr(ndtri(1 - np.asarray(false_positive)) - self.mu))


@dataclass(frozen=True)
class PureTradeOff:
    """The same of any test on so many releases that cost ε together, each the same share of it, pure.

    Of all such releases randomised response tells most, also composed (Kairouz, Oh and Viswanath 2015): every answer is
    true with the odds e^{ε/G}, and the test counts them. Points in between are convex combinations.
    """

    epsilon: float
    releases: int = 1

    def trade_off(self, false_positive: Array, points: int = 0) -> Array:
        G, wrong = self.releases, float(expit(-self.epsilon / self.releases))
        least = np.arange(1, G + 1)  # so many answers "1" at least, and the test says 1
        positives = betainc(least, G - least + 1, wrong)
        negatives = betainc(G - least + 1, least, wrong)
        rates = np.concatenate([[0.0], positives[::-1], [1.0]]), np.concatenate([[1.0], negatives[::-1], [0.0]])
        return np.asarray(np.interp(false_positive, *rates))


def log_density(y: Array, shape: float) -> Array:
    """ln f, up to a constant, of the difference of two Gamma(shape) variates."""
    size = np.abs(y)
    if shape == 1:
        return -size
    size = np.maximum(size, 1e-12)  # f may have a pole at 0
    order = shape - 0.5
    return np.asarray(order * np.log(size) + np.log(kve(order, size)) - size)


def play(game: CancellingGame, trials: int, seed: int, stops: list[int]) -> list[Trials]:
    """The trials as they stand after each of these numbers of gradients."""
    counts = [min(_COLUMNS, trials - first) for first in range(0, trials, _COLUMNS)]
    pieces = [_piece(game, count, derive(seed_key(seed), "game", str(n)), stops) for n, count in enumerate(counts)]
    coins = np.concatenate([coins for coins, _ in pieces])
    return [Trials(coins, np.concatenate([ratios[n] for _, ratios in pieces])) for n in range(len(stops))]


def proven(game: CancellingGame, trials: Trials, confidence: float) -> LowerBound:
    """ε that the guesses prove; of (ε, δ_dp) under Gaussian noise."""
    if not game.gaussian:
        return lower_bound(trials, confidence)
    right = int(((trials.log_ratios > 0) == trials.coins).sum())
    low = float(betaincinv(right, len(trials.coins) - right + 1, 1 - confidence)) if right else 0.0
    mu = max(2 * float(ndtri(low)), 0.0)
    return LowerBound(gdp.epsilon_at(mu, game.mechanism.delta), confidence, 0.0, len(trials.coins), right)


def _piece(game: CancellingGame, trials: int, key: bytes, stops: list[int]) -> tuple[NDArray[np.bool_], list[Array]]:
    coins = np.random.default_rng(np.frombuffer(key, dtype=np.uint32)).random(trials) < 0.5
    objective = _Secret(game.experiment.network.agents, game.victim, np.where(coins, game.mechanism.adjacency, 0.0))
    table = _Table(game, objective, key)
    total, ratios = np.zeros(trials), []
    for g in range(game.gradient_rounds):
        total += table.log_ratios(table.heard(g))
        if g + 1 in stops:
            ratios.append(total.copy())
    return coins, ratios


@dataclass(frozen=True, eq=False)
class _Secret:
    """Gradients that do not depend on x: 0, and the victim's."""

    agents: int
    victim: int
    b: Array

    @property
    def dimension(self) -> int:
        return len(self.b)

    @property
    def smoothness(self) -> Array:
        return np.zeros(self.agents)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        grad = np.zeros((self.agents, len(self.b)))
        grad[self.victim] = self.b
        return np.einsum("nd,nd->n", grad, x), grad


class _Table:
    """The round program that runs use, and the attacker who hears it."""

    def __init__(self, game: CancellingGame, objective: _Secret, key: bytes) -> None:
        experiment, self.game = game.experiment, game
        section, noise, network = experiment.algorithm, experiment.noise, game.network
        steady = section.steady()
        assert steady is not None  # who releases so has one
        section, self.alpha = steady
        edges = [
            EdgeKey((i, j), number, derive(key, "edge", str(number)))
            for number, (i, j) in enumerate(network.edges.tolist())
        ]
        agents = range(network.agents)
        keys = RunKeys((key,) * network.agents, derive(key, "eta"))
        context = AgentContext(agents, network.agents, objective, keys, edges, len(edges))
        self.program = section.program(context, noise)
        known = [edge for edge in edges if set(edge.ends) & set(game.colluders)]
        self.handed_over = noise.streams(replace(context, edges=known))["edge"]
        self.honest = [agent for agent in agents if agent not in game.colluders]
        self._test()

    def _test(self) -> None:
        if self.game.gaussian:
            network = self.game.network.honest(self.game.colluders)
            self.row = np.linalg.inv(covariance(network)[np.ix_(self.honest, self.honest)])[
                self.honest.index(self.game.victim)
            ]

    def heard(self, g: int) -> Array:
        """Of every agent what its message in gradient round g says of its gradient; x is 0 throughout."""
        zero = np.zeros((self.game.experiment.network.agents, self.program.objective.dimension))
        message = next(self.program.round(self.program.start(zero), g))
        return np.asarray(-message.rows / self.alpha) - self.handed_over(g)

    def log_ratios(self, seen: Array) -> Array:
        """What one gradient round adds; `seen` is (agents, trials)."""
        rows, shift = seen[self.honest], self.game.mechanism.adjacency
        if self.game.gaussian:
            at = self.honest.index(self.game.victim)
            return np.asarray(shift * (self.row @ rows) - 0.5 * shift**2 * self.row[at])
        y, shape = rows.sum(axis=0) / self.game.mechanism.own, self.game.shape
        return log_density(y - self.game.shift, shape) - log_density(y, shape)
