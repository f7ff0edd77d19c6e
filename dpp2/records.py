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
        try:
            return self.__dict__["_arrays"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"no array {name!r} here, only {', '.join(self.__dict__['_arrays'])}") from None

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
