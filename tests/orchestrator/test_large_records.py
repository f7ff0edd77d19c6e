"""Records that are written in chunks as they come: the same bytes as in one file, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dpp2 import BadInput, Experiment, Result, Simulation, streaming
from dpp2.adversary.audit import audit
from dpp2.orchestrator import runner
from dpp2.orchestrator.exports import ExportedRecords
from dpp2.orchestrator.merge import FolderRecords
from dpp2.orchestrator.transports import embedded
from dpp2.store import files, kept, zarr_arrays
from dpp2.store.kept import KeptRecords, open_records
from dpp2.store.rundir import read_metrics
from tests.orchestrator.collected import TABLES as COLLECTED
from tests.orchestrator.collected import Machines

Call = Callable[..., Any]
ROUNDS, CHUNK = 8, 3
TABLES = {
    "network.topology": "star",
    "network.agents": 5,
    "problem.name": "least-squares",
    "problem.dimension": 3,
    "run.rounds": ROUNDS,
}
NAMES = ("observation", "truth")


class Killed(BaseException):
    """Nothing catches this, like SIGKILL."""


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch, quick_plot: None) -> None:
    """Three rounds each, checkpoints after every round: two of three find a chunk that is not full."""
    monkeypatch.setattr(streaming, "CHUNK", CHUNK * 8 * 5 * 3 + 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # what is killed here is no machine
    monkeypatch.setattr(embedded, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(embedded, "_LOOK_SECONDS", 0.0)


def experiment(**changes: Any) -> Experiment:
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    return Experiment.load(overrides=TABLES | {"run.records": "zarr"} | changed)


def begin(path: Path, chosen: Experiment) -> Result:
    return runner.start(chosen, path, stem="", force=False, progress=lambda *_: None).result


def resume(path: Path, *overrides: str) -> Result:
    return runner.resume(path, list(overrides), lambda *_: None).result


def arrays(run: Path) -> dict[str, bytes]:
    """Of observation and truth, whichever way they are kept."""
    return {f"{name}.{key}": array.tobytes() for name in NAMES for key, array in open_records(run, name).items()}


def assert_same(run: Path, other: Path) -> None:
    assert arrays(run) == arrays(other)
    for name in ("metrics.csv", "solution.npz"):
        assert (run / name).read_bytes() == (other / name).read_bytes()


def test_the_same_bytes_as_in_one_file_and_others_read_them(tmp_path: Path) -> None:
    begin(tmp_path / "one", experiment(run__records="npz"))
    result = begin(tmp_path / "chunks", experiment())
    assert_same(tmp_path / "chunks", tmp_path / "one")
    assert {path.name for path in (tmp_path / "chunks").glob("*.npz")} == {"solution.npz"}
    for name in NAMES:
        group, whole = (
            zarr.open_group(tmp_path / "chunks" / f"{name}.zarr", mode="r"),
            open_records(tmp_path / "one", name),
        )
        assert set(group) == set(whole) == set(getattr(result, name))
        for key, array in whole.items():
            read = group[key]
            assert isinstance(read, zarr.Array)
            assert np.asarray(read[:]).tobytes() == array.tobytes(), key
            assert array.ndim < 3 or read.chunks == (CHUNK, 5, 3)


def test_digest_and_noise_do_not_depend_on_how_records_are_kept() -> None:
    kinds = ("auto", "npz", "zarr", "none")
    assert len({experiment(run__records=kind).resolve().digest for kind in kinds}) == 1


def test_no_more_than_a_chunk_is_held() -> None:
    recorder = Simulation(experiment(run__rounds=100_000), to_disk=True).recorder
    assert {len(rows) for rows in (recorder.sent_arrays | recorder.private_arrays).values()} == {CHUNK}


@pytest.mark.parametrize(("bound", "suffix"), [(6 * 8 * ROUNDS * 5 * 3, "npz"), (6 * 8 * ROUNDS * 5 * 3 - 1, "zarr")])
def test_large_records_are_chunked_by_themselves(
    bound: int, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MOST_IN_MEMORY", bound)
    begin(tmp_path / "run", experiment(run__records="auto"))
    assert {path.suffix for path in tmp_path.glob("run/observation.*")} == {f".{suffix}"}
    monkeypatch.setattr(streaming, "MOST_IN_MEMORY", 0 if suffix == "npz" else 2**30)
    resume(tmp_path / "run", f"run.rounds={ROUNDS + 2}")  # goes on as it began
    assert {path.suffix for path in tmp_path.glob("run/observation.*")} == {f".{suffix}"}


def test_only_the_owner_reads_the_truth(tmp_path: Path) -> None:
    begin(tmp_path / "run", experiment())
    truth = tmp_path / "run/truth.zarr"
    assert truth.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in truth.rglob("*") if file.is_file()} == {0o600}
    said = json.loads((tmp_path / "run/privacy.json").read_text())["not_covered"]
    assert "truth.zarr" in said
    assert "truth.npz" not in said


def test_without_records(tmp_path: Path) -> None:
    result = begin(tmp_path / "run", experiment(run__records="none"))
    assert not result.observation
    assert not result.truth
    result = resume(tmp_path / "run", f"run.rounds={ROUNDS + 2}")
    assert result.x.tobytes() == begin(tmp_path / "whole", experiment(run__rounds=ROUNDS + 2)).x.tobytes()
    assert not [*tmp_path.glob("run/observation.*"), *tmp_path.glob("run/truth.*")]


@pytest.fixture
def killed_at_write(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Let the process die at its n-th write from here on (None: never)."""
    write, writes, deadly = files.write_whole, count(), None

    def counted(path: Path, *rest: Any) -> None:
        if next(writes) == deadly:
            path.with_name(f".{path.name}.part").write_bytes(b"half of i")  # as a kill leaves it
            raise Killed
        write(path, *rest)

    def arm(number: int | None) -> None:
        nonlocal deadly, writes
        deadly, writes = number, count()

    for module in (files, zarr_arrays):
        monkeypatch.setattr(module, "write_whole", counted)
    return arm


