"""DPP² (paper, Algorithm 1), with the damping τ of the repaired variant; τ = 0 is the paper's algorithm.

One round k of agent i, sums over its neighbours and itself (paper, eqs. for y, z, x, d, q with noise):
    w ~ Lap(u_w r^k),  e ~ Lap(u_e r^k)                  tier two
    y = (1+τ)(x + w) + (1−η) d                           broadcast; mixing with d is tier one
    z = ∇f(x) + η q + ρ Σ_j p_ij y_j + e                 broadcast
    x ← x + w − α (z − e) + β Σ_j p_ij z_j
    d ← d + (η d + y − d)/(1+τ)                          τ = 0: η d + y
    q ← q + (η q + ρ Σ_j p_ij y_j − q)/(1+τ)             τ = 0: η q + ρ Σ_j p_ij y_j
η^k is one secret scalar for the whole network: with one per agent, q = ρLd would break.

On a grid (`dpp2.grid`; R rounds to it, w and e lie on it) the same round reads
    s = R(x) + w,  p = R(∇f(x)) + e                      what is released, in effect
    y = (1+τ) s + (1−η) d,  z = p + R(q⁺)                with the q⁺ = η q + ρ Σ_j p_ij y_j of above
    x ← (s − α q⁺ + β Σ_j p_ij z_j) − α ∇f(x)
y and z are computed from s, p and from what messages and η determine (d, q⁺). So it is enough that s and p are exact,
however large d and q are; and z − e is R(∇f) + R(q⁺) to the bit while float64 carries z. Between adjacent worlds with
the same s and p, all in the brackets is equal, so Δx⁺ = −αΔ∇f: no rounding is in it, and each release pays for its own
rounding only. From x + w instead of s, or along z − e instead of the bare ∇f, the rounding of one round would be a
difference in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dpp2.algorithms import modes
from dpp2.algorithms.base import QUIET, AgentContext, AlgorithmSection, Broadcast, Draw, NoiseSection, Private, Round
from dpp2.algorithms.declared import (
    BOTH_DAMPED,
    BOTH_TIERS,
    NO_PROTECTION,
    TIER_ONE,
    TIER_TWO,
    PlannerModel,
    Tunable,
    TwoTiers,
)
from dpp2.algorithms.noise import DECAY, Decay, Scale, decay_field, laplace, one_for_alike, per_agent, scale_field
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.keys import EtaStream
from dpp2.privacy import Dpp2Releases, Releases, Unsupported
from dpp2.schema import Table
from dpp2.stability import Divergence, Gradient
from dpp2.theory import Condition, conditions
from dpp2.weights import Spectrum, check_step

if TYPE_CHECKING:
    from dpp2.experiment import Experiment
    from dpp2.weights import Matrix

Eta = Annotated[float, Field(gt=0, le=1)]


class Dpp2Noise(NoiseSection):
    scales = ("u_w", "u_e")
    tunables = (DECAY, Tunable("u_e", 0.1, 1000.0, relative=True))

    u_w: Scale = scale_field(1.0)
    u_e: Scale = scale_field(1.0)
    decay: Decay = decay_field(0.9)

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        scales = {"w": self.u_w, "e": self.u_e}
        return {what: laplace(what, u, self.decay, self.grid, context) for what, u in scales.items()}


class Dpp2Section(AlgorithmSection):
    noise_section = Dpp2Noise
    phases = ("y", "z")
    noises = ("w", "e")
    scalars = ("eta",)
    publishes = True
    remedy = "algorithm.damping=1"
    papers_own = True

    tunables = (
        Tunable("alpha", 1e-3, 1.0, together=("beta",)),  # β < α/λ_max(P), which a smaller α alone would break
        Tunable("beta", 0.02, 1.4, relative=True),
        Tunable("rho", 0.1, 100.0),
        Tunable("damping", 0.0, 10.0, "linear", least=0.0),
    )
    variants: ClassVar[Mapping[str, Mapping[str, float]]] = {"dpp2": {"damping": 0.0}, "dpp2-damped": {}}
    x_phase, gradient_phase = "y", "z"
    algebra = "two tiers"

    name: Literal["dpp2"] = "dpp2"
    alpha: float = Field(0.1, gt=0, description='a number > 0, or "auto": α, β and ρ from M̄ and the spectrum of P')
    beta: float = Field(0.05, gt=0, description="a number > 0 and below alpha/λ_max(P)")
    rho: float = Field(10.0, gt=0, description="a number > 0")
    damping: float = Field(0.0, ge=0, description="a number ≥ 0 (0: the paper's algorithm)")
    eta: Literal["uniform"] | Eta | list[Eta] = Field(
        "uniform", description='"uniform", a number in (0, 1] (1: tier one off), or a list with one per round'
    )
    auto_steps: bool | None = Field(None, description='true or nothing: set by alpha = "auto" until it is resolved')
    steps_from_data: bool | None = Field(
        None, description="true or nothing: set where α, β and ρ rest on M̄ of the agents' data"
    )

    @model_validator(mode="before")
    @classmethod
    def _take_auto(cls, table: Any) -> Any:
        if not isinstance(table, dict) or table.get("alpha") != "auto":
            return table
        return {**{key: value for key, value in table.items() if key != "alpha"}, "auto_steps": True}

    def table(self) -> Table:
        """As it was asked for: "auto" stands for all three."""
        table = super().table()
        if self.auto_steps:
            table = {key: value for key, value in table.items() if key not in ("auto_steps", "beta", "rho")}
            table["alpha"] = "auto"
        return table

    def digest_table(self) -> Table:
        """Without the mark: where the steps came from does not change what is computed."""
        return {key: value for key, value in self.table().items() if key != "steps_from_data"}

    def settled(self, experiment: Experiment) -> Experiment:
        if not self.auto_steps:
            return experiment
        from dpp2.algorithms.auto_steps import settled  # for those who resolve

        return settled(experiment, self)

    def remarks(self, experiment: Experiment) -> Iterable[str]:
        if self.steps_from_data:
            rests = "α, β and ρ rest on M̄ of all agents' data"
            yield f"{rests}, which is outside ε: declare privacy.smoothness"

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_step(self.alpha, self.beta, eigenvalues)
        if isinstance(self.eta, list) and len(self.eta) < rounds:
            raise BadInput("algorithm.eta", self.eta, f"at least run.rounds = {rounds} entries, not {len(self.eta)}")

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Dpp2Releases]:
        """Damping does not enter: given the observation and η it changes only how x + w is encoded in y."""
        assert isinstance(noise, Dpp2Noise)
        agents = len(smoothness)
        scales = (per_agent(u, agents).tolist() for u in (noise.u_e, noise.u_w, noise.decay))

        def releases(M: float, u_e: float, u_w: float, r: float) -> Dpp2Releases:
            return Dpp2Releases(
                dimension=dimension,
                alpha=self.alpha,
                smoothness=M,
                adjacency=adjacency,
                u_e=u_e,
                u_w=u_w,
                decay=r,
                bits=noise.grid,
            )

        return one_for_alike(releases, smoothness.tolist(), *scales)

    def instability(self, gradient: Gradient, P: Matrix, x: Array, k: int) -> Divergence:
        return modes.instability(x, gradient, P, self._steps, k)

    def spectral_radius(self, gradient: Gradient, P: Matrix, x: Array) -> float:
        return modes.spectral_radius(x, gradient, P, self._steps)

    @property
    def _steps(self) -> modes.StepParameters:
        return modes.StepParameters(self.alpha, self.beta, self.rho, self.damping)

    def conditions(self, smoothness: float, eigenvalues: Spectrum) -> list[Condition]:
        """The paper's."""
        return conditions(self.alpha, self.beta, self.rho, smoothness, eigenvalues)

    def public(self) -> Self:
        """Whether tier one is on is no secret; its η is."""
        return self.updated(eta="uniform") if self.tier_one else self

    @property
    def tier_one(self) -> bool:
        return self.eta != 1.0

    def two_tiers(self) -> TwoTiers:
        return TwoTiers(self.alpha, self.beta, self.rho, self.damping)

    def protections(self, noise: NoiseSection) -> Mapping[str, tuple[AlgorithmSection, NoiseSection]]:
        assert isinstance(noise, Dpp2Noise)
        if not (np.all(noise.u_w) and np.all(noise.u_e)):
            given = {"u_w": noise.u_w, "u_e": noise.u_e}
            raise BadInput("noise", given, "scales above 0, or tier two protects nothing")
        mixing = self.updated(eta=self.eta if self.tier_one else "uniform", damping=0.0)
        plain, silent = mixing.updated(eta=1.0), noise.updated(u_w=0.0, u_e=0.0)
        damped = mixing.updated(damping=self.damping or 1.0)
        return {
            NO_PROTECTION: (plain, silent),
            TIER_ONE: (mixing, silent),
            TIER_TWO: (plain, noise),
            BOTH_TIERS: (mixing, noise),
            BOTH_DAMPED: (damped, noise),
        }

    def worst_pair(self, releases: Sequence[Releases]) -> Sequence[Dpp2Releases]:
        return [one for one in releases if isinstance(one, Dpp2Releases)]

    def planner_model(self, noise: NoiseSection) -> PlannerModel | Unsupported:
        assert isinstance(noise, Dpp2Noise)
        if isinstance(noise.u_e, list) or isinstance(noise.u_w, list):
            listed = "u_e or u_w is a list with one per agent"
            return Unsupported(f"the planner scales one noise for all agents, and {listed}")
        u_e, u_w = noise.u_e or noise.u_w or 1.0, noise.u_w or noise.u_e or 1.0
        scaled = f"a scale of 0 spends ε = ∞, so this plan scales u_e = {u_e:g} and u_w = {u_w:g}"
        notes = (scaled,) if (u_e, u_w) != (noise.u_e, noise.u_w) else ()
        return PlannerModel(self.alpha, u_e, u_w, notes)

    def program(self, context: AgentContext, noise: NoiseSection) -> Dpp2:
        assert isinstance(noise, Dpp2Noise)
        return Dpp2(self, noise, context)


