"""Every limit and channel setting in one place; the defaults fit slow networks."""

from __future__ import annotations

BACKOFF_FIRST = 0.05  # seconds before a broken stream is dialled again …
BACKOFF_MOST = 2.0  # … doubling up to this
REPORT_EVERY = 1.0  # seconds between progress reports of a node that is busy; when it stops, it says so at once
CALL_SECONDS = 30.0  # a control call that takes longer has failed
PROBE_SECONDS = 5.0  # a health check that takes longer has failed
RECHECK_SECONDS = 1.0  # between two looks at whether the certificate of an open stream still counts
KEEPALIVE_SECONDS = 20

CHECKPOINT_EVERY = 50  # rounds; a node that died runs up to twice as many again, as fast as it can, on what it is sent
ROUNDS_IN_HAND = 4  # of frames that wait to be used: more only come to a node that catches up, and it reads no faster
ROOM_SECONDS = 5.0  # that a stream waits unread; then it is given up and dialled again, since it may long be dead

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
    ("grpc.so_reuseport", 0),  # a second server on one port must fail, not silently take half of the calls
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
]
