"""Blocking code: the same verbs without ``await``, from scripts, threads and under a running loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_overloads

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Outcome, Session, Status, Workflow, run, step
from pausepoint.engine import BlockingEngine, BlockingSelection, BlockingSession, Selection
from pausepoint.engine.blocking import BlockingRequestKeys, BlockingStoreLimits, BlockingStoreSchedules
from pausepoint.engine.drawers import Drawer
from pausepoint.engine.limits import StoreLimits
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.schedules import StoreSchedules
from pausepoint.errors import AlreadyRunning, CallRefused, StateRefused, StoreClosed, StoreError, UnknownSession
from pausepoint.runtime.artifacts import StepArtifact
from pausepoint.runtime.blocking import BlockingDrawer, BlockingFiles, BlockingStepArtifact, BlockingStepFiles
from pausepoint.runtime.chunks import StepFiles
from pausepoint.runtime.files import Files
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import FINISHED, Doc, Pipeline


class Note(BaseModel):
    text: str = ""
    words: int = 0


class Latch:
    """Two steps. An operation of the first reports that it has begun, and waits until a test releases it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.until: Callable[[], object] = self.opened.is_set
        self.runs = 0

        @step(writes="words")
        async def count(text: str, ctx: Context) -> int:
            await ctx.do(self.look)
            return len(text.split())

        @step(writes="text")
        async def shout(text: str) -> str:
            return text.upper()

        self.workflow = Workflow("note", state=Note, steps=[count, shout])

    async def look(self) -> None:
        self.runs += 1
        self.reached.set()
        while not self.until():
            await asyncio.sleep(0.002)


def one_step(fn: Callable[..., Any]) -> Workflow[Note]:
    return Workflow("note", state=Note, steps=[step(writes="words")(fn)])


@pytest.fixture
def engine() -> Iterator[BlockingEngine]:
    with Engine(":memory:") as engine:
        yield engine


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pausepoint loop"]


# the same verbs


def public(kind: type) -> dict[str, Any]:
    """Return the public methods and properties of a class, without settings and parts."""
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: each for name, each in found.items() if inspect.isfunction(each) or isinstance(each, property)}


def parameters(verb: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(verb).parameters.values())


PAIRS = [
    (Engine, BlockingEngine), (Session, BlockingSession), (Selection, BlockingSelection), (Files, BlockingFiles),
    (Drawer, BlockingDrawer), (StoreSchedules, BlockingStoreSchedules), (StoreLimits, BlockingStoreLimits),
    (RequestKeys, BlockingRequestKeys),
]  # fmt: skip
NAMES = [kind.__name__ for kind, _ in PAIRS]


@pytest.mark.parametrize(("kind", "blocking"), PAIRS, ids=NAMES)
def test_every_verb_has_its_blocking_form_and_there_is_none_beside(kind: type, blocking: type) -> None:
    missing = sorted(public(kind).keys() - public(blocking).keys())
    assert not missing, f"add a line for each to {blocking.__name__} in {blocking.__module__}: {missing}"
    assert public(blocking).keys() <= public(kind).keys()


@pytest.mark.parametrize(("kind", "blocking"), PAIRS, ids=NAMES)
def test_a_blocking_verb_has_the_parameters_and_the_words_of_the_async_one(kind: type, blocking: type) -> None:
    for name, verb in public(kind).items():
        here = public(blocking)[name]
        assert type(here) is type(verb), name
        assert here.__doc__ == verb.__doc__, name
        if isinstance(verb, property):
            continue
        assert parameters(here) == parameters(verb), name
        assert not inspect.iscoroutinefunction(here), name
        assert (here.__name__, here.__qualname__) == (name, f"{blocking.__name__}.{name}")


@pytest.mark.parametrize(("kind", "blocking"), PAIRS, ids=NAMES)
def test_a_blocking_verb_never_gives_something_that_must_be_awaited(kind: type, blocking: type) -> None:
    for name, verb in public(blocking).items():
        returns = str(inspect.signature(getattr(verb, "fget", verb)).return_annotation)
        assert not re.search(r"Async|Awaitable|Coroutine|(?<!Blocking)\bSession\[", returns), name
        if "BlockingSession" in returns:  # a session inside a list or tuple would reach the caller unwrapped
            assert re.fullmatch(r"BlockingSession\[\w+(, \w+)?\]", returns), name


STEP_PAIRS = [
    (Context, BlockingContext), (StepFiles, BlockingStepFiles), (StepArtifact, BlockingStepArtifact),
    (Drawer, BlockingDrawer),
]  # fmt: skip
OWN = {"artifact", "chunks", "do", "drawer", "files", "first", "map", "stream"}
"""The verbs whose types or whose work differ in a thread."""


