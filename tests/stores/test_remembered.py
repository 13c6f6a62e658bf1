"""The table of effects has no row longer than its request needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.model.sessions import Filter
from pausepoint.testing import ManualClock
from pausepoint.testing.suite.base import operator, parked
from pausepoint.testing.suite.remembered import DIGEST, LATER
from tests.stores.kit import on_loop, opened, outside


@pytest.mark.parametrize("end", ["answered", "deleted", "replaced", "deleted by another request"])
@on_loop
async def test_effects_are_deleted_with_the_need_for_them(tmp_path: Path, end: str) -> None:
    path, clock = tmp_path / "store.db", ManualClock()

    def rows() -> int:
        [[count]] = outside(path, "SELECT count(*) FROM effects")
        return int(count)

    async with opened(path, clock=clock) as store:
        for name in ("s1", "s2"):
            await parked(store, name)
        now = clock.now()
        assert (await store.remember("k", DIGEST, None, now + LATER)).claimed
        with store.once("k", each=True):
            await store.pause(Filter(ids=("s1", "s2")), operator())
        assert rows() == 2
        if end == "answered":
            await store.remember("k", DIGEST, b"done", now + LATER)
        else:
            clock.advance(LATER / 1e6)
            if end == "deleted":
                assert await store.forget_expired(clock.now(), 10) == 1
            else:
                key = "k" if end == "replaced" else "another"
                assert (await store.remember(key, DIGEST, None, now + 2 * LATER)).claimed
        assert rows() == 0
