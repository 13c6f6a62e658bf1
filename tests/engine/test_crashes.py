"""An engine that drives sessions frees those of an engine that was killed, although it takes none of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status, workflow
from pausepoint.runtime import reaper
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import process
from tests.support.loop import on_loop
from tests.support.postgres import schema_of

CHILD = """
import asyncio, sys
from pausepoint import Engine
from tests.engine.test_crashes import lasting

async def main():
    async with Engine(sys.argv[1], workflows=[lasting]) as engine:
        await engine.start(lasting, session_id="s1")
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@workflow
async def lasting(ctx: Context) -> None:
    await asyncio.sleep(600)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    with schema_of() as url:
        yield url


@pytest.mark.long
@on_loop
async def test_the_sessions_of_a_killed_engine_are_freed_soon_by_an_engine_that_drives(url: str) -> None:
    with process(CHILD, url) as child:
        async with Engine(url, drives="none") as observer:
            assert (await observer.session("s1").info()).status is Status.RUNNING
            assert child.kill() == -signal.SIGKILL
            held = [each.sessions for each in (await observer.health()).gone]
            assert held == [("s1",)], "an engine that only looks on changes nothing"
            async with Engine(url):
                while (await observer.health()).gone:
                    await asyncio.sleep(0.05)
            assert (await observer.health()).crashes == {"s1": 1}
            assert (await observer.session("s1").info()).status is Status.CREATED


@workflow
async def short(ctx: Context) -> str:
    return "done"


@pytest.mark.long
@on_loop
async def test_a_session_that_a_server_gives_back_to_an_engine_which_has_released_it_is_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaper, "EVERY", 0.05)
    with schema_of() as url:
        async with Engine(url, workflows=[short, lasting]) as engine:
            await engine.start(lasting, session_id="busy")
            await engine.start(short, session_id="s1", paused=True)
            await engine.store.unpause("s1", None, 0)
            held = await engine.store.claim("s1")  # as after the promotion of a replica that lacks the last write
            assert (held.holder, engine.running) == (engine.store.number, ("busy",))
            while (await engine.session("s1").info()).status is not Status.CREATED:
                await asyncio.sleep(0.05)
            assert await engine.take_ready() == ["s1"]
            assert (await engine.session("s1").outcome()).status is Status.COMPLETED
            assert engine.running == ("busy",)
            assert (await engine.health()).crashes == {}


@on_loop
async def test_an_error_does_not_end_the_search_for_engines_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, looks = SqliteStore(tmp_path / "store.db"), list[int]()

    async def failing() -> frozenset[int]:
        looks.append(1)
        raise OSError("no lock")

    monkeypatch.setattr(reaper, "EVERY", 0.01)
    monkeypatch.setattr(store, "reap", failing)
    search = reaper.Reaper(store, lambda keys: None, lambda row: False)
    search.start()
    while len(looks) < 2:
        await asyncio.sleep(0.01)
    search.stop()
    assert "could not free the sessions" in caplog.text
