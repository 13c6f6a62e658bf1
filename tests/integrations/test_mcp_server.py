"""The MCP server with a real client: what a model may do, forms for the person, kills, and errors in sentences."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from mcp import Client, types
from mcp.shared.exceptions import MCPError

from pausepoint import Engine
from pausepoint.cli.commands.mcp import GRACE
from pausepoint.integrations import mcp_server
from pausepoint.integrations.mcp_desk import Settings
from pausepoint.integrations.mcp_tools import TOOLS
from pausepoint.model.questions import Question
from pausepoint.model.views import Listing, StandingPause
from tests.docs.pages import DOCS, EXAMPLES, code, rows, section
from tests.integrations.mcp_clients import Person, accept, asked, done, here, receipts, refused, said
from tests.integrations.mcp_jobs import CALLS, HELD, driver, effects, order
from tests.integrations.mcp_servers import Served
from tests.support.children import environment
from tests.support.forked import FORKS
from tests.support.forkserver import ForkServer
from tests.support.loop import on_loop
from tests.support.waits import async_until

LOOK = {"list_sessions", "show_session", "events", "plan", "open_questions", "pause_session", "pause_everything"}
ACT = {"resume_session", "answer_question", "send"}
GENERATIONS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
"""A server that may ask the client (2025-11-25 and older), and one whose result asks."""


async def status_is(client: Client, status: str) -> None:
    async def reached() -> bool:
        return bool((await done(client, "show_session", session_id="one"))["status"] == status)

    await async_until(reached)


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    if not FORKS:
        pytest.skip("A forked server cannot open the pipes of the test on this system.")
    with ForkServer("tests.integrations.mcp_servers") as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@asynccontextmanager
async def served(
    forks: ForkServer, store: Path, *words: str, mode: str = "legacy", person: Person | None = None
) -> AsyncIterator[tuple[Client, Served]]:
    """A client of a server in another process."""
    server = Served(forks, ["--store", str(store), *words], store.parent)
    async with Client(server.transport(), mode=mode, elicitation_callback=person) as client:
        yield client, server


# what a model may do


@pytest.mark.long
@on_loop
async def test_a_model_that_may_look_pauses_a_session_of_another_process(forks: ForkServer, store: Path) -> None:
    async with served(forks, store, mode="auto") as (client, _):
        assert {tool.name for tool in (await client.list_tools()).tools} == LOOK
        assert await refused(client, "list_sessions") == (
            f"There is no store at {store}. The first session creates it. If there should be one, check --store of this"
            " server."
        )
        with driver(store):
            await async_until(lambda: asyncio.to_thread(lambda: len(effects(store)) == HELD + 1))
            (found,) = (await done(client, "list_sessions", status=["running"]))["sessions"]
            assert (found["session_id"], found["step"]) == ("one", "work")
            asked = await done(client, "pause_session", session_id="one", reason="lunch")
            assert (asked["status"], asked["pause"]["reason"]) == ("pausing", "lunch")
            assert asked["pause"]["by"].endswith("(mcp)")
            store.with_name("go").touch()
            await status_is(client, "paused")
            assert effects(store) == list(range(HELD + 1))  # the call in flight ended, and none began


@pytest.mark.long
@GENERATIONS
@on_loop
async def test_a_model_pauses_and_resumes_and_the_person_answers(forks: ForkServer, store: Path, mode: str) -> None:
    """Each call of the session takes place once, and no answer comes from the model."""
    decline, close = types.ElicitResult(action="decline"), types.ElicitResult(action="cancel")
    replies = [accept(answer="rude"), accept(answer="playful"), accept(answer="many"), accept(answer=3)]
    person = Person(decline, close, *replies, decline, accept(approved=False))
    with driver(store):
        async with served(forks, store, "--allow", "act", mode=mode, person=person) as (client, _):
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
            assert {tool.name for tool in (await client.list_tools()).tools} == LOOK | ACT
            await async_until(lambda: asyncio.to_thread(lambda: len(effects(store)) == HELD + 1))
            await done(client, "pause_session", session_id="one")
            store.with_name("go").touch()
            await status_is(client, "paused")
            before = effects(store)
            assert (await done(client, "resume_session", session_id="one"))["pause_requested"] is False
            await status_is(client, "waiting")
            assert (before, effects(store)) == (list(range(HELD + 1)), list(range(CALLS)))

            (asked,) = (await done(client, "open_questions"))["questions"]
            assert (asked["next_question"], asked["answer"]) == ("Which tone?", "answer_question")
            text = await refused(client, "send", session_id="one", message="playful")
            assert "a message would answer it. Nothing was sent. Call answer_question with" in text
            for how in ("decline", "cancel"):
                _, text = await said(client, "answer_question", question_id=asked["id"])
                assert text == f"The form was not answered ({how}). Question {asked['id']} is still open."
            taken = await done(client, "answer_question", question_id=asked["id"])
            assert (taken["channel"], taken["by"], taken["question_id"]) == ("mcp", "ann", asked["id"])
            assert "was answered by ann" in await refused(client, "answer_question", question_id=asked["id"])

            await status_is(client, "waiting")
            (asked,) = (await done(client, "open_questions"))["questions"]
            taken = await done(client, "answer_question", question_id=asked["id"])
            assert (asked["next_question"], taken["version"], "answer" in taken) == ("How many?", 1, False)

            await status_is(client, "waiting")
            (asked,) = (await done(client, "open_questions", session_id="one"))["questions"]
            _, text = await said(client, "answer_question", question_id=asked["id"])
            assert text == f"The form was not answered (decline). Question {asked['id']} is still open."
            assert len((await done(client, "open_questions"))["questions"]) == 1  # a client may decline by itself
            await done(client, "answer_question", question_id=asked["id"])
            await status_is(client, "completed")
            state = (await done(client, "show_session", session_id="one"))["state"]
            assert (state["tone"], state["paid"], state["calls"]) == ("playful", "no", CALLS)
    choices = {"type": "string", "enum": ["formal", "playful"]}
    tone = {"type": "object", "properties": {"answer": choices}, "required": ["answer"]}
    texts = [text for text, _ in person.forms]
    assert [schema for _, schema in person.forms[:4]] == [tone] * 4
    assert texts[:3] == ["Session one (order) asks:\n\nWhich tone?"] * 3
    assert texts[3].endswith("Which tone? (it must be one of 'formal', 'playful')")  # after the wrong answer
    assert "How many? (" in texts[5]  # "many" is no number
    assert texts[6].startswith("Session one (order) asks:\n\nPay 40 EUR?")
    assert '"to": "Ada"' in texts[6]
    assert person.forms[7][1]["properties"]["approved"]["type"] == "boolean"
    assert effects(store) == list(range(CALLS))


@on_loop
async def test_without_act_a_model_can_neither_answer_nor_resume_nor_send(forks: ForkServer, store: Path) -> None:
    question_id = await asked(store)
    async with served(forks, store, person=Person(accept(answer="formal"))) as (client, _):
        (found,) = (await done(client, "open_questions"))["questions"]
        assert found["answer"] == f"pausepoint answer {question_id} --store {store}"
        for name, about in {"answer_question": question_id, "resume_session": "one", "send": "one"}.items():
            named = {"question_id" if about == question_id else "session_id": about}
            text = await refused(client, name, **({"message": "not an id"} if name == "send" else {}), **named)
            verb = name.partition("_")[0]
            assert f"{name} is not allowed: this server may only look and pause. A person can allow it by" in text
            assert f"--allow act, or do it in a terminal: `pausepoint {verb} {about} --store {store}`." in text
        assert len((await done(client, "open_questions"))["questions"]) == 1


@on_loop
async def test_a_client_without_forms_cannot_answer(forks: ForkServer, store: Path) -> None:
    question_id = await asked(store)
    async with served(forks, store, "--allow", "act") as (client, _):
        text = await refused(client, "answer_question", question_id=question_id)
    assert "This client cannot show forms" in text
    assert f"`pausepoint answer {question_id} --store {store}`" in text
    assert await receipts(store) == []


class Late(Engine):
    """An engine that sees no questions: as if the session had asked after the search for them."""

    async def questions(self, *args: Any, **options: Any) -> Listing[Question]:
        return Listing()


@on_loop
async def test_a_message_never_answers_a_question_also_if_that_was_asked_meanwhile(store: Path) -> None:
    question_id = await asked(store)
    settings = Settings(lambda: Late(store, create=False, drives="none", signals=False), allow="act")
    async with Client(mcp_server.server(settings)) as client:
        text = await refused(client, "send", session_id="one", message="formal")
    assert f"a message would answer it. Nothing was sent. Call answer_question with {question_id!r}" in text
    assert await receipts(store) == []


@on_loop
async def test_a_model_does_not_resume_a_session_while_everything_is_paused(forks: ForkServer, store: Path) -> None:
    await asked(store)
    async with served(forks, store, "--allow", "act") as (client, _):
        paused = await done(client, "pause_everything", reason="fire")
        assert (paused["standing_pause"]["reason"], paused["paused_or_pausing"]) == ("fire", 1)
        assert paused["standing_pause"]["lift_command"] == f"pausepoint resume --all --store {store}"
        text = await refused(client, "resume_session", session_id="one")
        assert text.startswith("Everything is paused by ann (mcp): fire. Only a person may lift that:")
        assert (await done(client, "show_session", session_id="one"))["status"] == "paused"


class Racing(Engine):
    """An engine in whose store everything is paused just after it has looked for such a pause."""

    async def standing_pause(self) -> StandingPause | None:
        found = await super().standing_pause()
        if found is None:
            await self.pause_all("fire", by="bob")
        return found


@on_loop
async def test_a_resume_does_not_exempt_a_session_from_a_pause_of_everything_that_came_just_before(store: Path) -> None:
    await asked(store)
    settings = Settings(lambda: Racing(store, create=False, drives="none", signals=False), allow="act")
    async with Client(mcp_server.server(settings)) as client:
        await done(client, "pause_session", session_id="one")
        text = await refused(client, "resume_session", session_id="one")
        assert text.startswith("Everything is paused by bob: fire. Only a person may lift that:")
        assert (await done(client, "show_session", session_id="one"))["status"] == "paused"


@pytest.mark.long
def test_the_sdks_own_transport_starts_the_server_and_the_program_of_the_page_answers(
    forks: ForkServer, store: Path
) -> None:
    asyncio.run(asked(store))
    left_open = asyncio.run(asked(store, "two"))
    typed, printed = store.with_name("typed"), store.with_name("printed")
    typed.write_text("formal\n")  # and Ctrl+D
    printed.touch()
    job = forks.start(
        "tests.support.forked:job", words=[str(EXAMPLES / "mcp_person.py"), str(store)], cwd=str(store.parent),
        env=environment() | {"LOGNAME": "ann"}, ends=[str(typed), str(printed), str(printed)], terminal=False,
    )  # fmt: skip
    assert (job.hear(), job.wait()) == ({"open": True}, 0)
    shown = (DOCS / "mcp.md").read_text("utf-8").partition("$ python mcp_person.py work.db\n")[2].partition("```")[0]
    first, _, second = printed.read_text().partition("Session two")
    assert first == shown.replace("answer: formal\n", "answer: ")
    assert second.endswith(f"The form was not answered (cancel). Question {left_open} is still open.\n")
    assert asyncio.run(receipts(store)) == [("ann", "mcp")]


def test_the_page_lists_the_tools_and_what_they_need() -> None:
    found = {code(name)[0]: needs for name, needs, _ in rows(section(DOCS / "mcp.md", "Tools"))}
    assert found == {tool.name: tool.needs for tool in TOOLS.values()}


# kills


@pytest.mark.long
@on_loop
async def test_a_form_of_a_killed_server_is_answered_through_the_next_one(forks: ForkServer, store: Path) -> None:
    """From 2026-07-28 on the client keeps the digest of the question, so nothing is lost with the server."""
    question_id = await asked(store)
    arguments: dict[str, Any] = {"question_id": question_id}
    reply: dict[str, Any] = {"answer": accept(answer="formal")}
    async with served(forks, store, "--allow", "act", mode="2026-07-28", person=Person()) as (client, server):
        shown = await client.session.call_tool("answer_question", arguments, allow_input_required=True)
        assert isinstance(shown, types.InputRequiredResult)
        server.job.signal(signal.SIGKILL)
        assert server.job.wait() == -signal.SIGKILL
    async with served(forks, store, "--allow", "act", mode="2026-07-28", person=Person()) as (client, _):
        for state in ("00" * 32, "no digest"):  # another question than the person saw
            result = await client.session.call_tool(
                "answer_question", arguments, input_responses=reply, request_state=state, allow_input_required=True
            )
            assert isinstance(result, types.InputRequiredResult)  # it is shown as it is now
            assert await receipts(store) == []
        for _ in range(2):  # a client that got no result calls again
            result = await client.session.call_tool(
                "answer_question", arguments, input_responses=reply, request_state=shown.request_state
            )
            assert not result.is_error
    assert await receipts(store) == [("ann", "mcp")]


@on_loop
async def test_a_server_that_kept_the_digest_to_itself_would_lose_the_form(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: a state that only the server which showed the form understands."""
    real, kept = mcp_server._Call._form, dict[str, str | None]()

    def secret(call: mcp_server._Call, question: Question) -> types.InputRequiredResult:
        form = real(call, question)
        name = f"{len(kept):032x}"
        kept[name] = form.request_state
        return form.model_copy(update={"request_state": name})

    monkeypatch.setattr(mcp_server._Call, "_form", secret)
    arguments = {"question_id": await asked(store)}
    first, second = here(store, allow="act"), here(store, allow="act")
    first.elicitation_callback = second.elicitation_callback = Person()
    async with first:
        shown = await first.session.call_tool("answer_question", arguments, allow_input_required=True)
        assert isinstance(shown, types.InputRequiredResult)
    async with second:
        result = await second.session.call_tool(
            "answer_question", arguments, input_responses={"answer": accept(answer="formal")},
            request_state=shown.request_state, allow_input_required=True,
        )  # fmt: skip
        assert isinstance(result, types.InputRequiredResult)  # the answer is lost
    assert (len(kept), await receipts(store)) == (2, [])


