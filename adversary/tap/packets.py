"""From captured packets to conversations: link layer, IP and TCP by dpkt, reassembly by ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpkt

from dpp2.adversary.tap import pcap
from dpp2.adversary.tap.checksums import Segment, Sifted, sift, verdict
from dpp2.adversary.tap.reassembly import Assembler
from dpp2.adversary.tap.sniffer import drops_file
from dpp2.adversary.tap.streams import Captured, Conversation
from dpp2.errors import BadInput
from dpp2.store.files import read_json

_TURN = 1 << 32  # TCP counts bytes modulo this
_RAW_IP = (12, 14, 101, 228, 229)
_LINK_LAYERS = {pcap.ETHERNET: dpkt.ethernet.Ethernet, pcap.SLL: dpkt.sll.SLL, pcap.SLL2: dpkt.sll2.SLL2}


class _Connection:
    """Two directions between two ends. Which end dialled is known once an opening packet was seen."""

    def __init__(self, first: str, second: str) -> None:
        self.sent = {first: Assembler(), second: Assembler()}
        self.dialler: str | None = None

    def take(self, source: str, destination: str, when: float, tcp: Any) -> None:
        stream, sequence = self.sent[source], _first_byte(tcp)
        if _opens(tcp):
            stream.begin(sequence)
            self.dialler = destination if tcp.flags & dpkt.tcp.TH_ACK else source
        stream.add(sequence, when, bytes(tcp.data))
        if tcp.flags & dpkt.tcp.TH_FIN:
            stream.end((sequence + len(tcp.data)) % _TURN)

    def conversation(self, captured: Captured) -> Conversation:
        first, second = self.sent
        if self.dialler == second:
            first, second = second, first
        runs = []
        for source, destination in ((first, second), (second, first)):
            found, wrong = self.sent[source].assemble()
            runs.append(found)
            captured.gaps += [f"{source} → {destination}: {sentence}" for sentence in wrong]
        return Conversation((first, second), "", (runs[0], runs[1]))


class _Connections:
    """Packets sorted into connections; the same two ports may serve several, one after the other."""

    def __init__(self) -> None:
        self.all: list[_Connection] = []
        self._latest: dict[frozenset[str], _Connection] = {}

    def take(self, source: str, destination: str, when: float, tcp: Any) -> None:
        pair = frozenset((source, destination))
        connection = self._latest.get(pair)
        if connection is None or (_opens(tcp) and not connection.sent[source].may_begin_at(_first_byte(tcp))):
            connection = self._latest[pair] = _Connection(source, destination)
            self.all.append(connection)
        connection.take(source, destination, when, tcp)


def _opens(tcp: Any) -> bool:
    return bool(tcp.flags & dpkt.tcp.TH_SYN)


def _first_byte(tcp: Any) -> int:
    """The number of a packet's first byte; what opens a stream takes a number itself."""
    return int((tcp.seq + _opens(tcp)) % _TURN)


def read_packets(path: Path, content: bytes, captured: Captured) -> None:
    capture, connections = pcap.Capture(content), _Connections()
    found = _Found()
    sifted = sift(found.segments_of(capture))
    for segment in sifted.segments:
        ip = segment.ip
        source, destination = _end(ip.src, ip.data.sport), _end(ip.dst, ip.data.dport)
        if source != destination:
            connections.take(source, destination, segment.time, ip.data)
    captured.conversations += [connection.conversation(captured) for connection in connections.all]
    captured.lose(_known_losses(path, capture, found, sifted))
    if found.other:
        captured.notes.append(f"{path.name}: {found.other} packets were not TCP and were left out")
    if unchecked := sifted.unchecked - found.cut_segments:
        share = f"{unchecked} of {len(sifted.segments)} segments"
        captured.notes.append(f"{path.name}: {share} carry no checksum of their own, so damage in them goes unseen")


@dataclass
class _Found:
    """What a capture held, counted while it is read."""

    other: int = 0  # packets that are no TCP
    cut: int = 0  # packets of which the recording kept a part only
    cut_segments: int = 0  # those of them that could be read as TCP
    snap: int = 0  # the longest of the parts

    def segments_of(self, capture: pcap.Capture) -> Iterator[Segment]:
        for packet in capture.packets():
            cut, ip = packet.length > len(packet.data), internet_packet(packet)
            readable = ip is not None and isinstance(ip.data, dpkt.tcp.TCP)
            if cut:
                self.cut, self.snap = self.cut + 1, max(self.snap, len(packet.data))
                self.cut_segments += readable
            if readable:
                yield Segment(packet.time, ip, verdict(ip, cut=cut))
            elif not cut:
                self.other += 1


def _known_losses(path: Path, capture: pcap.Capture, found: _Found, sifted: Sifted) -> Iterator[str]:
    dropped = capture.lost
    if (beside := drops_file(path)).is_file():
        try:
            dropped += int(read_json(beside)["dropped"])
        except (ValueError, KeyError, TypeError):
            yield f"{beside.name}: not readable, so nobody knows how many packets the kernel dropped"
    if dropped:
        yield f"{path.name}: the recording system dropped {dropped} packets"
    if found.cut:
        yield f"{path.name}: {found.cut} packets were cut to the recording's snap length, {found.snap} bytes"
    if sifted.wrong:
        yield f"{path.name}: {sifted.wrong} segments were damaged (wrong checksums) and left out"
    if capture.torn:
        yield f"{path.name}: {capture.torn}"


def internet_packet(packet: pcap.Packet) -> Any:
    """The IP packet inside a captured one, or None where there is none that can be read."""
    try:
        if packet.link_type in _RAW_IP:
            version = packet.data[0] >> 4
            return dpkt.ip.IP(packet.data) if version == 4 else dpkt.ip6.IP6(packet.data)
        if packet.link_type not in _LINK_LAYERS:
            known = "Ethernet, Linux cooked (SLL, SLL2) or raw IP"
            raise BadInput("CAPTURE", packet.link_type, f"link type {known}, not number {packet.link_type}")
        inside = _LINK_LAYERS[packet.link_type](packet.data).data
    except BadInput:
        raise
    except Exception:  # dpkt raises a dozen kinds on bytes that are not a packet
        return None
    return inside if isinstance(inside, dpkt.ip.IP | dpkt.ip6.IP6) else None


def _end(address: bytes, port: int) -> str:
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"
