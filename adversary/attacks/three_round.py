"""Three rounds break tier one: no η needed, and no beginning.

Up to noise, the rounds k, k+1, k+2 hold four vectors in three unknown ones (s, D and i_k),
    v_0 = y^k = t s + b_k D
    v_1 = y^{k+1} − t i_k = (t + b_{k+1}) s + b_{k+1} D
    v_2 = y^{k+2} − t (i_k + i_{k+1}) = (t + 2b_{k+2}) s + b_{k+2} D + b_{k+2} i_k
    v_3 = i_k
so some combination c of them vanishes: the singular vector of the least singular value. Comparing the coefficients of
i_k, s and D gives
    b_{k+2} = −c_3/c_2,   b_{k+1} = −(t c_0 + c_2 (t + 2b_{k+2}))/c_1 − t,   b_k = −(c_1 b_{k+1} + c_2 b_{k+2})/c_0
and then s and D by least squares. It needs the increments i_k to stand out of the noise: too early they are drowned,
and in a run that stands still they have gone.
"""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks.algebra import Messages, completed, gradient
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_steps, only
from dpp2.adversary.views import View
from dpp2.arrays import Array

_AT_ONCE = 2**21  # numbers per stack of rounds: what fits a cache's worth of memory goes fastest


class ThreeRound(Attack):
    name = "three-round"
    summary = "Finds η, x and the gradient from three consecutive rounds, wherever they lie in the run."
    rounds_in_a_row = 3
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        return lacks_messages(view) or lacks_steps(view) or lacks_three(Messages.of(view))

    def run(self, view: View) -> Estimate:
        messages = Messages.of(view)
        b, s, D = solve(messages)
        s, D = completed(messages, 1 - b, s, D)
        return Estimate(
            self.name,
            x=only(view, s),
            grad=only(view, gradient(messages, view.knowledge.rho, s, D)),
            eta=1 - b,
        )


def lacks_three(messages: Messages) -> str | None:
    """Four vectors are always dependent in fewer than five dimensions."""
    if len(messages.y) < 3:
        return f"needs three rounds in a row, not {len(messages.y)}"
    if messages.coordinates < 5:
        return (
            "needs at least five coordinates of agents whose own and whose neighbours' messages were all overheard, "
            f"not {messages.coordinates}"
        )
    return None


def solve(messages: Messages) -> tuple[Array, Array, Array]:
    """b (K,), s and D (K, followed agents, d) of every round; the last two from the window that ends the record."""
    y, i, t = messages.flat(messages.y), messages.flat(messages.i), messages.t
    stack = max(_AT_ONCE // (4 * y.shape[1]), 1)
    starts = range(0, len(y) - 2, stack)
    parts = [_windows(y[k : k + stack + 2], i[k : k + stack + 2], t) for k in starts]
    b, s, D = (np.concatenate(part) for part in zip(*parts, strict=True))
    for k in (-2, -1):  # s^{k+1} = s^k + i_k and D^{k+1} = D^k + s^k, up to noise
        s, D = np.concatenate([s, s[-1:] + i[k - 1][None]]), np.concatenate([D, D[-1:] + s[-1:]])
    shape = (len(y), len(messages.followed), -1)
    return np.concatenate([b[:, 0], b[-1, 1:]]), s.reshape(shape), D.reshape(shape)


def _windows(y: Array, i: Array, t: float) -> tuple[Array, Array, Array]:
    """b (W, 3), s and D (W, n) of the W = len(y) − 2 windows in a stretch of rounds."""
    v = np.stack([y[:-2], y[1:-1] - t * i[:-2], y[2:] - t * (i[:-2] + i[1:-1]), i[:-2]], axis=1)
    b = _mixing(null_vector(v)[0], t)
    sound = np.asarray(np.isfinite(b).all(axis=1))
    b0, b1, b2 = np.where(sound[:, None], b, 0.0).T
    equations = np.stack([_pair(t, 0, b0), _pair(t, 1, b1), _pair(t, 2, b2)], axis=1)
    v[:, 2] -= b2[:, None] * v[:, 3]
    s, D = np.moveaxis(np.linalg.pinv(equations) @ v[:, :3], 1, 0)
    s[~sound] = D[~sound] = np.nan
    return b, s, D


def _pair(t: float, j: int, b: Array) -> Array:
    """Coefficients of s and D in the j-th message of a window."""
    return np.stack([t + j * b, b], axis=1)


def _mixing(c: Array, t: float) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # no answer is NaN, not a warning
        c0, c1, c2, c3 = c.T
        b2 = -c3 / c2
        b1 = -(t * c0 + c2 * (t + 2 * b2)) / c1 - t
        return np.stack([-(c1 * b1 + c2 * b2) / c0, b1, b2], axis=1)


def null_vector(v: Array) -> tuple[Array, Array]:
    """c (W, m) with Σ_j c_j v_j ≈ 0 for each stack of m vectors (W, m, n), and by how much it stands out (W,).

    c is the singular vector of the least singular value, and it stands out by the ratio of the second least to that.
    Through QR, since the m×m Gram matrix would lose half of the digits. Vectors are brought to one length first.
    """
    length = np.linalg.norm(v, axis=2)
    length[length == 0] = 1.0
    triangle = np.linalg.qr((v / length[:, :, None]).transpose(0, 2, 1), mode="r")
    _, values, vectors = np.linalg.svd(triangle)
    with np.errstate(divide="ignore", invalid="ignore"):
        return vectors[:, -1] / length, values[:, -2] / values[:, -1]
