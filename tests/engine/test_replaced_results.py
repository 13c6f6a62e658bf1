"""A person replaces the result of an operation, and a redaction finds every copy of one."""

from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, Status, workflow
from pausepoint.engine.spans import operations
from pausepoint.errors import StateRefused, VerbRefused
from tests.engine.essay import events
from tests.engine.forgetful import AFTER, CALLS, REPLIES, agent, failed, finished, use
from tests.support.loop import on_loop


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    REPLIES.clear()


@on_loop
async def test_a_result_is_replaced_and_the_operation_does_not_run_again(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await failed(engine)
        plan = await session.plan_rewind(to_operation="think", result="tool of ann")
        assert [(each.operation, each.verdict, each.count) for each in plan.operations] == [
            ("think", "done", 3), ("use", "done", 2),
        ]  # fmt: skip
        assert await session.rewind(to_operation="think", result="tool of ann", by="ann") is Status.READY
        (rewound,) = await events(session, "session.rewound")
        assert rewound.summary == "rewound by ann to before think in agent#1, whose result is replaced"
        assert await finished(session) == ["use tool of ann", "think 3", "use tool 3"]
        rows = [(each.name, each.result, each.left_behind) for each in await operations(engine, "one")]
        assert rows[4:6] == [("think", "nonsense", True), ("think", "tool of ann", False)]
        assert (await session.verify()).ok
        await session.export(tmp_path / "one.bundle")
    async with Engine(tmp_path / "other.db", workflows=[agent]) as engine:
        await engine.import_session(tmp_path / "one.bundle")
        await engine.session("one").forget("think", 4)
        assert await finished(engine.session("one")) == ["think 3", "use tool 3"]
        assert (await engine.verify()).ok


@on_loop
async def test_a_replaced_result_is_of_the_type_of_its_function(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        seq = (await session.info()).seq
        with pytest.raises(StateRefused, match="think"):
            await session.rewind(to_operation="think", result=7)
        with pytest.raises(StateRefused, match="think"):
            await session.plan_rewind(to_operation="think", result=7)
        with pytest.raises(TypeError, match="to_operation"):
            await session.rewind("agent", result=7)
        assert (await session.info()).seq == seq
        assert not [each for each in caplog.messages if "without a check" in each]


@on_loop
async def test_a_result_of_an_unknown_type_is_replaced_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def untyped():  # type: ignore[no-untyped-def]
        return 1

    @workflow
    async def asks(ctx: Context) -> list[Any]:
        return [await ctx.do(untyped), await ctx.ask("Go?")]

    async with Engine(":memory:") as engine:
        session = await engine.start(asks, session_id="one")
        await session.outcome()
        await session.answer("yes")
        await session.outcome()
        large = {"a": [1, None, "x" * 100_000]}
        await session.rewind(to_operation="untyped", result=large)
        assert [each for each in caplog.messages if "replaced without a check" in each]
        await session.resume()
        await session.outcome()
        await session.answer("no")
        assert (await session.outcome()).result == [large, "no"]
        with pytest.raises(VerbRefused, match="waits for something"):
            await session.rewind(to_operation="ask", result="yes")
        assert (await session.verify()).ok


@on_loop
async def test_a_replaced_result_of_a_child_counts_in_its_parent() -> None:
    @workflow
    async def inner(ctx: Context) -> str:
        return await ctx.do(use, "x") + await ctx.ask("Go?")

    @workflow
    async def outer(ctx: Context) -> str:
        return await ctx.call(inner)

    async with Engine(":memory:", workflows=[inner, outer]) as engine:
        session = await engine.start(outer, session_id="one")
        await session.outcome()
        (child,) = await session.children()
        await engine.session(child.session_id).rewind(to_operation="use", result="y")
        assert (await engine.verify()).ok


@on_loop
async def test_a_redaction_removes_every_copy_of_a_result() -> None:
    async with Engine(":memory:") as engine:
        session = await failed(engine)
        first, *_, bad = await operations(engine, "one")
        await session.forget("think")
        await session.redact(seq=bad.seq)
        with pytest.raises(VerbRefused, match="the open visit agent#1 would run the operation again"):
            await session.redact(seq=first.seq)
        assert await finished(session) == AFTER
        last = (await session.info()).seq
        await session.redact(seq=first.seq)
        row = await engine.store.get("one")
        assert row is not None
        records = await engine.store.records(row.key, 1)
        assert not [each.seq for each in records if first.id.encode() in each.payload and each.seq < last]
        assert (await session.verify()).ok
        assert len(await operations(engine, "one")) == 7
