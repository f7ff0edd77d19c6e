"""Mutual TLS: the same bits as in plaintext, and nobody gets in who is not named in a certificate of our authority."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpp2 import BadInput
from dpp2.node.__main__ import main
from dpp2.node.codec import encode
from dpp2.node.peers import EXCHANGE
from dpp2.node.server import Node
from dpp2.node.status import STATUS
from dpp2.node.tls import ORCHESTRATOR, PROBE, Identity, agent_name, node_names
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator import certs
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small

VICTIM = 2  # in a ring of four: 1 and 3 are its neighbours, 0 is not
ROUND, ROUNDS = 6, 12
DAY = timedelta(days=1)


def turned_away(nodes: Live, node: int = VICTIM) -> dict[str, int]:
    """What a node has refused, but for neighbours that called before it was prepared: they are early, not bad."""
    return {kind: count for kind, count in nodes.nodes[node].refusals.counts.items() if kind != "not prepared"}


@pytest.mark.parametrize(
    "groups", [one_each(4), [[0, 3], [1, 2]], [[0], [1, 2], [3]]], ids=["one each", "pairs", "mixed"]
)
async def test_the_same_bits_as_without(groups: list[list[int]], tmp_path: Path) -> None:
    async with live(small(), tmp_path, groups, tls=True) as nodes:
        await nodes.prepare()
        await nodes.finish()
        assert not any(turned_away(nodes, node) for node in nodes.groups)
    assert_same_run(nodes)


async def test_a_node_that_comes_back_proves_itself_again(tmp_path: Path) -> None:
    async with live(small(run__rounds=20), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        await nodes.release(9)
        await nodes.reach(9)
        await nodes.nodes[1].stop()
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


# --- who is turned away ---------------------------------------------------------------------------------------


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Live]:
    """In the middle of a run; afterwards it goes on, to the same end as if nothing had happened."""
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4), tls=True) as started:
        await started.prepare()
        await started.release(ROUND)
        await started.reach(ROUND)
        yield started
        await started.finish()
    assert_same_run(started)


def identity(nodes: Live, who: str) -> Identity:
    assert nodes.tls is not None
    return Identity.load(nodes.tls / who, [])


def issued(folder: Path, names: list[str], begins: datetime, ends: datetime) -> Identity:
    """A certificate of the authority in `folder` for another time than the present."""
    authority, key = certs.Authority.load(folder), ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(
        issuer_name=authority.certificate.subject,
        subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=begins,
        not_valid_after=ends,
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Identity(
        (folder / "ca.pem").read_bytes(),
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def strangers(nodes: Live, folder: Path) -> dict[str, Identity]:
    """Who has no certificate that counts; each of them trusts our authority, so it is the node that refuses."""
    assert nodes.tls is not None
    certs.make(folder / "elsewhere", [], days=1)
    ca, other = (nodes.tls / "ca.pem").read_bytes(), Identity.load(folder / "elsewhere" / "orchestrator", [])
    now = datetime.now(UTC)
    return {
        "another authority's": Identity(ca, other.certificate, other.key),
        "expired": issued(nodes.tls, [ORCHESTRATOR], now - 3 * DAY, now - DAY),
        "not valid yet": issued(nodes.tls, [ORCHESTRATOR], now + DAY, now + 3 * DAY),
    }


async def answers(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How the mildest call of all ends, and that a control call ends the same way."""
    async with channel:
        ends = []
        control, health = wire_pb2_grpc.ControlStub(channel), health_pb2_grpc.HealthStub(channel)
        for call in (
            lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS),
            lambda: control.Stop(wire_pb2.StopRequest(run="0"), timeout=SECONDS),
        ):
            try:
                await call()  # type: ignore[no-untyped-call]
                ends.append(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                ends.append(error.code())
    if ends[0] != grpc.StatusCode.OK:
        assert ends[1] == ends[0]
    return ends[0]


async def test_strangers(nodes: Live, tmp_path: Path) -> None:
    """Turned away before a call reaches the node, by the same port that serves a probe."""
    address, override = f"127.0.0.1:{nodes.ports[VICTIM]}", ("grpc.ssl_target_name_override", agent_name(VICTIM))
    ca = identity(nodes, "probe").ca
    for name, stranger in strangers(nodes, tmp_path).items():
        assert await answers(stranger.channel(address, agent_name(VICTIM), [])) == grpc.StatusCode.UNAVAILABLE, name
    without = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca), [override])
    assert await answers(without) == grpc.StatusCode.UNAVAILABLE
    assert await answers(grpc.aio.insecure_channel(address)) == grpc.StatusCode.UNAVAILABLE
    assert not turned_away(nodes)
    assert await answers(nodes.channel(VICTIM, "probe")) == grpc.StatusCode.OK


