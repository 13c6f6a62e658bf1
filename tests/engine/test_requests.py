"""A request has one effect, however often it is repeated: by several engines, and after a kill at any write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.errors import KeyLost, PausepointError, VerbRefused
from pausepoint.model.sessions import Status
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash

DIGEST = b"POST"


@workflow
async def wait(topic: str, ctx: Context) -> str:
    return f"{topic}: {await ctx.receive()}"


Verb = Callable[[Engine], Awaitable[Any]]


async def edit(engine: Engine) -> None:
    seen = await engine.session("s1").info()
    topic = (await engine.session("s1").stored()).values["topic"]
    await engine.session("s1").edit(topic=f"{topic}!", by="ann", based_on=seen.seq)


VERBS: dict[str, Verb] = {
    "start": lambda engine: engine.start(wait, topic="x", paused=True),
    "edit": edit,
    "resume": lambda engine: engine.session("s1").resume(by="ann", here=False),
    "send": lambda engine: engine.session("s1").send("hello", by="ann"),
    "pause everything": lambda engine: engine.pause_all(reason="stop", by="ann"),
}
"""Verbs that would have a second effect if they were repeated."""


POINTS = [(0, False), (0, True), (1, True), (2, True)]
"""Where the engine dies: before the key is taken, after that, after the effect, and after the answer."""


async def post(engine: Engine, verb: Verb, *, covered: bool = True) -> tuple[str, bytes | None]:
    """Carry out a request as a server does, or learn what became of it. Without ``covered``, forget `once`."""
    found = await engine.keys.remember("k", DIGEST)
    if not found.claimed:
        return ("at work" if found.at_work else "known"), found.answer
    if not found.took_effect:
        with engine.keys.once("k") if covered else nullcontext():
            await verb(engine)
    await engine.keys.remember("k", DIGEST, b"done")
    return "carried out", b"done"


def engine_on(path: Path) -> tuple[Engine, MortalStore]:
    store = MortalStore(path, synchronous="OFF", ballast=0)
    return Engine(store, workflows=[wait], signals=False, drives="asked"), store


async def prepared(path: Path) -> None:
    """Create a session that is paused in its step."""
    engine, _ = engine_on(path)
    async with engine:
        await engine.start(wait, session_id="s1", topic="x", paused=True)


async def effects(path: Path) -> dict[str, Any]:
    """Return what the verbs leave behind, without times and random ids."""
    async with Engine(path, drives="none") as engine:
        events = [(each.event_type, each.summary) async for each in engine.session("s1").events()]
        rounds = engine.store._read.execute("SELECT count(*) FROM pause_rounds").get  # type: ignore[attr-defined]
        return {"events": events, "sessions": len(await engine.sessions()), "rounds": rounds}


async def killed_and_repeated(path: Path, verb: Verb, writes: int, after: bool, covered: bool = True) -> bool:
    """Kill the engine at one of its writes, and repeat the request with another one. Return whether it was killed."""
    await prepared(path)
    engine, store = engine_on(path)
    await engine.__aenter__()
    engine._service.described["wait"] = engine.clock.now()  # so that all writes belong to the request
    store.doom(writes, after)
    died = False
    try:
        await post(engine, verb, covered=covered)
    except PausepointError:
        died = store.dead
    store.spare()
    await crash(engine) if died else await engine.close()
    other, _ = engine_on(path)
    async with other:
        said, answer = await post(other, verb, covered=covered)
        assert answer == b"done", said
        assert (await post(other, verb)) == ("known", b"done")
    return died


@pytest.mark.long
@pytest.mark.parametrize("name", VERBS)
@on_loop
async def test_a_request_that_is_killed_at_any_write_and_repeated_has_one_effect(tmp_path: Path, name: str) -> None:
    await killed_and_repeated(tmp_path / "whole.db", VERBS[name], 99, False)
    expected = await effects(tmp_path / "whole.db")
    died = 0
    for writes, after in POINTS:
        path = tmp_path / f"{writes}{after}.db"
        died += await killed_and_repeated(path, VERBS[name], writes, after)
        assert await effects(path) == expected, (writes, after)
    assert died == len(POINTS), "every kill happened"


@on_loop
async def test_without_once_a_kill_after_the_effect_is_noticed(tmp_path: Path) -> None:
    await killed_and_repeated(tmp_path / "whole.db", VERBS["send"], 99, False)
    assert await killed_and_repeated(tmp_path / "twice.db", VERBS["send"], 1, True, covered=False)
    assert await effects(tmp_path / "twice.db") != await effects(tmp_path / "whole.db")


@on_loop
async def test_a_started_session_runs_and_its_own_writes_need_no_key(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        found = await engine.keys.remember("k", DIGEST)
        with engine.keys.once("k"):
            session = await engine.start(wait, topic="x")
        await engine.keys.remember("k", found.digest, session.id.encode())
        await session.send("hello")
        assert (await session.outcome()).result == "x: hello"


@on_loop
async def test_a_refused_request_can_give_its_key_up(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        session = await engine.start(wait, topic="x", paused=True)
        await session.cancel()
        await engine.keys.remember("k", DIGEST)
        with engine.keys.once("k"), pytest.raises(VerbRefused):
            await session.resume()
        assert await engine.keys.forget("k")
        assert await engine.keys.recall("k") is None


@on_loop
async def test_a_key_that_was_lost_stops_the_verb(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "store.db", signals=False, clock=clock, drives="asked") as engine:
        session = await engine.start(wait, topic="x", paused=True)
        await engine.keys.remember("k", DIGEST, keep_for=timedelta(minutes=1))
        clock.jump(timedelta(minutes=1))
        with engine.keys.once("k"), pytest.raises(KeyLost, match="does not hold the key 'k'") as lost:
            await session.resume(here=False)
        assert lost.value.key == "k"
        assert await session.status() is Status.PAUSED


def test_blocking_code_has_the_same_block(tmp_path: Path) -> None:
    with Engine(tmp_path / "store.db", signals=False) as engine:
        session = engine.start(wait, topic="x", paused=True)
        with engine.keys.once("k"), pytest.raises(KeyLost):
            session.cancel()
        assert engine.keys.remember("k", DIGEST).claimed
        with engine.keys.once("k"):
            session.cancel()
        found = engine.keys.recall("k")
        assert found is not None
        assert found.took_effect


@pytest.mark.long
@on_loop
async def test_a_repeated_bulk_resume_leaves_treated_sessions_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, signals=False, drives="none") as engine:
        for name in ("s1", "s2"):
            await engine.start(wait, session_id=name, topic="x", paused=True)
        await engine.keys.remember("k", DIGEST)
        with engine.keys.once("k", each=True):
            assert len((await engine.select(ids=["s1"]).resume(here=False)).done) == 1
    async with Engine(path, signals=False, drives="none") as engine:
        await engine.session("s1").pause(by="bob")
        assert (await engine.keys.remember("k", DIGEST)).took_effect
        with engine.keys.once("k", each=True):
            report = await engine.select(ids=["s1", "s2"]).resume(here=False)
        assert [item.session_id for item in report.done] == ["s1", "s2"]
        assert (await engine.session("s1").info()).status is Status.PAUSED
        assert (await engine.session("s2").info()).status is not Status.PAUSED


@on_loop
async def test_a_bulk_resume_that_drives_cannot_be_completed_later_so_it_is_refused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        session = await engine.start(wait, session_id="s1", topic="x", paused=True)
        await engine.keys.remember("k", DIGEST)
        with engine.keys.once("k", each=True):
            with pytest.raises(ValueError, match="needs here=False"):
                await engine.select(ids=["s1"]).resume()
            assert len((await engine.select(ids=["s1"]).resume(dry_run=True)).done) == 1
        assert await session.status() is Status.PAUSED
        assert await engine.keys.forget("k"), "nothing took effect"


@on_loop
async def test_gc_deletes_expired_requests(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "store.db", signals=False, clock=clock) as engine:
        await engine.keys.remember("old", DIGEST, b"done")
        clock.jump(timedelta(hours=23))
        await engine.keys.remember("new", DIGEST, b"done")
        clock.jump(timedelta(hours=2))
        assert (await engine.gc()).requests == 0, "a dry run deletes nothing"
        assert (await engine.gc(apply=True)).requests == 1
        assert await engine.keys.recall("new") is not None


@pytest.mark.parametrize(
    "change", ["answer = x'00'", "took_effect = 1", "until = until + 1", "digest = x'00'", "holder = 9"]
)
@on_loop
async def test_a_damaged_request_is_reported_and_not_believed(tmp_path: Path, change: str) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        await engine.keys.remember("k", DIGEST, b"done")
        engine.store._writer.inline.connection.execute(f"UPDATE remembered SET {change}")  # type: ignore[attr-defined]
        for verb in (engine.keys.recall("k"), engine.keys.remember("k", DIGEST)):
            with pytest.raises(PausepointError, match="A remembered request cannot be read"):
                await verb
        (problem,) = (await engine.verify()).problems
        assert "remembered request 1 does not match its checksum" in problem.text


@pytest.mark.parametrize("keep_for", [timedelta(0), -timedelta(hours=1)])
@on_loop
async def test_a_request_must_be_kept_for_some_time(tmp_path: Path, keep_for: timedelta) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="keep_for must be a timedelta above zero"):
            await engine.keys.remember("k", DIGEST, keep_for=keep_for)
