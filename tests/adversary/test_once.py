"""What several attacks, or several claims, rest on is computed once."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dpp2.adversary.attacks import smoother, window
from dpp2.adversary.attacks.data import Data
from dpp2.adversary.attacks.smoother import Smoother
from dpp2.adversary.attacks.window import Window
from dpp2.adversary.bounds import TradeOff
from dpp2.adversary.understatement import FACTORS, smallest_caught
from dpp2.adversary.views import View
from tests.adversary.attacked import SMALL, attacked


@pytest.fixture(scope="module")
def view() -> View:
    return attacked({**SMALL, "noise.decay": 0.7}).everything


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """A list that grows with every call of this function."""
    calls, work = list[object](), getattr(module, name)

    def counting(*given: object) -> Any:
        calls.append(given)
        return work(*given)

    monkeypatch.setattr(module, name, counting)
    return calls


def test_smoother_and_data_attack_follow_a_run_once(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = counted(monkeypatch, smoother, "_followed")
    fresh = replace(view)
    Smoother().run(fresh)
    Data().run(fresh)
    assert len(followed) == 1


def test_window_and_smoother_solve_a_run_once(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = counted(monkeypatch, window, "solve")
    fresh = replace(view)
    Window().run(fresh)
    Smoother().run(fresh)
    assert len(solved) == 1


class Claimed:
    """A curve that is caught from some factor on."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


@pytest.mark.parametrize("least", [1.0, *FACTORS, 11.0])
def test_few_claims_settle_which_factor_is_caught(least: float) -> None:
    asked: list[float] = []

    class Curve(TradeOff):
        def keeps(self, bound: object) -> bool:
            assert isinstance(bound, Claimed)
            asked.append(bound.factor)
            return bound.factor < least

    curve = Curve(0.9, *(np.zeros(1) for _ in range(4)))
    found = smallest_caught(curve, Claimed, epsilon=20.0, proven=1.0)  # type: ignore[arg-type]  # stands for a curve
    assert found == next((factor for factor in FACTORS if factor >= least), 20.0)
    assert len(asked) <= 5
