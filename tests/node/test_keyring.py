"""Keys of a node that hosts many agents: one for all that have none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpp2 import BadInput
from dpp2.node.keyring import Keyring, check_outside, key_files, write_key
from tests.node.live import assert_same_run, networked, small

MANY = range(120)


@pytest.fixture
def eta(tmp_path: Path) -> Path:
    write_key(tmp_path / "eta.key", bytes(range(32)))
    return tmp_path / "eta.key"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_many_agents_draw_one_key_once(tmp_path: Path, eta: Path) -> None:
    first = Keyring.of("os", MANY, tmp_path / "keys", eta)
    assert names(tmp_path / "keys") == ["agents.key"]
    assert (tmp_path / "keys" / "agents.key").stat().st_mode & 0o777 == 0o600
    assert Keyring.of("os", MANY, tmp_path / "keys", eta) == first
    assert set(first.secrets("1").agent_keys(MANY)) == {first.agents}
    assert Keyring.of("os", MANY, tmp_path / "others", eta) != first


def test_an_agent_with_a_key_of_its_own_keeps_it(tmp_path: Path, eta: Path) -> None:
    write_key(tmp_path / "keys" / "agent-7.key", bytes(32))
    keys = Keyring.of("os", MANY, tmp_path / "keys", eta).secrets("1").agent_keys(MANY)
    assert names(tmp_path / "keys") == ["agent-7.key", "agents.key"]
    assert keys[7] == bytes(32)
    assert len({*keys}) == 2


def test_all_with_keys_of_their_own_draw_nothing(tmp_path: Path, eta: Path) -> None:
    for agent in MANY:
        write_key(tmp_path / "keys" / f"agent-{agent}.key", bytes([agent] * 32))
    keys = Keyring.of("os", MANY, tmp_path / "keys", eta).secrets("1").agent_keys(MANY)
    assert keys == [bytes([agent] * 32) for agent in MANY]
    assert len(names(tmp_path / "keys")) == len(MANY)


def test_a_shared_key_stays_when_fewer_are_hosted(tmp_path: Path, eta: Path) -> None:
    """What an agent draws in a run must not hang on who is hosted beside it."""
    first = Keyring.of("os", MANY, tmp_path / "keys", eta)
    assert Keyring.of("os", [3, 4], tmp_path / "keys", eta) == first


def test_a_shared_key_in_a_home_is_refused(tmp_path: Path) -> None:
    write_key(tmp_path / "home" / "agents.key", bytes(32))
    with pytest.raises(BadInput, match=r"no key in a home"):
        check_outside(tmp_path / "home", tmp_path / "keys", None)


def test_files_of_keys_are_found_by_the_ring(tmp_path: Path, eta: Path) -> None:
    """Whoever writes the keys of local nodes writes what these nodes read."""
    same, apart = dict.fromkeys(MANY, bytes(32)), {agent: bytes([agent] * 32) for agent in MANY}
    for folder, keys in ((tmp_path / "same", same), (tmp_path / "apart", apart)):
        for path, key in key_files(folder, keys).items():
            write_key(path, key)
        assert Keyring.of("os", MANY, folder, eta).secrets("1").agent_keys(MANY) == [*keys.values()]
    assert names(tmp_path / "same") == ["agents.key"]


async def test_many_unseeded_agents_run_as_in_an_embedded_run(tmp_path: Path) -> None:
    groups = [[*range(110)], [*range(110, 230)]]
    nodes = await networked(small(run__seed="os", network__agents=230), tmp_path, groups)
    assert_same_run(nodes)
    assert len([*tmp_path.rglob("*.key")]) == 3
