"""Bytes come back in order from any mess of packets; frames and messages are found from any place on."""

from __future__ import annotations

import io
import random
import struct
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import dpkt
import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpp2.adversary.tap import pcap
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.http2 import PREFACE, frames, messages
from dpp2.adversary.tap.reassembly import Assembler
from dpp2.errors import BadInput
from tests.adversary.made_packets import LINK_LAYERS, TURN, ethernet, sll2, talk, tcp, written

# -- reassembly ----------------------------------------------------------------------------------------------------


@st.composite
def messy(draw: st.DrawFn) -> tuple[bytes, int, list[tuple[int, bytes]]]:
    """(bytes, first sequence number, segments): everything is covered, in any order, with doubles and overlaps."""
    data = draw(st.binary(min_size=1, max_size=200))
    first = draw(st.integers(0, TURN - 1) | st.integers(TURN - 100, TURN - 1))
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=10))})
    spans = list(pairwise(cuts))
    ends = st.integers(0, len(data))
    spans += [(min(pair), max(pair)) for pair in draw(st.lists(st.tuples(ends, ends), max_size=6))]
    segments = [((first + low) % TURN, data[low:high]) for low, high in spans]
    return data, first, draw(st.permutations(segments))


@given(messy())
def test_any_order_doubles_and_overlaps_give_the_same_bytes(case: tuple[bytes, int, list[tuple[int, bytes]]]) -> None:
    data, first, segments = case
    for known in (True, False):
        assembler = Assembler()
        if known:
            assembler.begin(first)
        for when, (sequence, piece) in enumerate(segments):
            assembler.add(sequence, when, piece)
        runs, wrong = assembler.assemble()
        assert [run.data for run in runs] == [data]
        assert runs[0].missing == (0 if known else None)
        assert wrong == ()


@given(messy(), st.data())
def test_what_never_came_is_a_gap_of_its_size(
    case: tuple[bytes, int, list[tuple[int, bytes]]], choice: st.DataObject
) -> None:
    data, first, segments = case
    lost = choice.draw(st.integers(0, len(data) - 1))
    kept = [(s, piece) for s, piece in segments if not (s - first) % TURN <= lost < (s - first) % TURN + len(piece)]
    assembler = Assembler()
    assembler.begin(first)
    for sequence, piece in kept:
        assembler.add(sequence, 0.0, piece)
    assembler.end((first + len(data)) % TURN)
    runs, wrong = assembler.assemble()
    seen: dict[int, int] = {}
    at = 0
    for run in runs:
        at += run.missing or 0
        seen |= {at + offset: byte for offset, byte in enumerate(run.data)}
        at += len(run.data)
    assert lost not in seen
    assert all(data[offset] == byte for offset, byte in seen.items())
    assert sum(int(sentence.split()[0]) for sentence in wrong) == len(data) - len(seen)


def test_a_retransmission_with_other_bytes_is_said() -> None:
    assembler = Assembler()
    assembler.begin(10)
    assembler.add(10, 0.0, b"abcdef")
    assembler.add(12, 1.0, b"XX")
    runs, wrong = assembler.assemble()
    assert runs[0].data == b"abcdef"
    assert "1 retransmissions differed" in wrong[0]


def test_times_are_those_of_the_packets() -> None:
    assembler = Assembler()
    assembler.begin(0)
    assembler.add(3, 7.0, b"def")
    assembler.add(0, 5.0, b"abc")
    ((run,), _) = assembler.assemble()
    assert [run.time_of(offset) for offset in range(6)] == [5.0, 5.0, 5.0, 7.0, 7.0, 7.0]


# -- packets -------------------------------------------------------------------------------------------------------


