"""All agents in this process."""

from __future__ import annotations

import time

from dpp2 import BadInput, Experiment, Simulation
from dpp2.orchestrator.logged import LoggedMetrics
from dpp2.orchestrator.transports.base import ClusterShape, Interrupted, Progress, RunFailed, Transport, stop_requests
from dpp2.store.rundir import RunDirectory

_LOOK_SECONDS = 0.1  # how often progress is shown and Ctrl-C noticed
_CHECKPOINT_SECONDS = 2.0
_AT_ONCE = 0.2  # seconds; after a checkpoint that took longer the next one comes later: they take a tenth of the time


class Embedded:
    options: tuple[str, ...] = ()
    keeps_accounts = False

    def check(self, experiment: Experiment, shape: ClusterShape) -> None:
        """Everything can be done here."""

    def reached(self, directory: RunDirectory, run_id: str) -> int:
        return 0

    def run(self, simulation: Simulation, directory: RunDirectory, shape: ClusterShape, progress: Progress) -> None:
        saved, saved_at, took, chunk = simulation.k, time.monotonic(), 0.0, 1
        metrics = LoggedMetrics(simulation, directory.log)
        with stop_requests() as stop_requested:
            while simulation.remaining:
                began = time.monotonic()
                try:
                    simulation.advance(chunk)
                except BadInput as failure:
                    directory.save(simulation.snapshot(saved))
                    raise RunFailed(f"round {simulation.k} failed: {failure}") from failure
                now = time.monotonic()
                chunk = max(1, int(chunk * _LOOK_SECONDS / max(now - began, 1e-6))) if now > began else chunk
                progress(simulation.k, simulation.allowance.rounds, f"gap {simulation.gap:.2e}")
                metrics.look()
                if now - saved_at > _CHECKPOINT_SECONDS * max(took / _AT_ONCE, 1.0) or stop_requested():
                    directory.save(simulation.snapshot(saved))
                    saved, saved_at = simulation.k, time.monotonic()
                    took = saved_at - now
                if stop_requested() and simulation.remaining:
                    raise Interrupted(directory.path, simulation.k)


TRANSPORT: Transport = Embedded()
