"""What an attack is: a pure function of a view, that says beforehand why it would not apply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpp2.adversary.views import View
from dpp2.algorithms.declared import Algebra
from dpp2.arrays import Array


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an attack claims; NaN, or None for a whole quantity, where it claims nothing.

    x, grad: (K, N, d) for x_i^k and ∇f_i(x_i^k); eta: (K,). `parameters` are numbers of the algorithm as far as
    messages can tell them (`Knowledge.identifiable`), `curves` the same per round (K,), and `data` what was found of
    the agents' data, one row per agent.
    """

    name: str
    x: Array | None = None
    grad: Array | None = None
    eta: Array | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Array] = field(default_factory=dict)
    data: Mapping[str, Array] = field(default_factory=dict)


class Attack(ABC):
    """One attack, and what reports need to know of it. `summary` is one sentence."""

    name: ClassVar[str]
    summary: ClassVar[str]
    listens: ClassVar[bool] = True  # False: the yardstick, which recovers nothing whatever its error is
    compared: ClassVar[bool] = True  # in tables of the least error of x and of gradients
    excludes: ClassVar[bool] = False  # it estimates nothing, but says which objectives are impossible
    rounds_in_a_row: ClassVar[int | None] = None  # so many are enough, wherever they lie; None: it takes more
    quick: ClassVar[bool] = True  # it can be run again and again while a run goes on
    algebra: ClassVar[Algebra | None] = None  # which the messages that it rests on obey; None: whatever they obey

    @abstractmethod
    def needs(self, view: View) -> str | None:
        """What this view lacks for the attack, as a sentence; None if it can be run."""

    def made_for(self, view: View) -> bool:
        """Whether what was run, and what this attacker knows and is after, are what this attack is for.

        Until all such attacks have been run, that nothing was recovered says nothing for a protection.
        """
        return self.algebra in (None, view.knowledge.algorithm.algebra)

    @abstractmethod
    def run(self, view: View) -> Estimate: ...


def lacks_messages(view: View) -> str | None:
    """Most attacks rest on the algebra of DPP²'s two messages."""
    if view.knowledge.algorithm.algebra != "two tiers":
        return f"rests on the messages y and z of DPP², but {view.knowledge.algorithm.own_name} was run"
    return None if view.agents else "no agent was overheard"


def lacks_steps(view: View) -> str | None:
    """i_k = −αz + βPz takes α and β."""
    if view.knowledge.alpha is None or view.knowledge.beta is None:
        return "needs α and β, which this attacker does not know"
    return None


def lacks_parameters(view: View) -> str | None:
    """Steps and weights, of whatever algorithm."""
    if not view.knowledge.parameters_known:
        return "needs the algorithm's parameters, which this attacker does not know"
    return None


def lacks_start(view: View) -> str | None:
    """D⁰ = 0 is known only to who has listened from the start."""
    if view.observation.first:
        return f"must listen from round 0 on, but this record begins with round {view.observation.first}"
    return None


def only(view: View, values: Array | None) -> Array | None:
    """Claims about the agents that this attacker is after, NaN for all others; None where no claim is left."""
    if values is None:
        return None
    kept = np.full_like(values, np.nan)
    agents = list(view.agents)
    kept[:, agents] = values[:, agents]
    return None if np.isnan(kept).all() else kept
