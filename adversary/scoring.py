"""How close an attack came. The only module of this room that opens the truth of a run.

Errors are relative and Frobenius: ‖x̂ − x‖/‖x‖ over the agents seen and their coordinates, round by round, and per
agent. Where an attack claims nothing its error is NaN; a claim about some of the agents is judged on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.adversary.attacks.base import Estimate
from dpp2.adversary.knowledge import Knowledge, Own
from dpp2.arrays import Array
from dpp2.errors import one_line
from dpp2.problems.base import Objective, OfProducts
from dpp2.store.kept import TRUTH, has_records, last_rounds, records_path

THRESHOLDS = (0.1, 0.01, 1e-6)
NUMBERS = 6  # that must be close at once: of one coordinate, one claim in twenty is close by chance
_STEP = 1e-5  # of the central differences that give true Hessians: the best for float64 gradients


@dataclass(frozen=True, eq=False)
class Truth:
    """What the agents kept to themselves: x, grad and the noises (K, N, d), η (K,), and their objectives.

    Rounds are first … first + K − 1 of the run: whoever follows a long run holds its end alone.
    """

    x: Array
    grad: Array
    eta: Array | None = None
    w: Array | None = None
    e: Array | None = None
    experiment: Experiment | None = None
    first: int = 0

    @classmethod
    def of(cls, arrays: Mapping[str, Array], experiment: Experiment | None = None, first: int = 0) -> Self:
        """From the arrays of a run: `result.truth`."""
        eta, w, e = (arrays.get(key) for key in ("eta", "w", "e"))
        return cls(arrays["x"], arrays["grad"], eta, w, e, experiment, first)

    @classmethod
    def load(cls, run: Path | str, most: int | None = None) -> Self:
        """From a run's folder: all rounds, or the last `most` of them."""
        path = records_path(Path(run), TRUTH)
        if not has_records(path.parent, TRUTH):
            raise BadInput("RUN", str(run), "a run with truth.npz in it (run.telemetry = full)")
        try:
            first, content = last_rounds(path.parent, TRUTH, most)
            experiment = Experiment.load(path.parent / "experiment.toml").resolve()
            return cls.of(content, experiment, first)
        except BadInput:
            raise
        except Exception as error:  # zip, zlib and numpy raise a dozen kinds on a damaged file
            raise BadInput("RUN", str(run), f"a run with an intact {path.name} ({one_line(error)})") from None

    @cached_property
    def objective(self) -> Objective | None:
        """All agents' objectives as they were run, drawn again from the experiment; None without an experiment."""
        if self.experiment is None:
            return None
        return self.experiment.objective()


def insider(truth: Truth, knowledge: Knowledge, agent: int) -> Knowledge:
    """What one participant knows: everything that is public, its own rows, and η."""
    if truth.eta is None or truth.w is None or truth.e is None:
        raise BadInput("attacker", "neighbour", "a run of dpp2, whose participants share η")
    if not 0 <= agent < truth.x.shape[1]:
        raise BadInput("agent", agent, f"a whole number from 0 to {truth.x.shape[1] - 1}")
    rows = (array[:, agent] for array in (truth.x, truth.grad, truth.w, truth.e))
    return knowledge.participant(Own(agent, *rows), truth.eta)


@dataclass(frozen=True)
class Stretch:
    """A round of the run or a few, and the largest error in any of them."""

    first: int
    last: int
    error: float

    @property
    def words(self) -> str:
        return f"round {self.first}" if self.first == self.last else f"rounds {self.first}–{self.last}"


@dataclass(frozen=True, eq=False)
class Errors:
    """Of one quantity: per round (K,), per round and agent (K, agents) where that has a meaning, and in short.

    `median` is that of the last tenth of the rounds (None: nothing claimed there); `since` says for each threshold from
    which round of the run on the error stays below it, None if it never does. `closest` is the best of all stretches
    of claims that hold `NUMBERS` numbers, wherever it lies: what was known once is known. None: nothing finite claimed.
    """

    rounds: Array
    agents: Array | None
    median: float | None
    since: Mapping[float, int | None]
    closest: Stretch | None


@dataclass(frozen=True, eq=False)
class Score:
    """How close one estimate came; None for quantities that it claims nothing about."""

    name: str
    agents: tuple[int, ...]
    x: Errors | None
    grad: Errors | None
    eta: Errors | None
    data: Mapping[str, float]
    parameters: Mapping[str, float]


def score(estimate: Estimate, truth: Truth, agents: Sequence[int], first: int = 0) -> Score:
    """Compare an estimate of rounds first … with the truth, on the agents that the attacker saw."""
    seen, x, grad = tuple(agents), truth.x[first - truth.first :], truth.grad[first - truth.first :]
    eta = None if truth.eta is None else truth.eta[first - truth.first :]
    return Score(
        estimate.name,
        seen,
        _vector_errors(estimate.x, x, seen, first),
        _vector_errors(estimate.grad, grad, seen, first),
        _scalar_errors(estimate.eta, eta, first),
        _data_errors(estimate, truth, seen),
        _parameter_errors(estimate, truth),
    )


