"""``ctx.stream``: what followers in the same process see, and which text is void when code runs again."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Retry, Session, Status, Workflow, current, step
from pausepoint.errors import ContextClosed
from pausepoint.model import Gap, Restarted, StreamChunk, StreamItem, StreamText
from pausepoint.runtime import streams
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash


class Talk(BaseModel):
    n: int = 0
    chunks: list[str] = []
    out: str = ""


def flow(*steps: Any) -> Workflow[Talk]:
    return Workflow("talk", state=Talk, steps=list(steps))


async def shown(session: Session[Any], **how: Any) -> StreamText:
    """Return the text that a page shows at the end of the stream."""
    text = StreamText()
    async for item in session.stream(**how):
        text.apply(item)
    return text


async def say(words: str, ctx: Context) -> str:
    for word in words.split():
        ctx.stream(word)
    return words


@pytest.fixture(params=[":memory:", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "s.db")


@on_loop
async def test_a_follower_sees_each_chunk_at_once_and_the_stream_ends_with_the_session(url: str) -> None:
    seen = asyncio.Event()

    @step(writes="out")
    async def talk(ctx: Context) -> str:
        ctx.stream("a")
        await seen.wait()  # the follower has the first chunk while the step still runs
        ctx.stream(b"\x00b", kind="audio")
        return "done"

    async with Engine(url) as engine:
        session = await engine.start(flow(talk))
        items: list[StreamItem] = []
        async for item in session.stream():
            items.append(item)
            seen.set()
        assert (await session.status()) is Status.COMPLETED
    first, second = items
    assert isinstance(first, StreamChunk)
    assert isinstance(second, StreamChunk)
    assert (first.n, first.data, first.kind, first.source, first.run, first.attempt) == (1, "a", "text", "talk#1", 1, 1)
    assert (second.n, second.data, second.kind, second.operation) == (2, b"\x00b", "audio", "")


@on_loop
async def test_operations_nested_operations_and_items_are_told_apart(url: str) -> None:
    async def inner(word: str, ctx: Context) -> None:
        ctx.stream(f"inner {word}")

    async def outer(word: str, ctx: Context) -> None:
        ctx.stream(f"outer {word}")
        await ctx.do(inner, word)
        ctx.stream(f", {word} again")

    @step()
    async def talk(ctx: Context) -> None:
        ctx.stream("step")
        await ctx.do(outer, "one")
        await ctx.map(outer, ["two", "three"])

    async with Engine(url) as engine:
        session = await engine.start(flow(talk))
        text = await shown(session)
        events = [event.data["id"] async for event in session.events() if event.event_type == "operation.completed"]
    words = ("one", "two", "three")
    assert sorted(text.parts.values()) == sorted(
        ["step", *(f"outer {word}, {word} again" for word in words), *(f"inner {word}" for word in words)]
    )
    assert {source.removeprefix("talk#1") for source in text.parts} == {"", *events}


@pytest.mark.no_always_replay("expects the order of one run")
@on_loop
async def test_a_blocking_step_sends_without_the_loop(url: str) -> None:
    begun, held, sent = threading.Event(), threading.Event(), threading.Event()

    def shout(ctx: BlockingContext) -> str:
        ctx.stream("from an operation")
        return "ok"

    @step(writes="out")
    def talk(ctx: BlockingContext) -> str:
        begun.set()
        held.wait(PATIENCE)
        ctx.stream("from a thread")
        sent.set()
        return ctx.do(shout)

    async with Engine(url) as engine:
        session = await engine.start(flow(talk))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        held.set()
        assert sent.wait(PATIENCE)  # this blocks the loop, so the chunk went past it
        text = await shown(session)
    assert list(text.parts.values()) == ["from a thread", "from an operation"]


def test_the_blocking_engine_follows_too(url: str) -> None:
    @step(writes="out")
    def talk(ctx: BlockingContext) -> str:
        ctx.stream("a")
        return "done"

    with Engine(url) as engine:
        session = engine.start(flow(talk))
        assert [item.n for item in session.stream()] == [1]
        assert [item.n for item in engine.session(session.id).stream(None, follow=False)] == []


@on_loop
async def test_empty_chunks_arrive_and_a_session_without_chunks_has_an_empty_stream(url: str) -> None:
    @step()
    async def talk(chunks: list[str], ctx: Context) -> None:
        for chunk in chunks:
            ctx.stream(chunk)

    async with Engine(url) as engine:
        workflow = flow(talk)
        for chunks in ([], [""], ["", "a", ""]):
            session = await engine.start(workflow, chunks=chunks)
            items = [item async for item in session.stream()]
            assert [item.data for item in items if isinstance(item, StreamChunk)] == chunks
            assert len(items) == len(chunks)


# text that is void


@on_loop
async def test_a_further_attempt_of_a_step_begins_its_text_again_and_keeps_that_of_finished_operations(
    url: str,
) -> None:
    @step(writes="out", retry=Retry(attempts=2, first=0.001))
    async def talk(ctx: Context) -> str:
        ctx.stream(f"attempt {ctx.attempt}")
        await ctx.do(say, "kept")
        await ctx.do(stumble, ctx.attempt, key="stumbles")
        return "done"

    async def stumble(attempt: int, ctx: Context) -> None:
        ctx.stream(f"try {attempt}")
        if attempt == 1:
            raise ValueError("not yet")

    async with Engine(url) as engine:
        text = await shown(await engine.start(flow(talk)))
    assert sorted(text.parts.values()) == ["attempt 2", "kept", "try 2"]


@on_loop
async def test_an_operation_that_runs_twice_in_one_attempt_begins_its_text_again(url: str) -> None:
    calls: list[int] = []

    async def stumble(ctx: Context) -> None:
        calls.append(1)
        ctx.stream(f"try {len(calls)}")
        if len(calls) == 1:
            raise ValueError("not yet")

    @step()
    async def talk(ctx: Context) -> None:
        for _ in range(2):
            with suppress(ValueError):
                await ctx.do(stumble, key="x")

    async with Engine(url) as engine:
        text = await shown(await engine.start(flow(talk)))
    assert list(text.parts.values()) == ["try 2"]


@on_loop
async def test_after_a_crash_the_text_of_unfinished_operations_is_void_even_if_they_send_nothing_more(
    tmp_path: Path,
) -> None:
    path, first, begun = tmp_path / "s.db", [True], asyncio.Event()

    async def hang(ctx: Context) -> None:
        if first[0]:
            ctx.stream("half an ans")
            begun.set()
            await asyncio.Event().wait()

    @step()
    async def talk(ctx: Context) -> None:
        await ctx.do(say, "kept")
        await ctx.do(hang)

    workflow = flow(talk)
    engine = Engine(MortalStore(path), workflows=[workflow], signals=False)
    await engine.__aenter__()
    session = await engine.start(workflow, session_id="s")
    await begun.wait()
    before = StreamText()
    async for item in session.stream(follow=False):
        before.apply(item)
    last = item.n
    assert sorted(before.parts.values()) == ["half an ans", "kept"]
    await crash(engine)
    first[0] = False
    async with Engine(path, workflows=[workflow]) as again:
        resumed = await again.session("s").resume()
        rest = [item async for item in resumed.stream(last)]
        [void] = rest
        assert isinstance(void, Restarted)
        assert len(void.sources) == 1
        before.apply(void)
        assert str(before) == "kept"
        assert str(await shown(resumed, follow=False)) == "kept"


@on_loop
async def test_the_text_of_a_failed_attempt_is_void_even_if_the_next_one_does_not_ask_for_its_context(url: str) -> None:
    tries: list[int] = []

    @step(writes="out", retry=Retry(attempts=2, first=0.001))
    async def talk() -> str:
        tries.append(1)
        if len(tries) == 1:
            current().stream("half an ans")
            raise ValueError("not yet")
        return "done"

    @step()
    async def close(ctx: Context) -> None:
        ctx.stream("bye")

    async with Engine(url) as engine:
        session = await engine.start(flow(talk, close))
        assert str(await shown(session)) == "bye"


@on_loop
async def test_the_text_of_a_killed_run_is_void_even_if_the_next_one_does_not_ask_for_its_context(
    tmp_path: Path,
) -> None:
    first, begun = [True], asyncio.Event()

    @step(writes="out")
    async def talk() -> str:
        if first[0]:
            current().stream("half an ans")
            begun.set()
            await asyncio.Event().wait()
        return "done"

    workflow = flow(talk)
    engine = await Engine(MortalStore(tmp_path / "s.db"), workflows=[workflow], signals=False).__aenter__()
    session = await engine.start(workflow, session_id="s")
    await begun.wait()
    assert str(await shown(session, follow=False)) == "half an ans"
    await crash(engine)
    first[0] = False
    async with Engine(tmp_path / "s.db", workflows=[workflow]) as again:
        assert str(await shown(await again.session("s").resume())) == ""


@pytest.mark.no_always_replay("expects the order of one run")
@on_loop
async def test_a_step_that_a_resume_runs_again_begins_its_own_text_again(url: str) -> None:
    @step(writes="out")
    async def talk(ctx: Context) -> str:
        ctx.stream("thinking")
        await ctx.do(say, "kept")
        return await ctx.receive()

    async with Engine(url, hold=0) as engine:
        session = await engine.start(flow(talk))
        text = await shown(session)  # it ends, because the session waits for a message
        assert (await session.status()) is Status.WAITING
        assert list(text.parts.values()) == ["thinking", "kept"]
        await session.send("go")
        again = await shown(session)
        assert (await session.status()) is Status.COMPLETED
    assert sorted(again.parts.values()) == ["kept", "thinking"]


@on_loop
async def test_a_rewound_step_begins_its_text_again(url: str) -> None:
    count = [0]

    @step(writes="out")
    async def one(ctx: Context) -> str:
        ctx.stream("one")
        return "1"

    @step(writes="n")
    async def two(ctx: Context) -> int:
        count[0] += 1
        ctx.stream(f"two, {count[0]}")
        return 2

    async with Engine(url) as engine:
        session = await engine.start(flow(one, two))
        assert str(await shown(session)) == "onetwo, 1"
        await session.rewind("one")
        await session.resume()
        text = await shown(session)
    assert sorted(text.parts.values()) == ["one", "two, 2"]


# limits


@on_loop
async def test_a_long_chunk_arrives_in_pieces_that_add_up(url: str) -> None:
    long = "aä€😀" * 20_000

    @step()
    async def talk(ctx: Context) -> None:
        ctx.stream(long)
        ctx.stream(long.encode()[:40_001], kind="raw")

    async with Engine(url) as engine:
        items = [item async for item in (await engine.start(flow(talk))).stream()]
    chunks = [item for item in items if isinstance(item, StreamChunk)]
    text = "".join(item.data for item in chunks if isinstance(item.data, str))
    assert long.endswith(text)
    assert len(text) > 40_000
    assert b"".join(item.data for item in chunks if isinstance(item.data, bytes)) == long.encode()[:40_001]


@on_loop
async def test_a_slow_follower_learns_how_much_it_missed(url: str) -> None:
    @step()
    async def talk(ctx: Context) -> None:
        for n in range(2_000):
            ctx.stream(f"{n:0>500}")

    async with Engine(url) as engine:
        session = await engine.start(flow(talk))
        items = [item async for item in session.stream()]
    gaps = [item for item in items if isinstance(item, Gap)]
    chunks = [item for item in items if isinstance(item, StreamChunk)]
    assert len(gaps) == 1
    assert gaps[0].lost + len(chunks) == 2_000
    assert chunks[-1].data == f"{1_999:0>500}"


@on_loop
async def test_keys_of_any_length_and_lone_surrogates_are_no_trouble(url: str) -> None:
    @step()
    async def talk(ctx: Context) -> None:
        await ctx.do(say, "a", key="k" * 100_000 + "1")
        await ctx.do(say, "b\ud800", key="k" * 100_000 + "2")

    async with Engine(url) as engine:
        text = await shown(await engine.start(flow(talk)))
    assert list(text.parts.values()) == ["a", "b\ud800"]
    assert all(len(source) < 600 for source in text.parts)


@pytest.mark.parametrize(
    ("chunk", "kind", "message"),
    [
        ({"a": 1}, "text", "takes a string or bytes, not dict. Encode other values first"),
        (None, "text", "takes a string or bytes, not NoneType"),
        ("a", "", "kind must be a string of 1 to 100 characters"),
        ("a", "k" * 101, "kind must be a string of 1 to 100 characters"),
        ("a", None, "kind must be a string of 1 to 100 characters"),
        ("a", ["text"], "kind must be a string of 1 to 100 characters"),
    ],
)
@on_loop
async def test_a_value_that_cannot_be_sent_is_refused(chunk: Any, kind: Any, message: str) -> None:
    @step()
    async def talk(ctx: Context) -> None:
        ctx.stream(chunk, kind)

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(flow(talk))).outcome()
    assert outcome.failure is not None
    assert message in outcome.failure.message


@on_loop
async def test_a_context_that_is_used_after_its_step_cannot_send() -> None:
    kept: list[Context] = []

    @step()
    async def talk(ctx: Context) -> None:
        kept.append(ctx)

    async with Engine(":memory:") as engine:
        await (await engine.start(flow(talk))).outcome()
        with pytest.raises(ContextClosed, match="has ended, but its context is still in use"):
            kept[0].stream("late")


@on_loop
async def test_an_aborted_blocking_step_is_ended_by_its_next_chunk() -> None:
    begun, ended = threading.Event(), threading.Event()

    @step()
    def talk(ctx: BlockingContext) -> None:
        begun.set()
        try:
            while True:
                ctx.stream("x")
                time.sleep(0.001)
        finally:
            ended.set()

    async with Engine(":memory:") as engine:
        session = await engine.start(flow(talk))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        await session.pause(mode="abort", wait=True)
        assert await asyncio.to_thread(ended.wait, PATIENCE)


@on_loop
async def test_a_store_in_memory_keeps_the_rings_of_the_last_sessions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_IN_MEMORY", 3)

    @step()
    async def talk(ctx: Context) -> None:
        ctx.stream("x")

    async with Engine(":memory:") as engine:
        workflow, keys = flow(talk), []
        for _ in range(5):
            session = await engine.start(workflow)
            await session.outcome()
            keys.append((await engine._service.row(session.id)).key)
        assert engine._service.streams.present() == keys[-3:]
