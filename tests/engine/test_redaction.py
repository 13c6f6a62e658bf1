"""Redaction removes a field, record, event or message from state, log and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from pausepoint import Context, Engine, Status, Workflow, migrate, step
from pausepoint.errors import AlreadyRunning, Redacted, StateRefused, VerbRefused
from tests.engine.case import LARGE, SECRET, Case, bytes_of, case, closed_case, rate, research
from tests.support.loop import on_loop
from tests.support.pipeline import Gate


@on_loop
async def test_a_redacted_field_is_gone_from_state_log_and_files(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[case]) as engine:
        session = await closed_case(engine, name="Ada")
        before = await session.checkpoints()
        letter = (await session.state()).letter
        assert letter.encode() in bytes_of(path)
        done = await session.redact(field="letter", by="dpo", reason="asked for")
        assert (await session.state()).letter == ""
        assert (await session.state()).name == "Ada"
        assert await session.status() is Status.COMPLETED
        assert done.records == (before[1].seq,)
        assert done.erased
        assert letter.encode() not in bytes_of(path)
        report = await session.verify()
        assert (report.ok, report.redacted) == (True, 1)
        events = [event async for event in session.events()]
        assert [event.event_type for event in events if "redacted" in event.event_type] == [
            "redacted",
            "session.redacted",
        ]
        assert events[-1].data == {
            "field": "letter", "drawer": None, "by": "dpo", "reason": "asked for", "signals": [],
            "records": [[before[1].seq] * 2],
        }  # fmt: skip
        with pytest.raises(Redacted, match=f"Record {before[1].seq}"):
            await session.state(at_checkpoint="write")
        assert (await session.state(at_checkpoint="research")).facts == ["about Ada"]
        with pytest.raises(Redacted):
            await engine.session("c1").diff("research", "rate")
        assert [checkpoint.redacted for checkpoint in await session.checkpoints()] == [False, True, False]


@on_loop
async def test_what_the_visits_that_wrote_a_field_remembered_goes_too(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[case]) as engine:
        session = await closed_case(engine, name=LARGE)
        info = await session.info()
        await session.redact(field="facts")
        await session.redact(field="letter", value="")
        done = await session.redact(field="name", value="N. N.")
        assert done.records[0] == 1
        assert (await session.state()) == Case(name="N. N.", score=5)
        assert SECRET.encode() not in bytes_of(path)
        report = await session.verify()
        assert report.ok, report.problems
        assert report.redacted >= 4
        assert report.values == 0
        after = await session.info()
        assert (after.spent_usd, after.spent_tokens, after.status) == (info.spent_usd, info.spent_tokens, info.status)
        assert (await engine.verify()).ok


@on_loop
async def test_what_an_operation_remembered_goes_with_the_field_that_its_visit_wrote(tmp_path: Path) -> None:
    async def find() -> str:
        return SECRET

    @step(writes="facts")
    async def research(ctx: Context) -> list[str]:
        return [await ctx.do(find)]

    path, finding = tmp_path / "store.db", Workflow("finding", state=Case, steps=[research])
    async with Engine(path, workflows=[finding]) as engine:
        session = await engine.start(finding, name="Ada")
        await session.outcome()
        await session.redact(field="facts")
        assert (await session.verify()).ok
    assert SECRET.encode() not in bytes_of(path)


@on_loop
async def test_a_field_without_a_default_needs_a_value_that_the_model_admits() -> None:
    async with Engine(":memory:", workflows=[case]) as engine:
        session = await closed_case(engine)
        before = await engine.store.get("c1")
        with pytest.raises(StateRefused, match=r"'name' has no default\. Pass value="):
            await session.redact(field="name")
        with pytest.raises(StateRefused):
            await session.redact(field="score", value="many")
        with pytest.raises(StateRefused, match="Did you mean 'letter'"):
            await session.redact(field="lettre")
        with pytest.raises(ValueError, match="exactly one thing"):
            await session.redact()
        with pytest.raises(ValueError, match="exactly one thing"):
            await session.redact(field="letter", seq=1)
        assert await engine.store.get("c1") == before


@on_loop
async def test_one_record_can_be_redacted_by_number_or_by_its_event(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[case]) as engine:
        session = await closed_case(engine)
        events = [event async for event in session.events()]
        operation = next(event for event in events if event.event_type == "operation.completed")
        done = await session.redact(event=operation.cursor, by="dpo")
        [seq] = done.records
        assert "redacted" in [event.event_type async for event in session.events()]
        with pytest.raises(VerbRefused, match=f"record {seq}: it was redacted before"):
            await session.redact(seq=seq)
        last = (await engine.store.get("c1")).seq  # type: ignore[union-attr]
        with pytest.raises(VerbRefused, match="lists what was redacted"):
            await session.redact(seq=last - 1)
        with pytest.raises(VerbRefused, match=f"the records 1 to {last}"):
            await session.redact(seq=last + 1)
        report = await session.verify()
        assert (report.ok, report.redacted) == (True, 1)
        assert (await session.state()).score == 5


@on_loop
async def test_a_parked_session_goes_on_after_a_redaction_and_keeps_what_its_open_visit_remembers() -> None:
    calls: list[str] = []

    async def note(what: str) -> str:
        calls.append(what)
        return what

    @step(writes="letter")
    async def chat(ctx: Context) -> str:
        first = await ctx.do(note, "first")
        return first + str(await ctx.receive(str))

    chatty = Workflow("chatty", state=Case, steps=[research, chat])
    async with Engine(":memory:", workflows=[chatty]) as engine:
        session = await engine.start(chatty, session_id="s1", name="Ada", facts=["old"])
        await engine._service.driver.runs["s1"].finished()
        assert await session.status() is Status.WAITING
        opened = [event async for event in session.events() if event.event_type == "operation.completed"][-1]
        with pytest.raises(VerbRefused, match="the open visit"):
            await session.redact(event=opened.cursor)
        await session.redact(field="facts")
        assert await session.status() is Status.WAITING
        await session.send("!")
        outcome = await session.outcome()
        assert (outcome.state.letter, outcome.state.facts) == ("first!", [])
        assert calls == ["first"]
        assert (await session.verify()).ok


@on_loop
async def test_a_message_can_be_redacted_before_and_after_it_was_received(tmp_path: Path) -> None:
    @step(writes="score")
    async def count(ctx: Context) -> int:
        return len(await ctx.receive(str))

    counting = Workflow("counting", state=Case, steps=[count])
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[counting]) as engine:
        session = await engine.start(counting, session_id="s1", name="x", paused=True)
        await session.send(SECRET)
        await session.send("four")
        sent = [event async for event in session.events() if event.event_type == "message.received"]
        done = await session.redact(event=sent[0].cursor, by="dpo")
        assert (done.records, done.signals, done.erased) == ((), (2,), True)
        assert SECRET.encode() not in bytes_of(path)
        with pytest.raises(VerbRefused, match="signal 2: it was redacted before"):
            await session.redact(signal=2)
        with pytest.raises(VerbRefused, match="no signal 9"):
            await session.redact(signal=9)
        await session.resume()
        assert (await session.outcome()).state.score == 4
        await session.redact(signal=3)
        report = await session.verify()
        assert report.ok, report.problems
        summaries = [event.summary async for event in session.events() if event.event_type == "redacted"]
        assert summaries == ["signal 2 (message) was redacted", "signal 3 (message) was redacted"]


@on_loop
async def test_a_driven_session_cannot_be_redacted() -> None:
    gate = Gate()

    @step(writes="score")
    async def wait() -> int:
        await gate.hold()
        return 1

    slow = Workflow("slow", state=Case, steps=[wait])
    async with Engine(":memory:", workflows=[slow]) as engine:
        session = await engine.start(slow, session_id="s1", name="x")
        await gate.reached.wait()
        with pytest.raises(AlreadyRunning):
            await session.redact(field="letter")
        gate.opened.set()
        await session.outcome()


@on_loop
async def test_a_large_value_that_the_present_state_uses_outlives_the_record_that_wrote_it(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[case]) as engine:
        session = await closed_case(engine, name=LARGE)
        state = await session.state()
        wrote = (await session.checkpoints())[1]
        assert wrote.step == "write"
        assert (await session.redact(seq=wrote.seq)).records == (wrote.seq,)
        assert await session.state() == state
        assert (await engine.verify()).ok
    async with Engine(tmp_path / "store.db", workflows=[case]) as engine:
        assert await engine.session("c1").state() == state


@on_loop
async def test_another_session_keeps_a_value_that_was_redacted_here(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[case]) as engine:
        first, second = await closed_case(engine, "c1", LARGE), await closed_case(engine, "c2", LARGE)
        await first.redact(field="name", value="")
        assert (await second.state()).name == LARGE
        assert (await engine.verify()).ok


@on_loop
async def test_a_field_that_the_model_has_lost_can_be_redacted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[case]) as engine:
        await closed_case(engine, name="Ada")

    class Less(BaseModel):
        name: str
        score: int = 0

    less = Workflow("case", state=Less, steps=[rate])
    async with Engine(path, workflows=[less]) as engine:
        await engine.session("c1").redact(field="letter")
        assert (await engine.session("c1").state()) == Less(name="Ada", score=5)
        assert b"Dear Ada" not in bytes_of(path)
        assert (await engine.verify()).ok


@on_loop
async def test_the_event_of_a_record_that_came_after_a_signal_is_that_record() -> None:
    async with Engine(":memory:", workflows=[case]) as engine:
        session = await engine.start(case, session_id="c1", name="x", paused=True, by="ann")
        await session.resume()
        await session.outcome()
        done = [event async for event in session.events() if event.event_type == "step.completed"]
        redaction = await session.redact(event=done[1].cursor)
        assert (len(redaction.records), redaction.signals) == (1, ())
        assert [event.event_type async for event in session.events()].count("step.completed") == 2


class Pair(BaseModel):
    secret: str = "none"
    length: int = 4

    @model_validator(mode="after")
    def same(self) -> Pair:
        if len(self.secret) != self.length:
            raise ValueError("the length is another")
        return self


@step(writes=["secret", "length"])
async def both() -> dict[str, object]:
    return {"secret": "abcdef", "length": 6}


@on_loop
async def test_what_the_whole_model_refuses_is_not_put_in_the_place_of_a_value() -> None:
    pair = Workflow("pair", state=Pair, steps=[both])
    async with Engine(":memory:", workflows=[pair]) as engine:
        session = await engine.start(pair, session_id="p1")
        await session.outcome()
        with pytest.raises(StateRefused, match="the length is another"):
            await session.redact(field="secret")
        await session.redact(field="secret", value="xxxxxx")
        assert (await session.state()) == Pair(secret="xxxxxx", length=6)


class Old(BaseModel):
    name: str = ""
    note: str = ""


class New(BaseModel):
    title: str = ""


@step(name="set")
async def set_name() -> None: ...


@pytest.mark.parametrize("text", [SECRET, LARGE], ids=["small", "large"])  # a large value is not written again
@pytest.mark.parametrize("field", ["title", "note"])
@on_loop
async def test_a_field_is_found_under_the_name_that_it_had_before_a_migration(
    tmp_path: Path, field: str, text: str
) -> None:
    @migrate(from_version=1)
    def renamed(state: dict[str, Any]) -> dict[str, Any]:
        return {"title": state["name"]}

    path = tmp_path / "store.db"
    old = Workflow("doc", state=Old, steps=[set_name])
    new = Workflow("doc", state=New, steps=[set_name], version=2, migrations=[renamed])
    async with Engine(path, workflows=[old]) as engine:
        given = Old(name=text) if field == "title" else Old(note=text)
        await engine.start(old, given, session_id="d1", paused=True)
    async with Engine(path, workflows=[new]) as engine:
        session = await engine.session("d1").resume()
        await session.outcome()
        done = await session.redact(field=field)
        assert 1 in done.records
        assert (await session.state()) == New()
        assert (await session.verify()).ok
        assert SECRET.encode() not in bytes_of(path)