def as_pcapng(packets: Iterable[tuple[int, bytes]], order: str = "<", lost: int = 0) -> bytes:
    """A pcapng file with an Ethernet interface, number 0, and a cooked one, number 1, with another clock."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(f"{order}I", len(body) + 12)
        return struct.pack(f"{order}I", kind) + size + body + size

    content = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    content += block(1, struct.pack(f"{order}HHI", 1, 0, 0))
    content += block(1, struct.pack(f"{order}HHI", 276, 0, 0) + struct.pack(f"{order}HHBxxxHH", 9, 1, 9, 0, 0))
    for number, data in packets:
        clock = 1_700_000_000 * (10**9 if number else 10**6)
        content += block(
            6, struct.pack(f"{order}IIIII", number, clock >> 32, clock % TURN, len(data), len(data)) + data
        )
    statistics = struct.pack(f"{order}III", 0, 0, 0) + struct.pack(f"{order}HHQHH", 5, 8, lost, 0, 0)
    return content + block(5, statistics) + block(0x40000BAD, b"somebody's own")


def bytes_of(path: Path) -> list[bytes]:
    return [b"".join(run.data for run in runs) for c in read([path]).conversations for runs in c.sent]


FORWARD, BACK = bytes(range(256)) * 4, b"answer" * 100


@pytest.mark.parametrize("link_type", LINK_LAYERS)
@pytest.mark.parametrize("nano", [False, True])
def test_a_capture_by_others_is_read(link_type: int, nano: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "a.pcap", talk(FORWARD, BACK), link_type, nano)
    captured = read([path])
    assert bytes_of(path) == [FORWARD, BACK]
    assert captured.conversations[0].ends == ("127.0.0.1:50000", "127.0.0.1:7000")
    assert captured.gaps == []
    assert captured.conversations[0].sent[0][0].times[0][1] == pytest.approx(1_700_000_002.5)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_with_two_interfaces_is_read(order: str, tmp_path: Path) -> None:
    packets = talk(FORWARD, BACK)
    mixed = [(n % 2, sll2(packet) if n % 2 else ethernet(packet)) for n, packet in enumerate(packets)]
    (tmp_path / "a.pcapng").write_bytes(as_pcapng(mixed, order, lost=3))
    captured = read([tmp_path / "a.pcapng"])
    assert bytes_of(tmp_path / "a.pcapng") == [FORWARD, BACK]
    assert captured.gaps == ["a.pcapng: the recording system dropped 3 packets"]
    assert {when for _, when in captured.conversations[0].sent[0][0].times} == {1_700_000_000.0}


def test_shuffled_and_doubled_packets_give_the_same_bytes(tmp_path: Path) -> None:
    packets = 2 * talk(FORWARD, BACK, size=7)
    random.Random(1).shuffle(packets)
    found = {
        bytes(run.data)
        for c in read([written(tmp_path / "a.pcap", packets)]).conversations
        for r in c.sent
        for run in r
    }
    assert found == {FORWARD, BACK}


def test_two_connections_between_the_same_ports_are_two_conversations(tmp_path: Path) -> None:
    again = [tcp(50_000, 7_000, 77_000_000, flags=dpkt.tcp.TH_SYN), tcp(50_000, 7_000, 77_000_001, b"new")]
    assert bytes_of(written(tmp_path / "a.pcap", [*talk(FORWARD, BACK), *again])) == [FORWARD, BACK, b"new", b""]


def test_a_lost_packet_is_a_gap_with_its_direction(tmp_path: Path) -> None:
    packets = talk(FORWARD, BACK)
    del packets[4]
    captured = read([written(tmp_path / "a.pcap", packets)])
    assert captured.gaps == ["127.0.0.1:50000 → 127.0.0.1:7000: 100 bytes were not captured"]
    assert [run.missing for run in captured.conversations[0].sent[0]] == [0, 100]


def test_packets_cut_by_a_snap_length_are_said(tmp_path: Path) -> None:
    data = ethernet(tcp(1, 2, 5, b"x" * 50))
    content = pcap.file_header() + pcap.packet_header(0, 60, len(data)) + data[:60]
    (tmp_path / "a.pcap").write_bytes(content)
    assert "1 packets were cut" in read([tmp_path / "a.pcap"]).gaps[0]


def test_our_own_file_is_what_another_reader_understands(tmp_path: Path) -> None:
    data = ethernet(tcp(1, 2, 5, b"x" * 50))
    content = pcap.file_header() + pcap.packet_header(1_700_000_000_123_456_789, len(data), len(data)) + data
    ((when, packet),) = dpkt.pcap.Reader(io.BytesIO(content))
    assert str(when) == "1700000000.123456789"
    assert packet == data


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello, this is no capture", b"\x89PNG\r\n\x1a\n" * 9])
def test_what_is_no_capture_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.pcap.*a relay's record, a pcap or a pcapng"):
        read([tmp_path / "a.pcap"])


def test_files_that_are_not_there_and_link_types_that_are_not_known_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="readable file"):
        read([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match="a folder with"):
        read([tmp_path])
    (tmp_path / "a.pcap").write_bytes(pcap.file_header(105) + pcap.packet_header(0, 3, 3) + b"abc")
    with pytest.raises(BadInput, match="not number 105"):
        read([tmp_path / "a.pcap"])


def mangled(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, with spans overwritten, removed or put in."""
    damaged = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(damaged)))
        match draw(st.sampled_from(["cut", "overwrite", "remove", "insert"])):
            case "cut":
                del damaged[at:]
            case "overwrite":
                junk = draw(st.binary(max_size=20))
                damaged[at : at + len(junk)] = junk
            case "remove":
                del damaged[at : at + draw(st.integers(0, 50))]
            case "insert":
                damaged[at:at] = draw(st.binary(max_size=50))
    return bytes(damaged)


WHOLE = [
    pcap.file_header()
    + b"".join(pcap.packet_header(0, len(p), len(p)) + p for p in map(ethernet, talk(b"ab" * 50, b"c"))),
    as_pcapng([(0, ethernet(packet)) for packet in talk(b"ab" * 50, b"c")]),
]


