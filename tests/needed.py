"""What a test needs of the machine. A contributor's machine may lack it, and then a test says so; CI fails instead."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def not_here(why: str) -> NoReturn:
    """This machine lacks something."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
