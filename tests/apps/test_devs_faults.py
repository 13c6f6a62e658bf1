"""Devs as real processes, struck at every phase of a small plan: killed, interrupted, paused from elsewhere, aborted.

1_PRD-REQ-UI-008: one button stops all agents after what they are at, and the run goes on cleanly afterwards, in another
process too. Each task takes effect once, in order, and no command outlives the process that ran it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.apps.devs_kit import NEEDS, alive, effects, in_order, lines, pids, small, task, until, write_plan
from tests.support.forkserver import Child, Forks
from tests.support.held import Driven

ONCE = Counter(list(NEEDS))
MOMENTS = [f"{moment} {id}" for id in NEEDS for moment in ("begin", "during", "end")]


class Devs(Driven):
    """One plan in a folder of its own, worked on by one process after another."""

    job = "tests.apps.devs_watched:job"

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.work = folder / "work"

    def met(self, *args: str, at: str) -> Child:
        """A process that has come to a moment, and goes on."""
        child = self.begin(*args, at=at)
        child.hear()
        return child

    @property
    def all_said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("said-*")))

    def hold(self, id: str) -> Path:
        path = self.work / f"hold-{id}"
        path.touch()
        return path

    @property
    def began(self) -> Counter[str]:
        return Counter(line.split()[0] for line in lines(self.folder, "began"))

    def check_whole(self) -> None:
        assert in_order(effects(self.folder)), effects(self.folder)
        assert not any(map(alive, pids(self.folder)))


@pytest.fixture
def devs(tmp_path: Path, forks: Forks) -> Devs:
    write_plan(tmp_path, small())
    return Devs(tmp_path, forks)


@pytest.mark.long
@pytest.mark.parametrize("at", MOMENTS)
def test_after_a_kill_at_any_moment_each_task_takes_effect_once_and_in_order(devs: Devs, at: str) -> None:
    moment, id = at.split()
    held = devs.hold(id) if moment == "during" else None
    devs.run("run", "plan.json", at=at)
    if held is not None:
        until(lambda: not any(map(alive, pids(devs.folder))))  # the command is not left behind
        held.unlink()
    devs.run("run", "plan.json")
    devs.check_whole()
    again = devs.began - ONCE
    assert max(again.values(), default=0) <= 1
    assert again[id] == (moment != "begin")
    if id in "ad":
        assert sum(again.values()) == (moment != "begin"), "a kill costs what was in flight, nothing else"


@pytest.mark.long
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("at", ["begin a", "during b", "end c", "during d"])
def test_an_interrupt_finishes_what_runs_and_costs_nothing(devs: Devs, at: str, by: signal.Signals) -> None:
    if at.startswith("during"):
        devs.hold(at.split()[1])
    devs.run("run", "plan.json", at=at, by=by)
    assert "Finished work is kept" in devs.all_said
    assert f"resume plan.json --store {devs.store}" in devs.all_said
    devs.run("resume", "plan.json")
    devs.check_whole()
    assert devs.began == ONCE


@pytest.mark.long
@pytest.mark.covers("S5.45")
@pytest.mark.parametrize("at", [each for each in MOMENTS if not each.startswith("end") and not each.endswith("d")])
def test_a_pause_from_another_process_stops_all_agents_after_what_they_are_at(devs: Devs, at: str) -> None:
    """1_PRD-REQ-UI-008, with the snapshot in <workspace>/.devs/state_snapshot.json."""
    held = devs.hold(at.split()[1])
    child = devs.met("run", "plan.json", at=at)
    devs.run("pause", "plan.json", "--reason", "lunch", "--by", "ann")
    held.unlink()
    devs.ends(child, 3)
    snapshot = json.loads((devs.work / ".devs" / "state_snapshot.json").read_text())
    assert {"pausedAt", "activeAgents", "pendingTasks"} == set(snapshot)
    pending = {each["id"] for each in snapshot["pendingTasks"]}
    assert "d" in pending
    assert not pending & set(effects(devs.folder))
    assert "lunch (by ann)" in devs.all_said
    devs.run("run", "plan.json", code=3)  # a pause is taken back by a resume alone
    devs.run("resume", "plan.json")
    devs.check_whole()
    assert devs.began == ONCE, "nothing is done twice"


@pytest.mark.long
def test_a_pause_during_the_last_task_has_nothing_left_to_stop(devs: Devs) -> None:
    held = devs.hold("d")
    child = devs.met("run", "plan.json", at="during d")
    devs.run("pause", "plan.json")
    held.unlink()
    devs.ends(child, 0)
    devs.check_whole()


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


def test_a_second_process_is_told_who_works_on_a_run_and_status_shows_the_graph(devs: Devs) -> None:
    held = devs.hold("b")
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
    devs.check_whole()
