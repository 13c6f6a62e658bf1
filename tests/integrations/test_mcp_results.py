"""What the MCP server returns: errors in sentences, and large things cut, with a client in this process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from pausepoint import Context, Engine, Workflow, step
from tests.integrations.mcp_clients import Person, asked, done, here, refused, said, tone
from tests.integrations.mcp_jobs import Order
from tests.support.children import outside_sql
from tests.support.killed import copy_as_killed, harm
from tests.support.loop import on_loop


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@on_loop
async def test_a_wrong_call_is_refused_with_a_sentence(store: Path) -> None:
    await asked(store)
    async with here(store, allow="act") as client:
        for (name, arguments), text in {
            ("nothing", ""): "There is no tool 'nothing'. Known: answer_question, events,",
            ("list_sesions", ""): "There is no tool 'list_sesions'. Did you mean 'list_sessions'?",
            ("show_session", '{"session_id": "../etc"}'): "There is no session '../etc'. List the sessions with",
            ("show_session", '{"session_id": 7}'): "not accepted: expected str, got int, at 'session_id'.",
            ("show_session", "{}"): "not accepted: the member 'session_id' is missing.",
            ("show_session", '{"session_id": "one", "at": "x#9"}'): "Session 'one' has no finished visit of step 'x'",
            ("show_session", '{"session_id": "one", "field": "tons"}'): "no field 'tons'. Did you mean 'tone'?",
            ("list_sessions", '{"limit": 1000}'): "not accepted: expected int <= 100, at 'limit'.",
            ("list_sessions", '{"after": "x"}'): "'x' is not a cursor of a list of sessions.",
            ("list_sessions", '{"all": true}'): "not accepted: it has the unknown member 'all'.",
            ("events", '{"session_id": "one", "after": "x"}'): "'x' is not a cursor.",
            ("plan", '{"session_id": "one"}'): "This server has no code of workflow 'order', which a plan needs.",
            ("answer_question", '{"question_id": "x"}'): "There is no question 'x'. List the open questions with",
        }.items():
            assert text in await refused(client, name, **json.loads(arguments or "{}"))


@on_loop
async def test_a_store_that_cannot_be_opened_is_an_error_of_the_call_and_may_be_repaired_meanwhile(store: Path) -> None:
    store.write_bytes(b"not a database" * 100)
    good = store.with_name("good.db")
    await asked(good)
    async with here(store) as client:
        assert f"{store} is not a database." in await refused(client, "pause_everything")
        store.unlink()
        store.mkdir()
        assert f"{store} is a folder." in await refused(client, "list_sessions")
        store.rmdir()
        async with Engine(good, drives="none"):
            copy_as_killed(good, store)
        assert (await done(client, "list_sessions"))["total"] == 1


@on_loop
async def test_a_damaged_log_is_named_and_a_person_decides(store: Path) -> None:
    alive = store.with_name("alive.db")
    asking = Workflow("order", state=Order, steps=[step(writes="tone")(tone)])
    async with Engine(alive, workflows=[asking]) as engine:
        for name in ("one", "two", "three"):
            await (await engine.start(asking, session_id=name, place="")).outcome()
        copy_as_killed(alive, store)
    harm(store)
    async with here(store) as client:
        text = await refused(client, "list_sessions")
    assert "write-ahead log is damaged" in text
    assert text.endswith(f"A person must decide what to do: `pausepoint doctor --store {store}`.")


@on_loop
async def test_a_damaged_session_is_listed_apart_and_can_be_paused(store: Path) -> None:
    await asked(store)
    outside_sql(store, "UPDATE sessions SET tags = 'no json'")
    async with here(store) as client:
        (found,) = (await done(client, "list_sessions"))["damaged"]
        assert found["session_id"] == "one"
        assert "do not match their checksum" in await refused(client, "show_session", session_id="one")
        text = await refused(client, "pause_session", session_id="one", reason="odd")
        assert text.startswith("The pause is stored, but the session is damaged: ")
    assert outside_sql(store, "SELECT pause_requested FROM sessions") == [{"pause_requested": 1}]


@on_loop
async def test_large_things_are_cut_and_the_result_says_so(store: Path) -> None:
    draft = "".join(f'"{number}" é\n' for number in range(20_000))
    await asked(store, draft=draft)
    async with here(store) as client:
        shown = await done(client, "show_session", session_id="one")
        assert shown["left_out"] == "Parts of the state. Read a whole field with `field`."
        assert "more characters)" in shown["state"]["draft"]
        parts = list[str]()
        offset: int | None = 0
        while offset is not None:
            found = await done(client, "show_session", session_id="one", field="draft", offset=offset)
            parts.append(found["part"])
            offset = found.get("next_offset")
        assert "".join(parts) == draft
        assert (await done(client, "show_session", session_id="one", field="tone"))["value"] == ""


async def _survey(ctx: Context) -> str:
    """Ask many long questions at once."""
    words, about = "Wörter " * 500, {"list": ["é" * 90] * 200}
    return (await asyncio.gather(*(ctx.ask(f"{n} {words}", key=n, payload=about) for n in range(40))))[0]


@on_loop
async def test_many_long_questions_are_all_named_with_the_way_to_answer_them(store: Path) -> None:
    asking = Workflow("order", state=Order, steps=[step(writes="tone")(_survey)])
    async with Engine(store, workflows=[asking]) as engine:
        await (await engine.start(asking, session_id="one", place="")).outcome()
        ids = [each.id for each in await engine.questions()]
    async with here(store) as client:
        shown = await done(client, "show_session", session_id="one")
        found, after = list[Any](), None
        while after is not None or not found:
            page = await done(client, "open_questions", limit=100, **({"after": after} if after else {}))
            found, after = found + page["questions"], page.get("next")
    assert [each["id"] for each in found] == ids
    assert [each["id"] for each in shown["questions"]] == ids[:10]
    for number, each in enumerate([*found, *shown["questions"]]):
        assert list(each)[:3] == ["id", "next_question", "answer"]
        assert each["next_question"].startswith(f"{number % 40} Wörter")
        assert each["answer"] == f"pausepoint answer {each['id']}"


@on_loop
async def test_a_form_shows_the_payload_of_a_long_question_and_where_all_of_it_is(store: Path) -> None:
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Which tone? " * 2_000, payload={"to": "Ada", "list": ["x" * 90] * 200})

    asking = Workflow("order", state=Order, steps=[step(writes="tone")(ask)])
    async with Engine(store, workflows=[asking]) as engine:
        await (await engine.start(asking, session_id="one", place="")).outcome()
        (question,) = await engine.questions()
    client, person = here(store, allow="act"), Person(types.ElicitResult(action="cancel"))
    client.elicitation_callback = person
    async with client:
        await said(client, "answer_question", question_id=question.id)
    ((text, _),) = person.forms
    assert '"to": "Ada"' in text
    assert text.count(" more characters)") == 2
    assert text.endswith(f"Read all of it before you answer: pausepoint answer --later {question.id}")


@on_loop
async def test_long_lists_have_pages(store: Path) -> None:
    fleet = Workflow("order", state=Order, steps=[step(writes="tone")(tone)])
    async with Engine(store, workflows=[fleet]) as engine:
        for number in range(25):
            await engine.start(fleet, session_id=f"s{number:02}", place="", paused=True, tags=["t" * 900])
    async with here(store) as client:
        page = await done(client, "list_sessions", limit=100)
        seen = page["sessions"]
        assert 1 < len(seen) < 25  # more would not fit
        while "next" in page:
            page = await done(client, "list_sessions", limit=100, after=page["next"])
            seen += page["sessions"]
        assert sorted(each["session_id"] for each in seen) == [f"s{number:02}" for number in range(25)]
        assert page["total"] == 25
        first = await done(client, "events", session_id="s00", after="", limit=1)
        rest = await done(client, "events", session_id="s00", after=first["next"], limit=100)
        last = await done(client, "events", session_id="s00", limit=1)
        assert first["events"][0]["event_type"] == "session.created"
        assert rest["events"][-1] == last["events"][0]
        assert last["earlier_events"] == len(rest["events"])
