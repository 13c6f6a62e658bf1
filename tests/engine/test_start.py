"""Starting a session: its id, its input, its first step, and its visibility to others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import (
    AlreadyRunning,
    DefinitionError,
    InputConflict,
    InvalidSessionId,
    StateRefused,
    StoreClosed,
    StoreError,
    UnknownSession,
)
from pausepoint.model import SessionId
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, STEPS, Doc, Pipeline, until


@pytest.mark.covers("S1.31", "S4.71")
@on_loop
async def test_the_steps_run_in_the_order_of_the_list_and_each_sees_what_the_ones_before_wrote() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, topic="otters")
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        assert outcome.state == FINISHED
        assert pipeline.calls == list(STEPS)
        assert [(visit.step, visit.visit) for visit in await session.checkpoints(limit=None)] == [
            (name, 1) for name in STEPS
        ]


@pytest.mark.covers("S1.2", "S3.7")
@on_loop
async def test_an_id_is_made_when_none_is_given_and_is_another_each_time() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        ids = [(await engine.start(pipeline.workflow, paused=True)).id for _ in range(50)]
        assert len(set(ids)) == 50
        assert all(ids)


@pytest.mark.covers("S1.26", "S3.6")
@on_loop
async def test_two_starts_without_an_id_are_two_sessions_that_do_not_mix() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        one, two = await asyncio.gather(
            engine.start(pipeline.workflow, topic="otters"), engine.start(pipeline.workflow, topic="squid")
        )
        first, second = await asyncio.gather(one.outcome(), two.outcome())
        assert one.id != two.id
        assert first.state == FINISHED
        assert (second.state.topic, second.state.outline) == ("squid", "outline of squid")
        assert sorted(pipeline.calls) == sorted(STEPS * 2)


@pytest.mark.covers("S1.25")
@on_loop
async def test_the_session_is_stored_and_seen_by_other_processes_before_its_first_step_starts(tmp_path: Path) -> None:
    pipeline = Pipeline()
    seen: list[dict[str, object]] = []

    async def look() -> None:
        sql = "SELECT session_id, current_step, status FROM workflow_states"
        seen.extend(await asyncio.to_thread(outside_sql, tmp_path / "h.db", sql))

    pipeline.acts["outline"] = look
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(pipeline.workflow)
        assert pipeline.calls == []  # the session is stored; its first step has not begun
        assert (await engine.session(session.id).info()).step == "outline"
        await session.outcome()
    assert seen == [{"session_id": session.id, "current_step": "outline", "status": "running"}]


@pytest.mark.covers("S1.28", "S1.54")
@on_loop
async def test_a_start_with_a_known_id_and_the_same_input_goes_on_with_that_session() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1", topic="otters")
        await gate.reached.wait()
        await session.pause()
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED
        again = await engine.start(pipeline.workflow, session_id="memo-1", topic="otters")
        assert again.id == "memo-1"
        assert (await again.outcome()).state == FINISHED
        assert pipeline.calls == list(STEPS)
        assert len(await engine.sessions()) == 1


@pytest.mark.parametrize("how", ["other input", "another workflow", "another starting step"])
@on_loop
async def test_a_start_with_a_known_id_and_other_input_is_a_conflict_and_changes_nothing(how: str) -> None:
    pipeline = Pipeline()
    other = Workflow("other", state=Doc, steps=[_alone])
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1", topic="otters", paused=True)
        before = await session.info()
        workflow = other if how == "another workflow" else pipeline.workflow
        topic = "squid" if how == "other input" else "otters"
        at = "draft" if how == "another starting step" else None
        with pytest.raises(InputConflict, match=r"memo-1.*already exists") as refused:
            await engine.start(workflow, session_id="memo-1", topic=topic, at_step=at)
        assert refused.value.session_id == "memo-1"
        assert await session.info() == before
        assert len(await engine.sessions()) == 1


class Crate(BaseModel):
    things: list[str] = []
    mark: str = Field(default_factory=lambda: uuid4().hex)


@step(writes="things")
def _keep(things: list[str]) -> list[str]:
    return things


@on_loop
async def test_a_default_that_was_filled_in_place_is_input_and_what_a_factory_makes_is_not() -> None:
    crates = Workflow("crates", state=Crate, steps=[_keep])

    def crate(*things: str) -> Crate:
        made = Crate()
        made.things.extend(things)
        return made

    async with Engine(":memory:") as engine:
        await engine.start(crates, crate("rope"), session_id="one", paused=True)
        with pytest.raises(InputConflict):
            await engine.start(crates, crate("sail"), session_id="one")
        again = await engine.start(crates, crate("rope"), session_id="one")
        assert (await again.outcome()).state.things == ["rope"]


@step(writes="outline")
async def _alone(topic: str) -> str:
    return topic


@pytest.mark.covers("S1.29")
@on_loop
async def test_a_resume_of_an_unknown_id_says_so_and_opens_no_session() -> None:
    async with Engine(":memory:", workflows=[Pipeline().workflow]) as engine:
        with pytest.raises(UnknownSession, match="no session 'nobody'") as refused:
            await engine.session("nobody").resume()
        assert refused.value.session_id == "nobody"
        assert await engine.sessions() == []


@on_loop
async def test_a_start_with_an_unknown_id_creates_the_session_under_that_very_id() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Pipeline().workflow, session_id="student-7")
        assert session.id == "student-7"
        assert (await session.outcome()).session_id == "student-7"


@pytest.mark.covers("S3.13")
@pytest.mark.parametrize("bad", ["../x", "/", "a/b", "..", "a..b", "", " ", "a\\b", "a\0b", ".hidden", "é", "x" * 129])
@on_loop
async def test_an_id_that_could_leave_the_sessions_folder_is_refused_by_every_verb(bad: str) -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        for verb in (
            engine.start(pipeline.workflow, session_id=bad),
            engine.session(bad).resume(),
            engine.session(bad).pause(),
            engine.session(bad).cancel(),
            engine.session(bad).info(),
        ):
            with pytest.raises(InvalidSessionId, match="is not a valid session id"):
                await verb
        assert await engine.sessions() == []


@pytest.mark.covers("S3.12")
@on_loop
async def test_every_step_can_have_the_id_of_its_session_and_a_verb_without_one_is_refused() -> None:
    seen: list[str] = []

    @step
    async def by_handle(ctx: Context) -> None:
        seen.append(ctx.session_id)

    @step
    async def by_type(which: SessionId) -> None:
        seen.append(which)

    workflow = Workflow("ids", state=Doc, steps=[by_handle, by_type])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        await session.outcome()
        assert seen == [session.id, session.id]
        with pytest.raises(InvalidSessionId):
            await engine.session("").resume()


@pytest.mark.covers("S4.64", "S4.65")
@pytest.mark.parametrize("at", STEPS)
@on_loop
async def test_a_session_can_begin_at_a_later_step_and_the_earlier_ones_are_recorded_as_skipped(at: str) -> None:
    pipeline = Pipeline()
    position = STEPS.index(at)
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, until(at), at_step=at)
        outcome = await session.outcome()
        assert pipeline.calls == list(STEPS[position:])
        assert outcome.state == FINISHED
        visits = await session.checkpoints(limit=None)
        assert [visit.step for visit in visits] == list(STEPS)
        assert [visit.skipped for visit in visits] == [f"started at {at}"] * position + [""] * (4 - position)


@pytest.mark.covers("S4.66")
@on_loop
async def test_an_unknown_starting_step_is_an_error_with_the_nearest_name_and_stores_nothing() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        with pytest.raises(DefinitionError, match=r"no step 'verdit'\. Did you mean 'verdict'"):
            await engine.start(pipeline.workflow, at_step="verdit")
        assert await engine.sessions() == []
    assert pipeline.calls == []


class Strict(BaseModel):
    count: int


@step(writes="count")
async def bump(count: int) -> int:
    return count + 1


strict = Workflow("strict", state=Strict, steps=[bump])


@pytest.mark.parametrize(
    ("given", "field"), [({}, "count"), ({"count": "many"}, "count"), ({"count": 1, "cuont": 2}, "cuont")]
)
@on_loop
async def test_input_that_the_model_refuses_names_the_field_and_stores_nothing(
    given: dict[str, Any], field: str
) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(StateRefused) as refused:
            await engine.start(strict, **given)
        assert refused.value.field == field
        assert field in str(refused.value)
        assert await engine.sessions() == []


@on_loop
async def test_the_state_is_given_as_a_model_or_as_fields_but_not_both() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(TypeError, match="not both"):
            await engine.start(strict, Strict(count=1), count=2)
        with pytest.raises(StateRefused, match="takes a Strict, not a Doc"):
            await engine.start(strict, cast(Any, Doc()))


@pytest.mark.covers("S1.11", "S3.11", "S1.4")
@on_loop
async def test_a_new_session_that_nobody_has_driven_is_created_stands_before_its_first_step_and_asks_for_no_pause(
    tmp_path: Path,
) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        outside_sql(tmp_path / "h.db", "UPDATE sessions SET pause_requested = 0")
        info = await session.info()
        assert info.status is Status.CREATED
        assert (info.step, info.visit, info.pause_requested) == ("outline", 1, False)
        assert await session.checkpoints(limit=None) == []
        running = await engine.start(pipeline.workflow)
        assert (await running.info()).pause_requested is False
        await running.outcome()


@pytest.mark.covers("S1.62", "S3.86")
@on_loop
async def test_a_second_start_of_a_running_session_is_told_who_runs_it() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1")
        await gate.reached.wait()
        with pytest.raises(AlreadyRunning, match=r"driven by this engine \(process \d+ on") as refused:
            await engine.start(pipeline.workflow, session_id="memo-1")
        assert "process" in refused.value.holder
        gate.opened.set()
        assert (await session.outcome()).state == FINISHED
        assert pipeline.calls == list(STEPS)


@on_loop
async def test_an_engine_that_is_not_open_refuses_every_verb() -> None:
    engine = Engine(":memory:")
    with pytest.raises(StoreClosed, match="not open"):
        await engine.start(strict, count=1)
    async with engine:
        session = await engine.start(strict, count=1)
        await session.outcome()
    with pytest.raises(StoreClosed, match="not open"):
        await session.status()
    await engine.close()  # closing twice is not an error


def test_a_url_that_names_no_store_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(StoreError, match=r"sqlite:///path/to/file\.db"):
        Engine("mongodb://localhost/x")


@on_loop
async def test_all_ways_to_name_a_sqlite_file_mean_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "h.db"
    for url in (path, str(path), f"sqlite:///{path}"):
        async with Engine(url, workflows=[strict]) as engine:
            session = await engine.start(strict, session_id="one", count=1)
            assert (await session.outcome()).state.count == 2


@on_loop
async def test_a_workflow_that_a_cell_defines_again_replaces_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def defined_by_a_cell() -> Pipeline:
        pipeline = Pipeline()
        monkeypatch.setattr(sys.modules["__main__"], "pipeline", pipeline.workflow, raising=False)
        return pipeline

    former = defined_by_a_cell()
    async with Engine(":memory:", workflows=[former.workflow]) as engine:
        new = defined_by_a_cell()
        assert (await (await engine.start(new.workflow)).outcome()).status == "completed"
        assert (former.calls, bool(new.calls)) == ([], True)
        with pytest.raises(DefinitionError, match="Rename one"):  # no variable has it
            await engine.start(Pipeline().workflow)


@on_loop
async def test_one_engine_refuses_two_workflows_of_one_name() -> None:
    with pytest.raises(DefinitionError, match="Two different workflows are named 'pipeline'"):
        Engine(":memory:", workflows=[Pipeline().workflow, Pipeline().workflow])
    async with Engine(":memory:", workflows=[Pipeline().workflow]) as engine:
        with pytest.raises(DefinitionError, match="Rename one"):
            await engine.start(Pipeline().workflow)


@on_loop
async def test_sessions_are_listed_newest_first_and_by_workflow_owner_tag_and_status() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        one = await engine.start(pipeline.workflow, owner="ann", tags=["red"], paused=True)
        two = await engine.start(pipeline.workflow, owner="bob", tags=["red", "blue"])
        three = await engine.start(strict, count=1)
        await asyncio.gather(two.outcome(), three.outcome())
        found = [info.session_id for info in await engine.sessions()]
        assert found == [three.id, two.id, one.id]
        assert [i.session_id for i in await engine.sessions(workflow="strict")] == [three.id]
        assert [i.session_id for i in await engine.sessions(owner="ann")] == [one.id]
        assert [i.session_id for i in await engine.sessions(tag="red")] == [two.id, one.id]
        assert [i.session_id for i in await engine.sessions(status="paused")] == [one.id]
        assert [i.session_id for i in await engine.sessions(limit=2)] == [three.id, two.id]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"tags": ["\ud800"]}, ValueError, "tag must be a string"),
        ({"tags": [1]}, TypeError, "A tag must be a string, not int"),
        ({"keep_for": 3}, TypeError, "keep_for must be a timedelta"),
    ],
)
@on_loop
async def test_an_option_that_cannot_be_stored_is_named(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(error, match=said):
            await engine.start(Pipeline().workflow, **options)
        assert await engine.sessions() == []


@pytest.mark.parametrize("url", [None, 3])
def test_what_is_no_store_is_refused_when_the_engine_is_made(url: Any) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        Engine(url)
