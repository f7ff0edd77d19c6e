"""Experiments: files, overrides, defaults that belong to the kind, and the digest that names what is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput, Experiment, Simulation, run
from dpp2.schema import keys_of

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
CHEAP: dict[str, Any] = {"network.agents": 6, "network.topology": "ring", "problem.name": "quadratic"}


def load(**overrides: Any) -> Experiment:
    """`load(network__agents=5)` sets network.agents on the cheap experiment."""
    return Experiment.load(overrides=CHEAP | {key.replace("__", ".", 1): value for key, value in overrides.items()})


# --- the paper's experiment and the files in experiments/ -----------------------------------------------------


def test_no_file_is_the_papers_experiment() -> None:
    assert Experiment.load().digest == Experiment.load(EXPERIMENTS / "paper.toml").digest
    assert Experiment.load() == Experiment.parse({})
    experiment = Experiment.load()
    assert (experiment.run.rounds, experiment.network.agents, experiment.network.topology) == (500, 50, "geometric")


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_files_in_experiments_are_read(path: Path) -> None:
    assert Experiment.load(path).run.rounds >= 1


# --- overrides ------------------------------------------------------------------------------------------------


def test_overrides_are_toml_or_bare_words() -> None:
    texts = ["network.topology=ring", "run.rounds = 7", "noise.u_w=[0.5, 1, 2]", 'run.start="zero"', "run.seed=os"]
    experiment = Experiment.load(overrides=[*texts, "network.agents=3", "algorithm.eta=0.5"])
    assert experiment.network.topology == "ring"
    assert experiment.run.rounds == 7
    assert experiment.noise.table()["u_w"] == [0.5, 1.0, 2.0]
    assert (experiment.run.start, experiment.run.seed) == ("zero", "os")


def test_overrides_may_be_a_mapping() -> None:
    texts = ["network.topology=ring", "run.rounds=7", "noise.decay=0.5"]
    mapping = {"network.topology": "ring", "run.rounds": 7, "noise.decay": 0.5}
    assert Experiment.load(overrides=texts) == Experiment.load(overrides=mapping)


def test_later_overrides_win_over_earlier_ones_and_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text("[run]\nrounds = 3\nseed = 9\n")
    assert Experiment.load(path).run.rounds == 3
    experiment = Experiment.load(path, ["run.rounds=4", "run.rounds=5"])
    assert (experiment.run.rounds, experiment.run.seed) == (5, 9)


@pytest.mark.parametrize("text", ["run.rounds", "round=3", "=3", "run.=3"])
def test_malformed_overrides_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--set = .*: expected section\.key=value$"):
        Experiment.load(overrides=[text])


def test_override_of_a_section_that_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text("run = 5\n")
    with pytest.raises(BadInput, match="run = 5: expected a table of keys and values"):
        Experiment.load(path, ["run.rounds=3"])


# --- names and kinds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("network.topology=rng", "ring"),
        ("network.radios=0.2", "radius"),
        ("netwrk.radius=0.2", "network"),
        ("problem.name=logistics", "logistic"),
        ("problem.lamda=0.1", "lambda"),
        ("algorithm.name=ddp2", "dpp2"),
        ("algorithm.alfa=0.1", "alpha"),
        ("noise.uw=1.0", "u_w"),
        ("run.round=3", "rounds"),
    ],
)
def test_unknown_names_suggest_the_nearest(override: str, suggestion: str) -> None:
    with pytest.raises(BadInput, match=rf"\(did you mean '{suggestion}'\?\)"):
        Experiment.load(overrides=[override])


def test_names_that_resemble_nothing_get_no_suggestion() -> None:
    with pytest.raises(BadInput, match=r"one of") as refused:
        Experiment.load(overrides=["network.topology=xyzzy"])
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize("topology", ["ring", "star", "erdos-renyi", "small-world", "grid", "tree"])
def test_choosing_a_topology_alone_brings_its_defaults(topology: str) -> None:
    """The paper's radius and seed do not stand in the way of a ring."""
    experiment = Experiment.load(overrides=[f"network.topology={topology}"]).resolve()
    assert experiment.network.agents == 50
    assert "radius" not in experiment.tables()["network"]
    assert experiment.network.graph().components == 1


@pytest.mark.parametrize("name", ["quadratic", "least-squares", "sine"])
def test_choosing_a_problem_alone_brings_its_defaults(name: str) -> None:
    experiment = Experiment.load(overrides=[f"problem.name={name}"]).resolve()
    assert "smoothness" not in experiment.tables()["problem"]
    assert experiment.problem.objective([0], 50).dimension == 10


