"""Homes and exports that somebody else has made, and not in good faith: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput, Experiment
from dpp2.orchestrator.collect import collect as merge
from dpp2.orchestrator.collect import export
from tests.orchestrator.collected import Machines

Call = Callable[..., Any]
SEEDS = pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 420), marks=pytest.mark.slow)], ids=str)


@pytest.fixture
def exported(whole: Machines, tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{home.name}.zip" for home in whole.homes]
    for home, file in zip(whole.homes, files, strict=True):
        export([home], Experiment.load(whole.file), file, None)
    return files


def refused(ended: Any, tmp_path: Path, *parts: str) -> None:
    said = " ".join(ended.err.split())
    assert ended.code == 2, said
    assert said.startswith("dpp2: ")
    for part in parts:
        assert part in said, said
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob(".run*"))


# --- homes ----------------------------------------------------------------------------------------------------


def folder_behind_link(run: Path) -> None:
    (run / "records").rename(run.parent.parent / "elsewhere")
    (run / "records").symlink_to(run.parent.parent / "elsewhere")


def with_facts(**changes: Any) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        facts = json.loads((run / "node.json").read_text())
        (run / "node.json").write_text(json.dumps(facts | changes))

    return change


def with_checkpoint(change: Callable[[dict[str, Any]], object], numbers: bytes | None = None) -> Callable[[Path], None]:
    """A checkpoint that says something else, under a checksum that is right."""

    def forge(run: Path) -> None:
        content = (run / "checkpoint.bin").read_bytes()[32:]
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        forged = struct.pack("<Q", len(text)) + text + (content[8 + length :] if numbers is None else numbers)
        (run / "checkpoint.bin").write_bytes(hashlib.sha256(forged).digest() + forged)

    return forge


def nan_in(name: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        path = run / "records" / f"{name}.f64"
        numbers = np.fromfile(path)
        numbers[3] = np.nan
        path.write_bytes(numbers.tobytes())

    return spoil


def emptied(path: Path) -> Path:
    path.unlink()
    return path


HOMES: dict[str, Callable[[Path], object]] = {
    "records are a link": lambda run: emptied(run / "records" / "y.f64").symlink_to("/dev/zero"),
    "facts are a link": lambda run: emptied(run / "node.json").symlink_to("/dev/zero"),
    "checkpoint is a link": lambda run: emptied(run / "checkpoint.bin").symlink_to("/dev/zero"),
    "a folder behind a link": folder_behind_link,
    "records are a pipe": lambda run: os.mkfifo(emptied(run / "records" / "z.f64")),
    "records are a folder": lambda run: emptied(run / "records" / "y.f64").mkdir(),
    "records are gone": lambda run: (run / "records" / "grad.f64").unlink(),
    "records are cut": lambda run: os.truncate(run / "records" / "z.f64", 100),
    "NaN": nan_in("y"),
    "NaN in what is private": nan_in("grad"),
    "not JSON": lambda run: (run / "node.json").write_text("agents = 3"),
    "no object": lambda run: (run / "node.json").write_text("[1, 2]"),
    "deep": lambda run: (run / "node.json").write_text("[" * 100_000),
    "huge facts": lambda run: os.truncate(run / "node.json", 2**40),
    "huge checkpoint": lambda run: os.truncate(run / "checkpoint.bin", 2**40),
    "agents are words": with_facts(agents=["0"]),
    "agents are negative": with_facts(agents=[-1]),
    "no agents": with_facts(agents=[]),
    "an agent twice": with_facts(agents=[0, 0]),
    "an agent that is not": with_facts(agents=[10**9]),
    "agents are yes": with_facts(agents=[False]),
    "a run with a path": with_facts(run="../../etc"),
    "a digest with a path": with_facts(digest=["x"]),
    "escapes in a run id": with_facts(run="\x1b[31m"),
    "rounds without end": with_checkpoint(lambda header: header["facts"].update(round=10**7)),
    "negative rounds": with_checkpoint(lambda header: header["facts"].update(round=-5)),
    "rounds are a word": with_checkpoint(lambda header: header["facts"].update(round="nine")),
    "rounds are many digits": with_checkpoint(lambda header: header["facts"].update(round=10**400)),
    "a huge shape": with_checkpoint(lambda header: header["shapes"].update(x=[1, 2**60])),
    "a negative shape": with_checkpoint(lambda header: header["shapes"].update(x=[1, -3])),
    "no columns": with_checkpoint(lambda header: header["shapes"].update(x=[1, 0])),
    "another dimension": with_checkpoint(lambda header: header.update(shapes={"x": [1, 4]}), bytes(32)),
    "no x": with_checkpoint(lambda header: header["shapes"].pop("x")),
    "no shapes": with_checkpoint(lambda header: header.pop("shapes")),
}


@pytest.mark.parametrize("case", HOMES)
def test_a_hostile_home(case: str, whole: Machines, collect: Call, tmp_path: Path) -> None:
    spoilt = whole.copied(tmp_path / "spoilt")
    HOMES[case](spoilt.folders[0])
    ended = collect(spoilt)
    refused(ended, tmp_path)
    assert "\x1b" not in ended.err


def test_a_state_that_the_algorithm_does_not_have_is_not_used(whole: Machines, collect: Call, tmp_path: Path) -> None:
    spoilt = whole.copied(tmp_path / "spoilt")

    def rename(header: dict[str, Any]) -> None:
        header["shapes"] = {name if name == "x" else f"{name}s": shape for name, shape in header["shapes"].items()}

    for run in spoilt.folders:
        with_checkpoint(rename)(run)
    ended = collect(spoilt)
    assert ended.code == 0, ended.err
    assert not (tmp_path / "run" / "checkpoint" / "state.npz").exists()
    assert (tmp_path / "run" / "solution.npz").exists()


def test_a_home_without_runs(whole: Machines, collect: Call, tmp_path: Path) -> None:
    (tmp_path / "empty" / "runs").mkdir(parents=True)
    (tmp_path / "empty" / "runs" / whole.run_id).symlink_to(whole.folders[0])
    refused(collect(whole, homes=[tmp_path / "empty", whole.homes[1]]), tmp_path, "the home of a node that has run")


# --- exports --------------------------------------------------------------------------------------------------


def remade(file: Path, change: Callable[[dict[str, bytes], dict[str, Any]], object], **options: Any) -> None:
    """The archive with other content: members by name, and what export.json says."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(members.pop("export.json"))
    change(members, about)
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("export.json", json.dumps(about))


