"""Writes Compose files: agents, orchestrator, eavesdropper, audit and page, a container each.

Text rather than a tree, so that what comes out has comments and reads like a file that somebody wrote. It keeps to
what Compose 1.29 and 2 have in common: no top-level `name`, no `configs`, no uid or mode on secrets.

Everything an agent alone may know reaches it as a secret, a file below /run/secrets. The experiment and cluster.toml
are public and the same for all. Results, and what each participant must find again, lie below ./runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.orchestrator.demonstration import Demonstration

PORT = 7000
_FIRST_LINK_PORT = 7100
_QUIET = 10  # seconds without anybody, after which the eavesdropper takes the run to be over
_GIVEN_UP = 120  # seconds without progress, after which the orchestrator gives up and ends the agents that it reaches
_DESERTED = 300  # seconds without an orchestrator or, for the eavesdropper, without any agent: then nobody will come
_FILES = "--experiment /etc/dpp2/experiment.toml --cluster /etc/dpp2/cluster.toml"
_ORCHESTRATE = f"orchestrate {_FILES}\n      --state /state/orchestrator.json --patience {_GIVEN_UP}"
PAGE_PORT = 8321
_PEM = ("ca", "cert", "key")
EXPERIMENT, DAMPED, RELAYED, DIRECT = "experiment.toml", "experiment-damped.toml", "cluster.toml", "cluster-direct.toml"


@dataclass(frozen=True)
class Deployment:
    """One experiment in containers. `folder` holds its public files and is named relative to the Compose file."""

    shown: Demonstration
    damped: Demonstration  # the same with damping, for the override
    folder: str
    written_by: str  # the command line, for the first line of each file

    @property
    def experiment(self) -> Experiment:
        return self.shown.experiment

    @property
    def agents(self) -> range:
        return range(self.experiment.network.agents)

    @property
    def links(self) -> dict[tuple[int, int], int]:
        """Edges of the graph, lower agent first, and the port where the relay of each listens."""
        edges = self.experiment.network.graph().edges.tolist()
        return {(i, j): _FIRST_LINK_PORT + n for n, (i, j) in enumerate(edges)}

    def files(self) -> dict[str, str]:
        """The public files, by name."""
        addresses = {agent: f"agent-{agent}:{PORT}" for agent in self.agents}
        relays = {pair: f"eavesdropper:{port}" for pair, port in self.links.items()}
        return {
            EXPERIMENT: self.shown.to_toml(),
            DAMPED: self.damped.to_toml(),
            RELAYED: Cluster(addresses, relays).to_toml(),
            DIRECT: Cluster(addresses, {}).to_toml(),
        }

    def base(self) -> str:
        """The file that stands on its own: plaintext, a relay on every link."""
        agents = "".join(self._agent(agent) for agent in self.agents)
        secrets = "".join(_secret(name, f"./secrets/{name}") for name in self._secrets())
        return f"{self._head()}\nservices:\n{agents}{self._others()}\nsecrets:\n{secrets}"

    def tls(self) -> str:
        """Laid over the base: certificates for everybody. The relay still stands on every link."""
        agents = "".join(self._agent_with_certificate(agent) for agent in self.agents)
        orchestrator = _service("orchestrator", _ORCHESTRATE, tls=True)
        people = [*(f"node-{agent}" for agent in self.agents), "orchestrator", "probe"]
        files = [(who, kind) for who in people for kind in _PEM]
        secrets = "".join(_secret(f"{who}.{kind}.pem", f"./secrets/certs/{who}/{kind}.pem") for who, kind in files)
        return (
            f"{self._title('tls')}# Mutual TLS between all of them: the eavesdropper is left with ciphertext.\n"
            f"services:\n{agents}{orchestrator}{_certificate('orchestrator', 'tls')}"
            f"{_audit('tls')}\nsecrets:\n{secrets}"
        )

    def damping(self) -> str:
        """Laid over the base: the same network with damping τ = 1."""
        mount = f"    volumes: [{self.folder}/{DAMPED}:/etc/dpp2/{EXPERIMENT}:ro]\n"
        names = [*(f"agent-{agent}" for agent in self.agents), "orchestrator"]
        services = "".join(f"  {name}:\n{mount}" for name in names)
        return (
            f"{self._title('damping')}# The same network and the same noise, with damping τ = 1.\n"
            f"services:\n{services}{_audit('damped')}{mount}"
        )

    def sniffer(self) -> str:
        """Laid over the base: neighbours talk to each other, and somebody reads the packets of the bridge."""
        mount = f"    volumes: [{self.folder}/{DIRECT}:/etc/dpp2/{RELAYED}:ro]\n"
        agents = "".join(f"  agent-{agent}:\n{mount}" for agent in self.agents)
        return f"{self._title('sniffer')}{_SNIFFER}services:\n{agents}{_SNIFFING}{_audit('sniffed')}{mount}"

    def _title(self, override: str = "") -> str:
        command = f"{self.written_by} --override {override}" if override else self.written_by
        return f"# Written by `{command}`.\n"

    def _head(self) -> str:
        return self._title() + _HEAD.replace("FOLDER", self.folder)

    def _agent(self, agent: int) -> str:
        return (
            _service(f"agent-{agent}", _node(agent), tls=False, merged="agent")
            + f'    environment: {{AGENTS: "{agent}"}}\n'
            + f"    secrets: [eta.key, agent-{agent}.key, agent-{agent}.npz]\n"
            + f"    volumes: [*experiment, *cluster, ./runs/nodes/agent-{agent}:/home/dpp2]\n"
        )

    def _agent_with_certificate(self, agent: int) -> str:
        return (
            _service(f"agent-{agent}", _node(agent), tls=True)
            + "    environment: {PROBE: --tls /run/secrets/probe}\n"
            + _certificate(f"node-{agent}", "tls")
            + _certificate("probe", "probe").removeprefix("    secrets:\n")
        )

    def _others(self) -> str:
        relays = "".join(
            f"      --link {i}-{j}=0.0.0.0:{port},agent-{j}:{PORT}\n" for (i, j), port in self.links.items()
        )
        data = ", ".join(f"agent-{agent}.npz" for agent in self.agents)
        return _OTHERS.format(
            files=_FILES,
            orchestrate=_ORCHESTRATE,
            quiet=_QUIET,
            deserted=_DESERTED,
            relays=relays,
            last=len(self.agents) - 1,
            data=data,
            page=PAGE_PORT,
        )

    def _secrets(self) -> list[str]:
        return ["eta.key", *(f"agent-{agent}.{kind}" for agent in self.agents for kind in ("key", "npz"))]


OVERRIDES: dict[str, Callable[[Deployment], str]] = {
    "tls": Deployment.tls,
    "damping": Deployment.damping,
    "sniffer": Deployment.sniffer,
}


def _node(agent: int) -> str:
    keys = "--keys /run/secrets --eta-key /run/secrets/eta.key"
    return f"node --agents {agent} {_FILES} --home /home/dpp2\n      {keys} --telemetry full --patience {_DESERTED}"


def _service(name: str, command: str, *, tls: bool, merged: str = "") -> str:
    security = "--tls /run/secrets/tls" if tls else "--plaintext"
    anchor = f"    <<: *{merged}\n" if merged else ""
    return f"  {name}:\n{anchor}    command: >-\n      {command} {security}\n"


def _certificate(who: str, folder: str) -> str:
    """A folder of ca.pem, cert.pem and key.pem below /run/secrets; a container can have each source only once."""
    entries = (f"      - {{source: {who}.{kind}.pem, target: {folder}/{kind}.pem}}\n" for kind in _PEM)
    return "    secrets:\n" + "".join(entries)


def _secret(name: str, file: str) -> str:
    return f"  {name}: {{file: {file}}}\n"


def _audit(run: str) -> str:
    return f"  audit:\n    environment: {{RUN: {run}}}\n"


_HEAD = """\
# `make keys` once, then `docker-compose up`: it ends when every container has ended, and the result lies in ./runs. It
# always ends: whoever waits in vain gives up (--patience), and says for whom. The same command then goes on.
# The audit's exit code is the run's: docker wait "$(docker-compose ps -q audit)"
#
# Agents write down x, gradients and noise (--telemetry full) for the audit to be scored against. An agent that has
# something to hide leaves that out, and then there is no audit service either: it holds what nobody else may.

