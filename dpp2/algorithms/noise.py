"""What the algorithms' noise sections and noise streams have in common: settings per agent, Laplace, Gauss, indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.algorithms.base import AgentContext, Doubles, Draw, NoiseSection
from dpp2.algorithms.declared import Tunable
from dpp2.arrays import Array
from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import SILENCE, Noise, NoiseStream, Words, uniform

Scale = Annotated[float, Field(ge=0)] | list[Annotated[float, Field(ge=0)]]
Decay = Annotated[float, Field(ge=0, le=1)] | list[Annotated[float, Field(ge=0, le=1)]]
Indices = NDArray[np.intp]
DECAY = Tunable("decay", 0.3, 1.0, "linear", least=0.0, most=1.0)
Made = TypeVar("Made")


def scale_field(default: float) -> Any:
    """A field for the first scale of a noise."""
    return Field(default, description="a number ≥ 0, or a list with one per agent")


def decay_field(default: float) -> Any:
    """A field for the factor by which scales shrink from round to round."""
    return Field(default, description="a number in [0, 1] (0: noise in round 0 only), or a list with one per agent")


class LaplaceNoise(NoiseSection):
    """Scales u_x, u_y, … with one decay: on x there is `noise_x` ~ Lap(u_x r^k), and so on."""

    tunables: ClassVar[tuple[Tunable, ...]] = (DECAY,)

    decay: Decay = decay_field(0.9)

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        of = {scale.removeprefix("u_"): getattr(self, scale) for scale in self.scales}
        return {f"noise_{what}": laplace(what, u, self.decay, self.grid, context) for what, u in of.items()}


class XNoise(LaplaceNoise):
    """Laplace noise on the one thing that is sent, x. Off by default: the textbook methods have none."""

    scales: ClassVar[tuple[str, ...]] = ("u_x",)

    u_x: Scale = scale_field(0.0)


def one_for_alike(make: Callable[..., Made], *columns: Sequence[float]) -> list[Made]:
    """`make` of every agent's values; agents with the same values share what is made, and there may be a million."""
    made: dict[tuple[float, ...], Made] = {}
    rows = list(zip(*columns, strict=True))
    for row in set(rows):
        made[row] = make(*row)
    return [made[row] for row in rows]


def per_agent(value: float | list[float], agents: int) -> Array:
    """A setting that may be one number for all, as one number each."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), agents)


def laplace(purpose: str, u: float | list[float], decay: float | list[float], bits: int, context: AgentContext) -> Draw:
    """Lap(u r^k) for the agents in `context.owned`, on a grid of so many bits; 0 bits: in doubles."""
    scales = _owned(u, context), _owned(decay, context)
    where = context.keys.noise, purpose, context.owned, context.objective.dimension
    return GridNoise(*where, scales, Law("laplace", bits)) if bits else Doubles(NoiseStream(*where, *scales))


def gaussian(purpose: str, sigma: float | list[float], bits: int, context: AgentContext) -> Draw:
    """N(0, σ²), the same in every round, for the agents in `context.owned`, on a grid or in doubles (0 bits)."""
    scales = _owned(sigma, context), np.ones(len(context.owned))
    where = context.keys.noise, purpose, context.owned, context.objective.dimension
    if bits:
        return GridNoise(*where, scales, Law("gaussian", bits))
    return Doubles(_box_muller(purpose, scales[0], context))


def _owned(value: float | list[float], context: AgentContext) -> Array:
    return np.asarray(per_agent(value, context.agents)[np.asarray(context.owned)])


def _box_muller(purpose: str, sigma: Array, context: AgentContext) -> Callable[[int], Noise]:
    """Two words for each variate."""
    column = sigma[:, None]
    words = _words(purpose, context, 2 * context.objective.dimension)

    def draw(k: int) -> Noise:
        if not column.any():
            return SILENCE
        radius, angle = np.split(uniform(words(k)), 2, axis=1)
        return np.asarray(column * np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))

    return draw


def indices(purpose: str, counts: Indices, context: AgentContext) -> Callable[[int], Indices]:
    """For every agent in `context.owned` one whole number below its count, uniform, anew in every round."""
    words = _words(purpose, context, 1)
    return lambda k: (uniform(words(k))[:, 0] * counts).astype(np.intp)


def _words(purpose: str, context: AgentContext, width: int) -> Callable[[int], Words]:
    """`width` words of the keystream for each agent in `context.owned`."""
    ones = np.ones(len(context.owned))
    slices = NoiseStream(context.keys.noise, purpose, context.owned, width, ones, ones).slices

    def words(k: int) -> Words:
        return np.concatenate([stream.words(k, start, count) for stream, start, count in slices]).reshape(-1, width)

    return words
