"""The loops that the benchmark measures against compute what we compute; otherwise their speed would mean nothing."""

from __future__ import annotations

import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.studies.bench import loops


def test_hand_written_loops_give_the_papers_run() -> None:
    simulation = Simulation(Experiment.load(overrides={"run.rounds": 40, "noise.grid": 0}))
    other = loops.PaperRun.of(simulation)
    simulation.advance(40)
    x = np.concatenate(simulation.driver.x)
    assert np.abs(loops.vectorised(other, 40) - x).max() < 1e-11
    assert np.abs(loops.per_agent(other, 40) - x).max() < 1e-11
