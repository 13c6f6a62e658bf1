"""Rewinds: which steps run again, what remains readable, and what a visit remembers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, route, step
from pausepoint.errors import Redacted, UnknownCheckpoint
from tests.engine.essay import COLLECTING, COUNTING, WHOLE, Count, Desk, Middle, again, essay_of, events
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, STEPS, Pipeline, until

# rewinding


@pytest.mark.covers("S4.83")
@pytest.mark.parametrize("name", STEPS)
@on_loop
async def test_a_step_and_all_after_it_are_redone_and_those_before_are_not(name: str, tmp_path: Path) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(pipeline.workflow, session_id="one")
        await session.outcome()
        pipeline.calls.clear()
        assert await session.rewind(name) is Status.READY
        assert await session.state() == until(name)
    async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
        session = engine.session("one")
        outcome = await again(session)
        assert pipeline.calls == list(STEPS[STEPS.index(name) :])
        assert outcome.state == FINISHED
        assert outcome.skipped_visits == STEPS.index(name)


@pytest.mark.parametrize("to", ["write#2", "review#1", "write", "finish"])
@on_loop
async def test_a_rewind_works_inside_a_loop(to: str) -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        whole = await session.state()
        await session.rewind(to)
        outcome = await again(session)
        first = "write#3" if to == "write" else to
        assert desk.calls == WHOLE[WHOLE.index(first) :]
        assert outcome.state == whole
        assert outcome.spent_usd == 3 + sum(call.startswith("write") for call in desk.calls)  # never refunded


@on_loop
async def test_nothing_is_deleted_and_the_old_line_stays_readable() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        row = await engine.store.get("one")
        assert row is not None
        before, states = await engine.store.records(row.key, 1), {}
        for each in await session.checkpoints():
            states[each.seq] = await session.state(at_checkpoint=each.seq)
        await session.edit(wanted=2)
        await session.rewind("review#2", by="ann", reason="enough")
        await again(session)
        assert (await engine.store.records(row.key, 1))[: len(before)] == before
        for seq, state in states.items():
            assert await session.state(at_checkpoint=seq) == state
        listed = await session.checkpoints()
        assert [each.name for each in listed if each.left_behind] == [*WHOLE[4:7], "finish#1"]
        present = [each.name for each in listed if not each.left_behind]
        assert present == ["research#1", *WHOLE[1:7], "finish#1"]
        assert (await session.state(at_checkpoint="write#3")).rounds == 2  # the visit of the current line
        (rewound,) = await events(session, "session.rewound")
        assert rewound.data == {
            "to": "review#2", "seq": listed[3].seq, "reuse": False, "by": "ann", "reason": "enough",
        }  # fmt: skip


@on_loop
async def test_the_state_at_a_rewind_is_where_it_led_to() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        last = (await session.info(), (await session.checkpoints())[-1].seq)[1]
        await session.rewind("write#2")
        there = await session.state()
        assert (there.rounds, there.draft) == (1, "squid, draft 1")
        assert await session.state(at_checkpoint=last + 1) == there == await session.state(at_checkpoint=last + 2)
        await again(session)
        assert await session.state(at_checkpoint=last + 1) == there


@on_loop
async def test_a_rewind_to_a_line_that_was_left_behind_brings_it_back() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        old = {each.name: each.seq for each in await session.checkpoints()}
        await session.rewind("research")
        await session.edit(topic="ink")
        assert (await again(session)).state.final == "INK, DRAFT 3"
        await session.rewind(old["finish#1"])
        desk.calls.clear()
        assert (await again(session)).state.final == "SQUID, DRAFT 3"
        assert desk.calls == ["finish"]
        listed = await session.checkpoints()
        present = [each.name for each in listed if not each.left_behind]
        assert present == [*(each.name for each in listed[:7]), "finish#1"]
        assert [each.seq for each in listed if not each.left_behind][:7] == list(old.values())[:7]
        assert (await session.state(at_checkpoint="write#2")).topic == "squid"


@pytest.mark.long
@on_loop
async def test_rewinds_over_many_key_frames_find_every_visit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING)
        await session.outcome()
        for to in (650, 400, 100, 300):
            await session.rewind(f"count#{to}")
            assert (await session.state()).n == to - 1
            await again(session)
        for visit in (1, 99, 100, 101, 299, 300, 301, 512, 700):
            state = await session.state(at_checkpoint=f"count#{visit}")
            assert (state.n, len(state.items)) == (visit, visit)
        listed = await session.checkpoints(limit=None)
        assert Counter(each.visit for each in listed if not each.left_behind) == Counter(range(1, 701))
        assert len(listed) == 700 + 51 + 301 + 601 + 401


# what a visit remembers


class Batchwise(BaseModel):
    items: list[int] = [0, 1, 2, 3, 4, 5]
    keys: list[str] = []
    done: list[int] = []


class Fan:
    """A fan-out in which some items fail at first, next to an operation."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bad = {1, 4}

        async def work(item: int) -> int:
            self.calls.append(f"work {item}")
            if item in self.bad:
                raise RuntimeError(f"item {item}")
            return item * 10

        async def prepare() -> str:
            self.calls.append("prepare")
            return "ready"

        @step(writes=["done", "keys"])
        async def spread(items: list[int], keys: list[str], ctx: Context) -> dict[str, Any]:
            await ctx.do(prepare)
            ctx.spend(usd=1)
            batch = await ctx.map(work, items, on_error="collect")
            ctx.spend(usd=2)
            return {"done": sorted(batch.done.values()), "keys": [*keys, ctx.idempotency_key]}

        @step
        async def after(done: list[int]) -> None:
            self.calls.append("after")

        self.workflow = Workflow("fan", state=Batchwise, steps=[spread, after])


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_a_fan_out_is_redone_as_a_whole_or_only_what_failed(keep: bool, tmp_path: Path) -> None:
    fan = Fan()
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(fan.workflow, session_id="one")
        first = await session.outcome()
        assert (first.state.done, first.spent_usd) == ([0, 20, 30, 50], 3)
        await session.rewind("spread", reuse=keep)
        fan.calls.clear()
        fan.bad.clear()
    async with Engine(tmp_path / "h.db", workflows=[fan.workflow]) as engine:
        session = engine.session("one")
        outcome = await again(session)
        assert outcome.state.done == [0, 10, 20, 30, 40, 50]
        failed = ["work 1", "work 4"]
        everything = ["prepare", *(f"work {item}" for item in range(6))]
        assert sorted(fan.calls[:-1]) == (failed if keep else everything)
        assert fan.calls[-1] == "after"
        assert outcome.spent_usd == (3 if keep else 6)  # reused work was already paid for


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_outside_services_get_another_key_after_a_rewind(keep: bool) -> None:
    async with Engine(":memory:") as engine:
        fan = Fan()
        session = await engine.start(fan.workflow)
        first = (await session.outcome()).state.keys
        await session.rewind("spread", reuse=keep)
        second = (await again(session)).state.keys
        assert len({*first, *second}) == 2


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_the_open_visit_can_be_redone(keep: bool) -> None:
    async with Engine(":memory:") as engine:
        middle = Middle(None)
        session = await middle.failed(engine)
        assert await session.rewind("work", reuse=keep) is Status.READY
        assert (await again(session)).state.result == "OLD"
        assert middle.calls == ["shout old"] * (1 if keep else 2)


