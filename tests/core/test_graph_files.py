"""Sparse matrices as files of graphs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpp2 import BadInput
from dpp2.graph_files import matrix_of, read_graph
from dpp2.store.files import write_npz
from dpp2.topology import FromFile, Graph, SmallWorld, Star


def matrix(folder: Path, graph: Graph) -> Path:
    write_npz(folder / "graph.npz", matrix_of(graph))
    return folder / "graph.npz"


@pytest.mark.parametrize("section", [SmallWorld(agents=40), Star(agents=7)])
def test_a_graph_comes_back_with_its_digest(section: Any, tmp_path: Path) -> None:
    path = matrix(tmp_path, section.any_graph)
    np.testing.assert_array_equal(read_graph(path).edges, section.any_graph.edges)
    assert FromFile(path=str(path)).digest_table() == section.digest_table()


def test_scipy_reads_what_is_written(tmp_path: Path) -> None:
    graph = SmallWorld(agents=30).any_graph
    found = sparse.coo_array(sparse.load_npz(matrix(tmp_path, graph)))
    np.testing.assert_array_equal(np.stack([found.row, found.col], axis=1), graph.edges)


def test_what_scipy_writes_is_read(tmp_path: Path) -> None:
    """Either way of an edge is enough, entries of 0 and on the diagonal link nobody."""
    entries = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    made = sparse.csr_array(entries)
    made.data[2] = 0.0
    sparse.save_npz(tmp_path / "own.npz", made)
    assert read_graph(tmp_path / "own.npz").edges.tolist() == [[0, 1]]


def changed(path: Path, **changes: Any) -> None:
    with np.load(path) as found:
        arrays = dict(found) | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


WRONG: dict[str, dict[str, Any]] = {
    "no columns": {"indices": None},
    "an agent too many": {"indices": np.full(6, 9)},
    "a negative agent": {"indices": np.full(6, -1)},
    "rows that go back": {"indptr": np.array([0, 6, 3, 6, 6, 6, 6, 6])},
    "too few rows": {"indptr": np.array([0, 6])},
    "entries missing": {"data": np.ones(2)},
    "fractions": {"indices": np.full(6, 1.5)},
    "not square": {"shape": np.array([7, 8])},
    "one number for a shape": {"shape": np.array(7)},
    "objects": {"indices": np.array([None] * 6)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_such_matrix_is_refused_in_one_sentence(wrong: str, tmp_path: Path) -> None:
    path = matrix(tmp_path, Star(agents=7).any_graph)
    changed(path, **WRONG[wrong])
    with pytest.raises(BadInput, match=r"network\.path.*a square sparse matrix of compressed rows"):
        read_graph(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 half a file"])
def test_what_is_no_archive_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "graph.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"a square sparse matrix of compressed rows"):
        read_graph(tmp_path / "graph.npz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a readable file"):
        read_graph(tmp_path / "none.npz")


def test_every_edge_is_stored_once(tmp_path: Path) -> None:
    graph = SmallWorld(agents=1000).any_graph
    assert matrix(tmp_path, graph).stat().st_size < 9 * len(graph.edges) + 8 * graph.agents + 2000


@pytest.mark.parametrize("name", ["edges.txt", "edges.graphml", "edges.npz"])
def test_a_pipe_keeps_nobody_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match=r"expected a readable file \(this is no plain one\)"):
        read_graph(tmp_path / name)
