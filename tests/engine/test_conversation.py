"""A session is read as a conversation: what models were told and answered, what tools did, and what people said."""

from __future__ import annotations

from typing import Any

import pytest

from pausepoint import Context, Declined, Engine, Session, workflow
from pausepoint.engine.conversation import conversation
from pausepoint.log.conversation import messages_in, reply_of
from pausepoint.model.views import ToolUse, Turn
from tests.support.loop import on_loop

REPLIES: list[list[dict[str, Any]]] = [
    [
        {"type": "thinking", "thinking": "Oslo first.", "signature": "s"},
        {"type": "text", "text": "I look for a hotel."},
        {"type": "tool_use", "id": "t1", "name": "find_hotel", "input": {"city": "Oslo"}},
    ],
    [{"type": "tool_use", "id": "t2", "name": "book", "input": {"hotel": "Fjord"}}],
    [{"type": "text", "text": "It is not booked."}],
]


async def think(messages: list[Any], ctx: Context) -> list[dict[str, Any]]:
    ctx.spend(tokens=7, usd=0.5)
    return REPLIES[sum(each["role"] == "assistant" for each in messages)]


async def find_hotel(city: str, api_key: str) -> str:
    return f"Fjord, in {city}"


@workflow
async def agent(task: str, ctx: Context) -> str:
    messages: list[Any] = [{"role": "system", "content": "You book hotels."}, {"role": "user", "content": task}]
    while True:
        reply = await ctx.do(think, messages)
        calls = [block for block in reply if block["type"] == "tool_use"]
        if not calls:
            messages += [{"role": "assistant", "content": reply}]
            note = await ctx.receive(str)
            return f"{reply[0]['text']} {note}"
        results = []
        for call in calls:
            try:
                if call["name"] == "book":
                    await ctx.confirm(f"Book {call['input']['hotel']}?")
                content = await ctx.do(find_hotel, call["input"]["city"], api_key="4711", key=call["id"])
            except Declined as no:
                content = f"declined: {no.reason}"
            results.append({"type": "tool_result", "tool_use_id": call["id"], "content": content})
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": results}]


async def talked(engine: Engine) -> Session[Any]:
    session = await engine.start(agent, session_id="oslo", task="Book a hotel in Oslo.")
    await session.outcome()
    (question,) = await session.questions()
    await engine.answer(question.id, {"approved": False, "reason": "too dear"}, by="ann")
    await session.outcome()
    await session.send("Thanks.", by="bob")
    await session.outcome()
    return session


def told(turns: list[Turn]) -> list[tuple[str, str, str]]:
    return [(each.role, each.name, each.text) for each in turns]


@on_loop
async def test_models_tools_and_people_take_turns() -> None:
    async with Engine(":memory:") as engine:
        await talked(engine)
        turns = await conversation(engine, "oslo")
    assert told(turns) == [
        ("system", "think", "You book hotels."), ("user", "think", "Book a hotel in Oslo."),
        ("assistant", "think", "I look for a hotel."), ("tool", "find_hotel", ""), ("assistant", "think", ""),
        ("question", "agent", "Book Fjord?"), ("answer", "ann", "no: too dear"),
        ("assistant", "think", "It is not booked."), ("message", "bob", "Thanks."),
    ]  # fmt: skip
    assert (turns[2].thinking, turns[2].calls) == ("Oslo first.", (ToolUse("find_hotel", {"city": "Oslo"}),))
    assert (turns[2].tokens, turns[2].usd) == (7, 0.5)
    assert turns[3].arguments == {"city": "Oslo", "api_key": "‹masked›"}
    assert turns[3].result == "Fjord, in Oslo"
    assert turns[4].calls == (ToolUse("book", {"hotel": "Fjord"}),)


@on_loop
async def test_turns_come_in_pages_and_those_of_one_record_stay_together() -> None:
    async with Engine(":memory:") as engine:
        await talked(engine)
        turns = await conversation(engine, "oslo")
        pages: list[Turn] = []
        for _ in turns:
            page = await conversation(engine, "oslo", before=pages[0].seq if pages else None, limit=1)
            pages[:0] = page
        assert pages == turns
        assert len(await conversation(engine, "oslo", before=turns[3].seq, limit=1)) == 3
        assert await conversation(engine, "oslo", limit=None) == turns
        with pytest.raises(ValueError, match="number of turns"):
            await conversation(engine, "oslo", limit=-1)


