"""A process that is suspended with Ctrl+Z or SIGSTOP: what it keeps locked, and what others can still do."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status, workflow
from pausepoint.engine import flags
from pausepoint.errors import StoreUnavailable
from pausepoint.model.sessions import Pause
from pausepoint.stores.base import Store
from pausepoint.stores.pause_flag import Version
from pausepoint.stores.sqlite import everything, writer
from tests.support.children import Child, child, outside_sql
from tests.support.loop import on_loop
from tests.support.waits import async_until, until

SLOW_COMMIT = """
import signal, threading, time
from pausepoint.stores.sqlite import transactions
os.setpgid(0, 0)  # as a shell does: the default action of SIGTSTP needs it
commit = transactions.Transactions._commit
def slow(transactions, place, trace):
    if (threading.current_thread() is threading.main_thread()) in watched:
        say("in a transaction")
        time.sleep(0.3)
    commit(transactions, place, trace)
transactions.Transactions._commit = slow
watched = []
"""

AGENTS = """
async def op(i): return i
@workflow
async def agent(ctx: Context) -> None:
    await ctx.do(op, 1)
"""


def state_of(pid: int) -> str:
    """Return the state of a process as the kernel names it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_locked(path: Path) -> bool:
    """Return whether another process has the write lock. No engine of this process has the file open."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


def suspended_in_a_transaction(running: Child, number: int) -> None:
    running.expect("in a transaction")
    running.signal(number)
    until(lambda: state_of(running.pid) == "T", "the process was not suspended")


def said_after(running: Child) -> str:
    """Return what a process says after its transactions."""
    while (line := running.line()) == "in a transaction":
        pass
    return line


@pytest.mark.long
@pytest.mark.parametrize("on_loop", [True, False], ids=["on the loop's thread", "on the writer's thread"])
def test_ctrl_z_waits_for_the_end_of_a_transaction(tmp_path: Path, on_loop: bool) -> None:
    program = f"""
async with Engine(args[0], workflows=[agent]) as engine:
    watched.append({on_loop})
    begun = [await engine.start(agent, session_id=f"a{{n}}") for n in range({1 if on_loop else 3})]
    say(*[(await session.outcome()).status for session in begun])
    watched.clear()
assert signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL
"""
    path = tmp_path / "p.db"
    with child(SLOW_COMMIT + AGENTS + program, path) as running:
        for _ in range(2):  # the handler is there again after the first time
            suspended_in_a_transaction(running, signal.SIGTSTP)
            assert not is_locked(path)
            running.signal(signal.SIGCONT)
        assert set(said_after(running).split()) == {"completed"}
        assert running.ended() == 0


def test_a_program_keeps_its_own_handler_of_ctrl_z(tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGTSTP, lambda number, frame: say("the program decides"))
async with Engine(args[0]) as engine:
    os.kill(os.getpid(), signal.SIGTSTP)
os.kill(os.getpid(), signal.SIGTSTP)
"""
    with child("import signal\n" + program, tmp_path / "p.db") as running:
        running.expect("the program decides")
        running.expect("the program decides")
        assert running.ended() == 0


# SIGSTOP: it cannot be handled, so the process keeps the database locked

THEIRS = """
async def op(i):
    say(f"op {i}")
    watched.append(True)
    return i
@workflow
async def agent(ctx: Context) -> None:
    for i in range(2):
        await ctx.do(op, i)
async with Engine(args[0], workflows=[agent]) as engine:
    say((await (await engine.start(agent, session_id="theirs")).outcome()).status)
    await heard()
"""

PAUSE = """
async with Engine(args[0], drives="none") as engine:
    await engine.pause_all(reason="stop", by="ann")
    say("paused")
"""

ROW_FIRST = """
from pausepoint.stores.sqlite.everything import EverythingRequest
async def insist(self, pause, stands, act):
    say("asked")
    return await act()
EverythingRequest.insist = insist
"""


@workflow
async def note(ctx: Context) -> str:
    return "noted"


