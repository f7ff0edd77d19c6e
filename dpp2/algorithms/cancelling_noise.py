"""Noise that cancels between neighbours: an agent's own, and what it shares with each neighbour (`privacy.correlated`).

Shared by the algorithms that release gradients under it, as the account assumes: gradient and noise rounded to one
grid, the noise as one sum.

*What a computer draws, beside what the account assumes* (`precision`; N agents, d coordinates, a grid of b bits):

Gauss. Own noise has bins that are right up to a factor 1 ± η, wherever a bin begins (`dpp2.inversion`). So, given the
noise of the edges, every rounded sum is as likely as with exact own noise, up to that factor for each of N·d numbers.
Edge noise is within `edge_noise.WITHIN` of an exact variate. Given the edges, that is a shift of what own noise is
added to, of norm ≤ WITHIN·√(d·Σ_i (Σ_j σ_ij/σ_i)²) in units of own noise: own noise hides it like any other shift, as a
GDP of that μ, and z·μ bounds its loss but for 2^−80 (z = 10.5). Both worlds pay that once: 2·z·μ. An agent without own
noise is hidden by edges alone; there the same is argued only.

Laplace, whole. Own and edge noise are whole steps of the grid, and a shift runs along one path, in whole steps. Along
it every variate costs ln((1 + η)/(1 − η)) in each coordinate: own noise with its η, an edge with s_e/s times that.

Laplace in shares. A share is a double, and so is edge noise. Both are drawn with all their digits, as far as 2^−80, and
an agent's sum is rounded once. That such sums fill the grid as real numbers would is argued and not proven; charged are
bins that are right up to η for every holder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from pydantic import Field

from dpp2 import grid as gridded
from dpp2.algorithms.base import QUIET, AgentContext, Doubles, Draw, NoiseSection
from dpp2.algorithms.noise import Scale, laplace, per_agent
from dpp2.arrays import Array
from dpp2.edge_keys import EdgeSecret
from dpp2.edge_noise import WITHIN, EdgeNoise
from dpp2.errors import BadInput
from dpp2.inversion import Law, Uniforms, gaussian_numbers
from dpp2.keys import Keystream, Noise, _runs, derive
from dpp2.privacy.cancelling import mean_variance
from dpp2.privacy.correlated import Kind, NoiseNetwork
from dpp2.shares import standard_share
from dpp2.topology import Graph

_MOST = 2.0**52  # grid units of a gradient's coordinate: with any noise it stays below 2⁵³
_FARTHEST = 10.5  # σ: Gaussian noise lies beyond with a probability below 2^−80

LARGEST_RATIO = 1e5  # of two scales of noise: the account inverts a matrix of their squares in float64


class CancellingNoise(NoiseSection):
    """Gaussian, from everybody; who has other kinds says so in `law`, `shares` and `own_scales`.

    Scales that are left out are solved for: `cancelling_scales`.
    """

    scales = ("own",)

    own: Scale | None = Field(
        None, description="a number ≥ 0, or a list with one per agent (default: what ε = privacy.budget, or 1, needs)"
    )
    ratio: float = Field(
        100.0,
        ge=0,
        le=LARGEST_RATIO,
        description="a number from 0 to 100,000: scale of edge noise over own noise",
    )
    edge: Scale | None = Field(
        None, description="a number ≥ 0, or a list with one per edge, ascending (default: ratio times the own scale)"
    )

    @property
    def law(self) -> Kind:
        return "gaussian"

    @property
    def shares(self) -> int:
        """q: so many agents carry Lap(own) together."""
        return 1

    def check(self, agents: int) -> None:
        if isinstance(self.own, list) and len(self.own) != agents:
            raise BadInput("noise.own", self.own, f"one entry for each of the {agents} agents, not {len(self.own)}")
        self._check_spread()

    @property
    def reference(self) -> float:
        """The scale that the grid and the edges go by: the largest own one."""
        return float(np.max(self.own)) if self.own is not None else 1.0

    @property
    def g(self) -> float:
        """The grid; 0 without noise, and where noise is in doubles."""
        return float(gridded.grid(self.reference, self.grid)) if self.grid else 0.0

    def own_scales(self, agents: int) -> Array:
        """One per agent."""
        return np.array(per_agent(1.0 if self.own is None else self.own, agents))

    def edge_scales(self, edges: int) -> Array:
        """One per edge."""
        if isinstance(self.edge, list) and len(self.edge) != edges:
            raise BadInput("noise.edge", self.edge, f"one entry for each of the {edges} edges, not {len(self.edge)}")
        return np.broadcast_to(self.ratio * self.reference if self.edge is None else self.edge, edges)

    def _check_spread(self) -> None:
        """Beyond this spread neither the account nor the sums of a round are right in float64."""
        own, edge = self.reference if self.own is None else self.own, self.ratio * self.reference
        scales = np.concatenate(
            [np.atleast_1d(np.asarray(own)), np.atleast_1d(edge if self.edge is None else self.edge)]
        )
        positive = scales[scales > 0]
        if len(positive) and positive.max() > LARGEST_RATIO * (1 + 1e-9) * positive.min():
            spread = f"{positive.min():g} … {positive.max():g}"
            raise BadInput("noise.edge", spread, f"scales within a factor of {LARGEST_RATIO:,.0f}, own ones among them")

    def network(self, graph: Graph) -> NoiseNetwork:
        """Who shares noise with whom, for the accounts."""
        own, edge = self.own_scales(graph.agents), self.edge_scales(len(graph.edges))
        return NoiseNetwork.of(self.law, graph.edges, own, edge, self.shares)

    def variates(self, graph: Graph) -> int:
        """Draws for one coordinate in a gradient round, over the whole graph."""
        per_holder = 1 if self.shares == 1 else 2
        return max(per_holder * int(np.count_nonzero(self.own_scales(graph.agents))) + len(graph.edges), 1)

    def mean_variance(self, agents: int) -> float:
        """Of a coordinate of the agents' mean noise: public."""
        return mean_variance(self.law, self.own_scales(agents), self.shares)

    def precision(self, graph: Graph, dimension: int) -> float:
        """What the finite words of all noise add to the ε of a gradient round: derived above."""
        own, edge = self.own_scales(graph.agents), self.edge_scales(len(graph.edges))
        law, holders = Law(self.law, self.grid), np.flatnonzero(own)
        if not self.grid or not len(holders):
            return 0.0
        if self.law == "laplace":
            path = np.sort(edge / own[holders].min())[::-1][: graph.agents - 1]
            return dimension * (len(holders) if self.shares > 1 else 1 + float(path.sum())) * law.extra_epsilon
        at = np.bincount(graph.edges.ravel(), weights=np.repeat(edge, 2), minlength=graph.agents)
        shift = WITHIN * math.sqrt(dimension) * float(np.linalg.norm(at[holders] / own[holders]))
        return len(holders) * dimension * law.extra_epsilon + 2 * _FARTHEST * shift

    def streams(self, context: AgentContext, gradient_rounds: int | None = None) -> dict[str, Draw]:
        """By gradient round, before rounding. So many are drawn if it is known how many."""
        scales = self.edge_scales(context.edge_count)
        secrets = [EdgeSecret(edge.ends, edge.key, float(scales[edge.number])) for edge in context.edges]
        edge = self.of_edges(secrets, context.owned, context.objective.dimension, gradient_rounds)
        return {"own": self._own(context), "edge": Doubles(edge) if scales.any() else QUIET}

    def of_edges(
        self, secrets: Sequence[EdgeSecret], owned: Sequence[int], dimension: int, gradient_rounds: int | None
    ) -> EdgeNoise:
        """On the grid where all noise is in whole steps of it."""
        g = self.g if self.shares == 1 else 0.0
        return EdgeNoise(self.law, secrets, owned, dimension, g, gradient_rounds)

    def _own(self, context: AgentContext) -> Draw:
        scales = self.own_scales(context.agents)
        if not scales[np.asarray(context.owned)].any():
            return QUIET
        if self.law == "laplace" and self.shares == 1:
            return laplace("own", scales.tolist(), 1.0, self.grid, context)
        return Doubles(_numbers(context, scales, self.law, self.shares))