def test_explicit_keys_must_fit_the_kind() -> None:
    with pytest.raises(BadInput, match=r"network\.radius = 0\.3: expected .*one of agents, topology, weights"):
        Experiment.load(EXPERIMENTS / "damped.toml", ["network.topology=ring", "network.radius=0.3"])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("run.rounds=0", r"run\.rounds = 0: expected a whole number"),
        ("run.rounds=true", r"run\.rounds = True: expected a whole number"),
        ("run.rounds=1.5", r"run\.rounds = 1\.5: expected a whole number"),
        ("run.seed=-1", r"run\.seed = -1: expected a whole number ≥ 0"),
        ("algorithm.alpha=nan", r"algorithm\.alpha = nan: expected a number > 0"),
        ("algorithm.eta=0", r"algorithm\.eta = 0: expected \"uniform\", a number in \(0, 1\]"),
        ("algorithm.eta=1.5", r"algorithm\.eta = 1\.5"),
        ("noise.decay=1.01", r"noise\.decay = 1\.01: expected a number in \[0, 1\]"),
        ("noise.u_e=[1.0, -1.0]", r"noise\.u_e = .*: expected a number ≥ 0"),
        ("algorithm.damping=-0.1", r"algorithm\.damping = -0\.1: expected a number ≥ 0"),
    ],
)
def test_values_out_of_range_are_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        Experiment.load(overrides=[override])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["u_w", "u_e", "decay"])
def test_lists_need_one_entry_per_agent(key: str) -> None:
    with pytest.raises(BadInput, match=rf"noise\.{key} = .*: expected one entry for each of the 6 agents, not 2"):
        load(**{f"noise__{key}": [0.5, 0.5]}).resolve()
    assert run(load(**{f"noise__{key}": [0.5] * 6}, run__rounds=2)).rounds == 2


def test_a_list_of_eta_needs_one_entry_per_round() -> None:
    with pytest.raises(BadInput, match=r"at least run\.rounds = 3 entries, not 2"):
        run(load(algorithm__eta=[0.5, 0.6], run__rounds=3))
    truth = run(load(algorithm__eta=[0.5, 0.6, 1.0], run__rounds=3)).truth
    assert truth is not None
    assert truth.eta.tolist() == [0.5, 0.6, 1.0]


# --- the digest -----------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "run.seed": 2,
    "run.start": "zero",
    "run.largest_value": 1e6,
    "network.topology": "complete",
    "network.agents": 7,
    "network.weights": "laplacian",
    "problem.name": "sine",
    "problem.seed": 5,
    "problem.dimension": 4,
    "problem.curvature": 2.0,
    "problem.spread": 0.5,
    "algorithm.alpha": 0.11,
    "algorithm.beta": 0.04,
    "algorithm.rho": 9.0,
    "algorithm.damping": 1.0,
    "algorithm.eta": 0.5,
    "noise.u_w": 0.9,
    "noise.u_e": 0.9,
    "noise.decay": 0.91,
    "noise.grid": 21,
    "privacy.adjacency": 0.2,
    "privacy.smoothness": 9.0,
    "privacy.feature_bound": 2.0,
    "privacy.clip": 2.0,
}
NOT_CHANGES = {
    "run.rounds",
    "run.transport",
    "run.telemetry",
    "run.records",
    "privacy.budget",
    "privacy.colluders",
    "privacy.delta",
    "algorithm.name",
    "algorithm.auto_steps",  # gone once alpha, beta and rho are settled, and these count
    "algorithm.steps_from_data",
    "problem.dataset",
}


def test_every_key_is_in_one_of_the_two_lists() -> None:
    """A new key must be put into one of them: does it change what a run IS, or not?"""
    sections = {field.name: getattr(load(), field.name) for field in fields(Experiment)}
    keys = {f"{name}.{key}" for name, section in sections.items() for key in keys_of(type(section))}
    assert keys == set(CHANGES) | NOT_CHANGES


@pytest.mark.parametrize("key", CHANGES)
def test_digest_changes_with(key: str) -> None:
    assert Experiment.load(overrides=CHEAP | {key: CHANGES[key]}).digest != load().digest


@pytest.mark.parametrize("key", ["smoothness", "lambda", "omega", "samples", "scale"])
def test_digest_changes_with_the_data(key: str) -> None:
    small = {"network.agents": 6, "network.topology": "ring", "problem.samples": 5}
    changed = Experiment.load(overrides=small | {f"problem.{key}": 2})
    assert changed.resolve().digest != Experiment.load(overrides=small).resolve().digest


