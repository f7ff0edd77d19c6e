"""Gradient tracking by DISROPT over MPI, a process per agent: what one would use instead.

Run as a script, never imported: `mpirun -n N python mpi.py EDGES`, with a Python that has DISROPT. The objectives are
quadratic, the cheapest that it knows, so that messages and not gradients are compared; like ours it sends two vectors
of ten numbers to every neighbour in a round. Every line on stdin is a number of rounds, answered by the seconds they
took.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

DIMENSION = 10
STEP = 0.01
_GO = 7  # the tag of messages from rank 0


def neighbours_and_weights(path: Path, agents: int, own: int) -> tuple[list[int], list[float]]:
    """Metropolis weights of one agent."""
    edges = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    degree = [sum(agent in edge for edge in edges) for agent in range(agents)]
    weights = [0.0] * agents
    for edge in edges:
        if own in edge:
            weights[sum(edge) - own] = 1 / (1 + max(degree[agent] for agent in edge))
    return [agent for agent in range(agents) if weights[agent]], weights


def program(path: Path, comm: Any) -> Any:
    """DISROPT's own gradient tracking, set up for one agent."""
    import numpy as np
    from disropt.agents import Agent
    from disropt.algorithms import GradientTracking
    from disropt.functions import QuadraticForm, Variable
    from disropt.problems import Problem

    rng = np.random.default_rng(comm.rank)
    neighbours, weights = neighbours_and_weights(path, comm.size, comm.rank)
    agent = Agent(in_neighbors=neighbours, out_neighbors=neighbours, in_weights=weights)
    target = rng.standard_normal((DIMENSION, 1))
    agent.set_problem(Problem(QuadraticForm(Variable(DIMENSION) - target, np.eye(DIMENSION))))
    return GradientTracking(agent, rng.standard_normal((DIMENSION, 1)))


def told(comm: Any) -> int:
    """How many rounds are to be run; 0 ends. MPI would wait at full speed, and others are being measured meanwhile."""
    if comm.rank == 0:
        rounds = int(sys.stdin.readline() or 0)
        for rank in range(1, comm.size):
            comm.send(rounds, dest=rank, tag=_GO)
        return rounds
    while not comm.Iprobe(source=0, tag=_GO):
        time.sleep(0.05)
    return int(comm.recv(source=0, tag=_GO))


def main() -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    tracking = program(Path(sys.argv[1]), comm)
    while rounds := told(comm):
        comm.Barrier()
        began = time.perf_counter()
        tracking.run(iterations=rounds, stepsize=STEP)
        comm.Barrier()
        if comm.rank == 0:
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
