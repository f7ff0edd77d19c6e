"""What a transport is, and what all of them share: options, how a run is stopped, how it can fail."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from dpp2 import BadInput, Experiment, Simulation
from dpp2.experiment import TRANSPORTS
from dpp2.store.rundir import RunDirectory

if TYPE_CHECKING:
    from dpp2.orchestrator.local import Tap

Progress = Callable[[int, int, str], None]  # (rounds done, of how many, a note)


class Interrupted(Exception):
    """The user stopped the run; everything up to round k is safe in the run directory.

    Nodes may have sent more by themselves than all of them have completed: `charged` is what the ledger holds.
    """

    def __init__(self, path: Path, k: int, charged: int | None = None) -> None:
        self.path, self.k, self.charged = path, k, charged
        go_on = f"dpp2 run --resume {shlex.quote(str(path))}"
        rounds = f"{k} rounds"
        if charged is not None and charged > k:
            rounds = f"at least {k} rounds at every node, and up to {charged} are charged"
        super().__init__(f"stopped after {rounds}; `{go_on}` goes on from there")


class RunFailed(Exception):
    """A run could not go on; what was done before is safe in the run directory."""


@dataclass(frozen=True)
class ClusterShape:
    """How a run is laid out on this machine, for transports that have a choice."""

    processes: int | None = None  # None: one per agent
    strict: bool = False  # one round at a time
    tls: bool = False  # every node with a certificate of its own
    tap: Callable[[Path], Tap] | None = None  # who listens between the nodes, and keeps it in this folder
    partition: str | None = None  # how agents are shared out among processes; None: as suits their number

    @property
    def chosen(self) -> dict[str, Any]:
        """Options that were given, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}


class Transport(Protocol):
    """Carries out the rounds of a run. Each module has one, as `TRANSPORT`."""

    options: tuple[str, ...]  # those of `ClusterShape` that it heeds
    keeps_accounts: bool  # whether whoever sends is charged by itself; otherwise the runner charges for everybody

    def check(self, experiment: Experiment, shape: ClusterShape) -> None:
        """Refuse what could not be done, before anything is made."""

    def reached(self, directory: RunDirectory, run_id: str) -> int:
        """The last round that is kept elsewhere than in the run's own checkpoints: a run goes on, never back."""

    def run(self, simulation: Simulation, directory: RunDirectory, shape: ClusterShape, progress: Progress) -> None:
        """Bring the simulation from where it stands to its end. Raises `Interrupted` or `RunFailed` if it cannot."""


def transport_of(experiment: Experiment, shape: ClusterShape) -> Transport:
    """The transport of an experiment, if it can do what is asked of it."""
    transport = _transport(experiment.run.transport)
    for name, value in shape.chosen.items():
        if name not in transport.options:
            others = [f"--transport {other}" for other in TRANSPORTS if name in _transport(other).options]
            raise BadInput(f"--{name}", getattr(value, "name", value), f"{' or '.join(others)} beside it")
    transport.check(experiment, shape)
    return transport


def _transport(name: str) -> Transport:
    found: Transport = import_module(f"dpp2.orchestrator.transports.{name}").TRANSPORT
    return found


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noticed between rounds, where the state is whole; a second one ends the process as usual.

    Python tells its main thread alone of signals: a run in another thread, as a notebook may start one, hears none.
    """
    requested = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, before)
