"""The verbs where a question waits: pause, resume, cancel, rewind, edit, fork, moving, redaction, removal"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import QuestionClosed, UnknownQuestion, VerbRefused
from tests.questions.kit import Asking, Talk, ended, one_step, statuses, waits
from tests.support.loop import on_loop


@on_loop
async def test_an_answer_is_kept_while_the_session_is_paused_and_read_after_the_resume() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        session = await engine.start(asking.workflow)
        await waits(session)
        await session.pause("lunch", by="ann")
        assert await session.status() is Status.PAUSED
        await session.answer("so")
        assert (await session.status(), await statuses(session)) == (Status.PAUSED, ["RESUMED"])
        assert "use so" not in asking.calls
        await session.resume()
        assert await ended(session) == "so"


@on_loop
async def test_a_resume_of_a_session_that_waits_leaves_it_waiting_for_the_same_question() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        await session.resume()
        assert (await waits(session)).id == question.id
        await session.resume(wake=True)  # ends timers, not questions
        assert (await waits(session)).id == question.id
        await session.pause()
        await session.resume()
        assert (await waits(session)).id == question.id


@on_loop
async def test_an_answer_while_the_session_runs_reaches_the_branch_that_waits() -> None:
    gate = asyncio.Event()

    async def busy() -> str:
        await gate.wait()
        return "done"

    async def ask(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.ask("Well?"), ctx.do(busy)))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        while not (asked := await session.questions()):
            await asyncio.sleep(0)
        assert await session.status() is Status.RUNNING
        await engine.answer(asked[0].id, "so")
        while (await session.questions(None))[0].receipt is None:
            await asyncio.sleep(0)
        gate.set()
        assert await ended(session) == ["so", "done"]


@on_loop
async def test_an_answer_to_a_failed_session_is_kept() -> None:
    broken = [1]

    async def works() -> None:
        if broken:
            while not await session.questions():
                await asyncio.sleep(0)
            raise OSError("once")

    async def ask(ctx: Context) -> str:
        said, _ = await asyncio.gather(ctx.ask("Well?"), ctx.do(works))
        return said

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await ended(session, Status.FAILED)
        await session.answer("so")
        assert await session.status() is Status.FAILED
        broken.clear()
        await session.resume()
        assert await ended(session) == "so"


@on_loop
async def test_cancel_ends_the_session_and_its_question() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        assert await session.cancel() is Status.CANCELLED
        assert await statuses(session) == ["CANCELLED"]
        with pytest.raises(QuestionClosed):
            await engine.answer(question.id, "so")


@on_loop
async def test_cancel_after_an_answer_that_nobody_has_read_cancels_the_question_too(tmp_path: Path) -> None:
    async with Engine(tmp_path / "it.db") as engine:
        session = await engine.start(Asking().workflow, session_id="s")
        await waits(session)
    async with Engine(tmp_path / "it.db") as engine:
        session = engine.session("s")
        await session.answer("so")
        await session.cancel()
        assert await statuses(session) == ["CANCELLED"]
        assert await engine.store.mail(1) == []


@pytest.mark.parametrize("answered", [False, True])
@on_loop
async def test_a_rewind_cancels_what_is_open_and_the_visit_asks_anew(answered: bool, tmp_path: Path) -> None:
    asking = Asking()
    async with Engine(tmp_path / "it.db") as engine:
        await waits(await engine.start(asking.workflow, session_id="s"))
    async with Engine(tmp_path / "it.db") as engine:
        engine._service.waker.workflows = list  # nobody picks it up meanwhile
        session = engine.session("s")
        if answered:
            await session.answer("old")
        engine.register(asking.workflow)
        await session.rewind("middle")
        assert await statuses(session) == ["CANCELLED"]
        await session.resume()
        await waits(session)  # and is not woken by the old answer
        await session.answer("new")
        await session.resume()
        assert await ended(session) == "new"


@on_loop
async def test_a_rewind_that_keeps_keeps_answers_too() -> None:
    async def ask(ctx: Context) -> list[str]:
        one = await ctx.ask("One?")
        return [one, await ctx.ask("Two?")]

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer("1")
        await waits(session)
        await session.rewind("only", reuse=True)
        assert await statuses(session) == ["COMPLETED", "CANCELLED"]
        await session.resume()
        assert (await waits(session)).next_question == "Two?"
        await session.answer("2")
        assert await ended(session) == ["1", "2"]


@pytest.mark.parametrize(("before", "now"), [("kelp", "squid"), (None, None)], ids=["about it", "about all"])
@on_loop
async def test_an_edit_cancels_the_question_and_it_is_asked_anew_with_the_new_state(
    before: str | None, now: str | None
) -> None:
    @step(writes="said")
    async def only(topic: str, ctx: Context) -> str:
        return await ctx.ask(f"What of {topic if before else 'all'}?", key="what")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        first = await waits(session)
        assert first.next_question == f"What of {before or 'all'}?"
        assert await session.edit(topic="squid") is Status.READY
        assert await statuses(session) == ["CANCELLED"]
        await session.resume()
        second = await waits(session)
        assert (second.next_question, second.id == first.id) == (f"What of {now or 'all'}?", False)
        await session.answer("so")
        assert await ended(session) == "so"


@on_loop
async def test_a_fork_asks_on_its_own() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        session = await engine.start(asking.workflow)
        mine = await waits(session)
        copy = await session.fork()
        theirs = await waits(copy)
        assert theirs.id != mine.id
        await copy.answer("there")
        assert await ended(copy) == "there"
        assert await statuses(session) == ["WAITING_USER_INPUT"]
        await session.answer("here")
        assert await ended(session) == "here"


@pytest.mark.parametrize("when", ["waiting", "refused", "answered", "done"])
@on_loop
async def test_a_session_moves_to_another_store_with_its_question(when: str, tmp_path: Path) -> None:
    asking = Asking()
    async with Engine(tmp_path / "here.db") as engine:
        session = await engine.start(asking.workflow, session_id="s")
        question = await waits(session)
        if when != "waiting":
            await session.pause()
        if when == "refused":
            await session.send(["so"])
        elif when != "waiting":
            await session.answer("so", by="ann")
        if when == "done":
            await session.resume()
            await ended(session)
        await engine.session("s").export(tmp_path / "s.jsonl")
    async with Engine(tmp_path / "there.db") as engine:
        await engine.import_session(tmp_path / "s.jsonl")
        session = engine.session("s")
        [moved] = await session.questions(None)
        assert (moved.id, moved.digest) == (question.id, question.digest)
        if when == "waiting":
            await engine.answer(question.id, "so", seen=question.digest)
        assert (await engine.verify()).ok
        engine.register(asking.workflow)
        await session.resume()
        if when == "refused":
            again = await waits(session)
            assert (again.id, again.current_round, again.complaint) == (question.id, 2, "it must be text, not list")
            await session.answer("so")
        assert await ended(session) == "so"


@on_loop
async def test_under_another_id_a_question_is_asked_anew(tmp_path: Path) -> None:
    asking = Asking()
    async with Engine(tmp_path / "it.db") as engine:
        session = await engine.start(asking.workflow)
        question = await waits(session)
        await engine.session(session.id).export(tmp_path / "s.jsonl")
        await engine.import_session(tmp_path / "s.jsonl", session_id="copy")
        copy = engine.session("copy")
        while await statuses(copy) != ["CANCELLED", "WAITING_USER_INPUT"]:
            await asyncio.sleep(0.001)
        assert (await waits(copy)).id != question.id
        await copy.answer("there")
        assert await ended(copy) == "there"
        assert await statuses(session) == ["WAITING_USER_INPUT"]


@on_loop
async def test_what_the_open_visit_asks_cannot_be_redacted_and_afterwards_it_can() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(text="Your secret?").workflow)
        question = await waits(session)
        seq = (await engine._parts.questions._question(question.id)).facts.seq
        with pytest.raises(VerbRefused, match="Let the visit end"):
            await session.redact(seq=seq)
        await session.answer("it is 42")
        await ended(session)
        await session.redact(seq=seq)
        await session.redact(signal=1)
        again = await engine.question(question.id)
        assert (again.next_question, again.status, again.context_json) == ("(redacted)", "COMPLETED", None)
        assert again.receipt is not None
        assert (await engine.verify()).ok


@on_loop
async def test_an_answer_that_is_redacted_before_it_was_read_is_asked_for_again(tmp_path: Path) -> None:
    asking = Asking()
    async with Engine(tmp_path / "it.db") as engine:
        await waits(await engine.start(asking.workflow, session_id="s"))
    async with Engine(tmp_path / "it.db") as engine:
        session = engine.session("s")
        await session.answer("secret")
        engine.register(asking.workflow)
        await session.redact(signal=1)
        await session.resume()
        question = await waits(session)
        assert (question.current_round, "redacted" in question.complaint) == (2, True)
        await session.answer("public")
        assert await ended(session) == "public"


@on_loop
async def test_a_question_goes_with_its_session() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        await session.remove()
        assert await engine.questions(status=None) == []
        with pytest.raises(UnknownQuestion):
            await engine.answer(question.id, "so")
        assert (await engine.verify()).ok


@on_loop
async def test_a_removal_that_was_only_begun_hides_the_question() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        await engine.store.remove(session.id, None, "", engine.clock.now())
        assert await engine.questions(status=None) == []
        with pytest.raises(UnknownQuestion):
            await engine.answer(question.id, "so")


@on_loop
async def test_a_plan_says_what_it_waits_for() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        await waits(session)
        assert "waits for an answer" in (await session.plan())["middle"].why


@on_loop
async def test_a_session_is_woken_from_another_engine(tmp_path: Path) -> None:
    asking: Any = Asking()
    async with Engine(tmp_path / "it.db") as driving, Engine(tmp_path / "it.db", signals=False) as other:
        session = await driving.start(asking.workflow, session_id="s")
        question = await waits(session)
        await other.answer(question.id, "from there")
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.01)
        assert await ended(session) == "from there"
