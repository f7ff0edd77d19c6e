"""What has been overheard of a run so far, and what is true of it: read from whatever the run writes anyway.

A run that is over has observation.npz and truth.npz. While it goes on, an embedded run's checkpoints hold both (a large
one writes observation.zarr and truth.zarr from the start, and of these no more is read than attacks are given), and
with a tap its captures can be decoded as far as they go; nodes that keep telemetry append x and gradients to their
records.
The two functions share nothing: what is overheard goes to attacks, the truth to the scorer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.audit import Interception, intercepted
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.tap.decode import decode
from dpp2.adversary.tap.public import Public
from dpp2.arrays import Array
from dpp2.node.cluster import Cluster
from dpp2.orchestrator.merge import FolderRecords
from dpp2.page.place import NODES, Place
from dpp2.store.files import read_json
from dpp2.store.kept import OBSERVATION, TRUTH, KeptRecords, has_records, records_path
from dpp2.weights import weight_matrix

_FEWEST_ROUNDS = 20  # however large a network is, attacks that look at some rounds in a row have these


@dataclass(frozen=True)
class Much:
    """How many numbers of one phase attacks are given: all of a record up to `whole`, of a longer one its `end`."""

    whole: int
    end: int


LIVE = Much(1_000_000, 300_000)  # a pass takes some tenths of a second, however long a run goes on
OVER = Much(4_000_000, 4_000_000)


def heard(place: Place, experiment: Experiment, until: int | None = None, much: Much = OVER) -> Interception | None:
    """What an eavesdropper has, up to a round; None where there is nothing yet."""
    found = (
        _checkpointed(place.run, experiment, much.whole)
        or _streamed(place.run, experiment, until, much)
        or _finished(place.run)
        or _tapped(place, experiment)
    )
    if found is None or found.observation is None:
        return found
    return replace(found, observation=_cut(found.observation, until, much))


def _streamed(run: Path, experiment: Experiment, until: int | None, much: Much) -> Interception | None:
    """Of records in chunks, which grow while the run goes on, no more is read than attacks are given."""
    with suppress(OSError, ValueError, KeyError):
        if (path := records_path(run, OBSERVATION)).is_dir():
            records = KeptRecords(path)
            last = records.rounds if until is None else min(until, records.rounds)
            agents, dimension = records.shape[1:]
            kept = max(much.whole // (agents * dimension), _FEWEST_ROUNDS)
            first = max(last - kept, 0)
            observation = _with_weights(experiment, dict(records.window(first, last)), first)
            return Interception(observation, f"{path.name}, as the run recorded what it sent")
    return None


def _with_weights(experiment: Experiment, arrays: dict[str, Array], first: int) -> Observation:
    """P follows from the experiment: a run writes it down when it ends."""
    network = experiment.network.resolve()
    P = weight_matrix(network.graph(), network.weights).toarray()
    phases = {name: arrays[name] for name in experiment.algorithm.phases}
    return Observation.of({**phases, "P": P, "first": first})


def _finished(run: Path) -> Interception | None:
    if not has_records(run, OBSERVATION):
        return None
    return intercepted(run, Attacker())


def _tapped(place: Place, experiment: Experiment) -> Interception | None:
    """Captures as far as they go: what is missing at their end is not there yet."""
    with suppress(BadInput, OSError):
        cluster = Cluster.load(place.cluster)
        decoded = decode([place.captures], Public.of(experiment, cluster.addresses, cluster.links))
        if decoded.observation is not None:
            return Interception(_complete(decoded.observation), "the captures of the tap, decoded as far as they go")
        if decoded.ciphertext is not None:
            leaks = tuple(map(str, decoded.ciphertext.still_leaks))
            return Interception(None, "the captures of the tap: the wire carries ciphertext", leaks)
    return None


def _complete(observation: Observation) -> Observation | None:
    """Rounds in which everybody was heard, from the first one on: messages of the last ones may be under way."""
    ever = np.asarray(observation.heard.any(axis=0))
    missing = np.flatnonzero(np.asarray(observation.heard[:, ever].sum(axis=1)) < ever.sum())
    return _part(observation, 0, int(missing[0]) if len(missing) else observation.shape[0])


def _checkpointed(run: Path, experiment: Experiment, most: int) -> Interception | None:
    """They are there while the run goes on, and hold more than what an earlier end of it has left."""
    first, parts = _parts(run, experiment.algorithm.phases, most=most)
    if not parts:
        return None
    observation = _with_weights(experiment, parts, first)
    return Interception(observation, "checkpoints of the run, which keep what it sends")


def _cut(observation: Observation, until: int | None, much: Much) -> Observation | None:
    """Rounds up to `until`, and of a long record the end."""
    rounds, agents, dimension = observation.shape
    last = rounds if until is None else min(max(until - observation.first, 0), rounds)
    whole = not observation.first and last * agents * dimension <= much.whole
    kept = last if whole else max(much.end // (agents * dimension), _FEWEST_ROUNDS)
    return _part(observation, max(last - kept, 0), last)


def _part(observation: Observation, first: int, last: int) -> Observation | None:
    if last <= first:
        return None
    phases = {name: rows[first:last] for name, rows in observation.phases.items()}
    return replace(observation, phases=phases, first=observation.first + first)


def truth(place: Place, experiment: Experiment, since: int = 0) -> Truth | None:
    """What the agents have kept to themselves from round `since` on, if they wrote it down; for the scorer alone."""
    if experiment.run.telemetry != "full":
        return None
    section = experiment.algorithm
    names = ("x", "grad", *section.noises, *section.scalars)
    first, found = _parts(place.run, names, since=since)
    if found and first <= since:
        return Truth.of(found, experiment, first)
    if (path := records_path(place.run, TRUTH)).is_dir():
        with suppress(OSError, ValueError, KeyError):
            records = KeptRecords(path)
            return Truth.of(records.window(min(since, records.rounds), records.rounds), experiment, since)
    if has_records(place.run, TRUTH):
        return Truth.load(place.run)
    found = _recorded(place.run, names, len(section.scalars), experiment.network.agents)
    return Truth.of(found, experiment) if found else None


def _parts(
    run: Path, names: tuple[str, ...], *, since: int = 0, most: int | None = None
) -> tuple[int, dict[str, Array]]:
    """The end of what the checkpoints of an embedded run hold, and the round with which it begins.

    It goes back to the round `since`, or until there are `most` numbers of one kind, or to a hole: a long run has
    many parts, and reading all of them takes longer the longer it goes on. A resumed run may write some rounds again,
    and they are the same.
    """
    read: list[dict[str, Array]] = []
    first, numbers = 0, 0
    for begins, ends, path in _newest_first(run):
        if read and (ends < first or first <= since or (most is not None and numbers >= most)):
            break
        if not read or begins < first:
            with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):
                part = _arrays(path, names, None if not read else first - begins)
                read.append(part)
                first, numbers = begins, numbers + part[names[0]].size
    if not read:
        return 0, {}
    return first, {name: np.concatenate([part[name] for part in reversed(read)]) for name in names}


def _newest_first(run: Path) -> list[tuple[int, int, Path]]:
    """Parts with the rounds that their names tell: records-FIRST-END.npz."""
    named = [(path.stem.split("-"), path) for path in (run / "checkpoint").glob("records-*-*.npz")]
    told = [(words[1], words[2], path) for words, path in named if len(words) == 3]
    return sorted(
        ((int(begins), int(ends), path) for begins, ends, path in told if (begins + ends).isdecimal()), reverse=True
    )


def _arrays(path: Path, names: tuple[str, ...], rounds: int | None) -> dict[str, Array]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name][:rounds] for name in names}


def _recorded(run: Path, names: tuple[str, ...], scalars: int, agents: int) -> dict[str, Array]:
    """From the records of nodes on this machine, as far as all of them have come."""
    folders = list(_node_folders(run))
    if sorted(agent for hosted, _ in folders for agent in hosted) != list(range(agents)):
        return {}
    rows, numbers = names[: len(names) - scalars], names[len(names) - scalars :]
    with suppress(BadInput, OSError, ValueError):
        dimension = _dimension(folders)
        rounds = min(_rounds(path, "x", len(hosted) * dimension) for hosted, path in folders)
        made: dict[str, Array] = {name: np.empty((rounds, agents, dimension)) for name in rows}
        for hosted, path in folders:
            for name in rows:
                content = FolderRecords(path).read(name, range(rounds), len(hosted) * dimension)
                made[name][:, hosted] = content.reshape(rounds, len(hosted), dimension)
        path = folders[0][1]
        made |= {name: FolderRecords(path).read(name, range(rounds), 1).reshape(rounds) for name in numbers}
        return made if rounds else {}
    return {}


def _node_folders(run: Path) -> Iterator[tuple[list[int], Path]]:
    for facts in sorted(run.glob(NODES)):
        with suppress(OSError, ValueError, KeyError, TypeError):
            yield [int(agent) for agent in read_json(facts)["agents"]], facts.parent


def _dimension(folders: list[tuple[list[int], Path]]) -> int:
    """Blocks of x and of f differ in their numbers per agent: (8·n·d + 8)·k and (8·n + 8)·k bytes."""
    hosted, path = folders[0]
    of_x, of_f = ((path / "records" / f"{name}.f64").stat().st_size for name in ("x", "values"))
    agents = len(hosted)
    rounds = of_f // (8 * (agents + 1))
    if not rounds:
        raise ValueError("nothing is on record yet")
    return round((of_x / rounds / 8 - 1) / agents)


def _rounds(path: Path, name: str, width: int) -> int:
    return (path / "records" / f"{name}.f64").stat().st_size // (8 * (width + 1))
