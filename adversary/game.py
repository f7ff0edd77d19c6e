"""The distinguishing game: how well can anybody tell two adjacent objectives apart from what was overheard?

*The pair.* The victim's gradient is ∇f(x) = −Mx + b·v with a secret coin b ∈ {0, 1} and v = (δ/√d)(1, …, 1). The two
differ by δ in the 2-norm, in the direction in which coordinate-wise Laplace noise is weakest, and the curvature −M lets
a difference in x grow as fast as smoothness admits: Δe^k = −a_k·v/δ and Δw^k = α·a_{k−1}·v/δ, with the a_k of
`dpp2.privacy.accountant`, so the bound there is attained.

*The test.* Given O and η, s = x + w, d and q of the victim are known, and with either objective so are all its noises:

    w_b = s − x_b,   e_b = z − q⁺ − ∇f_b(x_b),   x_b⁺ = s − α(z − e_b) + β Σ_j p_ij z_j.

The logarithm of the likelihood ratio, Σ_k (‖w_0‖₁ − ‖w_1‖₁)/(u_w r^k) + (‖e_0‖₁ − ‖e_1‖₁)/(u_e r^k), is the optimal
test (Neyman–Pearson). What the neighbours do cancels out of it, so one neighbour is as good as a network.

*Real bits.* The test is played on the messages as they are. On a grid (bits of `Dpp2Releases`) s and p = ∇f + e are
multiples of its step, and the ratio is that of two bins (`real_bits`); rounded to fewer digits, since rounding spreads
the atoms. In doubles a message may be impossible under one objective: then the ratio is ±∞, and the first z is judged
so. (Later ones would need s to the last bit, which y does not give.)

*Many trials are one run.* The algorithm acts on every coordinate alike, and so do these objectives: T games in d
dimensions are one run in T·d, played by the round program and the noise streams that every run uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from dpp2.adversary.bounds import Coins, Trials
from dpp2.adversary.real_bits import log_ratios
from dpp2.algorithms.base import AgentContext
from dpp2.algorithms.dpp2 import Dpp2Noise, Dpp2Section
from dpp2.arrays import Array
from dpp2.embedded import Block, EmbeddedDriver
from dpp2.errors import BadInput
from dpp2.grid import grid, to_grid
from dpp2.keys import RunKeys, derive, seed_key
from dpp2.privacy import Dpp2Releases, Epsilon, PrivacyProfile, Unsupported, epsilon, largest_rounds, profile

VICTIM = 0
_PAIR_OF_AGENTS = csr_array(np.array([[0.5, -0.5], [-0.5, 0.5]]))  # Metropolis weights of one edge
_COLUMNS = 8192  # coordinates played together: a dozen arrays of that size stay in the processor's cache
_DECIMALS = 9  # the log-ratio has atoms at ±ε: rounding errors must not split them
_COARSE = 4  # the same on a grid, where rounding moves atoms by 2^−b for every message
_FAR_ENOUGH = 50.0  # an ε that no number of trials could confirm


@dataclass(frozen=True)
class Game:
    """One agent's mechanism, the rounds that are played, and the public parameters that do not enter ε."""

    mechanism: Dpp2Releases
    rounds: int
    beta: float = 0.05
    rho: float = 10.0
    damping: float = 0.0

    test: ClassVar[str] = "the optimal test"

    @property
    def epsilon(self) -> float:
        """The accountant's ε, which is finite: a game without noise in every round has nothing to measure."""
        spent = epsilon(self.mechanism, self.rounds)
        if isinstance(spent, Unsupported) or spent.value is None:
            raise BadInput("rounds", self.rounds, f"rounds with a finite ε ({spent})")
        return spent.value


def longest(game: Game) -> Game | Unsupported:
    """The game on as many rounds as can be played: a bound from the first rounds holds for all of them."""
    rounds = largest_rounds(game.mechanism, _FAR_ENOUGH, game.rounds)
    if isinstance(rounds, Unsupported):
        return rounds
    first = epsilon(game.mechanism, 1)
    if isinstance(first, Epsilon) and first.value is None:
        return Unsupported(f"nothing hides round 0 ({first.reason}): the two objectives are told apart with certainty")
    return replace(game, rounds=max(rounds, 1))


def play(game: Game, trials: int, seed: int) -> Trials:
    """Play so many independent games to their end."""
    return play_and_stop(game, trials, seed, [game.rounds])[0]


def play_and_stop(game: Game, trials: int, seed: int, stops: Sequence[int]) -> list[Trials]:
    """The same trials as they stand after each of these numbers of rounds; played in pieces of bounded size."""
    if trials < 1:
        raise BadInput("trials", trials, "a whole number ≥ 1")
    assert math.isfinite(game.epsilon)
    pieces = [_piece(game, size, seed, number, stops) for number, size in enumerate(_pieces(game, trials))]
    coins = np.concatenate([coins for coins, _ in pieces])
    return [Trials(coins, np.concatenate([ratios[n] for _, ratios in pieces])) for n in range(len(stops))]


def predicted(game: Game) -> PrivacyProfile | Unsupported:
    """The privacy-loss distribution of this pair: every release is d independent ones of a d-th of its size.

    In one dimension it is the accountant's. In more, the accountant's also covers pairs that nobody has found.
    """
    m = game.mechanism
    one = profile(replace(m, dimension=1, adjacency=m.adjacency / math.sqrt(m.dimension)), game.rounds)
    if isinstance(one, Unsupported) or m.dimension == 1:
        return one
    return replace(
        one,
        pure=m.dimension * one.pure,
        releases=m.dimension * one.releases,
        added=m.dimension * one.added,
        rounding=m.dimension * one.rounding,
        _distribution=one._distribution.self_compose(m.dimension),
    )


