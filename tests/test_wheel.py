"""The package is found wherever one stands, and the wheel alone runs what the README shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.timeout(900)  # an environment is made, on whatever else the machine has to do

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def command(*words: object, cwd: Path) -> str:
    line = [str(word) for word in words]
    ended = subprocess.run(line, cwd=cwd, capture_output=True, text=True, env=ENVIRONMENT)
    assert ended.returncode == 0, f"{' '.join(line)}: {ended.stderr}"
    return ended.stdout


def test_beside_a_folder_of_that_name_the_package_is_found(tmp_path: Path) -> None:
    """As in the folder that holds a clone called dpp2."""
    (tmp_path / "dpp2" / "docs").mkdir(parents=True)
    said = command(sys.executable, "-c", "import dpp2; print(dpp2.Experiment().run.rounds)", cwd=tmp_path)
    assert said == "500\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since a build leaves folders behind."""
    source, out = tmp_path_factory.mktemp("source") / "dpp2", tmp_path_factory.mktemp("wheel")
    made_again = (".git", ".venv", ".*_cache", "__pycache__", "build", "*.egg-info", "runs", "secrets")
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*made_again))
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    command(sys.executable, "-m", "pip", "wheel", *options, "-w", out, source, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with the wheel, and with what it depends on lent from here; nothing of the checkout is in it."""
    home = tmp_path_factory.mktemp("home")
    command(sys.executable, "-m", "venv", home / "venv", cwd=home)
    python = home / "venv/bin/python"
    command(python, "-m", "pip", "install", "--no-deps", "--quiet", "--disable-pip-version-check", wheel, cwd=home)
    places = command(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    lent = [path for path in sys.path if path.endswith("site-packages")]  # .pth files in there are not read
    (Path(places) / "lent.pth").write_text("\n".join(lent))
    yield home
    shutil.rmtree(home)


def readme_commands() -> list[str]:
    """`dpp2 …` as the README's blocks have them, without options: the words that name a command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^dpp2 ([a-z].*?)(?: {2,}#.*)?$", text, re.MULTILINE)
    named = {re.match(r"(?:privacy |tap )?[a-z-]+", line) for line in lines}
    return sorted(found.group() for found in named if found)


@pytest.mark.slow
def test_a_wheel_holds_the_rooms_and_nothing_of_the_workshop(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        names = packed.namelist()
    assert not [name for name in names if re.match(r"(tests|tools|docs|build)/", name)]
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"dpp2"}
    assert {"dpp2/node/machine.py", "dpp2/experiments/paper.toml"} <= set(names)
    assert any(name.endswith("dpp2/py.typed") for name in names)


@pytest.mark.slow
def test_installed_it_is_not_the_checkout(installed: Path) -> None:
    program = (
        "import dpp2, sys; print(dpp2.__file__); assert not any(p.startswith(sys.argv[1]) for p in sys.path[1:-1])"
    )
    said = command(installed / "venv/bin/python", "-c", program, ROOT, cwd=installed)
    assert said.startswith(str(installed))


@pytest.mark.slow
def test_every_command_of_the_readme_is_there(installed: Path) -> None:
    named = readme_commands()
    assert {"run", "audit", "compare", "privacy epsilon", "privacy publish", "reproduce"} <= set(named)
    for name in named:
        assert "Example" in command(installed / "venv/bin/dpp2", *name.split(), "--help", cwd=installed), name


@pytest.mark.slow
def test_it_runs_audits_accounts_and_spreads_over_processes(installed: Path) -> None:
    dpp2, small = installed / "venv/bin/dpp2", ("--set", "network.agents=5", "--set", "network.topology=ring")
    command(dpp2, "run", "damped", *small, "--set", "run.rounds=40", "--out", "here", cwd=installed)
    over = ("--transport", "grpc", "--processes", "2", "--tls", "--tap", "relay", "--out", "there")
    command(dpp2, "run", "damped", *small, "--set", "run.rounds=40", *over, cwd=installed)
    same = [(installed / name / "truth.npz").read_bytes() for name in ("here", "there")]
    assert same[0] == same[1]
    command(dpp2, "audit", "here", "--no-game", cwd=installed)
    command(dpp2, "privacy", "check", "paper", cwd=installed)
    few = ("--quick", "--algorithms", "dpp2,dgd", "--epsilon", "10", "--seeds", "2")
    command(dpp2, "compare", "here/experiment.toml", *few, cwd=installed)
    program = "from dpp2 import Experiment, run; run(Experiment(run={'rounds': 5})).save('kept')"
    command(installed / "venv/bin/python", "-c", program, cwd=installed)
