"""One atomic write: whatever kills the writer, under a file's name there is nothing, the old file, or the new one."""

from __future__ import annotations

import ast
import os
import signal
import stat
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest

from dpp2.node.keyring import Keyring, write_key
from dpp2.node.tls import ORCHESTRATOR, Identity, node_names
from dpp2.orchestrator import certs
from dpp2.store.files import write_new, write_text, write_whole

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("dpp2", "store", "node", "orchestrator", "adversary", "studies", "tools")
STEPS = ("open", "fsync", "link", "rename", "replace", "unlink")  # functions of `os` that leave a trace on disk


def killed_at_every_step(work: Callable[[Path], object], folder: Path) -> Iterator[Path]:
    """Works in a folder again and again, in a process that is killed a step later each time, until it is not."""
    for step in range(200):
        home = folder / str(step)
        home.mkdir()
        child = os.fork()
        if child == 0:
            _work_until(step, lambda home=home: work(home))  # type: ignore[misc]
        _, code = os.waitpid(child, 0)
        yield home
        if code == 0:
            return
        assert os.WTERMSIG(code) == signal.SIGKILL
    raise AssertionError("it never came to its end")


def _work_until(step: int, work: Callable[[], object]) -> NoReturn:
    left = step

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            done, left = function(*args, **kwargs), left - 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return called

    try:
        for name in STEPS:
            setattr(os, name, deadly(getattr(os, name)))
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def test_a_kill_leaves_no_part_of_a_key(tmp_path: Path) -> None:
    steps = 0
    write_key(tmp_path / "eta.key", bytes(32))
    for home in killed_at_every_step(lambda home: write_key(home / "agent-0.key", bytes(32)), tmp_path):
        steps += 1
        path = home / "agent-0.key"
        assert not path.exists() or path.read_text() == "00" * 32
        ring = Keyring.of("os", [0], home, tmp_path / "eta.key")  # one that is missing is drawn
        assert len(ring.secrets("1").agent_keys([0])[0]) == 32
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert steps > 4


def test_a_kill_leaves_certificates_that_can_be_completed(tmp_path: Path) -> None:
    for home in killed_at_every_step(lambda home: certs.make(home / "certs", [[0]], 1), tmp_path):
        certs.make(home / "certs", [[0]], 1)
        Identity.load(home / "certs" / "node-0", node_names([0]))
        Identity.load(home / "certs" / "orchestrator", [ORCHESTRATOR])


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    def work(home: Path) -> None:
        write_text(home / "a", "old")
        write_text(home / "a", "new")

    paths = (home / "a" for home in killed_at_every_step(work, tmp_path))
    assert {path.read_text() if path.exists() else None for path in paths} == {None, "old", "new"}


def test_of_two_writers_of_a_new_file_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "key"

    def write(number: int) -> bool:
        try:
            write_new(path, lambda file: file.write(str(number).encode() * 1000))
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, first in zip(range(8), pool.map(write, range(8)), strict=True) if first]
    assert path.read_text() == str(won[0]) * 1000
    assert len(won) == 1
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("write", [write_whole, write_new])
def test_a_writer_that_fails_leaves_nothing(write: Callable[..., None], tmp_path: Path) -> None:
    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as said:
        write(tmp_path / "a", fail)
    assert said.value.filename == str(tmp_path / "a")  # which disk is full
    assert not [*tmp_path.iterdir()]


def test_the_folder_is_synced_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename that is only in memory is lost with the power, and a journal that rests on it stands alone."""
    synced, fsync = [], os.fsync

    def noted(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "a").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write_text(tmp_path / "a", "text")
    assert synced == [(False, False), (True, True)]


def writers(tree: ast.AST) -> Iterator[str]:
    """Calls that write a whole file by themselves."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        words = (*call.args, *(keyword.value for keyword in call.keywords))
        modes = {word.value for word in words if isinstance(word, ast.Constant)}
        opens = name in ("open", "fdopen") and not modes.isdisjoint(("w", "wb", "x", "xb"))
        if opens or (isinstance(call.func, ast.Attribute) and name in ("write_text", "write_bytes")):
            yield ast.unparse(call)


def test_no_file_is_written_whole_in_any_other_way() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (calls := [*writers(ast.parse(path.read_text(encoding="utf-8")))])
    }
    assert found.pop("store/files.py")
    # Packets are appended as they come; a node's disk writes a checkpoint beside and renames two of them together.
    # What an export opens is a member of its archive, and `write_new` writes the archive.
    assert sorted(found) == ["adversary/tap/sniffer.py", "node/disk.py", "orchestrator/exports.py"]
    assert found["orchestrator/exports.py"] == ["archive.open(member, 'w', force_zip64=True)"]
