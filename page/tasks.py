"""What the worker does for a page that watches a run. It is another process: plain values go in, JSON comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpp2 import Experiment
from dpp2.adversary.attacks import ATTACKS
from dpp2.page.account import account_document
from dpp2.page.documents import compact
from dpp2.page.hearing import heard, truth
from dpp2.page.network import network_document
from dpp2.page.overheard import QUICK
from dpp2.page.overheard import overheard as attacked
from dpp2.page.place import Place
from dpp2.prepared import PreparedRun

_MOST_NUMBERS = 400_000  # of one phase, beyond which attacks that take long are left out


def network(place: Place, name: str, began: Mapping[str, Any] | None) -> str:
    return compact(network_document(_experiment(place), name, dict(began) if began else None))


def account(place: Place, rounds: int, uncovered: int | None) -> str:
    return compact(account_document(PreparedRun.of(_experiment(place)), rounds, uncovered))


def overheard(place: Place, until: int | None, everything: bool) -> str | None:
    """None: nothing has been heard yet, or no more attacks are worth their time."""
    experiment = _experiment(place)
    found = heard(place, experiment, until)
    if found is None or (found.observation is None and not found.leaks):
        return None
    if everything and (found.observation is None or _numbers(found.observation.shape) > _MOST_NUMBERS):
        return None
    return compact(attacked(experiment, found, truth(place, experiment), ATTACKS if everything else QUICK))


def _numbers(shape: tuple[int, int, int]) -> int:
    rounds, agents, dimension = shape
    return rounds * agents * dimension


def _experiment(place: Place) -> Experiment:
    """As the run has resolved it."""
    return Experiment.load(place.run / "experiment.toml").resolve()