@on_loop
async def test_a_visit_that_has_left_no_trace_is_not_the_last_one() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        await session.rewind("write#2")
        await session.rewind("write")  # the session is before write#2, which has not begun
        assert (await session.info()).visit == 1
        await session.rewind("write#1")
        assert (await session.info()).visit == 1
        assert (await again(session)).state.rounds == 3


@on_loop
async def test_a_visit_that_failed_and_was_edited_for_is_the_last_one() -> None:
    class Tries(BaseModel):
        n: int = 0
        good: bool = False

    @step(writes="n")
    async def attempt(n: int, good: bool) -> int:
        if n == 2 and not good:
            raise RuntimeError("not yet")
        return n + 1

    @route(after="attempt")
    def once_more(n: int) -> Literal["attempt", None]:
        return "attempt" if n < 4 else None

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("tries", state=Tries, steps=[attempt], routes=[once_more]))
        assert (await session.outcome()).status is Status.FAILED
        await session.edit(good=True)
        await session.rewind("attempt")
        assert ((await session.info()).visit, (await session.state()).good) == (3, True)
        assert (await again(session)).state.n == 4


@on_loop
async def test_what_was_redacted_does_not_hide_what_came_later() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, target=5, ballast="secret")
        await session.outcome()
        await session.redact(field="ballast", value="hidden")
        await session.edit(target=8)
        await again(session)
        assert (await session.state(at_checkpoint="count#7")).n == 7
        assert await session.rewind("count#7") is Status.READY
        for verb in (session.state, session.diff, session.rewind):
            with pytest.raises((Redacted, UnknownCheckpoint), match="redacted"):
                await verb("count#2")
        assert len(await session.checkpoints()) == 8
        last = (await session.checkpoints())[-1]
        await session.redact(seq=last.seq)
        hidden = (await session.checkpoints())[-1]
        assert (hidden.name, hidden.redacted, hidden.fields) == (last.name, True, ())


