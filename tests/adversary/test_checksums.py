"""A capture with bit errors loses segments and says so; it never yields other bytes than were sent."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpp2.adversary.tap import pcap
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.checksums import Verdict, verdict
from dpp2.adversary.tap.streams import Captured
from tests.adversary.made_packets import ethernet, raw, talk, tcp

LINK = 14  # bytes of an Ethernet header
HELLO, ANSWER = b"what was sent" * 40, b"and answered" * 30
HOSTS = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])


def written(path: Path, packets: list[bytes], snap: int = pcap.SNAP) -> Captured:
    return read([raw(path, packets, snap)])


def said(captured: Captured) -> list[bytes]:
    """The bytes of both directions of the one conversation."""
    (conversation,) = captured.conversations
    return [b"".join(run.data for run in runs) for runs in conversation.sent]


def flipped(packet: bytes, bit: int) -> bytes:
    changed = bytearray(packet)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def between(hosts: tuple[bytes, bytes], packets: list[Any]) -> list[Any]:
    """Those packets, between two machines instead of on one."""
    for ip in packets:
        dialled = ip.data.dport == 7_000
        ip.src, ip.dst = hosts if dialled else hosts[::-1]
    return packets


def offloaded(ip: Any, *, with_length: bool = True) -> Any:
    """As a system leaves it to its network card: the checksum's field holds the sum of the pseudo-header."""
    length = len(ip.data) if with_length else 0
    words = struct.unpack(">6H", struct.pack(">4s4sxBH", ip.src, ip.dst, 6, length))
    total = sum(words)
    ip.data.sum = (total & 0xFFFF) + (total >> 16)
    return ip


@pytest.mark.parametrize("bit", range(LINK * 8, (LINK + 20 + 20 + 50) * 8, 7))
def test_a_segment_with_one_wrong_bit_is_left_out(bit: int, tmp_path: Path) -> None:
    packets = [ethernet(ip) for ip in talk(HELLO, ANSWER, size=50)]
    damaged = [packet if number != 5 else flipped(packet, bit) for number, packet in enumerate(packets)]
    captured = written(tmp_path / "a.pcap", damaged)
    assert said(captured) == [HELLO[:150] + HELLO[200:], ANSWER]
    assert "127.0.0.1:50000 → 127.0.0.1:7000: 50 bytes were not captured" in captured.gaps
    left_out = "a.pcap: 1 segments were damaged (wrong checksums) and left out" in captured.gaps
    assert left_out or captured.notes == ["a.pcap: 1 packets were not TCP and were left out"]


def test_what_was_sent_again_takes_the_place_of_what_was_damaged(tmp_path: Path) -> None:
    packets = [ethernet(ip) for ip in talk(HELLO, ANSWER, size=50)]
    captured = written(tmp_path / "a.pcap", [flipped(packets[5], 500), *packets])
    assert said(captured) == [HELLO, ANSWER]
    assert captured.gaps == ["a.pcap: 1 segments were damaged (wrong checksums) and left out"]


@pytest.mark.parametrize("with_length", [True, False])
def test_checksums_left_to_the_network_card_are_no_damage(with_length: bool, tmp_path: Path) -> None:
    packets = [ethernet(offloaded(ip, with_length=with_length)) for ip in talk(HELLO, ANSWER)]
    captured = written(tmp_path / "a.pcap", packets)
    assert said(captured) == [HELLO, ANSWER]
    assert captured.gaps == []
    (note,) = captured.notes
    share = f"{len(packets)} of {len(packets)} segments"
    assert note == f"a.pcap: {share} carry no checksum of their own, so damage in them goes unseen"


def test_one_direction_has_checksums_and_the_other_has_not(tmp_path: Path) -> None:
    """As on the machine of one of the two: what it sends is filled in later, by its card."""
    packets = between(HOSTS, talk(HELLO, ANSWER, size=50))
    sent = [ethernet(offloaded(ip) if ip.src == HOSTS[0] else ip) for ip in packets]
    last_answer = max(number for number, ip in enumerate(packets) if ip.src == HOSTS[1] and ip.data.data)
    sent[last_answer] = flipped(sent[last_answer], 60 * 8)
    captured = written(tmp_path / "a.pcap", sent)
    assert said(captured) == [HELLO, ANSWER[:-10]]
    assert "a.pcap: 1 segments were damaged (wrong checksums) and left out" in captured.gaps
    assert "carry no checksum of their own" in captured.notes[0]


def test_a_field_that_nobody_fills_in_is_no_damage(tmp_path: Path) -> None:
    packets = between(HOSTS, talk(HELLO, ANSWER, size=50))
    for ip in packets:
        if ip.src == HOSTS[0]:
            ip.data.sum = 0xBEEF
    captured = written(tmp_path / "a.pcap", [ethernet(ip) for ip in packets])
    assert said(captured) == [HELLO, ANSWER]
    assert captured.gaps == []
    assert "carry no checksum of their own" in captured.notes[0]


def test_a_capture_that_was_cut_says_so_with_its_snap_length(tmp_path: Path) -> None:
    captured = written(tmp_path / "a.pcap", [ethernet(ip) for ip in talk(HELLO, ANSWER, size=200)], snap=96)
    assert captured.losses == ["a.pcap: 5 packets were cut to the recording's snap length, 96 bytes"]
    assert captured.notes == []
    assert said(captured)[0] == b"".join(HELLO[at : at + 42] for at in range(0, len(HELLO), 200))


def test_a_capture_cut_within_its_headers_is_not_said_to_hold_no_tcp(tmp_path: Path) -> None:
    captured = written(tmp_path / "a.pcap", [ethernet(ip) for ip in talk(HELLO, ANSWER)], snap=40)
    assert captured.conversations == []
    assert captured.notes == []
    assert captured.losses == ["a.pcap: 14 packets were cut to the recording's snap length, 40 bytes"]


@given(st.binary(max_size=99), st.integers(0, 2**32 - 1), st.booleans(), st.data())
def test_verdicts_agree_with_the_checksums_that_others_compute(
    data: bytes, sequence: int, version_6: bool, choice: st.DataObject
) -> None:
    ip = tcp(50_000, 7_000, sequence, data)
    if version_6:
        segment = ip.data
        pseudo = struct.pack(">16s16sII", b"a" * 16, b"b" * 16, len(segment), 6)
        segment.sum = dpkt.dpkt.in_cksum(pseudo + bytes(segment))
        whole = bytes(dpkt.ip6.IP6(src=b"a" * 16, dst=b"b" * 16, nxt=6, plen=len(segment), data=segment))
        read_back = dpkt.ip6.IP6
    else:
        whole, read_back = bytes(ip), dpkt.ip.IP
    assert verdict(read_back(whole), cut=False) is Verdict.SOUND
    first = 20 if not version_6 else 40
    wrong = flipped(whole, choice.draw(st.integers(8 * first, 8 * len(whole) - 1)))
    seen = read_back(wrong)
    if isinstance(seen.data, dpkt.tcp.TCP):
        assert verdict(seen, cut=False) is not Verdict.SOUND
