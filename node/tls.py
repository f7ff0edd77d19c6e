"""Who may speak: mutual TLS, or plaintext because somebody said so. Nothing in between, and no way back from the first.

A participant has a folder with three files: ca.pem, cert.pem and key.pem. What a certificate proves is its names:
    agent-3.dpp2            hosts agent 3 (one name for every hosted agent)
    agents-<digest>.dpp2    hosts exactly these agents; the name to dial a node with several of them by
    orchestrator.dpp2       may make control calls
    probe.dpp2              may ask how a node is, and nothing else
A dialler checks the name of the node, never its address, so a relay or NAT in between changes nothing. gRPC checks one
name for a channel, hence the digest: a node with a certificate for agent 3 must not answer for agents 3 and 4. A
listener reads all names of whoever has dialled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from dpp2.errors import BadInput
from dpp2.store.modes import check_private

if TYPE_CHECKING:
    from cryptography import x509  # loaded when there is a certificate to check, which plaintext nodes have not

ORCHESTRATOR = "orchestrator.dpp2"
PROBE = "probe.dpp2"
CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"


def agent_name(agent: int) -> str:
    return f"agent-{agent}.dpp2"


def node_name(agents: Sequence[int]) -> str:
    """The name by which a node with these agents is dialled."""
    if len(agents) == 1:
        return agent_name(agents[0])
    return f"agents-{hashlib.sha256(','.join(map(str, sorted(agents))).encode()).hexdigest()[:32]}.dpp2"


def node_names(agents: Sequence[int]) -> list[str]:
    """Everything that the certificate of a node with these agents says."""
    return sorted({*map(agent_name, agents), node_name(agents)})


@dataclass(frozen=True)
class Identity:
    """One participant's certificate, its key, and the authority that everybody trusts. Never printed."""

    ca: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Identity(…)"

    @classmethod
    def load(cls, folder: Path, names: Sequence[str]) -> Identity:
        """Read and check a folder: a wrong or missing file is one sentence now, not a riddle at the first call."""
        ca, certificate, key = (_read(folder / name) for name in (CA, CERTIFICATE, KEY))
        check_private("--tls", folder / KEY, (folder / KEY).stat().st_mode)
        _check(folder, ca, certificate, key, names)
        return cls(ca, certificate, key)

    def listener(self) -> grpc.ServerCredentials:
        """Nobody gets in without a certificate of our authority."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.ca, require_client_auth=True)

    def channel(self, address: str, name: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """A channel to whoever proves to be `name`, wherever `address` leads."""
        credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        return grpc.aio.secure_channel(address, credentials, [*options, ("grpc.ssl_target_name_override", name)])


def open_channel(
    identity: Identity | None, address: str, name: str, options: Sequence[tuple[str, Any]]
) -> grpc.aio.Channel:
    """With an identity to `name` alone; without one to whoever answers."""
    if identity is None:
        return grpc.aio.insecure_channel(address, list(options))
    return identity.channel(address, name, options)


def proven_names(auth_context: Mapping[str, Any]) -> set[str]:
    """The names in the certificate at the other end of a call."""
    return {name.decode("ascii", "replace") for name in auth_context.get("x509_subject_alternative_name", ())}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput("--tls", str(path), f"a readable file in PEM ({error.strerror})") from None


def _check(folder: Path, ca: bytes, certificate: bytes, key: bytes, names: Sequence[str]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    authority, own = _certificate(folder / CA, ca), _certificate(folder / CERTIFICATE, certificate)
    try:
        public = serialization.load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):
        raise BadInput("--tls", str(folder / KEY), "a private key in PEM, without a password") from None
    if public != own.public_key():
        raise BadInput("--tls", str(folder / KEY), f"the key of {CERTIFICATE} beside it")
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise BadInput("--tls", str(folder / CERTIFICATE), f"a certificate issued by {CA} beside it") from None
    now = datetime.now(UTC)
    for path, one in ((CA, authority), (CERTIFICATE, own)):
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            ended = f"{one.not_valid_before_utc:%Y-%m-%d} to {one.not_valid_after_utc:%Y-%m-%d}"
            raise BadInput("--tls", str(folder / path), f"a certificate that is valid today, not from {ended}")
    if missing := sorted(set(names) - _names(own)):
        raise BadInput("--tls", str(folder / CERTIFICATE), f"a certificate for {', '.join(missing[:5])}")


def _certificate(path: Path, content: bytes) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise BadInput("--tls", str(path), "a certificate in PEM") from None


def _names(certificate: x509.Certificate) -> set[str]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return set(extension.value.get_values_for_type(x509.DNSName))