@on_loop
async def test_a_kept_journal_survives_another_rewind_and_a_fork() -> None:
    async with Engine(":memory:") as engine:
        fan = Fan()
        session = await engine.start(fan.workflow)
        await session.outcome()
        await session.rewind("spread", reuse=True)
        await session.rewind("spread", reuse=True)
        copy = await session.fork(reuse=True, paused=True)
        fan.bad.clear()
        for each in (session, copy):
            fan.calls.clear()
            assert (await again(each)).state.done == [0, 10, 20, 30, 40, 50]
            assert sorted(fan.calls) == ["after", "work 1", "work 4"]


@on_loop
async def test_a_key_for_outside_services_is_the_same_after_a_crash_behind_a_key_frame(tmp_path: Path) -> None:
    keys: list[str] = []

    @step(writes="n")
    async def tick(n: int, ctx: Context) -> int:
        if n == 600:
            keys.append(ctx.idempotency_key)
            await ctx.safe_point()
            if len(keys) == 1:
                raise RuntimeError("here")
        return n + 1

    @route(after="tick")
    def tick_on(n: int) -> Literal["tick", None]:
        return "tick" if n < 602 else None

    workflow = Workflow("tick", state=Count, steps=[tick], routes=[tick_on])
    for start in range(600 - 260, 600):  # one of these sessions has a key frame exactly at the boundary
        keys.clear()
        async with Engine(":memory:") as engine:
            session = await engine.start(workflow, n=start)
            await session.outcome()
            row = await engine.store.get(session.id)
            assert row is not None
            if row.key_frame + 1 != row.seq:
                continue
            await again(session)
            assert keys == [keys[0]] * 2
            return
    raise AssertionError("no session had a key frame right before its failure")


@on_loop
async def test_pauses_of_the_place_are_closed_and_those_of_the_session_stay() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, source="a book")
        await session.outcome()
        await session.pause("lunch", by="ann")
        assert {pause.kind for pause in await session.pauses()} == {"operator", "guard"}
        assert await session.rewind("collect") is Status.PAUSED
        assert [pause.kind for pause in await session.pauses()] == ["operator"]


@on_loop
async def test_a_budget_stays_used_up_after_a_rewind() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await engine.start(desk.workflow, topic="squid", budget=1.5)
        assert [pause.kind for pause in (await session.outcome()).pauses] == ["budget"]
        assert await session.rewind("research") is Status.PAUSED
        assert [pause.kind for pause in await session.pauses()] == ["budget"]
        await session.resume(budget=100)
        outcome = await session.outcome()
        assert (outcome.status, outcome.spent_usd) == (Status.COMPLETED, 5)


@on_loop
async def test_children_that_have_not_ended_are_cancelled_by_a_rewind() -> None:
    class Wait(BaseModel):
        heard: str = ""

    @step(writes="heard")
    async def listen(ctx: Context) -> str:
        return await ctx.receive()

    listening = Workflow("listening", state=Wait, steps=[listen])

    @step(writes="heard")
    async def ask_child(ctx: Context) -> str:
        return (await ctx.call(listening)).heard

    async with Engine(":memory:", workflows=[listening]) as engine:
        session = await engine.start(Workflow("asking", state=Wait, steps=[ask_child]))
        await session.outcome()
        (first,) = await session.children()
        assert first.status is Status.WAITING
        await session.rewind("ask_child")
        assert [child.status for child in await session.children()] == [Status.CANCELLED]
        await session.resume()
        await session.outcome()
        second = next(child for child in await session.children() if child.status is Status.WAITING)
        assert second.session_id != first.session_id
        await engine.session(second.session_id).send("hello")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.heard) == (Status.COMPLETED, "hello")


# forking


@on_loop
async def test_a_rewind_to_before_a_migration_is_migrated_again(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(essay_of(1), session_id="one")
        await session.outcome()
        await session.rewind("check")
    async with Engine(tmp_path / "h.db", workflows=[essay_of(2)]) as engine:
        session = engine.session("one")
        assert (await again(session)).state.text == "old squid"
        first = (await session.checkpoints())[0]
        assert (first.step, first.version) == ("old_write", 1)
        await session.rewind(first.seq)
        assert (await session.info()).version == 1
        assert (await again(session)).state.text == "new squid"
        assert (await session.info()).version == 2
        across = {each.path: each.kind for each in await session.diff(1)}
        assert across == {"topic": "removed", "text": "changed", "subject": "added"}
