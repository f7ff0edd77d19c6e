"""Taps on a cluster of this machine: started with it, started again when they die, and decoded when it has ended.

A tap is a process of its own, so that listening does not slow down whoever drives the run. One that is killed costs
what it had not written down; a relay comes back on the same addresses, and the nodes dial it again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpp2.adversary.tap.decode import Decoded, decode
from dpp2.adversary.tap.public import Public, place
from dpp2.adversary.tap.sniffer import packet_socket
from dpp2.errors import BadInput
from dpp2.experiment import Experiment

_MOST_RESTARTS = 50
_RETRY_SECONDS = 0.2
_STOP_SECONDS = 15.0
_LONGEST_LINE = 1 << 24  # a relay lists the addresses of all its links

Links = Mapping[tuple[int, int], str]


class _Process:
    """One tap as a process, kept alive."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, arguments: Sequence[str]) -> Any:
        """Returns where it listens, as it says itself."""
        command = [sys.executable, "-m", "dpp2.adversary.tap", *arguments, "--die-with-parent", str(os.getpid())]
        self.process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, limit=_LONGEST_LINE, start_new_session=True
        )
        assert self.process.stdout is not None
        said = await self.process.stdout.readline()
        words = json.loads(said) if said else {"refused": "it ended without a message"}
        if "refused" in words:
            await self.process.wait()
            raise BadInput("--tap", arguments[0], f"a tap that can start ({words['refused']})")
        return words["listening"]

    def keep(self, arguments: Sequence[str]) -> None:
        """Start it again with these arguments whenever it dies."""
        self._keeper = asyncio.create_task(self._keep(arguments))

    async def _keep(self, arguments: Sequence[str]) -> None:
        for _ in range(_MOST_RESTARTS):
            assert self.process is not None
            await self.process.wait()
            with suppress(BadInput):  # such as an address that is still taken: it will be free
                await self.start(arguments)
                continue
            await asyncio.sleep(_RETRY_SECONDS)

    async def stop(self) -> None:
        """Ask it to write down what is left, and wait until it has."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()


class LocalTap:
    """What relay and sniffer have in common: a folder for captures, and what is decoded from it."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = _Process()
        self._addresses: Mapping[int, str] = {}
        self._links: Links = {}

    @property
    def pid(self) -> int | None:
        """Of the process that taps now."""
        return self._process.process.pid if self._process.process else None

    def _expect(self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]) -> None:
        if not links:
            raise BadInput("--tap", self.name, "at least two processes: within one, nothing reaches the wire")
        self._addresses = addresses

    async def stop(self) -> None:
        await self._process.stop()

    def finish(self, run: Path) -> Decoded:
        """Decode everything in the folder; the results go beside the captures."""
        experiment = Experiment.load(run / "experiment.toml")
        decoded = decode([self.folder], Public.of(experiment, self._addresses, self._links))
        decoded.save(self.folder)
        return decoded


class RelayTap(LocalTap):
    """A relay on every link between nodes."""

    name = "relay"

    async def start(self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]) -> Links:
        """`links` are edges between agents of different nodes; one relay serves all edges between two nodes."""
        self._expect(addresses, links)
        targets = relayed(addresses, links)
        at_any_port = {pair: ("127.0.0.1:0", target) for pair, target in targets.items()}
        listening: dict[str, str] = await self._process.start(self._arguments(at_any_port))
        self._links = {pair: listening[_name(pair)] for pair in targets}
        self._process.keep(self._arguments({pair: (self._links[pair], at) for pair, at in targets.items()}))
        return self._links

    def _arguments(self, links: Mapping[tuple[int, int], tuple[str, str]]) -> list[str]:
        listed = [f"{_name(pair)}={listen},{target}" for pair, (listen, target) in links.items()]
        return ["relay", "--out", str(self.folder), *(part for text in listed for part in ("--link", text))]


class SniffTap(LocalTap):
    """A sniffer on the loopback interface. Whoever may not sniff is told when it is made, before anything runs."""

    name = "sniff"

    def __init__(self, folder: Path) -> None:
        packet_socket("lo").close()
        super().__init__(folder)

    async def start(self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]) -> Links:
        self._expect(addresses, links)
        ports = sorted({address.rpartition(":")[2] for address in addresses.values()})
        arguments = ["sniff", "--out", str(self.folder), *(part for port in ports for part in ("--port", port))]
        await self._process.start(arguments)
        self._process.keep(arguments)
        return {}


TAPS: dict[str, type[RelayTap] | type[SniffTap]] = {"relay": RelayTap, "sniff": SniffTap}


def relayed(addresses: Mapping[int, str], links: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """One link for each pair of nodes, with the address of the node that is dialled: the one of the higher number."""
    node = place(addresses)
    chosen: dict[frozenset[int], tuple[int, int]] = {}
    for i, j in sorted((min(link), max(link)) for link in links):
        chosen.setdefault(frozenset((node[i], node[j])), (i, j))
    return {pair: addresses[max(nodes)] for nodes, pair in chosen.items()}


def _name(pair: tuple[int, int]) -> str:
    return f"{pair[0]}-{pair[1]}"
