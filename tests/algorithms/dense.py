"""The baselines again, from their equations: dense W, histories in lists, loops over agents where that is plainer.

Nothing of the programs is used. Each function takes P, the gradient of all agents at once, x⁰, the noise that was
drawn (one array (K, N, d) per name) and the parameters, and returns what was sent, by phase, and x⁰ … x^K as "x".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpp2.arrays import Array

Gradient = Callable[[Array], Array]
Noise = dict[str, Array]
History = dict[str, list[Array]]


def dgd(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, alpha: float, power: float) -> History:
    W = np.eye(len(P)) - P
    history: History = {"x": [x], "xa": []}
    for k in range(rounds):
        sent = x + noise["noise_x"][k]
        x = W @ sent - alpha / (k + 1) ** power * g(x)
        history["xa"].append(sent)
        history["x"].append(x)
    return history


def extra(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, alpha: float) -> History:
    eye = np.eye(len(P))
    W = eye - P
    xs, sent = [x], [x + noise["noise_x"][0]]
    xs.append(W @ sent[0] - alpha * g(xs[0]))
    for k in range(rounds - 1):
        sent.append(xs[k + 1] + noise["noise_x"][k + 1])
        xs.append((eye + W) @ sent[k + 1] - (eye + W) @ sent[k] / 2 - alpha * (g(xs[k + 1]) - g(xs[k])))
    return {"x": xs, "xa": sent}


def tracking(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, alpha: float) -> History:
    W = np.eye(len(P)) - P
    y = g(x)
    history: History = {"x": [x], "xa": [], "ya": []}
    for k in range(rounds):
        xa, ya = x + noise["noise_x"][k], y + noise["noise_y"][k]
        following = W @ xa - alpha * y
        y = W @ ya + g(following) - g(x)
        x = following
        history["xa"].append(xa)
        history["ya"].append(ya)
        history["x"].append(x)
    return history


def prox_gpda(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, alpha: float, beta: float) -> History:
    lam = np.zeros_like(x)
    history: History = {"x": [x], "xa": []}
    for k in range(rounds):
        sent = x + noise["noise_x"][k]
        if k > 0:
            lam = lam + beta * P @ sent
        x = sent - alpha * (beta * P @ sent + g(x) + lam)
        history["xa"].append(sent)
        history["x"].append(x)
    return history


def published_prox_gpda(A: Array, g: Gradient, x: Array, rounds: int, *, beta: float) -> list[Array]:
    """With degrees and adjacency, as printed."""
    D = np.diag(A.sum(axis=1))
    lam = np.zeros_like(x)
    xs = [x]
    for _ in range(rounds):
        x = np.linalg.inv(2 * beta * D) @ (beta * (D + A) @ x - g(x) - lam)
        lam = lam + beta * (D - A) @ x
        xs.append(x)
    return xs


def primal_dual(
    P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, gamma: float, omega: float, eta: float
) -> History:
    v = np.zeros_like(x)
    history: History = {"x": [x], "xa": []}
    for k in range(rounds):
        xa, va = x + noise["noise_x"][k], v
        if "noise_v" in noise:
            va = v + noise["noise_v"][k]
        x = xa - eta * (gamma * P @ xa + omega * va + g(x))
        v = va + eta * omega * P @ xa
        history["xa"].append(xa)
        history["x"].append(x)
    return history


def pgtc(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, **parameters: Any) -> History:
    """Every agent keeps a copy of everybody's reference, as neighbours do."""
    alpha, gamma, psi = parameters["alpha"], parameters["gamma"], parameters["psi"]
    y = g(x)
    references = [np.zeros_like(x), np.zeros_like(x)]
    history: History = {"x": [x], "cx": [], "cy": []}
    for k in range(rounds):
        xa, ya = x + noise["noise_x"][k], y + noise["noise_y"][k]
        cx, cy = (_compressed(a - c, parameters) for a, c in zip((xa, ya), references, strict=True))
        hat_x, hat_y = references[0] + cx, references[1] + cy
        following = xa - gamma * P @ hat_x - alpha * y
        y = ya - gamma * P @ hat_y + g(following) - g(x)
        x = following
        references = [references[0] + psi * cx, references[1] + psi * cy]
        for name, rows in (("cx", cx), ("cy", cy), ("x", x)):
            history[name].append(rows)
    return history


