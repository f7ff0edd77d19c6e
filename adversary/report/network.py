"""The picture of the network: who was overheard, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from dpp2.adversary.observation import Channels, edges
from dpp2.adversary.report.drawing import COLOURS, svg
from dpp2.adversary.report.page import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpp2.adversary.audit import AuditReport

_LARGEST = 400  # agents; more would be a black square
_LABELLED = 60
_SETTLED = 100  # agents up to which a layout is left to settle; beyond, nobody sees the difference
_ROLES = {"local": "the victim, whose channels are tapped", "neighbour": "the curious one, who takes part and listens"}


def network(report: AuditReport) -> Shown | None:
    """Agents and channels; overheard ones stand out."""
    whole = report.interception.observation
    if whole is None or report.view is None or len(whole.P) > _LARGEST:
        return None
    agents, pairs, tapped = len(whole.P), edges(whole.P), report.view.observation.channels
    focus = report.attacker.agent if report.attacker.kind in _ROLES else None
    attacked, unobserved = len(set(report.view.agents) - {focus}), len(whole.unobserved)
    caption = f"{_counted(agents, 'agent')} and {_counted(len(pairs) // 2, 'link')}; {len(tapped)} of "
    caption += f"{_counted(len(pairs), 'directed channel')} {'is' if len(tapped) == 1 else 'are'} overheard"
    caption += " (orange)" if len(tapped) else ""
    caption += f", {_counted(attacked, 'agent')} attacked (blue)." if attacked else "."
    if focus is not None:
        caption += f" Agent {focus} (green) is {_ROLES[report.attacker.kind]}."
    if unobserved:
        stay = "never reached a wire and stays" if unobserved == 1 else "never reached a wire and stay"
        caption += f" {_counted(unobserved, 'channel')} {stay} unobserved."
    alt = f"Graph of {agents} agents and {len(pairs) // 2} links with the overheard channels marked"
    colours = [COLOURS[0] if agent in report.view.agents else COLOURS[-1] for agent in range(agents)]
    if focus is not None:
        colours[focus] = COLOURS[2]
    return Shown("The network", svg(lambda figure: _draw(figure, pairs, tapped, colours), alt, (7.0, 4.6)), caption)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def places(agents: int, links: Sequence[tuple[int, int]], *, circle: bool = False) -> list[tuple[float, float]]:
    """Where agents are drawn, in a square from −1 to 1: neighbours close together, or all on a circle."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(links)
    iterations = 200 if agents <= _SETTLED else 60
    place = (
        nx.circular_layout(graph) if agents <= 2 or circle else nx.spring_layout(graph, seed=1, iterations=iterations)
    )
    return [(float(place[agent][0]), float(place[agent][1])) for agent in range(agents)]


def _draw(figure: Figure, pairs: Channels, tapped: Channels, colours: list[str]) -> None:
    from matplotlib.collections import LineCollection

    agents = len(colours)
    links = [(int(i), int(j)) for i, j in pairs if i < j]
    place = places(agents, links)
    heard = {(min(i, j), max(i, j)) for i, j in tapped.tolist()}
    axes = figure.subplots()
    axes.set_axis_off()
    for on, colour, alpha in ((False, COLOURS[-1], 0.25), (True, COLOURS[1], 0.55)):
        lines = [np.array([place[i], place[j]]) for i, j in links if ((i, j) in heard) == on]
        axes.add_collection(LineCollection(lines, colors=colour, lw=0.8, alpha=alpha, zorder=1))
    at = np.array(place)
    axes.scatter(at[:, 0], at[:, 1], s=170 if agents <= _LABELLED else 30, c=colours, zorder=2, lw=0)
    for agent, (x, y) in enumerate(at if agents <= _LABELLED else ()):
        axes.text(x, y, str(agent), ha="center", va="center", fontsize=7, color="white", zorder=3)
    axes.set_aspect("equal")
