"""Ctrl+C, SIGTERM, forks and forgotten engines in blocking programs: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from tests.cli.kit import Process
from tests.support.children import script

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from pydantic import BaseModel
from pausepoint import *

def say(*words): print(*words, flush=True)

def leaving():
    "Whether the engine was told to end."
    ends = [task.get_coro() for task in asyncio.all_tasks() if task.get_coro().__name__ == "_stop"]
    return any(each.cr_frame.f_locals["self"]._wrapped._service.driver.ending for each in ends)

def waits(where):
    "Whether the main thread is in a function of this name."
    frame, names = sys._current_frames()[threading.main_thread().ident], []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return where in names

class Job(BaseModel):
    how: str
    first: str = ""
    second: str = ""

async def patient(name):
    say("begun", name)
    while not leaving() and not again:
        await asyncio.sleep(0.002)
    say("finished", name)
    return name

async def elsewhere(name):
    "Sends the signal to the loop's thread: it interrupts no wait, like one that comes right before the wait begins."
    while not waits("_wait"):
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.1)  # by now the main thread sleeps in the wait; if it does not, nothing is proved
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    return await patient(name)

async def endless(name):
    say("begun", name)
    while not leaving():
        await asyncio.sleep(0.002)
    say("leaving")
    await asyncio.Event().wait()

async def stuck(name):
    say("begun", name)
    while not waits("_close_all"):  # the main thread has begun to close the engine
        time.sleep(0.002)
    say("leaving")
    time.sleep(60)

@step(writes="first")
async def one(how: str, ctx: Context) -> str:
    return await ctx.do(globals()[how], "first")

@step(writes="second")
async def two(how: str, ctx: Context) -> str:
    return await ctx.do(globals()[how], "second")

job = Workflow("job", state=Job, steps=[one, two])
path, how, again = sys.argv[1], sys.argv[2], sys.argv[3:] == ["again"]

"""

RUN = 'say(run(job, store=path, session_id="x", how=how).status.value)\n'
OUTCOME = """
with Engine(path) as engine:
    say(engine.start(job, session_id="x", how=how).outcome().status.value)
"""
UNDER_A_LOOP = """
async def cell():
    with Engine(path) as engine:
        say(engine.start(job, session_id="x", how=how).outcome().status.value)
asyncio.run(cell())
"""


def status_of(path: Path) -> Status:
    with Engine(path) as engine:
        return engine.session("x").info().status


def operations(path: Path) -> list[str]:
    with Engine(path) as engine:
        return [event.summary for event in engine.session("x").events() if event.event_type == "operation.completed"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("waiting", "number", "code"),
    [
        (RUN, signal.SIGINT, -signal.SIGINT),
        (RUN, signal.SIGTERM, 143),
        (OUTCOME, signal.SIGINT, -signal.SIGINT),
        (UNDER_A_LOOP, signal.SIGINT, -signal.SIGINT),
    ],
    ids=["run-int", "run-term", "outcome-int", "loop-int"],
)
def test_a_signal_ends_the_program_after_the_operation_in_flight(
    tmp_path: Path, waiting: str, number: signal.Signals, code: int
) -> None:
    path = tmp_path / "a.db"
    with script(PROGRAM + waiting, path, "patient") as program:
        program.expect("begun first")
        program.signal(number)
        program.expect("finished first")
        assert program.line() == ""
        assert program.ended() == code
    assert status_of(path) is Status.READY
    with script(PROGRAM + waiting, path, "patient", "again") as program:
        assert [program.line() for _ in range(3)] == ["begun second", "finished second", "completed"]
        assert program.ended() == 0


@pytest.mark.long
def test_a_signal_that_interrupts_no_wait_is_not_lost(tmp_path: Path) -> None:
    with script(PROGRAM + RUN, tmp_path / "a.db", "elsewhere") as program:
        program.expect("begun first")
        program.expect("finished first")
        assert program.ended() == -signal.SIGINT


ANSWER = """
import time
from pathlib import Path
from pausepoint import BlockingContext, run, workflow

def look_up() -> None:
    print("begun", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)

@workflow
def answer(ctx: BlockingContext) -> None:
    ctx.do(look_up)

"""

RUN_ANSWER = "run(answer)"