@on_loop
async def test_an_older_client_answers_in_the_form_only(store: Path) -> None:
    question_id, person = await asked(store), Person(types.ElicitResult(action="decline"))
    async with Engine(store, drives="none") as engine:
        digest = (await engine.question(question_id)).digest
    client = here(store, allow="act")
    client.mode, client.elicitation_callback = "legacy", person
    async with client:
        await client.session.call_tool(
            "answer_question", {"question_id": question_id}, input_responses={"answer": accept(answer="formal")},
            request_state=digest,
        )  # fmt: skip
    assert (len(person.forms), await receipts(store)) == (1, [])


@pytest.mark.long
@on_loop
async def test_a_question_stays_open_if_the_server_is_killed_while_its_form_is_shown(
    forks: ForkServer, store: Path
) -> None:
    question_id, person = await asked(store), Person()
    async with served(forks, store, "--allow", "act", person=person) as (client, server):
        call = asyncio.ensure_future(client.call_tool("answer_question", {"question_id": question_id}))
        await async_until(lambda: asyncio.to_thread(lambda: bool(person.forms)))
        server.job.signal(signal.SIGKILL)
        with pytest.raises(MCPError, match="closed"):
            await call
        assert server.job.wait() == -signal.SIGKILL
    assert await receipts(store) == []
    async with served(forks, store, "--allow", "act", person=Person(accept(answer="formal"))) as (client, _):
        taken = await done(client, "answer_question", question_id=question_id)
    assert taken["answer"].startswith("It is stored. The step still has to accept it.")  # no process drives it
    assert await receipts(store) == [("ann", "mcp")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (None, 0)])
