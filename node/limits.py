"""Every limit and channel setting in one place; the defaults fit slow networks."""

from __future__ import annotations

BACKOFF_FIRST = 0.05  # seconds before a broken stream is dialled again …
BACKOFF_MOST = 2.0  # … doubling up to this
REPORT_EVERY = 1.0  # seconds between progress reports of a node that is busy; when it stops, it says so at once
CALL_SECONDS = 30.0  # a control call that takes longer has failed
PROBE_SECONDS = 5.0  # a health check that takes longer has failed
FAREWELL_SECONDS = 5.0  # that a node whose run failed waits for somebody to tell
CONTRADICTIONS = 3  # frames or hellos of one agent that contradict earlier ones …
CONTRADICTION_SECONDS = 5.0  # … within a round that has been waiting for so long: it will wait for ever
RECHECK_SECONDS = 1.0  # between two looks at whether the certificate of an open stream still counts
DESCRIPTOR_SECONDS = 30.0  # that a file waits to be opened while there are too many open ones
HANDSHAKE_SECONDS = 5  # within which a connection has begun to speak
KEEPALIVE_SECONDS = 20

CHECKPOINT_EVERY = 50  # rounds; a node that died runs up to twice as many again, as fast as it can, on what it is sent
ROUNDS_IN_HAND = 4  # of frames that wait to be used: more only come to a node that catches up, and it reads no faster
BYTES_IN_HAND = 32 << 20  # at most, of the same: long rows wait in fewer rounds, at least in one
ROOM_SECONDS = 5.0  # that a stream waits unread; then it is given up and dialled again, since it may long be dead
UNREAD_SECONDS = 30.0  # that a frame may wait to be read by a peer, who gives up by itself after `ROOM_SECONDS` …
SLOWEST = 50_000  # … and a second more for so many bytes: a slow line is no fault
HELLO_SECONDS = 10.0  # within which a stream begins with the neighbour's hellos, where it must
REPEATS = 64  # copies of earlier frames on one stream; an honest peer sends none
OPEN_SECONDS = 0.1  # between two streams of one neighbour: a faster one waits, and the next takes its place
STREAMS = 4  # at once on one connection: a neighbour needs one, an orchestrator three
WINDOW = (1 << 16) - 1  # bytes of a call that gRPC takes while nobody reads it: what HTTP/2 begins with
WINDOW_MOST = 4 << 20  # the same on a stream that this node has dialled: there is one, so a frame may have room
UNREAD_STREAMS = 4  # of one neighbour that have ended with a frame unread; then no more are opened until it reads one
REQUEST_SECONDS = 5.0  # within which the request of a call comes
CALM_REFUSALS = 20  # in a second; beyond that refusals wait, for a second or more, which slows a flood down …
PAUSE_SECONDS = 5.0  # … to as many calls as there can be at once, in so many seconds
REFUSE_SECONDS = 1.0  # within which a peer takes the status of a refusal
LITTER = 32  # calls that have ended early, after which their memory is looked for


def rounds_in_hand(round_bytes: int) -> int:
    """Rounds of one neighbour that wait in memory, each way, if its rows of one round have so many bytes.

    So its rows take at most max(r, min(4 r, 32 MiB)) bytes of r a round each way, whatever it sends or does not read.
    """
    return max(1, min(ROUNDS_IN_HAND, BYTES_IN_HAND // max(1, round_bytes)))


def fixed_window(size: int) -> list[tuple[str, int]]:
    """How much a peer may send on a stream before it is read.

    gRPC would measure the line and make the window larger, for each stream and without a bound: on a fast line a
    neighbour with 60 connections filled 2 GB in eight seconds. A frame that is being read gets all the room it needs.
    """
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", size)]


_KEEPALIVE = [
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.http2.max_pings_without_data", 0),
]
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *_KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),  # nodes that share a process must not share connections
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_KEEPALIVE,
    ("grpc.max_concurrent_streams", STREAMS),
    *fixed_window(WINDOW),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.so_reuseport", 0),  # a second server on one port must fail, not silently take half of the calls
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
]
