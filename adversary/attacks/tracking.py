"""Follows b, s and D through a record: a window of rounds that grows at its end and later gives up its beginning.

Each new round is first fitted alone, then all rounds of the window together (`fitting`). Old errors die out like
Π (τ+η)/(1+τ), so a window of fixed length is enough and the time is linear in the number of rounds. A round's final
estimate is taken when it lies some way inside the window: what precedes it holds D, and what follows it says more,
since noise decays.
"""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks.algebra import replay
from dpp2.adversary.attacks.fitting import Stretch, fit
from dpp2.arrays import Array

_LAG = 40  # rounds in a window
_DAMPED_LAG = 60  # damped runs forget more slowly
_GROWTH = 2  # rounds added at a time
_TINY = float(np.finfo(np.float64).tiny)


class Track:
    """Messages y and increments i (K, n), the scale of residuals (K, n), and b, s, D as far as they are found.

    `exact` says that D0 is the true D of the first round and no guess.
    """

    def __init__(self, y: Array, i: Array, scale: Array, t: float, D0: Array, *, exact: bool) -> None:
        self.y, self.i, self.scale, self.t, self.exact = y, i, scale + _TINY, t, exact
        self.b, self.s, self.D = np.zeros(len(y)), y / t, np.zeros_like(y)
        self.D[0] = D0

    def follow(self) -> tuple[Array, Array, Array]:
        """b (K,), s and D (K, n) of every round."""
        found = self.b.copy(), self.s.copy(), self.D.copy()
        lag = _LAG if self.t == 1 else _DAMPED_LAG
        rounds = len(self.y)
        for begun in range(1, rounds, _GROWTH):
            end = min(begun + _GROWTH, rounds)
            begin = max(0, end - lag)
            self._predict(begun, end)
            self._resolve(begin, end)
            inside = slice(begin + lag // 3 if begin else 0, end)
            for final, current in zip(found, (self.b, self.s, self.D), strict=True):
                final[inside] = current[inside]
        if self.exact:
            found[0][0] = np.nan  # D⁰ = 0 hides it
        return found

    def _predict(self, begin: int, end: int) -> None:
        """Rounds begin … end−1, each b fitted alone: y − t(s + i) = bD up to noise."""
        y, s, D, t = self.y, self.s, self.D, self.t
        for k in range(begin, end):
            D[k] = D[k - 1] + s[k - 1]
            alone = D[k] @ (y[k] - t * (s[k - 1] + self.i[k - 1])) / (D[k] @ D[k] + _TINY)
            self.b[k] = np.clip(alone, 0.0, 1.0)
            s[k] = (y[k] - self.b[k] * D[k]) / t

    def _resolve(self, begin: int, end: int) -> None:
        """Rounds begin … end−1, all b's fitted together; D at the first of them is corrected unless it is exact."""
        rounds, steps = slice(begin, end), slice(begin, end - 1)
        middle = self.scale[(begin + end) // 2]
        weight = np.sqrt(np.mean(middle**2)) / middle  # coordinates whose noise is small count for more
        of_round = np.sqrt(np.mean(self.scale[steps] ** 2, axis=1))
        known = self.exact and begin == 0
        directions = np.stack([self.D[begin], self.s[begin]])[: 0 if known else 2]
        stretch = Stretch(
            self.y[rounds] * weight,
            self.i[steps] * weight,
            of_round,
            self.t,
            self.D[begin] * weight,
            directions * weight,
        )
        self.b[rounds], theta = fit(stretch, self.b[rounds])
        D = self.D[begin] + theta @ directions
        self.s[rounds], self.D[rounds] = replay(self.y[rounds], 1 - self.b[rounds], self.t, D)
