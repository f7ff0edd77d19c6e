"""From bytes to gRPC messages: HTTP/2 frames by hyperframe, of which DATA suffices, and gRPC's five-byte prefix.

Whoever joins late has neither the preface nor the table that HEADERS are packed with. A frame boundary is then where
three plausible frames in a row begin; only where there is no such place, fewer that end exactly with the bytes (one
frame that does may be chance: its length needs to be right in two bytes). A message boundary is where the bytes read as
a message of the kind that is looked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from hyperframe.exceptions import HyperframeError
from hyperframe.frame import DataFrame, Frame, HeadersFrame, RstStreamFrame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER = 9
_CHAIN = 3
_CANDIDATE = re.compile(rb"(?s)(?=...[\x00-\x09].[\x00-\x7f])")  # a type that exists, the reserved bit unset
_SETTINGS = 4  # the type of the first frame that either side sends
_MESSAGE = re.compile(rb"(?s)(?=\x00\x00.{3})")  # not compressed, less than 16 MiB: as long as the boundary is unknown

IsOurs = Callable[[bytes], bool]


def messages(data: bytes, whole: bool, is_ours: IsOurs, count: Counter[str]) -> Iterator[bytes]:
    """The gRPC messages in what one side sent; `whole` if the bytes begin where the connection did.

    `count` gathers what was met on the way: frames, messages, bytes that made no sense.
    """
    streams: dict[int, MessageStream] = {}
    for frame in frames(data, whole, count):
        if isinstance(frame, HeadersFrame):  # the first of a stream: its messages begin after it
            streams.setdefault(frame.stream_id, MessageStream(True, is_ours, count))
        elif isinstance(frame, DataFrame):
            stream = streams.setdefault(frame.stream_id, MessageStream(False, is_ours, count))
            yield from stream.feed(frame.data)
        if isinstance(frame, RstStreamFrame) or "END_STREAM" in frame.flags:
            streams.pop(frame.stream_id, None)


def frames(data: bytes, whole: bool, count: Counter[str]) -> Iterator[Frame]:
    """Every frame that is all there; where bytes are no frame, the next boundary is searched for."""
    view = memoryview(data)
    at = len(PREFACE) if whole and data.startswith(PREFACE) else 0
    if not whole or data[at + 3 : at + 4] != bytes([_SETTINGS]):
        at = _boundary(data, at, count)
    while at + _HEADER <= len(data):
        parsed = parse_frame(view[at:])
        if parsed is None:
            at = _boundary(data, at + 1, count)
            continue
        frame, end = parsed
        if at + end > len(data):
            return
        count["http2_frames"] += 1
        yield frame
        at += end


def parse_frame(view: memoryview) -> tuple[Frame, int] | None:
    """(frame, its size) at the beginning of these bytes, its body parsed if it is all there; None if it is no frame."""
    try:
        frame, length = Frame.parse_frame_header(view[:_HEADER])
        if view[5] & 0x80:
            return None
        if _HEADER + length <= len(view):
            frame.parse_body(view[_HEADER : _HEADER + length])
    except HyperframeError:
        return None
    return frame, _HEADER + length


def _boundary(data: bytes, at: int, count: Counter[str]) -> int:
    """The next offset where frames begin; the end of the bytes if there is none."""
    found, to_the_end = len(data), len(data)
    for match in _CANDIDATE.finditer(data, at):
        chained, end = _chain(data, match.start())
        if chained == _CHAIN:
            found = match.start()
            break
        if chained and end == len(data):
            to_the_end = min(to_the_end, match.start())
    found = found if found < len(data) else to_the_end
    count["bytes_skipped"] += found - at
    return found


def _chain(data: bytes, at: int) -> tuple[int, int]:
    """How many plausible frames follow each other from here, `_CHAIN` at most, and where the last one ends."""
    view = memoryview(data)
    for chained in range(_CHAIN):
        parsed = parse_frame(view[at:]) if at + _HEADER <= len(data) and _strict(view[at:]) else None
        if parsed is None or at + parsed[1] > len(data):
            return chained, at
        at += parsed[1]
    return _CHAIN, at


def _strict(view: memoryview) -> bool:
    """What gRPC sends: types of HTTP/2 with flags that it defines for them, streams that the client opened (they have
    odd numbers), and no empty DATA but to end a stream. Zeros, which abound in messages, are none of it."""
    try:
        frame, length = Frame.parse_frame_header(view[:_HEADER], strict=True)
    except HyperframeError:
        return False
    odd = frame.stream_id == 0 or frame.stream_id % 2 == 1
    empty = isinstance(frame, DataFrame) and not length and "END_STREAM" not in frame.flags
    return odd and not empty and view[3] <= 9 and not view[4] & ~sum(flag.bit for flag in frame.defined_flags)


class MessageStream:
    """The DATA of one HTTP/2 stream, cut into messages. Not `synced`: the first boundary must be found."""

    def __init__(self, synced: bool, is_ours: IsOurs, count: Counter[str]) -> None:
        self._synced, self._is_ours, self._count = synced, is_ours, count
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        if not self._synced:
            self._search()
        while self._synced and (message := _message(self._buffer, 0)) is not None:
            compressed = self._buffer[0]
            del self._buffer[: 5 + len(message)]
            if compressed:
                self._count["compressed_messages"] += 1
            else:
                self._count["messages"] += 1
                yield message

    def _search(self) -> None:
        """Drop what cannot be the beginning of one of our messages."""
        content = bytes(self._buffer)
        keep = max(len(content) - 4, 0)  # from here on a prefix may not have come in full
        for match in _MESSAGE.finditer(content):
            message = _message(content, match.start())
            if message is None:  # it may turn out to be one when more has come
                keep = min(keep, match.start())
            elif self._is_ours(message):
                keep, self._synced = match.start(), True
                break
        self._count["bytes_skipped"] += keep
        del self._buffer[:keep]


def _message(content: bytes | bytearray, at: int) -> bytes | None:
    """What follows the prefix at this offset, if all of it has come."""
    if at + 5 > len(content):
        return None
    end = at + 5 + int.from_bytes(content[at + 1 : at + 5])
    return bytes(content[at + 5 : end]) if end <= len(content) else None