def sized(name: str, content: bytes) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    """A record with other content, and the checksum of it."""

    def change(members: dict[str, bytes], about: dict[str, Any]) -> None:
        members[f"0/{name}.f64"] = content
        about["nodes"][0]["records"][name] = hashlib.sha256(content).hexdigest()

    return change


def said(**changes: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda members, about: about["nodes"][0].update(changes)


def more(name: str) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda members, about: members.update({name: b"whatever"})


NAN = np.full(27, np.nan).tobytes()
EXPORTS: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "no archive": lambda file: file.write_bytes(b"hello" * 1000),
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "not there": lambda file: file.unlink(),
    "a key in it": lambda file: remade(file, more("agent-0.key")),
    "a checkpoint in it": lambda file: remade(file, more("0/checkpoint.bin")),
    "a path in it": lambda file: remade(file, more("../../etc/passwd")),
    "compressed": lambda file: remade(file, lambda members, about: None, compression=zipfile.ZIP_DEFLATED),
    "a bomb": lambda file: remade(file, sized("y", bytes(10**7)), compression=zipfile.ZIP_DEFLATED),
    "records are short": lambda file: remade(file, sized("y", bytes(8))),
    "records are long": lambda file: remade(file, sized("y", bytes(8000))),
    "records are odd": lambda file: remade(file, sized("y", bytes(27 * 8 - 3))),
    "NaN": lambda file: remade(file, sized("y", NAN)),
    "another checksum": lambda file: remade(file, lambda members, about: members.update({"0/y.f64": bytes(216)})),
    "a record is missing": lambda file: remade(file, lambda members, about: members.pop("0/z.f64")),
    "a record is not named": lambda file: remade(file, lambda m, about: about["nodes"][0]["records"].pop("grad")),
    "no nodes": lambda file: remade(file, lambda members, about: about.update(nodes=[])),
    "nodes are a number": lambda file: remade(file, lambda members, about: about.update(nodes=7)),
    "another format": lambda file: remade(file, lambda members, about: about.update(format=2)),
    "huge dimension": lambda file: remade(file, said(dimension=2**62)),
    "huge rounds": lambda file: remade(file, said(rounds=2**62)),
    "no rounds": lambda file: remade(file, said(rounds=0)),
    "rounds are a list": lambda file: remade(file, said(rounds=[9])),
    "agents are nested": lambda file: remade(file, said(agents=[[0]])),
    "records are a word": lambda file: remade(file, said(records="yz")),
}