def test_digest_leaves_out_rounds_transport_telemetry_and_budget() -> None:
    """A resumed run may go on longer, or elsewhere, and its noise must not change."""
    experiment = load().resolve()
    elsewhere = replace(experiment, run=experiment.run.updated(rounds=9, transport="grpc", telemetry="none"))
    assert elsewhere.digest == experiment.digest
    assert load(privacy__budget=1.0).resolve().digest == experiment.digest


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [("algorithm.rho", 10, 10.0), ("noise.decay", 1, 1.0), ("algorithm.eta", 1, 1.0), ("problem.curvature", 2, 2.0)],
)
def test_digest_does_not_care_how_a_number_was_written(key: str, one: Any, other: Any) -> None:
    first, second = (Experiment.load(overrides=CHEAP | {key: value}) for value in (one, other))
    assert first.digest == second.digest


def test_digest_names_the_default_and_its_explicit_value_alike() -> None:
    assert load(algorithm__alpha=0.1, run__seed=1).digest == load().digest


@pytest.mark.parametrize("key", ["network.path", "run.start"])
def test_files_count_by_content_and_not_by_path(tmp_path: Path, key: str) -> None:
    texts = (
        ("0 1\n1 2\n", "0 1\n1 2\n", "0 1\n0 2\n") if key == "network.path" else ("1\n2\n3\n", "1\n2\n3\n", "1\n2\n4\n")
    )
    digests = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        kind = (
            {"network.topology": "file"} if key == "network.path" else {"network.topology": "path", "network.agents": 3}
        )
        table = {"problem.name": "quadratic", "problem.dimension": 1, **kind, key: str(path)}
        digests.append(Experiment.load(overrides=table).resolve().digest)
    assert digests[0] == digests[1] != digests[2]


# --- resolving, writing, reading back -------------------------------------------------------------------------

SMALL_KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "disconnected default draw": {"network.agents": 12, "network.seed": 0},
    "erdos-renyi": {"network.topology": "erdos-renyi", "network.agents": 9},
    "small world of three": {"network.topology": "small-world", "network.agents": 3},
    "tree": {"network.topology": "tree", "network.branching": 3, "network.weights": "plain", "algorithm.beta": 0.01},
    "quadratic": {"problem.name": "quadratic", "problem.curvature": [-1.0, 1e-7, 3.0], "network.agents": 3},
    "least squares": {"problem.name": "least-squares", "problem.rank": 3},
    "sine": {"problem.name": "sine", "problem.tilt": 1 / 3},
    "lists": {"network.topology": "ring", "network.agents": 3, "noise.u_w": [0.1, 1e-9, 3.0], "algorithm.eta": [0.5]},
    "unseeded": {"run.seed": "os", "run.start": "zero", "run.telemetry": "none"},
}


@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_resolved_experiment_reads_back_with_the_same_digest(tmp_path: Path, kind: str) -> None:
    resolved = Experiment.load(overrides=SMALL_KINDS[kind]).resolve()
    path = tmp_path / "experiment.toml"
    path.write_text(resolved.to_toml(), encoding="utf-8")
    again = Experiment.load(path)
    assert again.tables() == resolved.tables()
    assert again.digest == resolved.digest
    assert again.resolve().digest == resolved.digest
    assert again.resolve().network.graph().edges.tolist() == resolved.network.graph().edges.tolist()


@given(st.floats(1e-12, 1e3), st.floats(0, 1), st.floats(0, 1e9), st.integers(0, 2**63))
@settings(deadline=None, max_examples=50)
def test_numbers_survive_the_file_to_the_last_bit(alpha: float, decay: float, u: float, seed: int) -> None:
    import tomllib

    experiment = load(algorithm__alpha=alpha, noise__decay=decay, noise__u_w=u, run__seed=seed)
    assert Experiment.parse(tomllib.loads(experiment.to_toml())) == experiment


def test_resolving_twice_changes_nothing() -> None:
    once = Experiment.load().resolve()
    assert once.resolve() == once
    assert once.problem.table()["scale"] > 0
    assert once.problem.seed == 1


def test_problem_seed_follows_the_run_seed_unless_given() -> None:
    assert load(run__seed=7).resolve().problem.seed == 7
    assert load(run__seed=7, problem__seed=3).resolve().problem.seed == 3
    assert load(run__seed="os").resolve().problem.seed == 1


