"""The parts of a node that need no network: mixing, files, cluster, keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput
from dpp2 import keys as keyed
from dpp2.node import mixing
from dpp2.node.cluster import Cluster
from dpp2.node.disk import RealDisk
from dpp2.node.errors import NodeFailed
from dpp2.node.files import Checkpoint, Checkpoints, RecordFiles, read_records
from dpp2.node.journal import Journal
from dpp2.node.keyring import Keyring, write_key
from dpp2.node.machine import Memory
from dpp2.node.mixing import Mixer
from dpp2.node.outbox import SentDigests
from dpp2.topology import Graph
from dpp2.weights import edge_weights, weight_matrix

D = 3
PHASES = ("y", "z")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


# --- mixing ---------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    agents = draw(st.integers(2, 12))
    spine = [(draw(st.integers(0, j - 1)), j) for j in range(1, agents)]
    more = draw(st.lists(st.tuples(st.integers(0, agents - 1), st.integers(0, agents - 1)), max_size=30))
    return Graph.of(range(agents), [*spine, *more])


@settings(max_examples=200, deadline=None)
@given(graphs(), st.sampled_from(["metropolis", "laplacian", "plain"]), st.integers(0, 2**32 - 1), st.data())
def test_mixing_adds_as_the_sparse_product_does(graph: Graph, kind: Any, seed: int, data: st.DataObject) -> None:
    owned = data.draw(st.lists(st.integers(0, graph.agents - 1), min_size=1, unique=True).map(sorted))
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((graph.agents, D)) * 10.0 ** rng.integers(-9, 9, (graph.agents, D))
    others = data.draw(st.permutations([agent for agent in range(graph.agents) if agent not in owned]))
    mixer = Mixer(graph, edge_weights(graph, kind), owned, [*owned, *others])
    whole = weight_matrix(graph, kind) @ values
    assert mixer.mix(values[owned], [values[agent].tobytes() for agent in others]).tobytes() == whole[owned].tobytes()


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1), st.data())
def test_mixing_for_one_agent_adds_as_the_sparse_product_does(graph: Graph, seed: int, data: st.DataObject) -> None:
    """Whether each neighbour is a node of its own, as where every agent has a process, or some share one."""
    owned = data.draw(st.integers(0, graph.agents - 1))
    neighbours = sorted(int(j) for j in graph.neighbours(owned))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(neighbours) - 1, 1)))))
    parts = [neighbours[low:high] for low, high in pairwise([0, *cuts, len(neighbours)]) if low < high]
    values = np.random.default_rng(seed).standard_normal((graph.agents, D))
    values[:: seed % 3 + 1] = -0.0
    mixer = Mixer(graph, edge_weights(graph, "metropolis"), [owned], [owned, *neighbours])
    whole = weight_matrix(graph, "metropolis") @ values
    for sent in (parts, [[agent] for agent in neighbours]):
        mixed = mixer.mix(values[[owned]], [values[part].tobytes() for part in sent])
        assert mixed.tobytes() == whole[[owned]].tobytes()


@pytest.mark.parametrize("few", [0, 10**6])
@pytest.mark.parametrize("d", [1, 10])
def test_mixing_adds_in_order_however_many_agents_there_are(d: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a sparse product, or some agents after the other: the bits of the embedded product either way."""
    monkeypatch.setattr(mixing, "_MANY", few)
    agents = 3000
    pairs = np.random.default_rng(1).integers(0, agents, (2, 12_000))
    graph = Graph.linked(agents, *pairs)
    values = np.random.default_rng(d).standard_normal((agents, d)) * 10.0 ** (np.arange(agents)[:, None] % 20)
    values[::7] = -0.0
    owned, others = list(range(0, agents, 2)), list(range(agents - 1, 0, -2))
    mixer = Mixer(graph, edge_weights(graph, "metropolis"), owned, [*owned, *others])
    whole = weight_matrix(graph, "metropolis") @ values
    assert mixer.mix(values[owned], [values[others].tobytes()]).tobytes() == whole[owned].tobytes()


