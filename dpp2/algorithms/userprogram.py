"""The round program of a user's method: hands out rows, checks what comes back, and tries it before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from dpp2.algorithms.base import QUIET, AgentContext, Broadcast, NoisyProgram, Private, Round
from dpp2.algorithms.usermethod import UserMethod
from dpp2.arrays import Array
from dpp2.userpython import UserCode

_TRIED = 1e-9  # relative: how far a row alone may be from the same row among others


class OwnRows:
    """What a round may ask of the agents owned here."""

    def __init__(self, program: UserProgram, x: Array, k: int) -> None:
        self._program, self._x, self._k = program, x, k
        self._drawn: set[str] = set()
        self.evaluated: tuple[Array, Array] | None = None  # f and ∇f at x^k, if the round has asked for them
        self.covered, self.sent = True, False

    def gradient(self, x: Array) -> Array:
        """∇f_i(x_i) for every row."""
        return self._evaluate(x)[1]

    def value(self, x: Array) -> Array:
        """f_i(x_i) for every row: (n,)."""
        return self._evaluate(x)[0]

    def noisy(self, name: str, values: Array) -> Array:
        """The values with this round's noise of that name, Lap(u r^k), added exactly."""
        method, code, draws = self._program.method, self._program.code, self._program.noise
        if name not in method.noise:
            raise code.refused(f"a noise that @algorithm names, not {name!r}")
        if name in self._drawn:
            raise code.refused(f"noise {name!r} once a round: keep what own.noisy returned, and use it again")
        if self.sent and method.accounted:
            why = "the first message of a round says whether float64 carries all of it"
            raise code.refused(f"noise {name!r} before the first yield, where there is an account: {why}")
        self._drawn.add(name)
        rows = self._program.rows("the argument of own.noisy", values)
        draw = draws[f"noise_{name}"]
        self.covered &= draw.covers(self._k, rows)
        return draw.add(self._k, rows)

    def _evaluate(self, x: Array) -> tuple[Array, Array]:
        rows = self._program.rows("the argument of own.gradient and own.value", x)
        at_x = rows is self._x or np.array_equal(rows, self._x)
        if at_x and self.evaluated is not None:
            return self.evaluated
        found = self._program.objective(rows)
        if at_x:
            self.evaluated = found
        return found


class UserProgram(NoisyProgram):
    """Runs the user's generator, one round at a time."""

    def __init__(self, section: Any, context: AgentContext, noise: Mapping[str, Any]) -> None:
        super().__init__(section, context, noise)
        self.method: UserMethod = section.method
        self.code: UserCode = section.code()
        self._parameters: dict[str, Any] = section.parameters()
        self._shape = len(context.owned), context.objective.dimension
        self._state = self.method.state_class()

    def start(self, x0: Array) -> Any:
        hook = self.method.hooks.get("start")
        if hook is None:
            return self._state(x0, *(np.zeros_like(x0) for _ in self.method.state[1:]))
        given = _read_only(x0)
        own = OwnRows(self, given, 0)
        return self._next(self.code.guarded("a state to start from", lambda: hook(given, own, **self._parameters)))

    def round(self, s: Any, k: int) -> Round:
        x = _read_only(s.x)
        rows = SimpleNamespace(**{name: _read_only(getattr(s, name)) for name in self.method.state} | {"x": x})
        own, answer = OwnRows(self, x, k), None
        steps = self.method.function(rows, k, own, **self._parameters)
        for phase in self.method.sends:
            message = self._step(steps, answer, f"a message {phase}")
            sent = self.rows(f"the message {phase}", message)
            first, own.sent = not own.sent, True
            answer = yield Broadcast(phase, sent, own.covered if first else True)
        after = self._step(steps, answer, None)
        f, grad = own.evaluated or self.objective(s.x)
        return self._next(after), Private(f, grad, self.drawn(k), scalars={})

    def _step(self, steps: Any, answer: Array | None, wanted: str | None) -> Any:
        """On to the next yield, or, where no message is wanted any more, to the end of the round."""
        ended, value = self.code.guarded("a round that runs", lambda: _send(steps, answer))
        if ended and wanted:
            raise self.code.refused(f"{wanted} from {self.method.name}, which ended without it")
        if not ended and not wanted:
            count = len(self.method.sends)
            raise self.code.refused(f"{count} yields in a round of {self.method.name}, as many as `sends` has names")
        return value

    def _next(self, state: Any) -> Any:
        names = self.method.state
        if not isinstance(state, Mapping) or set(state) != set(names):
            got = sorted(state) if isinstance(state, Mapping) else type(state).__name__
            raise self.code.refused(f"a state {{{', '.join(names)}}} at the end of a round, not {got}")
        return self._state(**{name: self.rows(f"the state {name}", state[name]) for name in names})

    def rows(self, what: str, values: Any) -> Array:
        """One row of float64 for each agent owned here."""
        shown = f"{what} as {self._shape[0]} rows of {self._shape[1]} numbers"
        rows = self.code.guarded(shown, lambda: np.asarray(values, dtype=np.float64))
        if rows.shape != self._shape:
            raise self.code.refused(f"{what} of shape (n, d) = {self._shape}, one row per agent, not {rows.shape}")
        return rows


