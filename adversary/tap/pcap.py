"""Packet captures as files: writing classic pcap, reading pcap and pcapng.

By hand, because the reader must know every interface of a pcapng file with its own link type and clock, the packets
that the recording system says it lost, and where a file that was cut off stops being sound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from dpp2.errors import BadInput

SNAP = 262_144  # more than any packet, offloaded or not
ETHERNET, SLL, SLL2 = 1, 113, 276

_MICROSECONDS, _NANOSECONDS, _PCAPNG = 0xA1B2C3D4, 0xA1B23C4D, 0x0A0D0D0A
_BYTE_ORDER = 0x1A2B3C4D
_INTERFACE, _SIMPLE, _STATISTICS, _ENHANCED = 1, 3, 5, 6
_RESOLUTION, _OFFSET, _LOST_BY_INTERFACE, _LOST_BY_SYSTEM = 9, 14, 5, 7  # options of blocks


@dataclass(frozen=True)
class Packet:
    time: float
    link_type: int
    data: bytes
    length: int  # on the wire; more than len(data) if the recording cut it


@dataclass
class Capture:
    """A file as it is read: the packets come from `packets`, and what is known to be missing gathers beside them."""

    content: bytes
    lost: int = 0  # packets that the recording system says it lost
    torn: str = ""  # why the file could not be read to its end

    def packets(self) -> Iterator[Packet]:
        head = self.content[:4]
        for order in "<", ">":
            magic = struct.unpack(f"{order}I", head)[0] if len(head) == 4 else 0
            if magic in (_MICROSECONDS, _NANOSECONDS):
                return self._classic(order, 1e-6 if magic == _MICROSECONDS else 1e-9)
        if magic == _PCAPNG:
            return self._sections()
        raise BadInput("CAPTURE", head.hex(" "), "a file that begins like a relay's record, a pcap or a pcapng")

    def _classic(self, order: str, tick: float) -> Iterator[Packet]:
        header, at = struct.Struct(f"{order}IIII"), 24
        if len(self.content) < at:
            self.torn = "the file ends within its header"
            return
        link_type = struct.unpack_from(f"{order}I", self.content, 20)[0] & 0x0FFFFFFF  # above: length of checksums
        while at + header.size <= len(self.content):
            seconds, ticks, kept, length = header.unpack_from(self.content, at)
            end = at + header.size + kept
            if end > len(self.content):
                break
            yield Packet(seconds + ticks * tick, link_type, self.content[at + header.size : end], length)
            at = end
        if at < len(self.content):
            self.torn = f"it ends within a packet, {len(self.content) - at} bytes before its end"

    def _sections(self) -> Iterator[Packet]:
        """The blocks of a pcapng file; a new section brings its own byte order and interfaces."""
        order, at, interfaces, lost = "<", 0, list[_Interface](), dict[int, int]()
        while at + 12 <= len(self.content):
            if self.content.startswith(b"\x0a\x0d\x0d\x0a", at):
                order = "<" if struct.unpack_from("<I", self.content, at + 8)[0] == _BYTE_ORDER else ">"
                interfaces = []
            kind, size = struct.unpack_from(f"{order}II", self.content, at)
            if size < 12 or size % 4 or at + size > len(self.content):
                break
            body = self.content[at + 8 : at + size - 4]
            try:
                if kind == _INTERFACE:
                    interfaces.append(_Interface.of(order, body))
                elif kind in (_ENHANCED, _SIMPLE):
                    yield _packet(order, kind, body, interfaces)
                elif kind == _STATISTICS:
                    self._count_lost(order, body, lost)
            except (struct.error, IndexError):
                break
            at += size
        if at < len(self.content):
            self.torn = f"it cannot be read further than {len(self.content) - at} bytes before its end"

    def _count_lost(self, order: str, body: bytes, lost: dict[int, int]) -> None:
        """Statistics are totals so far, of one interface."""
        options = _options(order, body[12:])
        numbers = [options[code] for code in (_LOST_BY_INTERFACE, _LOST_BY_SYSTEM) if len(options.get(code, b"")) == 8]
        (interface,) = struct.unpack_from(f"{order}I", body)
        lost[interface] = sum(struct.unpack(f"{order}Q", number)[0] for number in numbers)
        self.lost = sum(lost.values())


@dataclass(frozen=True)
class _Interface:
    link_type: int
    snap: int
    tick: float = 1e-6
    offset: int = field(default=0)

    @classmethod
    def of(cls, order: str, body: bytes) -> _Interface:
        link_type, _, snap = struct.unpack_from(f"{order}HHI", body)
        options = _options(order, body[8:])
        resolution = options.get(_RESOLUTION, b"\x06")[0]
        tick = 2.0 ** -(resolution & 127) if resolution & 128 else 10.0**-resolution
        offset = options.get(_OFFSET, b"")
        return cls(link_type, snap or SNAP, tick, struct.unpack(f"{order}q", offset)[0] if len(offset) == 8 else 0)


def _packet(order: str, kind: int, body: bytes, interfaces: list[_Interface]) -> Packet:
    if kind == _SIMPLE:  # always of the first interface, without a time
        (length,) = struct.unpack_from(f"{order}I", body)
        interface = interfaces[0]
        return Packet(0.0, interface.link_type, body[4 : 4 + min(length, interface.snap)], length)
    number, high, low, kept, length = struct.unpack_from(f"{order}IIIII", body)
    interface = interfaces[number]
    when = interface.offset + ((high << 32) | low) * interface.tick
    return Packet(when, interface.link_type, body[20 : 20 + kept], length)


def _options(order: str, content: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(content):
        code, length = struct.unpack_from(f"{order}HH", content, at)
        if code == 0:
            break
        found[code] = content[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return found


def file_header(link_type: int = ETHERNET) -> bytes:
    return struct.pack("<IHHiIII", _NANOSECONDS, 2, 4, 0, 0, SNAP, link_type)


def packet_header(nanoseconds: int, kept: int, length: int) -> bytes:
    return struct.pack("<IIII", *divmod(nanoseconds, 10**9), kept, length)
