"""The embedded driver: all agents in one process, answering every broadcast with P @ rows.

Rows are hosted in blocks of some ten thousand agents. One block (up to that size) is plain vectorised NumPy; with more,
each block's temporaries stay in the processor's cache instead of streaming through memory, which is what
makes a hundred thousand agents affordable. The blocks are the same round program that an agent in a container runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.algorithms.base import Broadcast, Private, Program, Round
from dpp2.arrays import Array
from dpp2.metrics import Map, measure
from dpp2.prepared import HostedAgents, PreparedRun

if TYPE_CHECKING:
    from dpp2.weights import Matrix

BLOCK = 16384  # agents; at d = 10 an array of a block is a megabyte or so, and a handful stay in cache


@dataclass(eq=False)
class Block:
    """Consecutive agents hosted together: their program, their rows of P and their state."""

    rows: slice
    program: Program
    P: Matrix
    state: Any

    @classmethod
    def of(cls, hosted: HostedAgents) -> Block:
        """At their starting points."""
        prepared = hosted.prepared
        rows = slice(hosted.owned[0], hosted.owned[-1] + 1)
        program = hosted.program()
        return cls(rows, program, prepared.P[rows], hosted.start(program))


def blocks_of(agents: int, size: int = BLOCK) -> list[range]:
    """Consecutive agents in blocks of nearly equal size, at most `size`; if several, so many that no core idles."""
    count = -(-agents // size)
    if count > 1:
        cores = os.cpu_count() or 1
        count = min(-(-count // cores) * cores, agents)
    bounds = [agents * n // count for n in range(count + 1)]
    return [range(low, high) for low, high in pairwise(bounds)]


def in_blocks(prepared: PreparedRun, size: int = BLOCK) -> list[HostedAgents]:
    """All agents of a run, block by block."""
    return [prepared.hosted(owned) for owned in blocks_of(prepared.graph.agents, size)]


class Cores:
    """`map` with a contiguous share of the items for every core: one hand-over per core, however many the items."""

    def __init__(self) -> None:
        self._count = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._count, initializer=_overflow_is_reported_elsewhere)

    def map(self, work: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
        calls = list(zip(*items, strict=False))  # one of them may be endless
        bounds = [len(calls) * n // self._count for n in range(self._count + 1)]
        shares = [calls[low:high] for low, high in pairwise(bounds)]
        return [
            done for share in self._pool.map(lambda share: [work(*call) for call in share], shares) for done in share
        ]


class EmbeddedDriver:
    """Blocks of agents that exchange rows through P."""

    def __init__(self, blocks: Sequence[Block], agents: int, dimension: int) -> None:
        self.blocks = blocks
        self.dimension = dimension
        self._wire: Array | None = None
        self.covered = True  # whether float64 carried all noise of the last round
        self.each: Map = map
        if len(blocks) > 1:
            self._wire = np.empty((agents, dimension))
            # Blocks are independent within a phase, and NumPy and SciPy let go of the interpreter while they compute.
            self.each = Cores().map

    @classmethod
    def of(cls, hosted: Sequence[HostedAgents]) -> EmbeddedDriver:
        """All agents, at their starting points."""
        agents, dimension = hosted[0].prepared.graph.agents, hosted[0].objective.dimension
        return cls([Block.of(part) for part in hosted], agents, dimension)

    def round(self, k: int, sent: Callable[[str, Array], None], *, only_covered: bool = False) -> list[Private]:
        """One synchronous round: every phase is broadcast (and shown to `sent`) before anybody goes on.

        With `only_covered`, a round whose noise float64 does not carry is not run: nothing is sent, nothing returned.
        """
        rounds = [block.program.round(block.state, k) for block in self.blocks]
        messages: list[Any] = list(self.each(next, rounds))
        self.covered = all(message.covered for message in messages)
        if only_covered and not self.covered:
            return []
        while True:
            rows = self._gather(messages)
            sent(messages[0].phase, rows)
            messages = list(self.each(_answer, self.blocks, rounds, repeat(rows)))
            if isinstance(messages[0], Private):  # every block runs the same phases
                return messages

    def _gather(self, messages: Sequence[Broadcast]) -> Array:
        """What all have broadcast; each block copies its own rows, since one core would take longer than the sums."""
        if (wire := self._wire) is None:
            return messages[0].rows

        def place(block: Block, message: Broadcast) -> None:
            wire[block.rows] = message.rows

        list(self.each(place, self.blocks, messages))
        return wire

    @property
    def x(self) -> list[Array]:
        return [block.state.x for block in self.blocks]

    @property
    def smoothness(self) -> float:
        """M̄, the largest M_i; nan where one is not known."""
        return float(np.max([block.program.objective.smoothness.max() for block in self.blocks]))

    def evaluate(self) -> list[Private]:
        """f_i(x_i) and ∇f_i(x_i), block by block, as no round has computed them yet."""
        evaluated = (block.program.objective(block.state.x) for block in self.blocks)
        return [Private(values, grad, {}, {}) for values, grad in evaluated]

    def quiet(self) -> EmbeddedDriver:
        """A copy at the same state that goes on without noise."""
        blocks = [replace(block, program=block.program.quiet()) for block in self.blocks]
        return EmbeddedDriver(blocks, sum(map(len, self.x)), self.dimension)

    def gradient(self, x: Array) -> Array:
        """∇f_i(x_i) of all agents."""
        return np.concatenate(list(self.each(lambda block: block.program.objective(x[block.rows])[1], self.blocks)))

    def state(self) -> dict[str, Array]:
        """Every state variable over all agents, for a checkpoint."""
        names = [field.name for field in fields(self.blocks[0].state)]
        return {name: np.concatenate([getattr(block.state, name) for block in self.blocks]) for name in names}

    def restore(self, state: Mapping[str, Array]) -> None:
        for block in self.blocks:
            rows = {name: array[block.rows].copy() for name, array in state.items()}
            block.state = type(block.state)(**rows)


class QuietRun:
    """A driver that goes on without noise from where another one stands, which itself stays there."""

    def __init__(self, driver: EmbeddedDriver, k: int) -> None:
        self._driver, self._k = driver.quiet(), k

    @property
    def x(self) -> Array:
        return np.concatenate(self._driver.x)

    def gaps(self, rounds: int) -> Array:
        """The gaps of so many further rounds."""
        found = np.empty(rounds)
        for step in range(rounds):
            x = self._driver.x
            private = self._driver.round(self._k + step, lambda phase, rows: None)
            consensus, stationarity, _ = measure(x, [p.values for p in private], [p.grad for p in private])
            found[step] = consensus + stationarity
        self._k += rounds
        return found


def _answer(block: Block, round_: Round, rows: Array) -> Broadcast | Private:
    """Send a block its Σ_j p_ij rows_j: it broadcasts again, or is done and moves to its next state."""
    try:
        return round_.send(block.P @ rows)
    except StopIteration as finished:
        block.state, private = finished.value
        assert isinstance(private, Private)
        return private


def _overflow_is_reported_elsewhere() -> None:
    np.seterr(over="ignore", invalid="ignore")