async def test_a_tls_node_never_speaks_plaintext(nodes: Live) -> None:
    """HTTP/2 without TLS gets no HTTP/2 back, whatever it asks for."""

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", nodes.ports[VICTIM]), timeout=SECONDS) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            heard = b""
            try:
                while more := plain.recv(4096):
                    heard += more
            except ConnectionResetError:
                pass
            return heard

    heard = await asyncio.to_thread(ask)
    assert heard[:1] in (b"", b"\x15")  # nothing, or a TLS alert


async def opened(channel: grpc.aio.Channel, nodes: Live, agents: str, *frames: bytes) -> tuple[grpc.StatusCode, str]:
    """Open a peer stream that claims to be these agents, and hear how it ends."""
    victim = nodes.nodes[VICTIM].shell
    need = 0 if victim is None else victim.machine.k
    said = (("dpp2-run", nodes.run_id), ("dpp2-agents", agents), ("dpp2-need", str(need)))
    async with channel:
        call: Any = channel.stream_stream(EXCHANGE)(metadata=said, timeout=SECONDS)
        try:
            for one in frames:
                await call.write(one)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return await call.code(), await call.details()


IMPOSTORS = {  # the certificate and the agents that it is used to speak for
    "another agent's": ("node-3", "1"),
    "a stranger's": ("node-0", "1"),
    "the victim's own": ("node-2", "1"),
    "one of two": ("node-1", "1,3"),
    "the orchestrator's": ("orchestrator", "1"),
    "the probe's": ("probe", "3"),
}


async def test_impostors_on_a_peer_stream(nodes: Live) -> None:
    for counted, (name, (who, claimed)) in enumerate(IMPOSTORS.items(), start=1):
        code, details = await opened(nodes.channel(VICTIM, who), nodes, claimed)
        assert code == STATUS["impostor"] == grpc.StatusCode.UNAUTHENTICATED, name
        assert details.startswith("impostor"), name
        assert turned_away(nodes) == {"impostor": counted}, name
    assert await opened(nodes.channel(VICTIM, "node-1"), nodes, "1") == (grpc.StatusCode.OK, "")


async def test_a_certificate_for_some_agents_of_a_node(tmp_path: Path) -> None:
    """Node 0 hosts agents 0 and 1: neither the name of one, nor both names of others, speak for them."""
    async with live(small(), tmp_path, [[0, 1], [2], [3]], tls=True) as nodes:
        await nodes.prepare()
        now, address = datetime.now(UTC), f"127.0.0.1:{nodes.ports[VICTIM]}"
        for names in ([agent_name(1)], node_names([1, 3])):
            partial = issued(tmp_path / "certs", names, now - DAY, now + DAY)
            code, details = await opened(partial.channel(address, agent_name(VICTIM), []), nodes, "0,1")
            assert (code, details) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "impostor: the certificate does not speak for agents [0]",
            )
        assert turned_away(nodes) == {"impostor": 2}
        assert await opened(nodes.channel(VICTIM, "node-0"), nodes, "0,1") == (grpc.StatusCode.OK, "")
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_frame_in_the_name_of_another_agent(nodes: Live) -> None:
    """A stream that was opened honestly carries nobody else's rows."""
    foreign = encode(nodes.run_id, ROUND, "y", [3], np.ones((1, 3)))
    code, _ = await opened(nodes.channel(VICTIM, "node-1"), nodes, "1", foreign)
    assert code == STATUS["unknown sender"]
    assert turned_away(nodes) == {"unknown sender": 1}


CONTROL: dict[str, Callable[[Any, Live], Any]] = {
    "Prepare": lambda stub, nodes: stub.Prepare(wire_pb2.PrepareRequest(run=nodes.run_id, digest=nodes.digest)),
    "Release": lambda stub, nodes: stub.Release(wire_pb2.ReleaseRequest(run=nodes.run_id, until=ROUNDS)),
    "Watch": lambda stub, nodes: stub.Watch(wire_pb2.WatchRequest(run=nodes.run_id)).read(),
    "Stop": lambda stub, nodes: stub.Stop(wire_pb2.StopRequest(run=nodes.run_id)),
}


