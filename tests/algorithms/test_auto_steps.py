"""`alpha = "auto"`, and a divergence that names steps which work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment, run
from dpp2.algorithms.auto_steps import auto_steps
from dpp2.algorithms.dpp2 import Dpp2Section
from dpp2.errors import BadInput
from tests.answers import strict

Call = Callable[..., Any]
SILENT = {"noise.u_w": 0.0, "noise.u_e": 0.0, "run.telemetry": "none"}


def steps(experiment: Experiment) -> tuple[float, float, float]:
    section = experiment.resolve().algorithm
    assert isinstance(section, Dpp2Section)
    return section.alpha, section.beta, section.rho


class TestAuto:
    def test_takes_the_declared_smoothness_and_the_spectrum(self) -> None:
        chosen = {"algorithm.alpha": "auto", "privacy.smoothness": 4.0, "network.topology": "complete"}
        experiment = Experiment.load(overrides={**chosen, "network.agents": 4, "network.weights": "plain"})
        assert steps(experiment) == pytest.approx(auto_steps(4.0, 4.0, 0.0))  # K₄: λ_max = 4
        assert auto_steps(4.0, 4.0, 0.0) == pytest.approx((1 / 8, 1 / 64, 2.8))

    @pytest.mark.parametrize("curvature", [0.01, 1.0, 300.0])
    @pytest.mark.parametrize("damping", [0.0, 1.0])
    def test_converges_whatever_the_curvature(self, curvature: float, damping: float) -> None:
        quadratic = {"problem.name": "quadratic", "problem.curvature": curvature, "problem.dimension": 2}
        network = {"network.topology": "ring", "network.agents": 6, "run.rounds": 600}
        auto = {"algorithm.alpha": "auto", "algorithm.damping": damping}
        result = run(Experiment.load(overrides={**quadratic, **network, **auto, **SILENT}), record=False)
        assert not result.diverged
        assert result.metrics.gap[-1] < 1e-6 * result.metrics.gap[0]

    def test_what_is_resolved_says_the_numbers(self) -> None:
        experiment = Experiment.load(overrides={"algorithm.alpha": "auto", "privacy.smoothness": 5.03}).resolve()
        again = Experiment.parse(experiment.tables())
        assert "auto" not in experiment.tables()["algorithm"].values()
        assert (steps(again), again.resolve().digest) == (steps(experiment), experiment.digest)

    def test_what_is_not_resolved_says_auto(self) -> None:
        experiment = Experiment.load(overrides={"algorithm.alpha": "auto"})
        assert experiment.algorithm.table()["alpha"] == "auto"
        assert Experiment.parse(experiment.tables()) == experiment

    def test_steps_from_the_data_are_remarked(self) -> None:
        small = {"algorithm.alpha": "auto", "network.topology": "ring", "network.agents": 4}
        free = Experiment.load(overrides=small).resolve()
        declared = Experiment.load(overrides={**small, "privacy.smoothness": 5.03}).resolve()
        assert ["rest on M̄ of all agents' data" in text for text in free.algorithm.remarks(free)] == [True]
        assert list(declared.algorithm.remarks(declared)) == []

    def test_other_algorithms_have_none(self) -> None:
        with pytest.raises(BadInput, match=re.escape("algorithm.alpha = 'auto': expected a number > 0")):
            Experiment.load(overrides={"algorithm.name": "dgd", "algorithm.alpha": "auto"})


@pytest.mark.usefixtures("quick_plot")
class TestDiagnosis:
    """The words of the sentence, typed as they stand, make the run converge."""

    @pytest.mark.parametrize(
        ("file", "changes"),
        [
            ("counterexample", ["run.rounds=400"]),
            (None, ["problem.name=quadratic", "network.topology=ring", "network.agents=5", "algorithm.alpha=3.0"]),
            (None, ["problem.name=quadratic", "network.topology=ring", "network.agents=5", "algorithm.rho=1000.0"]),
            (
                None,
                ["network.topology=ring", "network.agents=4", "algorithm.alpha=5", "algorithm.beta=0.5"],
            ),  # far: flat
        ],
    )
    def test_names_steps_that_work(self, file: str | None, changes: list[str], dpp2: Call, tmp_path: Path) -> None:
        words = [*([file] if file else []), *(word for one in changes for word in ("--set", one))]
        words += ["--set", "noise.u_w=0", "--set", "noise.u_e=0"]
        ended = dpp2("run", *words, "--out", tmp_path / "bad")
        assert ended.code == 1
        advice = re.search(r"; try ((?:--set \S+ ?)+)", ended.err)
        assert advice, ended.err
        repaired = dpp2("run", *words, *advice[1].rstrip("; ").split(), "--out", tmp_path / "good", "--json")
        found = strict(repaired.out)
        assert (repaired.code, found["diverged"]) == (0, False)
        assert found["gap"] < 1e-2 * found["gap_initial"]
