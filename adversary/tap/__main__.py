"""A tap as a process of its own: `python -m dpp2.adversary.tap relay|sniff`, which `dpp2 tap` wraps.

Its first line of output says, in JSON, that it listens or why it does not. It ends in order on SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpp2.adversary.tap.relay import Relay, open_all
from dpp2.adversary.tap.sniffer import Sniffer
from dpp2.errors import BadInput

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Listening:
    """What a tap says once it listens: where (an interface, or an address for each link), and where it records."""

    listening: str | dict[str, str]
    record: str


@dataclass(frozen=True)
class Refused:
    """What it says instead."""

    refused: str


Announce = Callable[[Listening], None]
_EVER = float("inf")


@dataclass(frozen=True)
class Ending:
    """When to stop by itself, in seconds."""

    after: float = _EVER
    quiet: float = _EVER  # without anybody, after somebody was there
    patience: float = _EVER  # without anybody at all


_UNTIL_A_SIGNAL = Ending()
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def _signals_put_back() -> Iterator[None]:
    """Whoever called may have handlers of their own; a loop that was closed with its handler hears no Ctrl-C."""
    before = {number: signal.getsignal(number) for number in _ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@_signals_put_back()
def relay(links: Sequence[str], out: Path, announce: Announce, ending: Ending = _UNTIL_A_SIGNAL) -> str | None:
    """Relay links such as "3-7=LISTEN,TARGET" until a signal; returns why the record is incomplete, if it is."""
    return _event_loop()(_relay(links, out, announce, ending))


async def _relay(links: Sequence[str], out: Path, announce: Announce, ending: Ending) -> str | None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDING_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    taps = Relay(out)
    try:
        announce(Listening(await open_all(taps, links), str(taps.recorder.path)))
        deserted = lonely = 0.0
        while not stopped.is_set() and deserted < ending.quiet and lonely < ending.patience:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), _LOOK_SECONDS)
            deserted = deserted + _LOOK_SECONDS if taps.deserted else 0.0
            lonely = lonely + _LOOK_SECONDS if taps.lonely else 0.0
    finally:
        await taps.close()
    return taps.recorder.failure


@_signals_put_back()
def sniff(
    interface: str,
    ports: Sequence[int],
    out: Path,
    announce: Announce,
    ending: Ending = _UNTIL_A_SIGNAL,
) -> Sniffer:
    """Sniff until a signal, or as `ending` says; returns the sniffer with its counters."""
    stopping = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        stopping = True

    for number in _ENDING_SIGNALS:
        signal.signal(number, stop)
    sniffer = Sniffer(interface, ports, out)
    announce(Listening(interface, str(sniffer.path)))
    began, last, heard = time.monotonic(), _EVER, 0  # when a packet was last seen, and how many there had been

    def done() -> bool:
        nonlocal last, heard
        now = time.monotonic()
        if sniffer.packets > heard:
            last, heard = now, sniffer.packets
        unheard = now - (began if last == _EVER else last)
        over = now - began >= ending.after or now - last >= ending.quiet or unheard >= ending.patience
        return stopping or over

    try:
        sniffer.capture(done)
    finally:
        sniffer.close()
    return sniffer


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.die_with_parent:
        _die_with(options.die_with_parent)
    try:
        if options.tap == "relay":
            failure = relay(options.link, options.out, _say)
            if failure:
                print(f"dpp2 tap: {failure}; what came later is missing", file=sys.stderr)
        else:
            sniff(options.interface, options.port, options.out, _say)
    except BadInput as refusal:
        _say(Refused(str(refusal)))
        return 2
    except OSError as error:
        _say(Refused(f"{error.filename or 'input/output'}: {error.strerror or error}"))
        return 1
    return 0


def _say(words: Listening | Refused) -> None:
    print(json.dumps(asdict(words)), flush=True)


def _event_loop() -> Callable[[Coroutine[Any, Any, str | None]], str | None]:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run
    return asyncio.run


def _die_with(parent: int) -> None:
    """Linux: be told to end when the parent dies, however it dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpp2 tap")
    parser.add_argument("tap", choices=("relay", "sniff"))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--link", action="append", default=[])
    parser.add_argument("--interface", default="lo")
    parser.add_argument("--port", action="append", type=int, default=[])
    parser.add_argument("--die-with-parent", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
