"""The network as it is drawn: where agents are put, and who is linked to whom."""

from __future__ import annotations

from functools import lru_cache

from dpp2 import Experiment
from dpp2.adversary.report.network import places
from dpp2.page.documents import NetworkDocument

_MOST_PLACED = 1000  # agents: more are put on a circle, at once


def network_document(experiment: Experiment, name: str, began: dict[str, object] | None = None) -> NetworkDocument:
    """Of a resolved experiment; `began` is the first line of its events, if there is one."""
    told = began or {}
    graph = experiment.network.graph()
    groups = told.get("groups")
    links = tuple((int(i), int(j)) for i, j in graph.edges.tolist())
    return NetworkDocument(
        name=name,
        algorithm=experiment.algorithm.name,
        problem=experiment.problem.name,
        agents=graph.agents,
        rounds=_rounds(told, experiment.run.rounds),
        places=_placed(graph.agents, links),
        links=links,
        transport=str(told.get("transport", experiment.run.transport)),
        telemetry=experiment.run.telemetry == "full",
        tls=told.get("tls") is True,
        tap=str(told.get("tap") or ""),
        groups=[[int(agent) for agent in group] for group in groups] if isinstance(groups, list) else [],
        x_is_public=experiment.algorithm.result_is_covered,
        budget=experiment.privacy.budget,
    )


@lru_cache(maxsize=16)
def _placed(agents: int, links: tuple[tuple[int, int], ...]) -> list[tuple[float, float]]:
    """The playground draws the same network again and again."""
    return places(agents, links, circle=agents > _MOST_PLACED)


def _rounds(told: dict[str, object], wanted: int) -> int:
    allowed = told.get("rounds")
    return allowed if isinstance(allowed, int) else wanted
