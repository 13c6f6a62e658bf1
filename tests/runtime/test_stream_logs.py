"""What a step logs is part of its session's live output, and the program's logging stays as it is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Session, Workflow, step
from pausepoint.model import StreamChunk
from pausepoint.runtime.streams import tee_logs
from tests.support.loop import on_loop

log = logging.getLogger("tests.stream_logs")


class Data(BaseModel):
    n: int = 0


async def lines(session: Session[Any]) -> list[tuple[str, str, str]]:
    """Return the source, the kind and the text of each chunk of a stream."""
    items = [item async for item in session.stream(follow=False)]
    return [
        (item.step + item.operation.partition("~")[0], item.kind, item.data)
        for item in items
        if isinstance(item, StreamChunk) and isinstance(item.data, str)
    ]


async def ran(*steps: Any) -> list[tuple[str, str, str]]:
    """Run steps, and return what they sent."""
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("logging", state=Data, steps=list(steps)))
        await session.outcome()
        log.warning("outside of all steps")
        return await lines(session)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, log.name):
        yield


async def fetch(n: int) -> int:
    log.info("page %d", n)
    return n


def load(n: int) -> int:
    log.info("row %d", n)
    return n


@on_loop
async def test_lines_of_steps_operations_and_threads_are_sent_in_order() -> None:
    @step(writes="n")
    async def crawl(ctx: Context) -> int:
        log.info("begins")
        log.debug("not admitted")
        ctx.stream("text")
        await ctx.do(fetch, 1)
        await ctx.do(load, 2)
        await asyncio.to_thread(log.info, "in a thread")
        return 1

    @step(writes="n")
    def read(ctx: BlockingContext) -> int:
        log.info("blocking")
        return ctx.do(load, 3)

    prefix = "INFO tests.stream_logs: "
    assert await ran(crawl, read) == [
        ("crawl", "log", f"{prefix}begins\n"), ("crawl", "text", "text"), ("crawl/fetch", "log", f"{prefix}page 1\n"),
        ("crawl/load", "log", f"{prefix}row 2\n"), ("crawl", "log", f"{prefix}in a thread\n"),
        ("read", "log", f"{prefix}blocking\n"), ("read/load", "log", f"{prefix}row 3\n"),
    ]  # fmt: skip


@on_loop
async def test_a_step_without_a_context_logs_too_also_in_its_threads() -> None:
    @step(writes="n")
    async def alone() -> int:
        await asyncio.to_thread(log.info, "first, in a thread")
        log.info("second")
        return 1

    @step(writes="n")
    def blocking() -> int:
        log.info("third")
        return 1

    texts = [text.partition(": ")[2] for _, _, text in await ran(alone, blocking)]
    assert texts == ["first, in a thread\n", "second\n", "third\n"]


@on_loop
async def test_a_traceback_is_sent_and_a_wrong_call_of_logging_breaks_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @step(writes="n")
    async def fails(ctx: Context) -> int:
        try:
            raise ValueError("no such page")
        except ValueError:
            log.exception("failed")
        log.info("%d pages", "three")
        return 1

    monkeypatch.setattr(logging, "raiseExceptions", True)
    sent = await ran(fails)
    assert len(sent) == 1
    assert sent[0][2].startswith("ERROR tests.stream_logs: failed\nTraceback (most recent call last):\n")
    assert sent[0][2].endswith("ValueError: no such page\n")
    assert "TypeError" in capsys.readouterr().err


@pytest.mark.long
@on_loop
async def test_the_engines_own_lines_are_not_sent_and_handlers_get_each_record_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @step(writes="n", retry=2)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise OSError("the line is down")  # the engine warns
        log.info("once")
        return 1

    with caplog.at_level(logging.INFO):
        assert [text for _, _, text in await ran(flaky)] == ["INFO tests.stream_logs: once\n"]
    assert [record.getMessage() for record in caplog.records if record.name == log.name] == [
        "once", "outside of all steps",
    ]  # fmt: skip
    assert any("attempt 1 failed" in record.getMessage() for record in caplog.records)


@on_loop
async def test_a_factory_of_the_program_is_kept_and_wrapped_once() -> None:
    former = logging.getLogRecordFactory()

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **kwargs)
        record.machine = "m1"
        return record

    logging.setLogRecordFactory(made)
    try:
        tee_logs()
        tee_logs()
        tee: Any = logging.getLogRecordFactory()
        assert tee.make is made
        assert logging.makeLogRecord({"msg": "hello"}).machine == "m1"  # type: ignore[attr-defined]
    finally:
        logging.setLogRecordFactory(former)


@on_loop
async def test_a_line_that_is_logged_after_the_step_is_dropped() -> None:
    go, over = threading.Event(), threading.Event()

    def later() -> None:
        go.wait(30)
        log.info("too late")
        over.set()

    @step(writes="n")
    async def short(ctx: Context) -> int:
        threading.Thread(target=copy_context().run, args=(later,)).start()
        return 1

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("logging", state=Data, steps=[short]))
        await session.outcome()
        go.set()
        assert await asyncio.to_thread(over.wait, 30)
        assert await lines(session) == []


@on_loop
async def test_a_long_record_is_sent_without_its_middle() -> None:
    @step(writes="n")
    async def long(ctx: Context) -> int:
        log.info("begins %s ends", "x" * 10_000)
        return 1

    ((_, _, text),) = await ran(long)
    assert text.startswith("INFO tests.stream_logs: begins xxx")
    assert text.endswith("xxx ends\n")
    assert "… ‹6,037 characters› …" in text
    assert len(text) < 4_100


@pytest.mark.long
@on_loop
async def test_a_flood_of_lines_leaves_room_for_text_and_says_that_lines_are_left_out() -> None:
    @step(writes="n")
    async def flood(ctx: Context) -> int:
        ctx.stream("the first words")
        for n in range(5_000):
            log.info("line %d %s", n, "x" * 100)
        ctx.stream(", the last words")
        return 1

    sent = await ran(flood)
    assert "".join(text for _, kind, text in sent if kind == "text") == "the first words, the last words"
    logged = [text for _, kind, text in sent if kind == "log"]
    assert logged[0].startswith("INFO tests.stream_logs: line 0 x")
    left_out = "… Lines are left out here: more than 8,000 characters of a log in a second are not sent.\n"
    assert logged.index(left_out) > 200
    assert len(logged) < 5_000


@on_loop
async def test_what_is_logged_after_a_flood_is_sent_when_there_is_room_again() -> None:
    @step(writes="n")
    async def flood(ctx: Context) -> int:
        for _ in range(400):
            log.info("x" * 100)
        sender = ctx._visit.host.sender
        assert sender is not None
        sender._room = 0
        log.info("too early")
        sender._logged -= 1.1
        log.info("again")
        return 1

    *_, last, again = [text for _, _, text in await ran(flood)]
    assert last.startswith("… Lines are left out here")
    assert again == "INFO tests.stream_logs: again\n"


@on_loop
async def test_a_finalizer_that_logs_while_its_thread_sends_breaks_nothing() -> None:
    @step(writes="n")
    async def sends(ctx: Context) -> int:
        sender = ctx._visit.host.sender
        assert sender is not None
        with sender._lock:  # as if the garbage collector ran in the midst of a chunk
            log.info("from a finalizer")
        log.info("after it")
        return 1

    assert [text for _, _, text in await ran(sends)] == ["INFO tests.stream_logs: after it\n"]
