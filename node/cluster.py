"""`cluster.toml`: where every agent listens.

[agents]
0 = "10.0.0.1:7000"        # agents with one address are hosted by one node
1 = "10.0.0.2:7000"
[links]
"0-1" = "10.0.0.9:7100"    # for this link alone: a relay, or an address behind NAT

Where nodes host many agents, a line for each node does instead of [agents], or beside it:

[hosts]
"10.0.0.1:7000" = "0-24999"
"10.0.0.2:7000" = "25000-49998,49999"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpp2.errors import BadInput
from dpp2.node.ranges import ranges_text, read_ranges

_ADDRESS = re.compile(r"[^\s\"\\]+:([0-9]{1,5})")
_LISTED = 100  # agents that get a line each, if there are no more


@dataclass(frozen=True)
class Cluster:
    addresses: Mapping[int, str]
    links: Mapping[tuple[int, int], str]  # lower agent first

    @classmethod
    def load(cls, path: Path) -> Cluster:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput("--cluster", str(path), f"a readable cluster.toml ({error.strerror})") from None
        except ValueError as error:
            raise BadInput("--cluster", str(path), f"valid TOML ({error})") from None
        for name, table in tables.items():
            if name not in ("agents", "hosts", "links") or not isinstance(table, dict):
                raise BadInput("--cluster", str(path), f"the tables [agents], [hosts] and [links], and no {name}")
        agents = {_agent(name): _address("agents", name, value) for name, value in tables.get("agents", {}).items()}
        for address, value in tables.get("hosts", {}).items():
            agents |= dict.fromkeys(_hosted(address, value, agents), _address("hosts", "address", address))
        links = {_pair(name): _address("links", name, value) for name, value in tables.get("links", {}).items()}
        if sorted(agents) != list(range(len(agents))) or not agents:
            raise BadInput("agents", sorted(agents), "every agent from 0 on, each with its address")
        return cls(agents, links)

    def to_toml(self) -> str:
        if len(self.addresses) > _LISTED > len(self.nodes()):
            return f"[hosts]\n{self._hosts()}\n[links]\n{self._links()}"
        agents = "".join(f'{agent} = "{address}"\n' for agent, address in sorted(self.addresses.items()))
        return f"[agents]\n{agents}\n[links]\n{self._links()}"

    def _hosts(self) -> str:
        hosts = ((self.addresses[node], agents) for node, agents in self._hosted.items())
        return "".join(f'"{address}" = "{ranges_text(agents)}"\n' for address, agents in hosts)

    def _links(self) -> str:
        return "".join(f'"{i}-{j}" = "{address}"\n' for (i, j), address in sorted(self.links.items()))

    @cached_property
    def _hosted(self) -> dict[int, tuple[int, ...]]:
        """The agents of every node, ascending: the lowest agent at an address names the node."""
        together: dict[str, list[int]] = {}
        for agent in sorted(self.addresses):
            together.setdefault(self.addresses[agent], []).append(agent)
        return {agents[0]: tuple(agents) for agents in together.values()}

    def node_of_agent(self) -> dict[int, int]:
        """Which node hosts an agent."""
        return {agent: node for node, agents in self._hosted.items() for agent in agents}

    def agents_of_node(self, node: int) -> tuple[int, ...]:
        """All agents of one node."""
        return self._hosted.get(node, ())

    def nodes(self) -> dict[int, str]:
        """Every node by its name, with its address."""
        return {node: self.addresses[node] for node in sorted(self._hosted)}


def _agent(name: str) -> int:
    if not name.isdecimal() or name != str(int(name)):
        raise BadInput("agents", name, "the number of an agent")
    return int(name)


def _hosted(address: str, value: Any, known: Mapping[int, str]) -> tuple[int, ...]:
    """The agents of one line of [hosts]."""
    try:
        agents = read_ranges(value)
    except (AttributeError, ValueError):
        raise BadInput(f"hosts.{address}", value, 'agents, each once, as in "0-24999"') from None
    if twice := [agent for agent in agents if agent in known]:
        raise BadInput(f"hosts.{address}", value, f"agents that no other line names, but agent {twice[0]} has a line")
    return agents


def _pair(name: str) -> tuple[int, int]:
    parts = name.split("-")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise BadInput("links", name, 'two agents, as in "3-7"')
    low, high = sorted(map(int, parts))
    return low, high


def _address(table: str, name: str, value: Any) -> str:
    return check_address(f"{table}.{name}", value)


def check_address(field: str, value: Any) -> str:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if not found or not value.isprintable() or not 1 <= int(found[1]) <= 65535:
        raise BadInput(field, value, 'an address such as "10.0.0.1:7000", with a port from 1 to 65535')
    return str(value)
