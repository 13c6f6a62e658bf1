"""Log lines: the session, step and visit they belong to, and the lines that the engine itself writes."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from pausepoint import BlockingContext, Context, Engine, Retry, Workflow, guard, step
from pausepoint.log.telemetry import here
from tests.log.brief import Lines, State, attributes, place, run_brief
from tests.support.loop import on_loop
from tests.support.telemetry import Telemetry

# log lines


def test_the_users_log_lines_know_their_session_step_and_visit_wherever_they_run(lines: Lines) -> None:
    mine = logging.getLogger("mine")

    async def on_the_loop(text: str) -> str:
        await asyncio.sleep(0)
        mine.info(text)
        return text

    def in_a_thread(text: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        mine.info(text)
        return text

    @step(writes="notes")
    async def first(who: str, ctx: Context) -> list[str]:
        await asyncio.gather(on_the_loop(f"{who} gather"), ctx.do(in_a_thread, f"{who} thread"))
        return await ctx.map(on_the_loop, [f"{who} item 1", f"{who} item 2"])

    @step(writes="text")
    def second(who: str, ctx: BlockingContext) -> str:
        in_a_thread(f"{who} def")
        ctx.map(in_a_thread, [f"{who} def item"])
        return ctx.do(in_a_thread, f"{who} def do")

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            both = Workflow("both", state=State, steps=[first, second])
            sessions = [await engine.start(both, who=who, session_id=f"s-{who}") for who in ("a", "b")]
            for session in sessions:
                await session.outcome()
        mine.info("outside")

    run()
    expected = {
        f"{who} {text}": (f"s-{who}", where, 1)
        for who in ("a", "b")
        for where, texts in (
            ("first", ["gather", "thread", "item 1", "item 2"]),
            ("second", ["def", "def item", "def do"]),
        )
        for text in texts
    }
    expected["outside"] = ("-", "-", 0)
    assert {text: found for text, found in lines.places().items() if not text.startswith("session ")} == expected


@on_loop
async def test_code_can_ask_where_it_runs() -> None:
    found = []

    @step
    async def ask() -> None:
        found.append(here())

    async with Engine(":memory:") as engine:
        await (await engine.start(Workflow("asks", state=State, steps=[ask]), session_id="s-1")).outcome()
    assert found == [("s-1", "ask", 1, 1)]
    assert here() is None


def test_pausepoint_says_what_becomes_of_a_session(lines: Lines) -> None:

    @step(writes="text", retry=Retry(2, first=0))
    async def work(who: str, ctx: Context) -> str:
        if ctx.attempt == 1 or who == "fails":
            raise ConnectionError("down")
        return who

    @guard(after="work")
    def patient(who: str) -> str | None:
        return "not before noon" if who == "guarded" else None

    works = Workflow("works", state=State, steps=[work], guards=[patient])

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            for who in ("good", "fails", "guarded"):
                await (await engine.start(works, who=who, session_id=who)).outcome()
            later = await engine.start(works, who="good", session_id="later", paused=True, by="eve", reason="lunch")
            await later.pause(reason="dinner", by="eve")
            await later.resume(by="eve")
            await later.outcome()

    run()
    assert all(place(record)[0] != "-" for record in lines.records)

    def told(session_id: str) -> list[tuple[str, str]]:
        mine = [record for record in lines.records if place(record)[0] == session_id]
        return [(each.levelname, each.getMessage().removeprefix(f"session {session_id}: ")) for each in mine]

    retried = ("WARNING", "work: attempt 1 failed, ConnectionError: down; retry in 0.0 s")
    assert told("good") == [("INFO", "started"), retried, ("INFO", "completed")]
    assert told("fails")[-1] == ("ERROR", "failed at work after 2 attempts: ConnectionError: down")
    assert told("guarded")[-1] == ("WARNING", "paused (guard): not before noon")
    assert told("later")[0] == ("INFO", "started, paused")
    assert told("later")[1] == ("INFO", "pause requested by eve: dinner")
    assert told("later")[2] == ("INFO", "resumed by eve at work#1")


@on_loop
async def test_a_lost_hold_is_said_and_seen(lines: Lines, seen: Telemetry) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @step
    async def stuck() -> None:
        entered.set()
        await go.wait()

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("stucks", state=State, steps=[stuck]), session_id="s-1")
        await entered.wait()
        taken = await engine.session(session.id).resume(steal=True)
        go.set()
        await taken.outcome()
    (lost,) = [record for record in lines.records if record.levelno == logging.WARNING]
    assert (place(lost), "HoldLost" in lost.getMessage()) == (("s-1", "stuck", 1), True)
    statuses = sorted(attributes(span)["status"] for span in seen.named("session stucks"))
    assert statuses == ["completed", "lost"]


# side effects that logging must not have


def test_a_record_factory_that_sets_the_same_names_is_no_trouble(lines: Lines) -> None:
    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **kwargs)
        record.session_id = "of the web server"
        return record

    logging.setLogRecordFactory(factory)
    try:
        run_brief()
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    assert {place(record)[0] for record in lines.records} == {"s-1"}
