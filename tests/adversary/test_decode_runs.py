"""Decoded captures of real networked runs against what the embedded run sends."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpp2 import Experiment
from dpp2.adversary.observation import Observation
from dpp2.adversary.tap import record
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.decode import decode
from dpp2.adversary.tap.frames import ranges, read_frame
from dpp2.adversary.tap.public import Public
from dpp2.adversary.tap.reassembly import UnbrokenBytes
from dpp2.adversary.tap.record import Kind, Opening, WireRecorder
from dpp2.adversary.tap.tls import estimated_rounds, is_ciphertext
from dpp2.errors import BadInput
from dpp2.node.codec import encode
from tests.adversary.made_packets import ethernet, raw, talk, written
from tests.adversary.tapped import (
    InProcess,
    Live,
    assert_what_was_sent,
    decoded,
    one_each,
    public,
    run_tapped,
    small,
    tapped,
)

GROUPS = {"one each": one_each(4), "pairs": [[0, 3], [1, 2]], "crossed": [[0, 2], [1, 3]], "three": [[0], [1, 2], [3]]}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
async def test_a_relayed_run_is_overheard_to_the_byte(groups: list[list[int]], tmp_path: Path) -> None:
    nodes = await run_tapped(small(), tmp_path, groups, InProcess(tmp_path / "tap"))
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.gaps == ()
    assert found.summary.notes == ()
    assert found.observation is not None
    place = public(nodes).node_of_agent
    edges = {(a, b) for i, j in nodes.simulation.prepared.graph.edges.tolist() for a, b in ((i, j), (j, i))}
    inside = {(i, j) for i, j in edges if place[i] == place[j]}
    assert {(i, j) for i, j in found.observation.unobserved.tolist()} == inside
    assert {(i, j) for i, j in found.observation.channels.tolist()} == edges - inside


async def test_agents_that_only_talk_within_their_process_are_not_filled_in(tmp_path: Path) -> None:
    """On the path 0-1-2-3 with nodes {0, 1} and {2, 3}, agents 0 and 3 never reach a wire."""
    nodes = await run_tapped(small(network__topology="path"), tmp_path, [[0, 1], [2, 3]], InProcess(tmp_path / "tap"))
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes, agents=[1, 2])
    assert found.observation is not None
    assert np.isnan(found.observation.phases["y"][:, [0, 3]]).all()
    assert found.observation.unobserved.tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert found.summary.gaps == ("48 of 96 rows, each one phase of one agent's round, were heard on no channel",)


async def test_a_broken_link_sends_again_and_copies_are_merged(tmp_path: Path) -> None:
    """Agent 2 has the y of round 8 but may not go on; when its links break, its neighbours send that again."""
    tap = InProcess(tmp_path / "tap")
    async with tapped(small(run__rounds=20), tmp_path, one_each(4), tap) as nodes:
        await nodes.prepare()
        await nodes.release(8)
        await nodes.reach(8)
        await nodes.release(9, 0, 1, 3)
        await asyncio.sleep(0.3)
        await tap.restart()
        await nodes.finish()
    assert len(list((tmp_path / "tap").glob("*.tap"))) == 2
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.copies_merged
    assert found.summary.conflicts == 0
    assert found.summary.gaps == ()


async def test_under_tls_it_says_ciphertext_and_what_still_leaks(tmp_path: Path) -> None:
    rounds = 60
    nodes = await run_tapped(small(run__rounds=rounds), tmp_path, one_each(4), InProcess(tmp_path / "tap"), tls=True)
    found = decoded(nodes, tmp_path / "tap")
    assert found.observation is None
    assert found.ciphertext is not None
    assert found.ciphertext.sees.startswith("ciphertext")
    assert {entry.between for entry in found.ciphertext.directions} == {
        f"nodes {i} and {j}" for i, j in nodes.simulation.prepared.graph.edges.tolist()
    }
    assert all(entry.bytes > 0 and entry.last > entry.first for entry in found.ciphertext.directions)
    assert found.ciphertext.rounds_estimate == pytest.approx(rounds, rel=0.25)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "observation.npz").write_bytes(b"of an earlier decoding")
    assert {path.name for path in found.save(tmp_path / "out")} == {"ciphertext.json", "decode.json"}
    assert not (tmp_path / "out" / "observation.npz").exists()


async def test_joining_late_ciphertext_is_told_from_plaintext(tmp_path: Path) -> None:
    for tls in (True, False):
        folder = tmp_path / str(tls)
        await run_tapped(small(), folder, one_each(4), InProcess(folder / "tap"), tls=tls)
        for conversation in read([folder / "tap"]).conversations:
            for (run,) in conversation.sent:
                late = [UnbrokenBytes(run.data[at:], None, ((0, 0.0),)) for at in range(0, len(run.data) - 1000, 97)]
                assert late
                assert all(is_ciphertext(part) == tls for part in late)


def test_rounds_are_counted_by_the_length_of_messages() -> None:
    assert estimated_rounds(Counter({125: 900, 138: 60, 251: 20, 30: 500, 4000: 1}), 2) == 500


# -- one run, recorded once, damaged in many ways ------------------------------------------------------------------


@pytest.fixture(scope="module")
def relayed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Live, Path]:
    folder = tmp_path_factory.mktemp("run")
    nodes = asyncio.run(run_tapped(small(run__rounds=8), folder, one_each(4), InProcess(folder / "tap")))
    nodes.simulation.advance(nodes.simulation.remaining)
    return nodes, next((folder / "tap").glob("*.tap"))


def rewritten(folder: Path, content: bytes, change: Any) -> Path:
    """The same record with each segment of bytes changed, or left out where `change` gives None."""
    recorder = WireRecorder(folder)
    for number, segment in enumerate(record.segments(content)):
        data = change(number, segment)
        if data is not None:
            recorder.append(segment.connection, segment.kind, data)
    recorder.close()
    return recorder.path


def inject(folder: Path, *frames: bytes) -> Path:
    """A record of a connection on link 0-1 that says these frames, one after the other."""
    recorder = WireRecorder(folder)
    recorder.opened(1, Opening("0-1", "a:1", "b:2"))
    for frame in frames:
        data = b"\0" + len(frame).to_bytes(4, "big") + frame
        recorder.append(1, Kind.FORWARD, len(data).to_bytes(3, "big") + b"\0\0\0\0\0\1" + data)
    recorder.close()
    return recorder.path


def is_part_of_the_truth(found: Observation, nodes: Live) -> bool:
    truth = nodes.simulation.result().observation
    assert truth is not None
    for phase, array in found.phases.items():
        sent = truth[phase][found.first : found.first + len(array)]
        heard = ~np.isnan(array)
        if not (array[heard] == sent[heard]).all():
            return False
    return True


def test_one_link_out_of_four_gives_its_two_agents(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, path = relayed_run
    content = path.read_bytes()
    links = {s.connection: s.data for s in record.segments(content) if s.kind is Kind.OPEN}
    kept = {connection for connection, facts in links.items() if b'"0-1"' in facts}
    found = decoded(nodes, rewritten(tmp_path, content, lambda _, s: s.data if s.connection in kept else None))
    assert found.observation is not None
    assert found.observation.channels.tolist() == [[0, 1], [1, 0]]
    assert_what_was_sent(found.observation, nodes, agents=[0, 1])
    assert np.isnan(found.observation.phases["z"][:, [2, 3]]).all()
    assert any(gap.startswith("nothing was overheard between nodes") for gap in found.summary.gaps)


def test_bytes_in_other_pieces_give_the_same(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, path = relayed_run
    recorder, rng = WireRecorder(tmp_path), random.Random(1)
    for segment in record.segments(path.read_bytes()):
        rest = segment.data
        while segment.kind in (Kind.FORWARD, Kind.BACK) and len(rest) > 1:
            size = rng.randint(1, len(rest) - 1)
            recorder.append(segment.connection, segment.kind, rest[:size])
            rest = rest[size:]
        recorder.append(segment.connection, segment.kind, rest)
    recorder.close()
    assert_what_was_sent(decoded(nodes, recorder.path).observation, nodes)


def test_a_conflicting_copy_is_a_note_and_the_first_one_is_kept(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, path = relayed_run
    other = encode(nodes.run_id, 3, "y", [0], np.ones((1, 3)))
    found = decode([path, inject(tmp_path, other)], public(nodes))
    assert found.summary.conflicts == 1
    assert "different bytes" in found.summary.notes[0]
    assert_what_was_sent(found.observation, nodes)


def test_a_frame_that_neither_end_can_have_sent_is_left_out_and_said(
    relayed_run: tuple[Live, Path], tmp_path: Path
) -> None:
    nodes, path = relayed_run
    of_others, own = (encode(nodes.run_id, 3, "y", [sender], np.ones((1, 3))) for sender in (2, 0))
    found = decode([path, inject(tmp_path, of_others, own)], public(nodes))
    assert "link 0-1: 1 frames in the direction of node 0 are not its own" in found.summary.notes
    assert found.summary.conflicts == 1
    assert_what_was_sent(found.observation, nodes)


def test_frames_of_nobody_at_the_ends_are_left_out_and_said(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, path = relayed_run
    found = decode([path, inject(tmp_path, encode(nodes.run_id, 3, "y", [2], np.ones((1, 3))))], public(nodes))
    assert found.summary.notes == ("link 0-1: 1 frames of nodes that are not at its ends were left out",)
    assert found.summary.conflicts == 0


def test_frames_of_another_run_are_left_out_and_said(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, path = relayed_run
    found = decode([path, inject(tmp_path, encode("ab" * 16, 3, "y", [0], np.ones((1, 3))))], public(nodes))
    assert "1 frames of run abababab… with dimension 3 were left out" in found.summary.notes
    assert_what_was_sent(found.observation, nodes)


@pytest.mark.parametrize("round_", [8, 2**62])
def test_rounds_beyond_the_experiment_are_left_out_and_said(
    round_: int, relayed_run: tuple[Live, Path], tmp_path: Path
) -> None:
    nodes, path = relayed_run
    injected = inject(tmp_path, encode(nodes.run_id, round_, "y", [0], np.ones((1, 3))))
    found = decode([path, injected], public(nodes))
    assert "1 frames of node 0 lie beyond the 8 rounds" in found.summary.notes[0]
    assert_what_was_sent(found.observation, nodes)


@given(choice=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_lost_what_is_found_was_sent(
    choice: st.DataObject, relayed_run: tuple[Live, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Segments of bytes lost or cut at random places: some rows go missing, none goes wrong."""
    nodes, path = relayed_run
    content = path.read_bytes()
    total = sum(1 for _ in record.segments(content))
    lost = choice.draw(st.sets(st.integers(5, total - 1), max_size=10))
    cut = choice.draw(st.dictionaries(st.integers(5, total - 1), st.integers(0, 60), max_size=5))

    def change(number: int, segment: record.Segment) -> bytes | None:
        if segment.kind is Kind.OPEN:
            return segment.data
        return None if number in lost else segment.data[cut.get(number, 0) :]

    try:
        found = decoded(nodes, rewritten(tmp_path_factory.mktemp("lossy"), content, change))
    except BadInput:
        return
    assert found.observation is not None
    assert is_part_of_the_truth(found.observation, nodes)
    whole = (
        not np.isnan(np.stack(list(found.observation.phases.values()))).any()
        and len(found.observation.phases["y"]) == 8
    )
    assert whole or found.summary.gaps