@on_loop
async def test_a_long_text_is_cut_unless_everything_is_asked_for() -> None:
    async def say(messages: list[Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": "word " * 10_000}

    async def read(path: str) -> str:
        return "x" * 50_000

    @workflow
    async def long(ctx: Context) -> None:
        await ctx.do(say, [{"role": "user", "content": "y" * 9_000}])
        await ctx.do(read, "a.txt")

    async with Engine(":memory:") as engine:
        await (await engine.start(long, session_id="long")).outcome()
        user, said, tool = await conversation(engine, "long")
        assert user.text == f'[{{"content":"{"y" * 987}… ‹9,030 bytes›'
        assert said.text == f"{('word ' * 10_000)[:8_000]}… ‹50,000 characters›"
        assert (tool.arguments, tool.result) == ({"path": "a.txt"}, f"{'x' * 999}… ‹50,002 bytes›")
        _, said, tool = await conversation(engine, "long", whole=True)
        assert (said.text, tool.result) == ("word " * 10_000, "x" * 50_000)


@pytest.mark.long
@on_loop
async def test_failed_attempts_and_redacted_records_are_told_apart() -> None:
    tries = 0

    async def flaky(n: int) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("the line is down")
        return n

    @workflow
    async def work(ctx: Context) -> int:
        await ctx.do(flaky, 1, retry=2)
        return await ctx.do(flaky, 2)

    async with Engine(":memory:") as engine:
        session = await engine.start(work, session_id="w")
        await session.outcome()
        error, first, second = await conversation(engine, "w")
        assert told([error]) == [("error", "flaky", "attempt 1: ConnectionError: the line is down")]
        assert (first.result, second.result) == (1, 2)
        await session.redact(seq=second.seq)
        assert [each.result for each in await conversation(engine, "w") if each.role == "tool"] == [1]


CALL = ToolUse("find", {"city": "Oslo"})


@pytest.mark.parametrize(
    "value",
    [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "name": "find", "input": {"city": "Oslo"}},
            ],
        },
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "Hi",
                        "tool_calls": [{"id": "1", "function": {"name": "find", "arguments": '{"city": "Oslo"}'}}],
                    }
                }
            ]
        },
        {
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
                {"type": "function_call", "name": "find", "arguments": '{"city": "Oslo"}', "call_id": "1"},
            ]
        },
        {
            "kind": "response",
            "parts": [
                {"part_kind": "text", "content": "Hi"},
                {"part_kind": "tool-call", "tool_name": "find", "args": {"city": "Oslo"}},
            ],
        },
        {"type": "ai", "content": "Hi", "tool_calls": [{"name": "find", "args": {"city": "Oslo"}, "id": "1"}]},
    ],
    ids=["anthropic", "chat", "responses", "pydantic-ai", "langchain"],
)
def test_the_answers_of_all_kinds_of_models_are_read(value: dict[str, Any]) -> None:
    said = reply_of(value)
    assert said is not None
    assert (said.role, said.text, said.calls) == ("assistant", "Hi", (CALL,))


@pytest.mark.parametrize(
    "value", ["Hi", None, [], [1], [{"type": "other"}], {"text": "Hi"}, {"role": "user", "content": "Hi"},
              {"role": 5}, {"choices": []}, {"choices": [{"message": "x"}]}, {"role": "assistant"},
              {"kind": "response", "parts": 3}],
)  # fmt: skip
def test_other_values_are_no_answers(value: Any) -> None:
    assert reply_of(value) is None


def test_arguments_of_a_model_that_are_not_json_are_shown_as_they_are() -> None:
    said = reply_of({"type": "ai", "content": "", "tool_calls": [{"name": "find", "args": '{"city": '}]})
    assert said is not None
    assert said.calls == (ToolUse("find", '{"city": '),)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "source": {}}]}],
        [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image"}]}],
    ],
)
def test_pictures_are_named(messages: list[Any]) -> None:
    (said,) = messages_in({"messages": messages})
    assert said.text.startswith("Hi\n\n‹")


def test_requests_of_pydantic_ai_are_read() -> None:
    request = {"kind": "request", "parts": [
        {"part_kind": "system-prompt", "content": "Be short."}, {"part_kind": "user-prompt", "content": "Hi"},
        {"part_kind": "tool-return", "tool_name": "find", "content": "x"},
    ]}  # fmt: skip
    assert [(each.role, each.text) for each in messages_in({"messages": [request]})] == [
        ("system", "Be short."), ("user", "Hi"),
    ]  # fmt: skip


@on_loop
async def test_events_of_the_workflow_itself_may_have_the_names_of_those_of_agents() -> None:
    @workflow(events=["agent.call", "agent.said"])
    async def own(ctx: Context) -> int:
        ctx.emit("agent.call", "hello")
        ctx.emit("agent.said", "hello", id=5)
        return 1

    async with Engine(":memory:") as engine:
        await (await engine.start(own, session_id="own")).outcome()
        assert await conversation(engine, "own") == []
