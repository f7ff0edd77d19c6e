"""`dpp2 privacy publish`: what the next round would send, released once, and what it costs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Simulation
from dpp2.grid import grid, to_grid
from dpp2.prepared import PreparedRun
from dpp2.store.files import read_npz
from dpp2.store.rundir import RunDirectory
from tests.answers import number, strict

Call = Callable[..., Any]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures."""
    for name in ("convergence", "epsilon"):
        monkeypatch.setattr(f"dpp2.orchestrator.plots.{name}", lambda *args: None)


K = 8


@pytest.mark.usefixtures("quick_plot")
class TestPublish:
    @pytest.mark.parametrize("seed", ["1", "os"])
    def test_it_is_what_the_next_round_would_send(
        self, seed: str, tmp_path: Path, dpp2: Call, small: list[str], ask: Ask
    ) -> None:
        """x^K + w^K with the w^K of round K: from the truth of the extended run, and from its messages."""
        path, sets = tmp_path / "run", ("--set", f"run.seed={seed}", "--set", "algorithm.damping=0.5")
        assert dpp2("run", "--out", path, *small, *sets).code == 0
        found = ask("publish", path)
        published = read_npz(path / "published.npz")
        assert found["published"] == str(path / "published.npz")
        assert (found["rounds"], int(published.rounds)) == (K, K)
        np.testing.assert_array_equal(published.mean, published.x.mean(axis=0))
        bare = read_npz(path / "solution.npz").x
        assert np.abs(published.x - bare).min() > 0
        assert dpp2("run", "--resume", path, "--set", f"run.rounds={K + 1}").code == 0
        truth, sent = read_npz(path / "truth.npz"), read_npz(path / "observation.npz")
        noise = Experiment.load(path / "experiment.toml").noise
        g = float(grid(float(noise.scales_in(np.array([K]), 1)["u_w"][0, 0]), noise.grid))
        np.testing.assert_array_equal(published.x, to_grid(bare, g) + truth.w[K])
        np.testing.assert_array_equal(bare, truth.x[K])
        d = np.zeros_like(bare)
        for y, eta in zip(sent.y[:K], truth.eta[:K], strict=True):
            d = d + (y - (1 - eta) * d) / 1.5
        np.testing.assert_allclose((sent.y[K] - (1 - truth.eta[K]) * d) / 1.5, published.x, rtol=1e-9, atol=1e-9)

    def test_price(self, tmp_path: Path, dpp2: Call, small: list[str], ask: Ask) -> None:
        dpp2("run", "--out", tmp_path / "run", *small)
        account = Simulation(Experiment.load(tmp_path / "run/experiment.toml"), record=False).account
        found = ask("publish", tmp_path / "run")
        assert found["epsilon_before"] == number(account.epsilon(K))
        assert found["epsilon"] == number(account.epsilon(K, published=True))
        assert found["epsilon_before"] < found["epsilon"] < number(account.epsilon(K + 1))
        assert found["log10_epsilon"] == pytest.approx(math.log10(found["epsilon"]))
        said = dpp2("privacy", "publish", tmp_path / "run")
        assert f"x^{K} + w^{K} is in {tmp_path / 'run/published.npz'}" in said.out
        assert f"{found['epsilon_before']:.6g} before, {found['epsilon']:.6g} with the release" in said.out
        assert "note: experiment: no ε holds" in said.err
        assert "solution.npz" not in said.err  # that note is what publishing answers

    def test_labels(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        """What ε does not cover is named beside it, in the document and in the directory."""
        printed = strict(dpp2("run", "--json", "--out", tmp_path / "run", *small).out)["privacy"]
        assert printed == strict((tmp_path / "run/privacy.json").read_text())
        dpp2("privacy", "publish", tmp_path / "run")
        published = strict((tmp_path / "run/privacy.json").read_text())["published"]
        assert published["epsilon"] > printed["epsilon"]
        uncovered = {"solution.npz", "truth.npz", "metrics.csv", "checkpoint", "result.json", "events.jsonl"}
        assert printed["not_covered"].keys() == uncovered
        assert all(label.startswith("not covered by ε") for label in printed["not_covered"].values())

    def test_a_run_whose_noise_is_too_fine_is_named_by_its_folder(
        self, tmp_path: Path, dpp2: Call, small: list[str]
    ) -> None:
        path, fine = tmp_path / "run", ("--set", "noise.decay=1e-30", "--set", f"noise.u_w={1e-10}")
        assert dpp2("run", "--out", path, *small, *fine).code == 0
        ended = dpp2("privacy", "publish", path)
        assert ended.code == 2
        assert "/run': expected a run whose result can be published" in ended.err

    def test_a_run_of_no_rounds_has_nothing_to_publish(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        begun = RunDirectory.create(tmp_path / "run", force=False)  # and killed before its first checkpoint
        begun.begin(PreparedRun.of(Experiment.load(overrides=small[1::2])))
        ended = dpp2("privacy", "publish", tmp_path / "run")
        assert (ended.code, ended.out) == (2, "")
        assert "expected a run of at least one round" in ended.err
        assert not (tmp_path / "run/published.npz").exists()

    def test_a_run_that_this_ledger_does_not_know(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        dpp2("run", "--out", tmp_path / "here/run", *small)
        shutil.copytree(tmp_path / "here/run", tmp_path / "there/run")
        ended = dpp2("privacy", "publish", tmp_path / "there/run")
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert "has charged: a ledger lies beside its runs" in ended.err
        assert not (tmp_path / "there/run/published.npz").exists()