@on_loop
async def test_a_signal_or_the_end_of_stdin_ends_the_server(
    forks: ForkServer, store: Path, number: signal.Signals | None, code: int
) -> None:
    question_id, person = await asked(store), Person()
    async with served(forks, store, "--allow", "act", person=person) as (client, server):
        call = asyncio.ensure_future(client.call_tool("answer_question", {"question_id": question_id}))
        await async_until(lambda: asyncio.to_thread(lambda: bool(person.forms)))  # also while a form is open
        if number is not None:
            server.job.signal(number)
        else:
            server.end_stdin()
        assert await asyncio.to_thread(server.job.wait) == code
        with pytest.raises(MCPError, match="closed"):
            await call
    assert store.with_name("stderr").read_text() == ""


@pytest.mark.long
@on_loop
async def test_a_call_that_waits_for_a_lock_does_not_keep_a_server_whose_client_is_gone(
    forks: ForkServer, store: Path
) -> None:
    await asked(store)
    other = apsw.Connection(str(store))
    other.execute("BEGIN IMMEDIATE")
    async with served(forks, store) as (client, server):
        call = asyncio.ensure_future(client.call_tool("pause_session", {"session_id": "one"}))
        await asyncio.sleep(0)
        await client.list_tools()  # so the server has read the call
        begun = time.monotonic()
        server.end_stdin()
        assert await asyncio.to_thread(server.job.wait) == 0
        assert GRACE - 0.5 < time.monotonic() - begun < 28  # it waits for the lock, but less than the 30 s of the store
        with pytest.raises(MCPError, match="closed"):
            await call
    other.close()


