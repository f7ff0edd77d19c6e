"""The scorer's side of attacks that rule out candidates: it alone knows which of two gradients is the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpp2.adversary.attacks.float_bits import Excludes, ruled_out_share
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.scoring import Truth
from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import NoiseStream, seed_key
from dpp2.privacy.account import adjacency_of


def ruled_out(excludes: Excludes, truth: Truth, agents: Sequence[int]) -> dict[str, float]:
    """The shares of true and of δ-adjacent gradients at x⁰ that are ruled out: a sound test has 0 for the first.

    The adjacent one is δ away along (1, …, 1), where coordinate-wise Laplace noise is weakest. Beside them: the ε of
    that one message, √d·δ/u, and |value|/u, on which such shares depend (the medians over agents).
    """
    assert truth.experiment is not None
    right, rows = truth.grad[0], list(agents)
    adjacency, d = adjacency_of(truth.experiment), right.shape[1]
    wrong = right + adjacency / np.sqrt(d)
    u = Knowledge.of(truth.experiment).scales["e"][rows]
    return {
        "true_ruled_out": float(excludes(right)[rows].mean()),
        "adjacent_ruled_out": float(excludes(wrong)[rows].mean()),
        "message_epsilon": float(np.median(np.sqrt(d) * adjacency / u)),
        "value_over_scale": float(np.median(np.abs(right[rows]).max(axis=1) / u)),
    }


@dataclass(frozen=True)
class Setting:
    """Messages of value + Lap(u): how large values are beside u, and the ε of exchanging one for an adjacent one."""

    epsilon: float
    ratio: float  # |value|/u
    bits: int = 0  # of the grid; 0: doubles
    dimension: int = 10


def share_in(setting: Setting, messages: int, seed: int = 1) -> float:
    """The share of so many messages, drawn by the noise streams that runs use, that rule out the adjacent value.

    u = 1. A value that is off by ε/d in every coordinate is δ = ε/√d away, and √d·δ/u = ε.
    """
    d, ones = setting.dimension, np.ones(messages)
    where = [seed_key(seed)] * messages, "e", range(messages), d
    right = setting.ratio * np.random.default_rng(seed).standard_normal((messages, d))
    if setting.bits:
        sent = GridNoise(*where, (ones, ones), Law("laplace", setting.bits)).add(0, right)
    else:
        sent = right + np.asarray(NoiseStream(*where, ones, ones)(0))
    return ruled_out_share(sent, right, right + setting.epsilon / d, 1.0, setting.bits)
