"""Which certificates may speak, and until when.

TLS lets in whoever has a certificate of our authority. Two things are left to us. A certificate ends, and gRPC lets a
stream that is open go on: so everybody is admitted up to the end of the certificate and no longer. And a key can get
into wrong hands before that: so there can be a list of the certificates that count,
    allowed.txt     in the folder of certificates: SHA-256 fingerprints, one in a line; # begins a comment
as `dpp2 certs` writes it. Without a list every certificate of the authority counts; once there is one, only those on
it do. It is read again whenever the file has changed, so that a certificate is revoked by taking its line away.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from dpp2.errors import BadInput
from dpp2.node.errors import PeerFault
from dpp2.node.limits import RECHECK_SECONDS

log = logging.getLogger("dpp2.node")

ALLOWED = "allowed.txt"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


@dataclass(frozen=True)
class Shown:
    """What a certificate says that decides on admission."""

    fingerprint: str  # SHA-256 of the certificate (DER), hexadecimal
    begins: datetime
    ends: datetime


@lru_cache(1024)  # control calls come every round, always with the same few
def shown(pem: bytes) -> Shown:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise PeerFault("impostor", "what it shows is not a certificate") from None
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    return Shown(fingerprint, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def peer_certificate(auth_context: Mapping[str, Any]) -> bytes:
    """The certificate at the other end of a call, as gRPC tells it: PEM."""
    found = list(auth_context.get("x509_pem_cert", ()))
    if not found:
        raise PeerFault("impostor", "no certificate was shown")
    return bytes(found[0])


class AllowList:
    """The fingerprints in a file, always as it is now."""

    def __init__(self, path: Path, *, required: bool) -> None:
        """`required`: somebody named the file, so it must be there. Whatever is in it must be right at the start."""
        self.path = path
        self._in_force = required
        self._stamp: object = None
        self._fingerprints: frozenset[str] = frozenset()
        if required or path.exists():
            for number, word in _wrong_lines(self._read()):
                accepted = f"a SHA-256 fingerprint in each line, not {word[:20]!r} in line {number}"
                raise BadInput("--allow", str(path), accepted)

    def allows(self, fingerprint: str) -> bool:
        """Whether the list has it. A list that was there once and is gone allows nobody."""
        self._refresh()
        return not self._in_force or fingerprint in self._fingerprints

    def _refresh(self) -> None:
        try:
            found = self.path.stat()
        except OSError as error:
            if self._in_force and self._stamp != error.errno:
                log.error("%s cannot be read (%s): nobody is admitted until it is back", self.path, error.strerror)
                self._stamp, self._fingerprints = error.errno, frozenset()
            return
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == self._stamp:
            return
        self._in_force = True
        try:
            text = self._read()
        except BadInput as refusal:
            log.error("%s: nobody is admitted until then", refusal)
            self._stamp, self._fingerprints = None, frozenset()  # it is read again with the next call
            return
        for number, word in _wrong_lines(text):
            log.error("%s: line %d is not a fingerprint and admits nobody: %.20r", self.path, number, word)
        self._stamp, self._fingerprints = stamp, frozenset(word for _, word in _lines(text))
        log.info("%s allows %d certificates", self.path, len(self._fingerprints))

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise BadInput("--allow", str(self.path), f"a readable list of fingerprints ({error.strerror})") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, fingerprint): without comments, and however it was written (openssl's has colons and capitals)."""
    for number, line in enumerate(text.splitlines(), start=1):
        if word := line.partition("#")[0].strip().replace(":", "").lower():
            yield number, word


def _wrong_lines(text: str) -> Iterator[tuple[int, str]]:
    return ((number, word) for number, word in _lines(text) if not _FINGERPRINT.fullmatch(word))


class Admission:
    """Decides who may speak."""

    def __init__(self, allowed: AllowList) -> None:
        self._allowed = allowed

    @classmethod
    def of(cls, folder: Path, allow: Path | None = None) -> Admission:
        """With the list that was named, or the one in the folder of certificates if there is any."""
        return cls(AllowList(allow or folder / ALLOWED, required=allow is not None))

    def admit(self, pem: bytes, now: datetime) -> datetime:
        """Until when this certificate counts; a certificate that does not is its owner's fault."""
        certificate = shown(pem)
        if not certificate.begins <= now < certificate.ends:
            days = f"{certificate.begins:%Y-%m-%d %H:%M} to {certificate.ends:%Y-%m-%d %H:%M} UTC"
            raise PeerFault("expired", f"the certificate is valid from {days}")
        if not self._allowed.allows(certificate.fingerprint):
            raise PeerFault("revoked", f"the certificate {certificate.fingerprint[:16]}… is not on the list")
        return certificate.ends

    async def during(
        self, pem: bytes, talk: Coroutine[Any, Any, T], now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> T:
        """Let somebody talk for as long as the certificate counts; then the talk is cancelled, with the reason."""
        task = asyncio.ensure_future(talk)
        try:
            while not task.done():
                left = (self.admit(pem, now()) - now()).total_seconds()
                await asyncio.wait([task], timeout=max(0.0, min(RECHECK_SECONDS, left)))
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])
            del task  # its exception would keep this frame, and this frame it, with all that the talk was about
