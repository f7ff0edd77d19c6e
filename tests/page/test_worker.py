"""The worker of the page: what its work raises reaches whoever waits for it."""

from __future__ import annotations

import asyncio

import pytest

from dpp2.page.worker import Worker


def test_work_that_raises_what_no_future_can_carry_does_not_wait_for_ever() -> None:
    worker = Worker()
    try:
        with pytest.raises(RuntimeError, match="builtins:next raised StopIteration"):
            asyncio.run(asyncio.wait_for(worker.do("builtins:next", iter([])), 60))
    finally:
        worker.stop()
