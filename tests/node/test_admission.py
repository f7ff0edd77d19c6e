"""Certificates end, and can be revoked: for calls, for streams that are open, for listeners as for diallers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpp2.errors import BadInput
from dpp2.node.admission import ALLOWED, Admission, AllowList, peer_certificate, shown
from dpp2.node.errors import PeerFault, Refusals
from dpp2.node.gate import Gate
from dpp2.node.limits import RECHECK_SECONDS
from dpp2.node.proofs import CERTIFICATE, CHALLENGE, SIGNATURE, challenge, prove, proven
from dpp2.node.status import STATUS
from dpp2.node.tls import Identity, agent_name
from dpp2.orchestrator import certs

NOW = datetime(2030, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECONDS = 10.0


def issued(folder: Path, name: str, begins: datetime, ends: datetime) -> Identity:
    """A certificate of the authority in `folder`, for a time of our own choice."""
    authority, key = certs.Authority.load(folder), ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(
        issuer_name=authority.certificate.subject,
        subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=begins,
        not_valid_after=ends,
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return Identity(
        (folder / "ca.pem").read_bytes(),
        builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certs.make(tmp_path / "certs", [(0,), (1,), (2,)], days=1)
    return tmp_path / "certs"


@pytest.fixture
def pem(folder: Path) -> bytes:
    return issued(folder, agent_name(1), NOW - HOUR, NOW + HOUR).certificate


def write(path: Path, text: str) -> None:
    """As an editor does it: another file under the same name."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


# --- who is admitted, and until when ---------------------------------------------------------------------------


def test_without_a_list_a_certificate_counts_for_its_own_time(pem: bytes, tmp_path: Path) -> None:
    admission = Admission.of(tmp_path)
    assert admission.admit(pem, NOW) == NOW + HOUR
    for moment in (NOW - 2 * HOUR, NOW + HOUR, NOW + 2 * HOUR):
        with pytest.raises(PeerFault, match="expired: the certificate is valid from 2030-01-01 23:00 to"):
            admission.admit(pem, moment)