@on_loop
async def test_a_look_does_not_wait_while_another_program_writes(forks: ForkServer, store: Path) -> None:
    """Otherwise the call fails when the store has waited for 30 seconds."""
    await asked(store)
    other = apsw.Connection(str(store))
    other.execute("BEGIN IMMEDIATE")
    async with served(forks, store) as (client, _):
        for tool, arguments in [
            ("list_sessions", {}), ("show_session", {"session_id": "one"}), ("events", {"session_id": "one"}),
            ("open_questions", {}),
        ]:  # fmt: skip
            found = await client.call_tool(tool, arguments)
            assert not found.is_error, found.content
            assert "one" in str(found.content)
    other.close()


@on_loop
async def test_a_message_that_is_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "LONGEST_LINE", 100)
    reading, writing = os.pipe()
    os.write(writing, b"one\n" + b"x" * 101 + b"\n" + b"y" * 100 + b"\nrest")
    os.close(writing)
    ended = list[bool]()
    lines = mcp_server._Lines(reading, lambda: ended.append(True))
    assert [line async for line in lines] == ["one", "y" * 100, "rest"]
    assert ended == [True]
    os.close(reading)


@pytest.mark.long
@on_loop
async def test_a_plan_needs_the_code_and_what_that_prints_stays_out_of_the_protocol(
    forks: ForkServer, store: Path
) -> None:
    """Code that loads slowly or not at all disturbs no other call, and may be corrected meanwhile."""
    async with Engine(store, workflows=[order]) as engine:
        await engine.start(order, session_id="one", place=str(store.parent), paused=True)
    code, go = store.with_name("noisy.py"), store.with_name("go")
    begun = store.with_name("begun")
    wait = "while not Path('go').exists(): time.sleep(0.01)"
    code.write_text(f"import sys, time\nfrom pathlib import Path\nPath('begun').touch()\n{wait}\nsys.exit(3)\n")
    noise = "import os; print('noise'); os.write(1, b'noise'); os.system('echo noise')"
    async with served(forks, store, "--target", "noisy.py:order") as (client, _):
        planning = asyncio.ensure_future(refused(client, "plan", session_id="one"))
        await async_until(lambda: asyncio.to_thread(begun.exists))
        paused = await done(client, "pause_session", session_id="one")  # the code is still loaded
        assert paused["resume"] == f"`pausepoint resume one --target {code}:order --store {store}`"
        assert (go.exists(), planning.done()) == (False, False)
        go.touch()
        assert "noisy.py:order cannot be imported. Fix this error first: SystemExit: 3" in await planning
        assert "Fix this error first: SystemExit: 3" in await refused(client, "plan", session_id="one")
        code.write_text(f"{noise}\nfrom tests.integrations.mcp_jobs import order\n")
        found = await done(client, "plan", session_id="one")
    assert [(each["step"], each["verdict"]) for each in found["steps"]] == [("work", "next"), ("decide", "will run")]
    assert store.with_name("stderr").read_text().count("noise") == 3
