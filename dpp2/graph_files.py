"""Graphs in files: lists of edges, GraphML, and sparse matrices, which large graphs travel as.

A matrix is what `scipy.sparse.save_npz` writes: the arrays indptr, indices, data and shape of compressed rows. An
entry (i, j) that is not 0 links agents i and j; either way of an edge is enough.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpp2.errors import BadInput, one_line
from dpp2.topology import Graph

if TYPE_CHECKING:
    from dpp2.topology import Drawn

MATRIX = ".npz"


def matrix_of(graph: Graph) -> dict[str, NDArray[Any]]:
    """The arrays of such a file: every edge once, in the row of its lower end."""
    return {
        "indptr": np.searchsorted(graph.edges[:, 0], np.arange(graph.agents + 1)),
        "indices": graph.edges[:, 1],
        "data": np.ones(len(graph.edges), dtype=np.int8),
        "shape": np.array([graph.agents, graph.agents]),
        "format": np.array(b"csr"),
    }


def read_graph(path: Path) -> Graph:
    kinds = {".graphml": _read_graphml, MATRIX: _read_matrix}
    if path.exists() and not path.is_file():  # a pipe would keep its reader waiting for ever
        raise BadInput("network.path", str(path), "a readable file (this is no plain one)")
    try:
        return kinds.get(path.suffix.lower(), _read_edges)(path)
    except OSError as error:
        raise BadInput("network.path", str(path), f"a readable file ({error.strerror})") from None


def _read_edges(path: Path) -> Graph:
    try:
        lines = (line.split("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
        pairs = [tuple(words) for words in lines if words]
    except UnicodeDecodeError:
        raise BadInput("network.path", str(path), "an edge list or GraphML (ending .graphml), in UTF-8") from None
    for words in pairs:
        if len(words) != 2:
            raise BadInput(
                "network.path", str(path), f"an edge list, two names and a space a line, not {' '.join(words)[:40]!r}"
            )
    return Graph.of({name for words in pairs for name in words}, [(words[0], words[1]) for words in pairs])


def _read_graphml(path: Path) -> Graph:
    import networkx as nx

    try:
        drawn: Drawn = nx.read_graphml(path)
    except OSError:
        raise
    except Exception as error:  # the parser raises whatever it pleases on a file that is not its own
        raise BadInput("network.path", str(path), f"an edge list or GraphML ({one_line(error)})") from None
    if drawn.is_directed():
        raise BadInput("network.path", str(path), "an undirected graph")
    return Graph.of(drawn.nodes, drawn.edges())


def _read_matrix(path: Path) -> Graph:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in ("shape", "indptr", "indices", "data")}
        agents, one, other = _entries(arrays)
    except (KeyError, ValueError, TypeError, zipfile.BadZipFile, EOFError):
        wanted = "a square sparse matrix of compressed rows, as scipy.sparse.save_npz writes it"
        raise BadInput("network.path", str(path), wanted) from None
    return Graph.linked(agents, one, other)


def _entries(arrays: dict[str, NDArray[Any]]) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """(agents, rows, columns) of all entries that are not 0; ValueError where it is no such matrix."""
    agents, columns = map(int, arrays["shape"])
    starts, indices = (arrays[name].astype(np.int64, casting="safe") for name in ("indptr", "indices"))
    lengths = np.diff(starts)
    whole = agents == columns and len(starts) == agents + 1 and starts[0] == 0 and starts[-1] == len(indices)
    if not whole or (lengths < 0).any() or len(arrays["data"]) != len(indices):
        raise ValueError("not compressed rows")
    if len(indices) and not 0 <= indices.min() <= indices.max() < agents:
        raise ValueError("an agent that is not there")
    linked = arrays["data"] != 0
    return agents, np.repeat(np.arange(agents, dtype=np.int64), lengths)[linked], indices[linked]