def _pieces(game: Game, trials: int) -> Iterator[int]:
    size = max(_COLUMNS // game.mechanism.dimension, 1)
    for first in range(0, trials, size):
        yield min(size, trials - first)


def _piece(game: Game, trials: int, seed: int, number: int, stops: Sequence[int]) -> tuple[Coins, list[Array]]:
    """So many games as one run. Coins, noise and η depend on the seed and the number of the piece only."""
    key = derive(seed_key(seed), "game", str(number))
    coins = np.random.default_rng(np.frombuffer(key, dtype=np.uint32)).random(trials) < 0.5
    network = _driver(game, coins, key)
    (block,) = network.blocks
    judge, ratios = Judge(game, trials), []
    for k in range(game.rounds):
        sent: dict[str, Array] = {}
        network.round(k, sent.__setitem__)
        judge.hear(k, sent["y"], sent["z"], block.program.eta(k))  # type: ignore[attr-defined]  # DPP²'s own
        if k + 1 in stops:
            ratios.append(judge.log_ratios())
    return coins, ratios


def _driver(game: Game, coins: Coins, key: bytes) -> EmbeddedDriver:
    m = game.mechanism
    section = Dpp2Section(alpha=m.alpha, beta=game.beta, rho=game.rho, damping=game.damping)
    noise = Dpp2Noise(u_w=m.u_w, u_e=m.u_e, decay=m.decay, grid=m.bits)
    objective = Pair(m.smoothness, np.where(np.repeat(coins, m.dimension), _shift(m), 0.0))
    columns = objective.dimension
    program = section.program(AgentContext(range(2), 2, objective, RunKeys((key, key), derive(key, "eta"))), noise)
    block = Block(slice(0, 2), program, _PAIR_OF_AGENTS, program.start(np.zeros((2, columns))))
    return EmbeddedDriver([block], 2, columns)


def _shift(m: Dpp2Releases) -> float:
    """Every coordinate of v."""
    return m.adjacency / math.sqrt(m.dimension)


@dataclass(frozen=True, eq=False)
class Pair:
    """f(x) = −½M‖x‖² + bᵀx of the victim, and +½M‖x‖² of its neighbour: a sum that is flat but for the secret."""

    M: float
    b: Array  # (T·d,)

    @property
    def dimension(self) -> int:
        return len(self.b)

    @property
    def smoothness(self) -> Array:
        return np.full(2, self.M)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        grad = np.array([[-self.M], [self.M]]) * x
        values = 0.5 * np.einsum("nd,nd->n", grad, x)
        values[VICTIM] += self.b @ x[VICTIM]
        grad[VICTIM] += self.b
        return values, grad


class Judge:
    """The likelihood-ratio test, round by round: it hears messages and knows η, never a state or a coin."""

    def __init__(self, game: Game, trials: int) -> None:
        self.game, self.m, self.trials = game, game.mechanism, trials
        columns = trials * self.m.dimension
        self.row = _PAIR_OF_AGENTS.toarray()[VICTIM]
        self.d, self.q = np.zeros(columns), np.zeros(columns)
        self.x = np.zeros((2, columns))  # row b: where the victim is if its coin is b
        self.shifts = np.array([[0.0], [_shift(self.m)]])
        self.total = np.zeros(columns)

    def hear(self, k: int, y: Array, z: Array, eta: float) -> None:
        """All messages of round k, (agents, T·d)."""
        m, t, scale = self.m, 1 + self.game.damping, self.m.decay**k
        step_w, step_e = (float(grid(u * scale, m.bits)) if m.bits else 0.0 for u in (m.u_w, m.u_e))
        s = to_grid((y[VICTIM] - (1 - eta) * self.d) / t, step_w)
        q = eta * self.q + self.game.rho * (self.row @ y)
        grad = -m.smoothness * self.x + self.shifts
        p = to_grid(z[VICTIM] - to_grid(q, step_e), step_e)
        for message, values, u in ((s, self.x, m.u_w), (p, grad, m.u_e)):
            if u > 0:  # otherwise ε is finite only because this noise has nothing to hide yet: w in round 0
                self.total += self._ratios(message, values, u * scale)
        if k == 0 and not m.bits and m.u_e > 0:
            certain = log_ratios(z[VICTIM], (grad[1] + q, grad[0] + q), m.u_e)
            self.total += np.where(np.isinf(certain), certain, 0.0)
        self.x = s - m.alpha * q + self.game.beta * (self.row @ z) - m.alpha * grad
        self.d = self.d + s
        self.q = self.q + (q - self.q) / t

    def _ratios(self, message: Array, values: Array, scale: float) -> Array:
        """ln P(message | coin 1)/P(message | coin 0), coordinate by coordinate."""
        if self.m.bits:
            return log_ratios(message, (values[1], values[0]), scale, self.m.bits)
        size = np.abs(message - values)
        return np.asarray((size[0] - size[1]) / scale)

    def log_ratios(self) -> Array:
        """One per trial, rounded so that its atoms are numbers."""
        decimals = _COARSE if self.m.bits else _DECIMALS
        return np.asarray(np.round(self.total.reshape(self.trials, -1).sum(axis=1), decimals))