@pytest.mark.parametrize(("kind", "blocking"), STEP_PAIRS, ids=["context", "files", "artifact", "drawer"])
def test_a_def_step_can_call_what_an_async_step_can(kind: type, blocking: type) -> None:
    assert public(blocking).keys() == public(kind).keys()
    for name, verb in public(kind).items():
        if not isinstance(verb, property):
            ours, theirs = parameters(public(blocking)[name]), parameters(verb)
            assert [(each.name, each.kind, each.default) for each in ours] == [
                (each.name, each.kind, each.default) for each in theirs
            ], name


@pytest.mark.parametrize(("kind", "blocking"), STEP_PAIRS, ids=["context", "files", "artifact", "drawer"])
def test_the_signatures_that_a_def_step_sees_are_those_of_the_async_verbs(kind: type, blocking: type) -> None:
    """They are declared a second time, for type checkers, and could drift apart."""
    for name, verb in public(kind).items():
        here = public(blocking)[name]
        if isinstance(verb, property) or name in OWN:
            continue
        assert declared(here) == declared(verb), name
        assert not inspect.iscoroutinefunction(here), name


def declared(verb: Any) -> list[str]:
    verb = inspect.unwrap(verb)
    return [str(inspect.signature(each)) for each in [*get_overloads(verb), verb]]


@pytest.mark.parametrize(("kind", "blocking"), STEP_PAIRS, ids=["context", "files", "artifact", "drawer"])
def test_help_on_a_verb_of_a_def_step_shows_the_words_of_the_async_verb(kind: type, blocking: type) -> None:
    inherited = {"get", "list", "open", "progress"} if kind is StepFiles else set()  # those of `Files`
    for name, verb in public(kind).items():
        here = public(blocking)[name]
        if name not in OWN | inherited and not isinstance(verb, property):
            assert here.__doc__ == verb.__doc__, name
            assert here.__qualname__ == f"{blocking.__name__}.{name}"


def test_running_in_one_line_takes_what_start_takes() -> None:
    extra = {"store"}
    ours = [parameter for parameter in parameters(run) if parameter.name not in extra]
    theirs = [parameter for parameter in parameters(Engine.start) if parameter.name != "self"]
    assert ours == theirs
    assert [parameter.name for parameter in parameters(run)][2] == "store"


# a block


def test_a_session_runs_to_its_end_in_a_plain_with_block(tmp_path: Path) -> None:
    pipeline = Pipeline()
    with Engine(tmp_path / "a.db") as engine:
        session = engine.start(pipeline.workflow, topic="otters", session_id="one")
        outcome = session.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert session.state() == engine.session("one").state() == FINISHED
        assert [info.session_id for info in engine.sessions()] == ["one"]
        assert engine.trouble is None
        assert [visit.step for visit in session.checkpoints(limit=None)] == pipeline.calls
        assert repr(session) == "BlockingSession('one')"
        assert repr(engine) == "BlockingEngine(open)"
    assert repr(engine) == "BlockingEngine(closed)"
    assert loop_threads() == []


def test_a_handle_stays_itself_and_other_handles_are_blocking_too(engine: BlockingEngine) -> None:
    session = engine.start(Pipeline().workflow, paused=True)
    assert session.status() is Status.PAUSED
    assert session.resume() is session
    assert session.outcome().status is Status.COMPLETED
    again = engine.session(session.id)
    assert isinstance(again, BlockingSession)
    assert again.status() is Status.COMPLETED


def test_a_session_can_be_paused_while_it_runs_and_resumed(engine: BlockingEngine) -> None:
    latch = Latch()
    session = engine.start(latch.workflow, text="a b")
    assert latch.reached.wait(PATIENCE)
    assert session.pause("lunch", by="ann")[0].status is Status.PAUSING
    latch.opened.set()
    outcome = session.outcome()
    assert (outcome.status, outcome.state) == (Status.PAUSED, Note(text="a b", words=2))
    assert outcome.pauses[0].reason == "lunch"
    assert engine.session(session.id).resume().outcome().state == Note(text="A B", words=2)


def test_errors_of_a_verb_reach_the_caller(engine: BlockingEngine) -> None:
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        engine.session("nobody").info()
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        engine.session("nobody").info(colour="red")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(StateRefused):
        engine.start(Pipeline().workflow, topic=3)


def test_events_come_while_the_session_runs_until_it_ends(engine: BlockingEngine) -> None:
    latch = Latch()
    session = engine.start(latch.workflow, text="a b")
    kinds = []
    for event in session.events(follow=True):
        kinds.append(event.event_type)
        latch.opened.set()
    assert kinds[0] == "session.created"
    assert kinds[-1] == "session.completed"
    assert [event.event_type for event in engine.session(session.id).events()] == kinds


