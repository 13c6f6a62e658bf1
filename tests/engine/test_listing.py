"""Lists of sessions: page by page, with cursors that a stranger may have written."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, cast, get_args
from unittest.mock import patch

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.model.cursors import SESSIONS, from_cursor, to_cursor
from pausepoint.model.sessions import Filter, Pause, Sort
from pausepoint.model.views import SessionInfo
from pausepoint.stores.base import Store
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def write(ctx: Context) -> str:
    return await ctx.receive(str)


note = Workflow("note", state=Note, steps=[write])


async def several(engine: Engine, count: int = 5) -> None:
    for n in range(count):
        await engine.start(note, session_id=f"n{n}", paused=True)


@on_loop
async def test_a_list_is_read_page_by_page_in_every_order() -> None:
    async with Engine(":memory:") as engine:
        await several(engine)
        for sort in get_args(Sort):
            for reverse in (False, True):
                whole = await engine.sessions(sort=sort, reverse=reverse)
                found: list[SessionInfo] = []
                after = None
                for size in (2, 2, 1):
                    page = await engine.sessions(sort=sort, reverse=reverse, limit=2, after=after)
                    assert len(page) == size
                    found += page
                    after = page.next
                assert (found, after) == (list(whole), None), "the last page has no next one"


@on_loop
async def test_a_new_session_does_not_move_those_of_the_next_page() -> None:
    async with Engine(":memory:") as engine:
        await several(engine)
        first = await engine.sessions(limit=2)
        await engine.start(note, session_id="new", paused=True)
        rest = await engine.sessions(after=first.next)
        assert [info.session_id for info in [*first, *rest]] == ["n4", "n3", "n2", "n1", "n0"]


def test_the_blocking_engine_has_pages_too() -> None:
    with Engine(":memory:") as engine:
        for n in range(3):
            engine.start(note, session_id=f"n{n}", paused=True)
        page = engine.sessions(limit=2, sort="id")
        assert [info.session_id for info in page] == ["n0", "n1"]
        assert [info.session_id for info in engine.sessions(after=page.next, sort="id")] == ["n2"]


def forged(*parts: Any) -> str:
    return urlsafe_b64encode(json.dumps(parts).encode()).rstrip(b"=").decode()


BAD = [
    "", "x", "not a cursor", "ü", "\0", "W10", "e30", "bnVsbA", "a" * 100_000, "WyJzZXNzaW9ucyJd",
    forged("sessions", "created", False, 1), forged("sessions", "created", False, 1, 1, 1),
    forged("sessions", "created", False, "1", 1), forged("sessions", "created", False, 1.0, 1),
    forged("sessions", "created", False, True, 1), forged("sessions", "created", False, None, 1),
    forged("sessions", "created", False, 2**63, 1), forged("sessions", "created", False, 1, -(2**63) - 1),
    forged("sessions", "created", 0, 1, 1), forged("sessions", ["created"], False, 1, 1),
    forged("sessions", "created; DROP TABLE sessions", False, 1, 1), forged("questions", "asked", False, 1),
    forged("sessions", "created", False, [1], 1), forged("created", False, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("cursor", BAD, ids=range(len(BAD)))
@on_loop
async def test_what_is_not_a_cursor_is_refused_and_says_what_to_pass(cursor: str) -> None:
    async with Engine(":memory:") as engine:
        await several(engine, 1)
        with pytest.raises(
            ValueError, match=r"is not a cursor of a list of sessions\. Pass 'next' of the previous page"
        ):
            await engine.sessions(after=cursor)


@pytest.mark.parametrize("at", [(2**63 - 1, -(2**63)), (0, 0)])
@on_loop
async def test_a_cursor_may_name_a_place_where_no_session_is(at: tuple[int, int]) -> None:
    async with Engine(":memory:") as engine:
        await several(engine, 2)
        found = await engine.sessions(after=to_cursor("sessions", "created", False, at))
        assert len(found) == (2 if at[0] else 0)


@on_loop
async def test_a_cursor_belongs_to_the_order_of_its_list() -> None:
    async with Engine(":memory:") as engine:
        await several(engine, 2)
        page = await engine.sessions(limit=1)
        others: list[dict[str, Any]] = [{"sort": "updated"}, {"reverse": True}, {"sort": "id"}]
        for other in others:
            with pytest.raises(ValueError, match=r"belongs to a list sorted by 'created'\. Pass the same sort"):
                await engine.sessions(after=page.next, **other)
        backwards = await engine.sessions(limit=1, reverse=True)
        with pytest.raises(ValueError, match="sorted by 'created', reversed"):
            await engine.sessions(after=backwards.next)


@on_loop
async def test_a_sort_or_limit_that_does_not_exist_is_refused() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match=r"'creatd' is not a sort of sessions\. Did you mean 'created'\?"):
            await engine.sessions(sort="creatd")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="limit must be a number of sessions, 0 or more, or None for all, not -1"):
            await engine.sessions(limit=-1)


@pytest.mark.parametrize("value", ["plain", "ümläut 日本", "%_'\"\\", "\x00\n", "x" * 10_000])
def test_a_cursor_carries_any_text(value: str) -> None:
    cursor = to_cursor("sessions", "workflow", True, (value, 5, 7))
    assert cursor is not None
    assert cursor.isascii()
    assert not set(cursor) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), "it fits in a URL"
    assert from_cursor("sessions", "workflow", True, cursor) == (value, 5, 7)


def test_every_sort_has_a_cursor() -> None:
    assert set(SESSIONS) == set(get_args(Sort))


@on_loop
async def test_a_list_says_why_each_session_is_paused_without_asking_for_each() -> None:
    store = ProxyStore(SqliteStore(":memory:"))
    async with Engine(cast("Store", store)) as engine:
        await several(engine, 3)
        await engine.start(note, session_id="free")
        await engine.session("free").outcome()
        await engine.session("n1").pause(reason="lunch", by="ann")
        calls: list[str] = []
        find, first = store._inner.find, store._inner.first_pauses

        async def counted_find(query: Filter) -> Found:
            calls.append("find")
            return await find(query)

        async def counted_first(keys: Sequence[int]) -> dict[int, Pause]:
            calls.append("first_pauses")
            return await first(keys)

        with patch.multiple(store._inner, find=counted_find, first_pauses=counted_first):
            found = {str(info.session_id): info.pause for info in await engine.sessions()}
        assert calls == ["find", "first_pauses"]
        assert found.pop("free") is None
        assert {pause.kind for pause in found.values() if pause} == {"operator"}
        assert len(found) == 3
        for id, pause in found.items():
            assert [pause] == await engine.session(id).pauses() == [(await engine.session(id).info()).pause]
        assert (await engine.find("n1")).pause == found["n1"]


@on_loop
async def test_a_pause_of_everything_is_named_in_the_list() -> None:
    async with Engine(":memory:") as engine:
        await engine.start(note, session_id="n")
        await engine.session("n").outcome()
        await engine.pause_all(reason="fire", by="bob")
        (info,) = await engine.sessions()
        assert info.pause is not None
        assert (info.pause.reason, info.pause.by, info.pause.standing) == ("fire", "bob", True)
        assert "fire, by bob" in info._repr_html_()


@on_loop
async def test_a_pause_raises_the_number_of_signals_and_a_claim_the_fence() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(note, session_id="n")
        await session.outcome()
        before = await session.info()
        await session.pause()
        paused = await session.info()
        assert (paused.seq, paused.fence, paused.signals) == (before.seq, before.fence, before.signals + 1)
        await session.resume()
        await session.outcome()
        after = await session.info()
        assert after.signals > paused.signals


@on_loop
async def test_sessions_are_found_by_a_part_of_what_is_shown_of_them() -> None:
    async with Engine(":memory:") as engine:
        await several(engine, 2)
        await engine.start(note, session_id="other", owner="ann@example.com", tags="50%", paused=True, reason="lunch")
        for text in ("the", "ANN@", "50%", "Lunch"):
            assert [info.session_id for info in await engine.sessions(text=text)] == ["other"]
            assert sum((await engine.tally(text=text)).values()) == 1
        assert await engine.sessions(text="5_%") == []
        assert len(await engine.sessions(text="")) == 3
        page = await engine.sessions(text="n", limit=1, sort="id")
        assert [info.session_id for info in await engine.sessions(text="n", after=page.next, sort="id")] == [
            "n1",
            "other",
        ]


@on_loop
async def test_a_text_that_cannot_be_stored_is_not_searched() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="text must be a string of at most 10,000 characters"):
            await engine.sessions(text="\ud800")
        with pytest.raises(TypeError, match="text must be a string, not int: 7"):
            await engine.sessions(text=7)  # type: ignore[arg-type]