ASYNC_WITH = """
import asyncio
from pausepoint import Engine

async def main():
    async with Engine(workflows=[answer]) as engine:
        await (await engine.start(answer)).outcome()

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [RUN_ANSWER, ASYNC_WITH], ids=["run", "async with"])
@pytest.mark.parametrize("ends_by", ["operation", "second"])
def test_ctrl_c_says_at_once_what_a_plain_script_waits_for(tmp_path: Path, program: str, ends_by: str) -> None:
    with Process("-c", ANSWER + program, cwd=tmp_path, tty=True, program=()) as script:
        script.until("begun")
        script.interrupt()
        script.until("SIGINT received. Waiting for look_up; finished work is kept. Press Ctrl+C again to abort it.")
        if ends_by == "second":
            script.signal(signal.SIGINT)
        else:
            (tmp_path / "go").touch()
        assert script.wait().code == -signal.SIGINT
    with Engine(tmp_path / ".pausepoint" / "pausepoint.db") as engine:
        (info,) = engine.sessions()
        kinds = [event.event_type for event in engine.session(info.session_id).events()]
    assert ("operation.completed" in kinds) == (ends_by == "operation")


def test_ctrl_c_writes_nothing_to_a_stderr_that_is_no_terminal(tmp_path: Path) -> None:
    with Process("-c", ANSWER + RUN_ANSWER, cwd=tmp_path, program=()) as script:
        script.until("begun")
        script.signal(signal.SIGINT)
        (tmp_path / "go").touch()
        done = script.wait()
    assert (done.code, "Waiting for" in done.stdout) == (-signal.SIGINT, False)


@pytest.mark.long
def test_a_second_signal_aborts_the_operation(tmp_path: Path) -> None:
    with script(PROGRAM + RUN, tmp_path / "a.db", "endless") as program:
        program.expect("begun first")
        program.signal(signal.SIGINT)
        program.expect("leaving")
        assert program.popen.poll() is None, "the first one waits for the operation"
        program.signal(signal.SIGINT)
        assert program.ended() == -signal.SIGINT
    assert status_of(tmp_path / "a.db") in (Status.READY, Status.CREATED)


@pytest.mark.long
def test_a_third_signal_ends_a_program_whose_loop_is_blocked(tmp_path: Path) -> None:
    with script(PROGRAM + RUN, tmp_path / "a.db", "stuck") as program:
        program.expect("begun first")
        program.signal(signal.SIGTERM)
        program.expect("leaving")
        for patience in (0.2, 3.0, 3.0):  # two simultaneous signals count as one, so one more may be needed
            program.signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                program.popen.wait(patience)
                break
        assert program.ended() == 143


CAUGHT = """
async def cell():
    with Engine(path) as engine:
        session = engine.start(job, session_id="x", how=how)
        try:
            say("waiting")
            session.outcome()
        except KeyboardInterrupt:
            say(session.status().value)
            say(session.pause("lunch")[0].status.value)
            again.append(1)
            say(session.outcome().status.value)
again = []
asyncio.run(cell())
"""


@pytest.mark.long
def test_an_interrupt_gives_control_back_and_the_session_runs_on(tmp_path: Path) -> None:
    with script(PROGRAM + CAUGHT, tmp_path / "a.db", "patient") as program:
        assert {program.line(), program.line()} == {"begun first", "waiting"}
        program.signal(signal.SIGINT)
        assert [program.line() for _ in range(4)] == ["running", "pausing", "finished first", "paused"]
        assert program.ended() == 0


CLOSING = """
with Engine(path) as engine:
    engine.start(job, session_id="x", how=how)
    say(sys.stdin.readline().strip())
"""


@pytest.mark.long
def test_a_signal_while_the_engine_closes_by_itself_is_not_lost(tmp_path: Path) -> None:
    with script(PROGRAM + CLOSING, tmp_path / "a.db", "endless") as program:
        program.expect("begun first")
        program.tell("bye")
        assert {program.line(), program.line()} == {"bye", "leaving"}
        program.signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            program.popen.wait(0.1)
        program.signal(signal.SIGINT)
        assert program.ended() == -signal.SIGINT


FORGOTTEN = """
engine = Engine(path).__enter__()
engine.start(job, session_id="x", how=how)
say(sys.stdin.readline().strip())
"""


@pytest.mark.long
def test_an_engine_that_nobody_closed_is_closed_when_the_program_ends(tmp_path: Path) -> None:
    with script(PROGRAM + FORGOTTEN, tmp_path / "a.db", "patient") as program:
        program.expect("begun first")
        program.tell("bye")
        assert {program.line(), program.line()} == {"bye", "finished first"}
        assert program.ended() == 0
    assert status_of(tmp_path / "a.db") is Status.READY
    assert operations(tmp_path / "a.db") == ["patient"]


FORKED = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
with Engine(path) as engine:
    session = engine.start(job, session_id="x", how=how)
    child = os.fork()
    if child == 0:
        for verb in (session.info, session.outcome, engine.sessions):
            try:
                verb()
            except PausepointError as error:
                say(type(error).__name__)
    else:
        say(os.waitpid(child, 0)[1])
        again = True
        say(session.outcome().status.value)
"""


@pytest.mark.long
def test_a_forked_child_is_refused_and_can_leave_the_block(tmp_path: Path) -> None:
    with script(PROGRAM + FORKED, tmp_path / "a.db", "patient") as program:
        program.expect("begun first")
        assert [program.line() for _ in range(4)] == ["StoreClosed"] * 3 + ["0"]
        assert [program.line() for _ in range(4)] == ["finished first", "begun second", "finished second", "completed"]
        assert program.ended() == 0


IGNORED = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
def mine(number, frame): say("mine")
signal.signal(signal.SIGTERM, mine)
with Engine(path, workflows=[job]) as engine:
    os.kill(os.getpid(), signal.SIGINT)
    with Engine(path, signals=False):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    say(len(engine.sessions()))
os.kill(os.getpid(), signal.SIGTERM)
say(signal.getsignal(signal.SIGINT).name)
"""


@pytest.mark.long
def test_an_ignored_signal_stays_ignored_and_a_handler_of_the_program_stays_in_place(tmp_path: Path) -> None:
    with script(PROGRAM + IGNORED, tmp_path / "a.db", "patient") as program:
        assert [program.line() for _ in range(4)] == ["mine", "0", "mine", "SIG_IGN"]
        assert program.ended() == 0
