"""A `Result` on disk: the run directory that `dpp2 run` leaves, without the state to go on from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpp2 import BadInput, Experiment, Records, Result
from dpp2.errors import one_line
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported
from dpp2.result import PrivacyReport
from dpp2.stability import Divergence
from dpp2.store.files import PRIVATE, read_npz, write_text
from dpp2.store.rundir import RunDirectory, read_metrics
from dpp2.theory import Condition

NAME = "result.json"
_EPSILONS = {cls.__name__: cls for cls in (Epsilon, PaperEpsilon, Unsupported)}


def save(result: Result, path: Path, *, force: bool = False) -> Path:
    """Write all of it, or nothing."""
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
            observation=_records(path / "observation.npz"),
            truth=_records(path / "truth.npz"),
            **_facts(facts),
        )
    except Exception as error:  # zip, zlib, json and numpy raise a dozen kinds on a damaged file
        raise BadInput("RUN", str(path), f"a finished run of this version, with {NAME} ({one_line(error)})") from None


def _records(path: Path) -> Records:
    return read_npz(path) if path.is_file() else Records({})


def write_facts(result: Result, folder: Path) -> None:
    """What a result holds beside arrays: numbers that JSON does not know are words."""
    privacy = result.privacy
    facts = {
        "run_id": result.run_id,
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


def _facts(read: Mapping[str, Any]) -> dict[str, Any]:
    privacy, divergence = read["privacy"], read["divergence"]
    return {
        "run_id": str(read["run_id"]),
        "seconds": float(read["seconds"]),
        "report": {name: float(value) for name, value in read["report"].items()},
        "divergence": Divergence(**{**divergence, "growth": float(divergence["growth"])}) if divergence else None,
        "conditions": [Condition(one["name"], float(one["left"]), float(one["right"])) for one in read["conditions"]],
        "privacy": PrivacyReport(
            _epsilon(privacy["epsilon"]),
            _epsilon(privacy["paper_epsilon"]),
            privacy["stopped"],
            tuple(privacy["notes"]),
        ),
    }


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
