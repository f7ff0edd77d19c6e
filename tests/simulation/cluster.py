"""A whole cluster in one thread: real machines and real files' code on virtual disks, a virtual network, one seed.

Everything that happens is drawn from the seed: what is computed, who hosts whom, how often state is saved, and then,
move by move, who goes on, which frame arrives, what is written, and what breaks. After a number of faults nothing
breaks any more, and the run must come to its end, or to an earlier one that was drawn: with the bytes that the embedded
run has there, and with exact ledgers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from dpp2.node.errors import PeerFault
from dpp2.node.folder import Keeping
from tests.simulation.reference import ALGORITHM_NAMES, LAYOUTS, STAR, reference
from tests.simulation.virtual_disk import Killed
from tests.simulation.virtual_network import End, Stream
from tests.simulation.virtual_node import VirtualNode, Wrong

MOST_MOVES = 20_000
MOST_FAULTS = 9
ENDED_EARLY = 0.3  # of the schedules
_TRIES = 5
Move = Callable[[], None]


class Orchestrator:
    """Prepares nodes and hands out credit. It may die and come back, and then knows nothing."""

    def __init__(self, nodes: dict[int, VirtualNode], rounds: int, rng: random.Random) -> None:
        self._nodes, self._rounds_wanted, self._rng = nodes, rounds, rng
        self.come_back()

    def come_back(self) -> None:
        self.alive = True
        self._window = self._rng.randint(1, 6)
        self._allowed: dict[int, int] = {}
        self._lives: dict[int, int] = {}  # of a node when it was prepared
        self._rounds: dict[int, int] = {}  # as they were last heard of
        self._released: dict[tuple[int, int], int] = {}  # by node and life

    def knows(self, node: VirtualNode) -> bool:
        return self._lives.get(node.name) == node.life

    def prepare(self, node: VirtualNode) -> None:
        node.prepare()
        if node.run is None:  # its disk is full
            return
        self._lives[node.name] = node.life
        self._allowed[node.name] = node.prepared.budget.allowance.rounds
        self._rounds[node.name] = node.prepared.machine.k

    def credit(self, node: VirtualNode) -> int | None:
        """Up to which round this node may be told to go, if that is news to it."""
        if not self.knows(node) or len(self._allowed) < len(self._nodes):
            return None
        for one in self._nodes.values():
            if one.run is not None and self.knows(one):
                self._rounds[one.name] = one.run.machine.k
        until = min(min(self._rounds.values()) + self._window, self._last)
        return until if until > self._released.get((node.name, node.life), -1) else None

    @property
    def _last(self) -> int:
        """Where the run ends: where it should, or where somebody's budget does."""
        return min(self._rounds_wanted, *self._allowed.values())

    def release(self, node: VirtualNode) -> None:
        until = self.credit(node)
        assert until is not None
        self._released[node.name, node.life] = until
        node.release(until, last=until == self._last)


