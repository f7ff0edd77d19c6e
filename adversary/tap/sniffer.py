"""A passive sniffer: Linux packet sockets (AF_PACKET), written down as a pcap file that any other tool reads.

It keeps TCP packets from or to the given ports. On the loopback interface every packet passes twice, out and in: the
outgoing copy is dropped. Packets that the kernel had to drop because we were too slow are counted beside the file.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from dpp2.adversary.tap import pcap
from dpp2.adversary.tap.record import new_part
from dpp2.errors import BadInput
from dpp2.store.files import write_text

_ALL_PROTOCOLS = 0x0003
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_STATISTICS = 263, 1, 6
_PROMISCUOUS = 1
_SO_ATTACH_FILTER, _SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 26, 35, 33
_REFUSE = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of one instruction: keep 0 bytes of any packet
_RECEIVE_BUFFER = 256 << 20
_LOOK_SECONDS = 0.1  # how long to wait for a packet before looking at everything else
_FLUSH_SECONDS, _FLUSH_BYTES = 0.2, 1 << 16
_LIKE_ETHERNET = (1, 772)  # ARPHRD_ETHER, ARPHRD_LOOPBACK
_IPV4, _IPV6, _TCP = 0x0800, 0x86DD, 6


class Sniffer:
    """Packets of one interface. Opening it needs the right to (CAP_NET_RAW); whoever lacks it is told so at once."""

    def __init__(self, interface: str, ports: Collection[int], folder: Path) -> None:
        self._socket = packet_socket(interface)
        self._loopback = interface == "lo"
        self._ports = frozenset(ports)
        self.path, file = new_part(folder, "sniff", "pcap")
        self._file = os.fdopen(file, "wb", buffering=2 * pcap.SNAP)
        self._file.write(pcap.file_header())
        self._flush()
        self.packets = self.dropped = 0

    def capture(self, stop: Callable[[], bool]) -> None:
        """Until `stop` says so; it is asked several times a second. What has come by then is still written down."""
        buffer = bytearray(pcap.SNAP)
        flushed, pending = time.monotonic(), 0
        while True:
            pending += self._take(buffer) or 0
            now = time.monotonic()
            if pending >= _FLUSH_BYTES or now - flushed > _FLUSH_SECONDS:
                self._flush()
                self._count_drops()
                flushed, pending = now, 0
                if stop():
                    break
        _refuse_more(self._socket)
        while self._take(buffer) is not None:
            pass

    def _take(self, buffer: bytearray) -> int | None:
        """One packet: how many bytes of it were kept. None if there was no packet."""
        try:
            size, ancillary, _, address = self._socket.recvmsg_into([buffer], 64)
        except (TimeoutError, BlockingIOError):
            return None
        if (self._loopback and address[2] == socket.PACKET_OUTGOING) or not wanted(buffer, self._ports):
            return 0
        self._file.write(pcap.packet_header(_nanoseconds(ancillary), size, size))
        self._file.write(memoryview(buffer)[:size])
        self.packets += 1
        return size

    def _flush(self) -> None:
        self._file.flush()

    def _count_drops(self) -> None:
        """The kernel's counter starts anew whenever it is read, so the sum is kept, and kept beside the packets."""
        _, dropped = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        if dropped:
            self.dropped += dropped
            write_text(drops_file(self.path), json.dumps({"dropped": self.dropped}))

    def close(self) -> None:
        self._flush()
        self._count_drops()
        self._file.close()
        self._socket.close()


def drops_file(capture: Path) -> Path:
    """Where the sniffer says how many packets the kernel dropped; absent if none."""
    return capture.with_suffix(".json")


def packet_socket(interface: str) -> socket.socket:
    if not hasattr(socket, "AF_PACKET"):
        raise BadInput("--interface", interface, "Linux: other systems have no packet sockets, but tcpdump")
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # deaf until it is bound
    except PermissionError:
        right = "the right to read its packets: root, or CAP_NET_RAW for this Python"
        raise BadInput("--interface", interface, right) from None
    try:
        _set_buffer(opened)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.settimeout(_LOOK_SECONDS)
        opened.bind((interface, _ALL_PROTOCOLS))
        _hear_others(opened, interface)
    except OSError as error:
        opened.close()
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise BadInput("--interface", interface, f"one of {known} ({error.strerror})") from None
    if opened.getsockname()[3] not in _LIKE_ETHERNET:
        opened.close()
        raise BadInput("--interface", interface, "an interface with Ethernet headers; tcpdump records others")
    return opened


def _hear_others(opened: socket.socket, interface: str) -> None:
    """Packets between others, too: a bridge hands up what it forwards only to whoever asks for it."""
    wish = struct.pack("iHH8s", socket.if_nametoindex(interface), _PROMISCUOUS, 0, b"")
    opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, wish)


def _set_buffer(opened: socket.socket) -> None:
    """As large as we may: beyond the system's limit only with the right to."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


def _refuse_more(opened: socket.socket) -> None:
    """What is in the kernel's buffer stays there to be read; a busy interface would fill it for ever."""
    filter_ = ctypes.create_string_buffer(_REFUSE)
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(filter_))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    opened.settimeout(0)


def _nanoseconds(ancillary: list[Any]) -> int:
    """When the kernel saw the packet."""
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", content[:16])
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()


def wanted(packet: bytes | bytearray, ports: Collection[int]) -> bool:
    """Whether an Ethernet packet is TCP from or to one of the ports (IPv6: without extension headers)."""
    kind = packet[12] << 8 | packet[13]
    if kind == _IPV4 and packet[23] == _TCP:
        at = 14 + 4 * (packet[14] & 15)
    elif kind == _IPV6 and packet[20] == _TCP:
        at = 54
    else:
        return False
    return (packet[at] << 8 | packet[at + 1]) in ports or (packet[at + 2] << 8 | packet[at + 3]) in ports