def test_events_that_are_left_early_are_closed_on_the_loop() -> None:
    latch, outer = Latch(), Engine(":memory:")
    with outer as engine:
        session = engine.start(latch.workflow)
        for event in session.events(follow=True):
            assert event.event_type == "session.created"
            assert list(outer._service.driver.listeners.sessions) == [session.id]
            break
        session.info()  # everything submitted to the loop before is done after this call
        session.info()
        assert outer._service.driver.listeners.sessions == {}
        latch.opened.set()


def test_leaving_the_block_ends_after_the_operation_in_flight_and_leaves_the_session_ready(tmp_path: Path) -> None:
    latch, outer = Latch(), Engine(tmp_path / "a.db")
    latch.until = lambda: outer._service.driver.ending
    with outer as engine:
        engine.start(latch.workflow, text="a b", session_id="one")
        assert latch.reached.wait(PATIENCE)
    with Engine(tmp_path / "a.db", workflows=[latch.workflow]) as engine:
        assert engine.session("one").info().status is Status.READY
        assert engine.session("one").resume().outcome().state == Note(text="A B", words=2)
    assert latch.runs == 1, "the operation was finished before the engine closed, and is remembered"


def test_an_error_in_the_block_passes_and_the_engine_is_closed() -> None:
    with pytest.raises(ZeroDivisionError), Engine(":memory:") as engine:
        _ = 1 // 0
    with pytest.raises(StoreClosed):
        engine.sessions()
    assert loop_threads() == []


def test_a_store_that_cannot_be_opened_is_said_and_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("this is no database, and it is long enough to be looked at" * 100)
    with pytest.raises(StoreError), Engine(tmp_path / "a.db"):
        pass
    assert loop_threads() == []


# where it can be called from


def test_an_interrupt_while_its_thread_starts_passes_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Engine(":memory:").__enter__()
    for thread in loop_threads():
        thread.join(PATIENCE)
    assert loop_threads() == []


def test_several_threads_share_one_engine(engine: BlockingEngine) -> None:
    def work(number: int) -> Outcome[Doc]:
        return engine.start(pipeline.workflow, topic="otters", session_id=f"s{number}").outcome()

    pipeline = Pipeline()
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(work, range(24)))
    assert [outcome.state for outcome in outcomes] == [FINISHED] * 24
    assert len(engine.sessions()) == 24


def test_a_thread_of_its_own_may_open_and_close_an_engine() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: run(Pipeline().workflow, store=":memory:")).result().state == FINISHED


@on_loop
async def test_it_works_under_a_running_loop() -> None:
    with Engine(":memory:") as engine:
        assert engine.start(Pipeline().workflow).outcome().state == FINISHED
    assert run(Pipeline().workflow, store=":memory:").state == FINISHED
    assert asyncio.get_running_loop().is_running()


@on_loop
async def test_only_the_caller_waits() -> None:
    latch = Latch()
    with Engine(":memory:") as engine:
        session = engine.start(latch.workflow, text="a b c")
        waiting = asyncio.create_task(asyncio.to_thread(session.outcome))
        assert await asyncio.to_thread(latch.reached.wait, PATIENCE)
        assert session.status() is Status.RUNNING  # it does not block verbs of other threads
        assert not waiting.done()
        latch.opened.set()
        assert (await waiting).state.words == 3


def test_a_def_step_may_use_the_engine_that_runs_it(engine: BlockingEngine) -> None:
    def count(text: str) -> int:
        return len(engine.sessions()) if text else 0

    assert engine.start(one_step(count), text="a").outcome().state.words == 1


def test_an_async_step_that_calls_it_is_told_that_it_would_wait_for_itself(engine: BlockingEngine) -> None:
    async def count(text: str) -> int:
        return len(engine.sessions()) if text else 0

    failure = engine.start(one_step(count), text="a").outcome().failure
    assert failure is not None
    assert failure.type.endswith("CallRefused")
    assert "asyncio.to_thread" in failure.message

    async def finish(text: str) -> int:
        engine.close()
        return 1

    failure = engine.start(Workflow("other", state=Note, steps=[step(writes="words")(finish)])).outcome().failure
    assert failure is not None
    assert failure.type.endswith("CallRefused")


def test_steps_see_the_context_variables_of_the_caller(engine: BlockingEngine) -> None:
    request = contextvars.ContextVar("request", default=0)

    async def count(text: str) -> int:
        return request.get()

    request.set(7)
    assert engine.start(one_step(count)).outcome().state.words == 7


@pytest.mark.parametrize("way", ["async", "def"])
def test_a_step_that_exits_ends_whoever_waits_for_it_and_nobody_else(engine: BlockingEngine, way: str) -> None:
    async def leave(text: str) -> int:
        sys.exit(7)

    def leave_too(text: str) -> int:
        sys.exit(7)

    session = engine.start(one_step(leave if way == "async" else leave_too))
    with pytest.raises(SystemExit) as exit:
        session.outcome()
    assert exit.value.code == 7
    assert engine.start(Pipeline().workflow).outcome().state == FINISHED