def test_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file to the file, in an override to the working directory; written out, absolute."""
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "edges.txt").write_text("0 1\n1 2\n")
    (folder / "e.toml").write_text('[network]\ntopology = "file"\npath = "edges.txt"\n[problem]\nname = "quadratic"\n')
    from_file = Experiment.load(folder / "e.toml").resolve()
    monkeypatch.chdir(folder)
    overrides = {"network.topology": "file", "network.path": "edges.txt", "problem.name": "quadratic"}
    from_override = Experiment.load(overrides=overrides).resolve()
    assert from_file.digest == from_override.digest
    (tmp_path / "written.toml").write_text(from_override.to_toml())
    monkeypatch.chdir(tmp_path)
    assert Experiment.load("written.toml").resolve().digest == from_file.digest


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at least one section"),
        ("[run", "valid TOML"),
        ("run = 5", "a table of keys and values"),
        ("[rum]\nrounds = 3", r"did you mean 'run'"),
        ("[run]\nrounds = 3\nrounds = 4", "valid TOML"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "e.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=sentence):
        Experiment.load(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, sentence in (("missing.toml", "No such file"), (".", "readable"), ("binary.toml", "UTF-8")):
        with pytest.raises(BadInput, match=sentence):
            Experiment.load(tmp_path / name)


# --- where a run starts ---------------------------------------------------------------------------------------


def start_of(**overrides: Any) -> np.ndarray:
    return np.concatenate(Simulation(load(run__rounds=1, **overrides)).driver.x)


def test_normal_start_is_standard_normal_from_the_seed() -> None:
    x = start_of(problem__dimension=2000)
    np.testing.assert_array_equal(x, start_of(problem__dimension=2000))
    assert x.mean() == pytest.approx(0, abs=0.05)
    assert x.std() == pytest.approx(1, rel=0.05)
    assert (x != start_of(problem__dimension=2000, run__seed=2)).all()
    assert len(np.unique(x)) == x.size


def test_normal_start_does_not_depend_on_the_other_agents_or_on_the_data() -> None:
    """x⁰ must not depend on private data (accountant.py), and an agent draws it alone."""
    np.testing.assert_array_equal(start_of(network__agents=9)[:6], start_of())
    np.testing.assert_array_equal(start_of(problem__spread=7.0, problem__seed=3), start_of())


def test_zero_start() -> None:
    assert not start_of(run__start="zero").any()


@pytest.mark.parametrize("ending", ["npy", "npz", "csv"])
def test_start_from_a_file(tmp_path: Path, ending: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 3))
    path = tmp_path / f"x0.{ending}"
    if ending == "npy":
        np.save(path, x)
    elif ending == "npz":
        np.savez(path, x=x)
    else:
        np.savetxt(path, x, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(start_of(run__start=str(path), problem__dimension=3), x)


@pytest.mark.parametrize(
    "content", [np.zeros((5, 3)), np.zeros((6, 2)), np.zeros(18), np.full((6, 3), np.nan), np.full((6, 3), np.inf)]
)
def test_start_of_the_wrong_shape_or_not_finite_is_refused(tmp_path: Path, content: np.ndarray) -> None:
    np.save(tmp_path / "x0.npy", content)
    with pytest.raises(BadInput, match=r"run\.start = .*6 rows of 3 finite numbers"):
        start_of(run__start=str(tmp_path / "x0.npy"), problem__dimension=3)


def test_start_that_is_no_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", y=np.zeros((6, 3)))
    (tmp_path / "words.csv").write_text("a,b,c\n" * 6)
    (tmp_path / "text.npy").write_text("not numpy")
    for name in ("other.npz", "words.csv", "text.npy", "missing.npy"):
        with pytest.raises(BadInput, match=r"run\.start"):
            start_of(run__start=str(tmp_path / name), problem__dimension=3)


@pytest.mark.parametrize(
    "made",
    [
        lambda table: Experiment(netwrk=table),
        lambda table: Experiment().replace(netwrk=table),
        lambda table: Experiment.parse({"netwrk": table}),
        lambda table: Experiment().replace({"netwrk.agents": 3}),
    ],
)
def test_a_section_that_does_not_exist_is_one_sentence_however_it_is_given(made: Callable[[Any], Experiment]) -> None:
    expected = r"^section = 'netwrk': expected one of algorithm, network, .* \(did you mean 'network'\?\)$"
    with pytest.raises(BadInput, match=expected):
        made({})


def test_one_override_need_not_be_a_list() -> None:
    assert Experiment.load("paper", "run.rounds=5").run.rounds == 5
    assert Experiment().replace("run.rounds=5").run.rounds == 5
