"""A process that is suspended with Ctrl+Z or SIGSTOP: what it keeps locked, and what others can still do."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.children import Child, child
from tests.support.waits import until

SLOW_COMMIT = """
import signal, threading, time
from pausepoint.stores.sqlite import writer
os.setpgid(0, 0)  # as a shell does: the default action of SIGTSTP needs it
commit = writer.Transactions._commit
def slow(transactions, place, trace):
    if (threading.current_thread() is threading.main_thread()) in watched:
        say("in a transaction")
        time.sleep(0.3)
    commit(transactions, place, trace)
writer.Transactions._commit = slow
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
        while (line := running.line()) == "in a transaction":
            pass
        assert set(line.split()) == {"completed"}
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
