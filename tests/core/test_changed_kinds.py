"""An override that picks another kind drops what the file says of the old kind alone, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpp2 import BadInput, Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.schema import Section
from dpp2.topology import TOPOLOGIES

PAPER = Path(__file__).parents[2] / "experiments/paper.toml"


def loaded(path: Path, *overrides: str) -> tuple[Experiment, list[str]]:
    notes: list[str] = []
    return Experiment.load(path, overrides, notes.append), notes


def test_another_algorithm_drops_keys_and_noise_of_the_old_one_in_one_note() -> None:
    experiment, (note,) = loaded(PAPER, "algorithm.name=dpp3")
    old = "algorithm.beta, algorithm.rho, algorithm.damping, algorithm.eta, noise.u_w, noise.u_e, noise.decay"
    assert note == f"algorithm.name is now dpp3, so these of {PAPER} are left out: {old}"
    assert experiment.algorithm.table()["alpha"] == 0.1  # which both have
    assert experiment.noise.table()["kind"] == "gaussian"


def test_all_changed_kinds_share_the_note() -> None:
    experiment, (note,) = loaded(PAPER, "network.topology=ring", "problem.name=sine", "algorithm.name=dgd")
    assert (experiment.network.topology, experiment.problem.name) == ("ring", "sine")
    for name in ("network.radius", "problem.samples", "problem.lambda", "algorithm.beta", "noise.u_e"):
        assert name in note
    for name in ("network.agents", "problem.dimension", "algorithm.alpha", "noise.decay"):  # which they share
        assert name not in note
    assert experiment.network.agents == 50


def test_nothing_is_dropped_where_no_kind_changes() -> None:
    experiment, notes = loaded(PAPER, "algorithm.name=dpp2", "network.topology=geometric", "run.rounds=3")
    assert notes == []
    assert experiment == Experiment.load(PAPER, {"run.rounds": 3})


def test_a_file_without_a_name_has_the_default_kind(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text("[noise]\nu_w = 0.5\ngrid = 30\n")
    experiment, (note,) = loaded(file, "algorithm.name=decor")
    assert note.endswith(": noise.u_w")
    assert experiment.noise.grid == 30


def test_what_an_override_says_and_what_no_kind_has_is_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"algorithm\.beta"):
        loaded(PAPER, "algorithm.name=dpp3", "algorithm.beta=1.0")
    file = tmp_path / "e.toml"
    file.write_text('[algorithm]\nname = "dpp2"\nbetta = 0.5\n')
    with pytest.raises(BadInput, match=r"algorithm\.betta"):
        loaded(file, "algorithm.name=dpp3")
    file.write_text("algorithm = 3\n")
    with pytest.raises(BadInput, match="a table of keys and values"):
        loaded(file, "algorithm.name=dpp3")
    with pytest.raises(BadInput, match="did you mean 'dpp3'"):
        loaded(PAPER, "algorithm.name=ddp3")


def test_every_kind_can_be_picked_on_top_of_the_papers_file() -> None:
    for name in ALGORITHMS.names:
        assert loaded(PAPER, f"algorithm.name={name}")[0].algorithm.name == name
    for name in TOPOLOGIES.names:
        assert loaded(PAPER, f"network.topology={name}", *path("network", TOPOLOGIES[name]))[0].network.topology == name
    for name in PROBLEMS.names:
        assert loaded(PAPER, f"problem.name={name}", *path("problem", PROBLEMS[name]))[0].problem.name == name


def path(section: str, kind: type[Section]) -> list[str]:
    """Of a file, where a kind reads one."""
    return [f"{section}.path=somewhere"] if "path" in kind.model_fields else []


def test_a_value_that_the_new_kind_does_not_take_is_dropped_too() -> None:
    """eta is "uniform" for dpp2 and a number for yi."""
    experiment, (note,) = loaded(PAPER, "algorithm.name=yi")
    assert "algorithm.eta" in note
    assert experiment.algorithm == Experiment.load(overrides={"algorithm.name": "yi"}).algorithm


def test_who_passes_no_ear_gets_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"noise\.u_w"):
        Experiment.load(PAPER, ["algorithm.name=dpp3"])
