"""An engine, the project's image, and projects that take away everything they made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker.containers import IMAGE, ROOT, Project
from tests.needed import not_here

ENGINE = ROOT / "tools" / "docker-engine"


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """Built from the working tree with whatever builder there is. An engine that was started for it is ended."""
    started = subprocess.run([ENGINE, "up"], capture_output=True, text=True)
    if started.returncode:
        not_here(started.stderr.strip() or "no Docker engine")
    base = started.stdout.split()[-1]
    built = subprocess.run(
        ["docker", "build", "--build-arg", f"BASE_IMAGE={base}", "-t", IMAGE, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    yield base
    subprocess.run([ENGINE, "down"], check=False)


@pytest.fixture(scope="module")
def project(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Project]]:
    """Makes projects in folders of their own; all their containers and networks are gone afterwards."""
    made: list[Project] = []

    def make(*options: str) -> Project:
        made.append(Project(Path(tmp_path_factory.mktemp("project")), options, number=len(made)))
        return made[-1]

    yield make
    for one in made:
        one.down()