@given(choice=st.data(), content=st.sampled_from(WHOLE))
@settings(max_examples=150)
def test_damaged_captures_are_read_as_far_as_they_go_or_refused(
    choice: st.DataObject, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.pcap"
    path.write_bytes(choice.draw(st.composite(mangled)(content)))
    try:
        captured = read([path])
    except BadInput:
        return
    assert all(run.data for c in captured.conversations for runs in c.sent for run in runs)


# -- HTTP/2 and gRPC -----------------------------------------------------------------------------------------------


def prefixed(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


def is_ours(message: bytes) -> bool:
    return message.startswith(b"ours")


def wire(payload: bytes, sizes: list[int], padded: bool = False, extended: bool = False) -> bytes:
    """A client's side: preface, settings, then DATA of these sizes, with other frames in between."""
    content = (
        PREFACE + SettingsFrame(0).serialize() + HeadersFrame(1, data=b"\x88" * 10, flags=["END_HEADERS"]).serialize()
    )
    at = 0
    for n, size in enumerate([*sizes, len(payload)]):
        frame = DataFrame(1, data=payload[at : at + size])
        if padded and n % 2:
            frame.flags.add("PADDED")
            frame.pad_length = 9
        content += frame.serialize()
        content += PingFrame(0, opaque_data=b"12345678").serialize() if n % 3 == 0 else b""
        content += WindowUpdateFrame(0, window_increment=5).serialize() if n % 3 == 1 else b""
        content += b"\0\0\3\xc8\0\0\0\0\0own" if n % 3 == 2 and extended else b""  # of a type that is not in HTTP/2
        at += size
    return content


bodies = st.lists(st.binary(max_size=40).map(lambda tail: b"ours" + tail), min_size=1, max_size=8)
sizes = st.lists(st.integers(0, 60), max_size=8)


@given(bodies, sizes, st.booleans())
def test_messages_come_back_however_they_are_cut_into_frames(said: list[bytes], cuts: list[int], padded: bool) -> None:
    content = wire(b"".join(map(prefixed, said)), cuts, padded, extended=True)
    count: Counter[str] = Counter()
    assert list(messages(content, True, is_ours, count)) == said
    assert count["bytes_skipped"] == 0
    assert count["messages"] == len(said)


@given(bodies, sizes, st.booleans(), st.floats(0, 1))
@example(  # read from byte 53 on, 256 of these bytes look like one frame that ends exactly with them
    said=[b"ours"] * 3 + [b"ours" + bytes(zeros) for zeros in (2, 7, 9, 10, 10)],
    cuts=[0] * 6 + [9],
    padded=False,
    late=53 / 324,
)
def test_joining_late_gives_an_unbroken_end_of_the_messages(
    said: list[bytes], cuts: list[int], padded: bool, late: float
) -> None:
    content = wire(b"".join(map(prefixed, said)), cuts, padded)
    found = list(messages(content[round(late * len(content)) :], False, is_ours, Counter()))
    assert found == said[len(said) - len(found) :]


def test_joining_late_loses_no_more_than_a_message_or_two() -> None:
    said = [b"ours" + bytes([n]) * 100 for n in range(40)]
    content = wire(b"".join(map(prefixed, said)), [109] * 40)
    for late in range(len(PREFACE) + 60, 1500, 7):
        begun = sum(content.find(message) < late for message in said)
        found = list(messages(content[late:], False, is_ours, Counter()))
        assert len(said) - begun - len(found) <= 1, late


def test_messages_go_on_after_bytes_that_are_no_frames() -> None:
    said = [b"ours" + bytes([n]) * 30 for n in range(20)]
    content = bytearray(wire(b"".join(map(prefixed, said)), [39] * 20))
    at = content.find(said[5]) - 14
    content[at : at + 9] = b"\xff" * 9
    count: Counter[str] = Counter()
    found = list(messages(bytes(content), True, is_ours, count))
    assert set(said) - set(found) <= {said[5], said[6]}
    assert set(found) <= set(said)
    assert count["bytes_skipped"] > 0


def test_compressed_messages_are_counted_and_left_out() -> None:
    content = wire(b"\1" + struct.pack(">I", 3) + b"zip" + prefixed(b"ours"), [])
    count: Counter[str] = Counter()
    assert list(messages(content, True, is_ours, count)) == [b"ours"]
    assert count["compressed_messages"] == 1


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_never_a_crash(content: bytes, whole: bool) -> None:
    list(frames(content, whole, Counter()))
    list(messages(content, whole, is_ours, Counter()))


@given(st.data())
@settings(max_examples=200)
def test_damaged_streams_are_never_a_crash(choice: st.DataObject) -> None:
    content = wire(b"".join(map(prefixed, [b"ours" * 5] * 6)), [20, 30, 40])
    list(messages(choice.draw(st.composite(mangled)(content)), choice.draw(st.booleans()), is_ours, Counter()))