def _send(steps: Any, answer: Array | None) -> tuple[bool, Any]:
    try:
        return False, steps.send(answer)
    except StopIteration as done:
        return True, done.value


def _read_only(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False  # the user's code must not be able to change what is on record
    return view


class _Bowls:
    """½‖x − b_i‖², to try a method on."""

    def __init__(self, agents: range) -> None:
        self._centres = np.random.default_rng(7).standard_normal((3, 4))[agents.start : agents.stop]

    dimension = 4

    @property
    def smoothness(self) -> Array:
        return np.ones(len(self._centres))

    def __call__(self, x: Array) -> tuple[Array, Array]:
        away = x - self._centres
        return 0.5 * (away**2).sum(axis=1), away


def try_out(section: Any) -> None:
    """Two rounds of three agents together and each alone, without noise: every row must come out the same."""
    P = np.array([[0.5, -0.25, -0.25], [-0.25, 0.25, 0.0], [-0.25, 0.0, 0.25]])
    everybody, *alone = [_tried(section, agents) for agents in (range(3), range(1), range(1, 2), range(2, 3))]
    start = np.random.default_rng(8).standard_normal((3, 4))
    states = [everybody.start(start), *(one.start(start[n : n + 1]) for n, one in enumerate(alone))]
    _compare(section, [[*vars(state).values()] for state in states])
    for k in range(2):
        rounds = [one.round(state, k) for one, state in zip([everybody, *alone], states, strict=True)]
        answers: list[Any] = [None] * 4
        for _ in section.method.sends:
            sent = [one.send(answer).rows for one, answer in zip(rounds, answers, strict=True)]
            _compare(section, [[rows] for rows in sent])
            mixed = P @ sent[0]
            answers = [mixed, *(mixed[n : n + 1] for n in range(3))]
        states = [_ended(one, answer) for one, answer in zip(rounds, answers, strict=True)]
        _compare(section, [[*vars(state).values()] for state in states])


def _tried(section: Any, agents: range) -> UserProgram:
    context = AgentContext(agents, 3, _Bowls(agents), cast(Any, None))  # without noise nobody asks for keys
    return UserProgram(section, context, dict(zip(section.noises, repeat(QUIET))))


def _ended(one: Round, answer: Array) -> Any:
    try:
        one.send(answer)
    except StopIteration as done:
        return done.value[0]
    raise AssertionError("the program has counted its messages")


def _compare(section: Any, found: list[list[Array]]) -> None:
    together, *alone = found
    for among, *single in zip(together, *alone, strict=True):
        if not np.allclose(among, np.concatenate(single), rtol=_TRIED, atol=_TRIED, equal_nan=True):
            wanted = "rows that rest on themselves and on what a yield returns, alone and among others"
            raise section.code().refused(
                f"{wanted}; in {section.method.name} an agent's row depends on other rows here"
            )