def as_packets(path: Path, size: int) -> list[Any]:
    """What a relay recorded, cut into packets anew."""
    packets = []
    for number, conversation in enumerate(read([path]).conversations):
        forward, back = (b"".join(run.data for run in runs) for runs in conversation.sent)
        port = int(conversation.ends[1].rpartition(":")[2])
        packets += talk(forward, back, size, (50_000 + number, port))
    return packets


@given(seed=st.integers(0, 10**6), size=st.integers(40, 1500), loss=st.sampled_from([0.0, 0.01, 0.1]))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_packets_in_any_order_twice_or_lost(
    seed: int, size: int, loss: float, relayed_run: tuple[Live, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of a real run, cut into packets anew: what comes back was sent, and without losses all of it comes back."""
    nodes, path = relayed_run
    rng = random.Random(seed)
    packets = [packet for packet in as_packets(path, size) if rng.random() >= loss]
    packets += rng.sample(packets, len(packets) // 10)
    rng.shuffle(packets)
    try:
        found = decoded(nodes, written(tmp_path_factory.mktemp("shuffled") / "a.pcap", packets))
    except BadInput:
        assert loss
        return
    assert found.observation is not None
    assert is_part_of_the_truth(found.observation, nodes)
    if not loss:
        assert_what_was_sent(found.observation, nodes)
        assert found.summary.gaps == ()


@given(seed=st.integers(0, 10**6), again=st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_bit_errors_lose_rows_and_never_change_one(
    seed: int, again: bool, relayed_run: tuple[Live, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One bit in twenty packets each; where a sound copy of each follows, everything comes back."""
    nodes, path = relayed_run
    rng = random.Random(seed)
    packets = [ethernet(packet) for packet in as_packets(path, size=300)]
    bad = rng.sample(range(len(packets)), 20)
    sound = [packets[number] for number in bad]
    for number in bad:
        at = rng.randrange(14, len(packets[number]))  # behind the Ethernet header, which has no checksum here
        packets[number] = packets[number][:at] + bytes([packets[number][at] ^ 1]) + packets[number][at + 1 :]
    file = tmp_path_factory.mktemp("damaged") / "a.pcap"
    found = decoded(nodes, raw(file, packets + (sound if again else [])))
    assert found.observation is not None
    assert is_part_of_the_truth(found.observation, nodes)
    assert any("segments were damaged (wrong checksums) and left out" in gap for gap in found.summary.gaps)
    if again:
        assert_what_was_sent(found.observation, nodes)


def test_a_capture_that_was_cut_too_short_says_so_instead_of_holding_no_frames(
    relayed_run: tuple[Live, Path], tmp_path: Path
) -> None:
    nodes, path = relayed_run
    packets = [ethernet(packet) for packet in as_packets(path, size=300)]
    with pytest.raises(BadInput, match=r"holds a frame of it \(a\.pcap: \d+ packets were cut to .* 60 bytes\)"):
        decoded(nodes, raw(tmp_path / "a.pcap", packets, snap=60))


@given(choice=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_garbage_in_a_record_is_never_a_crash(
    choice: st.DataObject, relayed_run: tuple[Live, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes, path = relayed_run
    junk = choice.draw(st.dictionaries(st.integers(0, 400), st.binary(min_size=1, max_size=80), max_size=6))
    folder = tmp_path_factory.mktemp("garbage")
    changed = rewritten(folder, path.read_bytes(), lambda number, segment: junk.get(number, segment.data))
    try:
        found = decoded(nodes, changed)
    except BadInput as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017 - refusing is one of two right answers
        return
    found.save(folder)
    assert Observation.load(folder / "observation.npz").gaps == found.summary.gaps


def test_captures_of_something_else_are_one_sentence(relayed_run: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, _ = relayed_run
    recorder = WireRecorder(tmp_path)
    recorder.opened(1, Opening("0-1", "a:1", "b:2"))
    recorder.append(1, Kind.FORWARD, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
    recorder.close()
    with pytest.raises(BadInput, match="none of 1 conversations holds a frame"):
        decoded(nodes, recorder.path)


# -- frames --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ring() -> Public:
    return Public.of(small(), {0: "a:1", 1: "a:1", 2: "b:1", 3: "c:1"})


def test_a_frame_of_this_network_is_read(ring: Public) -> None:
    rows = np.arange(6.0).reshape(2, 3)
    frame = read_frame(encode("ab", 3, "y", [0, 1], rows), ring)
    assert frame is not None
    assert (frame.run, frame.round, frame.phase, frame.senders) == ("ab", 3, "y", (0, 1))
    assert b"".join(frame.rows) == rows.tobytes()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xff\xff",
        encode("ab", 3, "nophase", [0], np.ones((1, 3))),
        encode("ab", 3, "y", [4], np.ones((1, 3))),
        encode("ab", 3, "y", [1, 0], np.ones((2, 3))),
        encode("ab", 3, "y", [1, 2], np.ones((2, 3))),
        encode("ab", 3, "y", [0, 1], np.ones((1, 3))),
        encode("ab", 3, "y", [], np.ones((0, 3))),
        encode("ab", 3, "y", [0], np.full((1, 3), np.nan)),
    ],
    ids=["empty", "no protobuf", "phase", "agent", "order", "two nodes", "width", "nobody", "nan"],
)
def test_anything_else_is_not(message: bytes, ring: Public) -> None:
    assert read_frame(message, ring) is None


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(message: bytes) -> None:
    read_frame(message, Public.of(small(), {agent: f"a:{agent}" for agent in range(4)}))


def test_public_knowledge_needs_no_data(tmp_path: Path) -> None:
    """An eavesdropper has the experiment's public part; the data files of the agents are not there."""
    experiment = Experiment.load(
        overrides={"problem.name": "quadratic", "network.topology": "ring", "network.agents": 3}
    )
    known = Public.of(experiment, {0: "a:1", 1: "b:1", 2: "b:1"})
    assert known.unobserved == [(1, 2), (2, 1)]
    assert known.between == {(0, 1): [(0, 1), (0, 2)], (1, 0): [(1, 0), (2, 0)]}
    with pytest.raises(BadInput, match="all 3 agents"):
        Public.of(experiment, {0: "a:1"})


def test_ranges_read_as_a_person_writes_them() -> None:
    assert ranges([9, 3, 4, 5, 0]) == "0, 3 to 5, 9"
