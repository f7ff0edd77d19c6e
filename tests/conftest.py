"""Marks that every room's tests share."""

from __future__ import annotations

import pytest
from needed import not_here


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(what, there): whether the machine has it; CI must, others may skip")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        what, there = mark.args
        if not there:
            not_here(f"needs {what}")
