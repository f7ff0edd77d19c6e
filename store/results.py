"""A `Result` on disk: the run directory that `dpp2 run` leaves, without the state to go on from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from dpp2 import BadInput, Experiment, Result
from dpp2.errors import one_line
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported
from dpp2.result import PrivacyReport
from dpp2.stability import Divergence
from dpp2.store.files import PRIVATE, read_npz, write_text
from dpp2.store.kept import OBSERVATION, TRUTH, KeptRecords, open_records
from dpp2.store.rundir import RunDirectory, read_metrics
from dpp2.theory import Condition

NAME = "result.json"
_RECORDS = ("observation.npz", "truth.npz")
_EPSILONS = {cls.__name__: cls for cls in (Epsilon, PaperEpsilon, Unsupported)}


def save(result: Result, path: Path, *, force: bool = False) -> Path:
    """Write all of it, or nothing."""
    for records in (result.observation, result.truth):
        if isinstance(records, KeptRecords) and records.path.parent.resolve() == path.resolve():
            raise BadInput("path", str(path), "another directory than the one that its records are read from")
    directory = RunDirectory.create(path, force=force)
    directory.describe(result.experiment)
    directory.write_records(result)
    write_facts(result, directory.path)
    return directory.path


def load(path: Path) -> Result:
    """What `save`, or a finished `dpp2 run`, has written."""
    directory = RunDirectory.open(path)
    experiment = Experiment.load(directory.path / "experiment.toml").resolve()
    try:
        facts = json.loads((path / NAME).read_text(encoding="utf-8"))
        return Result(
            experiment=experiment,
            x=read_npz(path / "solution.npz").x,
            metrics=read_metrics(path / "metrics.csv"),
            observation=open_records(path, OBSERVATION),
            truth=open_records(path, TRUTH),
            **_facts(facts),
        )
    except Exception as error:  # zip, zlib, json and numpy raise a dozen kinds on a damaged file
        raise BadInput("RUN", str(path), f"a finished run of this version, with {NAME} ({one_line(error)})") from None


def write_facts(result: Result, folder: Path) -> None:
    """What a result holds beside arrays: numbers that JSON does not know are words."""
    privacy = result.privacy
    facts = {
        "run_id": result.run_id,
        "records": {name: _checksums(folder / name) for name in _RECORDS if (folder / name).is_file()},
        "seconds": result.seconds,
        "report": result.report,
        "divergence": asdict(result.divergence) if result.divergence else None,
        "conditions": [asdict(one) for one in result.conditions],
        "privacy": {
            "epsilon": {"kind": type(privacy.epsilon).__name__, **asdict(privacy.epsilon)},
            "paper_epsilon": {"kind": type(privacy.paper_epsilon).__name__, **asdict(privacy.paper_epsilon)},
            "stopped": privacy.stopped,
            "notes": list(privacy.notes),
        },
    }
    write_text(folder / NAME, json.dumps(_worded(facts), ensure_ascii=False, indent=2) + "\n", PRIVATE)


def check_records(folder: Path) -> None:
    """Refuse records that are not those which the run has written: of another run, or changed since."""
    try:
        written = json.loads((folder / NAME).read_text(encoding="utf-8")).get("records", {})
    except (OSError, ValueError, AttributeError):  # a run of an older version, or one that was not finished
        return
    for name in _RECORDS:
        path = folder / name
        if name in written and path.is_file() and _checksums(path) not in (None, written[name]):
            raise BadInput("RUN", str(folder), f"the {name} that this run has written, but this is another one")


def read_divergence(folder: Path) -> Divergence | None:
    """That a run diverged, and why; None where it did not, or where it was never finished."""
    try:
        written = json.loads((folder / NAME).read_text(encoding="utf-8"))["divergence"]
        return _divergence(written)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _checksums(path: Path) -> dict[str, int] | None:
    """CRC-32 of every array, as the directory of the file has it: nothing is unpacked. None: it is damaged."""
    try:
        with ZipFile(path) as file:
            return {entry.filename: entry.CRC for entry in file.infolist()}
    except BadZipFile:
        return None


def _facts(read: Mapping[str, Any]) -> dict[str, Any]:
    privacy = read["privacy"]
    return {
        "run_id": str(read["run_id"]),
        "seconds": float(read["seconds"]),
        "report": {name: float(value) for name, value in read["report"].items()},
        "divergence": _divergence(read["divergence"]),
        "conditions": [Condition(one["name"], float(one["left"]), float(one["right"])) for one in read["conditions"]],
        "privacy": PrivacyReport(
            _epsilon(privacy["epsilon"]),
            _epsilon(privacy["paper_epsilon"]),
            privacy["stopped"],
            tuple(privacy["notes"]),
        ),
    }


def _divergence(table: Mapping[str, Any] | None) -> Divergence | None:
    return Divergence(**{**table, "growth": float(table["growth"])}) if table else None


def _epsilon(table: Mapping[str, Any]) -> Any:
    numbers = ("log10", "value", "log2_delta")
    given = {key: float(one) if key in numbers and one is not None else one for key, one in table.items()}
    cls: Any = _EPSILONS[str(given.pop("kind"))]
    return cls(**given)


def _worded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _worded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_worded(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
