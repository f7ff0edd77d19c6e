"""What the playground's controls mean: a few settings, checked, as an experiment, a command line and a TOML file.

Every state of the controls is a set of overrides of the paper's experiment, so that what is shown can be run anywhere:
the page only adds what an eavesdropper makes of it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dpp2 import BadInput, Experiment
from dpp2.errors import UnknownName

MOST_AGENTS, MOST_ROUNDS = 200, 2000
_MOST_NUMBERS = 400_000  # agents · rounds
_MOST_NOISE = 1e6  # the paper's is 1; numbers of a run are some thousands
TOPOLOGIES = ("geometric", "ring", "path", "star", "complete", "grid", "torus", "tree", "erdos-renyi", "small-world")
_PROBLEMS: dict[str, tuple[str, ...]] = {
    "paper": (),
    # f_1 = f_2 = −x²/2 and f_3 = 3x²/2, in so many triples as fit: a smooth, convex sum, and yet disagreement grows
    "counterexample": ("problem.name=quadratic", "problem.dimension=1", "problem.spread=0.0"),
}
_TIER_THREE = (
    "algorithm.name=dpp3",
    "problem.labels=planted",
    "problem.smoothness=5.03",
    "privacy.smoothness=5.03",
    "noise.kind=gaussian",
)


@dataclass(frozen=True)
class Controls:
    """One state of the controls."""

    problem: str = "paper"
    topology: str = "geometric"
    agents: int = 50
    rounds: int = 500
    tier: str = "two"  # two: the paper's algorithm; three: ours
    eta: bool = True  # tier one: a secret η
    noise: bool = True  # tier two
    u: float = 1.0
    r: float = 0.9
    damping: float = 0.0
    ratio: float = 100.0
    colluders: int = 1
    epsilon: float | None = None  # given: the noise is found; none: ε is

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Controls:
        """From an address; whatever is not said is the paper's."""
        known = {field.name: field.default for field in fields(cls)}
        for name in given:
            if name not in known:
                raise UnknownName("control", name, name, list(known))
        made = {name: _parsed(name, text, known[name]) for name, text in given.items()}
        controls = cls(**made)
        controls.check()
        return controls

    def check(self) -> None:
        _one_of("problem", self.problem, _PROBLEMS)
        _one_of("topology", self.topology, TOPOLOGIES)
        _one_of("tier", self.tier, ("two", "three"))
        _within("agents", self.agents, 2, MOST_AGENTS)
        _within("rounds", self.rounds, 1, MOST_ROUNDS)
        _within("colluders", self.colluders, 0, 3)
        _number("u", self.u, _MOST_NOISE)
        _number("r", self.r, 1)
        _number("damping", self.damping, math.inf)
        _number("ratio", self.ratio, 100_000)
        if self.agents * self.rounds > _MOST_NUMBERS // 2:
            raise BadInput("rounds", self.rounds, f"at most {_MOST_NUMBERS // 2 // self.agents} with so many agents")
        if self.epsilon is not None and not 0 < self.epsilon <= 1e6:
            raise BadInput("epsilon", self.epsilon, "a number from 0 to 1,000,000, or nothing")

    def overrides(self) -> list[str]:
        """As `dpp2 run --set` takes them."""
        network = [f"network.topology={self.topology}", f"network.agents={self.agents}"]
        return [*network, *self._problem(), *(self._three() if self.tier == "three" else self._two())]

    def _problem(self) -> list[str]:
        if self.problem == "paper" or self.tier == "three":  # which has labels of its own
            return []
        curvature = [(-1.0, -1.0, 3.0)[agent % 3] for agent in range(self.agents)]
        return [*_PROBLEMS[self.problem], f"problem.curvature={curvature}"]

    def _two(self) -> list[str]:
        u = self.u if self.noise else 0.0
        return [
            f"run.rounds={self.rounds}",
            f"algorithm.damping={self.damping}",
            *([] if self.eta else ["algorithm.eta=1.0"]),
            f"noise.u_w={u}",
            f"noise.u_e={u}",
            f"noise.decay={self.r}",
        ]

    def _three(self) -> list[str]:
        """ε is what this tier starts from; without one, its own scale is u."""
        scale = f"noise.own={self.u}" if self.epsilon is None else f"privacy.budget={self.epsilon}"
        declared = (
            ["problem.scale=3.53"] if self.agents == PAPER.agents else []
        )  # as experiments/tier-three.toml has it
        return [*_TIER_THREE, *declared, f"noise.ratio={self.ratio}", f"privacy.colluders={self.colluders}", scale]

    def experiment(self) -> tuple[Experiment, list[str]]:
        """The experiment, and the overrides that make it of the paper's."""
        given = self.overrides()
        experiment = Experiment.load(overrides=given)
        if self.epsilon is None or self.tier == "three":
            return experiment, given
        factor = _factor(experiment, self.epsilon)
        scaled = replace(self, u=self.u * factor, epsilon=None)
        return Experiment.load(overrides=scaled.overrides()), scaled.overrides()

    def query(self) -> dict[str, str]:
        """What differs from the paper's, for an address."""
        changed = {name: value for name, value in asdict(self).items() if value != getattr(PAPER, name)}
        return {name: str(int(value) if isinstance(value, bool) else value) for name, value in changed.items()}


PAPER = Controls()
PRESETS: dict[str, Controls] = {
    "The paper": PAPER,
    "Tier one broken": Controls(noise=False),
    "Damped": Controls(damping=1.0),
    "Divergence": Controls(problem="counterexample", topology="complete", agents=6, noise=False),
    "Tier three": Controls(tier="three", epsilon=1.0),
}


def command_line(overrides: list[str]) -> str:
    return " ".join(["dpp2 run", *(f"--set {shlex.quote(one)}" for one in overrides)])


def _factor(experiment: Experiment, epsilon: float) -> float:
    """By what all noise is multiplied so that the worst-off agent spends this ε."""
    from dpp2.privacy import Unsupported  # the server, which has the limits from here, need not load them
    from dpp2.privacy.query import PrivacyQuery

    found = PrivacyQuery.of(experiment).calibrated(epsilon, "scale", published=False)
    if isinstance(found, Unsupported) or not found.feasible:
        raise BadInput("epsilon", epsilon, f"an ε that some noise keeps ({found.reason})")
    return found.factor


_NUMBER = re.compile(r"-?[0-9.]+([eE][-+]?[0-9]+)?|-?inf|nan")


def _parsed(name: str, text: str, default: Any) -> Any:
    """A control's text, of the type of its default."""
    kind = float if default is None else type(default)
    wanted = {bool: "0 or 1", int: "a whole number", float: "a number", str: "a word"}[kind]
    try:
        if name == "epsilon" and text == "":
            return None
        if kind is bool:
            return {"0": False, "1": True}[text]
        if kind in (int, float) and not _NUMBER.fullmatch(text[:40]):  # Python knows more ways to write a number
            raise ValueError(text)
        return kind(text[:40])
    except (ValueError, KeyError):
        raise BadInput(name, text[:40], wanted) from None


def _one_of(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise UnknownName(name, value, value, list(known))


def _number(name: str, value: float, high: float) -> None:
    if not 0 <= value <= high or math.isinf(value):
        raise BadInput(name, value, "a number ≥ 0" if math.isinf(high) else f"a number from 0 to {high:,}")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInput(name, value, f"a whole number from {low} to {high}")