# wrong ways


def test_one_engine_object_is_not_used_both_ways() -> None:
    async def both(outer: Engine) -> None:
        async with outer:
            pass

    outer = Engine(":memory:")
    with outer, pytest.raises(CallRefused, match=r"opened with `with`\. Create another one for `async with`"):
        asyncio.run(both(outer))
    outer = Engine(":memory:")
    asyncio.run(both(outer))
    with pytest.raises(CallRefused, match=r"opened with `async with`\. Create another one for `with`"), outer:
        pass
    assert loop_threads() == []


def test_an_engine_is_opened_once() -> None:
    outer = Engine(":memory:")
    with outer as engine:
        with pytest.raises(StoreClosed, match="Create another"):
            outer.__enter__()
        assert engine.sessions() == []
    with pytest.raises(StoreClosed, match="Create another"), outer:
        pass


def test_the_async_verbs_of_an_engine_that_was_opened_by_with_are_refused() -> None:
    outer = Engine(":memory:")
    with outer, pytest.raises(CallRefused, match="Use the blocking engine"):
        asyncio.run(outer.sessions())


def test_a_closed_engine_says_so_and_closing_twice_is_no_error(engine: BlockingEngine) -> None:
    session = engine.start(Pipeline().workflow)
    engine.close()
    engine.close()
    for verb in (session.info, session.outcome, session.events, engine.sessions):
        with pytest.raises(StoreClosed, match=r"closed\. Open another one"):
            verb()


def test_threads_that_wait_are_told_when_the_engine_is_closed() -> None:
    latch, engine = Latch(), Engine(":memory:").__enter__()
    session = engine.start(latch.workflow, text="a b")
    heard = threading.Event()

    def follow() -> None:
        for _ in session.events(follow=True):
            heard.set()

    with ThreadPoolExecutor(4) as pool:
        followers = [pool.submit(follow) for _ in range(2)]
        assert heard.wait(PATIENCE)
        assert latch.reached.wait(PATIENCE)
        closing = [pool.submit(engine.close) for _ in range(2)]
        while not engine.ending:  # otherwise the session could complete first
            time.sleep(0.001)
        latch.opened.set()
        assert [each.result(PATIENCE) for each in closing] == [None, None]
        for follower in followers:
            assert isinstance(follower.exception(PATIENCE), StoreClosed)
    assert loop_threads() == []


# the one-liner


def test_running_returns_the_outcome_and_keeps_the_session_in_the_store(tmp_path: Path) -> None:
    outcome = run(Pipeline().workflow, Doc(topic="otters"), store=tmp_path / "a.db", session_id="one", tags=["x"])
    assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
    with Engine(tmp_path / "a.db") as engine:
        assert engine.session("one").info().tags == ("x",)


def test_running_uses_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(Pipeline().workflow, topic="otters")
    assert (tmp_path / ".pausepoint" / "pausepoint.db").exists()


def test_a_failed_session_raises_nothing_and_running_again_goes_on_from_there(tmp_path: Path) -> None:
    pipeline = Pipeline()
    pipeline.errors["verdict"] = [ValueError("not yet")]
    outcome = run(pipeline.workflow, store=tmp_path / "a.db", session_id="one")
    assert outcome.status is Status.FAILED
    assert outcome.failure is not None
    assert outcome.failure.message == "not yet"
    outcome = run(pipeline.workflow, store=tmp_path / "a.db", session_id="one")
    assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
    assert pipeline.calls == ["outline", "draft", "verdict", "verdict", "report"]
    assert run(pipeline.workflow, store=tmp_path / "a.db", session_id="one").status is Status.COMPLETED
    assert len(pipeline.calls) == 5


def test_running_a_session_that_pauses_returns_why(tmp_path: Path) -> None:
    outcome = run(Pipeline().workflow, store=tmp_path / "a.db", paused=True, reason="not before nine", by="ann")
    assert outcome.status is Status.PAUSED
    assert [(pause.kind, pause.reason, pause.by) for pause in outcome.pauses] == [
        ("operator", "not before nine", "ann")
    ]
    assert outcome.state == Doc()


def test_threads_may_run_sessions_in_one_store_at_the_same_time(tmp_path: Path) -> None:
    workflow = Pipeline().workflow
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: run(workflow, store=tmp_path / "a.db", topic="otters"), range(8)))
    assert [outcome.state for outcome in outcomes] == [FINISHED] * 8


def test_running_what_somebody_else_drives_is_refused(tmp_path: Path) -> None:
    latch = Latch()
    with Engine(tmp_path / "a.db") as engine:
        engine.start(latch.workflow, session_id="one")
        with pytest.raises(AlreadyRunning):
            run(latch.workflow, store=tmp_path / "a.db", session_id="one")
        latch.opened.set()
