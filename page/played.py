"""One state of the playground, run: the real code, embedded, then the account and the attacks that are quick."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.adversary.audit import Interception
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.page.account import spent
from dpp2.page.controls import Controls, command_line
from dpp2.page.documents import EventDocument, ProgressDocument, compact
from dpp2.page.network import network_document
from dpp2.page.overheard import overheard
from dpp2.prepared import PreparedRun
from dpp2.problems import ProblemSection
from dpp2.thinning import chosen

_POINTS = 300
_MOST_KNOWN = 64
_KNOWN: dict[tuple[str, int], ProblemSection] = {}  # resolved, by what was asked for


def play(given: Mapping[str, str]) -> str:
    """All documents of a state in JSON, or why there are none."""
    try:
        return _played(Controls.parse(given))
    except BadInput as refused:
        return compact({"mode": "playground", "refused": str(refused), "field": refused.field})


def _played(controls: Controls) -> str:
    began = time.perf_counter()
    experiment, overrides = controls.experiment()
    experiment = _resolved(experiment)
    simulation = Simulation(PreparedRun.resolved(experiment))
    simulation.advance(simulation.remaining)
    result = simulation.result()
    assert result.observation is not None
    assert result.truth is not None
    heard = Interception(Observation.of(result.observation), "what the run sends, on every channel")
    found = overheard(experiment, heard, Truth.of(result.truth, experiment))
    rounds, uncovered = max(result.rounds, 1), simulation.budget.uncovered
    seconds = time.perf_counter() - began
    return compact(
        {
            "mode": "playground",
            "network": network_document(experiment, "playground"),
            "progress": _progress(result),
            "overheard": found,
            "account": spent(simulation.account, rounds, uncovered),
            "epsilon": str(result.privacy.epsilon),
            "paper_epsilon": str(result.privacy.paper_epsilon),
            "command": command_line(overrides),
            "toml": _toml(overrides),
            "seconds": seconds,
        }
    )


def _resolved(experiment: Experiment) -> Experiment:
    """Resolving looks at all data to find their scale: once for each kind of data is enough."""
    problem, agents = experiment.problem, experiment.network.agents
    if problem.seed is None:
        problem = problem.updated(seed=1)
    key = (compact(problem.table()), agents)
    if key not in _KNOWN:
        _KNOWN[key] = problem.resolve(agents)
        if len(_KNOWN) > _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
    return replace(experiment, problem=_KNOWN[key]).resolve()


def _progress(result: Result) -> ProgressDocument:
    metrics, k = result.metrics, result.rounds
    rounds = chosen(metrics.gap[: k + 1], _POINTS)
    names = ("round", "gap", "consensus", "stationarity")
    divergence = result.divergence
    events = [EventDocument(0.0, divergence.round, "diverged", divergence.explanation)] if divergence else []
    return ProgressDocument(
        status="diverged" if divergence else "finished",
        round=k,
        seconds=result.seconds,
        at=0.0,
        rate=result.rounds_per_second,
        pace=(),
        bytes=int(metrics.bytes.sum()),
        points=[[float(metrics[name][n]) for name in names] for n in rounds],
        since=0,
        nodes=(),
        events=events,
        report=result.report,
    )


def _toml(overrides: list[str]) -> str:
    """The tables of an experiment file that say the same."""
    tables: dict[str, list[str]] = {}
    for one in overrides:
        name, _, value = one.partition("=")
        section, _, key = name.partition(".")
        bare = not (value[:1].isdigit() or value[:1] in '-["' or value in ("true", "false"))
        tables.setdefault(section, []).append(f'{key} = "{value}"' if bare else f"{key} = {value}")
    return "\n".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in tables.items())