def _compressed(rows: Array, parameters: dict[str, Any]) -> Array:
    """One number after the other."""
    kind, out = parameters["compressor"], np.zeros_like(rows)
    for i, row in enumerate(rows.tolist()):
        if kind == "none":
            out[i] = row
        elif kind == "top-k":
            for place in sorted(range(len(row)), key=lambda t: -abs(row[t]))[: parameters["keep"]]:
                out[i, place] = row[place]
        else:
            top, levels = max(abs(value) for value in row), 2 ** (parameters["bits"] - 1) - 1
            out[i] = [round(value / top * levels) * top / levels if top else 0.0 for value in row]
    return out


def dmsp(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, c: float, q: float, radius: float) -> History:
    W = np.eye(len(P)) - P
    history: History = {"x": [x], "y": []}
    for t in range(1, rounds + 1):
        y = x + noise["noise_x"][t - 1]
        z = W @ y
        x = _into_ball(z - c * q ** (t - 1) * g(z), radius)
        history["y"].append(y)
        history["x"].append(x)
    return history


def weakening(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, **parameters: Any) -> History:
    history: History = {"x": [x], "xa": []}
    for k in range(rounds):
        chi = parameters["chi"] / (1 + parameters["slowdown"] * k) ** parameters["chi_power"]
        lam = parameters["alpha"] / (1 + parameters["slowdown"] * k) ** parameters["alpha_power"]
        m, grad = x + noise["noise_x"][k], g(x)
        following = np.empty_like(x)
        for i in range(len(x)):
            pull = sum(-P[i, j] * (m[j] - m[i]) for j in range(len(x)) if j != i)  # w_ij = −p_ij
            following[i] = x[i] + chi * pull - lam * grad[i]
        x = following if parameters["radius"] is None else _into_ball(following, parameters["radius"])
        history["xa"].append(m)
        history["x"].append(x)
    return history


def _into_ball(rows: Array, radius: float) -> Array:
    return np.array([row if np.linalg.norm(row) <= radius else row * radius / np.linalg.norm(row) for row in rows])


def privsgp_vr(
    P: Array,
    samples: Callable[[int, int, Array], Array],
    counts: list[int],
    drawn: Callable[[int, int], int],
    x: Array,
    noise: Noise,
    rounds: int,
    *,
    gamma: float,
) -> History:
    """samples(i, s, x) = ∇f_is(x); drawn(k, i): which sample agent i takes in round k."""
    W = np.eye(len(P)) - P
    tables = [[samples(i, s, x[i]) for s in range(m)] for i, m in enumerate(counts)]
    history: History = {"x": [x], "x_half": []}
    for k in range(rounds):
        half = np.empty_like(x)
        for i, table in enumerate(tables):
            s = drawn(k, i)
            fresh = samples(i, s, x[i])
            v = fresh - table[s] + sum(table) / len(table)
            table[s] = fresh
            half[i] = x[i] - gamma * (v + noise["noise_g"][k, i])
        x = W @ half
        history["x_half"].append(half)
        history["x"].append(x)
    return history


def decor(P: Array, g: Gradient, x: Array, noise: Noise, rounds: int, *, gamma: float, power: float) -> History:
    W = np.eye(len(P)) - P
    history: History = {"x": [x], "x_half": []}
    for k in range(rounds):
        half = x - gamma / (k + 1) ** power * (g(x) + noise["own"][k] + noise["edge"][k])
        x = W @ half
        history["x_half"].append(half)
        history["x"].append(x)
    return history


def diff2(g: Gradient, x0: Array, noise: Noise, rounds: int, *, eta: float, restart: int) -> History:
    """One model x for all, after the round that hands out the server's."""
    agents = len(x0)
    history: History = {"x": [x0], "d": [np.zeros_like(x0)]}
    x, before, v = x0[0], x0[0], np.zeros(x0.shape[1])
    history["x"].append(np.tile(x, (agents, 1)))
    for k in range(1, rounds):
        now, then = g(np.tile(x, (agents, 1))), g(np.tile(before, (agents, 1)))
        full = (k - 1) % restart == 0
        d = (now if full else now - then) + noise["noise_d"][k]
        v = d.mean(axis=0) if full else v + d.mean(axis=0)
        before, x = x, x - eta * v
        history["d"].append(np.concatenate([np.zeros((1, x0.shape[1])), d[1:]]))  # the server sends itself nothing
        history["x"].append(np.tile(x, (agents, 1)))
    return history