@pytest.mark.parametrize("case", EXPORTS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_export(case: str, exported: list[Path], whole: Machines, collect: Call, tmp_path: Path) -> None:
    EXPORTS[case](exported[0])
    refused(collect(whole, homes=exported), tmp_path, exported[0].name[:4])


def test_a_name_that_is_there_twice(exported: list[Path], whole: Machines, collect: Call, tmp_path: Path) -> None:
    with zipfile.ZipFile(exported[0], "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("0/y.f64", bytes(72))
    refused(collect(whole, homes=exported), tmp_path, "a name is there twice")


# --- mutations ------------------------------------------------------------------------------------------------


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled, or appended."""
    at, length = rng.randrange(len(content) + 1), rng.choice([1, 2, 8, 64, 1000])
    noise = rng.choice([rng.randbytes(length), bytes(length), b"\xff" * length])
    return rng.choice([
        content[:at] + noise + content[at + length :],
        content[:at] + content[at + length :],
        content[:at] + noise + content[at:],
        content[:at],
    ])  # fmt: skip


def outcome(given: list[Path], experiment: Experiment, out: Path) -> str:
    """Whatever is not refused in a sentence is an error, and fails the test."""
    try:
        merge(given, experiment, out, None, force=False)
    except BadInput as refusal:
        return "refused" if "\n" not in str(refusal) and not out.exists() else "refused, but not in order"
    finally:
        assert not list(out.parent.glob(f".{out.name}*"))
        shutil.rmtree(out, ignore_errors=True)
    return "collected"


def spoilt(files: list[Path], seeds: range) -> Iterator[int]:
    """One file after the other with other content; it is whole again afterwards."""
    for seed in seeds:
        rng = random.Random(seed)
        chosen = rng.choice(files)
        whole = chosen.read_bytes()
        chosen.write_bytes(mutated(whole, rng))
        yield seed
        chosen.write_bytes(whole)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch, quick_plot: None) -> None:
    """Nobody waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@SEEDS
def test_mutations_of_homes_are_refused_or_collected(
    seeds: range, whole: Machines, tmp_path: Path, unsynced: None
) -> None:
    copy, experiment = whole.copied(tmp_path / "copy"), Experiment.load(whole.file)
    read = ("node.json", "checkpoint*.bin", "records/*.f64")
    files = sorted(file for run in copy.folders for pattern in read for file in run.glob(pattern))
    found = {outcome(copy.homes, experiment, tmp_path / "run") for _ in spoilt(files, seeds)}
    assert found == {"refused", "collected"}


@SEEDS
def test_mutations_of_exports_are_refused(
    seeds: range, exported: list[Path], whole: Machines, tmp_path: Path, unsynced: None
) -> None:
    """Every record has a checksum: a byte that is changed is found, unless it is in what no reader looks at."""
    experiment = Experiment.load(whole.file)
    found = [outcome(exported, experiment, tmp_path / "run") for _ in spoilt(exported, seeds)]
    assert set(found) <= {"refused", "collected"}
    assert found.count("refused") > 0.9 * len(seeds)
