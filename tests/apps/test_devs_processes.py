"""The processes of a command: what it started is found, frozen and ended with it, and nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.devs.commands import KEY, TASK, Commands
from pausepoint.apps.endings import PERSON
from pausepoint.gate import Processes, warden
from tests.apps.devs_kit import alive, lines, pids, task, write_plan
from tests.apps.programs import Devs
from tests.support.forkserver import Forks
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import until

TREE = """\
[ -e once ] && exit 0
touch once
setsid sh -c 'echo session $$ >> began; exec sleep 1000' &
(setsid sh -c 'trap "" TERM; echo orphan $$ >> began; while true; do sleep 1000; done' &)
echo x $$ >> began
"""
"""A child in a session of its own, and one that has lost its parent, too."""

BARE = """env -i PATH="$PATH" setsid sh -c 'echo bare $$ >> began; exec sleep 1000' &
sleep 1000
"""
"""A child in a session of its own that has lost its environment, of a parent that lives."""

COUNTING = """\
echo x $$ >> began
setsid sh -c 'echo child $$ >> began; while [ ! -e stop ]; do echo >> count; sleep 0.01; done' &
while [ ! -e stop ]; do sleep 0.01; done
wait
"""


def state(pid: int) -> str:
    found = warden.look(pid)
    return "" if found is None else found.state.decode()


@pytest.mark.long
@pytest.mark.parametrize("way", ["abort", "interrupt", "kill", "timeout", "end"])
def test_nothing_that_a_command_started_outlives_it(tmp_path: Path, forks: Forks, way: str) -> None:
    last = "while [ $(wc -l < began) -lt 3 ]; do sleep 0.01; done" if way == "end" else BARE
    limit = 1.5 if way == "timeout" else None
    write_plan(tmp_path, [task("x", run=TREE + last, timeout=limit)], grace=0.3)
    devs = Devs(tmp_path, forks)
    child = devs.begin("run", "plan.json")
    begun = 3 if way == "end" else 4
    until(lambda: len(pids(tmp_path)) == begun or (way == "timeout" and not child.is_alive()))
    if way == "abort":
        devs.run("pause", "plan.json", "--abort", "--wait")
        assert not any(map(alive, pids(tmp_path))), "they are gone when it returns"
    elif way == "interrupt":
        child.signal(signal.SIGINT)
        until(lambda: "Interrupt again to end them now" in devs.all_said)
        child.signal(signal.SIGINT)
    elif way == "kill":
        child.signal(signal.SIGKILL)
    devs.ends(child, {"abort": PERSON, "interrupt": 130, "kill": -9, "timeout": 1, "end": 0}[way])
    until(lambda: not any(map(alive, pids(tmp_path))))
    (tmp_path / "work" / "once").touch()  # a busy machine may have ended the command before it did anything
    devs.run("resume", "plan.json")


# one set of processes


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command with the token ``mine``: itself, and an orphan in a session of its own that only the token shows."""
    script = "(setsid sh -c 'echo orphan $$ >> work/began; exec sleep 1000' &)"
    script += "; echo x $$ >> work/began; exec sleep 1000"
    (tmp_path / "work").mkdir()
    env = os.environ | {Processes.TOKEN: "mine"}
    command = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, env=env, start_new_session=True)
    until(lambda: len(pids(tmp_path)) == 2)
    # While a process becomes another program, its environment cannot be read.
    until(lambda: all(Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep") for pid in pids(tmp_path)))
    yield command
    for pid in pids(tmp_path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    command.wait()


def test_an_orphan_is_found_by_its_token_and_without_it_would_be_missed(
    tmp_path: Path, tree: subprocess.Popen[bytes]
) -> None:
    orphan = next(int(line.split()[1]) for line in lines(tmp_path, "began") if line.startswith("orphan"))
    blind = Processes()
    blind.add(tree.pid, "another token")
    assert [each.pid for each in blind.find()] == [tree.pid], "the fault is real"
    processes = Processes()
    processes.add(tree.pid, "mine")
    assert {each.pid for each in processes.find()} == {tree.pid, orphan}
    processes.end(5)
    assert not alive(orphan)


AGENT = """
import os, signal, subprocess, sys, threading, time

def stop(*_):
    open("stopping", "w").close()
    time.sleep(1)
    os._exit(143)

def call():
    waits = "import time; open('work/hooked', 'a').write('began'); time.sleep(1000)"
    subprocess.run([sys.executable, "-I", "-c", waits, os.environ["HOOK"]], start_new_session=True)
    open("called", "w").close()

signal.signal(signal.SIGTERM, stop)
threading.Thread(target=call, daemon=True).start()
while True:
    signal.pause()
"""
"""An agent that needs a second to end, and makes its call as soon as the hook has ended."""


@pytest.mark.long
@pytest.mark.parametrize("hook", [warden.HOOK, "another program"])
def test_an_agent_that_is_ended_does_not_make_the_call_for_which_its_hook_waits(tmp_path: Path, hook: str) -> None:
    (tmp_path / "work").mkdir()
    words, env = [sys.executable, "-c", AGENT], os.environ | {Processes.TOKEN: "mine", "HOOK": hook}
    with subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True) as agent:
        until(lambda: bool(lines(tmp_path, "hooked")))
        processes = Processes()
        processes.add(agent.pid, "mine")
        processes.end(PATIENCE)
    assert (tmp_path / "stopping").exists()
    assert (tmp_path / "called").exists() == (hook != warden.HOOK), "a hook that is not known as one shows the fault"
    assert processes.find() == []


STARTING = """
import os, signal
os.mkfifo("fifo")
reads = [(os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)]
os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, file_actions=reads)
signal.pause()
"""
"""A program whose child cannot run ``sleep`` before someone opens the other end of a FIFO."""


def test_a_child_that_is_stopped_before_it_runs_its_program_does_not_keep_its_parent_from_being_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = os.environ | {Processes.TOKEN: "mine"}
    with subprocess.Popen([sys.executable, "-c", STARTING], cwd=tmp_path, env=env, start_new_session=True) as parent:
        processes = Processes()
        processes.add(parent.pid, "mine")
        until(lambda: len(processes.find()) == 2 and state(parent.pid) == "D")
        child = processes.find()[1]
        sent: list[tuple[int, signal.Signals]] = []
        opened: list[int] = []

        def send(process: warden.Process, number: signal.Signals) -> bool:
            sent.append((process.pid, number))
            was_sent = original(process, number)
            if sent[-1] == (child.pid, signal.SIGSTOP) and sent.count(sent[-1]) == 1:
                until(lambda: state(child.pid) == "T")
                opened.append(os.open(tmp_path / "fifo", os.O_RDWR))
            return was_sent

        original = warden.send
        monkeypatch.setattr(warden, "send", send)
        monkeypatch.setattr(warden, "PATIENCE", PATIENCE)
        assert processes.freeze()
        assert (state(parent.pid), state(child.pid)) == ("T", "T")
        assert [number for pid, number in sent if pid == child.pid] == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP]
        processes.end(PATIENCE)
        os.close(opened[0])


def test_no_process_is_ended_that_is_not_ours(
    tmp_path: Path, tree: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = warden.look(tree.pid)
    assert theirs is not None
    later = theirs._replace(start=theirs.start - 1)
    assert not warden.send(later, signal.SIGKILL), "another process got the number"
    reused = Processes()
    monkeypatch.setattr(warden, "look", lambda pid: later if pid == tree.pid else None)
    reused.add(tree.pid, "another token")
    monkeypatch.undo()
    assert reused.find() == [], "another process leads a group of that number"
    by_token = Processes()
    by_token.add(2**22 + 1, "mine")  # no process has that number
    monkeypatch.setattr(warden, "_environment", lambda pid: ())
    assert by_token.find() == [], "an environment that cannot be read proves nothing"
    monkeypatch.undo()
    assert tree.pid in {each.pid for each in by_token.find()}
    assert alive(tree.pid)


def test_what_was_stopped_before_a_freeze_stays_stopped_after_it(tmp_path: Path, tree: subprocess.Popen[bytes]) -> None:
    orphan = next(int(line.split()[1]) for line in lines(tmp_path, "began") if line.startswith("orphan"))
    os.kill(orphan, signal.SIGSTOP)
    until(lambda: state(orphan) == "T")
    processes = Processes()
    processes.add(tree.pid, "mine")
    assert processes.freeze()
    assert (state(tree.pid), state(orphan)) == ("T", "T")
    processes.thaw()
    until(lambda: state(tree.pid) == "S")
    assert state(orphan) == "T"
    processes.end(5)
    assert not alive(orphan), "a stopped process is ended, too"


# freezing


class Frozen:
    """A run whose command, with a child in a session of its own, was frozen while it counts in a file."""

    def __init__(self, folder: Path, forks: Forks, everything: bool = False) -> None:
        self.folder = folder
        write_plan(folder, [task("x", run=COUNTING), task("y", ["x"])])
        self.devs = Devs(folder, forks)
        self.child = self.devs.begin("run", "plan.json")
        until(lambda: len(pids(folder)) == 2 and self.count > 2)
        if everything:
            with Engine(self.devs.store, drives="none") as engine:
                engine.pause_all(freeze=True, wait=True)
        else:
            assert "plan is paused" in self.devs.run("pause", "plan.json", "--freeze", "--wait")
        until(lambda: all(state(pid) == "T" for pid in pids(folder)))

    @property
    def count(self) -> int:
        return len(lines(self.folder, "count"))


@pytest.mark.long
@pytest.mark.parametrize("everything", [False, True], ids=["one", "everything"])
def test_a_frozen_command_stands_still_and_continues_in_the_same_process(
    tmp_path: Path, forks: Forks, everything: bool
) -> None:
    frozen = Frozen(tmp_path, forks, everything)
    before = frozen.count
    assert "stopped" in frozen.devs.run("status", "plan.json", "--json")
    assert frozen.count == before
    until(lambda: "This process stays with the commands of: x." in frozen.devs.all_said)
    with Engine(frozen.devs.store, drives="none") as engine:
        engine.lift_pause() if everything else None
        engine.session("plan").resume(here=False)
    until(lambda: frozen.count > before + 2)
    (tmp_path / "work" / "stop").touch()
    frozen.devs.ends(frozen.child, 0)
    assert [line.split()[0] for line in lines(tmp_path, "began")] == ["x", "child", "y"], "each was started once"


@pytest.mark.long
@pytest.mark.parametrize("way", ["abort", "interrupt", "kill", "cancel"])
def test_a_frozen_command_is_ended_with_all_its_processes(tmp_path: Path, forks: Forks, way: str) -> None:
    frozen = Frozen(tmp_path, forks)
    until(lambda: "This process stays with the commands of: x." in frozen.devs.all_said)
    if way == "abort":
        frozen.devs.run("pause", "plan.json", "--abort")
    elif way == "cancel":
        frozen.devs.run("cancel", "plan")
    else:
        frozen.child.signal(signal.SIGINT if way == "interrupt" else signal.SIGKILL)
    until(lambda: not any(map(alive, pids(tmp_path))))
    frozen.devs.ends(frozen.child, {"abort": PERSON, "interrupt": 130, "kill": -9, "cancel": 1}[way])
    (tmp_path / "work" / "stop").touch()
    if way != "cancel":
        frozen.devs.run("resume", "plan.json", "--edits", "accept")


@on_loop
async def test_a_command_does_not_inherit_the_gate_of_an_agent_that_runs_devs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAUSEPOINT_GATE", "/outer.sock")
    monkeypatch.setenv("PAUSEPOINT_GATE_ON_LOSS", "open")
    async with Commands(tmp_path / ".devs", grace=0.2, env={}) as commands:
        ran = await commands.run("env", tmp_path, tmp_path / "log", 60, {})
    assert [line.partition("=")[0] for line in ran.tail.splitlines() if "PAUSEPOINT_GATE" in line] == [
        "PAUSEPOINT_GATE_TOKEN"
    ]


class Clock:
    """A clock that can be put forward."""

    later = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.later


@on_loop
async def test_frozen_time_does_not_count_and_a_new_key_ends_the_kept_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("pausepoint.apps.devs.commands.time", clock)
    async with Commands(tmp_path / ".devs", grace=0.2, env={}) as commands:
        command = "echo x $$ >> began; while [ ! -e go ]; do sleep 0.01; done"
        (tmp_path / "work").mkdir()

        stopped = asyncio.Event()

        async def safe_point() -> None:
            stopped.set()

        async def keeps(is_frozen: bool) -> bool:
            return True

        async def run(key: str, limit: float | None = None) -> int | None:
            env = {KEY: key, TASK: "x"}
            ran = await commands.run(command, tmp_path / "work", tmp_path / "log", limit, env, safe_point=safe_point)
            return ran.code

        async def frozen(key: str, limit: float | None = None) -> asyncio.Task[int | None]:
            began = len(pids(tmp_path))
            running = asyncio.ensure_future(run(key, limit))
            while len(pids(tmp_path)) == began:
                await asyncio.sleep(0.01)
            stopped.clear()
            commands.freezing.set()
            await stopped.wait()
            return running

        commands.keeps = keeps
        running = await frozen("1", 600.0)
        clock.later += 1_000.0
        (tmp_path / "work" / "go").touch()
        commands.freezing.clear()
        assert await running == 0
        (tmp_path / "work" / "go").unlink()
        running = await frozen("2")
        running.cancel()
        await asyncio.wait([running])
        assert list(commands.kept) == ["x"]
        commands.freezing.clear()
        (tmp_path / "work" / "go").touch()
        assert await run("3") == 0
        assert not alive(pids(tmp_path)[-2])
        assert not commands.kept
