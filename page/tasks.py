"""What the worker does for a page that watches a run. It is another process: plain values go in, JSON comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpp2 import Experiment
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.findings import QUANTITIES
from dpp2.adversary.scoring import Truth
from dpp2.metrics import measure as measured
from dpp2.page.account import account_document
from dpp2.page.documents import MeasuredDocument, compact
from dpp2.page.hearing import LIVE, OVER, heard, truth
from dpp2.page.network import network_document
from dpp2.page.overheard import QUICK
from dpp2.page.overheard import overheard as attacked
from dpp2.page.place import Place
from dpp2.prepared import PreparedRun

_POINTS = 240
_MOST_THOROUGH = 400_000  # numbers of one phase, beyond which attacks that take long are left out


@dataclass(frozen=True)
class Found:
    """Documents in JSON, empty where there is none, and the verdict if the eavesdropper has what is protected."""

    overheard: str = ""
    known: str = ""
    measured: str = ""


def network(place: Place, name: str, began: Mapping[str, Any] | None) -> str:
    experiment = _experiment(place)
    symbol = QUANTITIES["gradient" if experiment.algorithm.result_is_covered else "x"]
    document = network_document(experiment, name, dict(began) if began else None)
    return compact(replace(document, resume=place.resume, audited=place.audited(symbol)))


def account(place: Place, rounds: int, uncovered: int | None, now: int = 0) -> str:
    return compact(account_document(PreparedRun.of(_experiment(place)), rounds, uncovered, now))


def overheard(place: Place, until: int | None, how: str, known: str = "", measure: bool = False) -> Found:
    """What an eavesdropper has made of it, and, if asked for, the metrics of the rounds that are on record.

    `how` is live, quick or thorough; `known` is a verdict of an earlier pass: what was known once is known, though
    the end of a long run, which is all that is attacked while it goes on, may not tell it. A thorough pass that would
    not be worth its time finds nothing.
    """
    experiment = _experiment(place)
    found = heard(place, experiment, until, LIVE if how == "live" else OVER)
    observation = found.observation if found else None
    if how == "thorough" and (observation is None or _numbers(observation.shape) > _MOST_THOROUGH):
        return Found()
    true = truth(place, experiment, observation.first if observation else 0)
    measured = compact(measured_document(true)) if measure and true is not None else ""
    if found is None or (observation is None and not found.leaks):
        return Found(measured=measured)
    document = attacked(experiment, found, true, ATTACKS if how == "thorough" else QUICK)
    if known and document.first and not document.broken:
        document = replace(document, verdict=known, broken=True)
    return Found(compact(document), document.verdict if document.broken else "", measured)


def measured_document(true: Truth) -> MeasuredDocument:
    """Gap, consensus and stationarity of some rounds, from x and the gradients."""
    rounds = np.unique(np.linspace(0, len(true.x) - 1, min(len(true.x), _POINTS)).astype(int))  # each costs its time
    points = []
    for k in rounds:
        consensus, stationarity, _ = measured([true.x[k]], [], [true.grad[k]])
        points.append((true.first + int(k), consensus + stationarity, consensus, stationarity))
    return MeasuredDocument(points)


def _numbers(shape: tuple[int, int, int]) -> int:
    rounds, agents, dimension = shape
    return rounds * agents * dimension


def _experiment(place: Place) -> Experiment:
    """As the run has resolved it."""
    return Experiment.load(place.run / "experiment.toml").resolve()
