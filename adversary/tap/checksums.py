"""Which captured segments are whole: the checksums of IPv4 headers and of TCP (RFC 1071).

A checksum is the complement of the sum of all 16-bit words modulo 2¹⁶ − 1, so what it protects, the checksum included,
is a multiple of 2¹⁶ − 1. TCP adds both addresses, its number 6 and the length.

A machine that leaves checksums to its network card, or sends to itself, writes the sum of the addresses, the number
and the length into the field and no more; the receiving end does the same when it joins segments. Such a segment is
recognised by that very value: it cannot be checked, and no other is taken for it. Should a system leave something
else there, none of its segments is sound, and that tells it from damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dpkt

_MODULUS = 0xFFFF
_TCP = 6
_TELLING = 8  # so many segments in a direction, none of them sound, are not damage but a field that nobody fills in


class Verdict(Enum):
    SOUND = "sound"
    UNCHECKED = "unchecked"  # no checksum of its own, or only a part was captured
    WRONG = "wrong"


@dataclass(frozen=True, eq=False)
class Segment:
    """A captured TCP segment with the IP packet that carries it."""

    time: float
    ip: Any  # dpkt's; its `data` is the segment
    verdict: Verdict

    @property
    def direction(self) -> tuple[bytes, bytes]:
        return self.ip.src, self.ip.dst


def verdict(ip: Any, *, cut: bool) -> Verdict:
    """What the checksums of one packet say of it."""
    version_4 = isinstance(ip, dpkt.ip.IP)
    if version_4 and ip.sum and _words(ip.pack_hdr() + ip.opts):  # some cards fill this one in, too
        return Verdict.WRONG
    if cut or (version_4 and ip.mf):
        return Verdict.UNCHECKED
    tcp, segment = ip.data, bytes(ip.data)
    addresses = _words(ip.src + ip.dst) + _TCP
    if (addresses + len(segment) + _words(segment)) % _MODULUS == 0:
        return Verdict.SOUND
    unfilled = {0, addresses % _MODULUS, (addresses + len(segment)) % _MODULUS}  # the second: a card that cuts segments
    return Verdict.UNCHECKED if tcp.sum % _MODULUS in unfilled else Verdict.WRONG


def _words(content: bytes) -> int:
    """The sum of 16-bit words modulo 2¹⁶ − 1, of which 2¹⁶ is 1."""
    return int.from_bytes(content + bytes(len(content) % 2), "big") % _MODULUS


@dataclass(frozen=True, eq=False)
class Sifted:
    """Segments that may be used, and how many were wrong or could not be checked."""

    segments: list[Segment]
    wrong: int
    unchecked: int


def sift(segments: Iterable[Segment]) -> Sifted:
    """Leave out what is wrong, except in directions where no segment is right."""
    found = list(segments)
    count = Counter((segment.direction, segment.verdict) for segment in found)

    def is_wrong(segment: Segment) -> bool:
        sound, wrong = (count[segment.direction, verdict] for verdict in (Verdict.SOUND, Verdict.WRONG))
        return segment.verdict is Verdict.WRONG and (sound > 0 or wrong < _TELLING)

    kept = [segment for segment in found if not is_wrong(segment)]
    unchecked = sum(segment.verdict is not Verdict.SOUND for segment in kept)
    return Sifted(kept, len(found) - len(kept), unchecked)
