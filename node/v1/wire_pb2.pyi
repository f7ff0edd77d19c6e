from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("agent", "public_key", "nonce")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    agent: int
    public_key: bytes
    nonce: bytes
    def __init__(self, agent: _Optional[int] = ..., public_key: _Optional[bytes] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("run", "round", "phase", "senders", "rows", "dimension", "hellos")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    HELLOS_FIELD_NUMBER: _ClassVar[int]
    run: str
    round: int
    phase: str
    senders: _containers.RepeatedScalarFieldContainer[int]
    rows: bytes
    dimension: int
    hellos: _containers.RepeatedCompositeFieldContainer[Hello]
    def __init__(self, run: _Optional[str] = ..., round: _Optional[int] = ..., phase: _Optional[str] = ..., senders: _Optional[_Iterable[int]] = ..., rows: _Optional[bytes] = ..., dimension: _Optional[int] = ..., hellos: _Optional[_Iterable[_Union[Hello, _Mapping]]] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("run", "digest")
    RUN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    run: str
    digest: str
    def __init__(self, run: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class PrepareReply(_message.Message):
    __slots__ = ("agents", "round", "allowed", "reason")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedScalarFieldContainer[int]
    round: int
    allowed: int
    reason: str
    def __init__(self, agents: _Optional[_Iterable[int]] = ..., round: _Optional[int] = ..., allowed: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("run", "until", "last")
    RUN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    run: str
    until: int
    last: bool
    def __init__(self, run: _Optional[str] = ..., until: _Optional[int] = ..., last: _Optional[bool] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("round", "finished", "waiting_for", "frames_sent", "bytes_sent", "refused", "failure", "diverged")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    FRAMES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DIVERGED_FIELD_NUMBER: _ClassVar[int]
    round: int
    finished: bool
    waiting_for: _containers.RepeatedScalarFieldContainer[int]
    frames_sent: int
    bytes_sent: int
    refused: int
    failure: str
    diverged: bool
    def __init__(self, round: _Optional[int] = ..., finished: _Optional[bool] = ..., waiting_for: _Optional[_Iterable[int]] = ..., frames_sent: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., refused: _Optional[int] = ..., failure: _Optional[str] = ..., diverged: _Optional[bool] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
