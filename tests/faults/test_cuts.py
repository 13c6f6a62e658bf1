"""Verbs over a waiting tree that are cut off: by cancelling their task at every turn of the loop, or by a kill.

A verb takes effect on the whole tree or not at all. Nothing stays open below a session that has ended.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from pausepoint.engine.pauses import Pauses
from pausepoint.errors import StoreClosed
from pausepoint.model.sessions import Filter
from pausepoint.runtime import waker
from pausepoint.runtime.park import end_parked
from pausepoint.stores.sql import endings
from tests.faults import cuts
from tests.faults.cuts import VERBS, cuts_of, leaf, opened, settled, tree, waiting, whole_store
from tests.faults.tally import main
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash

WHOLLY = ("cancel", "cancel paused", "rewind", "forget", "replace")
"""The verbs over trees. They are cut at each of the first ticks, the others at some."""


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLLY)
@on_loop
async def test_a_verb_over_a_tree_that_is_cut_at_any_tick_leaves_nothing_half_done(folder: Path, name: str) -> None:
    async with opened(folder / "store.db") as engine:
        count, wrong = await cuts_of(engine, name)
    assert wrong + await whole_store(folder / "store.db") == []
    assert count >= 3


@pytest.mark.long
@on_loop
async def test_any_verb_that_is_cut_leaves_a_sound_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    monkeypatch.setattr(waker, "MOST_ASKED", 1)  # the waker looks at all sessions that it was asked for
    async with opened(folder / "store.db") as engine:
        for name in [each for each in VERBS if each not in WHOLLY]:
            count, wrong = await cuts_of(engine, name, lambda tick: rng.randint(3, 9) + tick)
            assert wrong == []
            assert count, name
    assert await whole_store(folder / "store.db") == []


@pytest.mark.long
def test_the_campaign_reports_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(cuts.run, None, ["--seconds", "0.5", "--seed", "3"]) == 0
    assert "0 faults; " in capsys.readouterr().out


async def cancel_in_pieces(pauses: Pauses, session_id: str, *, reason: str = "", by: str | None = None) -> Status:
    """Request the end of a tree, and end its members afterwards, one transaction each."""
    service = pauses.service
    row = await service.row(session_id)
    if row.status in (Status.COMPLETED, Status.CANCELLED):
        return row.status
    for each in await service.store.cancel(session_id, by, reason, service.clock.now()):
        await end_parked(service.store, service.clock, each.session_id)
    return (await service.row(session_id)).status


def in_pieces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "can_end", lambda row: False)
    patch.setattr(Pauses, "cancel", cancel_in_pieces)


@pytest.mark.long
@on_loop
async def test_the_harness_catches_an_engine_that_cancels_in_pieces(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch)
    symptoms = ("is waiting after a second cancel", "was cancelled, but is still open")
    found: list[str] = []
    for trial in range(20):  # which writes a cut hits depends on how quick the disk is
        async with opened(folder / f"{trial}.db") as engine:
            found += (await cuts_of(engine, "cancel"))[1]
        if all(any(symptom in text for text in found) for symptom in symptoms):
            return
    pytest.fail(f"not caught: {found}")


# kills


async def killed(path: Path, name: str, writes_left: int, after: bool) -> bool:
    """Kill an engine at a write of a verb over a waiting tree. Return whether it got that far."""
    store = MortalStore(path)
    engine = await Engine(store, workflows=[tree, leaf], drives="asked", signals=False).__aenter__()
    await waiting(engine, "t")
    await engine.idle()
    store.doom(writes_left, after)
    with suppress(StoreClosed):
        await VERBS[name].call(engine, "t")
    was_killed = store.dead
    await crash(engine)
    return was_killed


async def found_after(path: Path, name: str) -> list[str]:
    """Open the store of a killed engine, and return what is wrong with its tree."""
    async with opened(path) as engine:
        rows = await engine.store.find(Filter(session_id="t", tree=True))
        ended = {row.session_id: row.ended for row in rows}
        below = {ended[row.session_id] for row in rows if row.parent is not None}
        wrong = [] if len(below) == 1 else [f"the tree is half done: {ended}"]
        wrong += [str(problem) for problem in (await engine.verify()).problems]
        if name in ("rewind", "forget", "replace"):
            await engine.session("t").resume()
            await settled(engine, "t")
            count = len(await engine.session("t").questions())
            wrong += [] if count == 2 else [f"{count} open questions instead of 2"]
        await engine.session("t").cancel()
        statuses = {row.status for row in await engine.store.find(Filter(session_id="t", tree=True))}
        wrong += [] if statuses == {Status.CANCELLED} else [f"after another cancel: {statuses}"]
        wrong += ["questions stay open"] if await engine.session("t").questions() else []
        return wrong


async def kills_of(folder: Path, name: str) -> tuple[int, list[str]]:
    """Kill an engine at every write of a verb, before and after it takes effect."""
    kills, wrong = 0, list[str]()
    for after in (False, True):
        for number in range(50):
            path = folder / f"{number}{after}.db"
            if not await killed(path, name, number, after):
                break
            kills += 1
            wrong += [f"write {number}, after={after}: {text}" for text in await found_after(path, name)]
    return kills, wrong


@pytest.mark.parametrize("name", ["cancel", "rewind", "forget", "replace"])
@on_loop
async def test_a_verb_over_a_waiting_tree_that_is_killed_at_any_write_leaves_nothing_half_done(
    folder: Path, name: str
) -> None:
    kills, wrong = await kills_of(folder, name)
    assert wrong == []
    assert kills >= 2


@pytest.mark.long
@on_loop
async def test_the_kills_catch_an_engine_that_cancels_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch)
    kills, wrong = await kills_of(folder, "cancel")
    assert kills > 4
    assert any("the tree is half done" in text for text in wrong), wrong


@on_loop
async def test_the_next_engine_ends_a_tree_that_an_engine_without_this_left_half_done(folder: Path) -> None:
    path = folder / "store.db"
    with pytest.MonkeyPatch.context() as patch:
        in_pieces(patch)
        assert await killed(path, "cancel", 1, after=True)  # the request, and the end of the parent
    async with opened(path) as engine:
        rows = await engine.store.find(Filter(session_id="t", tree=True))
        assert [row.status for row in rows] == [Status.CANCELLED] * 3
        assert (await engine.verify()).ok
        assert await engine.session("t").questions() == []
        told = [event.event_type async for event in engine.session(rows[0].session_id).events()]
        assert told[-2:] == ["cancel.requested", "session.cancelled"]
        assert await asyncio.wait_for(engine.session("t").cancel(), PATIENCE) is Status.CANCELLED
