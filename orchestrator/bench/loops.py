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
from dpp2.keys import NoiseStream, keystream, standard_laplace
from dpp2.problems.logistic import Logistic
from dpp2.simulation import Simulation


@dataclass(frozen=True, eq=False)
class PaperRun:
    """What both loops need, taken from a prepared simulation so that all three compute the same numbers."""

    P: Array
    neighbours: list[list[int]]
    data: Array  # (N, m, d)
    lambda_: float
    omega: float
    program: Dpp2
    w: NoiseStream
    e: NoiseStream
    x0: Array

    @classmethod
    def of(cls, simulation: Simulation) -> PaperRun:
        (block,) = simulation.network.blocks
        objective, program = block.program.objective, block.program
        assert isinstance(objective, Logistic)
        assert isinstance(program, Dpp2)
        assert isinstance(program.w, NoiseStream)
        assert isinstance(program.e, NoiseStream)
        graph = simulation.setting.graph
        around = [sorted([i, *graph.neighbours(i)]) for i in range(graph.agents)]
        return cls(
            simulation.setting.P.toarray(),
            around,
            objective.products,
            objective.lambda_,
            objective.omega,
            program,
            program.w,
            program.e,
            block.state.x.copy(),
        )


def vectorised(run: PaperRun, rounds: int) -> Array:
    """Whole-network arrays, written out for this problem alone."""
    P, A, p = run.P, run.data, run.program
    N, m, d = A.shape
    x, dual, q = run.x0, np.zeros((N, d)), np.zeros((N, d))
    records = {name: np.empty((rounds, N, d)) for name in ("y", "z", "x", "grad", "w", "e")}
    etas, metrics = np.empty(rounds), np.empty((rounds, 4))
    for k in range(rounds):
        w, e, eta = p.w(k), p.e(k), p.eta(k)
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
            w.append(_noise_of(run.w, k, i))
            e.append(_noise_of(run.e, k, i))
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


def _noise_of(stream: NoiseStream, k: int, agent: int) -> Array:
    """One agent's slice of the round's keystream, drawn alone."""
    (key, first, _), d = stream.slices[0], stream.dimension
    words = keystream(key, k, first + agent * d, d)
    return standard_laplace(words) * (stream.u * stream.decay**k)
