"""What lies in a run directory: files, shapes and types as documented, and numbers that satisfy the algorithm."""

from __future__ import annotations

import csv
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, run
from dpp2.grid import grid, to_grid
from dpp2.prepared import PreparedRun
from dpp2.store.files import read_npz, write_npz
from dpp2.store.rundir import RunDirectory, read_metrics, write_metrics

K, N, D = 8, 5, 3
Call = Callable[..., Any]
Bytes = Callable[[Path], dict[str, bytes]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, dpp2: Call, small: list[str]) -> Path:
    path = tmp_path_factory.mktemp("runs") / "made"
    ended = dpp2("run", "--out", path, *small, "--set", "algorithm.damping=0.5")
    assert ended.code == 0, ended.err
    return path


def test_files(made: Path) -> None:
    records = {"observation.npz", "truth.npz", "solution.npz", "metrics.csv", "privacy.json"}
    own = {"experiment.toml", "result.json", "convergence.png", "epsilon.png", "events.jsonl"}
    assert {path.name for path in made.iterdir()} == own | records | {"checkpoint"}
    assert [path.name for path in (made / "checkpoint").iterdir()] == ["state.npz"]


def test_arrays(made: Path) -> None:
    rows, matrix = (K, N, D), (N, N)
    shapes = {
        "observation.npz": {"y": rows, "z": rows, "P": matrix},
        "truth.npz": {"x": rows, "grad": rows, "w": rows, "e": rows, "eta": (K,)},
        "solution.npz": {"x": (N, D), "mean": (D,)},
    }
    for name, arrays in shapes.items():
        found = read_npz(made / name)
        assert {key: array.shape for key, array in found.items()} == arrays
        assert all(array.dtype == np.float64 for array in found.values())


