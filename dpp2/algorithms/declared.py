"""What an algorithm declares about itself, so that nobody has to ask which algorithm it is.

The studies, the attacks, the planner and the command line ask a section for one of these. Each has a default in
`base.AlgorithmSection`, so a new algorithm states only what is special about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dpp2.arrays import Array
from dpp2.privacy.epsilon_value import Epsilon

# Which public algebra the messages obey; an attack that rests on one asks for it.
#   two tiers     y and z of DPP²: see `TwoTiers`
#   one message   x + noise once a round; `recovered` solves the update for the gradient
#   tracking      x and the tracked gradient, plain or compressed; `recovered` adds up the changes
#   server        clients send gradients to a server that sends x back; `recovered` adds up the differences
Algebra = Literal["two tiers", "one message", "tracking", "server"]

# What a comparison of protections runs, by name: see `AlgorithmSection.protections`.
NO_PROTECTION, TIER_ONE, TIER_TWO, BOTH_TIERS, BOTH_DAMPED = (
    "no protection",
    "tier one",
    "tier two",
    "both tiers",
    "both tiers damped",
)


@dataclass(frozen=True)
class Tunable:
    """A setting that a search may vary: from `low` to `high`, evenly on the given scale.

    With `relative` these are factors on what the section has, as for the ratio of two scales of noise. Settings in
    `together` are multiplied by the factor by which this one changes. A search whose best value lies at an end of the
    range goes on beyond it, as far as `least` and `most`: no setting has a meaning there.
    """

    key: str  # of its section, such as "alpha"
    low: float
    high: float
    scale: Literal["log", "linear"] = "log"
    relative: bool = False
    together: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = False  # whether it takes whole numbers only


@dataclass(frozen=True)
class TwoTiers:
    """The public parameters of DPP²'s two messages, for whoever knows their algebra."""

    alpha: float
    beta: float
    rho: float
    damping: float


@dataclass(frozen=True)
class PlannerModel:
    """What the planner's model of DPP² takes: the step, the scales that it multiplies, and what it must remark."""

    alpha: float
    u_e: float
    u_w: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GradientSchedule:
    """Public parameters of a method whose few gradients, each in round g·T, are followed by mixing alone."""

    steps: tuple[float, ...]  # α_g
    mixings: int  # T
    first_averaged: int
    smoothness: float  # M̄, 0 where nobody knows it
    shrinkage: float  # κ


@dataclass(frozen=True)
class Calibrated:
    """Settings that keep a budget, by the names that an override gives them, and what they spend."""

    solved: str
    feasible: bool
    settings: Mapping[str, float]
    epsilon: Epsilon
    reason: str | None = None  # why it is infeasible


@dataclass(frozen=True, eq=False)
class Heard:
    """All messages from round 0 on: (K, N, d) for every phase, NaN where nothing was overheard.

    `mix` gives Σ_j p_ij rows_j of such an array.
    """

    phases: Mapping[str, Array]
    mix: Callable[[Array], Array]

    def only(self) -> OneMessage:
        """Of an algorithm that sends one message a round."""
        (m,) = self.phases.values()
        after = np.concatenate([m[1:], np.full_like(m[:1], np.nan)])
        return OneMessage(m, self.mix(m), after, np.arange(len(m), dtype=np.float64)[:, None, None])


class OneMessage(NamedTuple):
    """The messages m (K, N, d), P m, the messages of the next round (NaN in the last one), and k (K, 1, 1)."""

    m: Array
    Pm: Array
    after: Array
    k: Array


class Recovered(NamedTuple):
    """x̂ and ĝ (K, N, d): what messages and parameters alone say, NaN where they say nothing."""

    x: Array
    gradient: Array
