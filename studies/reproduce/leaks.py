"""What an eavesdropper on all channels makes of each method, with everything that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpp2 import Experiment, run
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.findings import Finding, attempt
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.views import global_view
from dpp2.algorithms import ALGORITHMS

# Every algorithm is attacked with its defaults, and with these settings, which make a difference to an attacker.
_ALSO: Mapping[str, Mapping[str, object]] = {
    "dpp2, τ = 1": {"algorithm.damping": 1.0},
    "dgd, u_x = 1": {"algorithm.name": "dgd", "noise.u_x": 1.0},
    "prox-gpda, u_x = 1": {"algorithm.name": "prox-gpda", "noise.u_x": 1.0},
    "ppdc, u_v = 0": {"algorithm.name": "ppdc", "noise.u_v": 0.0},
}

Best = tuple[str, float]  # the attack, and its relative error


@dataclass(frozen=True)
class Leak:
    """What the best attack on one method came to; None where none applies."""

    method: str
    x: Best | None
    gradient: Best | None


def leaks(rounds: int) -> list[Leak]:
    settings = {name: {"algorithm.name": name} for name in ALGORITHMS.names} | dict(_ALSO)
    found = {label: _attacked({"run.rounds": rounds, **overrides}) for label, overrides in settings.items()}
    return [Leak(label, _best(findings, "x"), _best(findings, "gradient")) for label, findings in found.items()]


def _best(findings: Sequence[Finding], what: str) -> Best | None:
    errors = [(one.name, error) for one in findings if (error := one.error(what)) is not None]
    return min(errors, key=lambda pair: pair[1], default=None)


def _attacked(overrides: Mapping[str, object]) -> list[Finding]:
    result = run(Experiment.load(overrides=overrides))
    assert result.observation is not None
    assert result.truth is not None
    view = global_view(Observation.of(result.observation), Knowledge.of(result.experiment))
    truth = Truth.of(result.truth, result.experiment)
    tried = [attempt(one, view, truth) for one in ATTACKS if one.compared]
    return [one for one in tried if isinstance(one, Finding)]
