"""Edits and rewinds in any order, also with a failing store, change nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Session, Status, Workflow, route, step
from pausepoint.engine import base
from pausepoint.errors import HoldLost, StoreError
from pausepoint.model.commits import Commit
from pausepoint.model.views import Checkpoint
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import SqliteStore, commits
from pausepoint.stores.sqlite.engines import OwnEngine
from tests.engine.essay import Desk, again
from tests.support.loop import on_loop

# forking


@pytest.mark.parametrize("verb", ["edit", "rewind", "both"])
@on_loop
async def test_an_edit_or_a_rewind_takes_effect_as_a_whole_or_not_at_all(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await Desk().done(engine)
        assert isinstance(engine.store, SqliteStore)
        before, fired = await engine.store.get("one"), list[Commit]()

        async def act() -> Status:
            edits = {} if verb == "rewind" else {"topic": "ink"}
            return await (session.edit(edits) if verb == "edit" else session.rewind("write", edits))

        def breaks(cursor: apsw.Cursor, engine: OwnEngine, commit: Commit) -> None:
            fired.append(commit)  # the session is already claimed, in the same transaction
            raise apsw.SQLError("broken in the middle")

        with monkeypatch.context() as patch:
            patch.setattr(commits, "move", breaks)
            with pytest.raises(StoreError):
                await act()
        assert len(fired) == 1
        assert await engine.store.get("one") == before
        assert await act() is Status.READY


class Note(BaseModel):
    text: str = "a"


@step(writes="text")
async def confirmed(ctx: Context) -> str:
    await ctx.confirm("Sure?")
    return "b"


ASKING = Workflow("asking", state=Note, steps=[confirmed])


class Refusing(SqliteStore):
    """A store that says of every change that the session has changed since it was read, for example by mistake."""

    async def revise(self, commit: Commit) -> Found:
        REFUSED.append(commit)
        assert len(REFUSED) < 1_000
        raise HoldLost("The session has changed.", session_id="one")


REFUSED: list[Commit] = []
VERBS: dict[str, Callable[[Session[Any]], Awaitable[object]]] = {
    "edit": lambda session: session.edit(text="c"),
    "rewind": lambda session: session.rewind("confirmed"),
    "ask again": lambda session: session.ask_again(),
    "redact": lambda session: session.redact(seq=1),
}


@pytest.mark.parametrize("verb", VERBS)
@on_loop
async def test_a_verb_that_the_store_refuses_each_time_lets_others_work_and_ends(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ATTEMPTS", 20)
    REFUSED.clear()
    async with Engine(Refusing(tmp_path / "h.db", synchronous="OFF"), workflows=[ASKING], signals=False) as engine:
        session = await engine.start(ASKING, session_id="one")
        await session.outcome()
        await session.answer("no")
        assert (await session.outcome()).status is Status.FAILED
        turns = 0

        async def work() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        working = asyncio.ensure_future(work())
        with pytest.raises(HoldLost):
            await VERBS[verb](session)
        working.cancel()
        assert len(REFUSED) == base.ATTEMPTS
        assert turns >= len(REFUSED) / 2


# any order of verbs


class Tagged(BaseModel):
    tag: str = "a"
    n: int = 0
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def stamp(tag: str, n: int) -> dict[str, Any]:
    return {"n": n + 1, "items": [f"{tag}{n + 1}"]}


@route(after="stamp")
def stamp_on(n: int) -> Literal["stamp", None]:
    return "stamp" if n < 5 else None


STAMPING = Workflow("stamping", state=Tagged, steps=[stamp], routes=[stamp_on])


class Chronicle:
    """The expected checkpoints of the current line, and the expected state at every checkpoint that ever existed."""

    def __init__(self) -> None:
        self.known: dict[int, list[str]] = {}
        self.lines: dict[int, list[int]] = {}
        self.line: list[int] = []
        self.tags: dict[int, str] = {}

    def ran(self, listed: list[Checkpoint], tag: str) -> None:
        for each in listed:
            if each.seq not in self.known:
                before = self.known[self.line[-1]] if self.line else []
                self.known[each.seq] = [*before, f"{tag}{each.visit}"]
                self.lines[each.seq], self.tags[each.seq] = list(self.line), tag
                self.line.append(each.seq)

    async def check(self, session: Session[Tagged]) -> None:
        listed = await session.checkpoints(limit=None)
        assert [each.seq for each in listed if not each.left_behind] == self.line
        for visit, seq in enumerate(self.line, 1):
            assert (await session.state(at_checkpoint=f"stamp#{visit}")).items == self.known[seq]
        for seq, items in self.known.items():
            assert (await session.state(at_checkpoint=seq)).items == items


ACTS = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["", "b", "c"]), st.booleans()), max_size=6)


@pytest.mark.long
@settings(max_examples=25)
@given(acts=ACTS)
@on_loop
async def test_whatever_is_rewound_and_edited_every_line_stays_as_it_was(acts: list[tuple[int, str, bool]]) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(STAMPING)
        await session.outcome()
        chronicle, tag = Chronicle(), "a"
        chronicle.ran(await session.checkpoints(), tag)
        for pick, new_tag, goes_on in acts:
            target = sorted(chronicle.known)[pick % len(chronicle.known)]
            await session.rewind(target)
            chronicle.line, tag = list(chronicle.lines[target]), chronicle.tags[target]
            if new_tag:
                await session.edit(tag=new_tag)
                tag = new_tag
            if goes_on:
                await again(session)
                chronicle.ran(await session.checkpoints(limit=None), tag)
            await chronicle.check(session)
