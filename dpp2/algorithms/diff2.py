"""DIFF2 (Murata and Suzuki 2023): a server and its clients, who send gradient differences. Surety: fair.

Not decentralised: it runs on a star, with agent 0 in the middle. Agent 0 has an objective of its own and so is the
server and a client at once. Round 0 hands the server's x⁰ to everybody; then, with t = k − 1,
    d_i = ∇f_i(x) + N(0, σ²)                                    every `restart` rounds
    d_i = ∇f_i(x) − ∇f_i(x⁻) + ‖x − x⁻‖ · N(0, σ_d²)            otherwise
    v ← (1/N) Σ d_i  after a restart, else  v + (1/N) Σ d_i
    x⁺ = x − η v
Clients send d to the server (phase d), the server sends x⁺ to them (phase x_new). Noise that scales with the step
vanishes as the run converges, so what is left is what the restarts put in.

On a star all weights are equal, and for every kind but plain they are 1/N: what arrives is −(1/N) Σ of what was sent.
Whoever has nothing to say in a phase sends no bytes, which stand for zeros.

On a grid: x and x⁻ are equal in both worlds, so d alone is released, and what it is made of is rounded once; the grid
of a difference is that of its own scale, σ_d‖x − x⁻‖.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import (
    AgentContext,
    AlgorithmSection,
    Broadcast,
    Draw,
    NoiseSection,
    NoisyProgram,
    Private,
    Round,
)
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import Scale, gaussian, per_agent, scale_field
from dpp2.arrays import Array
from dpp2.compression import EVERYTHING, NOTHING, RowEncoding
from dpp2.errors import Inadmissible
from dpp2.privacy.baselines import GaussianDifferenceReleases
from dpp2.privacy.releases import Releases
from dpp2.weights import Spectrum

if TYPE_CHECKING:
    from dpp2.topology import NetworkSection

_SERVER = 0


class Diff2Noise(NoiseSection):
    scales = ("sigma", "sigma_difference")
    tunables = (Tunable("sigma_difference", 0.01, 100.0, relative=True),)

    sigma: Scale = scale_field(0.1)
    sigma_difference: Scale = scale_field(0.1)

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        return {
            "full": gaussian("full", self.sigma, self.grid, context),
            "difference": gaussian("difference", self.sigma_difference, self.grid, context),
        }


@dataclass(frozen=True, eq=False)
class Diff2State:
    """moved: x − x⁻; grad: ∇f(x⁻); v: the server's estimate, 0 with its clients."""

    x: Array
    moved: Array
    grad: Array
    v: Array


class Diff2(NoisyProgram):
    def __init__(self, section: Diff2Section, context: AgentContext, noise: Mapping[str, Draw]) -> None:
        super().__init__(section, context, noise)
        self.eta, self.restart, self.agents = section.eta, section.restart, context.agents
        self.server = (np.asarray(context.owned) == _SERVER)[:, None]

    def start(self, x0: Array) -> Diff2State:
        nothing = np.zeros_like(x0)
        return Diff2State(x=x0, moved=nothing, grad=nothing, v=nothing)

    def round(self, s: Diff2State, k: int) -> Round:
        f, grad = self.objective(s.x)
        restarted = (k - 1) % self.restart == 0
        d, noise, covered = self._released(s, k, grad, restarted)
        Ld = yield Broadcast("d", np.where(self.server, 0.0, d), covered)
        v = np.where(self.server, d / self.agents - Ld, 0.0) + (0.0 if restarted else s.v)
        x = s.x - self.eta * v
        Lx = yield Broadcast("x_new", np.where(self.server, x, 0.0))
        x = np.where(self.server, x, -self.agents * Lx)
        state = Diff2State(x=x, moved=x - s.x, grad=grad, v=v)
        return state, Private(f, grad, {"noise_d": noise}, scalars={})

    def _released(self, s: Diff2State, k: int, grad: Array, restarted: bool) -> tuple[Array, Array, bool]:
        """d, the noise in it, and whether float64 carries both."""
        nothing = np.zeros_like(s.x)
        if k == 0:
            return nothing, nothing, True  # x is not common yet
        if restarted:
            full = self.noise["full"]
            return full.add(k, grad), nothing + full(k), full.covers(k, grad)
        difference, change = self.noise["difference"], grad - s.grad
        size = np.linalg.norm(s.moved, axis=1, keepdims=True)
        return *difference.add_scaled(k, change, size), difference.covers(k, change, size)


class Diff2Section(AlgorithmSection):
    noise_section = Diff2Noise
    phases = ("d", "x_new")
    noises = ("noise_d",)
    scalars = ()
    program_class = Diff2
    step = "eta"
    topology = "star"
    tunables = (Tunable("eta", 1e-2, 3.0), Tunable("restart", 1, 100, least=1, whole=True))
    x_phase, gradient_phase = "x_new", "d"
    algebra = "server"

    name: Literal["diff2"] = "diff2"
    eta: float = Field(0.3, gt=0, description="a number > 0")
    restart: int = Field(10, ge=1, description="a whole number ≥ 1: rounds between full gradients")

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        if abs(eigenvalues.largest - 1) > 1e-9:
            raise Inadmissible(
                "network.weights",
                f"P with λ_max = {eigenvalues.largest:.4g}",
                "weights 1/N on a star (metropolis, laplacian or laplacian-spectral), where λ_max(P) = 1",
            )

    def check_network(self, network: NetworkSection) -> None:
        graph = network.any_graph
        edges = [(_SERVER, client) for client in range(graph.agents) if client != _SERVER]
        if not np.array_equal(graph.edges, edges):
            accepted = f"{self.topology}, the only one that {self.name} runs on (agent {_SERVER} in the middle)"
            raise Inadmissible("network.topology", network.topology, accepted)

    def encoding(self, phase: str, agent: int) -> RowEncoding:
        """Clients speak in phase d and the server in x_new: each edge is used in one direction per phase."""
        return EVERYTHING if (agent == _SERVER) == (phase == "x_new") else NOTHING

    def recovered(self, heard: Heard) -> Recovered:
        """x is public; a client's gradient is the sum of what it has sent since its last full one."""
        d, x_new = heard.phases["d"], heard.phases["x_new"]
        x, grad = np.full_like(d, np.nan), np.full_like(d, np.nan)
        x[1:] = x_new[:-1, [_SERVER]]
        for k in range(1, len(d)):
            restarted = (k - 1) % self.restart == 0
            grad[k] = d[k] if restarted else grad[k - 1] + d[k]
        grad[:, _SERVER] = np.nan  # its own is never sent
        return Recovered(x, grad)

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        """x is public, so the d's are all there is. Gaussian noise has no pure ε; (ε, δ_dp) is in the reason."""
        assert isinstance(noise, Diff2Noise)
        sigmas = (per_agent(s, len(smoothness)).tolist() for s in (noise.sigma, noise.sigma_difference))
        return [
            GaussianDifferenceReleases(
                dimension=dimension,
                smoothness=M,
                adjacency=adjacency,
                sigma=sigma,
                sigma_difference=difference,
                restart=self.restart,
                bits=noise.grid,
            )
            for M, sigma, difference in zip(smoothness.tolist(), *sigmas, strict=True)
        ]
