"""What a run leaves behind: named, read-only arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpp2.arrays import Array


class Records(Mapping[str, Array]):
    """Named arrays, read as `records.x` or `records["x"]`; nobody can change them afterwards.

    An observation holds one array per phase, (K, N, d), and P; the truth x, grad, the noises (K, N, d) and the
    secret scalars (K,); metrics one column per name with a row for each of x^0 … x^K.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = {name: _sealed(array) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __getattr__(self, name: str) -> Array:
        arrays: dict[str, Array] = self.__dict__.get("_arrays", {})
        if name not in arrays:
            there = f", only {', '.join(arrays)}" if arrays else ": nothing was recorded"
            raise AttributeError(f"no array {name!r} here{there}")
        return arrays[name]

    def __reduce__(self) -> tuple[type[Records], tuple[dict[str, Array]]]:
        """A copy, or what comes out of a pickle, is read-only as well."""
        return Records, (self._arrays,)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in self.items())
        return f"Records({shapes})"


def _sealed(array: Array) -> Array:
    view = np.asarray(array).view()  # a view, so that a recorder may go on writing into its own buffer
    view.flags.writeable = False
    return view
