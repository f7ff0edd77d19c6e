"""A run directory: what lies in it, how it is written so that nothing half-written is ever read.

    experiment.toml    as resolved, with versions
    observation.npz    y, z (K, N, d) and P: what a global eavesdropper has
    truth.npz          x, grad, w, e (K, N, d), eta (K): never opened by an attack
    observation.zarr/, truth.zarr/   instead of these two, where they are large: the same arrays, in chunks of rounds
    solution.npz       x = x^K (N, d) and its mean (d): not covered by ε
    published.npz      x^K + w^K, if `dpp2 privacy publish` was asked for it: covered
    metrics.csv        one row for each of x^0 … x^K
    privacy.json       what the run cost, what the paper would say, and what makes either void
    result.json        the rest of a result: divergence, conditions, report, seconds
    events.jsonl       what happens while it happens, for `dpp2 watch`
    convergence.png, epsilon.png
    nodes/             over gRPC: every node's own folder, and the files that the nodes were started with
    tap/               with --tap: the bytes that crossed the wire, and what was decoded from them
    checkpoint/        the state to go on from, records not merged yet, and the secrets of an unseeded run
Files appear under their names only when complete: written beside, then renamed.
"""

from __future__ import annotations

import csv
import json
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import dpp2
from dpp2 import BadInput, Experiment, Records, Result
from dpp2.arrays import Array
from dpp2.errors import one_line
from dpp2.prepared import PreparedRun, Secrets
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported
from dpp2.recorder import Recorder
from dpp2.simulation import Snapshot
from dpp2.store.documents import EpsilonDocument
from dpp2.store.events import EventLog
from dpp2.store.files import PRIVATE, PUBLIC, json_text, read_json, read_npz, write_npz, write_text
from dpp2.store.kept import OBSERVATION, TRUTH, KeptRecords, ZarrKeeper, open_records, records_path
from dpp2.store.modes import make_private

_RECORDS = ("observation.npz", "truth.npz", "solution.npz", "metrics.csv", "privacy.json", "published.npz")
_OWN = ("experiment.toml", *_RECORDS, "result.json", "convergence.png", "epsilon.png", "events.jsonl")
_NOT_COVERED = {
    "solution.npz": "not covered by ε: x^K as it is reveals the last noise, and with it everything",
    "truth.npz": "not covered by ε: telemetry",
    "metrics.csv": "not covered by ε: gaps and objective are computed from private values, and so is convergence.png",
    "result.json": "not covered by ε: what it reports of the solution is computed from private values",
    "events.jsonl": "not covered by ε: with telemetry it holds gaps",
    "checkpoint": "not covered by ε: the agents' state as it is, and the keys of an unseeded run",
}
_CHECKPOINT = ("state.npz", "secrets.json", "records-*.npz", ".*.part")
_CHANGED = "the experiment that was run, but experiment.toml or a file named in it has changed"
_OTHER_DATA = "the data that were run: those in their place now are others, or a comment of their file is"
_FACTS = ("k", "seconds", "digest", "diverged", "data")  # of a snapshot, in state.npz beside the agents' state
_LATER = ("audit.json", "report.html")  # made from a run by other commands; stale once the run is replaced


