"""What can be seen of sessions from outside: spans, metrics, log lines. And that seeing costs and breaks nothing."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, use_span
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Retry, Status, Workflow, guard, step
from pausepoint.errors import StoreUnavailable
from pausepoint.log.telemetry import METRICS, SessionIdFilter, Watch, here
from pausepoint.model.sessions import Commit
from pausepoint.stores.sqlite import SqliteStore
from tests.docs.pages import DOCS, code, rows, section
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.telemetry import Telemetry, no_providers, telemetry

SECRET = "Ada Lovelace, 12 St James's Square"


class State(BaseModel):
    who: str = ""
    notes: list[str] = []
    text: str = ""


@pytest.fixture
def seen() -> Iterator[Telemetry]:
    with telemetry() as seen:
        yield seen


def parent_of(span: ReadableSpan, among: Telemetry) -> str:
    assert span.parent is not None
    (parent,) = [each for each in among.spans if each.context and each.context.span_id == span.parent.span_id]
    return parent.name


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("pausepoint."): value for name, value in (span.attributes or {}).items()}


async def look_up(name: str) -> str:
    return f"about {name}"


@step(writes="notes")
async def collect(ctx: Context) -> list[str]:
    return await ctx.map(look_up, ["a", "b"])


@step(writes="text")
async def write(notes: list[str], ctx: Context) -> str:
    return await ctx.do(look_up, notes[0])


workflow = Workflow("brief", state=State, steps=[collect, write])


@on_loop
async def run_brief(session_id: str = "s-1") -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(workflow, session_id=session_id)).outcome()


def test_a_drive_is_one_trace_with_spans_of_its_visits_and_operations(seen: Telemetry) -> None:
    run_brief()
    names = ["session brief", "visit collect", "operation look_up", "operation look_up", "visit write"]
    assert [span.name for span in seen.spans] == [*names, "operation look_up"]
    assert len({trace_id(span) for span in seen.spans}) == 1
    parents = [parent_of(span, seen) for span in seen.spans[1:]]
    assert parents == ["session brief", "visit collect", "visit collect", "session brief", "visit write"]
    assert seen.spans[0].parent is None


@pytest.mark.no_always_replay("counts spans, and each replay has one")
def test_spans_say_where_they_belong_and_how_they_ended(seen: Telemetry) -> None:
    run_brief()
    belongs = {"session_id": "s-1", "workflow": "brief", "status": "completed"}
    assert attributes(seen.one("session brief")) == {**belongs, "version": 1, "resumed": False}
    visit = {**belongs, "step": "write", "visit": 1, "attempt": 1}
    assert attributes(seen.one("visit write")) == {**visit, "remembered": 0}
    assert attributes(seen.named("operation look_up")[-1]) == {**visit, "operation": "look_up"}
    assert {span.status.status_code for span in seen.spans} == {StatusCode.UNSET}


def test_spans_of_the_users_own_code_are_children_of_what_they_run_in(seen: Telemetry) -> None:
    def mine(name: str) -> str:
        with seen.tracer.start_as_current_span(f"mine {name}"):
            return name

    async def mine_async(name: str) -> str:
        await asyncio.sleep(0)
        return mine(name)

    @step(writes="notes")
    async def loop_step(ctx: Context) -> list[str]:
        mine("step")
        await asyncio.gather(ctx.do(mine_async, "gather-a"), ctx.do(mine, "gather-thread"))
        return await ctx.map(mine_async, ["item-a", "item-b"])

    @step(writes="text")
    def thread_step(ctx: BlockingContext) -> str:
        mine("def step")
        ctx.map(mine, ["def item"])
        return ctx.do(mine, "def operation")

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            outcome = await (await engine.start(Workflow("own", state=State, steps=[loop_step, thread_step]))).outcome()
            assert outcome.status is Status.COMPLETED

    run()
    own = {
        span.name.removeprefix("mine "): parent_of(span, seen) for span in seen.spans if span.name.startswith("mine")
    }
    assert own == {
        "step": "visit loop_step",
        "gather-a": "operation mine_async",
        "gather-thread": "operation mine",
        "item-a": "operation mine_async",
        "item-b": "operation mine_async",
        "def step": "visit thread_step",
        "def item": "operation mine",
        "def operation": "operation mine",
    }
    assert len({trace_id(span) for span in seen.spans}) == 1


@on_loop
async def run_failing(retry: int) -> None:
    async def shaky(attempt: int) -> str:
        if attempt == 1:
            raise ConnectionError("down")
        return "up"

    @step(writes="text", retry=Retry(retry, first=0))
    async def call(ctx: Context) -> str:
        return await ctx.do(shaky, ctx.attempt, key=ctx.attempt)

    async with Engine(":memory:") as engine:
        await (await engine.start(Workflow("calls", state=State, steps=[call]))).outcome()


def test_an_attempt_that_fails_has_its_own_span_with_the_error(seen: Telemetry) -> None:
    run_failing(retry=2)
    first, second = seen.named("visit call")
    assert [attributes(span)["attempt"] for span in (first, second)] == [1, 2]
    assert [attributes(span)["status"] for span in (first, second)] == ["failed", "completed"]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ConnectionError")
    (event,) = first.events
    assert (event.name, (event.attributes or {})["exception.message"]) == ("exception", "down")
    assert second.status.status_code is seen.one("session calls").status.status_code is StatusCode.UNSET


def test_a_session_that_fails_is_an_error_too(seen: Telemetry) -> None:
    run_failing(retry=1)
    session = seen.one("session calls")
    assert attributes(session)["status"] == "failed"
    assert (session.status.status_code, session.status.description) == (StatusCode.ERROR, "ConnectionError")


def test_a_pause_ends_the_trace_and_a_resume_begins_one_without_what_is_remembered(seen: Telemetry) -> None:
    engines: list[Engine] = []

    async def ask_for_a_pause() -> None:
        await engines[0].pause("s-1", reason="lunch")

    @step(writes="notes")
    async def long(ctx: Context) -> list[str]:
        await ctx.do(ask_for_a_pause)
        await ctx.safe_point()
        return [await ctx.do(look_up, "b")]

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            engines.append(engine)
            session = await engine.start(Workflow("long", state=State, steps=[long]), session_id="s-1")
            assert (await session.outcome()).status is Status.PAUSED
            assert [span.name for span in seen.spans] == ["session long", "visit long", "operation ask_for_a_pause"]
            await session.resume()
            assert (await session.outcome()).status is Status.COMPLETED

    run()
    first, second = seen.named("session long")
    assert [attributes(span)["status"] for span in (first, second)] == ["paused", "completed"]
    assert [attributes(span)["resumed"] for span in (first, second)] == [False, True]
    assert trace_id(first) != trace_id(second)
    left, again = seen.named("visit long")
    assert (attributes(left)["status"], left.status.status_code, left.events) == ("left", StatusCode.UNSET, ())
    assert (attributes(again)["remembered"], attributes(again)["visit"]) == (1, 1)
    assert [span.name for span in seen.spans if trace_id(span) == trace_id(second)] == [
        "session long", "visit long", "operation look_up"
    ], "the remembered operation must not be seen a second time"  # fmt: skip


def test_a_session_started_within_a_span_belongs_to_its_trace(seen: Telemetry) -> None:
    with seen.tracer.start_as_current_span("request"):
        run_brief()
    assert parent_of(seen.one("session brief"), seen) == "request"


def test_a_session_started_after_its_span_has_ended_is_linked_to_it(seen: Telemetry) -> None:
    with seen.tracer.start_as_current_span("request", end_on_exit=False) as request:
        request.end()
        run_brief()
    session = seen.one("session brief")
    assert session.parent is None
    assert [link.context for link in session.links] == [request.get_span_context()]
    assert trace_id(session) == trace_id(seen.one("visit write"))


def test_a_trace_that_is_not_sampled_stays_so(seen: Telemetry) -> None:
    with use_span(NonRecordingSpan(SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(0)))):
        run_brief()
    assert seen.spans == []
    assert "pausepoint.visit.duration" in seen.points(), "metrics are not sampled"


def test_a_session_that_the_engine_takes_up_by_itself_has_a_trace_of_its_own(seen: Telemetry) -> None:
    @step(writes="text")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "awake"

    @on_loop
    async def run() -> None:
        with seen.tracer.start_as_current_span("program"):
            async with Engine(":memory:") as engine:
                session = await engine.start(Workflow("naps", state=State, steps=[nap]))
                while (await session.outcome()).status is not Status.COMPLETED:
                    await asyncio.sleep(0.005)

    run()
    asleep, awake = seen.named("session naps")
    assert (attributes(asleep)["status"], parent_of(asleep, seen)) == ("sleeping", "program")
    assert (attributes(awake)["status"], awake.parent) == ("completed", None)


def test_a_child_belongs_to_the_trace_of_the_visit_that_called_it(seen: Telemetry) -> None:
    @step(writes="text")
    async def ask(ctx: Context) -> str:
        child = await ctx.call(workflow)
        return child.text

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            session = await engine.start(Workflow("parent", state=State, steps=[ask]))
            while (await session.outcome()).status is not Status.COMPLETED:
                await asyncio.sleep(0.005)

    run()
    assert parent_of(seen.one("session brief"), seen) == "visit ask"
    started = [point.attributes["pausepoint.workflow"] for point in seen.points()["pausepoint.sessions.started"]]
    assert sorted(started) == ["brief", "parent"]


def test_values_never_leave_with_spans_or_metrics(seen: Telemetry) -> None:
    async def greet(name: str) -> str:
        return f"Dear {name}"

    @step(writes="text")
    async def letter(who: str, ctx: Context) -> str:
        await ctx.map(greet, [who], key=str)
        ctx.emit("greeted", who, name=who)
        return await ctx.do(greet, who, key=who)

    @guard(after="letter")
    def refuse(text: str) -> str | None:
        return f"not yet, {SECRET}"

    @on_loop
    async def run() -> None:
        letters = Workflow("letters", state=State, steps=[letter], guards=[refuse], events=["greeted"])
        async with Engine(":memory:") as engine:
            session = await engine.start(letters, who=SECRET, owner=SECRET, tags=[SECRET], by=SECRET)
            assert (await session.outcome()).status is Status.PAUSED

    run()
    said = seen.everything()
    assert "visit letter" in said
    assert "operation greet" in said
    assert "Ada" not in said


@on_loop
async def run_everything() -> None:
    """A bit of all that is counted."""

    @step(writes="text", retry=Retry(2, first=0))
    async def work(who: str, ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("down")
        ctx.spend(usd=0.25, tokens=7)
        return await ctx.do(look_up, who)

    @guard(after="work")
    def patient(who: str) -> str | None:
        return "wait" if who == "guarded" else None

    def refuse(commit: Commit) -> None:
        if any(record.kind == "operation" for record in commit.records) and refusing:
            raise StoreUnavailable("the disk is gone")

    refusing: list[str] = []
    works = Workflow("works", state=State, steps=[work], guards=[patient])
    async with Engine(ProxyStore(SqliteStore(":memory:"), refuse)) as engine:
        for who in ("plain", "guarded"):
            await (await engine.start(works, who=who)).outcome()
        await (await engine.start(works, who="parked", paused=True, session_id="p")).cancel()
        refusing.append("yes")
        broken = await engine.start(works, who="unlucky")
        with pytest.raises(StoreUnavailable):
            await broken.outcome()
        refusing.clear()


def test_metrics_count_what_happened(seen: Telemetry) -> None:
    run_everything()
    points = seen.points()

    def value(name: str, **wanted: str) -> int:
        wanted = {f"pausepoint.{key}": text for key, text in wanted.items()}
        fitting = [point for point in points[name] if wanted.items() <= point.attributes.items()]
        return sum(point.count if name.endswith("duration") else point.value for point in fitting)

    assert value("pausepoint.sessions.started", workflow="works") == 4
    assert value("pausepoint.sessions.ended", status="completed") == 1
    assert value("pausepoint.sessions.ended", status="cancelled") == 1
    assert value("pausepoint.sessions.running") == 0
    assert value("pausepoint.pauses", pause="guard") == 1
    assert value("pausepoint.visit.duration", step="work") == 2
    assert value("pausepoint.operation.duration", operation="look_up") == 2
    assert value("pausepoint.retries", step="work") == 3
    assert value("pausepoint.spent") == 500_000
    assert value("pausepoint.tokens") == 14
    assert value("pausepoint.commit.duration", record="checkpoint") == 2
    assert [dict(point.attributes) for point in points["pausepoint.store.errors"]] == [
        {"error.type": "StoreUnavailable"}
    ]


def test_the_table_of_metrics_is_what_is_measured(seen: Telemetry) -> None:
    run_everything()
    measured = {name: {key for point in points for key in point.attributes} for name, points in seen.points().items()}
    assert measured == {metric.name: set(metric.attributes) for metric in METRICS}
    table = rows(section(DOCS / "observing.md", "Metrics"))
    said = [(code(row[0])[0], row[1], code(row[2])[0], tuple(code(row[3])), row[4]) for row in table]
    assert said == [tuple(metric) for metric in METRICS]


def test_how_many_sessions_run_is_known_while_they_run(seen: Telemetry) -> None:
    during: list[int] = []

    @step
    async def look() -> None:
        (point,) = seen.points()["pausepoint.sessions.running"]
        during.append(point.value)

    @on_loop
    async def run() -> None:
        async with Engine(":memory:") as engine:
            await (await engine.start(Workflow("looks", state=State, steps=[look]))).outcome()

    run()
    assert during == [1]


# log lines


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(SessionIdFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def places(self) -> dict[str, tuple[str, str, int]]:
        return {each.getMessage(): place(each) for each in self.records}


def place(record: logging.LogRecord) -> tuple[str, str, int]:
    known = vars(record)
    return known["session_id"], known["step"], known["visit"]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    loggers = [logging.getLogger(name) for name in ("pausepoint", "mine")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


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

    retried = ("WARNING", "work: attempt 1 failed, ConnectionError: down; again in 0.0 s")
    assert told("good") == [("INFO", "started"), retried, ("INFO", "completed")]
    assert told("fails")[-1] == ("ERROR", "failed at work after 2 attempts: ConnectionError: down")
    assert told("guarded")[-1] == ("WARNING", "paused (guard): not before noon")
    assert told("later")[0] == ("INFO", "started, paused")
    assert told("later")[1] == ("INFO", "pause requested by eve: dinner")
    assert told("later")[2] == ("INFO", "resumed by eve at work#1, 0 visits skipped")


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
        taken = await engine.resume(session.id, steal=True)
        go.set()
        await taken.outcome()
    (lost,) = [record for record in lines.records if record.levelno == logging.WARNING]
    assert (place(lost), "HoldLost" in lost.getMessage()) == (("s-1", "stuck", 1), True)
    statuses = sorted(attributes(span)["status"] for span in seen.named("session stucks"))
    assert statuses == ["completed", "lost"]


# what observation must not do


class Broken(SpanProcessor):
    """Somebody's own processor, with a mistake in it."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        raise RuntimeError("processor on_start")