@contextmanager
def stopped(path: Path) -> Iterator[Child]:
    """Run a process until it is in the middle of the commit of its first operation, and stop it there."""
    with child(SLOW_COMMIT + THEIRS, path) as running:
        running.expect("op 0")
        suspended_in_a_transaction(running, signal.SIGSTOP)
        yield running


def flag_of(path: Path) -> Path:
    return Path(f"{path}-paused")


@pytest.mark.long
@on_loop
async def test_the_error_names_the_suspended_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOCK_PATIENCE", 0.05)
    async with Engine(tmp_path / "p.db", workflows=[note]) as engine:
        with stopped(tmp_path / "p.db") as running:
            way_out = rf"Process {running.pid} \(.+\) has been suspended .* `kill -CONT {running.pid}`, or end it with"
            with pytest.raises(StoreUnavailable, match=way_out):
                await engine.start(note, session_id="ours")
            running.signal(signal.SIGCONT)
            assert said_after(running) == "op 1"
        assert (await (await engine.start(note, session_id="ours")).outcome()).result == "noted"


@pytest.mark.long
@pytest.mark.parametrize("flag_first", [True, False], ids=["the flag first", "a twin that waits for the row"])
@on_loop
async def test_a_pause_of_everything_takes_effect_before_it_can_be_stored(tmp_path: Path, flag_first: bool) -> None:
    path, entered, opened, ran = tmp_path / "p.db", asyncio.Event(), asyncio.Event(), list[str]()

    async def charge() -> None:
        ran.append("charge")

    @workflow
    async def ours(ctx: Context) -> None:
        entered.set()
        await opened.wait()
        await ctx.do(charge)

    async with Engine(path, workflows=[ours]) as engine:
        session = await engine.start(ours, session_id="ours")
        await entered.wait()
        with stopped(path) as theirs, child(("" if flag_first else ROW_FIRST) + PAUSE, path) as pauser:
            if not flag_first:
                pauser.expect("asked")
                opened.set()
                await async_until(lambda: ran, "the twin held the operation, too")
                return
            await async_until(flag_of(path).exists)
            opened.set()
            await async_until(lambda: (drive := engine._service.driver.drive("ours")) and drive.keeps_step)
            assert ran == []
            standing = await engine.standing_pause()
            assert standing is not None
            assert (standing.by, standing.reason) == ("ann", "stop")
            theirs.signal(signal.SIGCONT)
            assert said_after(theirs) == "paused", "the process that was continued begins no operation either"
            pauser.expect("paused")
            assert (await session.outcome()).status is Status.PAUSED
            [paused] = [event async for event in session.events() if event.event_type == "session.paused"]
            assert paused.summary == "paused by ann: stop"
            assert "request" not in json.loads(flag_of(path).read_text())
            await engine.lift_pause()
            await async_until(lambda: ran)
            assert not flag_of(path).exists()
        assert await engine.standing_pause() is None


@on_loop
async def test_a_pause_that_is_stored_just_after_a_commit_holds_the_next_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was requested before the commit, and its request is gone when the commit's engine looks for it."""
    path, ran = tmp_path / "p.db", list[int]()
    version = everything.EverythingRequest.version

    async def op(i: int) -> None:
        ran.append(i)

    @workflow
    async def ours(ctx: Context) -> None:
        for i in range(3):
            await ctx.do(op, i)

    def pausing(self: everything.EverythingRequest) -> Version:
        if ran == [0]:
            ran.append(-1)
            with child(PAUSE, path) as pauser:
                pauser.expect("paused")
        return version(self)

    monkeypatch.setattr(everything.EverythingRequest, "version", pausing)
    async with Engine(path, workflows=[ours]) as engine:
        session = await engine.start(ours, session_id="ours")
        assert (await session.outcome()).status is Status.PAUSED
    assert ran == [0, -1]