@dataclass(frozen=True)
class RunDirectory:
    """One run directory on disk."""

    path: Path

    @classmethod
    def create(cls, path: Path, *, force: bool) -> RunDirectory:
        """A new, empty one; a directory with files in it is refused unless forced, and then only a run is removed."""
        cls.check_free(path, force=force)
        if path.is_dir() and _has_files(path):
            cls(path).clear()
        try:
            make_private(path / "checkpoint")
        except OSError as error:
            raise BadInput("--out", str(path), f"a directory that can be made ({error.strerror})") from None
        return cls(path)

    @staticmethod
    def check_free(path: Path, *, force: bool) -> None:
        """Refuse what is no directory, and one with files in it unless it may be replaced."""
        if path.exists() and not path.is_dir():
            raise BadInput("--out", str(path), "a directory, not a file")
        if not force and path.is_dir() and _has_files(path):
            raise BadInput("--out", str(path), "a new or empty directory (--force replaces the run in it)")

    def clear(self) -> None:
        """Remove the run, and nothing else."""
        for name in (*_OWN, *_LATER):
            (self.path / name).unlink(missing_ok=True)
        _remove_audits(self.path)
        for name in (OBSERVATION, TRUTH):
            if (kept := records_path(self.path, name)).is_dir():
                shutil.rmtree(kept)
        for pattern in _CHECKPOINT:  # file by file: somebody else's folder may be called checkpoint, too
            for file in self.checkpoint.glob(pattern):
                file.unlink()
        for folder, ours in (("nodes", ("groups.json", "node-*")), ("tap", ("*-0001.*",))):
            if any(any((self.path / folder).glob(one)) for one in ours):
                shutil.rmtree(self.path / folder)

    def discard(self, *, found: bool) -> None:
        """Take back a directory in which nothing was written yet; itself too, unless it was `found` there."""
        if _has_files(self.path):  # what was begun can be resumed, and that needs the folder for its checkpoints
            return
        for folder in (self.checkpoint, *([] if found else [self.path])):
            with suppress(OSError):  # not empty: somebody's
                folder.rmdir()

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing one, for `--resume` and for the commands that read runs."""
        if not (path / "experiment.toml").is_file():
            raise BadInput("RUN", str(path), "a run directory (one with experiment.toml in it)")
        return cls(path)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @cached_property
    def log(self) -> EventLog:
        """Where what happens is written down for whoever watches."""
        return EventLog(self.path / "events.jsonl")

    @property
    def ledger(self) -> Path:
        """Beside the runs, because what one run spends counts for the next one on the same data."""
        return self.path.resolve().parent / "ledger.sqlite"

    def begin(self, prepared: PreparedRun) -> None:
        """Write down what is run and, for an unseeded run, the secrets that a resume needs (mode 0600)."""
        make_private(self.checkpoint)  # a run that was stopped before its first checkpoint may have lost the folder
        self.describe(prepared.experiment)
        secrets = prepared.secrets
        if prepared.experiment.run.seed == "os":
            assert isinstance(secrets.agent, bytes)  # in one process all agents have one
            kept = {"agent": secrets.agent.hex(), "eta": secrets.eta.hex(), "run_id": secrets.run_id}
            write_text(self.checkpoint / "secrets.json", json.dumps(kept), PRIVATE)

    def describe(self, experiment: Experiment) -> None:
        write_text(self.path / "experiment.toml", _versions() + experiment.to_toml())

    def check_same(self, experiment: Experiment) -> None:
        """Refuse to go on with another experiment than the one that the nodes of this run have begun.

        A run over nodes has no state of its own before it ends, in which `load` would find that out.
        """
        for facts in self.path.glob("nodes/node-*/runs/*/node.json"):
            digest = experiment.digest
            with suppress(OSError, ValueError, KeyError, TypeError):  # its node will say what is wrong with it
                digest = str(read_json(facts)["digest"])
            if digest != experiment.digest:
                raise self._refused(_CHANGED)

    def secrets(self, experiment: Experiment) -> Secrets | None:
        """Of an unseeded run; a seeded one derives them again."""
        path = self.checkpoint / "secrets.json"
        if experiment.run.seed != "os" or not (path.is_file() or self._has_state()):
            return None
        with self._intact(path):
            kept = read_json(path)
            return Secrets(bytes.fromhex(kept["agent"]), bytes.fromhex(kept["eta"]), kept["run_id"])

    def save(self, snapshot: Snapshot) -> None:
        """Its records first, the state last: a state is only there if its records are."""
        since, k = snapshot.since, snapshot.k
        if k > since:
            write_npz(self.checkpoint / f"records-{since:09d}-{k:09d}.npz", snapshot.records, PRIVATE)
        facts = {name: np.array(getattr(snapshot, name)) for name in _FACTS}
        facts["uncovered"] = np.array([] if snapshot.uncovered is None else [snapshot.uncovered], dtype=np.int64)
        write_npz(self.checkpoint / "state.npz", {**snapshot.state, **snapshot.watched, **facts}, PRIVATE)

    def load(self, fresh: Snapshot, rounds: int) -> Snapshot | None:
        """Where the last checkpoint left off; None if the run was killed before its first.

        `fresh` is a snapshot at round 0 of the run that is to go on, for `rounds` rounds: what is on disk must fit it.
        """
        if not self._has_state():
            return None
        with self._intact(self.checkpoint / "state.npz") as path:
            saved = read_npz(path)
            k, seconds = int(saved["k"]), float(saved["seconds"])
            digest, data, diverged = str(saved["digest"]), str(saved["data"]), bool(saved["diverged"])
            uncovered = next(iter(saved["uncovered"].tolist()), None)
            state = {name: _of_shape(array.shape, name, saved[name]) for name, array in fresh.state.items()}
            watched = {name: saved[name] for name in fresh.watched}
        if digest != fresh.digest:
            raise self._refused(_CHANGED)
        if data and data != fresh.data:
            raise self._refused(_OTHER_DATA)
        if diverged:
            raise self._refused(f"a run that can go on, but this one diverged within {k} rounds")
        if k > rounds:
            raise BadInput("run.rounds", rounds, f"at least {k}, the rounds that were run already")
        records = {name: np.empty((k, *array.shape[1:])) for name, array in fresh.records.items()}
        self._read_records(records, k)
        return Snapshot(k, 0, digest, seconds, diverged, state, watched, records, uncovered, data)

    def _read_records(self, records: dict[str, Array], k: int) -> None:
        """Rounds 0 … k−1: those of the finished run, then the checkpoint's. Rounds after k will be run again."""
        done = 0
        if (self.path / "metrics.csv").is_file():
            with self._intact(self.path / "metrics.csv") as metrics:
                merged = {f"metrics.{name}": column[:-1] for name, column in read_metrics(metrics).items()}
            wanted = [name for name in records if name not in merged]
            for name in (OBSERVATION, TRUTH) if wanted else ():
                with self._intact(records_path(self.path, name)) as path:
                    kept = open_records(self.path, name)
                    merged |= {name: kept[name] for name in wanted if name in kept}
            if missing := [name for name in wanted if name not in merged]:
                raise self._refused(f"an intact run, but {path.name} has no records of {missing[0]}")
            done = self._put_back(records, 0, merged, metrics)
        for part in sorted(self.checkpoint.glob("records-*.npz")):
            with self._intact(part):
                first, found = int(part.name.split("-")[1]), dict(read_npz(part))
            if first <= done:
                done = max(done, self._put_back(records, first, found, part))
        if done < k:
            raise self._refused(f"an intact run, but the records of rounds {done} to {k - 1} are gone")

    def _put_back(self, records: dict[str, Array], first: int, found: Mapping[str, Array], path: Path) -> int:
        """Records of rounds first …, as far as all of them go and there is room; returns the round after the last."""
        with self._intact(path):
            count = min(len(found["metrics.round"]), max(len(records["metrics.round"]) - first, 0))
            for name, array in records.items():
                array[first : first + count] = _of_shape((count, *array.shape[1:]), name, found[name][:count])
            return first + count

    def keep(self, recorder: Recorder, run_id: str) -> None:
        """Take the records of a large run as they come; those of a small one are written when it ends."""
        if recorder.streamed:
            recorder.keep_in(ZarrKeeper(self.path, recorder, run_id))

    def as_kept(self, experiment: Experiment) -> Experiment:
        """An experiment whose records go on as they began, however many rounds there are to be now."""
        if experiment.run.records != "auto" or not self._has_state():
            return experiment
        return experiment.with_setting("run.records", records_path(self.path, OBSERVATION).suffix.removeprefix("."))

    def finish(self, result: Result, snapshot: Snapshot) -> None:
        """Write the results, then the state that rests on them, then drop the parts that they were merged from.

        result.json comes last, with checksums of the records: the one of a shorter run would not fit what is written.
        """
        (self.path / "result.json").unlink(missing_ok=True)
        self.write_records(result)
        self.save(snapshot)
        for pattern in ("records-*.npz", ".*.part"):
            for part in self.checkpoint.glob(pattern):
                part.unlink()

    def write_records(self, result: Result) -> None:
        """Metrics after observation and truth: rounds that have metrics have the others."""
        self.write_arrays(result.observation, result.truth)
        with np.errstate(over="ignore", invalid="ignore"):  # the mean of a run that overflowed
            write_npz(self.path / "solution.npz", {"x": result.x, "mean": result.x.mean(axis=0)}, PRIVATE)
        write_metrics(self.path / "metrics.csv", result.metrics)
        write_text(self.path / "privacy.json", json_text(privacy_document(result)))

    def write_arrays(self, observation: Records, truth: Records) -> None:
        """Observation and truth, unless they were kept here as they came."""
        for name, records, mode in ((OBSERVATION, observation, PUBLIC), (TRUTH, truth, PRIVATE)):
            if records and not self._has(records):
                write_npz(self.path / f"{name}.npz", records, mode)

    def _has(self, records: Records) -> bool:
        """Whether these have been kept here as they came."""
        return isinstance(records, KeptRecords) and records.path.parent == self.path

    def _has_state(self) -> bool:
        return (self.checkpoint / "state.npz").is_file()

    @contextmanager
    def _intact(self, path: Path) -> Iterator[Path]:
        """Whatever goes wrong while a file of the run is read becomes one sentence."""
        try:
            yield path
        except Exception as error:  # zip, zlib, json and numpy raise a dozen kinds on a damaged file
            name = path.relative_to(self.path)
            raise self._refused(f"an intact run, but {name} cannot be used ({one_line(error)})") from None

    def _refused(self, accepted: str) -> BadInput:
        return BadInput("--resume", str(self.path), accepted)