@pytest.mark.parametrize("who", ["node-1", f"node-{VICTIM}", "probe"])
async def test_control_calls_are_the_orchestrators(who: str, nodes: Live) -> None:
    victim = nodes.nodes[VICTIM]
    async with nodes.channel(VICTIM, who) as channel:
        for counted, (name, call) in enumerate(CONTROL.items(), start=1):
            with pytest.raises(grpc.aio.AioRpcError, match="not the orchestrator") as refusal:
                await call(wire_pb2_grpc.ControlStub(channel), nodes)
            assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED, name
            assert turned_away(nodes) == {"not the orchestrator": counted}, name
    assert victim.shell is not None
    assert (victim.shell.machine.until, victim.stopped.is_set()) == (ROUND, False)


async def test_unprepared_nodes_refuse_them_too(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4), tls=True) as nodes:
        async with nodes.channel(VICTIM, "node-1") as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="not the orchestrator"):
                await CONTROL["Prepare"](wire_pb2_grpc.ControlStub(channel), nodes)
        assert nodes.nodes[VICTIM].shell is None
        assert not (tmp_path / f"node-{VICTIM}" / "runs.txt").exists()


# --- files that are wrong -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates of agent 3, and others to confuse them with."""
    for authority in ("certs", "elsewhere"):
        certs.make(tmp_path / authority, [(3,), (4, 5)], days=1)
    return tmp_path / "certs" / "node-3"


def put(folder: Path, wrong: Identity) -> None:
    (folder / "cert.pem").write_bytes(wrong.certificate)
    (folder / "key.pem").write_bytes(wrong.key)


def locked(folder: Path) -> None:
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), password=None)
    encrypted = serialization.BestAvailableEncryption(b"a password")
    whole = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted)
    (folder / "key.pem").write_bytes(whole)


def aged(folder: Path, *names: str) -> None:
    now = datetime.now(UTC)
    put(folder, issued(folder.parent, list(names), now - 3 * DAY, now - DAY))


