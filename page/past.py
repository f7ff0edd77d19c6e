"""Runs that are over: lines for those that wrote no events, and for those that are replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpp2 import BadInput, Experiment
from dpp2.arrays import Array
from dpp2.page.replay import Replay
from dpp2.store.events import EventReader
from dpp2.store.files import read_json
from dpp2.store.rundir import read_metrics
from dpp2.thinning import chosen

_POINTS = 400
_PRIVATE = ("gap", "consensus", "stationarity", "objective")  # columns that only telemetry shows


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Of a run that wrote none itself, such as one that was collected; none if it did, or is not over."""
    if (run / "events.jsonl").is_file() or not (run / "metrics.csv").is_file():
        return []
    metrics, at = seen_metrics(run), (run / "metrics.csv").stat().st_mtime
    k = len(metrics["round"]) - 1
    first = {"kind": "began", "at": at, "round": 0, "rounds": k, "run_id": "", "transport": "collected", "groups": []}
    points: list[list[float]] = []
    if "gap" in metrics:
        shown = chosen(metrics["gap"], _POINTS)
        names = ("round", *_PRIVATE[:3])
        points = [[float(metrics[name][n]) for name in names] for n in shown]
    sent = int(metrics["bytes"].sum())
    rounds = {"kind": "rounds", "at": at, "round": k, "seconds": 0.0, "bytes": sent, "points": points}
    return [first, rounds, {"kind": "ended", "at": at, "round": k, "how": "finished", "text": _stopped(run)}]


def replayed(run: Path, speed: float, clock: Callable[[], float]) -> Replay:
    """Rounds and events of a run that is over, at so many rounds a second."""
    if not (run / "metrics.csv").is_file():
        raise BadInput("--speed", speed, "a run that is over: one under way has a speed of its own")
    written, _ = EventReader(run / "events.jsonl").lines()
    return Replay(seen_metrics(run), written or lines_of(run), speed, clock)


def seen_metrics(run: Path) -> Mapping[str, Array]:
    """metrics.csv, without what nobody may see if the run kept no telemetry."""
    try:
        metrics = dict(read_metrics(run / "metrics.csv"))
    except (OSError, ValueError) as error:
        raise BadInput("RUN", str(run), f"an intact metrics.csv ({error})") from None
    if Experiment.load(run / "experiment.toml").run.telemetry == "full":
        return metrics
    return {name: column for name, column in metrics.items() if name not in _PRIVATE}


def _stopped(run: Path) -> str:
    with suppress(OSError, ValueError, AttributeError):
        return str(read_json(run / "privacy.json").get("stopped") or "")
    return ""
