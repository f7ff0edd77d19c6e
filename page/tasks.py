"""What the worker does for a page that watches a run. It is another process: plain values go in, JSON comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpp2 import Experiment
from dpp2.adversary.attacks import ATTACKS
from dpp2.page.account import account_document
from dpp2.page.documents import compact
from dpp2.page.hearing import LIVE, OVER, heard, truth
from dpp2.page.network import network_document
from dpp2.page.overheard import QUICK
from dpp2.page.overheard import overheard as attacked
from dpp2.page.place import Place
from dpp2.prepared import PreparedRun

_MOST_THOROUGH = 400_000  # numbers of one phase, beyond which attacks that take long are left out


def network(place: Place, name: str, began: Mapping[str, Any] | None) -> str:
    return compact(network_document(_experiment(place), name, dict(began) if began else None))


def account(place: Place, rounds: int, uncovered: int | None) -> str:
    return compact(account_document(PreparedRun.of(_experiment(place)), rounds, uncovered))


def overheard(place: Place, until: int | None, how: str, known: str = "") -> tuple[str, str] | None:
    """The document, and its verdict if the eavesdropper has what is protected.

    `how` is live, quick or thorough; `known` is such a verdict of an earlier pass: what was known once is known,
    though the end of a long run, which is all that is attacked while it goes on, may not tell it. None: nothing has
    been heard yet, or no more attacks are worth their time.
    """
    experiment = _experiment(place)
    found = heard(place, experiment, until, LIVE if how == "live" else OVER)
    observation = found.observation if found else None
    if found is None or (observation is None and not found.leaks):
        return None
    if how == "thorough" and (observation is None or _numbers(observation.shape) > _MOST_THOROUGH):
        return None
    true = truth(place, experiment, observation.first if observation else 0)
    document = attacked(experiment, found, true, ATTACKS if how == "thorough" else QUICK)
    if known and document.first and not document.broken:
        document = replace(document, verdict=known, broken=True)
    return compact(document), document.verdict if document.broken else ""


def _numbers(shape: tuple[int, int, int]) -> int:
    rounds, agents, dimension = shape
    return rounds * agents * dimension


def _experiment(place: Place) -> Experiment:
    """As the run has resolved it."""
    return Experiment.load(place.run / "experiment.toml").resolve()
