"""Noise that cancels between neighbours: an agent's own, and what it shares with each neighbour (`privacy.correlated`).

Shared by the algorithms that release gradients under it, as the account assumes: gradient and noise rounded to one
grid, the noise as one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from pydantic import Field

from dpp2 import grid as gridded
from dpp2.algorithms.base import QUIET, AgentContext, Doubles, Draw, NoiseSection
from dpp2.algorithms.noise import Scale, per_agent
from dpp2.arrays import Array
from dpp2.edge_keys import EdgeNoise, EdgeSecret, standard_gaussian
from dpp2.errors import BadInput
from dpp2.keys import Keystream, Noise, Words, _runs, derive, standard_laplace
from dpp2.privacy.cancelling import mean_variance
from dpp2.privacy.correlated import Kind, NoiseNetwork
from dpp2.shares import standard_share
from dpp2.topology import Graph

_MOST = 2.0**52  # grid units of a gradient's coordinate: with any noise it stays below 2⁵³


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

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        """By gradient round, before rounding."""
        scales = self.edge_scales(context.edge_count)
        secrets = [EdgeSecret(edge.ends, edge.key, float(scales[edge.number])) for edge in context.edges]
        edge = EdgeNoise(self.law, secrets, context.owned, context.objective.dimension)
        return {"own": Doubles(self._own(context)), "edge": Doubles(edge) if scales.any() else QUIET}

    def _own(self, context: AgentContext) -> Callable[[int], Noise]:
        column = self.own_scales(context.agents)[np.asarray(context.owned)][:, None]
        if not column.any():
            return QUIET
        d = context.objective.dimension
        width = 2 * ((d + 1) // 2) if self.law == "gaussian" else d if self.shares == 1 else 2 * d
        words = _words(context, f"own {self.law}", width)
        return lambda g: np.asarray(column * self._standard(words(g))[:, :d])

    def _standard(self, words: Words) -> Array:
        if self.law == "gaussian":
            return standard_gaussian(words)
        return standard_laplace(words) if self.shares == 1 else standard_share(words, self.shares)


def released(grad: Array, noise: Mapping[str, Noise], g: float) -> Array:
    """[∇f] + [n], exact multiples of the grid g; as doubles add where g = 0.

    ∇f is cut off at 2⁵² grid units, so float64 carries every sum exactly: both are projections, which bring no two
    values farther apart than rounding does.
    """
    total = np.zeros_like(grad) + noise["own"] + noise["edge"]
    if not g:
        return grad + total
    return gridded.to_grid(np.clip(grad, -_MOST * g, _MOST * g), g) + gridded.to_grid(total, g)


def _words(context: AgentContext, purpose: str, width: int) -> Callable[[int], Words]:
    """`width` words of the keystream for each agent in `context.owned`."""
    slices = [
        (Keystream(derive(key, "noise", purpose)), first * width, count * width)
        for key, first, count in _runs(context.keys.noise, context.owned)
    ]

    def words(g: int) -> Words:
        return np.concatenate([stream.words(g, start, count) for stream, start, count in slices]).reshape(-1, width)

    return words
