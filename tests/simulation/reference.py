"""What a schedule is about: a small experiment, who hosts whom, and every byte that the embedded run makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.algorithms import ALGORITHMS
from dpp2.arrays import Array
from dpp2.keys import derive
from dpp2.node.hellos import Hellos
from dpp2.node.hosting import Hosting, Neighbour
from dpp2.node.keyring import Keyring
from dpp2.node.machine import HostedRun, RunSetup
from dpp2.node.outbox import Outbox
from dpp2.prepared import PreparedRun, Secrets

ALGORITHM_NAMES = tuple(ALGORITHMS.names)


@dataclass(frozen=True)
class Layout:
    """A network, and which agents share a node; `budget` is how many rounds' worth of ε there is, if it is limited."""

    topology: str
    groups: tuple[tuple[int, ...], ...]
    rounds: int
    telemetry: bool = False
    budget: int | None = None

    @property
    def agents(self) -> int:
        return sum(map(len, self.groups))


LAYOUTS = (
    Layout("ring", ((0,), (1,), (2,)), 10),
    Layout("path", ((0,), (1,), (2,)), 11, telemetry=True),
    Layout("star", ((0,), (1, 3), (2,)), 9),
    Layout("ring", ((0,), (1,), (2,), (3,)), 8),
    Layout("complete", ((0, 2), (1,), (3,)), 10, telemetry=True),
    Layout("path", ((0, 1), (2,)), 12, budget=7),
    Layout("ring", ((0, 3), (1, 4), (2,)), 9, budget=5),
)
STAR = Layout("star", ((0,), (1, 3), (2,)), 9)


@dataclass(frozen=True, eq=False)
class Reference:
    """The embedded run, and the hosted agents of every node."""

    run_id: str
    rounds: int  # that the run has in the end
    hosted: Mapping[int, HostedRun]
    frames: Mapping[tuple[int, int], Mapping[bytes, int]]  # by sending and receiving node: each frame, with its round
    altered: Mapping[tuple[int, int], Mapping[bytes, bytes]]  # for a frame one with other rows of the same phase
    hellos: Mapping[tuple[int, int], bytes]  # by sending and receiving node, where edges have secrets
    records: Mapping[str, Array]  # (rounds, agents, …)
    states: Sequence[Mapping[str, Array]]  # at the beginning of each round, and at the end

    def cut(self, rounds: int) -> Reference:
        """The same run, ended early."""
        return replace(self, rounds=rounds)

    @property
    def state(self) -> Mapping[str, Array]:
        """At the end."""
        return self.states[self.rounds]

    def records_of(self, node: int, name: str) -> bytes:
        """What a node must have on record."""
        array = self.records[name][: self.rounds]
        owned = list(self.hosted[node].hosting.owned)
        return (array if array.ndim == 1 else array[:, owned]).tobytes()


@cache
def reference(algorithm: str, layout: Layout) -> Reference:
    """Made once for all schedules: they differ in what happens, not in what is computed."""
    experiment = Experiment.load(overrides=_settings(algorithm, layout))
    simulation = Simulation(PreparedRun.of(experiment, _secrets(experiment)))
    states = [_state(simulation)]
    while simulation.remaining:
        simulation.advance(1)
        states.append(_state(simulation))
    resolved, run_id, k = simulation.experiment, simulation.run_id, simulation.k
    place = {agent: min(group) for group in layout.groups for agent in group}
    hosted = {}
    for group in layout.groups:
        hosting = Hosting(resolved, group)
        secrets = simulation.prepared.secrets
        keyring = Keyring(dict(zip(group, secrets.agent_keys(group), strict=True)), secrets.eta)
        hosted[min(group)] = RunSetup(run_id, hosting, hosting.neighbours(place), keyring).agents(b"")
    recorder = simulation.recorder
    sent = {name: array[:k] for name, array in recorder.sent_arrays.items()}
    private = {name: array[:k] for name, array in (recorder.private_arrays | recorder.scalars).items()}
    links = [(node, neighbour) for node, agents in hosted.items() for neighbour in agents.neighbours]
    frames = {(node, neighbour.node): _frames(hosted[node], neighbour, sent) for node, neighbour in links}
    shifted = {name: np.roll(rows, 1, axis=0) for name, rows in sent.items()}  # every round has the rows of another
    others = {(node, neighbour.node): _frames(hosted[node], neighbour, shifted) for node, neighbour in links}
    altered = {
        link: {frame: other for frame, other in zip(honest, others[link], strict=True) if frame != other}
        for link, honest in frames.items()
    }
    hellos = {
        (node, neighbour.node): Hellos(run_id, hosted[node].hellos, hosted[node].neighbours).to(neighbour.node)
        for node, neighbour in links
        if hosted[node].hellos
    }
    return Reference(run_id, k, hosted, frames, altered, hellos, sent | private, states)


def _secrets(experiment: Experiment) -> Secrets | None:
    """Where edges have secrets, each agent has a key of its own, which the seed of no run tells."""
    if not experiment.shares_edge_secrets:
        return None
    keys = {agent: derive(b"simulated", str(agent)) for agent in range(experiment.network.agents)}
    return Secrets(keys, derive(b"simulated", "eta"), "5ec7e7")


def _state(simulation: Simulation) -> dict[str, Array]:
    return {name: np.array(array) for name, array in simulation.driver.state().items()}


def _frames(agents: HostedRun, neighbour: Neighbour, sent: Mapping[str, Array]) -> dict[bytes, int]:
    outbox, owned = Outbox(agents.run_id, agents.hosting, agents.neighbours), list(agents.hosting.owned)
    return {
        outbox.frame(neighbour.node, k, phase, rows[k, owned]): k
        for phase, rows in sent.items()
        for k in range(len(rows))
    }


def _settings(algorithm: str, layout: Layout) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "algorithm.name": algorithm,
        "network.topology": layout.topology,
        "network.agents": layout.agents,
        "problem.name": "least-squares",
        "problem.samples": 4,
        "problem.dimension": 2,
        "run.rounds": layout.rounds,
        "run.telemetry": "full" if layout.telemetry else "none",
    }
    if ALGORITHMS[algorithm].edge_noise:
        settings["run.seed"] = "os"  # so that nodes must exchange hellos
    if layout.budget is not None:
        unlimited = Simulation(Experiment.load(overrides=settings))
        spent = unlimited.account.epsilon(layout.budget)
        value = getattr(spent, "value", None)
        if value:  # where no ε holds, no budget can be kept
            settings["privacy.budget"] = value * (1 + 1e-9)
    return settings