def _kills(step: int) -> Iterator[int]:
    """A checkpoint is fourteen writes, so that these steps come to all of them in turn."""
    return count(1, step)


def test_killed_at_any_write(tmp_path: Path, killed_at_write: Callable[[int | None], None]) -> None:
    begin(tmp_path / "whole", experiment())
    for number in _kills(13):
        path = tmp_path / str(number)
        killed_at_write(number)
        try:
            begin(path, experiment())
        except Killed:
            killed_at_write(None)
            resume(path)
            assert_same(path, tmp_path / "whole")
            assert not list(path.glob("*.zarr/*/.*.part"))
        else:
            assert number > 100  # a chunk of six arrays and their shapes at every checkpoint
            return


def test_killed_while_it_is_extended(tmp_path: Path, killed_at_write: Callable[[int | None], None]) -> None:
    begin(tmp_path / "whole", experiment(run__rounds=ROUNDS + 3))
    for number in _kills(9):
        path = tmp_path / str(number)
        killed_at_write(None)
        begin(path, experiment())
        before = arrays(path)
        killed_at_write(number)
        with suppress(Killed):
            resume(path, f"run.rounds={ROUNDS + 3}")
            return
        killed_at_write(None)
        if len(read_metrics(path / "metrics.csv")["round"]) == ROUNDS + 1:
            assert arrays(path) == before  # readers see the run that is whole
        resume(path, f"run.rounds={ROUNDS + 3}")
        assert_same(path, tmp_path / "whole")


def _cut(file: Path) -> None:
    os.truncate(file, 100)


