"""A folder of per-agent data: both formats mean the same, and whatever is wrong with a file is one sentence."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2.errors import BadInput, Inadmissible, MissingData, UnknownName
from dpp2.problems import ProblemSection
from dpp2.problems.sources import FromOutside, Source

Build = Callable[..., ProblemSection]
GOOD: dict[str, Any] = {
    "features": np.array([[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]]),
    "labels": np.array([1.0, -1.0, 1.0]),
}
CSV = "1,2,1\n3,-4,-1\n0.5,0,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Agents 0 and 1, both with good data."""
    np.savez(tmp_path / "agent-0.npz", **GOOD)
    (tmp_path / "agent-1.csv").write_text(CSV)
    return tmp_path


def evaluated(build: Build, folder: Path, **table: Any) -> list[np.ndarray]:
    objective = build(2, name="file", path=str(folder), **table).objective([0, 1], 2)
    return [*objective(np.array([[0.3, -0.7], [0.3, -0.7]])), objective.smoothness]


@pytest.mark.parametrize("loss", ["logistic", "least-squares"])
@pytest.mark.parametrize(
    "text", [CSV, "a,b,label\n" + CSV, "\ufeff" + CSV, CSV.replace("\n", "\r\n") + "\r\n", " 1, 2, 1\n" + CSV[6:]]
)
def test_npz_and_csv_mean_the_same(build: Build, folder: Path, loss: str, text: str) -> None:
    (folder / "agent-1.csv").write_bytes(text.encode())
    for result in evaluated(build, folder, loss=loss):
        np.testing.assert_array_equal(result[0], result[1])


def test_formulas(build: Build, folder: Path) -> None:
    x, a, b = np.array([0.3, -0.7]), GOOD["features"], GOOD["labels"]
    regulariser = (0.1 * 2 * x * x / (1 + 2 * x * x)).sum()
    logistic = np.log1p(np.exp(-b * (a @ x))).mean() + regulariser
    squares = ((a @ x - b) ** 2).mean() / 2 + regulariser
    given = {"lambda": 0.1, "omega": 2.0}
    assert evaluated(build, folder, loss="logistic", **given)[0] == pytest.approx(logistic, rel=1e-14)
    assert evaluated(build, folder, loss="least-squares", **given)[0] == pytest.approx(squares, rel=1e-14)


def test_defaults_are_the_papers_for_logistic_and_plain_for_squares(build: Build, folder: Path) -> None:
    tables = [build(2, name="file", path=str(folder), loss=loss).table() for loss in ("logistic", "least-squares")]
    assert [(table["lambda"], table["omega"]) for table in tables] == [(0.001, 1.0), (0.0, 1.0)]
    assert build(2, name="file", path=str(folder)).table()["loss"] == "logistic"


def test_least_squares_takes_any_labels(build: Build, folder: Path) -> None:
    (folder / "agent-1.csv").write_text("1,2,17.5\n")
    assert np.isfinite(evaluated(build, folder, loss="least-squares")[0]).all()


def test_only_the_files_of_owned_agents_are_opened(build: Build, folder: Path) -> None:
    (folder / "agent-0.npz").write_bytes(b"not to be read")
    assert build(9, name="file", path=str(folder)).objective([1], 9).dimension == 2


def sources(build: Build, folder: Path) -> tuple[Source, ...]:
    objective = build(2, name="file", path=str(folder)).objective([0, 1], 2)
    assert isinstance(objective, FromOutside)
    return objective.sources


@pytest.mark.parametrize("text", [CSV, "a,b,label\n" + CSV, CSV + "\n\n", CSV.replace("0.5,0,", "5e-1,-0.0,")])
def test_data_have_one_digest_in_whatever_format_they_are(build: Build, folder: Path, text: str) -> None:
    (folder / "agent-1.csv").write_text(text)
    npz, csv = sources(build, folder)
    assert npz.digest == csv.digest
    by_bytes = hashlib.sha256(hashlib.sha256(text.encode()).digest()).hexdigest()
    assert csv.known_as == (by_bytes,)  # what ledgers of format 1 call them


@pytest.mark.parametrize("text", [CSV + "1,1,1\n", CSV.replace("2", "2.0000000000000004"), CSV.replace("-1", "1")])
def test_other_data_have_another_digest(build: Build, folder: Path, text: str) -> None:
    (folder / "agent-1.csv").write_text(text)
    npz, csv = sources(build, folder)
    assert npz.digest != csv.digest


def test_the_experiments_digest_does_not_depend_on_where_the_data_lie(build: Build, folder: Path) -> None:
    here, there = build(2, name="file", path=str(folder)), build(2, name="file", path="elsewhere")
    assert here.digest_table() == there.digest_table()


def npz(**arrays: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "agent-1.csv").unlink()
        np.savez(folder / "agent-1.npz", **arrays)

    return write


def csv(content: str | bytes) -> Callable[[Path], Any]:
    raw = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / "agent-1.csv").write_bytes(raw)


def raw_npz(content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "agent-1.csv").unlink()
        (folder / "agent-1.npz").write_bytes(content)

    return write


def truncated(folder: Path) -> None:
    raw_npz((folder / "agent-0.npz").read_bytes()[:-150])(folder)


def a_single_array(folder: Path) -> None:
    np.save(folder / "one.npy", GOOD["features"])
    raw_npz((folder / "one.npy").read_bytes())(folder)


def a_directory(folder: Path) -> None:
    (folder / "agent-1.csv").unlink()
    (folder / "agent-1.csv").mkdir()


