"""A transport is one file and one entry: everything else finds it by its name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpp2 import BadInput, Experiment
from dpp2.experiment import TRANSPORTS
from dpp2.orchestrator.transports.base import ClusterShape, transport_of

ROOT = Path(__file__).parent.parent.parent
STRIDES = '''
"""Two rounds at a time, and then a word."""

from dpp2.orchestrator.transports.base import Transport


class Strides:
    options: tuple[str, ...] = ("strict",)
    keeps_accounts = False

    def check(self, experiment, shape):
        """Everything can be done."""

    def run(self, simulation, directory, shape, progress):
        while simulation.remaining:
            simulation.advance(1 if shape.strict else 2)
            progress(simulation.k, simulation.allowance.rounds, "striding")


TRANSPORT: Transport = Strides()
'''


def test_a_new_transport_is_one_file_and_one_entry(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "dpp2", tmp_path / "dpp2", ignore=shutil.ignore_patterns("__pycache__")
    )  # links are followed
    (tmp_path / "dpp2" / "orchestrator" / "transports" / "strides.py").write_text(STRIDES)
    names = tmp_path / "dpp2" / "experiment.py"
    names.write_text(
        re.sub(r"^TRANSPORTS = .*$", f"TRANSPORTS = {(*TRANSPORTS, 'strides')}", names.read_text(), flags=re.M)
    )
    settings = {"run.rounds": 5, "network.topology": "ring", "network.agents": 3, "problem.name": "quadratic"}
    words = ["run", "--json", "--strict", "--transport", "strides", "--out", str(tmp_path / "run")]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "dpp2.orchestrator", *words]
    answer = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["rounds"] == 5
    refused = subprocess.run(
        [*command, "--tls"], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False
    )
    assert refused.returncode == 2
    assert "--tls = True: expected --transport grpc beside it" in refused.stderr


@pytest.mark.parametrize("name", TRANSPORTS)
def test_every_name_has_its_module(name: str) -> None:
    assert transport_of(Experiment.load(overrides={"run.transport": name}), ClusterShape())


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadInput, match=r"run\.transport = 'pigeon': expected .embedded. or .grpc."):
        Experiment.load(overrides={"run.transport": "pigeon"})


@pytest.mark.parametrize(
    "module", ["orchestrator/runner.py", "orchestrator/results.py", "orchestrator/transports/base.py"]
)
def test_no_transport_is_named_outside_its_module(module: str) -> None:
    source = (ROOT / module).read_text()
    assert not [name for name in TRANSPORTS if re.search(rf"""["']{name}["']""", source)]
