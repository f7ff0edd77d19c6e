"""What `dpp2 bench network` measures, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpp2.store.documents import OPTIONAL
from dpp2.studies.bench.delays import Delayed
from dpp2.studies.bench.tier3 import BesideDpp2
from dpp2.studies.tables import TextTable

Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class AgainstBare:
    """Nodes beside bare streams with their settings, bare streams as gRPC comes, and DISROPT where it is installed."""

    rounds_per_second: float
    rounds_per_second_bare: float
    rounds_per_second_untuned: float
    messages_per_second: float
    messages_per_second_bare: float
    of_bare: float
    of_untuned: float
    rounds_per_second_disropt: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Together:
    """The same agents, hosted by two nodes and by a node each."""

    rounds_per_second: float
    rounds_per_second_apart: float
    times_apart: float


@dataclass(frozen=True)
class Wide:
    """Few agents with long messages."""

    bytes_per_second: float
    bytes_per_second_bare: float
    of_bare: float


@dataclass(frozen=True)
class Overhead:
    """Rounds per second without, and which part of the time TLS and checkpoints cost."""

    rounds_per_second: float
    tls: float
    checkpoints: float


@dataclass(frozen=True)
class Memory:
    """Of every node at the end, and by how much it grew."""

    megabytes: list[float]
    growth: list[float]


@dataclass(frozen=True)
class StartUp:
    cpu_seconds: float
    libraries_alone: float
    heavy_imports: list[str]


@dataclass(frozen=True)
class NetworkMeasured:
    two_processes: AgainstBare
    fifty_processes: AgainstBare
    together: Together
    ten_agents: AgainstBare
    wide: Wide
    overhead: Overhead
    delayed: list[Delayed]
    memory: Memory
    start_up: StartUp
    tier3: BesideDpp2


def table(measured: NetworkMeasured) -> TextTable:
    rows = [
        *_against_bare("50 agents, 255 edges, 2 processes", measured.two_processes),
        *_against_bare("50 agents, 255 edges, a process each", measured.fifty_processes),
        *_against_bare("10 agents, 25 edges, a process each", measured.ten_agents),
        *_shapes(measured.wide, measured.together),
        *map(_delayed, measured.delayed),
        *_costs(measured.overhead, measured.memory, measured.start_up),
        *((*row[:2], "", "", row[2]) for row in measured.tier3.rows("a round of dpp3, 50 agents in 2 nodes", "≤ 1")),
    ]
    return TextTable(("what", "measured", "bare streams", "of bare", "goal"), rows, "dpp2 bench network")


def _against_bare(what: str, one: AgainstBare) -> list[Row]:
    rates = f"{one.rounds_per_second:.1f} rounds/s, {one.messages_per_second:,.0f} messages/s"
    bare, untuned = f"{one.messages_per_second_bare:,.0f} messages/s", f"{one.rounds_per_second_untuned:.1f} rounds/s"
    rows = [
        (what, rates, bare, f"{one.of_bare:.2f}", "≥ 0.70"),
        ("  streams with gRPC's own settings", "", untuned, f"{one.of_untuned:.2f}", ""),
    ]
    if one.rounds_per_second_disropt is not None:
        rows.append(("  DISROPT over MPI", f"{one.rounds_per_second_disropt:.1f} rounds/s", "", "", ""))
    return rows


def _shapes(wide: Wide, together: Together) -> list[Row]:
    ours, bare = f"{wide.bytes_per_second / 1e6:,.0f} MB/s", f"{wide.bytes_per_second_bare / 1e6:,.0f} MB/s"
    rates = f"{together.rounds_per_second:,.0f} rounds/s, {together.times_apart:.0f}× a process each"
    return [
        ("4 agents, d = 100,000", ours, bare, f"{wide.of_bare:.2f}", "≥ 0.50"),
        ("50 agents in 2 nodes", rates, "", "", "≥ 20×"),
    ]


def _delayed(one: Delayed) -> Row:
    what = f"{one.agents} agents, a process each, {1000 * one.one_way:.1f} ms one way"
    rates = f"{one.rounds_per_second:.1f} rounds/s of {one.most:.1f}, {1000 * one.besides:.1f} ms more than the delays"
    return what, f"{rates}, {1000 * one.cpu_per_round:.2f} ms of CPU of a node", "", "", ""


def _costs(overhead: Overhead, memory: Memory, start: StartUp) -> list[Row]:
    loaded = ", ".join(start.heavy_imports) or "nothing heavy"
    return [
        ("TLS costs", f"{overhead.tls:+.0%}", "", "", ""),
        ("a checkpoint every 10 rounds costs", f"{overhead.checkpoints:+.0%}", "", "", ""),
        ("memory from round 2,000 to 10,000", f"{max(memory.growth):+.1%}", "", "", "flat"),
        ("CPU until a node listens", f"{start.cpu_seconds:.2f} s ({loaded} loaded)", "", "", "< 0.5 s"),
        ("  NumPy, gRPC, pydantic and uvloop alone", f"{start.libraries_alone:.2f} s", "", "", ""),
    ]
