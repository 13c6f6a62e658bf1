"""Devs with ``--stay``: the process stays while its run is stopped, and continues it after a resume from anywhere."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.apps.devs import read
from pausepoint.apps.devs.program import nobody
from pausepoint.apps.devs.standby import Standby, standing_by
from pausepoint.orchestrator import Orchestrator
from tests.apps.devs_kit import effects, in_order, small, task, write_plan
from tests.apps.programs import Devs
from tests.cli.kit import run
from tests.support.forkserver import Child, Forks
from tests.support.loop import on_loop
from tests.support.waits import until


@pytest.fixture
def devs(tmp_path: Path, forks: Forks) -> Devs:
    return Devs(tmp_path, forks)


def paused(devs: Devs, *args: str, at: str = "b") -> Child:
    """Start a process that stays, and pause its run while a task is at work."""
    held = devs.hold_task(at)
    child = devs.met("run", "plan.json", "--stay", *args, at=f"during {at}")
    devs.run("pause", "plan.json", "--reason", "lunch", "--by", "ann")
    held.unlink()
    waits(devs, child)
    return child


def waits(devs: Devs, child: Child, what: str = "Paused: lunch (by ann); waiting to be resumed") -> None:
    until(lambda: (devs.folder / f"said-{child.number}.txt.err").exists() and what in devs.said(child))
    until(lambda: stands_by(devs))


def stands_by(devs: Devs) -> bool:
    async def look() -> bool:
        async with Engine(devs.store, drives="none", signals=False) as engine:
            return any(each.picks_up("plan", "plan") for each in await engine.engines())

    return asyncio.run(look())


def status(devs: Devs) -> Any:
    text = devs.run("status", "plan.json", "--json")
    return json.loads(text[text.index("{\n") :])


def resume_by(devs: Devs, way: str) -> str:
    """Resume the run from elsewhere, and return what that said."""
    if way == "devs":
        return devs.run("resume", "plan.json")
    if way == "HTTP":

        async def resume() -> None:  # what the server does without the run's code
            async with Engine(devs.store, drives="none", signals=False) as engine:
                await engine.session("plan").resume(by="ann", here=False)

        asyncio.run(resume())
        return ""
    words = {"pausepoint": ["resume", "plan"], "pausepoint --all": ["resume", "--all"]}[way]
    done = run(*words, "--store", str(devs.store), cwd=devs.folder)
    assert done.code in (0, 3), (done.stdout, done.stderr)  # 3 if the waiting process has paused it again already
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("way", ["devs", "pausepoint", "pausepoint --all", "HTTP"])
def test_a_process_that_stays_continues_the_run_after_a_resume_from_anywhere(devs: Devs, way: str) -> None:
    if way == "pausepoint --all":
        held = devs.hold_task("b")
        child = devs.met("run", "plan.json", "--stay", at="during b")
        assert run("pause", "--all", "--reason", "lunch", "--store", str(devs.store), cwd=devs.folder).code == 0
        held.unlink()
        waits(devs, child, "waiting to be resumed")
    else:
        child = paused(devs)
    assert (devs.work / ".devs" / "state_snapshot.json").exists()
    assert (devs.work / ".devs" / "workspace" / "plan.json").exists(), "the workspace is recorded"
    told = resume_by(devs, way)
    if way == "devs":
        assert "plan continues in process " in told
        assert "Follow it:  " in told
    assert "devs resume plan" not in told, "there is nothing left for a person to do"
    said = devs.ends(child, 0)
    assert "plan completed: 4 done" in said
    devs.result()
    assert devs.calls == devs.once, "nothing is done twice"


@pytest.mark.long
def test_a_pause_that_is_still_pausing_is_withdrawn_and_the_process_continues(devs: Devs) -> None:
    held = devs.hold_task("b")
    child = devs.met("run", "plan.json", "--stay", at="during b")
    devs.run("pause", "plan.json")
    assert "was still pausing. The pause is withdrawn" in devs.run("resume", "plan.json")
    held.unlink()
    devs.ends(child, 0)
    devs.result()


@pytest.mark.long
def test_a_second_pause_waits_for_a_second_resume(devs: Devs) -> None:
    child = paused(devs)
    devs.hold_task("d")
    devs.run("resume", "plan.json", "--edits", "accept")
    until(lambda: "starts d" in devs.said(child))
    devs.run("pause", "plan.json", "--abort", "--reason", "night", "--by", "ann")
    waits(devs, child, "Paused: night (by ann); waiting to be resumed")
    (devs.work / "hold-d").unlink()
    devs.run("resume", "plan.json", "--edits", "accept")
    devs.ends(child, 0)
    devs.result()


@pytest.mark.long
def test_after_a_kill_of_the_process_that_stayed_a_resume_drives_the_run_itself(devs: Devs) -> None:
    child = paused(devs)
    devs.kill(child)
    assert "plan completed: 4 done" in devs.run("resume", "plan.json")
    devs.result()
    assert devs.calls == devs.once


@pytest.mark.long
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_process_that_stays_with_the_command_that_resumes(
    devs: Devs, by: signal.Signals, code: int
) -> None:
    child = paused(devs)
    child.signal(by)
    said = devs.ends(child, code)
    assert said.rstrip().splitlines()[-1].startswith("Resume:  ")
    assert (devs.work / ".devs" / "workspace" / "plan.json").exists()
    devs.run("resume", "plan.json")
    devs.result()


@pytest.mark.long
@pytest.mark.parametrize("way", ["devs", "pausepoint"])
def test_changed_files_are_noticed_before_anything_runs(devs: Devs, way: str) -> None:
    child = paused(devs)
    (devs.work / "strange").touch()
    if way == "devs":
        assert "new: strange" in devs.run("resume", "plan.json", code=6)
        assert status(devs)["status"] == "paused"
    else:
        resume_by(devs, "pausepoint")
        until(lambda: "1 file in the workspace changed (new: strange)" in devs.said(child))
        waits(devs, child, "waiting to be resumed")
        assert "--edits accept" in status(devs)["reason"]
    assert not {"d"} & set(effects(devs.folder))
    devs.run("resume", "plan.json", "--edits", "accept")
    devs.ends(child, 0)
    devs.result()


@pytest.mark.long
def test_a_changed_plan_is_taken_in_by_the_process_that_stays(devs: Devs) -> None:
    child = paused(devs)
    write_plan(devs.folder, [*small()[:3], task("d", ["b", "c"], run="echo $MORE > more")], env={"MORE": "much"})
    assert "changed: d" in devs.run("resume", "plan.json", code=5)
    devs.run("resume", "plan.json", "--replan")
    devs.ends(child, 0)
    assert (devs.work / "more").read_text() == "much\n"


@pytest.mark.long
def test_an_answer_continues_the_run_in_the_process_that_stays(tmp_path: Path, forks: Forks) -> None:
    write_plan(tmp_path, [task("a", run="rm -f x; sh task.sh a"), task("b", ["a"])], restricted=["rm"])
    devs = Devs(tmp_path, forks)
    child = devs.begin("run", "plan.json", "--stay")
    waits(devs, child, "Waiting for an answer: 1 waiting for an answer, 1 pending")
    assert "  Approve:  " in devs.said(child)
    refused = devs.run("resume", "plan.json", code=3)
    assert "after you answer its questions" in refused
    assert "Approve:  " in refused
    devs.run("answer", status(devs)["questions"][0]["id"], "--approve")
    devs.ends(child, 0)
    assert effects(tmp_path) == ["a", "b"]


@pytest.mark.long
def test_a_second_run_does_not_become_a_second_driver(devs: Devs) -> None:
    child = paused(devs)
    said = devs.run("run", "plan.json", code=3)
    assert "plan is paused: lunch (by ann)" in said
    assert "It continues in process " in said
    assert in_order(effects(devs.folder)) is False
    child.signal(signal.SIGTERM)
    devs.ends(child, 143)


class Kept:
    """What `Standby` needs, with commands that keep processes."""

    def __init__(self, stay: bool, kept: tuple[str, ...], status: str) -> None:
        self.stay, self.kept, self.status, self.ending = stay, kept, status, ""
        self.view = self.commands = self


@pytest.mark.parametrize(
    ("stay", "kept", "status", "stays"),
    [
        (True, (), "paused", True), (True, (), "waiting", True), (True, (), "failed", False),
        (False, (), "paused", False), (False, ("a",), "paused", True), (False, ("a",), "completed", False),
    ],
)  # fmt: skip
def test_a_process_stays_if_it_was_asked_to_or_keeps_processes(
    stay: bool, kept: tuple[str, ...], status: str, stays: bool
) -> None:
    all_in_one: Any = Kept(stay, kept, status)
    assert Standby(all_in_one, all_in_one, all_in_one, all_in_one).stays is stays


@on_loop
async def test_a_resume_right_after_the_pause_waits_until_the_process_stands_by(tmp_path: Path) -> None:
    """The workspace is locked, and the process that has it has not said yet that it stays."""
    plan = read(write_plan(tmp_path, small()))
    plan.state.mkdir()
    lock = (plan.state / "lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    async with Engine(tmp_path / "s.db", drives="asked") as engine, Engine(tmp_path / "s.db", signals=False) as other:
        run = Orchestrator(engine, "plan", nobody)
        await other.pause_all()
        await run.start(plan.tasks)
        looking = asyncio.ensure_future(standing_by(other, plan))
        await asyncio.sleep(0.05)
        assert not looking.done()
        staying = asyncio.ensure_future(run.stand_by())
        found = await looking
        assert found is not None
        assert found.process.startswith(f"process {os.getpid()} on ")
        staying.cancel()
    lock.close()
    async with Engine(tmp_path / "s.db", drives="none") as other:
        assert await standing_by(other, plan) is None, "the process has ended"
