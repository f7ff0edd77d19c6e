"""Metrics as a data frame, where a library for that is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dpp2.errors import BadInput
from dpp2.records import Records

LIBRARIES = ("pandas", "polars")
_WHOLE = ("round", "bytes")


def frame(metrics: Records, library: str) -> Any:
    """One column per metric, one row for each of x^0 … x^K."""
    if library not in LIBRARIES:
        raise BadInput("library", library, " or ".join(LIBRARIES))
    try:
        found = import_module(library)
    except ImportError:
        raise BadInput("library", library, f"a library that is installed: pip install {library}") from None
    columns = {name: column.astype(np.int64) if name in _WHOLE else column.copy() for name, column in metrics.items()}
    return found.DataFrame(columns)