@pytest.mark.long
@on_loop
async def test_a_request_whose_process_was_killed_is_stored_by_the_next_engine_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with stopped(path) as theirs, child(PAUSE, path) as pauser:
        until(flag_of(path).exists)
        pauser.signal(signal.SIGKILL)
        pauser.ended()
        async with Engine(path, drives="none") as engine:
            assert (await engine.standing_pause()) is not None, "an engine that only looks sees it, too"
        theirs.signal(signal.SIGKILL)
        theirs.ended()
    assert outside_sql(path, "SELECT * FROM standing_pause") == []
    async with Engine(path, workflows=[note]) as engine:
        session = await engine.start(note, session_id="ours")
        assert await session.status() is Status.PAUSED
        assert [row["by"] for row in outside_sql(path, 'SELECT "by" FROM standing_pause')] == ["ann"]
        assert "request" not in json.loads(flag_of(path).read_text())
        await engine.lift_pause()
        assert (await session.outcome()).status is Status.COMPLETED
        assert not flag_of(path).exists()
    async with Engine(path, workflows=[note]) as engine:
        assert await engine.standing_pause() is None


@on_loop
async def test_a_request_that_was_stored_and_lifted_is_not_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes are killed before they have brought the flag file in line."""

    async def killed(store: Store) -> None: ...

    path = tmp_path / "p.db"
    async with Engine(path, workflows=[note]) as engine:
        monkeypatch.setattr(flags, "show", killed)
        await engine.pause_all(by="ann")
        assert "request" in json.loads(flag_of(path).read_text())
        await engine.lift_pause()
    async with Engine(path, workflows=[note]) as engine:
        assert (await (await engine.start(note, session_id="ours")).outcome()).status is Status.COMPLETED
        assert await engine.standing_pause() is None
        monkeypatch.undo()
    assert flag_of(path).exists()
    async with Engine(path):
        assert not flag_of(path).exists()


@on_loop
async def test_a_request_beside_a_pause_that_is_stored_asks_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes pause everything at the same time, and one is killed before it has stored its request."""

    async def killed(store: Store) -> None: ...

    path = tmp_path / "p.db"
    async with Engine(path, workflows=[note]) as engine:
        await engine.pause_all(by="ann")
        monkeypatch.setattr(flags, "show", killed)
        await engine.pause_all(by="ben")
        assert "request" not in json.loads(flag_of(path).read_text()), "there is nothing to store"
        flag = engine.store.flag()
        assert flag is not None
        flag.ask(Pause("1", "operator", "", "cid", 1, standing=True))
        session = await engine.start(note, session_id="ours")
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED, "a person resumed it after the pause"
        assert outside_sql(path, "SELECT count(*) AS n FROM pause_rounds") == [{"n": 1}]


@pytest.mark.long
@on_loop
async def test_the_pause_is_tried_until_it_is_stored_and_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "LOCK_PATIENCE", 0.05)
    monkeypatch.setattr(everything, "NOTICE", 0.01)
    path = tmp_path / "p.db"
    with stopped(path) as theirs:
        async with Engine(path, drives="none") as engine:
            pausing = asyncio.create_task(engine.pause_all())
            await async_until(lambda: caplog.text.count(f"`kill -CONT {theirs.pid}`") >= 3)
            assert not pausing.done()
            assert (
                f"Its flag file {flag_of(path)} is written: no engine and no gate begins anything new." in caplog.text
            )
            monkeypatch.undo()  # their process may write for longer than that
            theirs.signal(signal.SIGCONT)
            [info] = await pausing
            assert info.session_id == "theirs"
            assert outside_sql(path, "SELECT count(*) AS n FROM pause_rounds") == [{"n": 1}]


@on_loop
async def test_a_pause_that_fails_for_another_reason_leaves_no_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.db"
    async with Engine(path, drives="none") as engine:
        for name in (str(path), f"{path}-wal", f"{path}-shm"):
            Path(name).rename(f"{name}.away")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await engine.pause_all()
        assert not flag_of(path).exists()
