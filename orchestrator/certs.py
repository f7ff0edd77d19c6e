"""Makes the certificates of a cluster: an authority, one per node, one for the orchestrator, one for probes.

    certs/ca.pem, ca.key             the authority; its key is needed to add nodes, and by nobody who runs one
    certs/node-0/ca.pem cert.pem key.pem
    certs/orchestrator/…  certs/probe/…
Each folder goes to its participant as it is. What is there already is left alone, so that a node can be added later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpp2.errors import BadInput
from dpp2.node.tls import CA, CERTIFICATE, KEY, ORCHESTRATOR, PROBE, node_names
from dpp2.store.files import write_whole

_CA_KEY = "ca.key"
_CLOCK_SLACK = timedelta(minutes=5)  # clocks of several machines differ


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, days: int) -> Authority:
        key, name = _key(), _name("dpp2 authority")
        builder = _builder(name, name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        try:
            certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
            key = serialization.load_pem_private_key((folder / _CA_KEY).read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise BadInput("--out", str(folder), f"a folder with a usable {CA} and {_CA_KEY} ({error})") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise BadInput("--out", str(folder / _CA_KEY), f"the key of {CA}")
        if (ended := certificate.not_valid_after_utc) < datetime.now(UTC):  # nobody would accept what it signs
            raise BadInput("--out", str(folder / CA), f"an authority that is valid today, not until {ended:%Y-%m-%d}")
        return cls(certificate, key)

    def issue(self, names: Sequence[str], days: int) -> tuple[bytes, bytes]:
        """A certificate for these names, and its key, both in PEM."""
        key = _key()
        builder = _builder(_name(names[0]), self.certificate.subject, key.public_key(), days)
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        both_sides = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(alternatives, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(both_sides, critical=False)
        return _pem(builder.sign(self.key, hashes.SHA256())), _key_pem(key)


def make(folder: Path, nodes: Sequence[Sequence[int]], days: int = 365) -> list[Path]:
    """Everything that is missing in `folder` for nodes with these agents; returns the folders made."""
    if (folder / CA).exists():
        authority = Authority.load(folder)
    else:
        authority = Authority.create(days)
        _write(folder / _CA_KEY, _key_pem(authority.key), 0o600)
        _write(folder / CA, _pem(authority.certificate), 0o644)  # last: where it is, its key is, too
    wanted = {f"node-{min(agents)}": node_names(agents) for agents in nodes}
    wanted |= {"orchestrator": [ORCHESTRATOR], "probe": [PROBE]}
    made = []
    for name, names in wanted.items():
        if not (folder / name / CERTIFICATE).exists():
            certificate, key = authority.issue(names, days)
            _write(folder / name / CA, _pem(authority.certificate), 0o644)
            _write(folder / name / KEY, key, 0o600)
            _write(folder / name / CERTIFICATE, certificate, 0o644)
            made.append(folder / name)
    return made


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(content), mode)
    except OSError as error:
        raise BadInput("--out", str(path), f"a file that can be written ({error.strerror})") from None
