"""`make keys`, called again by an ordinary user: everything is kept, and more agents can be added."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDINARY = 65534 if os.getuid() == 0 else os.getuid()
# Everything is imported first: neither the checkout nor Python need lie where another user can read.
_AS_USER = """
import os, runpy, sys, zipfile
script, user, *sys.argv[1:] = sys.argv[1:]
runpy.run_path(script, run_name="keys")
source = compile(open(script).read(), script, "exec")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
exec(source, {"__name__": "__main__"})
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A user's own folder; pytest's is root's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, ORDINARY, -1)
        yield Path(name)


def keys(folder: Path, agents: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _AS_USER, str(ROOT / "tools" / "keys.py"), str(ORDINARY), "--agents", str(agents)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def content(folder: Path) -> dict[str, str]:
    files = (path for path in (folder / "secrets").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_an_ordinary_user_calls_it_twice_and_everything_is_kept(folder: Path) -> None:
    first = keys(folder, agents=2)
    assert first.returncode == 0, first.stderr
    made = content(folder)
    again = keys(folder, agents=2)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("0 made in secrets")
    assert content(folder) == made


def test_agents_are_added_to_those_that_are_there(folder: Path) -> None:
    keys(folder, agents=2)
    made = content(folder)
    more = keys(folder, agents=3)
    assert (more.returncode, more.stderr) == (0, "")
    now = content(folder)
    assert {name: now[name] for name in made} == made
    assert {"secrets/agent-2.key", "secrets/agent-2.npz", "secrets/certs/node-2/key.pem"} <= set(now) - set(made)


def test_files_are_their_owners_alone(folder: Path) -> None:
    keys(folder, agents=1)
    for path in (folder / "secrets", *(folder / "secrets").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o400), path
        assert path.stat().st_uid == ORDINARY, path


def test_secrets_that_cannot_be_opened_are_one_sentence(folder: Path) -> None:
    keys(folder, agents=1)
    (folder / "secrets").chmod(0)
    ended = keys(folder, agents=1)
    (folder / "secrets").chmod(0o700)
    assert ended.returncode == 1
    assert ended.stderr == "make keys: secrets/.gitignore is not for this user: call it as its owner, or as root\n"
