"""Compressors: what they keep, what they cost, and that the bytes counted are bytes that exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpp2 import Experiment, run
from dpp2.arrays import Array
from dpp2.compression import NOTHING, Compressor, Everything, Quantised, TopK

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 20))
ROWS = arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6, width=32))
TINY = st.integers(-40, 40).map(lambda n: n * 5e-324)  # the smallest numbers that float64 has
ANY_ROWS = st.one_of(
    ROWS,
    arrays(np.float64, SHAPES, elements=TINY),
    arrays(np.float64, SHAPES, elements=st.floats(allow_nan=False, allow_infinity=False)),
    arrays(np.float64, SHAPES, elements=st.floats()),
)
COMPRESSORS = st.one_of(
    st.just(Everything()), st.builds(TopK, st.integers(1, 24)), st.builds(Quantised, st.integers(2, 16))
)


@settings(deadline=None)
@given(ANY_ROWS, COMPRESSORS)
def test_what_is_sent_fits_the_bytes_counted_and_arrives_bit_for_bit(rows: Array, compress: Compressor) -> None:
    with np.errstate(all="ignore"):
        sent = compress(rows)
    for row in sent:
        message = compress.encode(row)
        assert len(message) == compress.size(len(row))
        assert compress.decode(message, len(row)).tobytes() == row.tobytes()


@settings(deadline=None)
@given(arrays(np.float64, SHAPES, elements=st.floats(1e307, 1.7976931348623157e308)), st.integers(2, 16))
def test_the_largest_numbers_stay_numbers(rows: Array, bits: int) -> None:
    """max|v|/levels rounded up, times the levels, would be infinite."""
    assert np.isfinite(Quantised(bits)(rows)).all()


@pytest.mark.parametrize("compress", [TopK(2), Quantised(4)])
def test_a_compressed_zero_has_no_sign(compress: Compressor) -> None:
    sent = compress(np.array([[-0.0, 1.0, -0.01, -1.0], [-0.0, -0.0, 0.0, -0.0]]))
    assert not np.signbit(sent[sent == 0]).any()


def test_nothing_takes_no_bytes_and_stands_for_zeros() -> None:
    assert (NOTHING.size(7), NOTHING.encode(np.zeros(7))) == (0, b"")
    assert NOTHING.decode(b"", 7).tobytes() == np.zeros(7).tobytes()


@settings(deadline=None)
@given(ROWS, st.integers(1, 24))
def test_top_k_keeps_the_largest_entries_as_they_are(rows: Array, keep: int) -> None:
    for row, compressed in zip(rows, TopK(keep)(rows), strict=True):
        kept = compressed != 0
        assert kept.sum() <= keep
        np.testing.assert_array_equal(compressed[kept], row[kept])
        lost = float(((compressed - row) ** 2).sum())
        share = max(1 - keep / len(row), 0.0)
        assert lost <= share * float((row**2).sum()) * (1 + 1e-12)


@settings(deadline=None)
@given(ROWS, st.integers(2, 16))
def test_quantised_entries_move_by_half_a_step_at_most(rows: Array, bits: int) -> None:
    step = np.abs(rows).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    assert (np.abs(Quantised(bits)(rows) - rows) <= step / 2 * (1 + 1e-9)).all()


def test_metrics_count_the_bytes_of_compressed_messages() -> None:
    """2 phases over 2·8 directed edges of a ring of 8: 8·10 bytes plain, 8 + 5 at 4 bits, 2 + 3·8 for three of ten."""
    spent = {}
    for compressor in ("none", "quantised", "top-k"):
        tables = {"algorithm.name": "pgtc", "algorithm.compressor": compressor, "algorithm.keep": 3}
        tables |= {"network.topology": "ring", "network.agents": 8, "run.rounds": 2}
        spent[compressor] = run(Experiment.load(overrides=tables)).metrics.bytes[1:].tolist()
    assert spent == {"none": [2 * 16 * 80] * 2, "quantised": [2 * 16 * 13] * 2, "top-k": [2 * 16 * 26] * 2}


@pytest.mark.parametrize(("name", "topology", "total"), [("dgd", "ring", 16 * 80), ("diff2", "star", 2 * 7 * 80)])
def test_metrics_count_the_bytes_of_plain_messages(name: str, topology: str, total: int) -> None:
    """diff2 uses every edge of its star once up and once down."""
    tables = {"algorithm.name": name, "network.topology": topology, "network.agents": 8, "run.rounds": 2}
    assert run(Experiment.load(overrides=tables)).metrics.bytes.tolist() == [0, total, total]
