"""DPP² again, as plainly as possible: lists, loops over agents, sums over neighbours. Nothing here is fast.

It shares no line with the product: P, the noise (HKDF by hmac, AES-CTR by encrypting counter blocks one at a
time) and every line of the paper's Algorithm 1 are written out once more, so that an error would have to be made
twice to go unnoticed. Only the objectives are the caller's.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

Vector = list[float]
Rows = dict[int, dict[int, float]]  # rows[i][j] = p_ij, for i itself and its neighbours only
Gradient = Callable[[int, Vector], Vector]  # (agent, x_i) → ∇f_i(x_i)
Noise = Callable[[int, int], Vector]  # (round, agent) → one draw per coordinate


# --- the network -----------------------------------------------------------------------------------------------


def weight_rows(agents: int, edges: Sequence[tuple[int, int]], kind: str) -> Rows:
    """The rows of P for metropolis, laplacian and plain weights."""
    degree = {i: sum(i in edge for edge in edges) for i in range(agents)}
    rows: Rows = {i: {i: 0.0} for i in range(agents)}
    for i, j in edges:
        if kind == "metropolis":
            w = 1 / (1 + max(degree[i], degree[j]))
        elif kind == "laplacian":
            w = 1 / (1 + max(degree.values()))
        else:
            assert kind == "plain"
            w = 1.0
        rows[i][j] = rows[j][i] = -w
        rows[i][i] += w
        rows[j][j] += w
    return rows


# --- the randomness --------------------------------------------------------------------------------------------


def hkdf(key: bytes, *labels: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes; the info is "dpp2/1" and the labels, each after its length."""
    info = b"dpp2/1"
    for label in labels:
        info += struct.pack(">I", len(label)) + label
    extracted = hmac.new(bytes(32), key, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def word(key: bytes, k: int, position: int) -> int:
    """Word `position` of round k: half of the AES-256 encryption of the block (round, position // 2)."""
    counter = struct.pack(">QQ", k, position // 2)
    block = Cipher(AES(key), ECB()).encryptor().update(counter)
    return int(struct.unpack("<QQ", block)[position % 2])


def laplace(random_word: int) -> float:
    """Lap(1): magnitude −log(1 − u) with u the top 52 bits, positive where the lowest bit is set."""
    magnitude = -math.log(1 - (random_word >> 12) / 2**52)
    return magnitude if random_word & 1 else -magnitude


def edge_laplace(random_word: int) -> float:
    """Lap(1) of an edge: U = (1 + lower 52 bits)·2^−G, G from the next 11 bits (not all 0 here), sign on top."""
    m, field = 1 + (random_word & (2**52 - 1)) / 2**52, (random_word >> 52) & 0x7FF
    G = next(n for n in range(1, 12) if field >> (n - 1) & 1)
    return (G * math.log(2) - math.log(m)) * (-1 if random_word >> 63 else 1)


def uniform(random_word: int) -> float:
    """In the middle of one of 2^52 equal cells of (0, 1)."""
    return ((random_word >> 12) + 0.5) / 2**52


def noise_of(run_key: bytes, purpose: str, dimension: int, u: Sequence[float], decay: Sequence[float]) -> Noise:
    """w or e: coordinate c of agent i is word i·d + c of its round, times u_i r_i^k."""
    key = hkdf(run_key, b"noise", purpose.encode())

    def draw(k: int, i: int) -> Vector:
        scale = u[i] * (1.0 if k == 0 else decay[i] ** k)
        return [scale * laplace(word(key, k, i * dimension + c)) for c in range(dimension)]

    return draw


# --- the algorithm ---------------------------------------------------------------------------------------------


@dataclass
class Agent:
    x: Vector
    d: Vector
    q: Vector


@dataclass
class History:
    """What happened, indexed [round][agent][coordinate]; x, d and q have one more row, the end."""

    x: list[list[Vector]] = field(default_factory=list)
    d: list[list[Vector]] = field(default_factory=list)
    q: list[list[Vector]] = field(default_factory=list)
    y: list[list[Vector]] = field(default_factory=list)
    z: list[list[Vector]] = field(default_factory=list)
    w: list[list[Vector]] = field(default_factory=list)
    e: list[list[Vector]] = field(default_factory=list)
    grad: list[list[Vector]] = field(default_factory=list)
    eta: list[float] = field(default_factory=list)


def run(
    rows: Rows,
    gradient: Gradient,
    x0: list[Vector],
    w_noise: Noise,
    e_noise: Noise,
    eta: Callable[[int], float],
    rounds: int,
    *,
    alpha: float,
    beta: float,
    rho: float,
    damping: float = 0.0,
) -> History:
    """The paper's Algorithm 1; with damping τ > 0 the variant of modes.py."""
    agents = [Agent(list(x), [0.0] * len(x), [0.0] * len(x)) for x in x0]  # line 2
    history = History()
    _remember_state(history, agents)
    for k in range(rounds):  # line 3
        _round(history, agents, rows, gradient, w_noise, e_noise, eta(k), k, alpha, beta, rho, 1 + damping)
        _remember_state(history, agents)
    return history


def _round(
    history: History,
    agents: list[Agent],
    rows: Rows,
    gradient: Gradient,
    w_noise: Noise,
    e_noise: Noise,
    eta: float,
    k: int,
    alpha: float,
    beta: float,
    rho: float,
    t: float,
) -> None:
    everyone, coordinates = range(len(agents)), range(len(agents[0].x))
    w = [w_noise(k, i) for i in everyone]  # line 5
    e = [e_noise(k, i) for i in everyone]
    y = [[t * (a.x[c] + w[i][c]) + (1 - eta) * a.d[c] for c in coordinates] for i, a in enumerate(agents)]  # line 6
    grad = [gradient(i, list(agents[i].x)) for i in everyone]
    Ly = [[sum(rows[i][j] * y[j][c] for j in sorted(rows[i])) for c in coordinates] for i in everyone]
    z = [
        [grad[i][c] + eta * agents[i].q[c] + rho * Ly[i][c] + e[i][c] for c in coordinates] for i in everyone
    ]  # line 7
    for i, a in enumerate(agents):
        for c in coordinates:
            Lz = sum(rows[i][j] * z[j][c] for j in sorted(rows[i]))
            a.x[c] = a.x[c] + w[i][c] - alpha * (z[i][c] - e[i][c]) + beta * Lz  # line 8
            if t == 1:
                a.d[c] = eta * a.d[c] + y[i][c]  # line 9
                a.q[c] = eta * a.q[c] + rho * Ly[i][c]  # line 10
            else:
                a.d[c] = a.d[c] + (y[i][c] - (1 - eta) * a.d[c]) / t
                a.q[c] = a.q[c] + (rho * Ly[i][c] - (1 - eta) * a.q[c]) / t
    for name, value in (("w", w), ("e", e), ("y", y), ("z", z), ("grad", grad)):
        getattr(history, name).append(value)
    history.eta.append(eta)


def _remember_state(history: History, agents: list[Agent]) -> None:
    history.x.append([list(a.x) for a in agents])
    history.d.append([list(a.d) for a in agents])
    history.q.append([list(a.q) for a in agents])


# --- the measures ----------------------------------------------------------------------------------------------


def gap(x: list[Vector], grad: list[Vector]) -> tuple[float, float]:
    """(‖x − x̄‖², (1/N)‖Σ_i ∇f_i(x_i)‖²), the two parts of the paper's Ŵ."""
    agents, coordinates = len(x), range(len(x[0]))
    mean = [math.fsum(x[i][c] for i in range(agents)) / agents for c in coordinates]
    consensus = math.fsum((x[i][c] - mean[c]) ** 2 for i in range(agents) for c in coordinates)
    total = [math.fsum(grad[i][c] for i in range(agents)) for c in coordinates]
    return consensus, math.fsum(g * g for g in total) / agents
