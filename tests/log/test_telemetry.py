"""Spans and metrics of sessions. They must not slow down or break anything."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, use_span

from pausepoint import BlockingContext, Context, Engine, Retry, Status, Workflow, guard, step
from pausepoint.errors import StoreUnavailable
from pausepoint.log.telemetry import METRICS, Watch
from pausepoint.model.commits import Commit
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.docs.pages import DOCS, code, rows, section
from tests.log.brief import SECRET, State, attributes, look_up, parent_of, run_brief, run_failing, trace_id, workflow
from tests.support.loop import PATIENCE, on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled
from tests.support.telemetry import Telemetry, no_providers, telemetry


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
        await engines[0].session("s-1").pause(reason="lunch")

    @step(writes="notes")
    async def long(ctx: Context) -> list[str]:
        await ctx.do(ask_for_a_pause)
        await ctx.safe_point()
        return [await ctx.do(look_up, "b")]

    @on_loop
    async def run() -> None:
        async with Engine(":memory:", hold=0) as engine:  # a step that is held in place keeps its spans open
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
    assert (attributes(left)["status"], left.status.status_code, left.events) == ("exited", StatusCode.UNSET, ())
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
        await ctx.sleep(60)
        return "awake"

    @on_loop
    async def run() -> None:
        clock = ManualClock()
        with seen.tracer.start_as_current_span("program"):
            async with Engine(":memory:", clock=clock) as engine:
                session = await engine.start(Workflow("naps", state=State, steps=[nap]))
                await settled(session, Status.SLEEPING)
                clock.advance(60)
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
    """Run something of everything that is counted."""

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


class Broken(SpanProcessor):
    """A user's span processor with a bug."""

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


@pytest.mark.long
@pytest.mark.parametrize("installed", ["absent", "unused"])
def test_a_program_that_does_not_use_opentelemetry_never_loads_it(installed: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, installed],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("hello [] []\n", "")