NPZ = "an .npz file with the numeric arrays features and labels"
NUMBERS = "comma-separated numbers, the label last"
MALFORMED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing agent": (lambda f: (f / "agent-1.csv").unlink(), "a folder that holds agent-1.npz or agent-1.csv"),
    "two files": (lambda f: np.savez(f / "agent-1.npz", **GOOD), "only one of agent-1.npz and agent-1.csv"),
    "directory": (a_directory, "a readable file (Is a directory)"),
    "labels 0 and 1": (csv("1,2,1\n3,4,0\n"), "labels −1 or 1 for the logistic loss, not 0 in sample 1"),
    "nan": (csv("1,2,1\n3,nan,1\n"), "finite features below 1e100 in size, not nan in sample 1"),
    "inf label": (csv("1,2,inf\n"), "finite labels below 1e100 in size, not inf in sample 0"),
    "huge": (csv("1e200,2,1\n"), "finite features below 1e100 in size, not 1e+200 in sample 0"),
    "another dimension": (csv("1,2,3,1\n"), "2 features like agent 0's, not 3"),
    "no features": (csv("1\n-1\n"), "features (m, d) and labels (m,) with m, d ≥ 1, not features (2, 0)"),
    "ragged": (csv("1,2,1\n3,1\n"), NUMBERS),
    "a slip in the first line": (csv("1,x,1\n3,4,1\n"), NUMBERS),
    "words": (csv("a,b,c\nd,e,f\n"), NUMBERS),
    "semicolons": (csv("1;2;1\n3;4;1\n"), NUMBERS),
    "empty csv": (csv(""), f"{NUMBERS} (ValueError: no samples)"),
    "only a header": (csv("a,b,label\n"), f"{NUMBERS} (ValueError: no samples)"),
    "not UTF-8": (csv(b"\xff\xfe1,2,1\n"), NUMBERS),
    "empty npz": (raw_npz(b""), NPZ),
    "not an npz": (raw_npz(b"hello"), NPZ),
    "truncated npz": (truncated, NPZ),
    "npy": (a_single_array, NPZ),
    "no labels": (npz(features=GOOD["features"]), NPZ),
    "words in npz": (npz(features=np.array([["a", "b"]]), labels=np.ones(1)), NPZ),
    "complex": (npz(features=np.ones((1, 2), complex), labels=np.ones(1)), NPZ),
    "pickle": (npz(features=np.array([[1, None]], dtype=object), labels=np.ones(1)), NPZ),
    "labels as a column": (npz(features=np.ones((3, 2)), labels=np.ones((3, 1))), "features (m, d) and labels (m,)"),
    "fewer labels": (npz(features=np.ones((3, 2)), labels=np.ones(2)), "features (m, d) and labels (m,)"),
    "no samples": (npz(features=np.ones((0, 2)), labels=np.ones(0)), "features (m, d) and labels (m,)"),
    "three axes": (npz(features=np.ones((1, 2, 2)), labels=np.ones(1)), "features (m, d) and labels (m,)"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_data_is_one_sentence(build: Build, folder: Path, case: str) -> None:
    spoil, expected = MALFORMED[case]
    spoil(folder)
    with pytest.raises(BadInput) as refusal:
        evaluated(build, folder)
    message = str(refusal.value)
    assert message.startswith("problem.path = ")
    accepted = refusal.value.accepted
    assert accepted.removeprefix("in agent-1.csv ").removeprefix("in agent-1.npz ").startswith(expected)
    assert "\n" not in message
    assert "agent-1" in accepted or case == "directory"


@pytest.mark.parametrize("path", ["nowhere", "agent-0.npz", "nul\0"])
def test_a_path_that_is_no_folder(build: Build, folder: Path, path: str) -> None:
    problem = build(2, name="file", path=str(folder / path))
    with pytest.raises(BadInput) as refusal:
        problem.objective([0], 2)
    assert refusal.value.accepted == "a Python file (.py) or a folder of per-agent data"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "problem.path = "),
        ({"path": ""}, "problem.path = '': expected the path of a Python file (.py) or of a folder"),
        ({"path": "d", "loss": "hinge"}, "problem.loss = 'hinge': expected logistic or least-squares"),
        ({"path": "d", "lambda": -1.0}, "problem.lambda = -1.0: expected a number from 0 to 1e100"),
        ({"path": "d", "function": "f"}, "problem.function = 'f': expected nothing: the folder has no use for it"),
        ({"path": "a.py", "loss": "logistic"}, "problem.loss = 'logistic': expected nothing: the Python file has"),
        ({"path": "a.py", "lambda": 0.1}, "problem.lambda = 0.1: expected nothing: the Python file has"),
    ],
)
def test_keys_that_do_not_fit(build: Build, table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        build(2, name="file", **table)
    assert str(refusal.value).startswith(message)


def test_data_that_are_not_here_are_told_from_data_that_are_wrong(build: Build, folder: Path) -> None:
    """Whoever can do without them may go on; whoever finds them broken must not."""
    for missing in (str(folder / "nowhere"), str(folder)):
        with pytest.raises(MissingData):
            build(3, name="file", path=missing).objective([2], 3)
    (folder / "agent-1.csv").write_text("1,2,7\n")
    with pytest.raises(BadInput, match="labels −1 or 1") as refused:
        build(2, name="file", path=str(folder)).objective([1], 2)
    assert not isinstance(refused.value, MissingData)


@pytest.mark.parametrize(
    "refusal",
    [
        BadInput("noise.u_w", -1, "a number ≥ 0"),
        MissingData("problem.path", "data", "a readable folder"),
        Inadmissible("algorithm.beta", 1.0, "a smaller one"),
        UnknownName("network.topology", "rign", "rign", ["ring", "star"]),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
def test_a_refusal_keeps_its_kind_and_its_sentence_between_processes(refusal: BadInput) -> None:
    back = pickle.loads(pickle.dumps(refusal))
    assert (type(back), str(back), back.field) == (type(refusal), str(refusal), refusal.field)
