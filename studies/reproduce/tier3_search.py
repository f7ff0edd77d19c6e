"""The search behind `dpp2 reproduce tier3`: settings for DPP³, for local noise and for the curator, found alike.

Every method tries the same settings on the same seeds, which are not those that are reported: what DPP³ has by default,
and an even filling (Halton) of

    gradient rounds   1 … 60               step       a tenth of DPP³'s default … ten times as much
    slowdown          0 … 20               shrinkage  0 … 100

All are tried on a few seeds; the best of each method on more, and the best of those on many; the best mean wins. DPP³'s
defaults take part to the end. Few seeds do not do: a gap varies by its own size from seed to seed, and the luckiest of
many settings would win. What counts is the held-out accuracy where there is one, and otherwise the gap. All start at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpp2 import Result, run
from dpp2.arrays import Array
from dpp2.studies.reproduce.curator import Curated, curated
from dpp2.studies.reproduce.tier3_settings import Setting

FIRST_SEED = 5101
LOCAL = {"noise.ratio": 0.0}


@dataclass(frozen=True)
class Choice:
    """Settings that a method may have."""

    gradient_rounds: int
    alpha: float
    slowdown: float
    shrinkage: float

    @property
    def overrides(self) -> dict[str, object]:
        return {
            "algorithm.gradient_rounds": self.gradient_rounds,
            "algorithm.alpha": self.alpha,
            "algorithm.slowdown": self.slowdown,
            "algorithm.shrinkage": self.shrinkage,
        }


@dataclass(frozen=True)
class Chosen:
    """What each method won with."""

    ours: Choice
    local: Choice
    curator: Choice


class Stage(NamedTuple):
    """So many settings of each method are tried, on so many seeds in all."""

    settings: int
    seeds: int


Effort = Sequence[Stage]
FULL: Effort = (Stage(16, 4), Stage(4, 12), Stage(2, 36))
QUICK: Effort = (Stage(4, 1), Stage(1, 2))


@dataclass(frozen=True)
class SearchJob:
    setting: Setting
    choice: Choice
    seed: int


class Scores(NamedTuple):
    """Of every method with the same settings: the smaller, the better."""

    ours: float
    local: float
    curator: float


def scores(job: SearchJob) -> Scores:
    asked = job.choice.overrides
    ours = run(job.setting.experiment(job.seed, **asked))
    local = run(job.setting.experiment(job.seed, **asked, **LOCAL))
    trusted = trusted_with(ours, job.setting.epsilon)
    accuracy = ours.experiment.problem.report(trusted.x).get("accuracy")
    return Scores(_score(ours), _score(local), trusted.gap if accuracy is None else -accuracy)


def _score(result: Result) -> float:
    accuracy = result.report.get("accuracy")
    return float(result.metrics.gap[-1]) if accuracy is None else -accuracy


def trusted_with(ours: Result, epsilon: float) -> Curated:
    """The curator with the settings and the draws of this run."""
    assert ours.truth is not None
    return curated(ours.experiment, np.array(ours.truth.own), epsilon)


def choices(setting: Setting, count: int) -> list[Choice]:
    """DPP³'s own, and an even filling."""
    from scipy.stats import qmc

    section: Any = setting.experiment(FIRST_SEED).resolve().algorithm
    own = Choice(section.G, section.alpha, section.slowdown, section.shrinkage)
    found = [own]
    for rounds, step, slow, shrink in qmc.Halton(4, seed=0).random(count - 1).tolist():
        gradients, alpha = round(60**rounds), own.alpha * 10 ** (2 * step - 1)
        found.append(Choice(gradients, float(f"{alpha:.3g}"), round(20 * slow, 2), round(100 * shrink, 1)))
    return found


Trying = Callable[[Sequence[SearchJob]], list[Scores]]


def search(settings: Sequence[Setting], effort: Effort, trying: Trying) -> list[Chosen]:
    """The winner of every method, for each row."""
    found: Found = {}
    left = {setting: [choices(setting, effort[0].settings)] * len(Scores._fields) for setting in settings}
    for stage, following in zip(effort, [*effort[1:], Stage(1, 0)], strict=True):
        seeds = range(FIRST_SEED, FIRST_SEED + stage.seeds)
        jobs = [SearchJob(s, choice, seed) for s in settings for choice in _union(left[s]) for seed in seeds]
        fresh = [job for job in jobs if job not in found]
        found |= zip(fresh, trying(fresh), strict=True)
        kept = following.settings
        left = {setting: _best(setting, found, left[setting], kept, last=not following.seeds) for setting in settings}
    return [Chosen(*(row[0] for row in left[setting])) for setting in settings]


Found = dict[SearchJob, Scores]
Rows = list[list[Choice]]  # of each method


def _best(setting: Setting, found: Found, tried: Rows, count: int, *, last: bool) -> Rows:
    """The best of each method, best first, by the mean over all seeds; but at the end, the defaults beside them."""
    means = _means(setting, found)
    default = next(iter(means))
    ranked = [sorted(row, key=lambda choice, m=m: means[choice][m])[:count] for m, row in enumerate(tried)]  # type: ignore[misc]
    return ranked if last else [list(dict.fromkeys([*row, default])) for row in ranked]


def _union(rows: Rows) -> list[Choice]:
    return list(dict.fromkeys(choice for row in rows for choice in row))


def _means(setting: Setting, found: Found) -> dict[Choice, Array]:
    """Of every method's scores over all seeds, in the order of trying."""
    scored: dict[Choice, list[Scores]] = {}
    for job, scores_ in found.items():
        if job.setting == setting:
            scored.setdefault(job.choice, []).append(scores_)
    return {choice: np.mean(rows, axis=0) for choice, rows in scored.items()}
