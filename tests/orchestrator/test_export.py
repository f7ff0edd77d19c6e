"""`dpp2 export`: records alone leave a machine, and collect makes of them what it makes of homes."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.node.keyring import write_key
from dpp2.store.rundir import read_metrics
from tests.orchestrator.collected import COMPARED, TABLES, Machines

Call = Callable[..., Any]


@pytest.fixture
def export(dpp2: Call, tmp_path: Path) -> Call:
    """`dpp2 export` of each home into a file of its own."""

    def call(machines: Machines, *more: object) -> list[Path]:
        files = [tmp_path / f"{home.name}.zip" for home in machines.homes]
        for home, file in zip(machines.homes, files, strict=True):
            ended = dpp2("export", home, "--experiment", machines.file, "--out", file, *more)
            assert ended.code == 0, ended.err
        return files

    return call


@pytest.fixture
def untold(tmp_path: Path) -> Machines:
    """Without telemetry."""
    machines = Machines(tmp_path / "untold", Experiment.load(overrides=TABLES))
    asyncio.run(machines.run(telemetry=False))
    return machines


def test_exports_give_the_run_that_homes_give(whole: Machines, export: Call, collect: Call, tmp_path: Path) -> None:
    ended = collect(whole, homes=export(whole))
    assert (ended.code, ended.err) == (0, "")
    exported = {name: (tmp_path / "run" / name).read_bytes() for name in COMPARED}
    assert collect(whole, "--force").code == 0
    assert exported == {name: (tmp_path / "run" / name).read_bytes() for name in COMPARED}


def test_homes_and_exports_can_be_mixed(whole: Machines, export: Call, collect: Call, tmp_path: Path) -> None:
    ended = collect(whole, homes=[whole.homes[0], export(whole)[1]])
    assert ended.code == 0, ended.err
    with np.load(tmp_path / "run" / "solution.npz") as solution:
        x = solution["x"]
    assert collect(whole, "--force").code == 0
    with np.load(tmp_path / "run" / "solution.npz") as solution:
        assert x.tobytes() == solution["x"].tobytes()


def test_one_export_of_several_homes(whole: Machines, dpp2: Call, collect: Call, tmp_path: Path) -> None:
    file = tmp_path / "all.zip"
    ended = dpp2("export", *whole.homes, "--experiment", whole.file, "--out", file, "--json")
    assert json.loads(ended.out) == {
        "path": str(file),
        "run_id": whole.run_id,
        "agents": [0, 1, 2],
        "telemetry": True,
    }
    assert collect(whole, homes=[file]).code == 0


def test_without_telemetry_an_export_holds_what_was_sent_and_no_more(
    untold: Machines, export: Call, collect: Call, tmp_path: Path
) -> None:
    """Neither x, d and q, nor keys, nor digests of the journal: not as files, and not as bytes."""
    for home in untold.homes:
        write_key(home / "agent-0.key", bytes(range(32)))  # one that an older version has left there
    files = export(untold)
    untold.simulation.advance(untold.simulation.remaining)
    result = untold.simulation.result()
    secrets = [bytes(range(32)), bytes(range(32)).hex().encode(), *(row.tobytes() for row in result.x)]
    secrets += [row.tobytes() for rows in untold.simulation.driver.state().values() for row in rows]
    for file in files:
        with zipfile.ZipFile(file) as archive:
            assert sorted(archive.namelist()) == ["0/y.f64", "0/z.f64", "export.json"]
        assert [secret for secret in secrets if secret in file.read_bytes()] == []
        assert file.stat().st_mode & 0o777 == 0o600
    ended = collect(untold, homes=files)
    assert ended.code == 0, ended.err
    assert "left out: x^K" in " ".join(ended.err.split())
    assert not (tmp_path / "run" / "solution.npz").exists()
    assert not (tmp_path / "run" / "truth.npz").exists()
    assert result.observation is not None
    with np.load(tmp_path / "run" / "observation.npz") as seen:
        for name in ("y", "z"):
            assert seen[name].tobytes() == result.observation[name].tobytes()
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    assert np.isnan(metrics.gap).all()
    np.testing.assert_array_equal(metrics.epsilon, result.metrics.epsilon)


def test_telemetry_is_warned_of(whole: Machines, dpp2: Call, tmp_path: Path) -> None:
    ended = dpp2("export", whole.homes[0], "--experiment", whole.file, "--out", tmp_path / "one.zip")
    assert "nothing of it is private" in " ".join(ended.err.split())


def test_homes_are_warned_of(whole: Machines, collect: Call) -> None:
    said = " ".join(collect(whole).err.split())
    for home in whole.homes:
        assert f"{home} holds checkpoints" in said.replace(" ", "").replace("holdscheckpoints", " holds checkpoints")


@pytest.mark.parametrize("name", ["agent-0.key", "runs/eta.key", "key.pem"])
def test_keys_that_came_along_are_refused(name: str, whole: Machines, collect: Call, tmp_path: Path) -> None:
    copy = whole.copied(tmp_path / "copy")
    (copy.homes[1] / name).write_text("00" * 32)
    ended = collect(copy)
    assert ended.code == 2
    assert "records without keys: this one came along" in " ".join(ended.err.split())
    assert not (tmp_path / "run").exists()


def test_an_existing_file_is_not_replaced(whole: Machines, dpp2: Call, tmp_path: Path) -> None:
    out = tmp_path / "there.zip"
    out.write_bytes(b"mine")
    ended = dpp2("export", whole.homes[0], "--experiment", whole.file, "--out", out)
    assert ended.code == 2
    assert out.read_bytes() == b"mine"


def test_exports_are_the_same_bytes_each_time(whole: Machines, dpp2: Call, tmp_path: Path) -> None:
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for file in files:
        assert dpp2("export", whole.homes[0], "--experiment", whole.file, "--out", file).code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
