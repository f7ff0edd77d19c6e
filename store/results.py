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
from dpp2.store.files import PRIVATE, read_json, read_npz, write_text
from dpp2.store.kept import OBSERVATION, TRUTH, KeptRecords, has_records, open_records, records_path
from dpp2.store.rundir import RunDirectory, read_metrics
from dpp2.theory import Condition

NAME = "result.json"
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
        facts = read_json(path / NAME)
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
        "records": _all_checksums(folder),
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


def write_checksums(folder: Path, run_id: str) -> None:
    """Of a run of which no more is known than what lies in its directory."""
    facts = {"run_id": run_id, "records": _all_checksums(folder)}
    write_text(folder / NAME, json.dumps(facts, ensure_ascii=False, indent=2) + "\n", PRIVATE)


def check_records(folder: Path, last: int | None = None, field: str = "RUN") -> None:
    """Refuse records that are not those which the run has written: of another run, or changed since.

    With `last` only the chunks that the last rounds are in are looked at. A run that goes on (`--resume`) may have been
    stopped before it wrote any checksums; whoever judges a finished run needs them.
    """
    there = [name for name in (OBSERVATION, TRUTH) if has_records(folder, name)]
    if not there or (field == "--resume" and not (folder / NAME).is_file()):
        return
    try:
        written = dict(read_json(folder / NAME)["records"])
    except (OSError, LookupError, TypeError, ValueError):
        wanted = f"a run with its {NAME}, which has the checksums of its records"
        raise BadInput(field, str(folder), wanted) from None
    for path in (records_path(folder, name) for name in there):
        if not _are(folder, path, written.get(path.name), last, field):
            raise BadInput(field, str(folder), f"the {path.name} that this run has written, but this is another one")


def _are(folder: Path, path: Path, written: Any, last: int | None, field: str) -> bool:
    """Whether records have these checksums. A damaged .npz counts as its own: whoever reads it says what is wrong."""
    if path.suffix == ".npz":
        return _checksums(path) in (None, written)
    try:
        found = _opened(folder, path).checksums(last)
    except (OSError, ValueError) as error:
        raise BadInput(field, str(folder), f"a run with an intact {path.name} ({one_line(error)})") from None
    try:
        return found.keys() == written.keys() and all(_alike(found[name], written[name]) for name in found)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def _alike(found: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """None stands for a chunk that was not looked at."""
    pairs = zip(found["crc"], written["crc"], strict=True)
    return found["shape"] == written["shape"] and all(now in (None, then) for now, then in pairs)


def _all_checksums(folder: Path) -> dict[str, Any]:
    """Of observation and truth, whichever way they are kept. Chunks are read one after the other."""
    found: dict[str, Any] = {}
    for name in (OBSERVATION, TRUTH):
        if has_records(folder, name):
            path = records_path(folder, name)
            found[path.name] = _checksums(path) if path.suffix == ".npz" else _opened(folder, path).checksums()
    return found


def _opened(folder: Path, path: Path) -> KeptRecords:
    records = open_records(folder, path.stem)
    assert isinstance(records, KeptRecords)
    return records


def read_divergence(folder: Path) -> Divergence | None:
    """That a run diverged, and why; None where it did not, or where it was never finished."""
    try:
        return _divergence(read_json(folder / NAME)["divergence"])
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
