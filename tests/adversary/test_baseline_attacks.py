"""Attacks on the methods that DPP² is compared with: exact without noise, as good as the noise with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Result, run
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.attacks.increments import Increments
from dpp2.adversary.attacks.server import Server
from dpp2.adversary.attacks.tracked import Tracked
from dpp2.adversary.findings import Finding, Skipped, attempt
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.views import View, global_view, local_view
from dpp2.algorithms import ALGORITHMS

NAMES = [name for name in ALGORITHMS.names if name != "dpp2"]
OF: dict[str, Attack] = {
    **dict.fromkeys(("gradient-tracking", "diadsp", "pgtc"), Tracked()),
    "diff2": Server(),
}
SMALL: dict[str, Any] = {"network.agents": 7, "problem.dimension": 4, "run.rounds": 60}


def made(name: str, **more: Any) -> Result:
    topology = {} if name == "diff2" else {"network.topology": "ring"}
    return run(Experiment.load(overrides={**SMALL, **topology, "algorithm.name": name, **more}))


def overheard(result: Result) -> tuple[View, Truth]:
    assert result.observation is not None
    assert result.truth is not None
    view = global_view(Observation.of(result.observation), Knowledge.of(result.experiment))
    return view, Truth.of(result.truth, result.experiment)


def errors(name: str, **more: Any) -> tuple[float | None, float | None]:
    """Of x and of the gradient, by the attack on the method's family."""
    view, truth = overheard(made(name, **more))
    found = attempt(OF.get(name, Increments()), view, truth)
    assert isinstance(found, Finding)
    return found.error("x"), found.error("gradient")


@pytest.mark.parametrize("name", ["dgd", "extra", "gradient-tracking", "prox-gpda", "yi"])
def test_a_method_without_noise_gives_everything_away(name: str) -> None:
    x, gradient = errors(name)
    assert x is not None
    assert gradient is not None
    assert x < 1e-14
    assert gradient < 1e-11


@pytest.mark.parametrize("name", ["ppdc", "diadsp", "pgtc", "wang-nedic", "wang-basar", "diff2"])
def test_positive_control_of_every_other_method_is_its_noise_off(name: str) -> None:
    """Off, or as good as off; what compression takes away (pgtc) stays in the way."""
    scales = Experiment.load(overrides={"algorithm.name": name}).noise.scales
    x, gradient = errors(name, **{f"noise.{scale}": 1e-13 for scale in scales})
    assert x is not None
    assert gradient is not None
    assert x < (1e-2 if name == "pgtc" else 1e-9)
    assert gradient < (1e-2 if name == "pgtc" else 1e-8)


def test_dmsp_gives_away_the_gradient_at_the_point_where_it_takes_it() -> None:
    view, truth = overheard(made("dmsp", **{"noise.u_x": 0.0}))
    grad = Increments().run(view).grad
    assert grad is not None
    assert truth.objective is not None
    y, P = view.observation.phases["y"], view.observation.P
    for k in range(len(y) - 1):
        np.testing.assert_allclose(grad[k], truth.objective(y[k] - P @ y[k])[1], atol=1e-12)


@pytest.mark.parametrize(("name", "more"), [("prox-gpda", {"noise.u_x": 1.0}), ("ppdc", {"noise.u_v": 0.0})])
def test_noise_that_has_decayed_hides_nothing(name: str, more: dict[str, Any]) -> None:
    early, late = (errors(name, **more, **{"noise.decay": 0.8, "run.rounds": rounds}) for rounds in (20, 140))
    assert early[1] is not None
    assert late[1] is not None
    assert early[1] > 0.1
    assert late[1] < 1e-6


def test_diadsps_noise_on_x_hides_the_first_x_only() -> None:
    """W x^a − αy^a is off by αξ: with u_x = 2, u_y = 5 and α = 0.01 some forty times closer than the message itself."""
    view, truth = overheard(made("diadsp"))
    x = Tracked().run(view).x
    assert x is not None
    read, worked_out = (np.linalg.norm(one - truth.x, axis=(1, 2)) for one in (view.observation.phases["xa"], x))
    assert (worked_out[1:] < 0.1 * read[1:]).all()
    assert worked_out[0] == read[0]


def test_diadsp_leaks_every_change_of_the_gradient() -> None:
    """ĝ = g + Σξ, and the sum stands still: differences between late rounds come back though g itself does not."""
    view, truth = overheard(made("diadsp", **{"noise.decay": 0.6, "run.rounds": 80}))
    grad = Tracked().run(view).grad
    assert grad is not None
    off = grad - truth.grad
    assert np.linalg.norm(off[-1]) > 0.1 * np.linalg.norm(truth.grad[-1])
    assert np.abs(off[-1] - off[-20]).max() < 1e-9
    assert np.abs(truth.grad[-1] - truth.grad[-20]).max() > 1e-6  # there was a change to find


def test_push_sum_sends_x_whatever_the_noise() -> None:
    x, _ = errors("privsgp-vr", **{"noise.sigma": 10.0})
    assert x is not None
    assert x < 1e-14


@pytest.mark.parametrize("name", NAMES)
def test_direct_and_one_attack_on_its_family_apply_to_every_method(name: str) -> None:
    view, truth = overheard(made(name, **{"run.rounds": 12}))
    tried = {one.name: attempt(one, view, truth) for one in ATTACKS}
    ran = {key for key, found in tried.items() if isinstance(found, Finding)}
    family = OF.get(name, Increments()).name
    assert {"prior", "direct", family} <= ran
    assert ran & {"increments", "tracked", "server"} == {family}


@pytest.mark.parametrize("name", ["dgd", "diadsp", "diff2"])
def test_without_parameters_or_the_beginning_the_attacks_say_so(name: str) -> None:
    view, truth = overheard(made(name, **{"run.rounds": 6}))
    attack = OF.get(name, Increments())
    blind = View(view.attacker, view.observation, view.knowledge.hidden(), view.agents)
    skipped = attempt(attack, blind, truth)
    assert isinstance(skipped, Skipped)
    assert "parameters" in skipped.reason
    late = Observation({key: rows[2:] for key, rows in view.observation.phases.items()}, view.observation.P, first=2)
    assert "round 0" in (attack.needs(View("global", late, view.knowledge, view.agents)) or "")


@pytest.mark.parametrize("attack", [Increments(), Tracked(), Server()])
def test_dpp2_is_none_of_their_business(attack: Attack) -> None:
    view, truth = overheard(made("dpp2", **{"run.rounds": 5}))
    assert isinstance(attempt(attack, view, truth), Skipped)


@pytest.mark.parametrize("name", ["dgd", "gradient-tracking", "yi"])
def test_one_victims_channels_are_enough(name: str) -> None:
    view, truth = overheard(made(name))
    at_the_door = local_view(view.observation, view.knowledge, 3)
    found = attempt(OF.get(name, Increments()), at_the_door, truth)
    assert isinstance(found, Finding)
    assert (found.error("gradient") or 1.0) < 1e-11
