"""A passive sniffer on loopback: what it writes is what was sent, and other tools read the same in it."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest

from dpp2.adversary.tap import sniffer
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.local import SniffTap
from dpp2.adversary.tap.sniffer import Sniffer, packet_socket, wanted
from dpp2.errors import BadInput
from tests.adversary.tapped import Live, assert_what_was_sent, decoded, one_each, run_tapped, small, tapped

ROOT = Path(__file__).parent.parent.parent
CAP_NET_RAW, PR_CAPBSET_DROP = 13, 24


def may_sniff() -> bool:
    try:
        packet_socket("lo").close()
    except BadInput:
        return False
    return True


needs_root = pytest.mark.needs("the right to open packet sockets", may_sniff())
needs_tshark = pytest.mark.needs("tshark", shutil.which("tshark") is not None)
needs_editcap = pytest.mark.needs("editcap", shutil.which("editcap") is not None)


@needs_root
@pytest.mark.parametrize("groups", [one_each(4), [[0, 3], [1], [2]]], ids=["one each", "several"])
async def test_a_run_is_overheard_to_the_byte(groups: list[list[int]], tmp_path: Path) -> None:
    nodes = await run_tapped(small(), tmp_path, groups, SniffTap(tmp_path / "tap"))
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.gaps == ()
    assert found.summary.conflicts == 0
    assert found.summary.other_messages > 0  # the orchestrator's calls: seen, and no frames


@needs_root
async def test_under_tls_control_calls_are_not_taken_for_rounds(tmp_path: Path) -> None:
    nodes = await run_tapped(small(run__rounds=80), tmp_path, one_each(4), SniffTap(tmp_path / "tap"), tls=True)
    found = decoded(nodes, tmp_path / "tap")
    assert found.observation is None
    assert found.ciphertext is not None
    assert found.summary.encrypted_conversations > 8
    assert found.ciphertext.rounds_estimate == pytest.approx(80, rel=0.25)


@needs_root
async def test_each_packet_of_the_loopback_interface_is_written_once(tmp_path: Path) -> None:
    await run_tapped(small(run__rounds=2), tmp_path, one_each(4), SniffTap(tmp_path / "tap"))
    (path,) = (tmp_path / "tap").glob("*.pcap")
    seen = set()
    with path.open("rb") as file:
        for _, packet in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(packet).data
            segment = ip.data
            key = ip.id, segment.sport, segment.dport, segment.seq, segment.ack, segment.flags, bytes(segment.data)
            assert key not in seen
            seen.add(key)
    assert len(seen) > 50


@needs_root
async def test_joining_late_gives_the_rounds_from_there_on(tmp_path: Path) -> None:
    """Neither preface nor header table is in the capture, and the first round overheard is not round 0."""
    late = SniffTap(tmp_path / "tap")

    class Later:
        async def start(self, addresses: Any, links: Any) -> Any:
            self.where = addresses, links
            return {}

        async def stop(self) -> None:
            await late.stop()

    tap = Later()
    async with tapped(small(run__rounds=30), tmp_path, one_each(4), tap) as nodes:
        await nodes.prepare()
        await nodes.release(10)
        await nodes.reach(10)
        await late.start(*tap.where)
        await nodes.finish()
    found = decoded(nodes, tmp_path / "tap")
    assert found.observation is not None
    assert found.observation.first == 10
    assert_what_was_sent(found.observation, nodes)
    assert any(gap.startswith("rounds 0 to 9 were not overheard") for gap in found.summary.gaps)


@needs_root
async def test_killed_in_the_middle_the_run_goes_on_and_what_was_missed_is_a_gap(tmp_path: Path) -> None:
    tap = SniffTap(tmp_path / "tap")
    async with tapped(small(run__rounds=40), tmp_path, one_each(4), tap) as nodes:
        await nodes.prepare()
        await nodes.release(10)
        await nodes.reach(10)
        await asyncio.sleep(0.5)  # until it has written that down
        first = tap.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await nodes.release(20)
        await nodes.reach(20)
        while not (tmp_path / "tap" / "sniff-0002.pcap").exists():
            await asyncio.sleep(0.05)
        await nodes.finish()
    found = decoded(nodes, tmp_path / "tap")
    assert found.observation is not None
    heard = np.asarray(~np.isnan(found.observation.phases["y"]).any(axis=(1, 2)))
    assert heard[:10].all()
    assert not heard.all()
    assert heard[-5:].all()
    nodes.simulation.advance(nodes.simulation.remaining)
    truth = nodes.simulation.result().observation
    assert truth is not None
    np.testing.assert_array_equal(found.observation.phases["y"][heard], truth["y"][heard])
    assert any("were not overheard" in gap for gap in found.summary.gaps)


@needs_root
def test_what_the_kernel_drops_is_counted_and_becomes_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffer, "_RECEIVE_BUFFER", 4096)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taps = Sniffer("lo", [port], tmp_path)
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(200):
                client.sendall(bytes(1000))
    stopping = threading.Event()
    timer = threading.Timer(0.3, stopping.set)
    timer.start()
    taps.capture(stopping.is_set)
    taps.close()
    timer.join()
    assert taps.dropped > 0
    assert f"{taps.path.name}: the recording system dropped {taps.dropped} packets" in read([taps.path]).gaps


@needs_root
def test_packets_as_large_as_offload_makes_them_are_kept_whole(tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taps = Sniffer("lo", [port], tmp_path)
        thread = threading.Thread(target=taps.capture, args=(stopping.is_set,))
        thread.start()
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            sender = threading.Thread(target=client.sendall, args=(content,))
            sender.start()
            received = 0
            while received < len(content):
                received += len(accepted.recv(1 << 20))
            sender.join()
        stopping.set()
        thread.join()
    taps.close()
    (conversation,) = read([tmp_path]).conversations
    assert [run.data for run in conversation.sent[0]] == [content]
    with taps.path.open("rb") as file:
        assert max(len(packet) for _, packet in dpkt.pcap.Reader(file)) > 20_000


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_without_the_right_it_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    program = "import dpp2.orchestrator.cli.tap; from dpp2.orchestrator.cli import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", program, "tap", "sniff", "--port", "7000", "--out", str(tmp_path)],
        preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.count("\n") == 1
    assert "the right to read its packets" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_an_interface_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"one of .*lo"):
        Sniffer("nowhere0", [7000], tmp_path)


def test_only_tcp_of_the_ports_is_wanted() -> None:
    tcp4 = dpkt.ip.IP(src=b"\1" * 4, dst=b"\2" * 4, p=6, data=dpkt.tcp.TCP(sport=5, dport=7000))
    tcp6 = dpkt.ip6.IP6(src=b"\1" * 16, dst=b"\2" * 16, nxt=6, plen=20, data=dpkt.tcp.TCP(sport=7000, dport=5))
    udp4 = dpkt.ip.IP(src=b"\1" * 4, dst=b"\2" * 4, p=17, data=dpkt.udp.UDP(sport=5, dport=7000))
    seen = [bytes(dpkt.ethernet.Ethernet(type=kind, data=ip)) for kind, ip in ((0x800, tcp4), (0x86DD, tcp6))]
    assert all(wanted(packet, {7000}) for packet in seen)
    assert not any(wanted(packet, {7001}) for packet in seen)
    assert not wanted(bytes(dpkt.ethernet.Ethernet(type=0x800, data=udp4)), {7000})
    assert not wanted(bytes(60), {7000})


# -- other tools ---------------------------------------------------------------------------------------------------


def by_tshark(path: Path, nodes: Live) -> dict[tuple[str, int, int], bytes]:
    """Every frame of one sender each, as tshark reads it with our .proto: {(phase, round, sender): row}."""
    found: dict[tuple[str, int, int], bytes] = {}
    name = "pbf.dpp2.node.v1.Frame."

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if f"{name}rows" in fields:
            key = fields[f"{name}phase"], int(fields[f"{name}round"]), int(fields[f"{name}senders"])
            found[key] = bytes.fromhex(fields[f"{name}rows"].replace(":", ""))
        return fields

    options = ["-o", f'uat:protobuf_search_paths:"{ROOT / "proto" / "dpp2" / "node" / "v1"}","TRUE"']
    options += ["-o", "protobuf.pbf_as_hf:TRUE", "-o", "protobuf.add_default_value:all"]
    options += [part for port in nodes.ports.values() for part in ("-d", f"tcp.port=={port},http2")]
    options += ["-Y", 'protobuf.message.name == "dpp2.node.v1.Frame"', "-T", "json", "-J", "protobuf"]
    answer = subprocess.run(["tshark", "-r", str(path), *options], capture_output=True, text=True, check=True)
    json.loads(answer.stdout, object_pairs_hook=hook)
    return found


@needs_root
@needs_tshark
async def test_tshark_reads_the_same_values_in_our_file(tmp_path: Path) -> None:
    nodes = await run_tapped(small(run__rounds=6), tmp_path, one_each(4), SniffTap(tmp_path / "tap"))
    observation = decoded(nodes, tmp_path / "tap").observation
    assert observation is not None
    theirs = by_tshark(next((tmp_path / "tap").glob("*.pcap")), nodes)
    assert len(theirs) == 2 * 6 * 4
    for (phase, round_, agent), row in theirs.items():
        assert observation.phases[phase][round_, agent].tobytes() == row


@needs_root
@needs_editcap
async def test_what_editcap_makes_of_our_file_decodes_the_same(tmp_path: Path) -> None:
    """The same packets as pcapng, with microseconds, in another order, each twice."""
    nodes = await run_tapped(small(run__rounds=6), tmp_path, one_each(4), SniffTap(tmp_path / "tap"))
    (path,) = (tmp_path / "tap").glob("*.pcap")
    for kind in ("pcapng", "pcap", "nsecpcap"):
        subprocess.run(["editcap", "-F", kind, str(path), str(tmp_path / kind)], check=True, capture_output=True)
        assert_what_was_sent(decoded(nodes, tmp_path / kind).observation, nodes)
    both = decoded(nodes, tmp_path / "pcapng", path)
    assert_what_was_sent(both.observation, nodes)
    assert both.summary.copies_merged == both.summary.frames / 2