@pytest.mark.parametrize("d", [1, 3, 70_000])
def test_mixing_adds_in_order_however_many_numbers_there_are(d: int) -> None:
    """Sums of many terms, which NumPy would add in pairs if it were left to it; zeros of both signs among them."""
    agents = 20
    graph = Graph.of(range(agents), [(i, j) for i in range(agents) for j in range(i)])
    values = np.random.default_rng(d).standard_normal((agents, d)) * 10.0 ** np.arange(-10, 10)[:, None]
    values[:, 0] = -0.0 if d > 1 else values[:, 0]
    whole = weight_matrix(graph, "metropolis") @ values
    mixer = Mixer(graph, edge_weights(graph, "metropolis"), [4], [4, *(j for j in range(agents) if j != 4)])
    others = [values[j].tobytes() for j in range(agents) if j != 4]
    assert mixer.mix(values[4:5], others).tobytes() == whole[4:5].tobytes()


# --- journal --------------------------------------------------------------------------------------------------


class Sending:
    """What a node does before a frame leaves: compare with what has left before, and note what is new."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(RealDisk(folder), len(PHASES))
        self.journal.begin()
        rounds = Memory(None, self.journal.known, 0).rounds_begun
        self.digests = SentDigests(PHASES, self.journal.known, rounds)

    @property
    def rounds(self) -> int:
        return self.digests.rounds

    def check(self, round_: int, phase: str, inputs: list[bytes], sent: bytes) -> None:
        entry = self.digests.check(round_, phase, inputs, sent)
        if entry is not None:
            self.journal.append(entry.round, entry.phase, entry.digest)

    def forget(self, durable: int) -> None:
        self.digests.forget(durable)

    def close(self) -> None:
        self.journal.close()


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    """Opens the same journal, again and again, each time as a new process would: the one before is gone."""
    opened: list[Sending] = []

    def reopen() -> Sending:
        while opened:
            opened.pop().close()
        opened.append(Sending(tmp_path))
        return opened[-1]

    yield reopen
    for one in opened:
        one.close()


A, B = b"one seal", b"another."


def test_a_replay_may_repeat_and_not_differ(journal: Callable[[], Sending]) -> None:
    first = journal()
    first.check(0, "y", [], A)
    first.check(0, "z", [B], A)
    again = journal()
    again.check(0, "y", [], A)
    again.check(0, "z", [B], A)
    again.check(1, "y", [], B)
    for inputs, sent in (([A], A), ([], A), ([B], B), ([B, B], A)):
        with pytest.raises(NodeFailed, match="round 0, phase 'z' was sent before with other bytes"):
            again.check(0, "z", inputs, sent)
    with pytest.raises(NodeFailed, match="round 1"):
        journal().check(1, "y", [], A)


@pytest.mark.parametrize("lost", range(1, 45))
def test_a_truncated_tail_loses_one_entry(lost: int, journal: Callable[[], Sending], tmp_path: Path) -> None:
    before = journal()
    before.check(0, "y", [], A)
    before.check(0, "z", [], A)
    path = tmp_path / "journal.bin"
    path.write_bytes(path.read_bytes()[: 8 + 2 * 45 - lost])
    after = journal()
    after.check(0, "z", [], B)  # was never whole, so it never left
    last = journal()
    last.check(0, "z", [], B)
    with pytest.raises(NodeFailed):
        last.check(0, "y", [], B)


def test_an_entry_without_its_last_byte_is_written_anew(journal: Callable[[], Sending], tmp_path: Path) -> None:
    before = journal()
    before.check(0, "y", [], A)
    before.check(0, "z", [], A)
    path = tmp_path / "journal.bin"
    content = bytearray(path.read_bytes())
    content[8 + 2 * 45 - 1] = 0  # killed just before it
    path.write_bytes(content)
    after = journal()
    assert after.rounds == 1
    after.check(0, "z", [], B)
    with pytest.raises(NodeFailed):
        journal().check(0, "z", [], A)


def test_a_journal_grows_as_long_as_rounds_go_on(journal: Callable[[], Sending]) -> None:
    first = journal()
    for k in range(1100):
        for phase in PHASES:
            first.check(k, phase, [], b"%d" % k)
    again = journal()
    assert again.rounds == 1100
    again.check(1100, "y", [], A)
    for k in (0, 511, 512, 1099):
        again.check(k, "z", [], b"%d" % k)
        with pytest.raises(NodeFailed):
            again.check(k, "y", [], A)


@pytest.mark.parametrize(
    "content",
    [b"0" * 82, bytes(7) + b"\x01" + bytes(75), b"dpp2 j 3" + bytes(44) + b"\x03"],
    ids=["another version", "nearly zeros", "a phase that there is not"],
)
def test_a_journal_that_cannot_be_read_stops_the_node(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "journal.bin").write_bytes(content)
    with pytest.raises(NodeFailed, match=r"journal\.bin is damaged.*this node cannot go on"):
        Sending(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(3), bytes(8), bytes(500), b"dpp2", b"dpp2" + bytes(80)], ids=repr)
def test_a_journal_that_was_killed_when_it_was_made_begins_anew(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "journal.bin").write_bytes(content)
    made = Sending(tmp_path)
    made.check(0, "y", [], A)
    made.close()
    again = Sending(tmp_path)
    assert again.rounds == 1
    again.close()


@pytest.mark.parametrize("at", range(45))
def test_one_flipped_byte_in_an_entry_stops_the_node(at: int, tmp_path: Path) -> None:
    """Whatever it is: digest, round, checksum or phase. A round number that is damaged is not charged for."""
    first = Sending(tmp_path)
    for k in range(3):
        first.check(k, "y", [], A)
    first.close()
    flip(tmp_path / "journal.bin", 8 + 45 + at)
    with pytest.raises(
        NodeFailed, match=r"journal\.bin is damaged \(entry 1\).*run under another id, or say --trust-j"
    ):
        Sending(tmp_path)
    trusting = Journal(RealDisk(tmp_path), len(PHASES), trust=True)
    assert [*trusting.known] == [(0, 1), (2, 1)]
    trusting.begin()
    trusting.append(3, 1, bytes(32))
    trusting.close()
    again = Sending(tmp_path)  # the operator need not say it twice
    assert again.rounds == 4
    again.close()


@pytest.mark.parametrize("lost", [slice(0, 8), slice(0, 60), slice(8, 53), slice(0, 143)], ids=str)
def test_pages_that_are_lost_are_no_end_of_the_journal(lost: slice, tmp_path: Path) -> None:
    """A loss of power may keep what was written last and lose what was before."""
    first = Sending(tmp_path)
    for k in range(4):
        first.check(k, "y", [], A)
    first.close()
    path = tmp_path / "journal.bin"
    content = bytearray(path.read_bytes())
    content[lost] = bytes(lost.stop - lost.start)
    path.write_bytes(content)
    with pytest.raises(NodeFailed, match=r"journal\.bin is damaged"):
        Sending(tmp_path)
    trusting = Journal(RealDisk(tmp_path), len(PHASES), trust=True)
    assert max(trusting.known) == (3, 1)
    trusting.close()
    Sending(tmp_path).close()


def test_two_nodes_cannot_share_a_folder(journal: Callable[[], Sending], tmp_path: Path) -> None:
    journal()
    with pytest.raises(NodeFailed, match="is in use by another node"):
        Sending(tmp_path)


def test_opening_a_journal_does_not_make_it_longer(journal: Callable[[], Sending], tmp_path: Path) -> None:
    journal()
    size = (tmp_path / "journal.bin").stat().st_size
    for _ in range(3):
        journal()
    assert (tmp_path / "journal.bin").stat().st_size == size


def test_the_file_outlives_what_memory_forgets(journal: Callable[[], Sending]) -> None:
    first = journal()
    first.check(0, "y", [], A)
    first.forget(1)
    with pytest.raises(NodeFailed):
        journal().check(0, "y", [], B)


# --- checkpoints ----------------------------------------------------------------------------------------------


def saved(folder: Path, *rounds: int) -> Checkpoints:
    checkpoints = Checkpoints(RealDisk(folder))
    checkpoints.load()
    for k in rounds:
        checkpoints.save(Checkpoint({"state.x": np.full(4, float(k))}, {"round": k}))
    return checkpoints


def found(folder: Path) -> list[int]:
    return [checkpoint.k for checkpoint in Checkpoints(RealDisk(folder)).load()]


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    saved(tmp_path, 5)
    assert found(tmp_path) == [5]
    saved(tmp_path, 10, 15)
    assert found(tmp_path) == [15, 10]
    newest = Checkpoints(RealDisk(tmp_path)).load()[0]
    np.testing.assert_array_equal(newest.state["state.x"], np.full(4, 15.0))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "short": lambda content: content[:20],
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "flipped": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "flipped checksum": lambda content: bytes([content[0] ^ 1]) + content[1:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_named_and_the_other_one_used(damage: str, tmp_path: Path) -> None:
    saved(tmp_path, 5, 10)
    newer, older = tmp_path / "checkpoint.bin", tmp_path / "checkpoint-before.bin"
    newer.write_bytes(DAMAGES[damage](newer.read_bytes()))
    checkpoints = Checkpoints(RealDisk(tmp_path))
    assert [checkpoint.k for checkpoint in checkpoints.load()] == [5]
    assert checkpoints.complaints == [f"{newer} is damaged and is not used"]
    older.write_bytes(DAMAGES[damage](older.read_bytes()))
    assert checkpoints.load() == []  # a start from the beginning: neighbours have everything on record
    assert checkpoints.complaints == [f"{one} is damaged and is not used" for one in (newer, older)]
    newer.unlink()
    assert checkpoints.load() == []


def test_a_damaged_one_does_not_push_out_a_whole_one(tmp_path: Path) -> None:
    saved(tmp_path, 5, 10)
    (tmp_path / "checkpoint.bin").write_bytes(b"x")
    checkpoints = Checkpoints(RealDisk(tmp_path))
    checkpoints.load()
    checkpoints.save(Checkpoint({}, {"round": 10}))
    assert found(tmp_path) == [10, 5]
    checkpoints.save(Checkpoint({}, {"round": 15}))
    assert found(tmp_path) == [15, 10]


def test_what_a_kill_leaves_behind_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path, 5, 10)
    (tmp_path / "checkpoint.part").write_bytes(b"half")
    (tmp_path / "checkpoint.bin").unlink()  # killed between the two renames
    assert found(tmp_path) == [5]
    saved(tmp_path, 10)
    assert found(tmp_path) == [10, 5]


# --- records --------------------------------------------------------------------------------------------------


def test_records_are_cut_where_a_restart_begins(tmp_path: Path) -> None:
    records = RecordFiles(RealDisk(tmp_path), {"y": 2, "eta": 1})
    records.cut(0)
    for k in range(4):
        records.append("y", np.array([[k, k + 0.5]]))
        records.append("eta", float(k))
        records.append("unknown", 1.0)
    records.push()
    records.sync()
    records.close()
    again = RecordFiles(RealDisk(tmp_path), {"y": 2, "eta": 1})
    again.cut(2)
    again.append("y", np.array([9.0, 9.0]))
    again.append("eta", 9.0)
    again.close()
    np.testing.assert_array_equal(read_records(RealDisk(tmp_path), "y", range(3), 2), [[0, 0.5], [1, 1.5], [9, 9]])
    np.testing.assert_array_equal(read_records(RealDisk(tmp_path), "eta", range(3), 1), [[0], [1], [9]])
    last = RecordFiles(RealDisk(tmp_path), {"y": 2, "eta": 1})
    with pytest.raises(NodeFailed, match=r"y\.f64 is shorter than the 4 rounds"):
        last.cut(4)
    last.close()


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def swap(path: Path, at: int) -> None:
    """Two whole blocks change places."""
    content = path.read_bytes()
    path.write_bytes(content[24:48] + content[:24] + content[48:])


def set_to_nan(path: Path, at: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:24] + np.full(1, np.nan).tobytes() + content[32:])


@pytest.mark.parametrize(
    ("damage", "at"),
    [*((flip, at) for at in (0, 7, 15, 16, 23, 24, 40, 71)), (swap, 0), (set_to_nan, 24)],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_a_damaged_block_of_records_is_used_for_nothing(
    damage: Callable[[Path, int], None], at: int, tmp_path: Path
) -> None:
    records = RecordFiles(RealDisk(tmp_path), {"y": 2})
    for k in range(3):
        records.append("y", np.array([[k, k + 0.5]]))
    records.push()
    damage(tmp_path / "records" / "y.f64", at)
    said = rf"y\.f64 is damaged: round {at // 24} is not what was written"
    with pytest.raises(NodeFailed, match=said):
        read_records(RealDisk(tmp_path), "y", range(3), 2)
    with pytest.raises(NodeFailed, match=said):
        records.read("y", at // 24)
    np.testing.assert_array_equal(records.read("y", 2 if at < 48 else 0), [2, 2.5] if at < 48 else [0, 0.5])
    records.close()


# --- cluster.toml ---------------------------------------------------------------------------------------------


def cluster(tmp_path: Path, text: str) -> Cluster:
    (tmp_path / "cluster.toml").write_text(text)
    return Cluster.load(tmp_path / "cluster.toml")


def test_a_cluster_survives_its_file(tmp_path: Path) -> None:
    whole = Cluster({0: "a:1", 1: "b:2", 2: "a:1", 3: "[::1]:7"}, {(0, 3): "relay:9"})
    assert cluster(tmp_path, whole.to_toml()) == whole
    assert whole.node_of_agent() == {0: 0, 1: 1, 2: 0, 3: 3}
    assert whole.nodes() == {0: "a:1", 1: "b:2", 3: "[::1]:7"}


def test_a_link_is_named_either_way(tmp_path: Path) -> None:
    assert cluster(tmp_path, '[agents]\n0="a:1"\n1="b:1"\n[links]\n"1-0"="c:1"\n').links == {(0, 1): "c:1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "every agent from 0 on"),
        ('[agents]\n1 = "a:1"', "every agent from 0 on"),
        ('[agents]\n0 = "a:1"\n2 = "a:2"', "every agent from 0 on"),
        ('[agents]\nx = "a:1"', "the number of an agent"),
        ('[agents]\n-1 = "a:1"', "the number of an agent"),
        ("[agents]\n0 = 7000", "an address such as"),
        ('[agents]\n0 = "7000"', "an address such as"),
        ('[agents]\n0 = "host:99999"', "with a port from 1 to 65535"),
        ('[agents]\n0 = "host:0"', "with a port from 1 to 65535"),
        ('[agents]\n0 = "a host:7000"', "an address such as"),
        ('[agents]\n0 = ":7000"', "an address such as"),
        ('[agents]\n0 = "host:"', "an address such as"),
        ('[agents]\n0 = "host:http"', "an address such as"),
        ('[agents]\n0 = "a:1"\n[links]\n"0" = "a:1"', "two agents, as in"),
        ('[agents]\n0 = "a:1"\n[links]\n"0-x" = "a:1"', "two agents, as in"),
        ('[agents]\n0 = "a:1"\n[links]\n"0-1-2" = "a:1"', "two agents, as in"),
        ('[agents]\n0 = "a:1"\n[links]\n"0-1" = "a"', "an address such as"),
        ("[agents", "valid TOML"),
        ("agents = 3", "the tables"),
        ('[agents]\n0 = "a:1"\n[nodes]\n', "and no nodes"),
    ],
)
def test_clusters_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        cluster(tmp_path, text)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a readable cluster"):
        Cluster.load(tmp_path / "none.toml")


# --- keys -----------------------------------------------------------------------------------------------------


def test_seeded_keys_are_those_of_an_embedded_run(tmp_path: Path) -> None:
    ring = Keyring.of(1, [0, 3], tmp_path, None)
    seed = keyed.seed_key(1)
    assert ring.agents == keyed.derive(seed, "agent")  # of both
    assert ring.eta == keyed.derive(seed, "eta")
    assert not [*tmp_path.iterdir()]


def test_own_keys_are_drawn_once(tmp_path: Path) -> None:
    write_key(tmp_path / "eta.key", bytes(range(32)))
    first = Keyring.of("os", [0, 1], tmp_path / "home", tmp_path / "eta.key")
    assert first.eta == bytes(range(32))
    assert first.agents[0] != first.agents[1]
    assert Keyring.of("os", [0, 1], tmp_path / "home", tmp_path / "eta.key") == first
    assert {key.stat().st_mode & 0o777 for key in tmp_path.rglob("*.key")} == {0o600}
    with pytest.raises(FileExistsError):
        write_key(tmp_path / "eta.key", bytes(32))


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        ("00" * 32, 0o640, "only its owner can read"),
        ("00" * 32, 0o604, "only its owner can read"),
        ("00" * 31, 0o600, "32 bytes in hexadecimal, not 31"),
        ("zz" * 32, 0o600, "32 bytes in hexadecimal"),
        ("", 0o600, "32 bytes in hexadecimal"),
    ],
)
def test_key_files_that_are_refused(content: str, mode: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "eta.key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(BadInput, match=message):
        Keyring.of("os", [0], tmp_path, path)
    assert Keyring.of(1, [0], tmp_path, path)  # a seeded run reads none


def test_the_eta_key_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a readable key file"):
        Keyring.of("os", [0], tmp_path, tmp_path / "eta.key")
    with pytest.raises(BadInput, match=r"which run\.seed"):
        Keyring.of("os", [0], tmp_path, None)
