"""A pause holds a step in place: nothing is unwound, and a resume from anywhere continues it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Session, Status, Workflow, step
from pausepoint.engine import control
from pausepoint.errors import DefinitionError
from pausepoint.model import SessionId
from pausepoint.runtime import waker
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import outside
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash
from tests.support.status import settled
from tests.support.waits import async_until

pytestmark = pytest.mark.no_always_replay("counts the runs of the step's body")

PAUSE = "UPDATE workflow_states SET pause_requested = {} WHERE session_id = 's'"


class Files(BaseModel):
    count: int = 6
    names: list[str] = []


class Sandbox:
    """A resource that a step opens once and uses in each operation. A test decides when an operation may end."""

    def __init__(self, until: int = 3) -> None:
        self.files: list[str] = []  # in the open sandbox
        self.ran: list[int] = []
        self.history: list[str] = []
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.until = until
        self.workflow = Workflow("agent", state=Files, steps=[self._agent()])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.history.append("open")
        self.files = []
        try:
            yield
        finally:
            self.history.append("close")

    async def write(self, number: int) -> int:
        self.ran.append(number)
        self.files.append(f"{number}.txt")
        if number == self.until:
            self.reached.set()
            await self.go.wait()
        return number

    def _agent(self) -> Any:
        @step(writes="names")
        async def agent(count: int, ctx: Context) -> list[str]:
            async with self.open():
                for number in range(1, count + 1):
                    await ctx.do(self.write, number)
                return list(self.files)

        return agent

    async def held(self, engine: Engine, **how: Any) -> Session[Files]:
        """Start a session, and pause it in its third operation."""
        session = await engine.start(self.workflow, session_id="s")
        await self.reached.wait()
        await session.pause(**how)
        self.go.set()
        await settled(session, Status.PAUSED)
        assert self.ran == [1, 2, 3]
        return session

    async def ends(self, session: Session[Files], in_place: bool = True) -> None:
        """Check that the session completes with each operation done once."""
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        assert self.ran == [1, 2, 3, 4, 5, 6]
        assert self.history == (["open", "close"] if in_place else ["open", "close"] * 2)
        assert outcome.state.names == [f"{number}.txt" for number in range(1 if in_place else 4, 7)]


async def kept(session: Session[Any]) -> bool:
    return (await session.info()).kept_by is not None


# in one process


@on_loop
async def test_a_held_step_keeps_its_sandbox_and_a_resume_continues_it() -> None:
    box = Sandbox()
    async with Engine(":memory:") as engine:
        session = await box.held(engine)
        info = await session.info()
        assert (info.status, info.holder, box.history) == (Status.PAUSED, None, ["open"])
        assert info.kept_by is not None
        assert (await session.outcome()).status is Status.PAUSED
        assert engine.running == ()
        await engine.idle()
        await session.resume(by="ada")
        await box.ends(session)
        resumed = await engine.session("s").last_event("session.resumed")
        assert resumed is not None
        assert (resumed.data["in_place"], resumed.data["by"], resumed.data["skipped"]) == (True, "ada", 0)


@on_loop
async def test_a_step_that_pauses_at_its_end_runs_all_its_operations() -> None:
    box = Sandbox()
    whole = Workflow("agent", state=Files, steps=[box._agent()], pause="step")
    async with Engine(":memory:") as engine:
        session = await engine.start(whole)
        await box.reached.wait()
        await session.pause()
        box.go.set()
        outcome = await session.outcome()
        assert (box.ran, outcome.status) == ([1, 2, 3, 4, 5, 6], Status.COMPLETED)


def test_where_a_step_pauses_is_checked() -> None:
    with pytest.raises(DefinitionError, match="Step 'late': pause must be 'operation' or 'step', not 'later'"):

        @step(pause="later")  # type: ignore[call-overload,untyped-decorator]
        def late() -> None: ...

    @step(pause="operation")
    async def inner(ctx: Context) -> None: ...

    @step
    async def outer(ctx: Context) -> None: ...

    found = Workflow("w", state=Files, steps=[inner, outer], pause="step")
    assert [each.pause for each in found.steps] == ["operation", "step"]
    with pytest.raises(DefinitionError, match="pause must be 'operation' or 'step', not 'never'"):
        Workflow("w", state=Files, steps=[outer], pause="never")  # type: ignore[arg-type]


@pytest.mark.parametrize("hold", [-1, float("nan"), float("inf"), "long"])
def test_a_hold_is_a_time(hold: Any) -> None:
    with pytest.raises(ValueError, match="hold must be a timedelta or a number of seconds, 0 or more"):
        Engine(":memory:", hold=hold)
    with pytest.raises(DefinitionError, match="hold must be a timedelta or a number of seconds, 0 or more"):
        Workflow("w", state=Files, steps=[Sandbox()._agent()], hold=hold)


@on_loop
async def test_a_workflow_can_set_its_own_hold() -> None:
    box = Sandbox()
    box.workflow = Workflow("agent", state=Files, steps=[box._agent()], hold=0)
    async with Engine(":memory:") as engine:
        session = await box.held(engine)
        assert box.history == ["open", "close"]
        assert not await kept(session)


@pytest.mark.parametrize("after", ["its hold", "an abort", "no hold at all"])
@on_loop
async def test_a_step_exits(after: str) -> None:
    box = Sandbox()
    async with Engine(":memory:", hold={"its hold": 0.05, "an abort": 60, "no hold at all": 0}[after]) as engine:
        session = await box.held(engine)
        if after == "an abort":
            assert await kept(session)
            await session.pause(mode="abort")
        await async_until(lambda: box.history == ["open", "close"])
        while await kept(session):
            await asyncio.sleep(0.001)
        assert await session.status() is Status.PAUSED
        await session.resume()
        await box.ends(session, in_place=False)


@on_loop
async def test_closing_the_engine_makes_a_held_step_exit_and_counts_no_crash(tmp_path: Path) -> None:
    box = Sandbox()
    async with Engine(tmp_path / "h.db") as engine:
        await box.held(engine)
    assert box.history == ["open", "close"]
    async with Engine(tmp_path / "h.db", workflows=[box.workflow]) as engine:
        row = await engine._service.row("s")
        assert (row.status, row.kept_by, row.crashes) == (Status.PAUSED, None, 0)
        await box.ends(await engine.session("s").resume(), in_place=False)


async def _edit(session: Session[Any]) -> None:
    await session.edit(count=6)


async def _rewind(session: Session[Any]) -> None:
    await session.rewind("agent", reuse=True)


async def _cancel(session: Session[Any]) -> None:
    assert await session.cancel() is Status.CANCELLED


async def _emit(session: Session[Any]) -> None:
    await session._engine.session(session.id).emit("noted", "from outside")


@pytest.mark.parametrize("verb", [_edit, _rewind, _cancel, _emit])
@on_loop
async def test_a_verb_that_changes_a_held_session_takes_the_hold_over(verb: Any) -> None:
    box = Sandbox()
    async with Engine(":memory:") as engine:
        session = await box.held(engine)
        await verb(session)
        await async_until(lambda: box.history == ["open", "close"])
        assert not await kept(session)
        if verb is not _cancel:
            await session.resume()
            await box.ends(session, in_place=False)


@pytest.mark.parametrize("how", [{"steal": True}, {"wake": True}, {"code": "accept"}, {"pause_after": "agent"}])
@on_loop
async def test_a_resume_that_changes_the_run_starts_the_step_again(how: dict[str, Any]) -> None:
    box = Sandbox()
    async with Engine(":memory:") as engine:
        session = await box.held(engine)
        await session.resume(**how)
        await box.ends(session, in_place=False)


@pytest.mark.long
@on_loop
async def test_a_session_that_is_paused_again_and_again_is_held_each_time() -> None:
    box = Sandbox(until=0)

    @step(writes="names")
    async def agent(count: int, ctx: Context) -> list[str]:
        async with box.open():
            for number in range(count):
                await ctx.do(box.write, number + 1)
                await asyncio.sleep(0.001)
            return list(box.files)

    workflow = Workflow("agent", state=Files, steps=[agent])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, count=60)
        while await session.status() is not Status.COMPLETED:
            await session.pause()
            await asyncio.sleep(0.002)
            await session.resume()
            await asyncio.sleep(0.003)
        assert box.ran == list(range(1, 61))
        assert box.history == ["open", "close"]


@on_loop
async def test_held_time_is_neither_the_steps_time_nor_its_timeout() -> None:
    box = Sandbox()

    @step(writes="names", timeout=PATIENCE)
    async def agent(count: int, ctx: Context) -> list[str]:
        async with box.open():
            for number in range(1, count + 1):
                await ctx.do(box.write, number)
            return list(box.files)

    box.workflow = Workflow("agent", state=Files, steps=[agent])
    async with Engine(":memory:") as engine:
        began = time.monotonic()
        session = await box.held(engine)
        drive = engine._service.driver.drive("s")
        assert drive is not None and drive.interrupter.timer is None  # noqa: PT018
        await asyncio.sleep(0.3)
        await session.resume()
        await box.ends(session)
        [checkpoint] = await session.checkpoints()
        assert checkpoint.took.total_seconds() <= time.monotonic() - began - 0.3


@pytest.mark.parametrize("end", ["returns", "raises"])
@on_loop
async def test_the_end_of_a_step_that_ends_while_it_is_held_waits_for_the_resume(end: str) -> None:
    ended, began, leave, left = (asyncio.Event() for _ in range(4))

    async def first() -> None:
        began.set()
        await ended.wait()

    async def never() -> None:
        raise AssertionError("it was halted")

    @step(writes="names")
    async def impatient(ctx: Context) -> list[str]:
        await ctx.do(first)
        halted = asyncio.ensure_future(ctx.do(never))
        await leave.wait()
        halted.cancel()
        left.set()
        if end == "raises":
            raise ValueError("too late")
        return ["left early"]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Files, steps=[impatient]))
        await began.wait()
        await session.pause()
        ended.set()
        await settled(session, Status.PAUSED)
        leave.set()
        await left.wait()
        await asyncio.sleep(0.05)  # the step ends meanwhile
        assert await session.status() is Status.PAUSED
        await session.resume()
        outcome = await session.outcome()
        if end == "raises":
            assert (outcome.status, outcome.failure and outcome.failure.message) == (Status.FAILED, "too late")
        else:
            assert (outcome.status, outcome.state.names) == (Status.COMPLETED, ["left early"])


@on_loop
async def test_map_items_and_blocking_steps_are_held_too() -> None:
    began, go, ran = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def item(name: str) -> str:
        ran.append(name)
        loop.call_soon_threadsafe(began.set)
        go.wait(PATIENCE)
        return name

    @step(writes="names")
    def threaded(ctx: BlockingContext) -> list[str]:
        ran.append("top")
        return ctx.map(item, ["a", "b", "c"], concurrency=2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Files, steps=[threaded]))
        await began.wait()
        await session.pause()
        go.set()
        await settled(session, Status.PAUSED)
        assert await kept(session)
        assert sorted(ran) == ["a", "b", "top"]
        await session.resume()
        assert (await session.outcome()).state.names == ["a", "b", "c"]
        assert sorted(ran) == ["a", "b", "c", "top"]


@on_loop
async def test_a_question_that_is_reached_while_pausing_is_asked_after_the_resume() -> None:
    began, go, tops = asyncio.Event(), asyncio.Event(), list[str]()

    async def work() -> None:
        began.set()
        await go.wait()

    @step(writes="names")
    async def asks(ctx: Context) -> list[str]:
        tops.append("top")
        await ctx.do(work)
        return [await ctx.ask("Which?", key="which")]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Files, steps=[asks]))
        await began.wait()
        await session.pause()
        go.set()
        await settled(session, Status.PAUSED)
        assert (await kept(session), await engine.questions()) == (True, [])
        await session.resume()
        await settled(session, Status.WAITING)
        assert tops == ["top"]
        await session.answer("this")
        assert (await session.outcome()).state.names == ["this"]


@on_loop
async def test_a_branch_that_waits_beside_a_halted_operation_is_held_with_it() -> None:
    began, go, tops, ran = asyncio.Event(), asyncio.Event(), list[str](), list[int]()

    async def work(number: int) -> int:
        ran.append(number)
        if number == 1:
            began.set()
            await go.wait()
        return number

    @step(writes="names")
    async def both(ctx: Context) -> list[str]:
        tops.append("top")

        async def works() -> None:
            for number in (1, 2):
                await ctx.do(work, number)

        got, _ = await asyncio.gather(ctx.receive(), works())
        return [got]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Files, steps=[both]))
        await began.wait()
        await session.pause()
        go.set()
        await settled(session, Status.PAUSED)
        assert (await kept(session), ran) == (True, [1])
        await session.send("hello")
        await session.resume()
        assert (await session.outcome()).state.names == ["hello"]
        assert (tops, ran) == (["top"], [1, 2])


@on_loop
async def test_in_a_tree_the_child_is_held_and_its_parent_exits() -> None:
    box = Sandbox()

    @step(writes="names")
    async def parent(ctx: Context) -> list[str]:
        return (await ctx.call(box.workflow)).names

    family = Workflow("family", state=Files, steps=[parent])
    async with Engine(":memory:") as engine:
        session = await engine.start(family)
        await box.reached.wait()
        await session.pause()
        box.go.set()
        await settled(session, Status.PAUSED)
        [child] = await session.children()
        below = engine.session(child.session_id)
        await settled(below, Status.PAUSED)
        assert (await kept(session), await kept(below)) == (False, True)
        await session.resume()
        assert (await session.outcome()).state.names == [f"{number}.txt" for number in range(1, 7)]
        assert box.history == ["open", "close"]


@on_loop
async def test_held_sessions_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker, "MOST_RUNNING", 3)
    boxes = [Sandbox() for _ in range(4)]

    @step
    async def nap(ctx: Context) -> None:
        await ctx.sleep(0.01)

    async with Engine(":memory:") as engine:
        for number, box in enumerate(boxes):
            workflow = Workflow(f"agent{number}", state=Files, steps=[box._agent()])
            session = await engine.start(workflow, session_id=f"s{number}")
            await box.reached.wait()
            await session.pause()
            box.go.set()
            await settled(session, Status.PAUSED)
            assert await kept(session)
        napper = await engine.start(Workflow("nap", state=Files, steps=[nap]))
        assert (await napper.outcome()).status is Status.COMPLETED


# in two processes


@asynccontextmanager
async def two(box: Sandbox, path: Path, **options: Any) -> AsyncIterator[tuple[Engine, Engine]]:
    """Open two engines on one store. Only the first one knows the workflow."""
    async with Engine(SqliteStore(path, **options), signals=False) as keeper, Engine(path, signals=False) as other:
        yield keeper, other


@pytest.mark.parametrize("here", [False, True])
@on_loop
async def test_whoever_resumes_a_held_session_it_continues_in_place(tmp_path: Path, here: bool) -> None:
    box = Sandbox()
    async with two(box, tmp_path / "h.db") as (keeper, other):
        session = await box.held(keeper)
        await other.session("s").resume(by="ada", here=here)
        await box.ends(session)


@on_loop
async def test_a_pause_from_another_process_stops_the_next_operation(tmp_path: Path) -> None:
    """The keeper looks before each operation: it need not have polled, nor committed, since the pause was stored."""
    box = Sandbox()
    paused = asyncio.Event()

    @step(writes="names")
    async def agent(ctx: Context) -> list[str]:
        await ctx.do(box.write, 1)
        box.reached.set()
        await paused.wait()
        return [str(await ctx.do(box.write, 2))]

    workflow = Workflow("agent", state=Files, steps=[agent])
    async with two(box, tmp_path / "h.db", poll=3600.0) as (keeper, other):
        session = await keeper.start(workflow, session_id="s")
        await box.reached.wait()
        await other.session("s").pause()
        await asyncio.sleep(0.01)
        paused.set()
        await settled(session, Status.PAUSED)
        assert box.ran == [1]


@on_loop
async def test_the_database_can_be_used_to_pause_and_resume_a_held_session(tmp_path: Path) -> None:
    box = Sandbox()
    path = tmp_path / "h.db"
    async with Engine(path) as engine:
        session = await engine.start(box.workflow, session_id="s")
        await box.reached.wait()
        outside(path, PAUSE.format(1))
        await async_until(lambda: bool((drive := engine._service.driver.drive("s")) and drive.must_stop))
        box.go.set()
        await settled(session, Status.PAUSED)
        assert await kept(session)
        outside(path, PAUSE.format(0))
        await async_until(lambda: box.history == ["open", "close"])
        await box.ends(session)


@pytest.mark.parametrize("when", ["before the resume", "after the resume"])
@on_loop
async def test_a_keeper_that_is_killed_leaves_the_session_to_others_without_a_crash(tmp_path: Path, when: str) -> None:
    box = Sandbox()
    path = tmp_path / "h.db"
    keeper = await Engine(MortalStore(path, poll=3600.0), signals=False).__aenter__()
    await box.held(keeper)
    async with Engine(path, signals=False) as other:
        if when == "after the resume":  # nobody but the keeper could drive it
            await other.session("s").resume(here=False)
        await crash(keeper)
        row = await other._service.row("s")
        assert (row.kept_by, row.crashes) == (None, 0)
        other.register(box.workflow)
        other._service.waker.poke()
        session = other.session("s")
        if when == "before the resume":
            assert row.status is Status.PAUSED
            await session.resume()
        else:
            assert row.status is Status.READY  # and due, so that the waker picks it up
            while await session.status() is Status.READY:
                await asyncio.sleep(0.001)
        outcome = await session.outcome()
        assert (outcome.status, box.ran) == (Status.COMPLETED, [1, 2, 3, 4, 5, 6])


@on_loop
async def test_a_keeper_that_does_not_react_loses_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "KEEPER_PATIENCE", 0.05)
    box = Sandbox()
    async with two(box, tmp_path / "h.db", poll=3600.0) as (keeper, other):
        await box.held(keeper)
        other.register(box.workflow)
        session = await other.session("s").resume()
        outcome = await session.outcome()
        assert (outcome.status, box.ran) == (Status.COMPLETED, [1, 2, 3, 4, 5, 6])
        assert box.history.count("close") == 1  # the keeper still has its step
        keeper._service.driver.on_change()
        await async_until(lambda: box.history.count("close") == 2)
        assert keeper._service.driver.troubles == {}


@pytest.mark.long
@on_loop
async def test_sessions_that_are_paused_and_resumed_at_random_do_each_operation_once(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    async def work(session_id: str, number: int) -> int:
        ran.append((session_id, number))
        await asyncio.sleep(0.001)
        return number

    @step(writes="names")
    async def agent(session_id: SessionId, ctx: Context) -> list[str]:
        return [str(await ctx.do(work, session_id, number)) for number in range(12)]

    workflow = Workflow("agent", state=Files, steps=[agent])
    async with two(Sandbox(), tmp_path / "h.db") as (keeper, other):
        sessions = [await keeper.start(workflow, session_id=f"s{n}") for n in range(6)]
        for turn in range(400):
            engine = (keeper, other)[turn % 2]
            name = f"s{turn * 7 % 6}"
            if (await engine.session(name).info()).status is Status.COMPLETED:
                continue
            await engine.session(name).pause()
            await asyncio.sleep(0.002 * (turn % 3))
            await engine.session(name).resume(here=engine is keeper)
        for session in sessions:
            assert len((await session.outcome()).state.names) == 12
    assert sorted(ran) == sorted((f"s{n}", number) for n in range(6) for number in range(12))
