"""`algorithm.alpha = "auto"`: α, β and ρ of DPP² from M̄ and the spectrum of P.

A mode with eigenvalue λ of P and curvature h, |h| ≤ M̄, is stable where G_λ(ρλ(1+2τ) + 2h) < 4 and h ≥ −τρλ (`modes`).
The second is a matter of damping, no step decides it. With 0 < G_λ = α − βλ ≤ α the first holds on every mode if
α(ρλ_max(1+2τ) + 2M̄) < 4. Chosen are

    α = 1/(2M̄),    β = α/(2λ_max),    ρ = 2.8 M̄/(λ_max(1+2τ))

which make it 2.4. The paper's own settings (α = 0.1, β = 0.05, ρ = 10 at M̄ = 5.03) are close to these.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dpp2.errors import BadInput
from dpp2.weights import edge_weights, laplacian, spectrum

if TYPE_CHECKING:
    from dpp2.algorithms.dpp2 import Dpp2Section
    from dpp2.experiment import Experiment

_COUPLING = 2.8  # ρλ_max(1+2τ)/M̄


def auto_steps(smoothness: float, largest: float, damping: float) -> tuple[float, float, float]:
    """α, β and ρ for M̄, λ_max(P) and τ."""
    alpha = 1 / (2 * smoothness)
    return alpha, alpha / (2 * largest), _COUPLING * smoothness / (largest * (1 + 2 * damping))


def settled(experiment: Experiment, section: Dpp2Section) -> Experiment:
    """The experiment with the steps filled in. M̄ is the declared one, or else the data's, which is remarked."""
    declared = experiment.privacy.smoothness
    smoothness = float(experiment.objective().smoothness.max()) if declared is None else declared
    if not 0 < smoothness < math.inf:
        raise BadInput("algorithm.alpha", "auto", "a number: no M̄ is known here (privacy.smoothness declares one)")
    graph = experiment.network.graph()
    largest = spectrum(laplacian(graph, edge_weights(graph, experiment.network.weights))).largest
    alpha, beta, rho = auto_steps(smoothness, largest, section.damping)
    chosen = section.updated(
        alpha=alpha, beta=beta, rho=rho, auto_steps=None, steps_from_data=None if declared is not None else True
    )
    return replace(experiment, algorithm=chosen)
