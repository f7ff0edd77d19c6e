"""A new algorithm is one file and one entry; so is a new problem. Each file below is a whole worked example."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, run
from dpp2.algorithms import ALGORITHMS
from dpp2.orchestrator.runner import FinishedRun, start
from dpp2.privacy import Epsilon
from dpp2.problems import PROBLEMS
from dpp2.schema import Registry
from dpp2.store.ledgers import LedgerFile
from dpp2.studies.compare.comparison import compare
from dpp2.studies.compare.contenders import Method, methods
from dpp2.studies.compare.plan import Plan
from dpp2.studies.compare.search import Effort
from dpp2.studies.compare.tasks import PURE, DataSet

ALGORITHM = '''
"""Gradient descent over neighbours with a coupling of its own: x⁺ = x^a − χ P x^a − α g, with x^a = x + noise sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


@dataclass(frozen=True, eq=False)
class CoupledState:
    x: Array


class Coupled(NoisyProgram):
    section: CoupledSection

    def start(self, x0: Array) -> CoupledState:
        return CoupledState(x0)

    def round(self, s: CoupledState, k: int) -> Round:
        noise = self.drawn(k)
        xa = s.x + noise["noise_x"]
        Lxa = yield Broadcast("xa", xa)
        f, grad = self.objective(s.x)
        return CoupledState(xa - self.section.chi * Lxa - self.section.alpha * grad), Private(f, grad, noise, {})


class CoupledSection(StepSection):
    program_class = Coupled
    tunables = (Tunable("alpha", 1e-3, 1.0), Tunable("chi", 0.05, 1.0))

    name: Literal["coupled"] = "coupled"
    alpha: float = Field(0.1, gt=0, description="a number > 0")
    chi: float = Field(0.5, gt=0, description="a number > 0 and below 2/λ_max(P)")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues, self.chi)

    def recovered(self, heard: Heard) -> Recovered:
        m, Pm, after, _ = heard.only()
        return Recovered(m, (m - self.chi * Pm - after) / self.alpha)
'''

ACCOUNT = '''
"""`coupled` again, with an account of its own: the messages cost twice what a plain step costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dpp2.algorithms.base import NoiseSection
from dpp2.algorithms.coupled import CoupledSection
from dpp2.arrays import Array
from dpp2.privacy.baselines import StepReleases
from dpp2.privacy.releases import Releases


@dataclass(frozen=True, kw_only=True)
class TwiceReleases(StepReleases):
    kind = "twice"

    def log_releases(self, rounds: int) -> list[Array]:
        return [math.log(2) + one for one in super().log_releases(rounds)]


class TwiceSection(CoupledSection):
    releases = (TwiceReleases,)

    name: Literal["twice"] = "twice"

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        return [TwiceReleases(**vars(one)) for one in super().mechanisms(noise, dimension, adjacency, smoothness)]
'''

PROBLEM = '''
"""f_i(x) = Σ_t log cosh(x_t − b_it): smooth, convex, M = 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.arrays import Array
from dpp2.problems.base import DATA, OneSample, ProblemSection, agent_rng


class LogCoshSection(ProblemSection):
    public_keys = ("name", "dimension")

    name: Literal["log-cosh"] = "log-cosh"
    dimension: int = Field(5, ge=1, description="a whole number ≥ 1")

    def objective(self, owned: Sequence[int], agents: int) -> LogCosh:
        draws = [agent_rng(self.drawing_seed(), DATA, agent).standard_normal(self.dimension) for agent in owned]
        return LogCosh(np.stack(draws))


@dataclass(frozen=True, eq=False)
class LogCosh(OneSample):
    centres: Array

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[1])

    @property
    def smoothness(self) -> Array:
        return np.ones(len(self.centres))

    def __call__(self, x: Array) -> tuple[Array, Array]:
        away = x - self.centres
        return np.log(np.cosh(away)).sum(axis=1), np.tanh(away)
