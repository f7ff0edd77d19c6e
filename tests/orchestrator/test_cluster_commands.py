"""`dpp2 certs`, `dpp2 node`, `dpp2 orchestrate`: the pieces of a run over several machines, as real processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpp2.node.tls import ORCHESTRATOR, PROBE, Identity, node_names
from dpp2.store.ledgers import LedgerFile

Call = Callable[..., Any]
SECONDS = 60  # the longest wait for anything
COMPARED = ("observation.npz", "truth.npz", "solution.npz", "metrics.csv")
GROUPS = {0: "0", 1: "1,2"}
EXPERIMENT = """[run]
rounds = {rounds}
seed = {seed}
[network]
topology = "ring"
agents = 3
[problem]
name = "least-squares"
dimension = 3
"""
LONG = 1500


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Machines:
    """Two nodes with their own files, as an operator would lay them out; whatever is left at the end is killed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.tls = folder, False
        self._environment, self._started = environment, list[subprocess.Popen[str]]()
        self.ports = {node: free_port() for node in GROUPS}
        addresses = "".join(
            f'{agent} = "127.0.0.1:{self.ports[node]}"\n'
            for node, group in GROUPS.items()
            for agent in group.split(",")
        )
        (folder / "cluster.toml").write_text(f"[agents]\n{addresses}")

    def lay_out(self, rounds: int = 12, seed: str = "1", more: str = "", *, only: int | None = None) -> None:
        """Everybody's copy of the experiment, or one node's."""
        text = EXPERIMENT.format(rounds=rounds, seed=seed) + more
        for name in (
            ("experiment", *(f"experiment-{node}" for node in GROUPS)) if only is None else (f"experiment-{only}",)
        ):
            (self.folder / f"{name}.toml").write_text(text)

    def security(self, who: str) -> list[object]:
        return ["--tls", self.folder / "certs" / who] if self.tls else ["--plaintext"]

    def home(self, node: int) -> Path:
        return self.folder / f"home-{node}"

    def files(self, experiment: str) -> list[object]:
        return ["--experiment", self.folder / f"{experiment}.toml", "--cluster", self.folder / "cluster.toml"]

    def start(self, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dpp2.orchestrator", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def node(self, node: int, *more: object) -> subprocess.Popen[str]:
        """`dpp2 node`, once it listens."""
        at = ["--agents", GROUPS[node], "--home", self.home(node), "--listen", f"127.0.0.1:{self.ports[node]}"]
        process = self.start("node", *at, *self.files(f"experiment-{node}"), *self.security(f"node-{node}"), *more)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"listening": self.ports[node]}
        return process

    def nodes(self, *more: object) -> list[subprocess.Popen[str]]:
        return [self.node(node, *more) for node in GROUPS]

    def orchestration(self, *more: object) -> list[object]:
        """The words after `dpp2`."""
        state = ["--state", self.folder / "orchestrator.json"]
        return ["orchestrate", *self.files("experiment"), *self.security("orchestrator"), *state, *more]

    def collection(self) -> list[object]:
        homes = [self.home(node) for node in GROUPS]
        return ["collect", *homes, "--experiment", self.folder / "experiment.toml", "--out", self.folder / "run"]

    def rounds_done(self) -> int:
        """As many as node 0, with its one agent, has written down."""
        return max((path.stat().st_size for path in self.home(0).glob("runs/*/records/y.f64")), default=0) // 32

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def machines(tmp_path: Path, environment: dict[str, str]) -> Iterator[Machines]:
    laid_out = Machines(tmp_path, environment)
    yield laid_out
    laid_out.clean_up()


def until(condition: Callable[[], Any]) -> Any:
    ends = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.01)
    return value


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """What a process that has ended had to say."""
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out + err


def assert_collected(machines: Machines, dpp2: Call) -> None:
    """The nodes' folders make the run directory of an embedded run, byte for byte."""
    collected = dpp2(*machines.collection())
    assert collected.code == 0, collected.err
    apart = machines.folder / "apart" / "embedded"
    assert dpp2("run", machines.folder / "experiment.toml", "--out", apart).code == 0
    for name in COMPARED:
        assert (machines.folder / "run" / name).read_bytes() == (apart / name).read_bytes(), name


def assert_described(folder: Path) -> None:
    """For whoever watches: what is public and what the orchestrator hears, and nothing that agents keep."""
    assert {path.name for path in folder.iterdir()} == {"experiment.toml", "cluster.toml", "events.jsonl"}
    first, *between, last = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert (first["kind"], first["tls"], first["telemetry"], first["groups"]) == ("began", True, False, [[0], [1, 2]])
    assert (last["kind"], last["how"], last["round"]) == ("ended", "finished", 12)
    assert [node["state"] for node in between[-1]["nodes"]] == ["finished", "finished"]
    assert not [line for line in between if line.get("points")]


