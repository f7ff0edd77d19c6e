"""Writes a Kubernetes manifest: for each agent a StatefulSet and a network policy, and a Job that drives them.

All pods of a StatefulSet are made from one template and mount the same, so each agent has a StatefulSet of its own,
with one pod. Its Secret holds what is that agent's and nothing else; the orchestrator's holds its certificate. Secrets
are made by hand, from files (docs/multi-machine.md), and are no part of the manifest.

Nobody talks to anybody by default. An agent may talk to its neighbours in the graph, the orchestrator to all agents,
everybody to the cluster's name service. Probes come from within the pod, over loopback, which no policy concerns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.orchestrator import kubernetes_texts as texts
from dpp2.orchestrator.compose import EXPERIMENT, PORT, RELAYED
from dpp2.orchestrator.demonstration import Demonstration

NAMESPACE = "dpp2"
SECRETS = "/run/secrets/dpp2"  # in a pod; `problem.path` of the experiment
_PEM = ("ca", "cert", "key")


@dataclass(frozen=True)
class Manifest:
    """One experiment on Kubernetes."""

    shown: Demonstration
    written_by: str

    @property
    def experiment(self) -> Experiment:
        return self.shown.experiment

    @property
    def agents(self) -> range:
        return range(self.experiment.network.agents)

    @cached_property
    def neighbours(self) -> dict[int, list[int]]:
        near: dict[int, list[int]] = {agent: [] for agent in self.agents}
        for i, j in self.experiment.network.graph().edges.tolist():
            near[i].append(j)
            near[j].append(i)
        return near

    def text(self) -> str:
        parts = [
            texts.HEAD.format(by=self.written_by) + texts.NAMESPACE,
            texts.SERVICE,
            self._public(),
            texts.CLOSED,
            texts.NAMES,
        ]
        for agent in self.agents:
            parts += [_agent(agent), self._policy(agent)]
        return "---\n".join([*parts, texts.ORCHESTRATOR_POLICY, texts.STATE, _orchestrator()])

    def _public(self) -> str:
        addresses = {agent: f"agent-{agent}-0.agents.{NAMESPACE}.svc.cluster.local:{PORT}" for agent in self.agents}
        files = {RELAYED: Cluster(addresses, {}).to_toml(), EXPERIMENT: self.shown.to_toml()}
        return texts.PUBLIC + "".join(f"  {name}: |\n{textwrap.indent(text, '    ')}" for name, text in files.items())

    def _policy(self, agent: int) -> str:
        return texts.POLICY.format(agent=agent, neighbours=_listed(sorted(self.neighbours[agent])), port=PORT)


def _listed(agents: Sequence[int]) -> str:
    return ", ".join(f'"{agent}"' for agent in agents)


def _agent(agent: int) -> str:
    files = ["eta.key", f"agent-{agent}.npz", *(f"{who}/{kind}.pem" for who in ("node", "probe") for kind in _PEM)]
    return texts.AGENT.format(
        agent=agent,
        port=PORT,
        pod=_pod(f"agent-{agent}", files),
        secrets=SECRETS,
        confined=texts.CONFINED,
    )


def _orchestrator() -> str:
    files = [f"{kind}.pem" for kind in _PEM]
    return texts.ORCHESTRATOR.format(pod=_pod("orchestrator", files), secrets=SECRETS, confined=texts.CONFINED)


def _pod(secret: str, files: Sequence[str]) -> str:
    """What pods have in common: no rights, and a first container that makes the Secret's files their reader's own."""
    items = "".join(f"              - {{key: {name.replace('/', '.')}, path: {name}}}\n" for name in files)
    return texts.POD.format(secret=secret, items=items, names=" ".join(files), secrets=SECRETS, confined=texts.CONFINED)
