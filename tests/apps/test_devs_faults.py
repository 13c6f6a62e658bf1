"""Devs as real processes: commands that do not want to end, and a second process at the same run.

`tests.apps.test_faults` kills, interrupts and pauses a small plan in every phase. 1_PRD-REQ-UI-008: one button stops
all agents after what they are at, and the run goes on cleanly afterwards, in another process too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.devs_kit import alive, effects, pids, task, write_plan
from tests.apps.programs import Devs
from tests.support.forkserver import Forks
from tests.support.waits import until

STUBBORN = """\
if [ -e once ]; then exec sh task.sh x; fi
touch once
trap '' TERM
sh -c 'trap "" TERM; echo child $$ >> began; exec sleep 1000' &
echo x $$ >> began
while true; do sleep 1000; done
"""


@pytest.mark.long
@pytest.mark.parametrize("way", ["pause", "signals", "kill"])
def test_a_command_that_ignores_sigterm_is_ended_with_all_that_it_started(
    tmp_path: Path, forks: Forks, way: str
) -> None:
    """By an abort, by a second Ctrl+C, and by the death of the process that ran it."""
    write_plan(tmp_path, [task("x", run=STUBBORN)], grace=0.2)
    devs = Devs(tmp_path, forks)
    child = devs.begin("run", "plan.json")
    until(lambda: len(pids(tmp_path)) == 2)
    assert all(map(alive, pids(tmp_path)))
    if way == "pause":
        devs.run("pause", "plan.json", "--abort", "--wait")
        devs.ends(child, 3)
        assert "plan is paused: 1 stopped" in devs.all_said
    elif way == "signals":
        child.signal(signal.SIGINT)
        until(lambda: "Interrupt again to end them now" in devs.all_said)
        child.signal(signal.SIGINT)
        devs.ends(child, 130)
    else:
        child.signal(signal.SIGKILL)
        devs.ends(child, -9)
    until(lambda: not any(map(alive, pids(tmp_path))))
    devs.run("resume", "plan.json")
    assert effects(tmp_path) == ["x"]


def test_without_the_warden_that_test_would_find_an_orphan(tmp_path: Path) -> None:
    """The fault is real: a plain child in a session of its own outlives its parent."""
    script = """
import os, subprocess
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True, **quiet)
print(orphan.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    orphan = int(done.stdout)
    assert (done.returncode, alive(orphan)) == (-9, True)
    os.kill(orphan, signal.SIGKILL)


@pytest.mark.long
def test_the_next_process_waits_until_what_a_killed_one_left_is_ended(tmp_path: Path, forks: Forks) -> None:
    write_plan(tmp_path, [task("x", run=STUBBORN)], grace=3)
    devs = Devs(tmp_path, forks)
    child = devs.begin("run", "plan.json")
    until(lambda: len(pids(tmp_path)) == 2)
    child.signal(signal.SIGKILL)
    devs.ends(child, -9)
    devs.run("resume", "plan.json")
    assert f"Another process was working in {devs.work}. Its commands have ended now" in devs.all_said
    assert effects(tmp_path) == ["x"]
    assert not any(map(alive, pids(tmp_path)))


@pytest.mark.long
def test_a_second_process_is_told_who_works_on_a_run_and_status_shows_the_graph(tmp_path: Path, forks: Forks) -> None:
    devs = Devs(tmp_path, forks)
    held = devs.hold_task("b")
    child = devs.met("run", "plan.json", at="during b")
    devs.run("resume", "plan.json", code=5)
    assert "Run plan is driven by" in devs.all_said
    for verb in ("skip", "rewind"):
        devs.run(verb, "plan.json", "d", code=5)
        assert f"Stop it first: {sys.executable}" in devs.all_said
    assert devs.all_said.count("pause plan.json --wait") == 2
    until(lambda: effects(devs.folder) == ["a", "c"])
    shown = devs.run("status", "plan.json")
    graph = [line.split() for line in shown.splitlines()]
    assert graph[0][:2] == ["plan", "running"]
    assert [row[1] for row in graph[1:]] == ["a", "b", "c", "d"]
    assert "agent-" in shown
    held.unlink()
    devs.ends(child, 0)
    devs.result()
