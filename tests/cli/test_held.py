"""A step that a pause holds in place, as the commands show it: where it is kept, and where a resume continues it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner

from pausepoint import Engine
from pausepoint.cli.app import app
from pausepoint.errors import WrongOwner
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, within

CODE = """
import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Talk(BaseModel):
    done: int = 0


async def call(number: int) -> int:
    await asyncio.sleep(0.02)
    return number


@step(writes="done")
async def act(ctx: Context) -> int:
    with open("opened.txt", "a") as file:
        file.write("opened\\n")
    print("acting", flush=True)
    number = 0
    while not Path("enough").exists():
        number = await ctx.do(call, number + 1)
    return number


agent = Workflow("agent", state=Talk, steps=[act])
"""
TARGET = ("--target", "agent.py")
HELD = "continues the step in place"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(CODE)
    return tmp_path


def opened(folder: Path) -> int:
    return len((folder / "opened.txt").read_text().splitlines())


async def withdraw(engine: Engine) -> None:
    await engine.session("x").resume(here=False)


def pid_of(process: Process) -> str:
    return f"process {process.child.pid} on "


async def budget(engine: Engine) -> float | None:
    return (await engine.session("x").info()).budget_usd


@pytest.fixture
def keeper(folder: Path) -> Iterator[Process]:
    """A worker that keeps the step of the paused session x in memory."""
    assert run("run", "agent.py", "--session-id", "x", "--paused", cwd=folder).code == 3
    with Process("worker", *TARGET, cwd=folder) as worker:
        worker.until("Driving agent")
        within(folder / STORE, withdraw)
        worker.until("acting")
        assert run("pause", "x", "--wait", cwd=folder).code == 0
        yield worker


@pytest.mark.long
def test_at_a_terminal_a_paused_step_stays_and_a_resume_without_the_code_continues_it(folder: Path) -> None:
    words = ("run", "agent.py", "--session-id", "x", "--owner", "ann")
    with Process(*words, cwd=folder, tty=True, size=(120, 24)) as process:
        process.until("0 of 1 step")
        paused = run("pause", "x", "--wait", cwd=folder)
        assert f"paused     at act, kept in {pid_of(process)}" in paused.stdout
        process.until(HELD)
        assert f"step kept by  {pid_of(process)}" in run("show", "x", cwd=folder).stdout
        with chdir(folder):
            for options in (["--dry-run"], ["--from", "act"], ["--pause-after", "act"]):  # these need the code
                refused = CliRunner().invoke(app, ["resume", "x", *options])
                assert (refused.exit_code, "workflow 'agent'" in refused.stderr) == (2, True), refused.stderr
            wrong = CliRunner().invoke(app, ["resume", "x", "--owner", "bob"])
            assert isinstance(wrong.exception, WrongOwner)
        assert "status        paused" in run("show", "x", cwd=folder).stdout
        resume = paused.stderr.splitlines()[0].partition("pausepoint ")[2].split()
        done = run(*resume, "--owner", "ann", "--budget", "9", cwd=folder)
        assert done.code == 0, done
        assert within(folder / STORE, budget) == 9
        assert re.fullmatch(rf"The pause of x is withdrawn\. It continues in {pid_of(process)}\S+\.\n", done.stdout)
        process.until("Resumed in place: act continues")
        (folder / "enough").touch()
        assert process.wait().code == 0
    assert opened(folder) == 1


def test_without_a_terminal_a_paused_step_exits(folder: Path) -> None:
    with Process("run", "agent.py", "--session-id", "x", cwd=folder) as process:
        process.until("Running step: act")
        assert run("pause", "x", "--wait", cwd=folder).code == 0
        done = process.wait()
    assert (done.code, done.stdout.splitlines()[-1]) == (3, "Resume:  pausepoint resume x --target agent.py")
    assert "kept" not in run("show", "x", cwd=folder).stdout


@pytest.mark.long
def test_without_a_terminal_a_resume_does_not_wait_for_a_step_that_another_process_keeps(
    folder: Path, keeper: Process
) -> None:
    with Process("resume", "x", *TARGET, cwd=folder) as process:
        process.until("Resumed in place")
        assert run("pause", "x", "--wait", cwd=folder).code == 0
        done = process.wait()
    assert (done.code, done.stdout.splitlines()[-1]) == (3, "Resume:  pausepoint resume x --target agent.py")
    assert (opened(folder), keeper.child.poll()) == (1, None)


@pytest.mark.long
def test_ctrl_c_in_a_command_that_only_watches_says_where_the_session_continues(folder: Path, keeper: Process) -> None:
    with Process("resume", "x", *TARGET, cwd=folder, tty=True, size=(120, 24)) as process:
        process.until("running")
        process.type("\x03")
        done = process.wait()
    *_, first, last = [line.strip() for line in plain(done.stdout).rstrip().splitlines()]
    assert done.code == 130
    assert re.search(rf"Interrupted\. Session x continues in {pid_of(keeper)}\S+\.$", first)
    assert last == "Watch:  pausepoint watch x"
    assert "status      running" in run("show", "x", cwd=folder).stdout


@pytest.mark.long
def test_a_lift_does_not_ask_for_the_code_of_a_step_that_a_process_keeps(folder: Path, keeper: Process) -> None:
    within(folder / STORE, withdraw)
    keeper.until("in place")
    assert run("pause", "--all", "--wait", cwd=folder).code == 0
    lifted = run("resume", "--all", cwd=folder)
    assert (lifted.code, lifted.stderr) == (0, "")
    kept, continued = f"ready      at act, kept in {pid_of(keeper)}", f"running    act ({pid_of(keeper)}"
    assert kept in lifted.stdout or continued in lifted.stdout  # the keeper may be faster than the report
    (folder / "enough").touch()
    keeper.until("completed")
    keeper.signal(signal.SIGTERM)
    assert (keeper.wait().code, opened(folder)) == (143, 1)
