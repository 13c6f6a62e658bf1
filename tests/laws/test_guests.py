"""The law of guest sessions: whatever happens between and inside visits, the block ends as if nothing had.

Every operation runs once, except for those in flight at a kill or an abort. Between two visits nothing runs at all.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausepoint import Context, Engine, Parked, Status
from pausepoint.errors import StoreError
from pausepoint.model.sessions import SessionRow
from tests.engine.guest import AGENT
from tests.support.loop import PATIENCE
from tests.support.mortal import MortalStore, crash

OPERATIONS = 6
Act = Literal["kill", "abort", "pause", "everything", "cancelled", "error", "close"]
acts = st.lists(
    st.tuples(
        st.sampled_from(("kill", "abort", "pause", "everything", "cancelled", "error", "close")),
        st.integers(0, OPERATIONS - 1),
    ),
    max_size=5,
)


class Disturbed:
    """A guest session whose visits are disturbed, each at one operation."""

    def __init__(self, path: Path, store: type[MortalStore] = MortalStore) -> None:
        self.path, self.store = path, store
        self.ran: list[int] = []
        self.repeats = 0  # operations that may run again, because they were in flight
        self.driven = 0
        self.at: tuple[int, Any] | None = None

    async def turn(self, n: int) -> int:
        self.ran.append(n)
        if self.at is not None and self.at[0] == n:
            await self.at[1]()
        return n

    async def block(self, ctx: Context) -> int:
        self.driven += 1
        first = sum(await ctx.map(self.turn, range(2)))
        return first + sum([await ctx.do(self.turn, n) for n in range(2, OPERATIONS)])

    async def visit(self, engine: Engine) -> int:
        async with engine.visit(AGENT, session_id="t") as ctx:
            total = await self.block(ctx)
            ctx.output = {"turns": total}
        return total

    async def disturb(self, act: Act, at: int) -> None:
        """Visit the session, and disturb the visit in operation ``at``, if it runs."""
        engine = await Engine(self.store(self.path), workflows=[AGENT], signals=False).__aenter__()
        reached, acted = asyncio.Event(), asyncio.Event()

        async def strike() -> None:
            reached.set()
            if act == "error":
                raise ConnectionError
            if act in ("kill", "abort", "cancelled"):
                self.repeats += 1
                await asyncio.Event().wait()
            if act in ("pause", "everything"):
                await acted.wait()

        self.at = at, strike
        before = list(self.ran)
        visit = asyncio.create_task(self.visit(engine))
        await asyncio.wait([visit, watch := asyncio.create_task(reached.wait())], return_when=asyncio.FIRST_COMPLETED)
        watch.cancel()
        if reached.is_set():
            if act == "error":
                self.repeats += 1
            await self.act(engine, visit, act)
            acted.set()
        await asyncio.gather(visit, return_exceptions=True)
        if act == "kill" and reached.is_set():
            return
        await self.settle(engine, before)
        await engine.close()

    async def act(self, engine: Engine, visit: asyncio.Task[int], act: Act) -> None:
        if act == "kill":
            await crash(engine)
        elif act == "cancelled":
            visit.cancel()
        elif act in ("pause", "abort"):
            await engine.session("t").pause(mode="abort" if act == "abort" else "finish")
        elif act == "everything":
            await engine.pause_all()
        elif act == "close":
            await engine.close()

    async def settle(self, engine: Engine, before: list[int]) -> None:
        """Withdraw what stopped the session, and see that this alone runs nothing."""
        if not engine._service.is_open:
            return
        ran, driven = list(self.ran), self.driven
        assert ran[: len(before)] == before
        await engine.lift_pause()
        if (await engine.session("t").info()).status is not Status.CANCELLED:
            await engine.session("t").resume()
        assert await engine.take_ready() == []
        assert (self.ran, self.driven) == (ran, driven)

    async def finish(self) -> None:
        self.at = None
        async with Engine(self.path, workflows=[AGENT]) as engine:
            await engine.lift_pause()
            for _ in range(3):
                if (await engine.store.get("t")) is not None:
                    if (await engine.session("t").info()).status is Status.COMPLETED:
                        break
                    await engine.session("t").resume()
                try:
                    await self.visit(engine)
                except (Parked, StoreError):
                    continue
            assert (await engine.session("t").info()).status is Status.COMPLETED
            assert (await engine.session("t").state()).model_dump()["turns"] == sum(range(OPERATIONS))
            assert (await engine.verify()).problems == []
        counts = {n: self.ran.count(n) for n in range(OPERATIONS)}
        assert all(count >= 1 for count in counts.values())
        # Both items of the map may be in flight at once.
        assert sum(counts.values()) - OPERATIONS <= 2 * self.repeats, (counts, self.repeats)


@pytest.mark.long
@given(acts)
@settings(max_examples=25)
def test_a_disturbed_guest_ends_as_an_undisturbed_one(happens: list[tuple[Act, int]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            guest = Disturbed(Path(folder) / "h.db")
            for act, at in happens:
                await guest.disturb(act, at)
            await guest.finish()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


class HandsOutGuests(MortalStore):
    async def take(self, *given: Any, **options: Any) -> list[SessionRow]:
        row = await self.get("t")
        return [await self.claim("t")] if row is not None and row.status is Status.READY else []


@pytest.mark.parametrize("act", ["pause", "cancelled"])
def test_a_store_that_hands_out_guests_is_caught(act: Act, tmp_path: Path) -> None:
    guest = Disturbed(tmp_path / "h.db", HandsOutGuests)
    with pytest.raises(AssertionError, match=r"\['t'\] == \[\]"):
        asyncio.run(asyncio.wait_for(guest.disturb(act, 3), PATIENCE))