@dataclass(frozen=True, eq=False)
class Dpp2State:
    """x: the agents' estimates; d, q: the dual variables, with q = ρLd."""

    x: Array
    d: Array
    q: Array


class Dpp2:
    """The round program of DPP² for the agents in `context.owned`."""

    def __init__(self, section: Dpp2Section, noise: Dpp2Noise, context: AgentContext) -> None:
        self.objective = context.objective
        self.alpha, self.beta, self.rho = section.alpha, section.beta, section.rho
        self.damping = section.damping
        self._eta = EtaStream(context.keys.eta) if isinstance(section.eta, str) else section.eta
        self.w, self.e = noise.streams(context).values()

    def quiet(self) -> Dpp2:
        """The same program without noise; nor is η drawn, since x does not depend on it."""
        copied = copy(self)
        copied.w = copied.e = QUIET
        copied._eta = 1.0
        return copied

    def start(self, x0: Array) -> Dpp2State:
        return Dpp2State(x=x0, d=np.zeros_like(x0), q=np.zeros_like(x0))

    def eta(self, k: int) -> float:
        if isinstance(self._eta, list):
            return self._eta[k]
        return self._eta if isinstance(self._eta, float) else self._eta(k)

    def round(self, s: Dpp2State, k: int) -> Round:
        eta = self.eta(k)
        f, grad = self.objective(s.x)  # before anything is sent: whether this round is covered hangs on it
        start = self.w.add(k, s.x)
        y = self._amplified(start) + (1 - eta) * s.d
        Ly = yield Broadcast("y", y, covered=self.w.covers(k, s.x) and self.e.covers(k, grad))
        q = eta * s.q + self.rho * Ly
        Lz = yield Broadcast("z", self.e.add_beside(k, grad, q))
        state = Dpp2State(
            x=start - self.alpha * q + self.beta * Lz - self.alpha * grad,
            d=self._damped(s.d, eta * s.d + y),
            q=self._damped(s.q, q),
        )
        return state, Private(f, grad, noise={"w": self.w(k), "e": self.e(k)}, scalars={"eta": eta})

    def published(self, s: Dpp2State, k: int) -> Array | Unsupported:
        """x^K + w^K, with the very w^K that round K would use."""
        if not self.w.covers(k, s.x):
            return Unsupported(f"the noise w^{k} is finer than float64 can carry beside x^{k}")
        return self.w.add(k, s.x)

    def _amplified(self, v: Array) -> Array:
        """(1+τ) v, which for the paper's τ = 0 is v itself."""
        return (1 + self.damping) * v if self.damping else v

    def _damped(self, old: Array, new: Array) -> Array:
        """The paper's update, or a part 1/(1+τ) of the way to it."""
        return old + (new - old) / (1 + self.damping) if self.damping else new
