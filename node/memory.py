"""By how much one neighbour can raise a node's memory, whatever it sends, withholds or does not read. Under TLS.

Without TLS anybody can be the orchestrator and all neighbours at once, so there is no such bound.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dpp2.node.codec import OVERHEAD, RowFormat, message_limit
from dpp2.node.hellos import HELLO_BYTES
from dpp2.node.limits import LITTER, STREAMS, UNREAD_STREAMS, WINDOW, rounds_in_hand

CONNECTION = 64 << 10  # bytes of one, idle: TLS and HTTP/2. Measured: 44 kB
CALL = 48 << 10  # bytes of one besides what it has sent: gRPC, metadata, tasks. Measured: 20 kB, or 55 after a window
MARGIN = 16 << 20  # bytes that are free and cannot be given back. Measured: an honest run's memory varies by 10 MB


def longest_message(form: RowFormat, foreign: tuple[int, ...]) -> int:
    """What gRPC takes from a peer: above our own limit, so that we can count what is too long."""
    return 2 * message_limit(form, foreign) + 16 * OVERHEAD + HELLO_BYTES * len(foreign)


@dataclass(frozen=True)
class MemoryBound:
    """Each term in bytes."""

    waiting_to_be_used: int  # rows of the neighbour
    waiting_to_be_sent: int  # rows for it
    being_read: int  # one frame, as long as gRPC lets it be: its pieces, the whole, and its rows
    unread: int  # frames that it has not read, on the stream that is open and on others: the bytes, and gRPC's copy
    connections: int  # all that this node lets in, each with all its calls, each with a full window
    litter: int  # calls that are over and not collected
    margin: int

    @classmethod
    def of(
        cls, form: RowFormat, foreign: tuple[int, ...], theirs: tuple[int, ...], ours: tuple[int, ...], connections: int
    ) -> MemoryBound:
        """`theirs`, `ours`: the agents at both ends of the edges to this neighbour; `foreign`: those of all of them."""
        used, sent = (rounds_in_hand(size) * size for size in (form.round_size(theirs), form.round_size(ours)))
        own = message_limit(form, ours)
        return cls(
            waiting_to_be_used=used,
            waiting_to_be_sent=sent,
            being_read=2 * longest_message(form, foreign) + message_limit(form, theirs),
            unread=(UNREAD_STREAMS + 1) * 2 * own,
            connections=connections * (CONNECTION + STREAMS * (CALL + WINDOW)),
            litter=LITTER * CALL,
            margin=MARGIN,
        )

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))
