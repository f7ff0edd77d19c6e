"""What `dpp2 collect` and `dpp2 export` are given: homes of nodes, folders of single runs, exports. None is trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dpp2 import BadInput
from dpp2.errors import NOTHING
from dpp2.orchestrator.exports import unpack
from dpp2.orchestrator.merge import NodeFolder, refused

_WANTED = "the home of a node that has run, or a file that dpp2 export has made of it"
_KEYS = ("*.key", "key.pem")


def open_nodes(paths: Sequence[Path], wanted: str | None) -> tuple[list[NodeFolder], str]:
    """The nodes of one run; which one must be clear or said."""
    found = [_runs(path) for path in paths]
    ids = set.intersection(*(set(runs) for runs in found))
    if wanted is None and len(ids) != 1:
        which = f"one of {', '.join(sorted(ids))}" if ids else "homes that have a run in common"
        raise BadInput("--run-id", NOTHING, which)
    chosen = wanted or ids.pop()
    if any(chosen not in runs for runs in found):
        raise BadInput("--run-id", chosen, f"a run of every folder: {', '.join(sorted(ids)) or 'there is none'}")
    return [node for runs in found for node in _opened(runs[chosen])], chosen


def _opened(run: Path | list[NodeFolder]) -> list[NodeFolder]:
    return [NodeFolder.open(run)] if isinstance(run, Path) else run


def _runs(path: Path) -> Mapping[str, Path | list[NodeFolder]]:
    """By id: folders, or what an export holds."""
    with refused("DIR", path, _WANTED):
        if path.is_file():
            nodes = unpack(path)
            return {nodes[0].run_id: nodes}
        folders = [path] if (path / "node.json").exists() else sorted((path / "runs").glob("*"))
        runs = {folder.name: folder for folder in folders if folder.is_dir() and not folder.is_symlink()}
        if not runs:
            raise BadInput("DIR", str(path), _WANTED)
        return {**runs}


def refuse_keys(paths: Sequence[Path]) -> None:
    """Keys that came along tell whoever has the records everything: somebody must hear of it."""
    for path in paths:
        with refused("DIR", path, _WANTED):
            for key in (found for pattern in _KEYS for found in path.rglob(pattern)):
                wanted = "records without keys: this one came along, and dpp2 export packs none. Let its owner know"
                raise BadInput("DIR", str(key), wanted)


def with_state(paths: Sequence[Path]) -> Iterator[Path]:
    """Which of them hold the agents' state as it is."""
    return (path for path in paths if next(path.rglob("checkpoint*.bin"), None) is not None)