@pytest.mark.parametrize("damage", [_cut, Path.unlink])
def test_half_a_chunk_is_refused(damage: Callable[[Path], None], tmp_path: Path, dpp2: Call) -> None:
    begin(tmp_path / "run", experiment())
    damage(tmp_path / "run/observation.zarr/y/c.2.0.0")
    longer = dpp2("run", "--resume", tmp_path / "run", "--set", f"run.rounds={ROUNDS + 2}")
    audited = dpp2("audit", tmp_path / "run", "--no-game")
    for ended, what in ((longer, "intact observation.zarr"), (audited, "intact observation.zarr")):
        assert ended.code == 2
        assert what in ended.err
        assert ended.err.count("\n") == 1


def test_force_replaces_the_chunks(tmp_path: Path, dpp2: Call, small: list[str]) -> None:
    begin(tmp_path / "run", experiment())
    assert dpp2("run", "--out", tmp_path / "run", "--force", *small).code == 0
    assert {path.name for path in (tmp_path / "run").glob("observation.*")} == {"observation.npz"}


def test_a_result_reads_an_array_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path / "one", experiment(run__records="npz"))
    begin(tmp_path / "run", experiment())
    result, whole = Result.load(tmp_path / "run"), Result.load(tmp_path / "one")
    assert repr(result.truth) == repr(Result.load(tmp_path / "run").truth)
    assert isinstance(result.truth, KeptRecords)
    assert result.truth.x.tobytes() == whole.truth.x.tobytes()
    assert not result.truth.x.flags.writeable
    with pytest.raises(AttributeError, match="no array 'nothing' here"):
        _ = result.truth.nothing
    with pytest.raises(BadInput, match="another directory than the one that its records are read from"):
        result.save(tmp_path / "run", force=True)
    result.save(tmp_path / "copy")
    assert arrays(tmp_path / "copy") == arrays(tmp_path / "one")
    monkeypatch.setattr(kept, "_free_memory", lambda: 100)
    with pytest.raises(BadInput, match=r"records that fit in memory: 0\.0 GB are needed"):
        _ = Result.load(tmp_path / "run").observation["y"]


def test_from_python_without_a_folder_nothing_is_chunked() -> None:
    from dpp2 import run

    assert run(experiment()).observation.y.shape == (ROUNDS, 5, 3)


