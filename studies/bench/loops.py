"""Two other ways to write the paper's experiment, to measure ours against.

`per_agent` is what a first implementation looks like: a Python loop over agents with NumPy vectors. `vectorised` is
what somebody who knows NumPy writes by hand for this one problem: whole-network arrays, a dense P, one function. Both
draw the same noise from the same streams, take the same metrics and keep the same records as a real run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpp2.algorithms.dpp2 import Dpp2
from dpp2.arrays import Array
from dpp2.keys import Keystream, derive, standard_laplace
from dpp2.problems.logistic import Logistic
from dpp2.simulation import Simulation


@dataclass(frozen=True, eq=False)
class SeededNoise:
    """What the loops draw from: a noise stream, its cipher kept as ours keeps it."""

    stream: Keystream
    u: float
    decay: float


@dataclass(frozen=True, eq=False)
class PaperRun:
    """What both loops need, taken from a prepared simulation so that all three compute the same numbers."""

    P: Array
    neighbours: list[list[int]]
    data: Array  # (N, m, d)
    lambda_: float
    omega: float
    program: Dpp2
    w: SeededNoise
    e: SeededNoise
    x0: Array

    @classmethod
    def of(cls, simulation: Simulation) -> PaperRun:
        (block,) = simulation.driver.blocks
        objective, program = block.program.objective, block.program
        assert isinstance(objective, Logistic)
        assert isinstance(program, Dpp2)
        key = simulation.prepared.run_keys(range(1)).noise[0]
        graph = simulation.prepared.graph
        around = [sorted([i, *graph.neighbours(i)]) for i in range(graph.agents)]
        w, e = (SeededNoise(Keystream(derive(key, "noise", purpose)), 1.0, 0.9) for purpose in ("w", "e"))
        data, x0 = objective.products, block.state.x.copy()
        P = simulation.prepared.P.toarray()
        return cls(P, around, data, objective.lambda_, objective.omega, program, w, e, x0)


def vectorised(run: PaperRun, rounds: int) -> Array:
    """Whole-network arrays, written out for this problem alone."""
    P, A, p = run.P, run.data, run.program
    N, m, d = A.shape
    x, dual, q = run.x0, np.zeros((N, d)), np.zeros((N, d))
    records = {name: np.empty((rounds, N, d)) for name in ("y", "z", "x", "grad", "w", "e")}
    etas, metrics = np.empty(rounds), np.empty((rounds, 4))
    for k in range(rounds):
        w, e, eta = _noise(run.w, k, 0, N).reshape(N, d), _noise(run.e, k, 0, N).reshape(N, d), p.eta(k)
        y = x + (1 - eta) * dual + w
        Ly = P @ y
        odds = np.exp(-(A @ x[:, :, None])[:, :, 0])
        total = 1 + odds
        values = np.log(total).mean(axis=1) + (run.lambda_ * run.omega * x**2 / (1 + run.omega * x**2)).sum(axis=1)
        grad = -((odds / total)[:, None, :] @ A)[:, 0, :] / m
        grad += 2 * run.lambda_ * run.omega * x / (1 + run.omega * x**2) ** 2
        z = grad + eta * q + p.rho * Ly + e
        for name, array in (("y", y), ("z", z), ("x", x), ("grad", grad), ("w", w), ("e", e)):
            records[name][k] = array
        etas[k] = eta
        consensus, stationarity = ((x - x.mean(axis=0)) ** 2).sum(), (grad.sum(axis=0) ** 2).sum() / N
        metrics[k] = consensus + stationarity, consensus, stationarity, values.sum()
        x = x + w - p.alpha * (z - e) + p.beta * (P @ z)
        dual = eta * dual + y
        q = eta * q + p.rho * Ly
    return x


def per_agent(run: PaperRun, rounds: int) -> Array:
    """One agent after the other, as the paper's Algorithm 1 reads."""
    P, A, p = run.P, run.data, run.program
    N, m, d = A.shape
    x, dual, q = [row.copy() for row in run.x0], [np.zeros(d)] * N, [np.zeros(d)] * N
    records = {name: np.empty((rounds, N, d)) for name in ("y", "z", "x", "grad", "w", "e")}
    metrics = np.empty((rounds, 4))
    for k in range(rounds):
        eta, w, e, y, z, grad, value = p.eta(k), [], [], [], [], [], []
        for i in range(N):
            w.append(_noise(run.w, k, i, 1))
            e.append(_noise(run.e, k, i, 1))
            y.append(x[i] + (1 - eta) * dual[i] + w[i])
        Ly = [sum(P[i, j] * y[j] for j in run.neighbours[i]) for i in range(N)]
        for i in range(N):
            odds = np.exp(-(A[i] @ x[i]))
            shrink = 1 + run.omega * x[i] ** 2
            value.append(np.log(1 + odds).mean() + (run.lambda_ * run.omega * x[i] ** 2 / shrink).sum())
            loss = -(odds / (1 + odds)) @ A[i] / m
            grad.append(loss + 2 * run.lambda_ * run.omega * x[i] / shrink**2)
            z.append(grad[i] + eta * q[i] + p.rho * Ly[i] + e[i])
            for name, row in (("y", y), ("z", z), ("x", x), ("grad", grad), ("w", w), ("e", e)):
                records[name][k, i] = row[i]
        mean, total = sum(x) / N, sum(grad)
        consensus, stationarity = sum(((xi - mean) ** 2).sum() for xi in x), (total**2).sum() / N
        metrics[k] = consensus + stationarity, consensus, stationarity, sum(value)
        Lz = [sum(P[i, j] * z[j] for j in run.neighbours[i]) for i in range(N)]
        x = [x[i] + w[i] - p.alpha * (z[i] - e[i]) + p.beta * Lz[i] for i in range(N)]
        dual = [eta * dual[i] + y[i] for i in range(N)]
        q = [eta * q[i] + p.rho * Ly[i] for i in range(N)]
    return np.stack(x)


def _noise(noise: SeededNoise, k: int, agent: int, agents: int) -> Array:
    """The slice of the round's keystream that belongs to these agents (d = 10)."""
    return standard_laplace(noise.stream.words(k, agent * 10, agents * 10)) * (noise.u * noise.decay**k)