# --- from certificates to a run directory ---------------------------------------------------------------------


def test_certs_nodes_orchestrate_collect(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    machines.lay_out()
    made = dpp2("certs", "--cluster", machines.folder / "cluster.toml", "--out", machines.folder / "certs")
    assert made.code == 0, made.err
    machines.tls = True
    nodes = machines.nodes("--telemetry", "full")
    done = dpp2(*machines.orchestration("--json"))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["rounds"], report["wanted"], report["stopped"], report["diverged"]) == (12, 12, "", False)
    assert report["frames"] == 2 * 12 * 2  # phases, rounds, nodes with one neighbour each
    assert_described(machines.folder / "orchestrator.watch")
    for node in nodes:
        assert ended(node) == ""
    assert_collected(machines, dpp2)


@pytest.mark.slow
def test_strict_plaintext_and_without_telemetry(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    """A node writes down what it sends, and no more, unless it is told to."""
    machines.lay_out()
    nodes = machines.nodes()
    done = dpp2(*machines.orchestration("--strict"))
    assert done.code == 0, done.err
    assert "12 rounds, 48 messages" in done.out
    for node in nodes:
        ended(node)
    kept = {path.name for path in machines.folder.glob("home-*/runs/*/records/*")}
    assert kept == {"y.f64", "z.f64"}
    collected = dpp2(*machines.collection())
    assert collected.code == 0, collected.err
    assert (
        "no truth.npz, so an audit cannot be scored: nodes write down x, gradients and noise only with --telemetry"
        in collected.err
    )


# --- processes that die ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_orchestrator_that_is_killed(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    """Its nodes use up their credit and wait; the same command line goes on."""
    machines.lay_out(LONG)
    nodes = machines.nodes("--telemetry", "full")
    first = machines.start(*machines.orchestration("--window", 20))
    until(lambda: machines.rounds_done() > 40)
    first.kill()
    first.wait(SECONDS)
    time.sleep(0.5)
    assert all(node.poll() is None for node in nodes)
    assert machines.rounds_done() < LONG
    ended(machines.start(*machines.orchestration("--window", 20)))
    for node in nodes:
        ended(node)
    assert_collected(machines, dpp2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_that_ends_and_is_started_again(
    number: signal.Signals, machines: Machines, dpp2: Call, quick_plot: None
) -> None:
    """By the same command line; the orchestrator has waited."""
    machines.lay_out(LONG)
    nodes = machines.nodes("--telemetry", "full")
    work = machines.start(*machines.orchestration())
    until(lambda: machines.rounds_done() > 20)
    nodes[1].send_signal(number)
    nodes[1].wait(SECONDS)
    time.sleep(0.3)
    assert work.poll() is None
    nodes[1] = machines.node(1, "--telemetry", "full")
    ended(work)
    for node in nodes:
        ended(node)
    assert_collected(machines, dpp2)


@pytest.mark.slow
def test_an_unseeded_run_goes_on_under_its_id(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    """The id is all that is kept; keys are the nodes' own, and only the η key is handed out."""
    machines.lay_out(12, '"os"')
    eta = machines.folder / "eta.key"
    eta.write_text("5a" * 32)
    eta.chmod(0o600)
    nodes = machines.nodes("--telemetry", "full", "--eta-key", eta)
    first = dpp2(*machines.orchestration("--json", "--keep"))
    assert first.code == 0, first.err
    assert all(node.poll() is None for node in nodes)
    again = dpp2(*machines.orchestration("--json"))
    assert json.loads(again.out) == json.loads(first.out)
    for node in nodes:
        ended(node)
    assert len({path.read_text() for path in machines.folder.glob("home-*-keys/agent-*.key")}) == 3
    assert json.loads((machines.folder / "orchestrator.json").read_text())["run_id"] == json.loads(first.out)["run_id"]
    collected = dpp2(*machines.collection(), "--json")
    assert json.loads(collected.out)["rounds"] == 12


@pytest.mark.slow
def test_a_nodes_budget_that_leaves_no_round_is_a_failure(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    machines.lay_out()
    machines.lay_out(more="[privacy]\nbudget = 0.001\n", only=1)
    nodes = machines.nodes("--telemetry", "full")
    done = dpp2(*machines.orchestration())
    assert done.code == 1, done.err
    assert "a node's budget leaves no round to run: the budget of agents [1, 2] admits no more" in done.err
    for node in nodes:
        ended(node)


@pytest.mark.slow
def test_a_budget_in_one_nodes_own_file(machines: Machines, dpp2: Call, quick_plot: None) -> None:
    machines.lay_out()
    machines.lay_out(more="[privacy]\nbudget = 1\n", only=1)
    nodes = machines.nodes("--telemetry", "full")
    done = dpp2(*machines.orchestration())
    assert done.code == 0, done.err
    assert "stopped by a node's budget after 4 rounds: the budget of agents [1, 2] admits no more" in done.err
    assert ended(nodes[0]) == ""
    assert "the budget admits 4 rounds: round 4 would bring the total to" in ended(nodes[1])
    collected = dpp2(*machines.collection(), "--json")
    assert json.loads(collected.out)["rounds"] == 4
    for number, group in GROUPS.items():
        totals = LedgerFile(machines.home(number) / "ledger.sqlite").totals()
        assert ",".join(total.agent for total in totals) == group
        assert all(total.runs == 1 for total in totals)


@pytest.mark.slow
def test_divergence_ends_the_nodes_too(machines: Machines, dpp2: Call) -> None:
    machines.lay_out(2000, more="curvature = -50\n")
    for path in machines.folder.glob("experiment*.toml"):
        path.write_text(path.read_text().replace("least-squares", "quadratic"))
    nodes = machines.nodes()
    done = dpp2(*machines.orchestration())
    assert done.code == 1
    assert "the run diverged: after" in done.err
    for node in nodes:
        assert "the run diverged: what round" in ended(node, code=1)


@pytest.mark.slow
def test_nodes_with_another_experiment(machines: Machines, dpp2: Call) -> None:
    """An orchestrator cannot switch the noise off; it is told that this is another experiment."""
    machines.lay_out()
    nodes = machines.nodes()
    machines_own = machines.folder / "experiment.toml"
    machines_own.write_text(machines_own.read_text() + "[noise]\nu_w = 0\n")
    done = dpp2(*machines.orchestration())
    assert done.code == 1
    assert "wrong digest: this node's experiment is another one" in " ".join(done.err.split())
    assert all(node.poll() is None for node in nodes)
    assert not [*machines.folder.glob("home-*/runs/*")]


# --- probes ---------------------------------------------------------------------------------------------------


def test_probes(machines: Machines, dpp2: Call) -> None:
    machines.lay_out()
    certs, port = machines.folder / "certs", machines.ports[1]
    assert dpp2("certs", "--cluster", machines.folder / "cluster.toml", "--out", certs).code == 0
    machines.tls = True
    node = machines.node(1)

    def probe(*words: object, agents: str = "1,2", at: int = port) -> tuple[int, str]:
        done = dpp2("node", "--probe", "--agents", agents, "--listen", f"127.0.0.1:{at}", *words)
        return done.code, done.err

    assert probe("--tls", certs / "probe") == (0, "")
    silent = f"dpp2 node: 127.0.0.1:{port} does not answer (unavailable)\n"
    assert probe("--plaintext") == (1, silent)
    assert probe("--tls", certs / "probe", agents="0") == (1, silent)  # another node's name
    code, said = probe("--tls", certs / "orchestrator")
    assert code == 2
    assert "a certificate for probe.dpp2" in said
    node.terminate()
    ended(node)
    assert probe("--tls", certs / "probe") == (1, silent)


# --- certificates ---------------------------------------------------------------------------------------------


def test_certificates_and_who_can_read_them(dpp2: Call, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[agents]\n0 = "a:1"\n1 = "b:1"\n2 = "b:1"\n')
    done = dpp2("certs", "--cluster", tmp_path / "cluster.toml", "--out", tmp_path / "certs", "--json")
    assert done.code == 0, done.err
    certs = tmp_path / "certs"
    folders = ["node-0", "node-1", "orchestrator", "probe"]
    told = json.loads(done.out)
    assert list(told.pop("fingerprints")) == folders
    assert told == {"authority": str(certs / "ca.pem"), "made": [str(certs / name) for name in folders], "lists": []}
    secret = {path.relative_to(certs).as_posix() for path in certs.rglob("*") if "key" in path.name}
    assert secret == {"ca.key", *(f"{name}/key.pem" for name in folders)}
    assert {(certs / name).stat().st_mode & 0o777 for name in secret} == {0o600}
    for name, names in zip(folders, (node_names([0]), node_names([1, 2]), [ORCHESTRATOR], [PROBE]), strict=True):
        assert Identity.load(certs / name, names)


def test_what_is_there_is_kept_and_nodes_can_be_added(dpp2: Call, tmp_path: Path) -> None:
    assert dpp2("certs", "--agents", 2, "--out", tmp_path / "certs").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "certs").rglob("*") if path.is_file()}
    done = dpp2("certs", "--agents", 3, "--out", tmp_path / "certs", "--json")
    assert json.loads(done.out)["made"] == [str(tmp_path / "certs" / "node-2")]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert Identity.load(tmp_path / "certs" / "node-2", node_names([2])).ca == before[tmp_path / "certs" / "ca.pem"]


def said(done: Any) -> str:
    """The one sentence of a refusal."""
    assert done.code == 2, done
    assert done.out == ""
    sentence = " ".join(done.err.split())
    assert sentence.startswith("dpp2: ")
    return sentence


def test_certificates_that_are_not_made(dpp2: Call, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "certs"]
    assert "either a cluster.toml or --agents N" in said(dpp2("certs", *out))
    both = ["--agents", 2, "--cluster", tmp_path / "cluster.toml"]
    assert "either a cluster.toml or --agents N" in said(dpp2("certs", *both, *out))
    for agents in (0, -1, 10_001):
        assert "a whole number from 1 to 10,000" in said(dpp2("certs", "--agents", agents, *out))
    for days in (0, 3651):
        assert "a whole number from 1 to 3650" in said(dpp2("certs", "--agents", 1, "--days", days, *out))
    assert "a readable cluster.toml" in said(dpp2("certs", "--cluster", tmp_path / "none.toml", *out))
    assert not (tmp_path / "certs").exists()
    (tmp_path / "a file").write_text("")
    assert "a file that can be written" in said(dpp2("certs", "--agents", 1, "--out", tmp_path / "a file"))


def aged(certs: Path) -> None:
    """An authority whose time is over."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "old")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(9), now - timedelta(1))
    (certs / "ca.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    (certs / "ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )


AUTHORITIES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "its key is gone": (lambda certs: (certs / "ca.key").unlink(), "a usable ca.pem and ca.key"),
    "its key is another one": (
        lambda certs: (certs / "ca.key").write_bytes((certs / "probe" / "key.pem").read_bytes()),
        "the key of ca.pem",
    ),
    "it is no certificate": (lambda certs: (certs / "ca.pem").write_text("hello"), "a usable ca.pem and ca.key"),
    "it has expired": (aged, "an authority that is valid today"),
}


@pytest.mark.parametrize("wrong", AUTHORITIES)
def test_an_authority_that_cannot_sign(wrong: str, dpp2: Call, tmp_path: Path) -> None:
    change, message = AUTHORITIES[wrong]
    assert dpp2("certs", "--agents", 1, "--out", tmp_path / "certs").code == 0
    change(tmp_path / "certs")
    assert message in said(dpp2("certs", "--agents", 2, "--out", tmp_path / "certs"))
    assert not (tmp_path / "certs" / "node-1").exists()


# --- what orchestrate refuses ---------------------------------------------------------------------------------


def test_orchestrations_that_are_refused(machines: Machines, dpp2: Call) -> None:
    machines.lay_out()
    folder, files = machines.folder, machines.files("experiment")
    assert dpp2("certs", "--agents", 3, "--out", folder / "certs").code == 0
    assert "or --plaintext instead" in said(dpp2("orchestrate", *files))
    assert "or --plaintext instead" in said(dpp2("orchestrate", *files, "--plaintext", "--tls", folder / "certs"))
    wrong = ["--tls", folder / "certs" / "node-0"]
    assert "a certificate for orchestrator.dpp2" in said(dpp2("orchestrate", *files, *wrong))
    assert "--window = 0: expected a whole number ≥ 1" in said(dpp2(*machines.orchestration("--window", 0)))
    five = [*machines.orchestration(), "--set", "network.agents=5"]
    assert "--cluster = 3: expected 5 agents, as in the experiment" in said(dpp2(*five))


CLUSTERS = {
    "[agents": "valid TOML",
    "": "every agent from 0 on",
    '[agents]\n1 = "a:1"\n': "every agent from 0 on",
    '[agents]\n0 = "nowhere"\n': "an address such as",
    '[agents]\nzero = "a:1"\n': "the number of an agent",
    '[agents]\n0 = "a:1"\n[links]\n"0+1" = "b:1"\n': "two agents",
    "[nodes]\n": "the tables [agents], [hosts] and [links], and no nodes",
}


@pytest.mark.parametrize("text", CLUSTERS)
def test_a_bad_cluster(text: str, machines: Machines, dpp2: Call) -> None:
    machines.lay_out()
    (machines.folder / "cluster.toml").write_text(text)
    assert CLUSTERS[text] in said(dpp2(*machines.orchestration()))


STATES = {
    "hello": "a file that dpp2 orchestrate has written",
    "[]": "a file that dpp2 orchestrate has written",
    '{"run_id": "00"}': "a file that dpp2 orchestrate has written",
    '{"run_id": "00", "digest": "another"}': "the state of this experiment, or a new file",
}


@pytest.mark.parametrize("text", STATES)
def test_a_state_that_is_not_this_runs(text: str, machines: Machines, dpp2: Call) -> None:
    machines.lay_out(seed='"os"')
    (machines.folder / "orchestrator.json").write_text(text)
    assert STATES[text] in said(dpp2(*machines.orchestration()))
