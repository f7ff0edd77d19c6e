"""A listener proves its certificate to whoever dials, so that the dialler can admit it as well.

A listener hears from gRPC which certificate was shown. A dialler does not: gRPC checks the name in it and keeps the
rest. So the dialler sends a challenge when it opens a stream, and the listener answers with its certificate and
    signature(key of the listener, CONTEXT ‖ challenge ‖ fingerprint of the dialler's certificate, as TLS showed it)
Somebody in between who has a revoked key can neither sign for another one, nor pass the challenge on: the signature
that an honest node gives him is for his own fingerprint.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from dpp2.node.admission import shown
from dpp2.node.errors import PeerFault
from dpp2.node.tls import Identity

CHALLENGE, CERTIFICATE, SIGNATURE = "dpp2-challenge-bin", "dpp2-certificate-bin", "dpp2-signature-bin"
_CONTEXT = b"dpp2 listener 1\n"
_SIZE = 32

Metadata = tuple[tuple[str, bytes], ...]


def challenge() -> bytes:
    return secrets.token_bytes(_SIZE)


def prove(identity: Identity, metadata: Mapping[str, Any], dialler: bytes) -> Metadata:
    """What a listener answers to the challenge in a dialler's metadata; `dialler`: the certificate that TLS showed.

    Whoever asks for no proof gets none: it is the dialler who is protected by it.
    """
    from cryptography.hazmat.primitives import serialization

    asked = metadata.get(CHALLENGE)
    if asked is None:
        return ()
    if not isinstance(asked, bytes) or len(asked) != _SIZE:
        raise PeerFault("bad metadata", f"{CHALLENGE} must be {_SIZE} bytes")
    key: Any = serialization.load_pem_private_key(identity.key, password=None)
    signature = key.sign(_message(asked, dialler), *_scheme(key))
    return (CERTIFICATE, identity.certificate), (SIGNATURE, signature)


def proven(identity: Identity, metadata: Mapping[str, Any], asked: bytes, name: str) -> bytes:
    """The listener's certificate (PEM), for the dialler to admit; the listener must be `name`, and prove it."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    pem, signature = metadata.get(CERTIFICATE), metadata.get(SIGNATURE)
    if not isinstance(pem, bytes) or not isinstance(signature, bytes):
        raise PeerFault("impostor", "the listener proves no certificate")
    shown(pem)  # refuses what is none
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(identity.ca))
        key: Any = certificate.public_key()
        key.verify(signature, _message(asked, identity.certificate), *_scheme(key))
    except (ValueError, TypeError, InvalidSignature):
        raise PeerFault("impostor", "the listener's proof does not hold") from None
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if name not in names.get_values_for_type(x509.DNSName):
        raise PeerFault("impostor", f"the listener's certificate does not speak for {name}")
    return pem


def _message(asked: bytes, dialler: bytes) -> bytes:
    return _CONTEXT + asked + bytes.fromhex(shown(dialler).fingerprint)


def _scheme(key: Any) -> tuple[Any, ...]:
    """How this kind of key signs: elliptic curves as `dpp2 certs` makes them, or RSA from an authority elsewhere."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding

    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    return padding.PKCS1v15(), hashes.SHA256()
