"""Which node hosts which agents: chosen when a run begins, and kept for as long as it goes on."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from dpp2 import BadInput
from dpp2.orchestrator.output import errors
from dpp2.orchestrator.transports.base import ClusterShape
from dpp2.partition import Partition, has_metis, partition
from dpp2.store.files import read_json, write_text
from dpp2.topology import Graph

METIS, BLOCKS = "metis", "blocks"
_MANY = 1000  # agents: below, consecutive ones are hosted together unless something else is asked for


def check_partition(name: str | None) -> None:
    if name not in (None, METIS, BLOCKS):
        raise BadInput("--partition", name, f"{METIS} or {BLOCKS}")
    if name == METIS and not has_metis():
        raise BadInput("--partition", name, "pymetis beside it: pip install 'dpp2[partition]'")


def chosen_partition(graph: Graph, parts: int, name: str | None) -> Partition:
    """By METIS where it is asked for, or where it is installed and agents are many."""
    return partition(graph, parts, metis=name == METIS or (name is None and graph.agents >= _MANY and has_metis()))


def cut_sentence(found: Partition) -> str:
    """The cut before and after."""
    by = "by METIS" if found.cut != found.blocks else "consecutive agents together"
    crossing = f"{found.cut.edges:,} edges are cut and {found.cut.rows:,} rows travel in a phase"
    before = f" (consecutive blocks: {found.blocks.edges:,} and {found.blocks.rows:,})"
    return f"{len(found.groups)} nodes, {by}: {crossing}{before if found.cut != found.blocks else ''}"


def groups_of(shape: ClusterShape, graph: Graph, nodes: Path) -> list[list[int]]:
    """The agents of each process, in groups of nearly equal size; a resumed run keeps those it had."""
    kept = nodes / "groups.json"
    before, begun = _kept_groups(kept, graph.agents), any(nodes.glob("node-*"))
    if begun and not before and shape.processes is None:
        lost = "but nodes/groups.json is gone or damaged, which says how many processes there were"
        raise BadInput("--resume", str(nodes.parent), f"an intact run, {lost}: --processes P writes it again")
    count = min(shape.processes or len(before) or graph.agents, graph.agents)
    if before and count != len(before):
        raise BadInput("--processes", count, f"{len(before)}, as when the run began")
    groups = before or _new_groups(graph, count, shape)
    _check_hosts(nodes, groups)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps(groups))
    return groups


def _new_groups(graph: Graph, count: int, shape: ClusterShape) -> list[list[int]]:
    """Where somebody listens between the nodes, agents stay in blocks: what is heard should not depend on a tool."""
    name = shape.partition or (BLOCKS if shape.tap else None)
    found = chosen_partition(graph, count, name)
    if 1 < count < graph.agents and (shape.partition or graph.agents >= _MANY):
        errors.print(f"note: {cut_sentence(found)}")
    return found.groups


def _kept_groups(kept: Path, agents: int) -> list[list[int]]:
    """What groups.json says; nothing if it is gone or says anything that nobody has written there."""
    with suppress(OSError, ValueError, TypeError):
        found = read_json(kept)
        once = sorted(agent for group in found for agent in group) == list(range(agents))
        if isinstance(found, list) and once and found == sorted(map(sorted, found)):
            return found
    return []


def _check_hosts(nodes: Path, groups: list[list[int]]) -> None:
    """Every node goes on with the agents that it has: the noise of others is not in its journal."""
    for facts in nodes.glob("node-*/runs/*/node.json"):
        hosted = None
        with suppress(OSError, ValueError, KeyError, TypeError):  # its node will say what is wrong with it
            hosted = list(read_json(facts)["agents"])
        if hosted is not None and hosted not in groups:
            name = facts.relative_to(nodes).parts[0]
            accepted = f"as many as when the run began: {name} hosts agents {hosted[:8]}"
            raise BadInput("--processes", len(groups), accepted)
