"""Who may speak: mutual TLS, or plaintext because somebody said so. Nothing in between, and no way back from the first.

A participant has a folder with three files: ca.pem, cert.pem and key.pem. What a certificate proves is its names:
    agent-3.dpp2            hosts agent 3
    agents-0-4999.dpp2      hosts agents 0 to 4999
    hosts-<digest>.dpp2     hosts exactly these agents, where neither of the above would be short
    agents-<digest>.dpp2    the name to dial a node with several agents by
    orchestrator.dpp2       may make control calls
    probe.dpp2              may ask how a node is, and nothing else
A dialler checks the name of the node, never its address, so a relay or NAT in between changes nothing. gRPC checks one
name for a channel, hence the digest: a node with a certificate for agent 3 must not answer for agents 3 and 4. A
listener reads all names of whoever has dialled. A certificate travels in gRPC's metadata, which takes 8 KB without a
word: hence ranges and digests, where a node hosts many agents.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from dpp2.errors import BadInput
from dpp2.node.ranges import MOST_AGENTS, few_words, ranges_text, spans
from dpp2.store.modes import check_private

if TYPE_CHECKING:
    from cryptography import x509  # loaded when there is a certificate to check, which plaintext nodes have not

ORCHESTRATOR = "orchestrator.dpp2"
PROBE = "probe.dpp2"
CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"


_LISTED = 100  # agents that are named one by one, if there are no more
_SPANS = 64  # and ranges
_RANGE_NAME = re.compile(r"agents-(0|[1-9][0-9]{0,6})-([1-9][0-9]{0,6})\.dpp2", re.ASCII)


def agent_name(agent: int) -> str:
    return f"agent-{agent}.dpp2"


def range_name(first: int, last: int) -> str:
    return agent_name(first) if first == last else f"agents-{first}-{last}.dpp2"


def node_name(agents: Sequence[int]) -> str:
    """The name by which a node with these agents is dialled."""
    return agent_name(agents[0]) if len(agents) == 1 else f"agents-{_digest(agents)[:32]}.dpp2"


def set_name(agents: Sequence[int]) -> str:
    """For exactly these agents. Nobody finds two sets with one name of 208 bits; more would not fit into a subject."""
    return f"hosts-{_digest(agents)[:52]}.dpp2"


def node_names(agents: Sequence[int]) -> list[str]:
    """Everything that the certificate of a node with these agents says."""
    if len(agents) <= _LISTED:
        return sorted({*map(agent_name, agents), node_name(agents)})
    found = spans(agents)
    hosted = [range_name(*span) for span in found] if len(found) <= _SPANS else [set_name(agents)]
    return sorted({*hosted, node_name(agents)})


def unproven(agents: Sequence[int], names: Collection[str]) -> list[int]:
    """Those of `agents` for whom a certificate with these names does not speak."""
    if set_name(agents) in names:
        return []
    found = sorted(span for name in names if (span := _named_span(name)) is not None)
    return [agent for agent in agents if agent_name(agent) not in names and not _within(agent, found)]


def told_agents(agents: Sequence[int]) -> str:
    """How a node tells its neighbours which agents it hosts: by ranges, or by a name where these are many."""
    return ranges_text(agents) if len(spans(agents)) <= _SPANS else set_name(agents)


def _digest(agents: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, sorted(agents))).encode()).hexdigest()


def _named_span(name: str) -> tuple[int, int] | None:
    """The range that a name stands for. One that could be read in two ways stands for none."""
    found = _RANGE_NAME.fullmatch(name)
    first, last = map(int, found.groups()) if found else (0, 0)
    return (first, last) if first < last < MOST_AGENTS else None


def _within(agent: int, ordered: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the spans, by their first agents, has it. They may overlap: an authority may have made them so."""
    before = ordered[: bisect_right(ordered, (agent, MOST_AGENTS))]
    return any(agent <= last for _, last in reversed(before))


@dataclass(frozen=True)
class Identity:
    """One participant's certificate, its key, and the authority that everybody trusts. Never printed."""

    ca: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Identity(…)"

    @classmethod
    def load(cls, folder: Path, names: Sequence[str], agents: Sequence[int] = ()) -> Identity:
        """Read and check a folder: a wrong or missing file is one sentence now, not a riddle at the first call.

        The certificate must have these `names`, and speak for these `agents`.
        """
        ca, certificate, key = (_read(folder / name) for name in (CA, CERTIFICATE, KEY))
        check_private("--tls", folder / KEY, (folder / KEY).stat().st_mode)
        own = _check(folder, ca, certificate, key)
        _check_names(folder, own, names, agents)
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


def _check(folder: Path, ca: bytes, certificate: bytes, key: bytes) -> set[str]:
    """The names in the certificate, if the three files belong together and are valid today."""
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
    return _names(own)


def _check_names(folder: Path, own: set[str], names: Sequence[str], agents: Sequence[int]) -> None:
    lacking = sorted(set(names) - own) or [agent_name(agent) for agent in unproven(agents, own)]
    if lacking:
        together = len(agents) > 1 and lacking == [node_name(agents)]  # a digest, which tells nobody anything
        whose = f"the node that hosts agents {few_words(agents)}" if together else ", ".join(lacking[:5])
        raise BadInput("--tls", str(folder / CERTIFICATE), f"a certificate for {whose}")


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
