"""A run directory: what lies in it, how it is written so that nothing half-written is ever read.

    experiment.toml    as resolved, with versions
    observation.npz    y, z (K, N, d) and P: what a global eavesdropper has
    truth.npz          x, grad, w, e (K, N, d), eta (K): never opened by an attack
    solution.npz       x = x^K (N, d) and its mean (d)
    metrics.csv        one row for each of x^0 … x^K
    convergence.png
    checkpoint/        the state to go on from, records not merged yet, and the secrets of an unseeded run
Files appear under their names only when complete: written beside, then renamed.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

import dpp2
from dpp2 import BadInput, Records, Result, Simulation
from dpp2.arrays import Array
from dpp2.setting import Secrets

_OWN = ("experiment.toml", "observation.npz", "truth.npz", "solution.npz", "metrics.csv", "convergence.png")
_LATER = ("audit.json", "report.html")  # made from a run by other commands; stale once the run is replaced


@dataclass(frozen=True)
class RunDirectory:
    """One run directory on disk."""

    path: Path

    @classmethod
    def create(cls, path: Path, *, force: bool) -> RunDirectory:
        """A new, empty one; a directory with files in it is refused unless forced, and then only a run is removed."""
        if path.exists() and not path.is_dir():
            raise BadInput("--out", str(path), "a directory, not a file")
        if path.is_dir() and any(path.iterdir()):
            if not force:
                raise BadInput("--out", str(path), "a new or empty directory (--force replaces the run in it)")
            for name in (*_OWN, *_LATER):
                (path / name).unlink(missing_ok=True)
            shutil.rmtree(path / "checkpoint", ignore_errors=True)
        try:
            (path / "checkpoint").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput("--out", str(path), f"a directory that can be made ({error.strerror})") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing one, for `--resume` and for the commands that read runs."""
        if not (path / "experiment.toml").is_file():
            raise BadInput("RUN", str(path), "a run directory (one with experiment.toml in it)")
        return cls(path)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def begin(self, simulation: Simulation) -> None:
        """Write down what is run and, for an unseeded run, the secrets that a resume needs (mode 0600)."""
        _write_text(self.path / "experiment.toml", _versions() + simulation.experiment.to_toml())
        if simulation.experiment.run.seed == "os":
            secrets = simulation.setting.secrets
            kept = {"agent": secrets.agent.hex(), "eta": secrets.eta.hex(), "run_id": secrets.run_id}
            _write_text(self.checkpoint / "secrets.json", json.dumps(kept), mode=0o600)

    def secrets(self) -> Secrets | None:
        """Of an unseeded run; a seeded one derives them again."""
        path = self.checkpoint / "secrets.json"
        if not path.is_file():
            return None
        kept = json.loads(path.read_text())
        return Secrets(bytes.fromhex(kept["agent"]), bytes.fromhex(kept["eta"]), kept["run_id"])

    def save(self, simulation: Simulation, since: int) -> None:
        """Records of rounds since … k−1 first, the state at k last: a state is only there if its records are."""
        k = simulation.k
        if k > since:
            write_npz(self.checkpoint / f"records-{since:09d}-{k:09d}.npz", simulation.recorder.slice(since, k))
        write_npz(
            self.checkpoint / "state.npz",
            {**simulation.network.state(), "k": np.array(k), "seconds": np.array(simulation.seconds)},
        )

    def restore(self, simulation: Simulation) -> None:
        """Put a fresh simulation where the last checkpoint left off."""
        try:
            with np.load(self.checkpoint / "state.npz", allow_pickle=False) as saved:
                state = {name: saved[name] for name in saved.files}
        except FileNotFoundError:
            return  # killed before its first checkpoint: start over
        k, simulation.seconds = int(state.pop("k")), float(state.pop("seconds"))
        for first, records in self._records():
            if first < k:
                simulation.recorder.restore(first, records)
        simulation.network.restore(state)
        simulation.k = k

    def _records(self) -> list[tuple[int, dict[str, Array]]]:
        """Records as (first round, arrays): those of the finished run, then the checkpoint's."""
        found = []
        if (self.path / "metrics.csv").is_file():
            rows = read_metrics(self.path / "metrics.csv")
            merged = {f"metrics.{name}": column[:-1] for name, column in rows.items()}  # x^K is measured again
            for name in ("observation.npz", "truth.npz"):
                if (self.path / name).is_file():
                    merged |= dict(read_npz(self.path / name))
            found.append((0, merged))
        parts = sorted(self.checkpoint.glob("records-*.npz"))
        return found + [(int(part.name.split("-")[1]), dict(read_npz(part))) for part in parts]

    def finish(self, simulation: Simulation, result: Result, draw: Callable[[Path], None]) -> None:
        """Write the results, then drop the parts that they were merged from."""
        self.save(simulation, simulation.k)
        if result.observation is not None:
            write_npz(self.path / "observation.npz", result.observation)
        if result.truth is not None:
            write_npz(self.path / "truth.npz", result.truth)
        write_npz(self.path / "solution.npz", {"x": result.x, "mean": result.x.mean(axis=0)})
        write_metrics(self.path / "metrics.csv", result.metrics)
        draw(self.path / "convergence.png")
        for part in self.checkpoint.glob("records-*.npz"):
            part.unlink()


def free_name(parent: Path, stem: str) -> Path:
    """parent/stem-1, or the next number that is not taken."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"


def read_npz(path: Path) -> Records:
    with np.load(path, allow_pickle=False) as arrays:
        return Records({name: arrays[name] for name in arrays.files})


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    _write(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # savez's own keyword clashes


def read_metrics(path: Path) -> Records:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    columns = np.array([[float(cell) for cell in row] for row in rows]).T
    return Records(dict(zip(header, columns, strict=True)))


def write_metrics(path: Path, metrics: Records) -> None:
    """CSV whose numbers read back to the same float64."""
    whole = {"round", "bytes"}
    columns = [metrics[name].astype(int).tolist() if name in whole else metrics[name].tolist() for name in metrics]
    lines = [",".join(metrics), *(",".join(map(repr, row)) for row in zip(*columns, strict=True))]
    _write_text(path, "\n".join(lines) + "\n")


def _write_text(path: Path, text: str, mode: int = 0o644) -> None:
    _write(path, lambda file: file.write(text.encode()), mode)


def _write(path: Path, fill: Callable[[IO[bytes]], Any], mode: int = 0o644) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _versions() -> str:
    names = f"dpp2 {dpp2.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    return f"# Resolved by {names}.\n\n"
