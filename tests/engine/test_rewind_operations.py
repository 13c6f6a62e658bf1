"""Rewinds and forks to an operation inside a visit, and what the visit still remembers then."""

import asyncio
from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status, Workflow, step, workflow
from pausepoint.engine.conversation import conversation
from pausepoint.engine.spans import operation, operations
from pausepoint.errors import UnknownOperation, VerbRefused
from tests.engine.essay import events
from tests.engine.forgetful import AFTER, CALLS, REPLIES, agent, failed, finished, number_of, use
from tests.support.loop import on_loop
from tests.support.postgres import schema_of


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    REPLIES.clear()


@on_loop
async def test_a_forgotten_reply_is_asked_for_again_and_what_came_before_is_kept(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await failed(engine)
        row = await engine.store.get("one")
        assert row is not None
        before = await engine.store.records(row.key, 1)
        assert await session.forget("think", by="ann", reason="it is nonsense") is Status.READY
        assert await finished(session) == AFTER
        assert (await engine.store.records(row.key, 1))[: len(before)] == before
        assert (await session.verify()).ok
        assert (await session.info()).spent_usd == 5  # the bad reply stays paid
        (rewound,) = await events(session, "session.rewound")
        assert rewound.summary == "rewound by ann to before think in agent#1 (it is nonsense)"
        assert rewound.data["operation"].startswith("/think~")
        assert rewound.data["to"] == "agent#1"


@pytest.mark.parametrize("way", ["name", "number", "id", "forget", "forget number"])
@on_loop
async def test_an_operation_has_several_names(way: str) -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        third = next(each for each in await operations(engine, "one") if each.result == "tool 1")
        match way:
            case "name":
                await session.rewind(to_operation="think#2")
            case "number":
                await session.rewind(to_operation=third.seq)
            case "id":
                await session.rewind(to_operation=third.id)
            case "forget":
                await session.forget("think", 2)
            case _:
                await session.forget(third.seq)
        assert await finished(session) == ["think 1", "use tool 1", *AFTER]


@on_loop
async def test_a_completed_session_goes_back_into_its_function() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(agent, turns=4, session_id="one")
        first = (await session.outcome()).result
        await session.rewind(to_operation="use#3")
        assert await finished(session) == ["use tool 2", "think 3", "use tool 3"]
        second = (await session.outcome()).result
        assert first[:6] == second[:6]
        assert first[6] != second[6]  # a new idempotency key: for outside services it is a new attempt
        assert [each.left_behind for each in await session.checkpoints()] == [True, False]


@on_loop
async def test_what_the_function_emits_again_is_only_what_came_after() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        await session.forget("think", 2)
        await finished(session)
        assert len(await events(session, "agent.began")) == 1
        turns = [event.summary for event in await events(session, "agent.replied")]
        assert turns == ["0", "1", "2", "1", "2", "3"]


@on_loop
async def test_rewinds_inside_one_visit_follow_one_another() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        kept = await number_of(engine, "think", 2)
        await session.forget("think")
        await finished(session)
        await session.rewind(to_operation="think#4")
        assert await finished(session) == ["think 3", "use tool 3"]
        await session.rewind(to_operation=kept)  # its record is on the line that was left behind, its result is not
        assert await finished(session) == ["think 1", "use tool 1", *AFTER]
        await session.rewind(to_operation="use#1")
        assert await finished(session) == ["use tool 0", "think 1", "use tool 1", *AFTER]
        assert (await session.verify()).ok


@on_loop
async def test_a_number_on_a_line_that_was_left_behind_brings_it_back() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(agent, turns=4, session_id="one")
        first = (await session.outcome()).result
        last = await number_of(engine, "think", 4)
        await session.forget("think", 2)
        assert len(await finished(session)) == 6
        await session.rewind(to_operation=last)
        assert await finished(session) == ["think 3", "use tool 3"]
        assert (await session.outcome()).result[:7] == first[:7]


@on_loop
async def test_edits_made_in_the_visit_stay() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        await session.edit(turns=3)
        await session.forget("think")
        assert await finished(session) == AFTER[:2]


@on_loop
async def test_a_rewind_changes_the_state_too() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        await session.rewind(to_operation="think", turns=3)
        assert await finished(session) == AFTER[:2]


@on_loop
async def test_what_ran_beside_a_forgotten_operation_is_kept() -> None:
    ran: list[str] = []
    done = asyncio.Event()

    async def quick() -> str:
        ran.append("quick")
        await asyncio.sleep(0.2)
        return "quick"

    async def slow() -> str:
        ran.append("slow")
        await done.wait()
        return "slow"

    async def after(text: str) -> str:
        ran.append(f"after {text}")
        done.set()
        return text

    @workflow
    async def both(ctx: Context) -> str:
        async def chain() -> str:
            return await ctx.do(after, await ctx.do(quick))

        return "".join(await asyncio.gather(chain(), ctx.do(slow)))

    async with Engine(":memory:") as engine:
        session = await engine.start(both, session_id="one")
        assert (await session.outcome()).result == "quickslow"
        ran.clear()
        await session.forget("quick")
        await finished(session)
        assert ran == ["quick", "after quick"]


@on_loop
async def test_the_operation_around_a_forgotten_one_runs_again_with_what_it_remembers() -> None:
    ran: list[str] = []

    async def part(n: int) -> int:
        ran.append(f"part {n}")
        return n

    async def whole(ctx: Context) -> int:
        ran.append("whole")
        return sum([await ctx.do(part, n) for n in range(3)])

    @workflow
    async def nested(ctx: Context) -> int:
        first = await ctx.do(part, 7)
        return first + await ctx.do(whole)

    async with Engine(":memory:") as engine:
        session = await engine.start(nested, session_id="one")
        assert (await session.outcome()).result == 10
        ran.clear()
        await session.forget("part", 3)  # the second one inside
        await finished(session)
        assert ran == ["whole", "part 1", "part 2"]
        ran.clear()
        await session.forget("whole")
        await finished(session)
        assert ran == ["whole", "part 0", "part 1", "part 2"]


@on_loop
async def test_an_item_of_a_map_is_forgotten() -> None:
    ran: list[int] = []

    async def draft(n: int) -> int:
        ran.append(n)
        return n

    @workflow
    async def many(ctx: Context) -> list[int]:
        return await ctx.map(draft, [1, 2, 3, 4], concurrency=1)

    async with Engine(":memory:") as engine:
        session = await engine.start(many, session_id="one")
        assert (await session.outcome()).result == [1, 2, 3, 4]
        ran.clear()
        await session.forget("draft", 3)
        await finished(session)
        assert ran == [3, 4]


@on_loop
async def test_questions_after_the_operation_are_asked_again_and_those_before_are_not() -> None:
    @workflow
    async def asks(ctx: Context) -> list[str]:
        first = await ctx.ask("First?", key="first")
        reply = await ctx.do(use, first)
        return [reply, await ctx.ask("Second?", key="second")]

    async with Engine(":memory:") as engine:
        session = await engine.start(asks, session_id="one")
        for text in ("a", "b"):
            await session.outcome()
            await session.answer(text)
        assert (await session.outcome()).status is Status.COMPLETED
        await session.forget("use")
        await session.resume()
        assert (await session.outcome()).status is Status.WAITING
        (question,) = await session.questions()
        assert question.next_question == "Second?"
        await session.answer("c")
        assert (await session.outcome()).result[1] == "c"


@on_loop
async def test_an_open_question_is_withdrawn() -> None:
    @workflow
    async def asks(ctx: Context) -> str:
        return await ctx.ask(await ctx.do(use, "x"))

    async with Engine(":memory:") as engine:
        session = await engine.start(asks, session_id="one")
        await session.outcome()
        await session.forget("use")
        assert not await session.questions()
        await session.resume()
        await session.outcome()
        assert len(await session.questions()) == 1


@on_loop
async def test_the_list_and_the_spans_tell_what_no_longer_counts() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        await session.forget("think", 2)
        rows = await operations(engine, "one")
        assert [each.left_behind for each in rows] == [False, False, True, True, True]
        undone, open_ = await session.spans()
        assert (undone.left_behind, [part.name for part in undone.operations]) == (True, ["think", "use", "think"])
        assert (open_.left_behind, [part.name for part in open_.operations]) == (False, ["think", "use"])
        await finished(session)
        await session.forget("use", 4)
        rows = await operations(engine, "one")
        assert [each.left_behind for each in rows] == [False, False, True, True, True, *[False] * 5, True]
        last = await operation(engine, "one", rows[-1].id)
        assert (last.seq, last.left_behind) == (rows[-1].seq, True)


@on_loop
async def test_the_conversation_tells_which_turns_no_longer_count() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        await session.forget("think")
        turns = [turn for turn in await conversation(engine, "one") if turn.name in ("think", "use") and turn.operation]
        assert [turn.left_behind for turn in turns] == [False] * 4 + [True]


@pytest.mark.long
@on_loop
async def test_postgres_rewinds_inside_a_visit_too() -> None:
    with schema_of() as url:
        await rewind_inside_a_visit(url)


async def rewind_inside_a_visit(url: str) -> None:
    async with Engine(url) as engine:
        session = await failed(engine)
        await session.forget("think", 2)
        copy = await session.fork(at_operation="use", session_id="two")
        assert (await copy.outcome()).status is Status.COMPLETED
        assert await finished(session) == ["think 1", "use tool 1", *AFTER]
        await session.rewind(to_operation="think#3", result="tool of ann")
        assert await finished(session) == ["use tool of ann", "think 3", "use tool 3"]
        await session.redact(seq=(await operations(engine, "one"))[0].seq)
        assert (await engine.verify()).ok


@on_loop
async def test_the_plan_tells_what_would_run_again() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        info = await session.info()
        plan = await session.plan_rewind(to_operation="think#2")
        rows = [(each.operation, each.verdict, each.count) for each in plan.operations]
        assert rows == [
            ("think", "done", 1), ("use", "done", 1), ("think", "runs again", 2), ("use", "runs again", 1),
        ]  # fmt: skip
        assert (await session.info()).seq == info.seq
        assert [each.operation for each in (await session.plan_fork(at_operation="think#2")).operations] == [
            each[0] for each in rows
        ]


@on_loop
async def test_a_fork_begins_before_an_operation(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await failed(engine)
        CALLS.clear()
        copy = await session.fork(at_operation="think", session_id="two")
        assert (await copy.outcome()).status is Status.COMPLETED
        assert CALLS == AFTER
        origin = await copy.origin()
        assert origin is not None
        assert origin.at_operation.startswith("/think~")
        assert (await session.info()).status is Status.FAILED
        await copy.forget("think", 2)  # the fork has no record of it, but its result
        assert await finished(copy) == ["think 1", "use tool 1", *AFTER]
        same = await session.fork(at_operation="think", session_id="two")
        assert same.id == "two"


@pytest.mark.long
@on_loop
async def test_an_exported_session_is_rewound_elsewhere(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await failed(engine)
        await session.forget("think", 2)
        await session.export(tmp_path / "one.bundle")
    async with Engine(tmp_path / "other.db", workflows=[agent]) as engine:
        await engine.import_session(tmp_path / "one.bundle")
        session = engine.session("one")
        assert await finished(session) == ["think 1", "use tool 1", *AFTER]
        await session.forget("use", 1)
        assert (await finished(session))[0] == "use tool 0"


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ("thnk", "has no operation 'thnk' that has ended. Did you mean 'think'?"),
        ("think#9", "has no operation 'think#9': think has ended 3 times in agent#1."),
        ("/think~0000#1", "has no operation '/think~0000#1' that has ended. Did you mean 'think'?"),
        (1, "has record 1, but it is not an operation that has ended. Nearby operations: "),
        (99, "has no record 99. Its log has the records 1 to "),
    ],
)
@on_loop
async def test_an_unknown_operation_is_refused(operation: int | str, text: str) -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        seq = (await session.info()).seq
        for verb in (session.forget, lambda operation: session.fork(at_operation=operation)):
            with pytest.raises(UnknownOperation) as error:
                await verb(operation)
            assert text in str(error.value)
            assert "List them with `pausepoint show one --operations`." in str(error.value)
        assert (await session.info()).seq == seq


@on_loop
async def test_an_operation_that_a_rewind_has_undone_is_named_by_its_number() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        first = await number_of(engine, "think", 1)
        await session.forget("think", 1)
        with pytest.raises(UnknownOperation, match=r"a rewind has undone it\. Name it by the number of its record"):
            await session.forget("use")
        await session.rewind(to_operation=first + 1)
        assert (await finished(session))[0] == "use tool 0"


@on_loop
async def test_one_place_is_needed() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        for call in (session.rewind(), session.rewind("agent", to_operation="think"), session.forget("")):
            with pytest.raises(TypeError, match="operation"):
                await call
        with pytest.raises(TypeError, match="at_operation"):
            await session.fork("agent", at_operation="think")


@on_loop
async def test_a_session_that_runs_is_refused() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        await end.wait()

    @workflow
    async def long(ctx: Context) -> None:
        await ctx.do(use, "x")
        await ctx.do(waits)

    async with Engine(":memory:") as engine:
        session = await engine.start(long, session_id="one")
        await begun.wait()
        with pytest.raises(VerbRefused, match="Pause it"):
            await session.forget("use")
        end.set()
        await session.outcome()


@on_loop
async def test_an_operation_of_an_earlier_step_is_on_the_present_line() -> None:
    ran: list[str] = []

    async def look_up(topic: str) -> str:
        ran.append(f"look up {topic}")
        return topic

    @step(writes="found")
    async def research(ctx: Context) -> str:
        return await ctx.do(look_up, "squid") + await ctx.do(look_up, "ink")

    @step(writes="text")
    async def write(found: str, ctx: Context) -> str:
        return await ctx.do(look_up, found)

    from pydantic import BaseModel

    class Memo(BaseModel):
        found: str = ""
        text: str = ""

    memo = Workflow("memo", state=Memo, steps=[research, write])
    async with Engine(":memory:") as engine:
        session = await engine.start(memo, session_id="one")
        await session.outcome()
        ran.clear()
        ids = [each.id for each in await operations(engine, "one")]
        await session.rewind(to_operation=ids[1])
        await finished(session)
        assert ran == ["look up ink", "look up squidink"]
