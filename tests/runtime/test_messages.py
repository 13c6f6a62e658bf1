"""Messages wake only the session they are sent to, arrive in order, and are received exactly once."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, guard, route, step
from pausepoint.codec.values import Limits
from pausepoint.errors import InputConflict, OversizedValue, SessionEnded, UnknownSession, ValueRefused
from tests.support.chat import Mail, history, listening
from tests.support.loop import on_loop
from tests.support.pipeline import Gate
from tests.support.status import settled


class Order(BaseModel):
    item: str
    count: int = 1
    due: datetime | None = None
    tags: set[str] = set()


# types of messages


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "hello"),
        (str, ""),
        (str, "ünïcode ✓ \x00 \N{PILE OF POO}"),
        (Order, Order(item="book", due=datetime(2024, 2, 29, tzinfo=UTC), tags={"a", "b"})),
        (Literal["yes", "no"], "no"),
        (dict[str, list[int]], {"a": [1, 2], "$set": []}),
        (int, 2**70),
        (bool, False),
        (datetime, datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (str | None, None),
        (Any, {"free": [1, (2, 3)]}),
    ],
    ids=["text", "empty", "unicode", "model", "literal", "dict", "large int", "false", "datetime", "none", "anything"],
)
@on_loop
async def test_a_message_comes_as_a_value_of_the_type_that_is_received(kind: Any, value: Any) -> None:
    found: list[Any] = []

    @step
    async def listen(ctx: Context) -> None:
        found.append(await ctx.receive(kind))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        await settled(session)
        assert await session.send(value) is Status.RUNNING
        assert (await session.outcome()).status is Status.COMPLETED
    assert found == [value]
    assert type(found[0]) is type(value)


@on_loop
async def test_a_dict_is_received_as_a_model() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(Order))
        await session.send({"item": "book", "count": 2})
        assert (await session.outcome()).state.got == [Order(item="book", count=2).model_dump()]


@pytest.mark.parametrize("kind", [Order, int, Literal["yes"]], ids=["model", "int", "literal"])
@on_loop
async def test_a_message_that_does_not_fit_is_an_event_and_the_wait_goes_on(kind: Any) -> None:
    right = {Order: {"item": "book"}, int: 7}.get(kind, "yes")
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(kind))
        await settled(session)
        await session.send("nonsense", by="ann")
        await settled(session)
        assert (await session.info()).waiting == ("message",)
        refused = [event async for event in session.events() if event.event_type == "message.refused"]
        assert [event.data for event in refused] == [{"n": 1}]
        assert refused[0].summary.startswith("step 'listen': ")
        assert "message 1" in refused[0].summary
        await session.send(right)
        outcome = await session.outcome()
        assert (outcome.status, len(outcome.state.got)) == (Status.COMPLETED, 1)


@pytest.mark.parametrize(
    "value",
    ["\ud800", {"a": "\udfff"}, object(), [Order(item="x")], print],
    ids=["lone surrogate", "one inside", "object", "list of models", "function"],
)
@on_loop
async def test_what_cannot_be_stored_is_refused_when_it_is_sent_and_leaves_nothing(value: Any) -> None:
    async with Engine(":memory:") as engine:
        workflow = listening()
        session = await engine.start(workflow)
        await settled(session)
        before = await session.info(), await history(session)
        with pytest.raises(ValueRefused, match="message"):
            await session.send(value)
        with pytest.raises(ValueRefused, match="message"):
            await engine.session("new", workflow).send(value, start={})
        assert (await session.info(), await history(session)) == before
        assert [info.session_id for info in await engine.sessions()] == [session.id]


@on_loop
async def test_a_number_that_json_lacks_arrives_as_what_it_is() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(float), wanted=2)
        await session.send(math.nan)
        await session.send(-math.inf)
        first, second = (await session.outcome()).state.got
        assert math.isnan(first)
        assert second == -math.inf


@on_loop
async def test_a_huge_message_arrives_whole_and_one_above_the_limit_is_refused(tmp_path: Path) -> None:
    text = "0123456789" * 300_000
    async with Engine(tmp_path / "h.db", limits=Limits(value_bytes=4_000_000)) as engine:
        session = await engine.start(listening())
        await settled(session)
        with pytest.raises(OversizedValue):
            await session.send(text * 2)
        assert await session.status() is Status.WAITING
        await session.send(text)
        assert (await session.outcome()).state.got == [text]


# order and recipients


@on_loop
async def test_early_messages_are_kept_and_received_in_order_in_one_visit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(), wanted=5, paused=True)
        for n in range(3):
            assert await session.send(f"{n}") is Status.PAUSED
        await session.resume()
        await settled(session)
        for n in range(3, 5):
            await session.send(f"{n}")
        assert (await session.outcome()).state.got == [f"{n}" for n in range(5)]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_message_is_received_once_however_often_the_step_begins_again() -> None:
    tops: list[int] = []

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        tops.append(len(tops))
        return [await ctx.receive() for _ in range(3)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(3):
            await settled(session)
            await session.send(f"{n}")
        assert (await session.outcome()).state.got == ["0", "1", "2"]
    assert len(tops) == 4


@on_loop
async def test_branches_of_a_gather_share_the_messages_each_gets_its_own() -> None:
    async def branch(name: str, ctx: Context) -> list[str]:
        return [name, await ctx.receive(), await ctx.receive()]

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(*[branch(name, ctx) for name in "abc"]))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(6):
            await settled(session)
            await session.send(f"{n}")
        got = (await session.outcome()).state.got
    assert [name for name, *_ in got] == ["a", "b", "c"]
    assert sorted(text for _, *texts in got for text in texts) == [f"{n}" for n in range(6)]
    assert all(first < second for _, first, second in got)


@pytest.mark.no_always_replay("counts what the step's body has received")
@on_loop
async def test_of_two_branches_that_wait_while_a_third_works_each_message_goes_to_one() -> None:
    gate = Gate()
    received: list[str] = []

    async def branch(ctx: Context) -> None:
        received.append(await ctx.receive())

    @step(writes="got")
    async def listen(ctx: Context) -> list[str]:
        await asyncio.gather(branch(ctx), branch(ctx), ctx.do(gate.hold))
        return received

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        await gate.reached.wait()
        for text in ("one", "two"):
            await session.send(text)
            while text not in received and len(received) < 2:
                await asyncio.sleep(0.001)
        gate.opened.set()
        assert (await session.outcome()).state.got == ["one", "two"]


@on_loop
async def test_items_of_a_map_wait_for_a_message_each_and_keep_what_they_got() -> None:
    done: list[str] = []

    async def item(name: str, ctx: Context) -> str:
        text = await ctx.receive()
        done.append(name)
        return f"{name}{text}"

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return await ctx.map(item, ["a", "b", "c"], concurrency=2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(3):
            await settled(session)
            await session.send(f"{n}")
        got = (await session.outcome()).state.got
    assert [text[0] for text in got] == ["a", "b", "c"]
    assert sorted(text[1] for text in got) == ["0", "1", "2"]
    assert sorted(done) == ["a", "b", "c"]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.covers("S2.33")
@on_loop
async def test_a_message_wakes_the_session_that_it_is_for_and_no_other(tmp_path: Path) -> None:
    tops: list[str] = []

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        tops.append(ctx.session_id)
        return [await ctx.receive()]

    workflow = Workflow("mail", state=Mail, steps=[listen])
    async with Engine(tmp_path / "h.db") as engine:
        one, other = [await engine.start(workflow, session_id=name) for name in ("one", "other")]
        await settled(one)
        await settled(other)
        row, told = await engine.store.get("other"), await history(other)
        await one.send("for one")
        assert (await one.outcome()).status is Status.COMPLETED
        await asyncio.sleep(0.1)  # gives the waker and the watcher time to check
        assert await engine.store.get("other") == row  # no record and no claim
        assert await history(other) == told
        assert tops == ["one", "other", "one"]
        await other.send("for the other")
        assert (await other.outcome()).state.got == ["for the other"]


# which session


@on_loop
async def test_a_message_to_an_unknown_session_is_refused_or_starts_it(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine:
        with pytest.raises(UnknownSession, match="nobody"):
            await engine.session("nobody").send("hello")
        with pytest.raises(TypeError, match="needs the workflow"):
            await engine.session("nobody").send("hello", start={"wanted": 2})
        assert await engine.sessions() == []
        await engine.session("ann", workflow).send("hello", start={"wanted": 2})
        await engine.session("ann", workflow).send("again", start={})
        outcome = await engine.session("ann").outcome()
        assert (outcome.status, outcome.state.got) == (Status.COMPLETED, ["hello", "again"])
        assert len(await engine.sessions()) == 1
        with pytest.raises(SessionEnded):
            await engine.session("ann", workflow).send("once more", start={})


@on_loop
async def test_two_messages_at_once_to_a_session_that_is_not_there_start_it_once(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine, Engine(tmp_path / "h.db", signals=False) as other:
        sends = [
            each.session("ann", workflow).send(f"{n}", start={"wanted": 6})
            for n, each in enumerate((engine, other) * 3)
        ]
        await asyncio.gather(*sends)
        session = engine.session("ann")
        outcome = await session.outcome()
        while outcome.status is not Status.COMPLETED:
            outcome = await session.outcome()
        assert sorted(outcome.state.got) == [f"{n}" for n in range(6)]
        assert (await history(session)).count("session.created") == 1
        assert len(await engine.sessions()) == 1


@on_loop
async def test_the_fields_are_for_the_start_alone(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine:
        await engine.session("ann", workflow).send("1", start={"wanted": 2})
        await engine.session("ann", workflow).send("2", start={"wanted": 9})
        assert (await engine.session("ann").outcome()).state.got == ["1", "2"]
        with pytest.raises(InputConflict):
            await engine.start(workflow, session_id="ann", wanted=9)


# effects on the session


@on_loop
async def test_the_history_says_who_sent_what_came_and_when_it_was_taken_in() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(), wanted=2)
        await settled(session)
        await session.send("a secret", by="ann")
        await settled(session)
        await session.send("another")
        await session.outcome()
        events = [event async for event in session.events()]
    came = [event for event in events if event.event_type == "message.received"]
    assert [(event.agent_name, event.summary, event.data) for event in came] == [
        ("ann", "message received from ann", {"n": 1}),
        ("", "message received from someone", {"n": 2}),
    ]
    assert [event.event_type for event in events if event.event_type != "step.completed"] == [
        "session.created", "session.waiting", "message.received", "operation.completed", "session.waiting",
        "message.received", "operation.completed", "session.completed",
    ]  # fmt: skip
    assert not any("secret" in event.summary for event in events)


@on_loop
async def test_steps_before_a_wait_are_not_run_again_and_a_guard_and_a_route_follow_what_came(tmp_path: Path) -> None:
    calls: list[str] = []

    @step(writes="wanted")
    async def before() -> int:
        calls.append("before")
        return 3

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return [await ctx.receive()]

    @guard(after=listen)
    def polite(got: list[Any]) -> str | None:
        return "that was rude" if got[-1] == "rude" else None

    @route(after=listen)
    def chosen(got: list[Any]) -> Literal["listen", "close"]:
        return "close" if got[-1] == "close" else "listen"

    @step(writes="ended")
    async def close() -> bool:
        calls.append("close")
        return True

    workflow = Workflow("mail", state=Mail, steps=[before, listen, close], guards=[polite], routes=[chosen])
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(workflow, session_id="one")
        await settled(session)
        await session.send("more")
        await settled(session)
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        session = engine.session("one")
        await session.send("rude")
        outcome = await session.outcome()
        assert (outcome.status, [pause.reason for pause in outcome.pauses]) == (Status.PAUSED, ["that was rude"])
        assert await session.send("close") is Status.PAUSED  # kept while the session is paused
        await session.edit({"got": ["more", "sorry"]}, by="ann")
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.got, outcome.state.ended) == (
            Status.COMPLETED, ["more", "sorry", "close"], True,
        )  # fmt: skip
    assert calls == ["before", "close"]