class TestAudit:
    @pytest.mark.parametrize("last", [None, 4])
    def test_finds_the_same(self, last: int | None, tmp_path: Path) -> None:
        found = []
        for kind in ("npz", "zarr"):
            begin(tmp_path / kind, experiment(run__records=kind))
            report = audit(tmp_path / kind, game=False, last=last)
            assert report.interception.source.startswith(f"observation.{kind}")
            assert report.truth is not None
            assert report.view is not None
            assert report.view.observation.first == report.truth.first == (ROUNDS - last if last else 0)
            found.append([(one.name, str(one.errors), one.data) for one in report.findings])
        assert found[0]
        assert found[0] == found[1]

    def test_reads_the_last_rounds_only(self, tmp_path: Path, dpp2: Call) -> None:
        """Chunks before them are not even looked at."""
        begin(tmp_path / "run", experiment())
        for name in ("observation.zarr/y", "observation.zarr/z", "truth.zarr/x"):
            (tmp_path / "run" / name / "c.0.0.0").unlink()
        assert dpp2("audit", tmp_path / "run", "--no-game").code == 2
        (tmp_path / "run/truth.zarr/e/c.0.0.0").unlink()
        ended = dpp2("audit", tmp_path / "run", "--no-game", "--attack", "direct", "--last", 5)
        assert ended.code == 0, ended.err

    def test_too_large_for_memory(self, tmp_path: Path, dpp2: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        begin(tmp_path / "run", experiment())
        monkeypatch.setattr(kept, "_free_memory", lambda: 1000)
        ended = dpp2("audit", tmp_path / "run", "--no-game")
        assert ended.code == 2
        assert "--last" in ended.err
        assert ended.err.count("\n") == 1

    def test_a_neighbour_heard_all_rounds(self, tmp_path: Path, dpp2: Call) -> None:
        begin(tmp_path / "run", experiment())
        ended = dpp2("audit", tmp_path / "run", "--attacker", "neighbour", "--last", 3)
        assert (ended.code, ended.err.count("\n")) == (2, 1)

    def test_a_run_that_is_not_over(self, tmp_path: Path, dpp2: Call) -> None:
        begin(tmp_path / "run", experiment())
        (tmp_path / "run/metrics.csv").unlink()
        ended = dpp2("audit", tmp_path / "run", "--no-game")
        assert ended.code == 2
        assert "a finished run" in ended.err


def watch(monkeypatch: pytest.MonkeyPatch, cls: Any, asked: list[int]) -> None:
    """How many rounds are read at a time."""
    read = cls.read

    def counted(self: Any, name: str, rounds: range, width: int) -> Any:
        asked.append(len(rounds))
        return read(self, name, rounds, width)

    monkeypatch.setattr(cls, "read", counted)


class TestCollect:
    @pytest.mark.parametrize("exported", [False, True])
    def test_a_chunk_at_a_time(
        self, exported: bool, whole: Machines, dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The bytes of the embedded run; and nobody has asked for more rounds at once than a chunk has."""
        monkeypatch.setattr(streaming, "CHUNK", CHUNK * 8 * 3 * 3)
        file, homes = tmp_path / "chunks.toml", list(whole.homes)
        file.write_text(Experiment.load(whole.file).replace(run={"records": "zarr"}).to_toml())
        if exported:
            homes = [tmp_path / "0.zip", tmp_path / "1.zip"]
            for home, out in zip(whole.homes, homes, strict=True):
                assert dpp2("export", home, "--experiment", file, "--out", out).code == 0
        asked: list[int] = []
        watch(monkeypatch, ExportedRecords if exported else FolderRecords, asked)
        ended = dpp2("collect", *homes, "--experiment", file, "--out", tmp_path / "run")
        assert ended.code == 0, ended.err
        assert max(asked) == CHUNK
        assert dpp2("run", whole.file, "--set", "run.records=npz", "--out", tmp_path / "embedded").code == 0
        assert_same(tmp_path / "run", tmp_path / "embedded")
        assert (tmp_path / "run/truth.zarr").stat().st_mode & 0o777 == 0o700

    def test_what_was_resumed_is_taken_from_its_beginning(self, tmp_path: Path) -> None:
        """A run over nodes that goes on knows a checkpoint of its own first, and then all that nodes have."""
        chosen = Experiment.load(overrides=COLLECTED | {"run.records": "zarr"})
        begin(tmp_path / "run", chosen)
        simulation = Simulation(chosen, to_disk=True)
        simulation.recorder.keep_in(kept.ZarrKeeper(tmp_path / "run", simulation.recorder, simulation.run_id))
        truth, seen = (dict(open_records(tmp_path / "run", name)) for name in ("truth", "observation"))
        simulation.recorder.restore(4, {name: column[:4] for name, column in _metrics(simulation, truth).items()})
        chunk = simulation.recorder.window
        rows = {name: array for name, array in (seen | truth).items() if len(array) == 9}
        pieces = [{name: array[first : first + chunk] for name, array in rows.items()} for first in range(0, 9, chunk)]
        simulation.recorder.take(pieces)
        simulation.recorder.flush(9)
        again = open_records(tmp_path / "run", "observation")
        assert {name: array.tobytes() for name, array in again.items()} == {n: a.tobytes() for n, a in seen.items()}


def _metrics(simulation: Simulation, truth: dict[str, Any]) -> dict[str, Any]:
    columns = {f"metrics.{name}": column for name, column in simulation.recorder.columns.items()}
    return columns | {name: truth[name] for name in simulation.recorder.scalars}
