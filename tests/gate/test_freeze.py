"""`pause --freeze`: the commands of an agent stop in the middle, and continue after the resume, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.gate import warden
from pausepoint.gate.guests import _is_alive, agent_note
from tests.cli.kit import Process, run
from tests.gate.kit import Project, ended
from tests.support.loop import excused, on_loop
from tests.support.waits import async_until

COUNTING = """\
echo $$ >> {name}.pids
setsid sh -c 'echo $$ >> {name}.pids; while [ ! -e {name}.stop ]; do echo >> {name}.count; sleep 0.01; done' &
while [ ! -e {name}.stop ]; do sleep 0.01; done
wait
"""
"""A command with a child in a session of its own, which counts until the file `stop` exists."""


class Counter:
    """A counting command of an agent. The call ``control`` is one that nobody freezes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    @property
    def count(self) -> int:
        path = self.folder / f"{self.name}.count"
        return path.stat().st_size if path.exists() else 0

    @property
    def pids(self) -> list[int]:
        path = self.folder / f"{self.name}.pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def states(self) -> set[str]:
        processes = [warden.look(pid) for pid in self.pids]
        return {process.state.decode() for process in processes if process is not None}

    @property
    def has_begun(self) -> bool:
        return self.count > 0 and len(self.pids) == 2

    async def grows(self) -> None:
        """Wait until the command has counted on."""
        start = self.count
        await async_until(lambda: self.count > start + 5)

    async def stands_still(self, control: Counter) -> None:
        """Check that the command does not count while another one does."""
        assert self.states == {"T"}
        start = self.count
        await control.grows()
        assert self.count == start

    def stop(self) -> None:
        (self.folder / f"{self.name}.stop").touch()


@pytest.fixture
def control(project: Project) -> Iterator[Counter]:
    """A counter that is not an agent's. At the end, all counters of the project are ended."""
    counter = Counter(project.folder, "control")
    command = subprocess.Popen(["sh", "-c", COUNTING.replace("{name}", "control")], cwd=project.folder)
    yield counter
    for path in project.folder.glob("*.pids"):
        for pid in Counter(project.folder, path.stem).pids:
            if warden.look(pid) is not None:
                os.kill(pid, signal.SIGKILL)
    command.wait()


@pytest.mark.long
@on_loop
async def test_a_frozen_call_stops_in_the_middle_and_is_made_once(project: Project, control: Counter) -> None:
    counter = Counter(project.folder, "ada-1")
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "1", "--own-session", "--command", COUNTING)
        await async_until(lambda: counter.has_begun)
        for _ in range(2):
            await engine.session("claude-ada").pause(freeze=True, wait=True)
            await counter.stands_still(control)
            await async_until(lambda: _says(engine, "frozen)"))
            assert not (await agent_note(engine, await engine.session("claude-ada").info())).call, "it has begun"
            await engine.session("claude-ada").resume()
            await counter.grows()
        assert not list(project.socket.parent.glob("*.frozen"))
        counter.stop()
        await ended([running])
        assert project.done == {"ada-1": 1}
        await async_until(lambda: not list(agents))
        assert (await engine.session("claude-ada").info()).status.value == "completed"


async def _says(engine: Engine, text: str) -> bool:
    return text in (await agent_note(engine, await engine.session("claude-ada").info())).background


@pytest.mark.long
@on_loop
async def test_commands_in_the_background_are_frozen_and_the_hook_is_not(project: Project, control: Counter) -> None:
    """And they continue when the server ends, because nobody else would continue them."""
    counter = Counter(project.folder, "ada-1")
    async with project.served() as (engine, agents):
        options = ["--calls", "2", "--background", "--command", COUNTING, "--linger", "0", "--think", "0.5"]
        running = await project.agent("ada", *options)
        await async_until(lambda: counter.has_begun)
        await engine.pause_all(freeze=True)
        await async_until(lambda: counter.states == {"T"})
        await async_until(lambda: any(gate.waiting for gate in agents))
        await counter.stands_still(control)
    await counter.grows()
    async with project.served() as (engine, agents):
        await async_until(lambda: counter.states == {"T"})  # the hook has found the next server
        await engine.lift_pause()
        await counter.grows()
        for name in ("ada-1", "ada-2"):
            Counter(project.folder, name).stop()
        await ended([running])
        assert project.done == {"ada-1": 1, "ada-2": 1}


@pytest.mark.long
@on_loop
async def test_a_pause_that_aborts_ends_no_command_of_an_agent(project: Project, control: Counter) -> None:
    """The agent and its commands belong to their person. The session is paused at once."""
    counter = Counter(project.folder, "ada-1")
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "2", "--command", COUNTING)
        await async_until(lambda: counter.has_begun)
        await engine.session("claude-ada").pause(mode="abort", wait=True)
        await counter.grows()
        counter.stop()
        await async_until(
            lambda: any(gate.waiting for gate in agents)
        )  # the call has ended while the session was paused
        Counter(project.folder, "ada-2").stop()
        await engine.session("claude-ada").resume()
        await ended([running])
        assert project.done == {"ada-1": 1, "ada-2": 1}
        await async_until(lambda: not list(agents))


@pytest.mark.long
@on_loop
async def test_after_a_kill_of_the_server_the_next_one_thaws(project: Project, control: Counter) -> None:
    """Both for a session that was resumed meanwhile, and for one that is resumed later."""
    ada, bob = Counter(project.folder, "ada-1"), Counter(project.folder, "bob-1")
    with excused(), ExitStack() as servers:
        server = servers.enter_context(Process("gate", "serve", cwd=project.folder))
        server.until("stop here when they are paused")
        running = [
            await project.agent(name, "--calls", "1", "--own-session", "--command", COUNTING) for name in ("ada", "bob")
        ]
        await async_until(lambda: ada.has_begun and bob.has_begun)
        done = run("pause", "--all", "--freeze", "--wait", cwd=project.folder)
        assert (done.code, ada.states, bob.states) == (0, {"T"}, {"T"})
        server.signal(signal.SIGKILL)
        assert server.wait().code == -9
        run("resume", "--all", cwd=project.folder)
        run("pause", "claude-bob", "--freeze", cwd=project.folder)
        assert (ada.states, bob.states) == ({"T"}, {"T"}), "nobody could continue them"
        server = servers.enter_context(Process("gate", "serve", cwd=project.folder))
        await ada.grows()
        await bob.stands_still(control)
        run("resume", "claude-bob", cwd=project.folder)
        await bob.grows()
        ada.stop()
        bob.stop()
        await ended(running)
        assert project.done == {"ada-1": 1, "bob-1": 1}


def test_another_process_with_the_number_of_an_agent_is_not_the_agent() -> None:
    process = warden.look(os.getpid())
    assert process is not None
    assert _is_alive(process.pid, process)
    assert not _is_alive(process.pid, process._replace(start=process.start - 1))
    assert _is_alive(0, None), "its hook does not know it"
    ended = subprocess.Popen(["true"])
    before = warden.look(ended.pid)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert not _is_alive(ended.pid, before), "it has ended, although nobody has read its exit code"
    ended.wait()
    assert not _is_alive(ended.pid, None)