'''


def added(registry: Registry[Any], package: str, name: str, section: str, source: str, folder: Path) -> Iterator[str]:
    """One file in the package and one entry in its registry, for as long as a test runs."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(source)
    spec = importlib.util.spec_from_file_location(f"{package}.{module}", folder / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    registry._places[name] = f"{module}:{section}"
    try:
        yield name
    finally:
        del registry._places[name], sys.modules[spec.name]


@pytest.fixture
def algorithm(tmp_path: Path) -> Iterator[str]:
    yield from added(ALGORITHMS, "dpp2.algorithms", "coupled", "CoupledSection", ALGORITHM, tmp_path)


@pytest.fixture
def accounted(algorithm: str, tmp_path: Path) -> Iterator[str]:
    yield from added(ALGORITHMS, "dpp2.algorithms", "twice", "TwiceSection", ACCOUNT, tmp_path)


@pytest.fixture
def problem(tmp_path: Path) -> Iterator[str]:
    yield from added(PROBLEMS, "dpp2.problems", "log-cosh", "LogCoshSection", PROBLEM, tmp_path)


def small(**more: object) -> Experiment:
    overrides = {"network.topology": "ring", "network.agents": 5, "run.rounds": 30}
    return Experiment.load(overrides=overrides | {key.replace("__", "."): value for key, value in more.items()})


def chosen(algorithm: str, seed: int = 0) -> Experiment:
    """On the same data, whatever the seed of the noise."""
    same = {"problem__seed": 0, "problem__samples": 10, "problem__dimension": 3}
    return small(algorithm__name=algorithm, noise__u_x=1.0, run__seed=seed, **same)


def started(algorithm: str, folder: Path, seed: int = 0) -> FinishedRun:
    name = f"run-{seed}"
    return start(chosen(algorithm, seed), folder / name, stem=name, force=False, progress=lambda *_: None)


def test_a_new_algorithm_runs_is_accounted_for_and_is_compared(algorithm: str) -> None:
    result = run(chosen(algorithm))
    assert result.rounds == 30
    assert isinstance(result.privacy.epsilon, Epsilon)
    assert result.metrics.bytes[1] == 2 * 5 * 3 * 8  # ten directed edges, three numbers
    common = small(problem__samples=10, problem__dimension=3).resolve()
    data = DataSet.of("small", "small", common)
    plan = Plan((data,), tuple(methods([algorithm])), (10.0,), starts=("zero",), tracks=(PURE,), effort=Effort.of(28))
    made = compare(replace(plan, seeds=2), executor="processes:1")
    entry = next(one for one in made.results if not one.reference)
    method = entry.job.contender
    assert isinstance(method, Method)
    assert method.spent(entry.job.cell, entry.search.best.point) == pytest.approx(10.0)
    assert {"algorithm.chi", "algorithm.alpha", "noise.decay", "run.rounds"} == set(entry.settings)


def test_a_new_algorithm_may_bring_its_own_account_which_ledgers_keep(accounted: str, tmp_path: Path) -> None:
    """Two runs in one folder: the second reads what the first has written, and their ε add up."""
    first, second = (started(accounted, tmp_path, seed).result.privacy.epsilon for seed in (0, 1))
    plain = run(chosen("coupled")).privacy.epsilon
    assert isinstance(first, Epsilon)
    assert isinstance(plain, Epsilon)
    assert first == second
    assert first.log10 == pytest.approx(plain.log10 + math.log10(2))
    totals = LedgerFile(tmp_path / "ledger.sqlite").totals()
    assert [total.runs for total in totals] == [2] * 5
    spent = [total.spent.log10 for total in totals if isinstance(total.spent, Epsilon)]
    assert max(spent) == pytest.approx(first.log10 + math.log10(2))


def test_an_account_that_is_not_declared_is_refused_before_it_is_written(accounted: str, tmp_path: Path) -> None:
    ALGORITHMS[accounted].releases = ()
    with pytest.raises(BadInput, match="a class that an algorithm's `releases` declares"):
        started(accounted, tmp_path)


def test_a_new_problem_runs_with_every_algorithm_and_has_a_public_form(problem: str) -> None:
    for name in ALGORITHMS.names:
        network = {"network__topology": "star"} if name == "diff2" else {}
        result = run(small(problem__name=problem, algorithm__name=name, **network))
        assert np.isfinite(result.metrics.gap).all(), name
    section = result.experiment.problem
    assert section.public_form() == {"name": problem, "dimension": 5}
    assert b"seed" in section.data_identity(0, 5)
