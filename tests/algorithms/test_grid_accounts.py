"""Every algorithm on a coarse grid, its own program in two adjacent worlds: no release moves by more than is charged.

As in `test_baseline_accounts`: a run with one objective is recorded, then agent 0 runs again with an adjacent one, and
the noise is worked out that makes it send the very same. Here values and noise lie on a grid so coarse that rounding
done twice, or carried from one round into the next, would exceed the account at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpp2.arrays import Array
from dpp2.grid import GridNoise, grid, to_grid
from dpp2.inversion import Law
from dpp2.privacy.grid import GridCost
from tests.algorithms import test_baseline_accounts as accounts
from tests.algorithms.hosted import sections
from tests.algorithms.test_baseline_accounts import DECAY, DELTA, LAPLACE, ROUNDS, D, M, U

BITS = 2
SCALE: Array = U * DECAY ** np.arange(ROUNDS, dtype=np.float64)
STEP = np.asarray(grid(SCALE, BITS))
NAMES = (*LAPLACE, "dpp2")


class Given(GridNoise):
    """Noise that was drawn before, on the grid of its round."""

    def __init__(self, drawn: Array) -> None:
        self.drawn = drawn

    def __call__(self, k: int) -> Array:
        rows: Array = self.drawn[k]
        return rows

    def g(self, k: int) -> float:
        return float(STEP[k])

    def covers(self, k: int, values: Array, factors: Array | None = None) -> bool:
        return True


def given_noise(own: Any, noise: dict[str, Array]) -> Any:
    streams = {name: Given(drawn) for name, drawn in noise.items()}
    if set(streams) == {"w", "e"}:
        own.w, own.e = streams["w"], streams["e"]
    else:
        own.noise = streams
    return own


@pytest.fixture(autouse=True)
def on_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"alpha": 0.2, "beta": 0.05, "rho": 2.0}
    monkeypatch.setattr(accounts, "given_noise", given_noise)
    monkeypatch.setattr(accounts, "LAPLACE", {**LAPLACE, "dpp2": (parameters, False)})


def drawn(name: str, seed: int) -> dict[str, Array]:
    step = STEP[:, None, None]
    return {key: to_grid(rows, step) for key, rows in accounts.laplace_noise(name, seed).items()}


def allowed(name: str, bits: int) -> list[Array]:
    """In the order of the messages: the account of DPP² names z first."""
    cost = GridCost(D, Law("laplace", bits))
    charged = [np.exp(cost.charged(logs)) for logs in accounts.mechanism(name).log_releases(ROUNDS)]
    return charged[::-1] if name == "dpp2" else charged


@pytest.mark.parametrize("name", NAMES)
def test_no_pair_needs_more_than_the_account_with_its_grid(name: str) -> None:
    rng = np.random.default_rng(6)
    limits, plain, beyond = allowed(name, BITS), allowed(name, 0), 0
    for seed in range(25):
        turns = rng.normal(size=(ROUNDS, D))
        turns *= DELTA / np.linalg.norm(turns, axis=1, keepdims=True)
        found = accounts.shifts_of(name, rng.uniform(-M, M), turns.__getitem__, drawn(name, seed))
        for limit, bare, needed in zip(limits, plain, found, strict=True):
            assert (needed <= limit * (1 + 1e-9) + 1e-9).all()
            beyond += int((needed > bare * (1 + 1e-9) + 1e-9).sum())
    assert beyond > 5  # rounding does cost: without its price the account would be wrong


@pytest.mark.parametrize("name", NAMES)
def test_the_same_objective_needs_the_noise_that_was_drawn(name: str) -> None:
    found = accounts.shifts_of(name, 1.5, lambda k: np.zeros(D), drawn(name, 3))
    assert max(rows.max() for rows in found) < 1e-9


def test_the_names_are_those_of_all_algorithms_with_a_pure_account() -> None:
    for name in NAMES:
        assert "decay" in type(sections(name, {}, {})[1]).model_fields
