"""`dpp2.run` beyond one process: over nodes, or into a run directory that is kept."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from dpp2 import BadInput, Experiment, Result
from dpp2.orchestrator.runner import ClusterShape, start


def run(experiment: Experiment, *, out: Path | None, processes: int | None) -> Result:
    """As `dpp2 run` does, without a word. Without `out` nothing is kept, and no ledger beside it."""
    if processes is not None and processes < 1:
        raise BadInput("processes", processes, "a whole number ≥ 1")
    if out is not None:
        return _started(experiment, out, processes)
    if experiment.run.records != "none":  # the folder does not outlive this call
        experiment = experiment.with_setting("run.records", "npz")
    with TemporaryDirectory(prefix="dpp2-run-") as folder:
        return _started(experiment, Path(folder) / "run", processes)


def _started(experiment: Experiment, out: Path, processes: int | None) -> Result:
    shape = ClusterShape(processes)
    return start(experiment, out, stem=out.name, force=False, progress=lambda *_: None, cluster=shape).result