def test_metrics_columns(made: Path) -> None:
    with (made / "metrics.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["round", "gap", "consensus", "stationarity", "objective", "epsilon", "bytes"]
    assert [int(row[0]) for row in rows] == list(range(K + 1))


def test_records_satisfy_the_algorithm(made: Path) -> None:
    """Algorithm 1 with τ = ½, replayed from the files alone; d and q are not recorded and follow from the rest.

    Values are rounded to the grid where they are released, and s, not x + w, is where the next x starts from.
    """
    sent, private = read_npz(made / "observation.npz"), read_npz(made / "truth.npz")
    experiment = Experiment.load(made / "experiment.toml")
    section, scales = experiment.algorithm.table(), experiment.noise.scales_in(np.arange(K), N)
    alpha, beta, rho, t = section["alpha"], section["beta"], section["rho"], 1 + section["damping"]
    x_all = np.concatenate([private.x, read_npz(made / "solution.npz").x[None]])
    d = q = np.zeros((N, D))
    for k in range(K):
        x, w, e, eta, y, z = x_all[k], private.w[k], private.e[k], private.eta[k], sent.y[k], sent.z[k]
        assert 0 < eta < 1
        g_w, g_e = (np.asarray(grid(scales[name][k][:, None], experiment.noise.grid)) for name in ("u_w", "u_e"))
        s, now = to_grid(x, g_w) + w, eta * q + rho * sent.P @ y
        np.testing.assert_allclose(y, t * s + (1 - eta) * d, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(z, to_grid(private.grad[k], g_e) + to_grid(now, g_e) + e, rtol=1e-12, atol=1e-12)
        after = s - alpha * (private.grad[k] + now) + beta * sent.P @ z
        np.testing.assert_allclose(x_all[k + 1], after, rtol=1e-12, atol=1e-12)
        d, q = d + (y - (1 - eta) * d) / t, q + (rho * sent.P @ y - (1 - eta) * q) / t


def test_metrics_follow_from_the_records(made: Path) -> None:
    private, metrics = read_npz(made / "truth.npz"), read_metrics(made / "metrics.csv")
    experiment = Experiment.load(made / "experiment.toml").resolve()
    objective = experiment.problem.objective(range(N), N)
    x_all = np.concatenate([private.x, read_npz(made / "solution.npz").x[None]])
    for k, x in enumerate(x_all):
        values, grad = objective(x)
        if k < K:
            np.testing.assert_allclose(private.grad[k], grad, rtol=1e-12)
        consensus = ((x - x.mean(axis=0)) ** 2).sum()
        stationarity = (grad.sum(axis=0) ** 2).sum() / N
        expected = {
            "gap": consensus + stationarity,
            "consensus": consensus,
            "stationarity": stationarity,
            "objective": values.sum(),
            "bytes": 0 if k == 0 else 2 * 2 * (N - 1) * D * 8,  # 2 phases over both directions of 4 edges
        }
        assert {name: metrics[name][k] for name in expected} == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(read_npz(made / "solution.npz").mean, x_all[-1].mean(axis=0))


def test_experiment_reads_back(made: Path) -> None:
    text = (made / "experiment.toml").read_text()
    assert text.startswith("# Resolved by dpp2 ")
    again = Experiment.load(made / "experiment.toml")
    assert again == again.resolve()
    assert again.to_toml() in text
    np.testing.assert_array_equal(run(again).x, read_npz(made / "solution.npz").x)


def test_recorded_network_is_the_one_that_ran(made: Path) -> None:
    P = PreparedRun.of(Experiment.load(made / "experiment.toml")).P.toarray()
    np.testing.assert_array_equal(read_npz(made / "observation.npz").P, P)


def test_picture(made: Path) -> None:
    content = (made / "convergence.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")


def test_same_seed_same_bytes(made: Path, tmp_path: Path, dpp2: Call, small: list[str], records: Bytes) -> None:
    assert dpp2("run", "--out", tmp_path / "again", *small, "--set", "algorithm.damping=0.5").code == 0
    assert records(tmp_path / "again") == records(made)
    assert (tmp_path / "again/experiment.toml").read_bytes() == (made / "experiment.toml").read_bytes()


@pytest.mark.usefixtures("quick_plot")
class TestWhatIsWritten:
    def test_another_seed_is_another_run(self, made: Path, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        dpp2("run", "--out", tmp_path / "other", *small, "--set", "algorithm.damping=0.5", "--set", "run.seed=2")
        mine, other = read_npz(made / "truth.npz"), read_npz(tmp_path / "other/truth.npz")
        assert all((mine[name] != other[name]).all() for name in ("x", "w", "e", "eta"))

    def test_no_truth(self, made: Path, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        """Nothing private is written, and what is sent does not depend on whether truth is kept."""
        ended = dpp2("run", "--no-truth", "--out", tmp_path / "bare", *small, "--set", "algorithm.damping=0.5")
        assert ended.code == 0
        assert not (tmp_path / "bare/truth.npz").exists()
        assert (tmp_path / "bare/observation.npz").read_bytes() == (made / "observation.npz").read_bytes()

    def test_force_replaces_a_run_and_nothing_else(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        out = tmp_path / "run"
        assert dpp2("run", "--out", out, *small).code == 0
        theirs = [out / "notes.txt", out / "checkpoint/model.bin"]
        for file in theirs:
            file.write_text("mine")
        stale = [out / "audit.json", out / "report.html", out / "checkpoint/records-000000000-000000004.npz"]
        for file in stale:
            file.write_text("of the run before")
        assert dpp2("run", "--out", out, *small, "--force", "--no-truth").code == 0
        assert all(file.read_text() == "mine" for file in theirs)
        assert not any(file.exists() for file in [*stale, out / "truth.npz"])

    def test_secrets_are_for_the_owner(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        assert dpp2("run", "--out", tmp_path / "run", *small, "--set", "run.seed=os").code == 0
        secrets = tmp_path / "run/checkpoint/secrets.json"
        assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
        kept = json.loads(secrets.read_text())
        public = b"".join(p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file())
        for name in ("agent", "eta"):
            assert len(bytes.fromhex(kept[name])) == 32
            assert kept[name].encode() not in public
            assert bytes.fromhex(kept[name]) not in public

    def test_unseeded_runs_share_nothing(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        for name in ("one", "two"):
            assert dpp2("run", "--out", tmp_path / name, *small, "--set", "run.seed=os").code == 0
        one, two = (read_npz(tmp_path / name / "truth.npz") for name in ("one", "two"))
        assert all((one[name] != two[name]).all() for name in ("x", "w", "e", "eta"))

    def test_default_names_count_up(
        self, tmp_path: Path, dpp2: Call, small: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.toml").write_text("[noise]\ndecay = 0.8\n")
        for file in ([], [], ["mine.toml"]):
            assert dpp2("run", *file, *small).code == 0
        assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == [
            "mine-1",
            "run-1",
            "run-2",
        ]

    def test_paths_in_an_experiment_survive_a_move(
        self, tmp_path: Path, dpp2: Call, small: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Relative to the experiment file in it, to the working directory in --set; absolute in the run."""
        monkeypatch.chdir(tmp_path)
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / "mine.toml").write_text('[network]\ntopology = "file"\npath = "graph.txt"\n')
        (folder / "graph.txt").write_text("a b\nb c\nc a\n")
        np.save("x.npy", np.ones((3, 3)))
        sets = [*small[4:], "--set", "run.start=x.npy"]
        assert dpp2("run", "mine/mine.toml", "--out", "run", *sets).code == 0
        np.testing.assert_array_equal(read_npz(Path("run/truth.npz")).x[0], np.ones((3, 3)))
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ended = dpp2("run", "--resume", "../run", "--set", "run.rounds=9")
        assert ended.code == 0, ended.err


def test_npz_is_never_half_there(tmp_path: Path) -> None:
    """A write that fails leaves the file that was there, and nothing beside it."""
    write_npz(tmp_path / "a.npz", {"x": np.ones(3)})
    with pytest.raises(RuntimeError, match="disk full"):
        write_npz(tmp_path / "a.npz", {"x": Breaking()})  # type: ignore[dict-item]
    np.testing.assert_array_equal(read_npz(tmp_path / "a.npz").x, np.ones(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


class Breaking:
    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("disk full")


def test_metrics_read_back_to_the_bit(tmp_path: Path) -> None:
    result = run(Experiment.load(overrides=["network.agents=5", "network.topology=ring", "run.rounds=4"]))
    write_metrics(tmp_path / "metrics.csv", result.metrics)
    again = read_metrics(tmp_path / "metrics.csv")
    assert list(again) == list(result.metrics)
    for name in again:
        np.testing.assert_array_equal(again[name], result.metrics[name])


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    assert RunDirectory.create(tmp_path / "a/b/c", force=False).checkpoint.is_dir()
