"""What an attacker knows besides what it overheard. Public fields only: with the seed everything would follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dpp2.algorithms.dpp2 import Dpp2Noise, Dpp2Section
from dpp2.algorithms.noise import per_agent
from dpp2.arrays import Array, frozen
from dpp2.experiment import Experiment

# What anybody may know of a problem: its form, never what it was drawn from (the seed) nor where data lie (paths).
_PUBLIC_FORM = ("name", "dimension", "samples", "lambda", "omega")


@dataclass(frozen=True, eq=False)
class Own:
    """What a participant has of itself: its own rows (K, d), noise included."""

    agent: int
    x: Array
    grad: Array
    w: Array
    e: Array


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Parameters (None: hidden from this attacker), noise scales (one per agent), the public form of the problem.

    η and the rows of its own are known to a participant only.
    """

    algorithm: str
    alpha: float | None = None
    beta: float | None = None
    rho: float | None = None
    damping: float | None = None
    u_w: Array | None = None
    u_e: Array | None = None
    decay: Array | None = None
    problem: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of another algorithm, by name; empty: hidden
    eta: Array | None = None
    own: Own | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> Knowledge:
        """What a published experiment says, without its secrets and without what its data follow from."""
        section, noise, agents = experiment.algorithm, experiment.noise, experiment.network.agents
        table = experiment.problem.table()
        form = MappingProxyType({key: table[key] for key in _PUBLIC_FORM if key in table})
        if not isinstance(section, Dpp2Section) or not isinstance(noise, Dpp2Noise):
            return cls(section.name, problem=form, parameters=MappingProxyType(section.table()))
        u_w, u_e, decay = (frozen(per_agent(value, agents)) for value in (noise.u_w, noise.u_e, noise.decay))
        return cls(
            section.name, section.alpha, section.beta, section.rho, section.damping, u_w, u_e, decay, problem=form
        )

    def hidden(self) -> Knowledge:
        """The same attacker without the algorithm's parameters."""
        return replace(self, alpha=None, beta=None, rho=None, damping=None, parameters={})

    def participant(self, own: Own, eta: Array) -> Knowledge:
        """One who takes part: it knows η and its own rows."""
        return replace(self, own=own, eta=eta)

    @property
    def t(self) -> float:
        """1 + τ; an attacker who does not know of damping takes the paper's algorithm, τ = 0."""
        return 1.0 + (self.damping or 0.0)

    @property
    def identifiable(self) -> dict[str, float]:
        """What messages can tell of the parameters: (1+τ)α and (1+τ)β. Damping by τ looks like longer steps."""
        known = {"alpha": self.alpha, "beta": self.beta}
        return {name: self.t * value for name, value in known.items() if value is not None}

    def scale(self, which: str, rounds: Array) -> Array | None:
        """Standard deviations √2·u·r^k of one noise ("w" or "e"), (len(rounds), N); None where they are hidden."""
        u = self.u_w if which == "w" else self.u_e
        if u is None or self.decay is None:
            return None
        with np.errstate(under="ignore"):
            return np.asarray(np.sqrt(2.0) * u * self.decay ** rounds[:, None])
