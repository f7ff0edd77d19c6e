"""One observation as different attackers have it.

    global      all channels that were overheard, and P
    local       the channels of one victim: its own messages and its neighbours' to it; its row of P
    neighbour   what one participant receives and sends itself, with its own state and η; P is in its configuration
    partial     a random fraction of the channels, and P
A broadcast is the same on every channel of its sender, so a sender is heard as soon as one of its channels is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Channels, Observation
from dpp2.arrays import Array
from dpp2.errors import BadInput

_OVERFLOWED = 1e140  # squares of what is larger are no numbers: a run that diverged, from which nothing can be read

ATTACKERS = ("global", "local", "neighbour", "partial")


@dataclass(frozen=True, eq=False)
class View:
    """What an attack is given: an attacker's observation and knowledge, and the agents that it is after."""

    attacker: str
    observation: Observation
    knowledge: Knowledge
    agents: tuple[int, ...]


def global_view(observation: Observation, knowledge: Knowledge) -> View:
    """Everybody who was overheard at all."""
    seen = _overhear(observation, observation.channels, also=range(observation.shape[1]))
    return View("global", seen, knowledge, _heard(seen))


def local_view(observation: Observation, knowledge: Knowledge, victim: int) -> View:
    """A tap at one agent's door. Of P it knows the victim's row: the weights of the channels that it sees."""
    _check_agent(observation, victim)
    row = np.full_like(observation.P, np.nan)
    row[victim] = observation.P[victim]
    at_the_door = (observation.channels == victim).any(axis=1)
    seen = _overhear(observation, observation.channels[at_the_door], P=row)
    return View("local", seen, knowledge, tuple(agent for agent in _heard(seen) if agent == victim))


def neighbour_view(observation: Observation, knowledge: Knowledge, agent: int) -> View:
    """A participant that follows the protocol and is curious; its knowledge holds η and its own rows."""
    _check_agent(observation, agent)
    if knowledge.own is None or knowledge.own.agent != agent or knowledge.eta is None:
        raise BadInput("knowledge", f"agent {agent}", "η and its own rows, which `adversary.scoring.insider` gives")
    received = observation.channels[observation.channels[:, 1] == agent]
    seen = _overhear(observation, received, also=(agent,))
    return View("neighbour", seen, knowledge, tuple(other for other in _heard(seen) if other != agent))


def partial_view(observation: Observation, knowledge: Knowledge, fraction: float = 0.5, seed: int = 0) -> View:
    """Each channel is tapped or not, all subsets of the given size being equally likely."""
    if not 0 < fraction <= 1:
        raise BadInput("fraction", fraction, "a number above 0 and at most 1")
    channels = observation.channels
    tapped = np.random.default_rng(seed).permutation(len(channels))[: round(fraction * len(channels))]
    seen = _overhear(observation, channels[np.sort(tapped)])
    return View("partial", seen, knowledge, _heard(seen))


def _overhear(
    observation: Observation, channels: Channels, *, also: Iterable[int] = (), P: Array | None = None
) -> Observation:
    """The observation with everything blanked out that did not come over these channels, or has overflowed."""
    silent = np.ones(observation.shape[1], dtype=bool)
    silent[channels[:, 0]] = False
    silent[list(also)] = False
    phases = {}
    for name, rows in observation.phases.items():
        blank = silent[:, None] | (np.abs(rows) > _OVERFLOWED)
        phases[name] = np.where(blank, np.nan, rows) if blank.any() else rows
    return replace(observation, phases=phases, P=observation.P if P is None else P, channels=channels)


def _heard(observation: Observation) -> tuple[int, ...]:
    return tuple(np.flatnonzero(observation.heard.any(axis=0)).tolist())


def _check_agent(observation: Observation, agent: int) -> None:
    agents = observation.shape[1]
    if not 0 <= agent < agents:
        raise BadInput("agent", agent, f"a whole number from 0 to {agents - 1}")
