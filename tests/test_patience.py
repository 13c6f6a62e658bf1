"""The limit of tests that wait: it ends a test that hangs, and does not count the work of other processes."""

from __future__ import annotations

import asyncio
import time
import traceback

import pytest

from tests.support import loop
from tests.support.loop import excused, on_loop


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PATIENCE", 0.2)


def test_a_test_that_hangs_fails_and_says_where() -> None:
    @on_loop
    async def hangs() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"did not end within 0.2 s") as caught:
        hangs()
    where = caught.value.__cause__
    assert where is not None
    assert "hangs" in [frame.name for frame in traceback.extract_tb(where.__traceback__)]


@pytest.mark.long
def test_time_in_which_a_child_blocks_the_loop_does_not_count() -> None:
    @on_loop
    async def waits_for_children() -> None:
        for _ in range(2):
            with excused():
                time.sleep(0.3)
            await asyncio.sleep(0)

    waits_for_children()


def test_time_in_which_the_test_itself_blocks_the_loop_counts() -> None:
    @on_loop
    async def blocks() -> None:
        time.sleep(0.3)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        blocks()


def test_a_failure_is_reported_as_it_is() -> None:
    @on_loop
    async def fails() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fails()