def _vector_errors(claimed: Array | None, true: Array, seen: Sequence[int], first: int) -> Errors | None:
    """Both begin with round `first`."""
    if claimed is None or not seen:
        return None
    rows = list(seen)
    true = true[: len(claimed), rows]
    claimed = claimed[: len(true), rows]
    unclaimed = np.asarray(np.isnan(claimed).any(axis=2))
    with np.errstate(over="ignore", invalid="ignore"):  # runs that diverged
        wrong = np.where(unclaimed, 0.0, np.linalg.norm(claimed - true, axis=2))
        size = np.where(unclaimed, 0.0, np.linalg.norm(true, axis=2))
        overall = _ratio(np.linalg.norm(wrong, axis=1), np.linalg.norm(size, axis=1))
    per_agent = np.where(unclaimed, np.nan, _ratio(wrong, size))
    numbers = np.where(unclaimed.all(axis=1), len(rows), (~unclaimed).sum(axis=1)).min() * true.shape[2]
    return _errors(np.where(unclaimed.all(axis=1), np.nan, overall), per_agent, first, int(numbers))


def _scalar_errors(claimed: Array | None, true: Array | None, first: int) -> Errors | None:
    """|η̂ − η| as it is: η lies between 0 and 1."""
    if claimed is None or true is None:
        return None
    true = true[: len(claimed)]
    return _errors(np.abs(claimed[: len(true)] - true), None, first, numbers=1)


def _ratio(wrong: Array, size: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wrong == 0, 0.0, wrong / size)


def _errors(per_round: Array, per_agent: Array | None, first: int, numbers: int) -> Errors:
    """`numbers`: how many a claim about one round holds, at the least."""
    last = per_round[-max(len(per_round) // 10, 1) :]
    claimed = last[~np.isnan(last)]
    median = float(np.median(claimed)) if len(claimed) else None
    since = {bound: _since(per_round, bound, first) for bound in THRESHOLDS}
    return Errors(per_round, per_agent, median, since, _closest(per_round, first, -(-NUMBERS // numbers)))


def _closest(per_round: Array, first: int, width: int) -> Stretch | None:
    """An attack may be silent in most rounds, so claims are counted and not rounds; where they are few, all count."""
    claims = np.flatnonzero(~np.isnan(per_round))
    if not len(claims):
        return None
    width = min(width, len(claims))
    worst = np.lib.stride_tricks.sliding_window_view(per_round[claims], width).max(axis=1)
    k = int(worst.argmin())
    error = float(worst[k])
    return Stretch(first + int(claims[k]), first + int(claims[k + width - 1]), error) if np.isfinite(error) else None


def _since(per_round: Array, bound: float, first: int) -> int | None:
    """The first round from which on the error stays below; a round without a claim is not below."""
    above = np.flatnonzero(~(per_round < bound))
    start = int(above[-1]) + 1 if len(above) else 0
    return first + start if start < len(per_round) else None


def _parameter_errors(estimate: Estimate, truth: Truth) -> dict[str, float]:
    """Relative errors of the algorithm's parameters, against what messages can tell of them."""
    if truth.experiment is None:
        return {}
    true = Knowledge.of(truth.experiment).identifiable
    return {name: abs(value / true[name] - 1) for name, value in estimate.parameters.items() if true.get(name)}


def _data_errors(estimate: Estimate, truth: Truth, seen: Sequence[int]) -> dict[str, float]:
    """Relative errors of what was recovered of the data, against objectives that are drawn again."""
    objective = truth.objective if estimate.data else None
    if objective is None:
        return {}
    rows, found = list(seen), estimate.data
    agents = truth.x.shape[1]
    errors: dict[str, float] = {}
    if "gradient_at_zero" in found:
        true = objective(np.zeros((agents, objective.dimension)))[1]
        errors["gradient_at_zero"] = _relative(found["gradient_at_zero"][rows], true[rows])
    if "hessian" in found and "point" in found:
        at = np.where(np.isnan(found["point"]), 0.0, found["point"])
        errors["hessian"] = _relative(found["hessian"][rows], hessians(objective, at)[rows])
    if "samples" in found and isinstance(objective, OfProducts):
        errors["samples"] = _sample_error(found["samples"][rows], objective.products[rows])
    return errors


def hessians(objective: Objective, x: Array) -> Array:
    """∇²f_i(x_i) by central differences of the gradient, (N, d, d)."""
    steps = _STEP * np.eye(x.shape[1])
    return np.stack([(objective(x + step)[1] - objective(x - step)[1]) / (2 * _STEP) for step in steps], axis=2)


def _relative(claimed: Array, true: Array) -> float:
    known = ~np.isnan(claimed)
    if not known.any():
        return float("nan")
    return float(np.linalg.norm(claimed[known] - true[known]) / np.linalg.norm(true[known]))


def _sample_error(claimed: Array, true: Array) -> float:
    """Median over agents. Samples are recovered in no order, so they are matched first, as well as they can be."""
    from scipy.optimize import linear_sum_assignment

    errors = []
    for found, own in zip(claimed, true, strict=True):
        if not np.isnan(found).any():
            distance = np.linalg.norm(found[:, None] - own[None], axis=2)
            order = linear_sum_assignment(distance**2)
            errors.append(np.linalg.norm(distance[order]) / np.linalg.norm(own))
    return float(np.median(errors)) if errors else float("nan")