class Cluster:
    """One schedule."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.rng = rng = random.Random(seed)
        algorithm = random.Random(f"algorithm {seed}").choice(ALGORITHM_NAMES)  # apart: a new one shifts no other draw
        layout = STAR if algorithm == "diff2" else rng.choice(LAYOUTS)
        keeping = Keeping(every=rng.randint(1, 5), telemetry=layout.telemetry)
        self._faults = rng.randint(0, MOST_FAULTS)
        self._often = rng.choice((0.01, 0.03, 0.1))  # how often something breaks
        self._tell = tell
        self.reference = reference(algorithm, layout)
        self.allowed = self.reference.rounds
        if rng.random() < ENDED_EARLY:
            self.reference = self.reference.cut(rng.randint(self.reference.rounds // 2, self.reference.rounds - 1))
        self.nodes = {name: VirtualNode(name, self.reference, keeping, rng) for name in self.reference.hosted}
        self._list = [*self.nodes.values()]
        self.orchestrator = Orchestrator(self.nodes, self.reference.rounds, rng)
        self.streams: list[Stream] = []
        self._dialled: dict[tuple[int, int], Stream] = {}
        self._pairs = [(a, b) for a, b in self.reference.frames if a < b]
        if tell:
            tell(f"{algorithm} on {layout}, {keeping}, {self.reference.rounds} rounds, {self._faults} faults")

    def run(self) -> None:
        """To the end, or to the first thing that is wrong."""
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(MOST_MOVES):
                if all(node.settled for node in self.nodes.values()) and not self._faults:
                    break
                self._move()
            else:
                raise Wrong(f"no end after {MOST_MOVES} moves")
            for node in self.nodes.values():
                node.check_result()

    def _move(self) -> None:
        if self._faults and self.rng.random() < self._often:
            self._faults -= 1
            self._do(self.rng.choice([*self._breakable()]))
            return
        moves = self._some_moves()
        if moves:
            self._do(self.rng.choice(moves))
        elif self._faults:
            self._faults = 0
        else:
            raise Wrong("nothing can happen any more, and the run is not over")

    def _do(self, move: partial[None]) -> None:
        if self._tell:
            self._tell(self._described(move))
        try:
            move()
        except Killed:
            self._died(self._victim(move))

    # -- what can happen ---------------------------------------------------------------------------------------

    def _some_moves(self) -> list[partial[None]]:
        """What somebody can do, if there is anything that can happen at all. To ask everybody each time is slow."""
        for _ in range(_TRIES):
            if moves := [*self._moves_of(self.rng.randrange(len(self.nodes) + len(self.streams) + 1))]:
                return moves
        return [move for one in range(len(self.nodes) + len(self.streams) + 1) for move in self._moves_of(one)]

    def _moves_of(self, one: int) -> Iterator[partial[None]]:
        if one < len(self._list):
            return self._moves_of_node(self._list[one])
        one -= len(self._list)
        return self._moves_of_stream(self.streams[one]) if one < len(self.streams) else self._moves_of_others()

    def _moves_of_others(self) -> Iterator[partial[None]]:
        for pair in self._pairs:
            dialler, listener = (self.nodes[name] for name in pair)
            current = self._dialled.get(pair)
            if dialler.run is not None and listener.up and (current is None or not current.dialler.alive):
                yield partial(self.dial, dialler, listener)
        if not self.orchestrator.alive:
            yield partial(self.orchestrator_comes_back)

    def _moves_of_node(self, node: VirtualNode) -> Iterator[partial[None]]:
        if not node.up:
            yield partial(self.start, node)
            return
        if node.disk.full:
            yield partial(self.free_disk, node)
        if node.broken:
            yield partial(self.bury, node)
            return
        if self.orchestrator.alive:
            if not self.orchestrator.knows(node):
                yield partial(self.prepare, node)
            elif self.orchestrator.credit(node) is not None:
                yield partial(self.release, node)
        if node.run is not None:
            if node.run.ready:
                yield partial(self.advance, node)
                yield partial(self.advance, node)
            if node.run.saving is not None:
                yield partial(self.save, node)

    def _moves_of_stream(self, stream: Stream) -> Iterator[partial[None]]:
        if stream.listener is None:
            if not stream.dialler.ends:
                yield partial(self.answer, stream)
        elif stream.dialler.lane is None and stream.dialler.alive and not stream.dialler.ends:
            yield partial(self.establish, stream)
        for end in stream.ends:
            other = stream.other(end)
            if end.readable():
                if end.coming or end.ends or (other is not None and other.alive and other.has_more()):
                    yield partial(self.deliver, stream, end)
            elif end.alive and (end.full or end.ends):
                yield partial(self.give_up, stream, end)
            if end.alive and not end.ends and other is not None and not other.alive:
                yield partial(self.notice, stream, end)

    def _breakable(self) -> Iterator[partial[None]]:
        for node in self.nodes.values():
            if node.up:
                yield partial(self.kill, node)
                yield partial(self.kill_soon, node)
                yield partial(self.lose_power, node)
                yield partial(self.stop, node)
                yield partial(self.fill_disk, node)
                yield partial(self.fill_disk, node)
                if node.run is not None and not node.disk.full:
                    yield partial(self.come_back_changed, node)
            else:
                yield partial(self.lose_power, node)
            if node.damageable:
                yield partial(self.damage, node)
                yield partial(self.damage, node)
        yield partial(self.lose_power_everywhere)
        if self.orchestrator.alive:
            yield partial(self.orchestrator_dies)
        for stream in self.streams:
            yield partial(self.cut, stream)
            for end in stream.ends:
                if end.alive and end.lane is not None:
                    yield from self._forgeries(stream, end)

    def _forgeries(self, stream: Stream, end: End) -> Iterator[partial[None]]:
        yield partial(self.repeat_a_frame, stream, end)
        if end.hello and end.node.prepared.machine.hellos.settled:
            yield partial(self.say_another_hello, stream, end)
        if end.node.comparable(end.peer):
            yield partial(self.alter_a_frame, stream, end)

    # -- moves -------------------------------------------------------------------------------------------------

    def start(self, node: VirtualNode) -> None:
        node.start()

    def prepare(self, node: VirtualNode) -> None:
        self.orchestrator.prepare(node)

    def release(self, node: VirtualNode) -> None:
        self.orchestrator.release(node)

    def advance(self, node: VirtualNode) -> None:
        node.advance()
        for stream in self.streams:
            for end in stream.ends:
                if end.node is node and self.rng.random() < 0.7:
                    self._write(stream, end)

    def save(self, node: VirtualNode) -> None:
        node.save()

    def dial(self, dialler: VirtualNode, listener: VirtualNode) -> None:
        stream = Stream(dialler, listener)
        self._dialled[dialler.name, listener.name] = stream
        self.streams.append(stream)

    def answer(self, stream: Stream) -> None:
        stream.answer()
        self._check_refused(stream)

    def establish(self, stream: Stream) -> None:
        stream.establish()
        self._check_refused(stream)

    def deliver(self, stream: Stream, end: End) -> None:
        other = stream.other(end)
        if other is not None:
            self._write(stream, other)
        try:
            frame = end.read()
        except PeerFault as fault:
            stream.fault(end, fault)
            self._check_refused(stream)
            frame = b""
        if frame is None and end.ends:
            stream.hang_up(end, self.rng)
        self._tidy()

    def _write(self, stream: Stream, end: End) -> None:
        if left := stream.write(end):
            end.node.left(left, end.peer)

    def give_up(self, stream: Stream, end: End) -> None:
        """It has waited for too long."""
        stream.hang_up(end, self.rng)
        self._tidy()

    def notice(self, stream: Stream, end: End) -> None:
        """That the other end is gone."""
        stream.no_more(end, self.rng)

    def _tidy(self) -> None:
        self.streams = [stream for stream in self.streams if not stream.over]

    def _check_refused(self, stream: Stream) -> None:
        """An honest neighbour is never refused, unless somebody has played with its stream."""
        if stream.refused and not stream.tampered:
            raise Wrong(f"an honest neighbour was refused: {stream.refused}")

    # -- faults ------------------------------------------------------------------------------------------------

    def kill(self, node: VirtualNode) -> None:
        node.kill()
        self._died(node)

    def kill_soon(self, node: VirtualNode) -> None:
        """In the middle of whatever it does then, by itself or with the power."""
        node.disk.fuse = self.rng.randint(1, 20)
        node.with_power = self.rng.random() < 0.5

    def lose_power(self, node: VirtualNode) -> None:
        node.lose_power()
        self._died(node)

    def lose_power_everywhere(self) -> None:
        for node in self.nodes.values():
            self.lose_power(node)

    def damage(self, node: VirtualNode) -> None:
        """It goes down, if it is not, and finds a damaged checkpoint when it comes back."""
        if node.up:
            self.kill(node)
        node.damage()

    def stop(self, node: VirtualNode) -> None:
        node.stop()
        self._died(node)

    def fill_disk(self, node: VirtualNode) -> None:
        node.disk.fill()

    def free_disk(self, node: VirtualNode) -> None:
        node.disk.free()

    def bury(self, node: VirtualNode) -> None:
        """A node that has failed ends by itself, in order as far as it can, or is killed."""
        (self.stop if self.rng.random() < 0.5 else self.kill)(node)

    def come_back_changed(self, node: VirtualNode) -> None:
        node.come_back_changed()
        self._died(node)

    def _died(self, node: VirtualNode) -> None:
        """Of its own accord, or in the middle of something. Its neighbours may hear of it at once, or later."""
        if node.up:
            (node.lose_power if node.with_power else node.kill)()
        for stream in self.streams:
            for end in stream.ends:
                other = stream.other(end)
                if end.node is node and other is not None and self.rng.random() < 0.7:
                    stream.no_more(other, self.rng)
        self._tidy()

    def cut(self, stream: Stream) -> None:
        stream.cut(self.rng)

    def repeat_a_frame(self, stream: Stream, end: End) -> None:
        """Something that this neighbour has sent at some time comes once more, however old it is."""
        sender = self.nodes[end.peer]
        frames = [frame for frame, k in self.reference.frames[end.peer, end.node.name].items() if k < sender.sent]
        if frames:
            stream.tampered = True
            end.coming.insert(self.rng.randint(0, len(end.coming)), self.rng.choice(frames))

    def alter_a_frame(self, stream: Stream, end: End) -> None:
        """Well-formed, but with other rows than this neighbour has sent before: it is refused, and the first stay."""
        assert end.lane is not None
        stream.tampered = True
        frame = self.rng.choice(end.node.comparable(end.peer))
        stream.fault(end, end.node.take_altered(frame, end.lane, end.peer))
        self._tidy()

    def say_another_hello(self, stream: Stream, end: End) -> None:
        """In the name of a neighbour whose hello the run rests on: it is refused, and the first stays."""
        stream.tampered = True
        stream.fault(end, end.node.meet_a_stranger(end.peer))
        self._tidy()

    def orchestrator_dies(self) -> None:
        self.orchestrator.alive = False

    def orchestrator_comes_back(self) -> None:
        self.orchestrator.come_back()

    # -- words -------------------------------------------------------------------------------------------------

    def _victim(self, move: partial[None]) -> VirtualNode:
        """Whose process was at work."""
        for argument in reversed(move.args):
            if isinstance(argument, End):
                return argument.node
            if isinstance(argument, VirtualNode):
                return argument
        stream: Stream = move.args[0]
        return stream.working

    def _described(self, move: partial[None]) -> str:
        return f"{move.func.__name__} {', '.join(map(str, move.args))}"


def simulate(seed: int, tell: Callable[[str], None] | None = None) -> None:
    """One schedule; what is wrong is said with the command that shows it again."""
    try:
        Cluster(seed, tell).run()
    except Exception as wrong:
        raise Wrong(f"schedule {seed}: {wrong}\nsee it again: {command(seed)}") from wrong


def command(seed: int) -> str:
    return f".venv/bin/python -m tests.simulation.replay {seed}"


def first_failure(seeds: range) -> str:
    """Of the first schedule that goes wrong; nothing if none does."""
    for seed in seeds:
        try:
            simulate(seed)
        except Wrong as wrong:
            return str(wrong)
    return ""