x-participant: &participant
  image: ${DPP2_IMAGE:-dpp2}
  build:
    context: .
    args: {BASE_IMAGE: "${BASE_IMAGE:-python:3.11-slim-bookworm}"}
  user: "${DPP2_UID:?is set by make keys}:${DPP2_GID:?is set by make keys}"
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]

# An agent that dies comes back and resumes where its own files left off; one that refuses to start is given up.
x-agent: &agent
  <<: *participant
  restart: on-failure:8

# Public, and the same for everybody.
x-files:
  - &experiment FOLDER/experiment.toml:/etc/dpp2/experiment.toml:ro
  - &cluster FOLDER/cluster.toml:/etc/dpp2/cluster.toml:ro

networks:
  default:
    driver_opts: {com.docker.network.bridge.name: "${DPP2_BRIDGE:-dpp2-links}"}
"""

_OTHERS = """\

  # Hands out rounds and hears round numbers: neither data, nor keys, nor vectors. Begins when somebody listens, so
  # that nothing goes by unheard. It is not started again by itself: when it gives up, it has said why.
  orchestrator:
    <<: *participant
    command: >-
      {orchestrate} --plaintext
    healthcheck: {{disable: true}}
    stop_signal: SIGINT
    depends_on: {{eavesdropper: {{condition: service_healthy}}}}
    volumes: [*experiment, *cluster, ./runs/nodes/orchestrator:/state]

  # Stands on every link and writes down what passes. Ends when everybody has gone.
  eavesdropper:
    <<: *participant
    command: >-
      tap relay --out /captures --quiet {quiet} --patience {deserted}
{relays}    healthcheck: {{test: ls /captures/*, interval: 1s, timeout: 5s, retries: 60}}
    volumes: [./runs/nodes/eavesdropper:/captures]

  # The referee, who alone sees everybody's files: merges them, decodes what was overheard, attacks it and judges.
  # orchestrator.json names the run. While it is there `docker-compose up` goes on with that run, so it goes last.
  audit:
    <<: *participant
    entrypoint: [sh, -ec]
    command:
      - |
        state=/runs/nodes/orchestrator/orchestrator.json
        run=$$(python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['run_id'])" $$state)
        dpp2 collect $$(seq -f /runs/nodes/agent-%g 0 {last}) --run-id $$run --out /runs/$$RUN --force \\
          --experiment /etc/dpp2/experiment.toml
        mkdir -p /runs/$$RUN/tap
        mv /runs/nodes/eavesdropper/* /runs/$$RUN/tap
        dpp2 tap decode /runs/$$RUN/tap --out /runs/$$RUN/tap {files}
        dpp2 audit /runs/$$RUN
        rm $$state
    environment: {{RUN: compose}}
    healthcheck: {{disable: true}}
    depends_on:
      orchestrator: {{condition: service_completed_successfully}}
      eavesdropper: {{condition: service_completed_successfully}}
    secrets: [{data}]
    volumes: [*experiment, *cluster, ./runs:/runs]

  # What the person at the orchestrator may see, in a browser on this machine, and what the eavesdropper makes of it. It
  # only reads. `docker-compose --profile page up` brings it up, too; its log has the address, with the token of .env.
  page:
    <<: *participant
    profiles: [page]
    command: >-
      watch /state/orchestrator.watch --wait --tap /captures --host 0.0.0.0 --port {page} --no-open
    environment: {{DPP2_PAGE_TOKEN: "${{DPP2_PAGE_TOKEN:-}}"}}
    ports: ["127.0.0.1:{page}:{page}"]
    healthcheck: {{disable: true}}
    volumes: [./runs/nodes/orchestrator:/state:ro, ./runs/nodes/eavesdropper:/captures:ro]
"""

_SNIFFER = """\
# A passive sniffer in place of the relay: it reads the bridge from the host's network, which takes root there, but no
# capability other than NET_RAW. Everybody else runs as before, and dials neighbours directly.
"""

# Without any right over files of others, root is a user like others: it writes by way of the group.
_SNIFFING = f"""\
  eavesdropper:
    user: "0:${{DPP2_GID:?is set by make keys}}"
    network_mode: host
    cap_add: [NET_RAW]
    entrypoint: [sh, -ec]
    command:
      - |
        dpp2 tap sniff --interface "$$BRIDGE" --port {PORT} --out /captures --quiet {_QUIET} --patience {_DESERTED}
        chmod g+r /captures/*
    environment: {{BRIDGE: "${{DPP2_BRIDGE:-dpp2-links}}"}}
"""
