"""Best linear estimate of gradients under noise that cancels between neighbours (DPP³).

A gradient round releases r = g + n for all agents at once, n ~ (0, Σ) with Σ = diag σ_j² + B diag σ_e² Bᵀ: the attacker
knows Σ, and gets r from the messages (`AlgorithmSection.recovered`). If it also knew everybody else's gradient, the
best linear unbiased estimate of g_i (Gauss, Markov: generalised least squares) would be

    ĝ_i = r_i + Σ_{j≠i} S_ij (r_j − g_j)/S_ii,     S = Σ⁻¹,     with the error 1/√S_ii in every coordinate.

That is one over the exposure of `dpp2.privacy.correlated`, so ε claims exactly this floor: `informed` reaches it and
cannot go below. An eavesdropper does not know the others' gradients. The mean of all releases is free of edge noise, so
it takes that for each of them (`BestLinear`). Colluders hand over the noise of their edges: less of Σ is left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np

from dpp2.adversary.attacks.algebra import mix
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_parameters, lacks_start, only
from dpp2.adversary.views import View
from dpp2.algorithms.declared import Heard
from dpp2.arrays import Array
from dpp2.privacy.correlated import NoiseNetwork, covariance


class BestLinear(Attack):
    name = "best-linear"
    summary = "Subtracts from every agent's gradient what its neighbours' messages say about their common noise."

    def needs(self, view: View) -> str | None:
        algorithm = view.knowledge.algorithm
        if view.knowledge.noise_network is None:
            return f"rests on noise that neighbours share, but {algorithm.own_name} was run"
        if len(view.agents) < view.observation.shape[1]:
            return "must overhear every agent: their noises belong together"
        if not view.knowledge.noise_network.own.any():
            return "there is no noise: gradients are read as they are"
        return lacks_start(view) or lacks_parameters(view)

    def made_for(self, view: View) -> bool:
        network = view.knowledge.noise_network
        return network is not None and bool(network.own.any())

    def run(self, view: View) -> Estimate:
        network = view.knowledge.noise_network
        assert network is not None  # `needs` has asked
        heard = Heard(view.observation.phases, partial(mix, view.observation.P))
        found = view.knowledge.algorithm.recovered(heard)
        assert found is not None  # who shares noise declares it
        mean = found.gradient.mean(axis=1, keepdims=True)
        W = weights(network)
        grad = mean + np.einsum("ij,kjd->kid", W, found.gradient - mean)
        return Estimate(self.name, x=only(view, found.x), grad=only(view, grad))


def weights(network: NoiseNetwork, colluders: Collection[int] = ()) -> Array:
    """Row i: what the estimate of g_i takes of each release, S_ij/S_ii; nan for colluders.

    In units of the largest own noise, on which no weight depends: the square of a tiny scale would be zero.
    """
    honest = [agent for agent in range(network.agents) if agent not in colluders]
    S = np.linalg.inv(_variances(network.honest(colluders).in_units())[np.ix_(honest, honest)])
    found = np.full((network.agents, network.agents), np.nan)
    found[honest] = 0.0
    found[np.ix_(honest, honest)] = S / S.diagonal()[:, None]
    return found


def _variances(network: NoiseNetwork) -> Array:
    """Σ; Lap(s) has the variance 2s², and a share of it the q-th part."""
    if network.kind == "gaussian":
        return covariance(network)
    share = np.sqrt(2 / network.quorum)
    return covariance(replace(network, own=share * network.own, edge=np.sqrt(2) * network.edge))


def informed(
    released: Array,
    gradients: Array,
    network: NoiseNetwork,
    colluders: Collection[int] = (),
    known: Array | None = None,
) -> Array:
    """Of every honest agent, (K, N, d): by somebody who knows all gradients but the agent's own.

    `known` is what of the honest agents' noise the colluders hand over: that of the edges between them, (K, N, d).
    """
    noise = released - gradients - (0.0 if known is None else known)
    noise[:, list(colluders)] = 0.0
    return np.asarray(gradients + np.einsum("ij,kjd->kid", weights(network, colluders), noise))


def reused_edges(first: Array, second: Array) -> Array:
    """Two runs that drew edge noise from one key: it is the same in both releases, and their difference has none.

    What is left is the difference of the gradients, under own noise alone. This is why every run has a nonce.
    """
    return np.asarray(first - second)
