"""Writes who is hosted where: cluster.toml for everybody, and for each node the list of its own agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpp2 import BadInput
from dpp2.node.cluster import Cluster, check_address
from dpp2.node.ranges import ranges_text
from dpp2.store.files import write_text


def write_hosts(out: Path, addresses: Sequence[str], groups: Sequence[Sequence[int]]) -> list[Path]:
    """`out`, and beside it out-N.agents for the node whose lowest agent is N."""
    for address in addresses:
        check_address("--hosts", address)
    hosted = {a: address for address, group in zip(addresses, groups, strict=True) for a in group}
    lists = {out.with_name(f"{out.stem}-{group[0]}.agents"): f"{ranges_text(group)}\n" for group in groups}
    if there := [path for path in (out, *lists) if path.exists()]:
        raise BadInput("--out", str(there[0]), "a file that is not there yet")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, text in {**lists, out: Cluster(hosted, {}).to_toml()}.items():
            write_text(path, text)
    except OSError as error:
        raise BadInput("--out", str(out), f"a file that can be written ({error.strerror})") from None
    return [out, *lists]
