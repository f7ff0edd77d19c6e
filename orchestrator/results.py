"""What a run that has ended leaves in its directory, whoever has run it: results, the state to go on from, pictures."""

from __future__ import annotations

from dataclasses import replace

from dpp2 import Result, Simulation
from dpp2.orchestrator import plots
from dpp2.store.kept import finish_records
from dpp2.store.results import write_facts
from dpp2.store.rundir import RunDirectory


def write_results(simulation: Simulation, directory: RunDirectory) -> Result:
    """Results first, then the state that rests on them."""
    observation, truth = finish_records(
        directory.path, simulation.recorder, simulation.k, simulation.prepared.P, simulation.run_id
    )
    result = replace(simulation.result(), observation=observation, truth=truth)
    directory.finish(result, simulation.snapshot(since=simulation.k))
    write_facts(result, directory.path)
    plots.convergence(result, directory.path / "convergence.png")
    plots.epsilon(simulation.account, result.rounds, directory.path / "epsilon.png")
    return result
