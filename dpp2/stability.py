"""Is a growing gap divergence, or noise? Knows nothing of any algorithm: it watches gaps and asks for a trial.

A rising gap only raises the suspicion. What convicts is that the run, continued on trial without any noise, goes on
growing; curvature at one point would not do, since a nonconvex run passes through negative curvature and recovers.
A trial that neither doubles nor falls to a tenth is continued: growth by 0.05 % a round is divergence, too. It may
become as long as the run has been so far, so that it never costs more; that is enough, because growth that has lifted
the gap tenfold in k rounds doubles it in k/2 more. Where the algorithm's spectral radius at the end of the trial is
known, it says whether to go on at all; a radius below 1 + 1e-5 is taken for stable.

Where the radius is not known, a trial that doubles is continued as well. Noise that a dual or a tracking variable has
added up acts as a constant push: without any further noise the gap still rises, at most like k², to where the push is
balanced. Divergence rises by a factor a round. So after the first 200 rounds n more are tried, n = 250, 500, 1000, and
the highest gap of their second half is compared with that of their first. What has doubled in 200 rounds and keeps its
rate triples for n = 1000 at the latest (in 500 rounds, that is); k² never does: (1200/700)² < 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dpp2.arrays import Array

Gradient = Callable[[Array], Array]

WATCH_EVERY = 25  # rounds between looks, at least
HOPELESS = 1e100  # a gap that no noise of a sane experiment reaches
_TRIAL = 200  # rounds without noise that settle most suspicions
_SUSPICIOUS = 10.0  # times the gap at x⁰
_FALLEN = 0.1  # of the gap in the first half of a trial: more than any oscillation takes away
_UNSTABLE = 1 + 1e-5  # a spectral radius above is no rounding: a Hessian by differences has six digits
_FURTHER = (250, 500, 1000)  # rounds after a trial that has doubled
_TRIPLED = 3.0  # from one half of those to the other: more than k² gives
_LEVEL = 1.25  # from one half to the other: less than a rise that keeps its rate would give
_LONGEST = 20_000  # rounds of a trial that a radius calls for, where the run itself has not been that long


@dataclass(frozen=True)
class Divergence:
    """That a run diverged, in which round this was plain, how fast it grows and why."""

    round: int
    growth: float  # of the amplitude, per round; nan where nothing could be linearised
    cause: str  # "negative curvature", "step too large", "unbounded below" or "unexplained"
    explanation: str


class Trial(Protocol):
    """A run that goes on without noise; the one that is watched stays where it is."""

    @property
    def x(self) -> Array: ...

    def gaps(self, rounds: int) -> Array:
        """The gaps of so many further rounds."""


class Watched(Protocol):
    """What the detector asks of a run."""

    def trial(self, k: int) -> Trial:
        """From round k on."""

    def spectral_radius(self, x: Array) -> float:
        """Of the noise-free iteration linearised at x; nan where it is not known."""

    def instability(self, x: Array, k: int) -> Divergence | None:
        """Why a run that diverges does so, as seen at x."""


class DivergenceDetector:
    """Tells divergence from the rise that noise alone drives (by orders of magnitude, where it starts large)."""

    def __init__(self, run: Watched, period: int = 1) -> None:
        """`period`: rounds after which gaps are comparable again."""
        self._run = run
        self.every = period * math.ceil(WATCH_EVERY / period)
        self._start: Array | None = None
        self._cleared = 0.0  # a rise up to here has been looked into and was noise
        self.divergence: Divergence | None = None

    def check(self, gaps: Array, k: int, x: Sequence[Array]) -> None:
        """Judge the gap at x^k, given all gaps up to it. To look after every `every` rounds is enough."""
        if self._start is None:
            self._start = np.concatenate(x)
        gap, before = gaps[k], gaps[max(k - self.every, 0)]
        broken = not gap < HOPELESS  # nan is broken, too
        rising = gap > max(_SUSPICIOUS * gaps[0], 2 * self._cleared, before)
        if broken or (rising and self._goes_on_growing(k)):
            unknown = Divergence(k, float("nan"), "unexplained", "the gap grows without bound")
            self.divergence = self._run.instability(self._sane(np.concatenate(x)), k) or unknown
        elif rising:
            self._cleared = gap

    def convict(self, k: int, x: Sequence[Array], why: str) -> None:
        """What the run would send in round k is beyond what may be sent: it has diverged, whatever the gap says."""
        at = np.concatenate(x)
        self._start = at if self._start is None else self._start
        found = self._run.instability(self._sane(at), k)
        if found is None:
            found = Divergence(k, float("nan"), "unexplained", why)
        elif found.cause == "unexplained":
            found = replace(found, explanation=f"{why}: {found.explanation}")
        self.divergence = found

    def state(self) -> dict[str, Array]:
        """What a checkpoint must keep so that a resumed run is judged like one that never stopped."""
        start = np.empty((0, 0)) if self._start is None else self._start
        return {"watch.start": start, "watch.cleared": np.array(self._cleared)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self._start = state["watch.start"] if len(state["watch.start"]) else None
        self._cleared = float(state["watch.cleared"])

    def _goes_on_growing(self, k: int) -> bool:
        trial = self._run.trial(k + 1)
        gaps = trial.gaps(_TRIAL)
        if _grows(gaps):
            return not math.isnan(self._run.spectral_radius(trial.x)) or _keeps_its_rate(trial, gaps)
        longest = 0 if _change(gaps) < _FALLEN else _patience(self._run.spectral_radius(trial.x), k)
        while len(gaps) < longest and _FALLEN < _change(gaps) <= 2:
            gaps = np.concatenate([gaps, trial.gaps(min(len(gaps), longest - len(gaps)))])
        # A run that leaves a saddle grows for a while as well, but not for ever: in the end it is stable.
        return len(gaps) > _TRIAL and not _change(gaps) <= 2 and not self._run.spectral_radius(trial.x) <= _UNSTABLE

    def _sane(self, x: Array) -> Array:
        """Where to linearise: at x, unless nothing is left of it; then where the run began."""
        assert self._start is not None
        return x if np.isfinite(x).all() and np.abs(x).max() < 1e30 else self._start


def _grows(gaps: Array) -> bool:
    """Whether the gap at the end of a trial is twice that at its beginning, averaged because it oscillates."""
    first, last = gaps[:WATCH_EVERY].mean(), gaps[-WATCH_EVERY:].mean()
    return not last <= 2 * first  # nan grows, too


def _keeps_its_rate(trial: Trial, gaps: Array) -> bool:
    """Whether a gap that has doubled goes on like this, and does not merely rise to where a constant push leads."""
    if not gaps[-1] < HOPELESS:
        return True
    further = gaps[:0]
    for rounds in _FURTHER:
        further = np.concatenate([further, trial.gaps(rounds - len(further))])
        first, last = (half.max() for half in np.array_split(further, 2))
        if not last < HOPELESS or last > _TRIPLED * first:
            return True
        if last < _LEVEL * first:
            return False
    return False


def _change(gaps: Array) -> float:
    """By which factor the gap changes from one half of a trial to the other: slow oscillations average out."""
    first, last = np.array_split(gaps, 2)
    return float(last.mean() / first.mean()) if first.any() else 0.0


def _patience(radius: float, rounds: int) -> int:
    """How long a trial may become: no longer where the iteration is stable, long enough to show it where it is not."""
    if math.isnan(radius):
        return rounds
    return 0 if radius <= _UNSTABLE else max(rounds, min(math.ceil(3 * math.log(2) / math.log(radius)), _LONGEST))
