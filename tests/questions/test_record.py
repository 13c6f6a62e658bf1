"""The record of a question: every field, its statuses, and what is kept for how long."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from subprocess import CalledProcessError
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Status, Workflow, step
from pausepoint.errors import DamagedRecord, UnknownQuestion
from pausepoint.model.questions import _RECORD, _camel
from pausepoint.model.sessions import QuestionStatus
from pausepoint.runtime.questions import Options
from tests.docs.pages import DOCS, code, rows, section
from tests.questions.kit import Asking, Talk, ended, held, one_step, statuses, waits
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.status import settled


class Line(BaseModel):
    role: str
    text: str


class Desk(BaseModel):
    customer: str = "安娜 🐙"
    order: UUID = UUID(int=7)
    due: date = date(2026, 2, 28)
    parts: dict[str, list[int | None]] = {"a": [1, None]}
    messages: Annotated[list[Line], Append] = []
    said: Any = None


def look_up(order: str) -> dict[str, int]:
    return {"price": 20}


def desk() -> Workflow[Desk]:
    @step(writes="messages")
    async def greet() -> list[Line]:
        return [Line(role="user", text="hello"), Line(role="bot", text="hi")]

    @step(writes="said")
    async def serve(order: UUID, ctx: Context) -> Any:
        await ctx.do(look_up, str(order))
        return await ctx.ask("Which street?", expires=timedelta(minutes=5), history="messages", rounds=3)

    return Workflow("desk", state=Desk, steps=[greet, serve])


@pytest.mark.covers(
    "S2.1",
    "S2.2",
    "S2.3",
    "S2.5",
    "S2.6",
    "S2.7",
    "S2.8",
    "S2.10",
    "S2.12",
    "S2.13",
    "S2.15",
    "S2.16",
    "S2.17",
    "S2.27",
)
@on_loop
async def test_the_record_has_every_field_under_its_name() -> None:
    async with held(workflow := desk()) as (engine, clock):
        session = await engine.start(workflow)
        question = await engine.question((await waits(session)).id)
        record = question.to_json()
        now = clock.time.isoformat()
        assert UUID(record.pop("id")).version == 4
        context = json.loads(record.pop("contextJson"))
        assert (context["customer"], context["due"], context["parts"]) == ("安娜 🐙", "2026-02-28", {"a": [1, None]})
        assert context["order"] == str(UUID(int=7))
        tools = json.loads(record.pop("toolCallStateJson"))
        assert [(each["name"], each["value"]) for each in tools["done"]] == [("look_up", {"price": 20})]
        assert tools["visit"] == "serve#1"
        assert json.loads(record.pop("chatHistoryJson")) == context["messages"]
        assert record == {
            "sessionId": session.id, "workflowId": "desk", "subChainId": None, "llmNodeId": "serve",
            "pauseReason": "WAITING_USER_INPUT", "collectedParamsJson": None, "currentRound": 1, "maxRounds": 3,
            "pendingToolId": None, "pendingToolName": None, "nextQuestion": "Which street?",
            "status": "WAITING_USER_INPUT", "createdAt": now, "updatedAt": now,
            "expiredAt": (clock.time + timedelta(minutes=5)).isoformat(),
        }  # fmt: skip
        json.dumps(question.to_json())


@pytest.mark.covers("S2.63")
def test_the_page_describes_every_field_every_status_and_the_three_steps() -> None:
    page = DOCS / "questions.md"
    fields = [row for row in rows(section(page, "The record")) if len(row) == 3]
    named = [name for row in fields for name in code(row[0])]
    assert named == list(_RECORD)
    assert [name for row in fields for name in code(row[1])] == [_camel(name) for name in named]
    assert all(row[2] for row in fields)
    explained = [code(row[0])[0] for row in rows(section(page, "The record")) if len(row) == 2]
    assert explained == [each.value for each in QuestionStatus]
    steps = section(page, "Pause, wait, resume")
    assert all(f"**{word}.**" in steps for word in ("Pause", "Wait", "Resume", "What runs again"))
    assert {code(row[0])[0].strip("=") for row in rows(section(page, "Asking"))} - {"kind"} <= {
        "choices", "default", "schema", *Options.__annotations__
    }  # fmt: skip


@pytest.mark.covers("S2.15")
@on_loop
async def test_times_are_instants_in_utc() -> None:
    async with Engine(":memory:") as engine:
        question = await waits(await engine.start(Asking().workflow))
        assert question.created_at.tzinfo is UTC
        assert abs(question.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.covers("S2.14", "S2.43")
@on_loop
async def test_a_question_is_resumed_when_it_is_answered_and_completed_when_its_step_has_ended() -> None:
    seen: list[list[str]] = []

    async def ask(ctx: Context) -> str:
        answer = await ctx.ask("Well?")
        seen.append(await statuses(engine.session(ctx.session_id)))
        return answer

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer("so")
        await ended(session)
        assert seen == [["RESUMED"]]
        assert await statuses(session) == ["COMPLETED"]


@pytest.mark.covers("S2.14")
@on_loop
async def test_there_is_no_other_status(tmp_path: Path) -> None:
    assert [each.value for each in QuestionStatus] == [
        "WAITING_USER_INPUT", "RESUMED", "COMPLETED", "EXPIRED", "CANCELLED"
    ]  # fmt: skip
    async with Engine(tmp_path / "it.db") as engine:
        await waits(await engine.start(Asking().workflow))
        with pytest.raises(ValueError, match=r"is not a status of a question\. Did you mean 'EXPIRED'"):
            await engine.questions(status="EXPIRE")
        with pytest.raises(CalledProcessError):  # the table's own check
            outside_sql(tmp_path / "it.db", "UPDATE questions SET status = 'FAILED'")


@pytest.mark.covers("S2.20")
@on_loop
async def test_every_change_moves_updated_at_and_leaves_created_at() -> None:
    async with held(asking := Asking(int).workflow) as (engine, clock):
        session = await engine.start(asking)
        first = await waits(session)
        clock.advance(10)
        await session.pause()
        await session.answer(3)
        [answered] = await session.questions(None)
        assert (answered.created_at, answered.updated_at) == (first.created_at, clock.time)
        clock.advance(10)
        await session.resume()
        await ended(session)
        [done] = await session.questions(None)
        assert (done.created_at, done.updated_at, done.status) == (first.created_at, clock.time, "COMPLETED")


@pytest.mark.covers("S2.44")
@on_loop
async def test_if_the_step_fails_after_the_answer_the_answer_is_kept_and_the_reason_is_told() -> None:
    broken = [True]

    async def ask(ctx: Context) -> str:
        answer = await ctx.ask("Well?")
        if broken[0]:
            raise OSError("no paper")
        return answer

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer("so")
        await ended(session, Status.FAILED)
        [question] = await session.questions(None)
        assert (question.status, question.failure) == ("RESUMED", "no paper")
        broken.clear()
        broken.append(False)
        await session.resume()
        assert await ended(session) == "so"
        [question] = await session.questions(None)
        assert (question.status, question.failure) == ("COMPLETED", None)


@pytest.mark.covers("S2.34")
@on_loop
async def test_what_waits_is_listed_over_all_sessions_by_page_and_by_what_it_is() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        sessions = [await engine.start(asking.workflow, owner="ann" if n % 2 else None) for n in range(5)]
        for session in sessions:
            await waits(session)
        first = await engine.questions(limit=2)
        rest = await engine.questions(after=first.next)
        assert [each.session_id for each in first + rest] == [session.id for session in sessions]
        assert len(await engine.questions(owner="ann")) == 2
        assert await engine.questions(workflow="other") == []
        assert len(await engine.questions(workflow="asking", limit=4)) == 4
        assert len(await engine.questions(key="none")) == 0
        await sessions[0].answer("so")
        await ended(sessions[0])
        assert len(await engine.questions()) == 4
        assert len(await engine.questions(status=None)) == 5
        assert [each.session_id for each in await engine.questions(status=["COMPLETED"])] == [sessions[0].id]


@on_loop
async def test_an_unknown_question_or_session_is_told() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(UnknownQuestion, match=r"engine\.questions"):
            await engine.question("nothing")


@on_loop
async def test_closed_questions_can_be_forgotten_immediately_or_never() -> None:
    async with held(asking := Asking(expires=None).workflow) as (engine, clock):
        done = await engine.start(asking)
        await waits(done)
        await done.answer("so")
        await ended(done)
        clock.advance(timedelta(days=1000))
        assert (await engine.gc(apply=True, keep_questions_for=timedelta.max)).questions == 0
        assert (await engine.gc(apply=True, keep_questions_for=timedelta(0))).questions == 1


@pytest.mark.covers("S2.62")
@on_loop
async def test_what_came_to_its_end_is_forgotten_after_a_week_and_what_waits_never() -> None:
    async with held(asking := Asking(expires=None).workflow) as (engine, clock):
        done, open_ = await engine.start(asking), await engine.start(asking)
        await waits(done), await waits(open_)
        await done.answer("so")
        await ended(done)
        clock.advance(timedelta(days=6))
        assert (await engine.gc(apply=True)).questions == 0
        clock.advance(timedelta(days=2))
        assert (await engine.gc()).questions == 0
        assert (await engine.gc(apply=True)).questions == 1
        assert await statuses(done) == []
        assert await statuses(open_) == ["WAITING_USER_INPUT"]
        assert (await engine.verify()).ok
        await open_.answer("after all")
        assert await ended(open_) == "after all"


@on_loop
async def test_a_session_that_waits_for_an_answer_does_not_expire_itself() -> None:
    async with held(asking := Asking(expires=None).workflow) as (engine, clock):
        session = await engine.start(asking, keep_for=timedelta(days=1))
        await waits(session)
        clock.advance(timedelta(days=99))
        assert (await engine.gc(apply=True)).expired == []
        assert await session.status() is Status.WAITING


@step(writes="said")
async def alone(ctx: Context) -> str:
    return await ctx.ask("Alone?")


@pytest.mark.covers("S2.47")
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("UPDATE questions SET version = 2", "does not match its checksum"),
        ("UPDATE questions SET seq = 3", "does not match its checksum"),
        ("UPDATE log SET payload = CAST('{}' AS BLOB) WHERE kind = 'wait'", "does not match its digest"),
    ],
)
@on_loop
async def test_a_damaged_question_is_an_error_and_no_empty_question(damage: str, what: str, tmp_path: Path) -> None:
    async with Engine(tmp_path / "it.db") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        outside_sql(tmp_path / "it.db", damage)
        for looking in (engine.question(question.id), engine.answer(question.id, "so"), session.outcome()):
            with pytest.raises(DamagedRecord, match=what):
                await looking
        other = await engine.start(Workflow("other", state=Talk, steps=[alone]))
        await settled(other)
        found = await engine.questions()
        assert ([each.next_question for each in found], len(found.damaged)) == (["Alone?"], 1)
        report = await engine.verify()
        assert any(what in str(problem) for problem in report.problems)


@pytest.mark.covers("S2.46")
@on_loop
async def test_a_step_that_no_longer_exists_is_told_clearly(tmp_path: Path) -> None:
    async with Engine(tmp_path / "it.db") as engine:
        session = await engine.start(Asking().workflow, session_id="s")
        question = await waits(session)

    @step(writes="before")
    async def first(before: int) -> int:
        return before

    @step(writes="said")
    async def another() -> str:
        return "something else"

    renamed = Workflow("asking", state=Talk, steps=[first, another])
    async with Engine(tmp_path / "it.db", workflows=[renamed]) as engine:
        await engine.answer(question.id, "so")
        session = engine.session("s")
        await settled(session, Status.PAUSED)
        [pause] = await session.pauses()
        assert (pause.kind, "middle" in pause.reason) == ("definition", True)


@on_loop
async def test_the_inbox_can_be_sorted_and_read_page_by_page() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        sessions = [await engine.start(asking.workflow) for _ in range(3)]
        for session in sessions:
            await waits(session)
        ids = [session.id for session in sessions]
        for sort, whole in (("asked", ids), ("expires", ids), ("updated", ids[::-1])):
            how: dict[str, Any] = {"sort": sort}
            assert [each.session_id for each in await engine.questions(**how)] == whole
            assert [each.session_id for each in await engine.questions(**how, reverse=True)] == whole[::-1]
            page = await engine.questions(**how, limit=2)
            rest = await engine.questions(**how, after=page.next)
            assert ([each.session_id for each in [*page, *rest]], rest.next) == (whole, None)
        with pytest.raises(ValueError, match=r"'expire' is not a sort of questions\. Did you mean 'expires'\?"):
            await engine.questions(sort="expire")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is not a cursor of a list of questions"):
            await engine.questions(after="7")
        of_sessions = (await engine.sessions(limit=1)).next
        with pytest.raises(ValueError, match="is not a cursor of a list of questions"):
            await engine.questions(after=of_sessions)