def released(grad: Array, noise: Mapping[str, Noise], g: float) -> Array:
    """[∇f] + [n], exact multiples of the grid g; as doubles add where g = 0.

    ∇f is cut off at 2⁵² grid units, so float64 carries every sum exactly: both are projections, which bring no two
    values farther apart than rounding does. [own + edges] is computed as [edges] + [own + what this leaves over]: the
    same number, and the small parts are added first, so that no digit of them is lost.
    """
    own, edge = np.zeros_like(grad) + noise["own"], np.zeros_like(grad) + noise["edge"]
    if not g:
        return grad + (own + edge)
    steps = gridded.to_grid(edge, g)
    edge -= steps
    own += edge
    total = gridded.to_grid(np.clip(grad, -_MOST * g, _MOST * g), g)
    total += gridded.to_grid(own, g)
    total += steps
    return total


def _numbers(context: AgentContext, scales: Array, law: Kind, quorum: int) -> Callable[[int], Noise]:
    """Gaussian noise, or shares of Laplace noise, of the agents in `context.owned`: doubles with all their digits."""
    d, column = context.objective.dimension, scales[np.asarray(context.owned)][:, None]
    width = d if quorum == 1 else 2 * d
    slices = [
        (Keystream(derive(key, "noise", f"own {law}")), first * width, count * width)
        for key, first, count in _runs(context.keys.noise, context.owned)
    ]

    def draw(g: int) -> Noise:
        uniforms = Uniforms.of([(stream, g, start, count) for stream, start, count in slices]).reshape(-1, width)
        return gaussian_numbers(uniforms, column) if quorum == 1 else column * standard_share(uniforms, quorum)

    return draw
