"""What a node's home holds: no keys, and nothing that anybody but its owner can read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpp2.node.keyring import write_key
from dpp2.node.server import NodeConfig
from tests.conftest import Call
from tests.node.live import small

RUN: tuple[object, ...] = ("run", "--json", "--transport", "grpc", "--processes", "2", "--set", "network.topology=ring")
SMALL = ("--set", "network.agents=3", "--set", "problem.name=quadratic", "--set", "run.rounds=6")


def open_to_others(folder: Path) -> list[str]:
    return [
        f"{path} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """What most users have; a node sets another one for itself."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_whatever_a_node_writes_is_its_owners_alone(tmp_path: Path, dpp2: Call, quick_plot: None) -> None:
    """By real processes."""
    ended = dpp2(*RUN, *SMALL, "--set", "run.seed=os", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    homes = sorted((tmp_path / "run" / "nodes").glob("node-?"))
    assert len(homes) == 2
    for home in homes:
        names = {path.name for path in home.rglob("*")}
        assert {"checkpoint.bin", "journal.bin", "node.json", "runs.txt", "x.f64", "y.f64"} <= names
        assert open_to_others(home) == []
        assert not list(home.rglob("*.key"))
        assert open_to_others(home.with_name(f"{home.name}-keys")) == []
    private = [tmp_path / "run" / name for name in ("truth.npz", "solution.npz", "metrics.csv")]
    assert [path for path in private if path.stat().st_mode & 0o077] == []
    assert open_to_others(tmp_path / "run" / "checkpoint") == []
    assert open_to_others(tmp_path / "ledger.sqlite") == []


def refusal(tmp_path: Path, **options: Any) -> str:
    config = NodeConfig(small(run__seed="os"), (0,), tmp_path / "cluster.toml", tmp_path / "home", None, **options)
    with pytest.raises(ValueError, match=r"^--") as refused:
        config.key_folder()
    return str(refused.value)


def test_a_key_in_a_home_is_refused_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "home" / "agent-0.key"
    write_key(path, bytes(32))
    said = refusal(tmp_path)
    assert "no key in a home: move it (mkdir -m 700 -p " in said
    assert str(tmp_path / "home-keys") in said
    assert path.exists()
    assert not (tmp_path / "home-keys").exists()


@pytest.mark.parametrize("inside", [{"keys": "home"}, {"keys": "home/keys"}, {"eta_key": "home/eta.key"}])
def test_a_place_for_keys_inside_the_home_is_refused(inside: dict[str, str], tmp_path: Path) -> None:
    assert "a place outside --home" in refusal(tmp_path, **{name: tmp_path / path for name, path in inside.items()})


def test_a_link_into_the_home_is_inside(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "apart").symlink_to(tmp_path / "home")
    assert "a place outside --home" in refusal(tmp_path, keys=tmp_path / "apart")


def test_a_seeded_run_has_no_keys_to_ask_for(tmp_path: Path) -> None:
    write_key(tmp_path / "home" / "agent-0.key", bytes(32))
    config = NodeConfig(small(), (0,), tmp_path / "cluster.toml", tmp_path / "home", None)
    assert config.key_folder() == tmp_path / "home-keys"


def test_the_command_says_so_at_once(tmp_path: Path, dpp2: Call) -> None:
    write_key(tmp_path / "home" / "agent-0.key", bytes(32))
    (tmp_path / "experiment.toml").write_text(small(run__seed="os").resolve().to_toml())
    files = ("--experiment", tmp_path / "experiment.toml", "--cluster", tmp_path / "cluster.toml")
    ended = dpp2("node", "--agents", 0, *files, "--home", tmp_path / "home", "--plaintext", "--listen", "127.0.0.1:0")
    assert (ended.code, ended.out) == (2, "")
    assert "dpp2 node: --home = " in ended.err
    assert json.dumps(ended.err).count("\\n") == 1
