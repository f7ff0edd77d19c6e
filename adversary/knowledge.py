"""What an attacker knows before it listens. Public fields only: with the seed everything would follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpp2.algorithms.base import AlgorithmSection
from dpp2.algorithms.declared import TwoTiers
from dpp2.algorithms.noise import per_agent
from dpp2.arrays import Array, frozen
from dpp2.experiment import Experiment
from dpp2.privacy import Unsupported
from dpp2.privacy.correlated import NoiseNetwork
from dpp2.records import Records


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
    """The algorithm as published, the first scale of each noise and its decay (one per agent), the form of the problem.

    `parameters_known` is False for an attacker who knows which algorithm is run, but not with which numbers. η and the
    rows of its own are known to a participant only.
    """

    algorithm: AlgorithmSection
    scales: Mapping[str, Array] = field(default_factory=dict)  # by the name of the noise, such as "w"; empty: hidden
    decay: Array | float = 1.0
    grid: int = 0  # bits of the grid that values and noise lie on (`dpp2.grid`); 0: doubles
    problem: Mapping[str, Any] = field(default_factory=dict)
    affine_gradient: bool = False  # whether every agent's gradient is known to be
    logistic_products: bool = False  # whether `problem` is the logistic loss of products (`ProblemSection`)
    parameters_known: bool = True
    noise_network: NoiseNetwork | None = None  # who shares noise with whom, where anybody does
    eta: Array | None = None
    own: Own | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> Knowledge:
        """What a published experiment says, without its secrets and without what its data follow from."""
        noise, agents = experiment.noise, experiment.network.agents
        form = dict(experiment.problem.public_form())
        scales = {name.removeprefix("u_"): frozen(per_agent(getattr(noise, name), agents)) for name in noise.scales}
        decay = frozen(per_agent(getattr(noise, "decay", 1.0), agents))
        affine, products = experiment.problem.affine_gradient, experiment.problem.logistic_products
        section, shared = experiment.algorithm.public(), experiment.algorithm.noise_network(experiment)
        known = cls(section, Records(scales), decay, noise.grid, form, affine, products)
        return known if isinstance(shared, Unsupported) else replace(known, noise_network=shared)

    def hidden(self) -> Knowledge:
        """The same attacker without the algorithm's parameters."""
        return replace(self, parameters_known=False)

    def participant(self, own: Own, eta: Array) -> Knowledge:
        """One who takes part: it knows η and its own rows."""
        return replace(self, own=own, eta=eta)

    @property
    def two_tiers(self) -> TwoTiers | None:
        """α, β, ρ and τ, if they are known and the algorithm has them."""
        return self.algorithm.two_tiers() if self.parameters_known else None

    @property
    def alpha(self) -> float | None:
        return self.two_tiers.alpha if self.two_tiers else None

    @property
    def beta(self) -> float | None:
        return self.two_tiers.beta if self.two_tiers else None

    @property
    def rho(self) -> float | None:
        return self.two_tiers.rho if self.two_tiers else None

    @property
    def t(self) -> float:
        """1 + τ; an attacker who does not know of damping takes the paper's algorithm, τ = 0."""
        return 1.0 + (self.two_tiers.damping if self.two_tiers else 0.0)

    @property
    def identifiable(self) -> dict[str, float]:
        """What messages can tell of the parameters: (1+τ)α and (1+τ)β. Damping by τ looks like longer steps."""
        known = {"alpha": self.alpha, "beta": self.beta}
        return {name: self.t * value for name, value in known.items() if value is not None}

    def scale(self, which: str, rounds: Array) -> Array | None:
        """Standard deviations √2·u·r^k of one noise ("w" or "e"), (len(rounds), N); None where they are hidden."""
        if which not in self.scales:
            return None
        with np.errstate(under="ignore"):
            return np.asarray(np.sqrt(2.0) * self.scales[which] * self.decay ** rounds[:, None])
