"""What engines that died have left is freed, although a question of one of the sessions is damaged."""

from __future__ import annotations

from collections.abc import Callable

from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Place, started, stored
from pausepoint.testing.suite.questions import asks

DAMAGE = "UPDATE questions SET version = 2"


async def reap_beside_a_damaged_question(
    place: Place, damage: Callable[[Store], object], lose_engine: Callable[[Store], None]
) -> None:  # fmt: skip
    async with place.store() as store, place.store() as other:
        await asks(await started(other))
        await started(other, "s2")
        await store.cancel("s1", "ann", "enough", 9500)
        damage(store)
        lose_engine(other)
        assert len(await store.reap()) == 2
        rows = [await stored(store, id) for id in ("s1", "s2")]
        assert [(row.holder, row.crashes, row.ended) for row in rows] == [(None, 1, None)] * 2
        assert "s2" in [row.session_id for row in await store.take(2_000_000, ["brief"], 9)]
    async with place.store() as again:  # it ends what was cancelled
        assert (await stored(again)).ended is None
