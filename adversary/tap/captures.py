"""From files to conversations: which bytes went from where to where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dpp2.adversary.tap import record
from dpp2.adversary.tap.packets import read_packets
from dpp2.adversary.tap.reassembly import UnbrokenBytes
from dpp2.adversary.tap.streams import Captured, Conversation
from dpp2.errors import BadInput


def read(paths: Iterable[Path]) -> Captured:
    """Files recorded by a relay, by our sniffer or by other tools; of a folder, those that it holds."""
    captured = Captured()
    for path in _files(paths):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadInput("CAPTURE", str(path), f"a readable file ({error.strerror})") from None
        try:
            (_read_record if record.is_record(content) else read_packets)(path, content, captured)
        except BadInput as refusal:
            raise BadInput(refusal.field, str(path), refusal.accepted) from None
    return captured


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix in (".tap", ".pcap", ".pcapng"))
        if not inside:
            raise BadInput("CAPTURE", str(path), "a folder with .tap, .pcap or .pcapng files")
        yield from inside


class _Relayed:
    """One connection as a relay saw it: nothing is missing, except at the end."""

    def __init__(self, opening: record.Opening) -> None:
        self.opening = opening
        self.bytes = {record.Kind.FORWARD: bytearray(), record.Kind.BACK: bytearray()}
        self.times: dict[record.Kind, list[tuple[int, float]]] = {record.Kind.FORWARD: [], record.Kind.BACK: []}

    def add(self, segment: record.Segment) -> None:
        if segment.kind in self.bytes:
            self.times[segment.kind].append((len(self.bytes[segment.kind]), segment.time))
            self.bytes[segment.kind] += segment.data

    def conversation(self) -> Conversation:
        forward, back = (
            (UnbrokenBytes(bytes(self.bytes[kind]), 0, tuple(self.times[kind])),) if self.bytes[kind] else ()
            for kind in (record.Kind.FORWARD, record.Kind.BACK)
        )
        return Conversation((self.opening.dialler, self.opening.target), self.opening.link, (forward, back))


def _read_record(path: Path, content: bytes, captured: Captured) -> None:
    relayed: dict[int, _Relayed] = {}
    for segment in record.segments(content):
        if segment.kind is record.Kind.OPEN:
            opening = record.Opening.read(segment.data)
            if opening is None:
                captured.notes.append(f"{path.name}: a connection without a name was left out")
            else:
                relayed[segment.connection] = _Relayed(opening)
        elif segment.connection in relayed:
            relayed[segment.connection].add(segment)
    captured.conversations += [connection.conversation() for connection in relayed.values()]
    if rest := len(content) - record.sound(content):
        captured.gaps.append(f"{path.name}: the last {rest} bytes are not a whole segment and were left out")