@pytest.mark.parametrize("pem", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_the_peers_fault(pem: bytes, tmp_path: Path) -> None:
    with pytest.raises(PeerFault, match="impostor"):
        Admission.of(tmp_path).admit(pem, NOW)


def test_nothing_shown_is_the_peers_fault() -> None:
    with pytest.raises(PeerFault, match="impostor: no certificate"):
        peer_certificate({})


def written(fingerprint: str, how: str) -> str:
    pairs = ":".join(fingerprint[at : at + 2] for at in range(0, 64, 2))
    return {
        "plain": f"{fingerprint}\n",
        "capitals": fingerprint.upper(),
        "openssl's": pairs.upper(),
        "with a comment": f"# ours\n\n   {fingerprint}   # node-1\n# {'0' * 64}\n",
        "crlf": f"{fingerprint}\r\n{'0' * 64}\r\n",
    }[how]


@pytest.mark.parametrize("how", ["plain", "capitals", "openssl's", "with a comment", "crlf"])
def test_a_list_admits_those_on_it_and_nobody_else(how: str, pem: bytes, folder: Path, tmp_path: Path) -> None:
    (tmp_path / ALLOWED).write_text(written(shown(pem).fingerprint, how))
    admission = Admission.of(tmp_path)
    assert admission.admit(pem, NOW) == NOW + HOUR
    other = issued(folder, agent_name(1), NOW - HOUR, NOW + HOUR).certificate
    with pytest.raises(PeerFault, match=r"revoked: the certificate [0-9a-f]{16}… is not on the list"):
        admission.admit(other, NOW)


def test_a_list_can_lie_elsewhere_and_then_must_be_there(pem: bytes, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    with pytest.raises(BadInput, match=r"--allow = .*elsewhere\.txt.*No such file"):
        Admission.of(tmp_path, elsewhere)
    elsewhere.write_text("")
    with pytest.raises(PeerFault, match="revoked"):
        Admission.of(tmp_path, elsewhere).admit(pem, NOW)


def test_a_wrong_line_at_the_start_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ALLOWED).write_text(f"{'0' * 64}\nnode-3\n")
    with pytest.raises(BadInput, match=r"--allow.*not 'node-3' in line 2"):
        Admission.of(tmp_path)


def test_a_list_is_read_again_when_it_has_changed(pem: bytes, tmp_path: Path, caplog: Any) -> None:
    """It may appear, change, break and vanish while the node runs; a doubt is never an admission."""
    caplog.set_level(logging.INFO)
    path, fingerprint = tmp_path / ALLOWED, shown(pem).fingerprint
    allowed = AllowList(path, required=False)
    assert allowed.allows(fingerprint)  # no list
    write(path, f"{'0' * 64}\n")
    assert not allowed.allows(fingerprint)
    write(path, f"{fingerprint}\nwrong\n")
    assert allowed.allows(fingerprint)
    assert "line 2 is not a fingerprint and admits nobody: 'wrong'" in caplog.text
    write(path, f"# {fingerprint}\n")
    assert not allowed.allows(fingerprint)
    path.unlink()
    assert not allowed.allows(fingerprint)
    assert not allowed.allows(fingerprint)
    assert caplog.text.count("nobody is admitted until it is back") == 1
    write(path, fingerprint)
    assert allowed.allows(fingerprint)


def test_a_list_is_not_read_again_while_it_is_the_same(pem: bytes, tmp_path: Path) -> None:
    path = tmp_path / ALLOWED
    path.write_text(shown(pem).fingerprint)
    allowed, reads = AllowList(path, required=True), []
    allowed._read = lambda: reads.append(1) or path.read_text()  # type: ignore[method-assign,func-returns-value]
    for _ in range(5):
        assert allowed.allows(shown(pem).fingerprint)
    assert len(reads) == 1
    os.utime(path, ns=(1, 1))
    assert allowed.allows(shown(pem).fingerprint)
    assert len(reads) == 2


def test_a_list_that_could_not_be_read_once_is_read_again(pem: bytes, tmp_path: Path) -> None:
    """As when there are no descriptors left for a moment. Nobody is admitted meanwhile."""
    path = tmp_path / ALLOWED
    path.write_text(shown(pem).fingerprint)
    allowed = AllowList(path, required=True)

    def fails() -> str:
        raise BadInput("--allow", str(path), "a readable list of fingerprints (Too many open files)")

    with pytest.MonkeyPatch.context() as meanwhile:
        meanwhile.setattr(allowed, "_read", fails)
        assert not allowed.allows(shown(pem).fingerprint)
    assert allowed.allows(shown(pem).fingerprint)


async def test_a_talk_ends_with_the_certificate(pem: bytes, tmp_path: Path) -> None:
    """On a clock of our own, which jumps to the end while somebody talks."""
    moments, cancelled = iter([NOW, NOW, NOW + HOUR - timedelta(milliseconds=20)]), asyncio.Event()

    async def talk() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(PeerFault, match="expired"):
        await Admission.of(tmp_path).during(pem, talk(), lambda: next(moments, NOW + HOUR))
    assert cancelled.is_set()


async def test_a_talk_that_ends_by_itself_gives_its_result_and_its_faults(pem: bytes, tmp_path: Path) -> None:
    async def talk(fails: bool) -> int:
        await asyncio.sleep(0)
        if fails:
            raise PeerFault("stale", "late")
        return 7

    admission = Admission.of(tmp_path)
    assert await admission.during(pem, talk(False), lambda: NOW) == 7
    with pytest.raises(PeerFault, match="stale"):
        await admission.during(pem, talk(True), lambda: NOW)


# --- a listener's proof ----------------------------------------------------------------------------------------


def test_a_listener_proves_its_certificate(folder: Path) -> None:
    dialler, listener = (Identity.load(folder / name, []) for name in ("node-0", "node-1"))
    asked = challenge()
    answer = dict(prove(listener, {CHALLENGE: asked}, dialler.certificate))
    assert proven(dialler, answer, asked, agent_name(1)) == listener.certificate


def refused(call: Callable[[], Any]) -> str:
    """The kind of fault that it is refused for."""
    with pytest.raises(PeerFault) as refusal:
        call()
    return refusal.value.kind


def test_no_other_proof_holds(folder: Path, tmp_path: Path) -> None:
    certs.make(tmp_path / "elsewhere", [(1,)], days=1)
    dialler, listener, third = (Identity.load(folder / name, []) for name in ("node-0", "node-1", "node-2"))
    foreign = Identity.load(tmp_path / "elsewhere" / "node-1", [])
    asked = challenge()
    right = dict(prove(listener, {CHALLENGE: asked}, dialler.certificate))
    wrong = {
        "nothing": {},
        "another challenge": dict(prove(listener, {CHALLENGE: challenge()}, dialler.certificate)),
        "given to another dialler": dict(prove(listener, {CHALLENGE: asked}, third.certificate)),
        "another's key": {**right, CERTIFICATE: third.certificate},
        "another agent": dict(prove(third, {CHALLENGE: asked}, dialler.certificate)),
        "another authority": dict(prove(foreign, {CHALLENGE: asked}, dialler.certificate)),
        "no certificate": {**right, CERTIFICATE: b"hello"},
        "a changed signature": {**right, SIGNATURE: right[SIGNATURE][:-1] + bytes([right[SIGNATURE][-1] ^ 1])},
    }
    assert proven(dialler, right, asked, agent_name(1))
    for name, answer in wrong.items():
        assert refused(partial(proven, dialler, answer, asked, agent_name(1))) == "impostor", name


def test_whoever_asks_for_no_proof_gets_none(folder: Path) -> None:
    listener = Identity.load(folder / "node-1", [])
    assert prove(listener, {}, listener.certificate) == ()


@pytest.mark.parametrize("metadata", [{CHALLENGE: b""}, {CHALLENGE: b"short"}, {CHALLENGE: "x" * 32}])
def test_a_bad_challenge_is_the_peers_fault(metadata: dict[str, Any], folder: Path) -> None:
    listener = Identity.load(folder / "node-1", [])
    with pytest.raises(PeerFault, match="bad metadata"):
        prove(listener, metadata, listener.certificate)


# --- the gate, over real TLS -----------------------------------------------------------------------------------


class Service:
    """All four ways in which a method of gRPC can be written, behind a gate."""

    def __init__(self, identity: Identity, admission: Admission) -> None:
        self.refusals, self.ended, self.calls = Refusals(), asyncio.Event(), 0
        self._server = grpc.aio.server(interceptors=[Gate(admission, self.refusals)])
        methods: dict[str, Any] = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Generated": grpc.unary_stream_rpc_method_handler(self.generated),
            "Generating": grpc.stream_stream_rpc_method_handler(self.generating),
            "Exchange": grpc.stream_stream_rpc_method_handler(self.exchange),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", methods),))
        self.port = self._server.add_secure_port("127.0.0.1:0", identity.listener())

    async def unary(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        return request

    async def generated(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield request
        await asyncio.sleep(60 if request == b"long" else 0)

    async def generating(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def exchange(self, requests: Any, context: Any) -> None:
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(request)
        finally:
            self.ended.set()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Service]:
    service = Service(Identity.load(folder / "node-1", []), Admission.of(folder / "node-1"))
    await service._server.start()
    try:
        yield service
    finally:
        await service._server.stop(0)


@asynccontextmanager
async def dialled(service: Service, who: Identity) -> AsyncIterator[Any]:
    async with who.channel(f"127.0.0.1:{service.port}", agent_name(1), []) as channel:
        yield channel


async def heard(call: Any) -> list[bytes]:
    return [reply async for reply in call]


def allow(folder: Path, *names: str) -> None:
    lines = [f"{shown((folder / name / 'cert.pem').read_bytes()).fingerprint}  # {name}" for name in names]
    write(folder / "node-1" / ALLOWED, "\n".join(lines))


async def test_the_gate_changes_nothing_for_those_who_are_admitted(folder: Path) -> None:
    async with served(folder) as service, dialled(service, Identity.load(folder / "node-0", [])) as channel:
        assert await channel.unary_unary("/Test/Unary")(b"a") == b"a"
        assert await heard(channel.unary_stream("/Test/Generated")(b"b")) == [b"b"] * 3
        assert await heard(channel.stream_stream("/Test/Generating")(iter([b"c", b"d"]))) == [b"c", b"d"]
        assert await heard(channel.stream_stream("/Test/Exchange")(iter([b"e", b"f"]))) == [b"e", b"f"]
        with pytest.raises(grpc.aio.AioRpcError) as nowhere:
            await channel.unary_unary("/Test/Nothing")(b"")
        assert nowhere.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert not service.refusals.counts


async def test_a_revoked_certificate_is_refused_by_every_kind_of_call(folder: Path) -> None:
    """Also over a connection that was opened before."""
    async with served(folder) as service, dialled(service, Identity.load(folder / "node-0", [])) as channel:
        assert await channel.unary_unary("/Test/Unary")(b"a") == b"a"
        allow(folder, "node-2", "orchestrator")
        for call in (
            channel.unary_unary("/Test/Unary")(b"a"),
            heard(channel.unary_stream("/Test/Generated")(b"b")),
            heard(channel.stream_stream("/Test/Exchange")(iter([b"e"]))),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="revoked") as refusal:
                await call
            assert refusal.value.code() == STATUS["revoked"] == grpc.StatusCode.UNAUTHENTICATED
        assert (service.calls, service.refusals.counts) == (1, {"revoked": 3})
        allow(folder, "node-0")
        assert await channel.unary_unary("/Test/Unary")(b"a") == b"a"


async def test_an_open_stream_ends_when_its_certificate_is_revoked(folder: Path) -> None:
    allow(folder, "node-0", "node-2")
    async with (
        served(folder) as service,
        dialled(service, Identity.load(folder / "node-0", [])) as revoked,
        dialled(service, Identity.load(folder / "node-2", [])) as other,
    ):
        calls = [channel.stream_stream("/Test/Exchange")() for channel in (revoked, other)]
        for call in calls:
            await call.write(b"hello")
            assert await call.read() == b"hello"
        allow(folder, "node-2")
        assert await asyncio.wait_for(calls[0].code(), 3 * RECHECK_SECONDS) == STATUS["revoked"]
        assert service.ended.is_set()  # the node's own part of it, too
        await calls[1].write(b"still here")
        assert await calls[1].read() == b"still here"


async def test_an_open_stream_ends_when_its_certificate_does(folder: Path) -> None:
    now = datetime.now(UTC)
    ends = (now + timedelta(seconds=3)).replace(microsecond=0)  # certificates count whole seconds
    brief = issued(folder, agent_name(0), now - HOUR, ends)
    async with served(folder) as service, dialled(service, brief) as channel:
        call = channel.stream_stream("/Test/Exchange")()
        await call.write(b"hello")
        assert await call.read() == b"hello"
        assert await asyncio.wait_for(call.code(), SECONDS) == STATUS["expired"]
        assert datetime.now(UTC) >= ends
        with pytest.raises(grpc.aio.AioRpcError) as refusal:  # the connection outlives it, the right to call does not
            await channel.unary_unary("/Test/Unary")(b"a")
        assert refusal.value.code() == STATUS["expired"]


async def test_a_call_that_its_caller_gives_up_ends_here_as_well(folder: Path) -> None:
    async with served(folder) as service, dialled(service, Identity.load(folder / "node-0", [])) as channel:
        call = channel.stream_stream("/Test/Exchange")()
        await call.write(b"hello")
        assert await call.read() == b"hello"
        call.cancel()
        await asyncio.wait_for(service.ended.wait(), SECONDS)
        assert not service.refusals.counts
