"""Too few open files are noticed before anything is started, and raised where the system permits."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.test_grpc_runs import options

_RAISED = """
import resource
from dpp2.node.process import raise_descriptors
print([raise_descriptors(needed) for needed in (10, 100, 1000)], resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limited(soft: int, hard: int, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )


def test_forty_processes_and_64_open_files(tmp_path: Path) -> None:
    chosen = options(network__agents=40)
    run = ("-m", "dpp2.orchestrator", "run", *chosen, "--transport", "grpc", "--out", tmp_path / "run")
    done = limited(64, 64, *run)
    assert done.returncode == 2
    assert done.stderr == (
        "dpp2: --processes = 40: expected fewer processes, or 128 open files (`ulimit -n` admits 64)\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("hard", "granted"), [(64, [10, 64, 64]), (500, [10, 100, 500]), (4096, [10, 100, 1000])])
def test_the_soft_limit_is_raised_as_far_as_the_hard_one(hard: int, granted: list[int]) -> None:
    done = limited(64, hard, "-c", _RAISED)
    assert done.stdout.strip() == f"{granted} ({granted[-1]}, {hard})", done.stderr


@pytest.mark.slow
def test_a_run_with_a_low_soft_limit(tmp_path: Path) -> None:
    """Nodes inherit what was raised."""
    chosen = options(network__agents=12, run__rounds=5, network__topology="complete")
    run = ("-m", "dpp2.orchestrator", "run", *chosen, "--transport", "grpc", "--out", tmp_path / "run")
    done = limited(24, 4096, *run)
    assert done.returncode == 0, done.stderr
