"""What algorithms declare about themselves is true: of their settings, their messages, and what follows from these."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation, run
from dpp2.adversary.attacks.algebra import mix
from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.declared import BOTH_DAMPED, BOTH_TIERS, NO_PROTECTION, TIER_ONE, TIER_TWO, Heard, Tunable
from dpp2.arrays import Array
from dpp2.privacy import Dpp2Releases, Unsupported
from dpp2.schema import Section
from tests.algorithms.hosted import NAMES, SILENT, Tables

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 12


def small(name: str, **more: object) -> Experiment:
    tables: Tables = {
        "algorithm.name": name,
        "run.rounds": ROUNDS,
        "network.agents": 6,
        "network.topology": "star" if name == "diff2" else "ring",
        "problem.dimension": 4,
        "problem.samples": 5,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


@pytest.mark.parametrize("name", NAMES)
class TestTuning:
    def test_every_range_is_one_and_holds_what_the_algorithm_comes_with(self, name: str) -> None:
        experiment = small(name).resolve()
        for section in (experiment.algorithm, experiment.noise):
            for tunable in section.tunables:
                assert tunable.low < tunable.high
                assert tunable.scale == "linear" or tunable.low > 0
                own = getattr(section, tunable.key)
                assert tunable.low <= (1.0 if tunable.relative else own) <= tunable.high, (name, tunable)
                self._both_ends_are_settings(section, tunable)

    @staticmethod
    def _both_ends_are_settings(section: Section, tunable: Tunable) -> None:
        own = getattr(section, tunable.key)
        for end in (tunable.low, tunable.high):
            value = type(own)(own * end if tunable.relative else end)
            type(section).model_validate({**section.table(), tunable.key: value})
        assert set(tunable.together) <= set(type(section).model_fields)

    def test_the_step_is_tuned(self, name: str) -> None:
        section = small(name).resolve().algorithm
        assert section.step in [tunable.key for tunable in section.tunables]

    def test_limits_lie_around_the_range(self, name: str) -> None:
        experiment = small(name).resolve()
        for tunable in (*experiment.algorithm.tunables, *experiment.noise.tunables):
            assert tunable.least is None or tunable.least <= tunable.low
            assert tunable.most is None or tunable.high <= tunable.most

    def test_noise_that_decays_has_its_decay_tuned(self, name: str) -> None:
        noise = small(name).resolve().noise
        decays = "decay" in type(noise).model_fields
        assert ("decay" in [tunable.key for tunable in noise.tunables]) == decays

    def test_variants_hold_settings_that_exist(self, name: str) -> None:
        section = small(name).resolve().algorithm
        for settings in section.variants.values():
            type(section).model_validate({"name": name, **settings})
        assert section.with_noise_it_is is None or section.with_noise_it_is in ALGORITHMS.names

    def test_what_gives_a_pure_epsilon_are_settings(self, name: str) -> None:
        noise = small(name).resolve().noise
        assert set(noise.pure) <= set(type(noise).model_fields)

    def test_scales_that_buy_no_epsilon_are_scales(self, name: str) -> None:
        noise = small(name).resolve().noise
        assert set(noise.without_epsilon) < set(noise.scales)


@pytest.mark.parametrize("name", NAMES)
def test_noise_scales_shrink_as_declared(name: str) -> None:
    noise = small(name).resolve().noise
    found = noise.scales_in(np.arange(3), 6)
    assert set(found) == set(noise.scales)
    for scale, values in found.items():
        decay = getattr(noise, "decay", 1.0)
        expected = getattr(noise, scale) * decay ** np.arange(3)
        np.testing.assert_array_equal(values, np.repeat(expected[:, None], 6, axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_phases_that_carry_something_are_phases(name: str) -> None:
    section = small(name).algorithm
    carrying = [phase for phase in (section.x_phase, section.gradient_phase) if phase]
    assert carrying
    assert set(carrying) <= set(section.phases)


SOLVED = [name for name in NAMES if name != "dpp2"]
# Where the gradient is that of another point, or of a sample, unless there is one sample only.
SETTINGS: dict[str, Tables] = {
    "pgtc": {"algorithm__compressor": "none"},
    "privsgp-vr": {"problem__samples": 1},
    "dpp3": {"algorithm__mixings": 1, "algorithm__gradient_rounds": ROUNDS, "algorithm__final_mixings": 0},
}


@pytest.mark.parametrize("name", SOLVED)
def test_without_noise_the_messages_give_back_x_and_gradients(name: str) -> None:
    silent = {f"noise__{key}": value for key, value in SILENT.get(name, {}).items()}
    result = run(small(name, **silent, **SETTINGS.get(name, {})))
    assert result.observation is not None
    assert result.truth is not None
    section = result.experiment.algorithm
    phases = {phase: np.array(result.observation[phase]) for phase in section.phases}
    found = section.recovered(Heard(phases, partial(mix, np.array(result.observation.P))))
    assert found is not None
    _assert_equal_where_known(found.x, result.truth.x)
    if name != "dmsp":  # its gradient is taken at Wx
        _assert_equal_where_known(found.gradient, result.truth.grad)


def _assert_equal_where_known(found: Array, truth: Array) -> None:
    known = np.isfinite(found)
    assert known[1:-1, 1:].all()  # all but the first and the last round, and a server's own
    np.testing.assert_allclose(found[known], truth[known], rtol=1e-9, atol=1e-9)


COMPRESSED = ["top-k", "quantised", "none"]


@pytest.mark.parametrize("compressor", COMPRESSED)
@pytest.mark.parametrize("name", NAMES)
def test_every_row_that_is_broadcast_travels_bit_for_bit_in_the_bytes_counted(name: str, compressor: str) -> None:
    chosen = {"algorithm__compressor": compressor, "algorithm__keep": 2} if name == "pgtc" else {}
    simulation = Simulation(small(name, **chosen))
    simulation.advance(ROUNDS)
    section, degrees = simulation.experiment.algorithm, simulation.prepared.graph.degrees
    sent = 0
    for phase, rounds in simulation.recorder.sent_arrays.items():
        for rows in rounds:
            for agent, row in enumerate(rows):
                encoding = section.encoding(phase, agent)
                message = encoding.encode(row)
                sent += len(message) * int(degrees[agent])
                assert encoding.decode(message, len(row)).tobytes() == row.tobytes()
    assert sent == simulation.result().metrics.bytes.sum()


class TestDpp2:
    def test_eta_is_no_public_parameter_unless_tier_one_is_off(self) -> None:
        for eta, tier_one, public in (("uniform", True, "uniform"), (0.5, True, "uniform"), (1.0, False, 1.0)):
            section = small("dpp2", algorithm__eta=eta).algorithm
            assert section.tier_one is tier_one
            assert section.public().table()["eta"] == public

    def test_protections_switch_its_tiers(self) -> None:
        experiment = small("dpp2", algorithm__eta=1.0)
        found = experiment.algorithm.protections(experiment.noise)
        assert not isinstance(found, Unsupported)
        assert list(found) == [NO_PROTECTION, TIER_ONE, TIER_TWO, BOTH_TIERS, BOTH_DAMPED]
        on = {name: (section.tier_one, noise.table()["u_w"] > 0) for name, (section, noise) in found.items()}
        assert list(on.values()) == [(False, False), (True, False), (False, True), (True, True), (True, True)]
        assert [section.table()["damping"] for section, _ in found.values()] == [0, 0, 0, 0, 1]

    def test_no_other_has_tiers_a_worst_pair_or_a_planner_model(self) -> None:
        for name in SOLVED:
            experiment = small(name)
            section = experiment.algorithm
            assert (section.tier_one, section.two_tiers(), section.papers_own) == (None, None, False)
            for answer in (
                section.protections(experiment.noise),
                section.worst_pair([]),
                section.planner_model(experiment.noise),
            ):
                assert isinstance(answer, Unsupported)

    def test_its_releases_are_those_that_the_game_plays(self) -> None:
        simulation = Simulation(small("dpp2"))
        playable = simulation.experiment.algorithm.worst_pair(simulation.account.distinct)
        assert not isinstance(playable, Unsupported)
        assert all(isinstance(one, Dpp2Releases) for one in playable)
        assert tuple(playable) == simulation.account.distinct


def test_only_what_is_known_how_to_publish_is_published() -> None:
    for name in NAMES:
        (block,) = Simulation(small(name)).driver.blocks
        released = block.program.published(block.state, 0)
        assert isinstance(released, Unsupported) == (name not in ("dpp2", "dpp3", "decor"))


def command(*words: str) -> None:
    line = [sys.executable, "-m", "dpp2.orchestrator", *words]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_diff2_over_nodes_is_the_embedded_run(tmp_path: Path) -> None:
    """Nodes get their graph as a list of edges; what counts is that it is a star."""
    sets = {"algorithm.name": "diff2", "network.agents": 6, "problem.dimension": 3, "problem.samples": 5}
    words = [word for key, value in (sets | {"run.rounds": 15}).items() for word in ("--set", f"{key}={value}")]
    command("run", "--out", str(tmp_path / "embedded"), *words)
    command("run", "--out", str(tmp_path / "nodes"), *words, "--transport", "grpc", "--processes", "3")
    for name in ("observation.npz", "truth.npz", "solution.npz", "metrics.csv"):
        assert (tmp_path / "nodes" / name).read_bytes() == (tmp_path / "embedded" / name).read_bytes(), name


class TestStars:
    def written(self, folder: Path, edges: str, **more: object) -> Experiment:
        (folder / "graph.edges").write_text(edges)
        tables = {"network.topology": "file", "network.path": str(folder / "graph.edges"), "algorithm.name": "diff2"}
        return Experiment.load(overrides=tables | more)

    def test_a_star_from_a_file_is_the_same_experiment(self, tmp_path: Path) -> None:
        drawn = Experiment.load(overrides={"algorithm.name": "diff2", "network.agents": 4}).resolve()
        read = self.written(tmp_path, "0 1\n0 2\n0 3\n").resolve()
        assert drawn.network.topology == "star"
        assert read.digest == drawn.digest

    @pytest.mark.parametrize("edges", ["1 0\n1 2\n1 3\n", "0 1\n1 2\n2 0\n", "0 1\n1 2\n"])
    def test_another_graph_is_refused_by_its_shape(self, tmp_path: Path, edges: str) -> None:
        with pytest.raises(BadInput, match=r"the only one that diff2 runs on \(agent 0 in the middle\)"):
            self.written(tmp_path, edges).resolve()