def test_a_broken_exporter_or_handler_does_not_touch_the_session(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("filter of a logger")

    logger = logging.getLogger("pausepoint")
    logger.addFilter(broken)
    logger.setLevel(logging.INFO)
    try:
        with telemetry(Broken()) as seen:
            run_brief()
            assert seen.spans == []
    finally:
        logger.removeFilter(broken)
        logger.setLevel(logging.NOTSET)
    printed = capsys.readouterr().err
    assert "processor on_start" in printed
    assert "filter of a logger" in printed


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


def test_without_a_provider_nothing_is_made() -> None:
    with no_providers():
        watch = Watch("s-1", "brief")
        assert (watch.tracer, watch.meters) == (None, None)
        assert watch.operation("a") is watch.operation("b")
        run_brief()
        assert not trace.get_current_span().get_span_context().is_valid


PROGRAM = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
asked = []
if "absent" in sys.argv:
    sys.meta_path.insert(0, Absent())
import asyncio
from pydantic import BaseModel
from pausepoint import Context, Engine, Workflow, step
class State(BaseModel):
    text: str = ""
def greet() -> str:
    return "hello"
@step(writes="text")
async def say(ctx: Context) -> str:
    return await ctx.do(greet)
async def main():
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("says", state=State, steps=[say]))).outcome()
        print(outcome.state.text, asked, [name for name in sys.modules if name.startswith("opentelemetry")])
asyncio.run(main())
"""


@pytest.mark.parametrize("installed", ["absent", "unused"])
def test_a_program_that_does_not_use_opentelemetry_never_loads_it(installed: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, installed],
        cwd=tmp_path, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("hello [] []\n", "")
