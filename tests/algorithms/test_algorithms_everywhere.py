"""Every algorithm: the same numbers from the same seed, in blocks, in agents apart, and after a stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.base import AgentContext
from dpp2.arrays import Array
from dpp2.errors import Inadmissible
from dpp2.node.mixing import Mixer
from dpp2.weights import edge_weights
from tests.algorithms.hosted import NAMES, Tables

ROUNDS = 12


def small(name: str, **more: Any) -> Experiment:
    tables: Tables = {
        "run.rounds": ROUNDS,
        "network.agents": 7,
        "network.topology": "star" if name == "diff2" else "geometric",
        "problem.dimension": 4,
        "problem.samples": 5,
        "algorithm.name": name,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


def finished(simulation: Simulation) -> Simulation:
    simulation.advance(simulation.remaining)
    return simulation


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(name: str) -> None:
    runs = [finished(Simulation(small(name, run__seed=seed))) for seed in (1, 1, 2)]
    states = [run.driver.state() for run in runs]
    for key, rows in states[0].items():
        np.testing.assert_array_equal(states[1][key], rows)
    assert not np.array_equal(states[2]["x"], states[0]["x"])


def apart(simulation: Simulation) -> dict[str, Array]:
    """The run of agents that each host themselves alone and answer each other as nodes do; what they sent, and x."""
    experiment, graph = simulation.experiment, simulation.prepared.graph
    weights = edge_weights(graph, experiment.network.weights)
    others = [[j for j in range(graph.agents) if j != i] for i in range(graph.agents)]
    mixers = [Mixer(graph, weights, [i], [i, *others[i]]) for i in range(graph.agents)]
    programs, states = [], []
    for i, x0 in enumerate(simulation.prepared.starts(simulation.driver.dimension)):
        objective = experiment.problem.objective([i], graph.agents)
        keys, edges = simulation.prepared.run_keys([i]), simulation.prepared.edge_keys([i])
        context = AgentContext([i], graph.agents, objective, keys, edges, len(graph.edges))
        programs.append(experiment.algorithm.program(context, experiment.noise))
        states.append(programs[-1].start(x0[None]))
    sent: dict[str, list[Array]] = {phase: [] for phase in experiment.algorithm.phases}
    for k in range(ROUNDS):
        steps = [own.round(state, k) for own, state in zip(programs, states, strict=True)]
        messages = [next(step) for step in steps]
        for _ in experiment.algorithm.phases:
            rows = np.concatenate([message.rows for message in messages])
            sent[messages[0].phase].append(rows)
            answers = [m.mix(rows[i : i + 1], [rows[j].tobytes() for j in others[i]]) for i, m in enumerate(mixers)]
            for i, step in enumerate(steps):
                try:
                    messages[i] = step.send(answers[i])
                except StopIteration as done:
                    states[i] = done.value[0]
    return {phase: np.array(rows) for phase, rows in sent.items()} | {"x": np.concatenate([s.x for s in states])}


@pytest.mark.parametrize("name", NAMES)
def test_agents_apart_send_bit_for_bit_what_an_embedded_run_sends(name: str) -> None:
    embedded = finished(Simulation(small(name))).result()
    assert embedded.observation is not None
    by_themselves = apart(Simulation(small(name)))
    assert by_themselves.pop("x").tobytes() == embedded.x.tobytes()
    for phase, rows in by_themselves.items():
        assert rows.tobytes() == embedded.observation[phase].tobytes(), phase


@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_from_its_state_as_if_it_had_never_stopped(name: str) -> None:
    """States hold all that a round needs; what they are restored to is arrays with one row per agent."""
    whole, stopped = finished(Simulation(small(name))), Simulation(small(name))
    stopped.advance(5)
    resumed = Simulation(small(name), block=3)
    state = stopped.driver.state()
    assert all(len(rows) == 7 and rows.dtype == np.float64 for rows in state.values())
    resumed.driver.restore(state)
    for k in range(5, ROUNDS):
        resumed.driver.round(k, lambda phase, rows: None)
    for key, rows in whole.driver.state().items():
        np.testing.assert_allclose(resumed.driver.state()[key], rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dpp2"])
def test_a_quiet_copy_goes_on_without_noise_and_leaves_the_run_alone(name: str) -> None:
    """Loud to begin with, in every noise there is; then the copy draws none while the run still does."""
    often = {"algorithm__mixings": 2} if name == "dpp3" else {}  # round 4 has noise
    loud = small(name, **often, **{f"noise__{key}": 1.0 for key in small(name).noise.scales})
    simulation = Simulation(loud)
    simulation.advance(4)
    networks = simulation.driver.quiet(), simulation.driver
    private = [network.round(4, lambda phase, rows: None)[0] for network in networks]
    for key in loud.algorithm.noises:
        assert not np.asarray(private[0].noise[key]).any()
        assert np.asarray(private[1].noise[key]).any()


@pytest.mark.parametrize("section", tuple(ALGORITHMS), ids=NAMES)
def test_records_never_share_a_name(section: Any) -> None:
    names = [*section.phases, "x", "grad", "values", *section.noises, *section.scalars]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_sends_and_keeps_is_what_its_section_says(name: str) -> None:
    result = finished(Simulation(small(name))).result()
    section = result.experiment.algorithm
    assert result.observation is not None
    assert result.truth is not None
    assert set(result.observation) == {*section.phases, "P"}
    assert set(result.truth) == {"x", "grad", *section.noises, *section.scalars}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"algorithm.name": "diadps"}, "did you mean 'diadsp'"),
        ({"algorithm.name": "dgd", "noise.u_w": 1.0}, "noise.u_w = 1.0: expected a known key: one of decay, grid, u_x"),
        ({"algorithm.name": "pgtc", "algorithm.bits": 1}, "algorithm.bits = 1: expected a whole number from 2 to 16"),
        ({"algorithm.name": "dmsp", "algorithm.q": 1.0}, r"algorithm.q = 1.0: expected a number in \(0, 1\)"),
        ({"algorithm.name": "extra", "network.weights": "plain"}, r"weights with λ_max\(P\) < 2"),
        ({"algorithm.name": "wang-nedic", "algorithm.chi": 4.0}, r"weights with λ_max\(P\) < 0.5"),
        ({"algorithm.name": "diff2", "network.topology": "star", "network.weights": "plain"}, "weights 1/N on a star"),
        ({"algorithm.name": "diff2", "network.topology": "ring"}, "expected star, the only one that diff2 runs on"),
        ({"algorithm.name": "diadsp", "noise.u_x": [1.0, 2.0]}, "one entry for each of the 50 agents, not 2"),
    ],
)
def test_bad_input_is_one_sentence(overrides: Tables, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Simulation(Experiment.load(overrides=overrides))


def test_a_baseline_that_diverges_says_what_to_try() -> None:
    simulation = finished(Simulation(small("prox-gpda", algorithm__alpha=5.0, run__rounds=400)))
    assert simulation.divergence is not None
    assert "a smaller algorithm.alpha" in simulation.divergence.explanation


@pytest.mark.parametrize("name", NAMES)
def test_the_step_that_a_diverging_run_is_told_to_shrink_exists(name: str) -> None:
    section = small(name).algorithm
    assert section.step in type(section).model_fields


@pytest.mark.parametrize(
    "overrides",
    [
        {"algorithm.beta": 1.0},
        {"algorithm.name": "extra", "network.weights": "plain"},
        {"algorithm.name": "diff2", "network.topology": "ring"},
        {"algorithm.name": "diff2", "network.weights": "plain"},
        {"network.radius": 0.1},
        {"network.weights": "normalised"},
    ],
)
def test_what_the_algorithm_is_not_defined_for_is_told_from_what_is_not_well_formed(overrides: Tables) -> None:
    with pytest.raises(Inadmissible):
        Simulation(Experiment.load(overrides=overrides))
