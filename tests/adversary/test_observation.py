"""observation.npz: read as runs and taps write it, written whole or not at all, refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpp2 import BadInput, Experiment
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from tests.adversary.attacked import ring, small


def arrays(rounds: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"y": rng.standard_normal((rounds, 5, 3)), "z": rng.standard_normal((rounds, 5, 3)), "P": ring(5)}


def test_a_runs_file_means_every_channel_from_round_0_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "observation.npz", **arrays())
    observation = Observation.load(tmp_path / "observation.npz")
    assert observation.first == 0
    assert observation.shape == (4, 5, 3)
    assert list(observation.phases) == ["y", "z"]
    assert len(observation.channels) == 10
    assert len(observation.unobserved) == 0
    assert observation.gaps == ()
    assert observation.heard.all()


def test_large_networks_store_P_as_a_sparse_matrix(tmp_path: Path) -> None:
    stored = arrays()
    P = csr_array(stored.pop("P"))
    np.savez(tmp_path / "o.npz", **stored, P_data=P.data, P_indices=P.indices, P_indptr=P.indptr)
    np.testing.assert_array_equal(Observation.load(tmp_path / "o.npz").P, ring(5))


def test_what_a_tap_writes_is_read_back_to_the_bit(tmp_path: Path) -> None:
    content = arrays()
    content["y"][2, 3] = np.nan
    written = Observation(
        phases={"y": content["y"], "z": content["z"]},
        P=content["P"],
        first=17,
        channels=np.array([[0, 1], [3, 2]]),
        unobserved=np.array([[1, 2]]),
        gaps=("round 19: nothing from agent 3 (ε, “quoted”)",),
        notes=("one copy differs",),
    )
    written.save(tmp_path / "observation.npz")
    read = Observation.load(tmp_path / "observation.npz")
    for phase in ("y", "z"):
        np.testing.assert_array_equal(read.phases[phase].view(np.int64), content[phase].view(np.int64))
    assert (read.first, read.gaps, read.notes) == (17, written.gaps, written.notes)
    assert read.channels.tolist() == [[0, 1], [3, 2]]
    assert read.unobserved.tolist() == [[1, 2]]
    assert not read.heard[2, 3]
    assert read.heard.sum() == 19
    assert [path.name for path in tmp_path.iterdir()] == ["observation.npz"]


def test_an_observation_cannot_be_changed() -> None:
    observation = Observation.of(arrays())
    with pytest.raises(ValueError, match="read-only"):
        observation.phases["y"][0] = 0
    with pytest.raises(ValueError, match="read-only"):
        observation.P[0] = 0
    with pytest.raises(TypeError):
        observation.phases["y"] = observation.P  # type: ignore[index]


def test_a_copy_is_taken_of_arrays_that_others_may_change() -> None:
    content = arrays()
    observation = Observation.of(content)
    content["y"][0] = 7
    assert not (observation.phases["y"][0] == 7).any()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:200]),
        lambda file: file.write_bytes(b"not a zip at all"),
        lambda file: file.write_bytes(b""),
        lambda file: np.savez(file, y=np.zeros((2, 3, 1)), z=np.zeros((2, 4, 1)), P=np.eye(3)),
        lambda file: np.savez(file, y=np.zeros((2, 3, 1)), z=np.zeros((2, 3, 1)), P=np.eye(4)),
        lambda file: np.savez(file, y=np.zeros((2, 3)), P=np.eye(3)),
        lambda file: np.savez(file, y=np.zeros((2, 3, 1), dtype=np.float32), P=np.eye(3)),
        lambda file: np.savez(file, y=np.zeros((2, 3, 1))),
        lambda file: np.savez(file, P=np.eye(3)),
        lambda file: np.savez(file, y=np.zeros((2, 3, 1)), P=np.eye(3), gaps=np.array("[")),
        lambda file: file.unlink(),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(tmp_path: Path, damage: Any) -> None:
    file = tmp_path / "observation.npz"
    np.savez(file, **arrays())
    damage(file)
    with pytest.raises(BadInput, match="observation") as refusal:
        Observation.load(file)
    assert "\n" not in str(refusal.value)


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    """A file that was cut off anywhere is never read as a shorter one."""
    file = tmp_path / "observation.npz"
    Observation.of(arrays()).save(file)
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            Observation.load(file)


# --- what an attacker knows besides -------------------------------------------------------------------------


def test_knowledge_holds_public_fields_and_no_seed() -> None:
    knowledge = Knowledge.of(Experiment.load(overrides={"run.seed": 987654321, "problem.seed": 123456789}).resolve())
    assert (knowledge.alpha, knowledge.beta, knowledge.rho, knowledge.t) == (0.1, 0.05, 10.0, 1.0)
    assert dict(knowledge.problem) == {
        "name": "logistic",
        "dimension": 10,
        "samples": 200,
        "lambda": 0.001,
        "omega": 1.0,
    }
    assert knowledge.eta is None
    assert knowledge.own is None
    assert "987654321" not in repr(knowledge)
    assert "123456789" not in repr(knowledge)


def test_a_fixed_eta_is_not_public_either() -> None:
    knowledge = small(algorithm__eta=0.123456).knowledge
    assert knowledge.eta is None
    assert "0.123456" not in repr(knowledge)


def test_noise_scales_are_one_per_agent_and_decay() -> None:
    knowledge = small(noise__u_w=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], noise__decay=0.5).knowledge
    scale = knowledge.scale("w", np.arange(3.0))
    assert scale is not None
    np.testing.assert_allclose(scale[2], np.sqrt(2) * np.arange(1.0, 7.0) / 4)
    assert Knowledge(knowledge.algorithm).scale("w", np.arange(3.0)) is None
