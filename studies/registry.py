"""Studies by name, loaded only when one is asked for: together they import every room, which takes its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from dpp2.errors import BadInput


class LazyRegistry(Mapping[str, Any]):
    """Name → the object that `module:attribute` stands for."""

    def __init__(self, field: str, places: Mapping[str, str]) -> None:
        self._field, self._places = field, dict(places)

    def __getitem__(self, name: str) -> Any:
        if name not in self._places:
            raise BadInput(self._field, name, f"one of {', '.join(self._places)}")
        module, _, attribute = self._places[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
