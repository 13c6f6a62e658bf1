"""Laws of time travel, checked on the corpus of workflows.

1. A session that is rewound to a visit and runs again ends as before.
2. A fork without edits ends like its source and does not change it.
3. The same holds for rewinds and forks to an operation inside a visit.
4. An edit that writes the existing values changes nothing, but is recorded.
5. The state at a checkpoint equals the state when the checkpoint was made.
6. A migration that changes nothing leaves the session unchanged.

After each test, the whole store passes verification.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, migrate, step
from pausepoint.log.access import StateAccess
from pausepoint.log.replay import body_of
from pausepoint.log.state import Change
from pausepoint.log.timeline import Timeline, operation_of
from tests.laws.test_replay import RestlessStore, stored, undisturbed
from tests.support.corpus import CORPUS, Case
from tests.support.loop import on_loop

Law = Callable[[Case], Awaitable[None]]


async def completed(engine: Engine, case: Case) -> tuple[Session[Any], Any]:
    session = await engine.start(case.workflow, **case.given)
    return session, await ended(session)


async def ended(session: Session[Any]) -> Any:
    outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED, outcome
    return outcome.state


async def visits(session: Session[Any]) -> list[tuple[str, int, str]]:
    """Return the visits on the current line."""
    return [(one.step, one.visit, one.skipped) for one in await session.checkpoints(limit=None) if not one.left_behind]


async def some_places(session: Session[Any]) -> list[int | str]:
    """Return the first place, the last one, and two in between; by number and by name."""
    found = await session.checkpoints(limit=None)
    places = sorted({0, len(found) // 3, 2 * len(found) // 3, len(found) - 1})
    return [found[n].seq if n % 2 else found[n].name for n in places]


async def is_intact(engine: Engine) -> None:
    report = await engine.verify()
    assert report.ok, report.problems


async def redoing_ends_the_same(case: Case) -> None:
    async with Engine(":memory:", signals=False) as engine:
        session, state = await completed(engine, case)
        path = await visits(session)
        for place in await some_places(session):
            assert await session.rewind(place) is Status.READY
            await session.resume()
            assert await ended(session) == state
            assert await visits(session) == path
        await is_intact(engine)


async def some_operations(session: Session[Any]) -> list[int]:
    """Return the numbers of the first operation, the last one, and two in between."""
    store, row = session._engine.store, await session._engine.store.get(session.id)
    assert row is not None
    found = [record.seq for record in await store.records(row.key, 1) if operation_of(record) is not None]
    return sorted({found[n] for n in (0, len(found) // 3, 2 * len(found) // 3, len(found) - 1)}) if found else []


async def going_back_inside_a_visit_ends_the_same(case: Case) -> None:
    async with Engine(":memory:", signals=False) as engine:
        session, state = await completed(engine, case)
        path, operations = await visits(session), await some_operations(session)
        for number in operations:
            fork = await session.fork(at_operation=number)
            assert await ended(fork) == state
            assert await session.rewind(to_operation=number) is Status.READY
            await session.resume()
            assert await ended(session) == state
            assert await visits(session) == path
        await is_intact(engine)


async def a_fork_ends_the_same(case: Case) -> None:
    async with Engine(":memory:", signals=False) as engine:
        session, state = await completed(engine, case)
        source = await stored(engine, session.id)
        for place in [*await some_places(session), None]:
            fork = await session.fork(place)
            assert await ended(fork) == state
        assert await stored(engine, session.id) == source
        await is_intact(engine)


async def an_empty_edit_is_only_a_record(case: Case) -> None:
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(case.workflow, **case.given, paused=True)
        done: Any = None
        for standing in (Status.PAUSED, Status.COMPLETED):
            before, (_, records) = await session.state(), await stored(engine, session.id)
            same = {name: getattr(before, name) for name in type(before).model_fields}
            await session.edit(same, by="ann", reason="to see")
            _, after = await stored(engine, session.id)
            assert (after[:-1], after[-1].kind) == (records, "edit")
            assert await session.state() == before
            await session.resume()
            done = await ended(session)
            assert standing is Status.PAUSED or done == before
        reference, *_ = await undisturbed(case)
        assert done == reference
        await is_intact(engine)


async def checkpoints_keep_their_state(case: Case) -> None:
    async with Engine(RestlessStore("finish"), workflows=[case.workflow], signals=False) as engine:
        session = await engine.start(case.workflow, **case.given)
        seen: dict[int, Any] = {}
        while (await session.outcome()).status is Status.PAUSED:
            seen |= {one.seq: await session.state() for one in await session.checkpoints(limit=1)}
            await session.resume()
        made = {one.seq: one.name for one in await session.checkpoints(limit=None)}
        assert made.keys() - seen.keys() <= {max(made)}  # the session ended after the last checkpoint
        assert len(seen) >= len(made) - 1 > 0
        for seq, state in seen.items():
            assert await session.state(seq) == await session.state(made[seq]) == state
        await is_intact(engine)


LAWS: dict[str, Law] = {
    "redone": redoing_ends_the_same,
    "forked": a_fork_ends_the_same,
    "redone inside": going_back_inside_a_visit_ends_the_same,
    "edited": an_empty_edit_is_only_a_record,
    "looked back": checkpoints_keep_their_state,
}


@pytest.mark.long
@pytest.mark.covers("S4.83")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", [name for name in CORPUS if name != "long"])
@on_loop
async def test_going_back_changes_nothing_that_it_should_not(name: str, law: str) -> None:
    await LAWS[law](CORPUS[name]())


@pytest.mark.long
@pytest.mark.parametrize("law", ["redone", "forked"])
@on_loop
async def test_going_back_over_many_key_frames_changes_nothing_that_it_should_not(law: str) -> None:
    await LAWS[law](CORPUS["long"]())


# 5


class Letter(BaseModel):
    words: list[str] = []
    page: str = ""
    sent: bool = False


@step(writes="words")
async def think(ctx: Context) -> list[str]:
    return [await ctx.do(str.upper, word, key=word) for word in ("dear", "squid")]


@step(writes="page")
async def write(words: list[str]) -> str:
    return " ".join(words) * 3000


@step(writes="sent")
async def send(page: str) -> bool:
    return page.startswith("DEAR")


@migrate(from_version=1)
def as_it_is(state: dict[str, Any]) -> dict[str, Any]:
    return state


letter = Workflow("letter", state=Letter, steps=[think, write, send])
letter_again = Workflow("letter", state=Letter, steps=[think, write, send], version=2, migrations=[as_it_is])


async def migrating_ends_the_same(paused_after: int) -> None:
    store = RestlessStore("finish", every=paused_after)
    async with Engine(store, workflows=[letter], signals=False, hold=0) as engine:  # a held step would run the old code
        session = await engine.start(letter)
        assert (await session.outcome()).status is Status.PAUSED
        engine.workflows["letter"] = letter_again
        before = await session.state()
        store.every = 10**6
        await session.resume()
        state = await ended(session)
        _, records = await stored(engine, session.id)
        (migrated,) = [record.seq for record in records if record.kind == "definition"]
        assert await session.state(migrated) == before
        assert state == Letter(words=["DEAR", "SQUID"], page="DEAR SQUID" * 3000, sent=True)
        assert [one.version for one in await session.checkpoints()][-1] == 2
        await is_intact(engine)


@pytest.mark.covers("S4.82")
@pytest.mark.parametrize("paused_after", [1, 2, 3, 4])
@on_loop
async def test_a_migration_that_changes_nothing_changes_nothing(paused_after: int) -> None:
    await migrating_ends_the_same(paused_after)


# the laws can be broken

before_finished, find, replaced = Timeline._before_finished, Timeline.find, StateAccess.replaced
before_operation = Timeline.before_operation


async def with_its_result(timeline: Timeline, seq: int, reuse: bool) -> Any:
    found = await before_finished(timeline, seq, reuse)
    (record,) = await timeline.store.records(timeline.row.key, seq, seq)
    for change in body_of(record).changes:
        found.line.state.apply(change)
    return found


async def with_the_result_of_its_visit(timeline: Timeline, operation: int | str) -> Any:
    found = await before_operation(timeline, operation)
    finished = [one for one in await timeline.checkpoints() if one.name == found.visit]
    return found if not finished else await with_its_result(timeline, finished[-1].seq, True)


async def a_little_later(timeline: Timeline, at: int | str) -> int:
    return min(await find(timeline, at) + 3, timeline.row.seq)


def added(*given: Any) -> Change:
    change = replaced(*given)
    return msgspec.structs.replace(change, act="append") if change.path == "lines" else change


BROKEN: dict[str, tuple[type[Any], str, Any]] = {
    "redone": (Timeline, "_before_finished", with_its_result),
    "forked": (Timeline, "_before_finished", with_its_result),
    "redone inside": (Timeline, "before_operation", with_the_result_of_its_visit),
    "edited": (StateAccess, "replaced", added),
    "looked back": (Timeline, "find", a_little_later),
}


@pytest.mark.parametrize("law", LAWS)
@on_loop
async def test_a_law_that_is_broken_is_noticed(law: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*BROKEN[law])
        with pytest.raises(AssertionError):
            await LAWS[law](CORPUS["loop" if law == "redone inside" else "growing"]())