def privacy_document(result: Result) -> dict[str, object]:
    """What a run cost, for privacy.json and `--json`."""
    privacy, algorithm = result.privacy, result.experiment.algorithm
    covered = {"solution.npz"} if algorithm.result_is_covered else set()
    covered |= set() if result.truth else {"truth.npz", "events.jsonl"}
    chunked = {"truth.npz": "truth.zarr"} if isinstance(result.truth, KeptRecords) else {}
    return {
        **epsilon_document(privacy.epsilon, privacy.paper_epsilon),
        "rounds": result.rounds,
        "budget": result.experiment.privacy.budget,
        "stopped": privacy.stopped,
        "notes": list(privacy.notes),
        "not_covered": {chunked.get(name, name): why for name, why in _NOT_COVERED.items() if name not in covered},
    }


def epsilon_document(spent: Epsilon | Unsupported, claimed: PaperEpsilon | Unsupported) -> EpsilonDocument:
    """ε and its log10 beside the paper's; null where there is no number, and then `reason` says why."""
    return {
        "epsilon": spent.value if isinstance(spent, Epsilon) else None,
        "log10_epsilon": spent.log10 if isinstance(spent, Epsilon) else None,
        "log2_delta": spent.log2_delta if isinstance(spent, Epsilon) and spent.tail else None,
        "reason": spent.reason if isinstance(spent, Epsilon) else str(spent),
        "paper_epsilon": claimed.value if isinstance(claimed, PaperEpsilon) else None,
        "paper_log10_epsilon": claimed.log10 if isinstance(claimed, PaperEpsilon) else None,
        "paper_reason": None if isinstance(claimed, PaperEpsilon) else str(claimed),
    }


def _has_files(path: Path) -> bool:
    """An empty checkpoint folder does not count: a run that was killed before it wrote anything leaves one."""
    checkpoint = path / "checkpoint"
    return any(entry != checkpoint or not entry.is_dir() or any(entry.iterdir()) for entry in path.iterdir())


def _remove_audits(run: Path) -> None:
    """Those that lie in folders of their own; whatever else is there is somebody's."""
    for folder in run.glob("audit-*"):
        for name in _LATER:
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


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
    write_text(path, "\n".join(lines) + "\n", PRIVATE)


def _of_shape(shape: tuple[int, ...], name: str, array: Array) -> Array:
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}, not {shape}")
    return array


def _versions() -> str:
    names = f"dpp2 {dpp2.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    return f"# Resolved by {names}.\n\n"