def fresh(folder: Path, *names: str) -> None:
    now = datetime.now(UTC)
    put(folder, issued(folder.parent, list(names), now - DAY, now + DAY))


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no authority": (lambda at: (at / "ca.pem").unlink(), "a readable file in PEM (No such file or directory)"),
    "no certificate": (lambda at: (at / "cert.pem").unlink(), "a readable file in PEM (No such file or directory)"),
    "no key": (lambda at: (at / "key.pem").unlink(), "a readable file in PEM (No such file or directory)"),
    "an authority that is none": (lambda at: (at / "ca.pem").write_text("hello"), "a certificate in PEM"),
    "a certificate that is none": (lambda at: (at / "cert.pem").write_bytes(b"\xff\0"), "a certificate in PEM"),
    "half a certificate": (
        lambda at: (at / "cert.pem").write_bytes((at / "cert.pem").read_bytes()[:300]),
        "a certificate in PEM",
    ),
    "a key that is none": (lambda at: (at / "key.pem").write_text(""), "a private key in PEM, without a password"),
    "a key with a password": (locked, "a private key in PEM, without a password"),
    "a key that its group can read": (lambda at: (at / "key.pem").chmod(0o640), "a file that only its owner can read"),
    "a key that everybody can read": (lambda at: (at / "key.pem").chmod(0o644), "a file that only its owner can read"),
    "another's key": (
        lambda at: (at / "key.pem").write_bytes((at.parent / "probe" / "key.pem").read_bytes()),
        "the key of cert.pem beside it",
    ),
    "another authority's": (
        lambda at: put(at, Identity.load(at.parent.parent / "elsewhere" / "node-3", [])),
        "a certificate issued by ca.pem beside it",
    ),
    "another authority": (
        lambda at: (at / "ca.pem").write_bytes((at.parent.parent / "elsewhere" / "ca.pem").read_bytes()),
        "a certificate issued by ca.pem beside it",
    ),
    "expired": (lambda at: aged(at, agent_name(3)), "a certificate that is valid today, not from "),
    "another agent's": (lambda at: fresh(at, agent_name(4)), "a certificate for agent-3.dpp2"),
    "the orchestrator's": (lambda at: fresh(at, ORCHESTRATOR), "a certificate for agent-3.dpp2"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_stops_the_node(wrong: str, folder: Path, tmp_path: Path, capsys: Any) -> None:
    """With one sentence and exit code 2, before it listens."""
    change, expected = WRONG[wrong]
    assert Identity.load(folder, node_names([3]))
    change(folder)
    with pytest.raises(BadInput) as refusal:
        Identity.load(folder, node_names([3]))
    assert refusal.value.field == "--tls"
    assert expected in str(refusal.value)
    assert main(command(folder, tmp_path)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"dpp2 node: {refusal.value}\n")


def command(folder: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "experiment.toml").write_text('[network]\ntopology = "ring"\nagents = 4\n')
    files = {"--experiment": "experiment.toml", "--cluster": "cluster.toml", "--home": "home"}
    named = [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    return [*named, "--agents", "3", "--listen", "127.0.0.1:0", "--tls", str(folder)]


def test_a_wrong_file_stops_the_process(folder: Path, tmp_path: Path) -> None:
    (folder / "key.pem").unlink()
    ended = subprocess.run(
        [sys.executable, "-m", "dpp2.node", *command(folder, tmp_path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("dpp2 node: --tls = ")
    assert ended.stderr.count("\n") == 1


def test_tls_or_plaintext_must_be_said(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """No default for want of an option, and not both."""
    words = command(folder, tmp_path)
    for wrong, message in ((words[:-2], "--tls --plaintext is required"), ([*words, "--plaintext"], "not allowed")):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_a_list_of_certificates_needs_certificates(folder: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command(folder, tmp_path)[:-2], "--plaintext", "--allow", str(tmp_path / "allowed.txt")])
    assert ended.value.code == 2
    assert "--allow needs --tls" in capsys.readouterr().err


def test_a_list_that_is_named_must_be_there(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert main([*command(folder, tmp_path), "--allow", str(tmp_path / "allowed.txt")]) == 2
    assert "a readable list of fingerprints" in capsys.readouterr().err


def test_a_node_with_several_agents_needs_all_their_names(tmp_path: Path) -> None:
    certs.make(tmp_path, [(4, 5)], days=1)
    assert Identity.load(tmp_path / "node-4", node_names([4, 5]))
    for agents in ([3, 4, 5], [4, 5, 6], [5, 6]):
        with pytest.raises(BadInput, match="a certificate for agent"):
            Identity.load(tmp_path / "node-4", node_names(agents))


def test_a_node_is_neither_orchestrator_nor_probe(folder: Path) -> None:
    for who, name in (("orchestrator", ORCHESTRATOR), ("probe", PROBE)):
        assert Identity.load(folder.parent / who, [name])
        with pytest.raises(BadInput, match=f"a certificate for {name}"):
            Identity.load(folder, [name])


# --- what is said and what is not -----------------------------------------------------------------------------


def secrets_in(folder: Path) -> list[str]:
    """Every line of every private key below a folder, without those that say what it is."""
    return [line for path in folder.rglob("key.pem") for line in path.read_text().splitlines()[1:-1]]


async def test_private_keys_are_never_printed_nor_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with live(small(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        await opened(nodes.channel(VICTIM, "node-3"), nodes, "1")
        await nodes.finish()
        secrets = secrets_in(tmp_path)
        assert len(secrets) >= 3 * len(nodes.groups)
        node = nodes.nodes[VICTIM]
        shown = [repr(node), repr(node.config), repr(node.identity), f"{node.identity}", caplog.text]
        assert "impostor" in caplog.text
        for text in shown:
            assert not any(line in text for line in secrets)


@pytest.mark.parametrize(("host", "level"), [("0.0.0.0", logging.WARNING), ("127.0.0.1", logging.INFO)])
async def test_plaintext_is_said_once_and_is_a_warning_beyond_this_machine(
    host: str, level: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with live(small(), tmp_path, one_each(4)) as nodes:
        caplog.clear()
        await nodes.nodes[0].stop()
        nodes.nodes[0] = Node(nodes.nodes[0].config)
        nodes.ports[0] = await nodes.nodes[0].start(f"{host}:{nodes.ports[0]}")
        await nodes.prepare()
        await nodes.finish()
    told = [record for record in caplog.records if "nobody is authenticated" in record.getMessage()]
    assert [record.levelno for record in told] == [level]


async def test_tls_needs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with live(small(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        await nodes.finish()
    assert "plaintext" not in caplog.text


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plaintext"])
@pytest.mark.parametrize(("changes", "told"), [({}, 4), ({"privacy__budget": 1e9}, 0), ({"run__seed": 1}, 0)])
async def test_a_node_without_a_budget_says_who_decides(
    tls: bool, changes: dict[str, Any], told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once at each of the four nodes; a run with a public seed has no ε to spend."""
    caplog.set_level(logging.INFO)
    async with live(small(**{"run__seed": "os"} | changes), tmp_path, one_each(4), tls=tls):
        said = [record for record in caplog.records if "whoever orchestrates decides how much" in record.getMessage()]
        assert len(said) == told
