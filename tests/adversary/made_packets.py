"""Packets and capture files as other programs make them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dpkt

from dpp2.adversary.tap import pcap

TURN = 1 << 32


def tcp(source: int, destination: int, sequence: int, data: bytes = b"", flags: int = dpkt.tcp.TH_ACK) -> Any:
    segment = dpkt.tcp.TCP(sport=source, dport=destination, seq=sequence % TURN, flags=flags, data=data)
    return dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\1", p=6, data=segment)


def talk(forward: bytes, back: bytes, size: int = 100, ports: tuple[int, int] = (50_000, 7_000)) -> list[Any]:
    """A whole conversation as IP packets."""
    a, b = ports
    found = [tcp(a, b, 999, flags=dpkt.tcp.TH_SYN), tcp(b, a, TURN - 50, flags=dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK)]
    found += [tcp(a, b, 1000 + at, forward[at : at + size]) for at in range(0, len(forward), size)]
    found += [tcp(b, a, TURN - 49 + at, back[at : at + size]) for at in range(0, len(back), size)]
    fin = dpkt.tcp.TH_FIN | dpkt.tcp.TH_ACK
    return [*found, tcp(a, b, 1000 + len(forward), flags=fin), tcp(b, a, TURN - 49 + len(back), flags=fin)]


def ethernet(ip: Any) -> bytes:
    return bytes(dpkt.ethernet.Ethernet(type=0x0800, data=ip))


def sll(ip: Any) -> bytes:
    return bytes(dpkt.sll.SLL(ethtype=0x0800, data=ip))


def sll2(ip: Any) -> bytes:
    return bytes(dpkt.sll2.SLL2(ethtype=0x0800, hdr=bytes(8), data=ip))


LINK_LAYERS: dict[int, Callable[[Any], bytes]] = {pcap.ETHERNET: ethernet, pcap.SLL: sll, pcap.SLL2: sll2, 101: bytes}


def written(path: Path, packets: Iterable[Any], link_type: int = pcap.ETHERNET, nano: bool = False) -> Path:
    """A pcap file as another program writes it."""
    file = io.BytesIO()
    writer = dpkt.pcap.Writer(file, snaplen=262144, linktype=link_type, nano=nano)
    for when, packet in enumerate(packets):
        writer.writepkt_time(LINK_LAYERS[link_type](packet), 1_700_000_000.5 + when)
    path.write_bytes(file.getvalue())
    return path


def raw(path: Path, packets: Iterable[bytes], snap: int = pcap.SNAP) -> Path:
    """A pcap file of these very bytes, each packet cut to the snap length."""
    content = [pcap.file_header()]
    for when, packet in enumerate(packets):
        content += [pcap.packet_header(when, len(packet[:snap]), len(packet)), packet[:snap]]
    path.write_bytes(b"".join(content))
    return path
