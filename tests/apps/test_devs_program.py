"""Devs as a program: what a person types, what it says, what it keeps; and its README.

The requirement 1_PRD-REQ-UI-008 (global pause and resume) is covered here and in `test_devs_faults`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.apps.devs import read, workspace
from pausepoint.apps.devs.__main__ import main
from pausepoint.apps.devs.commands import Commands, Ran
from pausepoint.apps.devs.models import Head, Stops, Todo
from pausepoint.apps.devs.view import View
from pausepoint.apps.input import BadInput
from pausepoint.orchestrator import FileStateStore
from tests.apps.calls import Call, Called, Forked, calling, ran
from tests.apps.devs_kit import alive, effects, in_order, small, task, write_plan
from tests.cli.kit import run
from tests.docs.pages import section
from tests.support.children import ROOT
from tests.support.forkserver import Forks
from tests.support.loop import on_loop

README = ROOT / "src" / "pausepoint" / "apps" / "devs" / "README.md"

call = calling(main)


class Devs:
    """A plan in this folder, and commands about it."""

    def __init__(self, folder: Path, call: Call) -> None:
        self.folder = folder
        self.call = call

    def plan(self, *tasks: dict[str, Any], **head: Any) -> None:
        write_plan(self.folder, list(tasks), **head)

    def __call__(self, *args: str, code: int = 0) -> Called:
        done = self.call(*args)
        assert done.code == code, (done.out, done.err)
        return done

    def statuses(self) -> dict[str, str]:
        found = self("status", "plan", "--json").document
        return {each["id"]: each["status"] for each in found["tasks"]}


@pytest.fixture
def devs(here: Path, call: Call) -> Devs:
    return Devs(here, call)


# as a process


@pytest.mark.long
def test_without_arguments_or_terminal_it_runs_its_sample_up_to_the_approval_and_then_to_the_end(
    here: Path, devs: Devs, forks: Forks
) -> None:
    done = ran("devs", here)
    assert done.code == 3, done.stderr
    assert "agent-1 starts folders" in done.stdout
    assert "stars is done after " in done.stdout
    assert "book is waiting: 8 done, 1 waiting for an answer" in done.stdout
    work = here / ".pausepoint" / "devs-sample"
    assert "lighthouse" in (work / "build" / "book").read_text()
    assert not (work / "book.txt").exists(), "it waits for a yes"
    (question,) = devs("status", "book", "--json").document["questions"]
    assert f"answer {question['id']} --approve" in done.stderr
    devs("answer", question["id"], "--approve")
    assert "publish is done" in devs("resume", "book").out
    assert (work / "book.txt").exists()
    again = Forked("devs", here, forks)()
    assert (again.code, "book completed: 9 done" in again.stdout, "starts" in again.stdout) == (0, True, False)


# a plan from its beginning to its end


@pytest.mark.covers("S5.45")
def test_a_run_keeps_its_output_and_its_state_below_the_workspace(devs: Devs, here: Path) -> None:
    devs.plan(*small(), task("say", run="echo $GREETING from $DEVS_RUN; echo aside >&2", env={"GREETING": "ahoy"}))
    done = devs("run", "plan.json", "--json")
    assert done.last_document["status"] == "completed"
    assert done.last_document["counts"] == {"done": 5}
    assert done.last_document["command"] is None
    assert in_order(effects(here))
    (said,) = (Path(each["output"]) for each in done.last_document["tasks"] if each["id"] == "say")
    assert said == here / "work" / ".devs" / "output" / "say.txt"
    assert said.read_text().splitlines()[1:] == ["ahoy from plan", "aside"]
    devs("pause", "plan.json")  # of one that is complete nothing is left to stop
    assert FileStateStore(here / "work").path == here / "work" / ".devs" / "state_snapshot.json"


@pytest.mark.long
def test_a_failing_task_ends_with_1_its_dependants_wait_and_a_resume_tries_it_again(devs: Devs, here: Path) -> None:
    devs.plan(task("a"), task("b", ["a"], run="echo no luck >&2; test -e luck"), task("c", ["b"]), task("d", ["a"]))
    failed = devs("run", "plan.json", code=1)
    assert "b failed: CommandFailed: exit code 1: no luck" in failed.out
    assert "plan failed: 2 done, 1 failed, 1 blocked" in failed.out
    assert "resume plan.json" in failed.err
    assert str(here / "work" / ".devs" / "output" / "b.txt") in failed.err
    assert devs.statuses() == {"a": "done", "b": "failed", "c": "blocked", "d": "done"}
    assert "starts" not in devs("run", "plan.json", code=1).out, "nothing is tried again unasked"
    (here / "work" / "luck").touch()
    again = devs("resume", "plan.json", "--edits", "accept")
    assert "new: luck" in again.err
    assert "plan completed: 4 done" in again.out
    assert sorted(effects(here)) == ["a", "c", "d"]


@pytest.mark.long
def test_a_skipped_task_counts_as_done_and_says_who_and_why(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="false"), task("b", ["a"]))
    devs("run", "plan.json", code=1)
    said = devs("skip", "plan", "a", "--reason", "not here", "--by", "ann").out
    assert "a is skipped." in said
    assert "resume plan" in said
    assert devs.statuses() == {"a": "skipped", "b": "pending"}
    assert "skipped: not here" in devs("status", "plan").out
    devs("resume", "plan")
    assert effects(here) == ["b"]
    history = devs("events", "plan").out
    assert "skip a: not here" in history
    assert "ann" in history
    assert devs("skip", "plan", "bb", code=2).err == "devs: Run plan has no task 'bb'. Did you mean 'b'?\n"


@pytest.mark.long
def test_a_rewound_task_is_done_anew_with_all_that_needs_it(devs: Devs, here: Path) -> None:
    devs.plan(*small())
    devs("run", "plan.json")
    assert "To be done again: b, d." in devs("rewind", "plan.json", "b").out
    assert devs.statuses() == {"a": "done", "b": "pending", "c": "done", "d": "pending"}
    devs("resume", "plan.json")
    assert effects(here)[4:] == ["b", "d"]
    devs("rewind", "plan.json", "--all")
    devs("run", "plan.json")
    assert in_order(effects(here)[6:])
    assert "Name the tasks to do again, or pass --all" in devs("rewind", "plan.json", code=2).err


def test_if_one_of_several_tasks_is_unknown_none_is_rewound(devs: Devs) -> None:
    devs.plan(*small())
    devs("run", "plan.json")
    assert "Run plan has no task 'bb'. Did you mean 'b'?" in devs("rewind", "plan.json", "a", "bb", code=2).err
    assert devs("status", "plan.json", "--json").document["status"] == "completed"


def test_a_task_that_is_done_is_not_skipped_but_can_be_rewound(devs: Devs) -> None:
    devs.plan(task("a"))
    devs("run", "plan.json")
    assert "rewind plan.json a" in devs("skip", "plan.json", "a", code=2).err


def test_a_command_that_takes_too_long_is_ended_and_has_failed(devs: Devs) -> None:
    words, said = ["run", "plan.json"], ""
    for limit in (0.2, 1, 5, 25):  # a busy machine takes longer to run the first of the commands
        devs.plan(task("a", run="echo so far; sleep 100", timeout=limit))
        said, words = devs(*words, code=1).out, ["resume", "plan.json", "--replan"]
        assert "a failed: CommandFailed: timed out and was ended" in said
        if "was ended: so far" in said:
            break
    assert "was ended: so far" in said


def test_a_run_stops_itself_when_task_after_task_fails_in_the_same_way(devs: Devs) -> None:
    tasks = [task(f"t{n}", run="echo no network; exit 7") for n in range(9)]
    devs.plan(*tasks, agents=1, safety={"same_error": 2})
    stopped = devs("run", "plan.json", code=3)
    assert "2 tasks failed in the same way: CommandFailed: exit code 7: no network" in stopped.out
    assert stopped.out.count(" failed: ") <= 4


@on_loop
async def test_without_its_warden_no_command_is_run(here: Path) -> None:
    async with Commands(here / ".devs", grace=0.1, env={}) as commands:
        ran = await commands.run("echo one", here, here / "log", None, {})
        assert (ran.code, ran.tail) == (0, "one\n")
        assert commands._warden is not None
        commands._warden.kill()
        await commands._warden.wait()
        with pytest.raises(BadInput, match=r"\(warden\.py\) was killed"):
            await commands.run("touch unguarded", here, here / "log", None, {})
    assert not (here / "unguarded").exists()


@on_loop
async def test_whatever_a_command_does_with_its_input_and_output_it_is_kept_and_ends(here: Path) -> None:
    async with Commands(here / ".devs", grace=0.1, env={}) as commands:

        async def run(command: str) -> Ran:
            return await commands.run(command, here, here / "log", None, {})

        assert (await run("cat; read x; echo got:$x")).tail == "got:\n", "there is no input, and none is waited for"
        binary = await run(r"printf '\000\377\033[2J'; exit 3")
        assert binary.said == "exit code 3: \x00\ufffd\x1b[2J"
        assert b"\x00\xff\x1b[2J" in (here / "log").read_bytes()
        large = await run("head -c 20000000 /dev/zero | tr '\\0' x; echo end")
        assert (len(large.tail), large.tail[-5:]) == (2000, "xend\n")
        assert 5_000_000 < (here / "log").stat().st_size < 10_100_000, "the middle is left out"
        left = await run("sleep 1000 & echo $!")
        assert not alive(int(left.tail)), "what it left running ends with it"
        assert (await run("kill -9 $$")).code == 137


# what somebody has to decide


@pytest.mark.long
def test_a_restricted_command_waits_for_a_yes_while_the_others_go_on(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="echo gone > a.txt; rm -f a.txt; echo > removed"), task("b"), restricted=["rm"], agents=1)
    asked = devs("run", "plan.json", code=3)
    assert "Asked: a: run 'echo gone > a.txt; rm -f a.txt; echo > removed'? It is restricted (rm)." in asked.out
    assert devs.statuses() == {"a": "asks", "b": "done"}
    assert not (here / "work" / "removed").exists()
    (question,) = devs("status", "plan", "--json").document["questions"]
    assert question["task"] == "a"
    devs("answer", question["id"], "--approve")
    assert "↺ a" in devs("status", "plan").out
    devs("resume", "plan.json")
    assert (here / "work" / "removed").exists()


@pytest.mark.long
def test_an_answer_can_have_the_run_go_on(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm -f x; echo > removed"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    done = devs("answer", "plan", "--approve", "--run", "--json")
    assert (done.last_document["status"], done.last_document["counts"]) == ("completed", {"done": 1})
    assert (here / "work" / "removed").exists()


@pytest.mark.long
def test_pausepoint_itself_says_who_goes_on_with_a_run(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm -f x"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    onward = "python -m pausepoint.apps.devs resume plan"
    kept = " Without --run the answer is only recorded."
    for args, more in ((["resume", "plan"], ""), (["answer", "--approve", "--run"], kept)):
        refused = run(*args, cwd=here)
        way = f"Resume the session with `{onward}`.{more}"
        told = f"pausepoint: The code of session 'plan' is part of a program. {way}\n"
        assert (refused.code, refused.stderr) == (2, told)
    assert run("answer", "--approve", cwd=here).stderr == f"Resume:  {onward}\n"
    assert f"Resume:  {onward}" in run("show", "plan", cwd=here).stdout


@pytest.mark.long
def test_after_a_pause_of_everything_pausepoint_says_who_goes_on_with_a_run(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm -f x"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    for args in (["pause", "--all"], ["answer", "--approve"]):
        assert run(*args, cwd=here).code == 0
    lifted = run("resume", "--all", cwd=here)
    assert (lifted.code, lifted.stderr) == (0, "Resume:  python -m pausepoint.apps.devs resume plan\n")
    devs("resume", "plan.json")


@pytest.mark.long
def test_a_no_fails_that_task_alone_and_the_command_is_not_run(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm x; touch removed"), task("b"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    (question,) = devs("status", "plan", "--json").document["questions"]
    devs("answer", question["id"], "--reject", "too dangerous")
    refused = devs("resume", "plan.json", code=1)
    assert "a failed: CommandRefused: 'rm x; touch removed' was refused: too dangerous\n" in refused.err
    assert devs.statuses() == {"a": "failed", "b": "done"}
    assert not (here / "work" / "removed").exists()


@pytest.mark.long
def test_a_workspace_that_another_hand_changed_is_noticed_and_left_alone_until_somebody_decides(
    devs: Devs, here: Path
) -> None:
    work = here / "work"
    devs.plan(task("a", run="echo one > one; echo two > two; echo three > three; rm -f x"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    (question,) = devs("status", "plan", "--json").document["questions"]
    devs("answer", question["id"], "--approve")
    for name in ("one", "two", "three"):
        (work / name).write_text(f"{name}\n")
    devs("rewind", "plan.json", "a")
    workspace.keep(read(here / "plan.json"))
    (work / "one").write_text("mine")
    (work / "two").unlink()
    (work / "four").touch()
    os.utime(work / "three", (1, 1))  # touched, not changed
    for verb in ("resume", "run"):
        noticed = devs(verb, "plan.json", code=6)
        assert [line.strip() for line in noticed.err.splitlines()[1:4]] == ["new: four", "changed: one", "gone: two"]
        assert "resume plan.json --edits accept" in noticed.err
        assert "rewind plan.json TASK" in noticed.err
    assert (work / "one").read_text() == "mine"
    assert not (work / "two").exists()
    accepted = devs("resume", "plan.json", "--edits", "accept", code=3)
    assert "The changes are accepted." in accepted.err
    assert devs("resume", "plan.json", code=3).err.count("changed:") == 0, "what was accepted is not asked again"


@pytest.mark.long
def test_a_log_that_the_output_is_redirected_to_is_not_a_change_of_the_workspace(here: Path) -> None:
    write_plan(here, [task("a", run="true"), task("b", ["a"], run="rm nothing")], restricted=["rm"])

    def logged(verb: str, name: str) -> tuple[int, str]:
        program = "from pausepoint.apps.devs.__main__ import main; main()"
        place = here / "work" / name
        with open(place, "a") as log:
            words = [sys.executable, "-c", program, verb, "plan.json"]
            done = subprocess.run(words, cwd=here, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=60)
        return done.returncode, place.read_text()

    for verb, name in (("run", "one.log"), ("resume", "one.log"), ("resume", "two.log"), ("resume", "one.log")):
        code, text = logged(verb, name)
        assert (code, "changed since the run stopped" in text) == (3, False), text
    (here / "work" / "mine").touch()
    assert "new: mine" in logged("resume", "one.log")[1]


def test_what_a_plan_ignores_and_what_belongs_to_tools_is_not_compared(here: Path) -> None:
    plan = read(write_plan(here, [task("a")], ignore=["*.log", "cache/*"]))
    workspace.keep(plan)
    for name in ("x.log", "cache/y", ".git/index", "__pycache__/z", ".devs/w"):
        (here / "work" / name).parent.mkdir(exist_ok=True)
        (here / "work" / name).touch()
    assert workspace.changes(plan) == []
    (here / "work" / "link").symlink_to("task.sh")
    assert workspace.changes(plan) == ["new: link"]
    (here / "work" / ".devs" / "workspace" / "plan.json").write_text("{")
    with pytest.raises(ValueError, match=r"workspace/plan\.json is damaged"):
        workspace.changes(plan)


@pytest.mark.long
def test_a_pause_after_a_kill_is_where_comparing_begins(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="false"))
    devs("run", "plan.json", code=1)
    workspace.forget(read(here / "plan.json"))  # as a killed process leaves it
    assert "plan is paused" in devs("pause", "plan.json", "--reason", "look first").out
    (here / "work" / "new").touch()
    assert "new: new" in devs("resume", "plan.json", code=6).err


@pytest.mark.long
def test_what_another_plan_did_to_the_same_workspace_is_noticed(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm -f x"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    (here / "other.json").write_text(json.dumps({"workspace": "work", "tasks": [task("z", run="echo > by-another")]}))
    devs("run", "other.json")
    assert "new: by-another" in devs("resume", "plan.json", code=6).err


def test_a_file_whose_name_no_terminal_can_show_is_told_nevertheless(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="false"))
    devs("run", "plan.json", code=1)
    (here / "work" / os.fsdecode(b"odd\xff\x1b[2J")).touch()
    assert "  new: odd\ufffd␛[2J\n" in devs("resume", "plan.json", code=6).err


@pytest.mark.long
def test_of_a_run_that_is_complete_nothing_is_left_to_be_disturbed(devs: Devs, here: Path) -> None:
    devs.plan(*small())
    devs("run", "plan.json")
    (here / "work" / "new").touch()
    for verb in ("run", "resume"):
        assert "plan completed: 4 done" in devs(verb, "plan.json").out
    devs("rewind", "plan.json", "d")
    assert "new: new" in devs("resume", "plan.json", code=6).err


@pytest.mark.long
def test_a_plan_of_the_same_name_elsewhere_is_not_taken_for_the_one_that_was_run(devs: Devs, here: Path) -> None:
    devs.plan(*small())
    devs("run", "plan.json")
    (here / "twin" / "work").mkdir(parents=True)
    twin = here / "twin" / "plan.json"
    twin.write_bytes((here / "plan.json").read_bytes())
    for verb in ("run", "resume"):
        assert f"Run plan belongs to {here / 'plan.json'}" in devs(verb, str(twin), code=2).err
    assert "has not been run" in devs("status", str(twin), code=4).err


@pytest.mark.long
def test_a_plan_that_was_moved_with_its_workspace_goes_on(devs: Devs, here: Path) -> None:
    (here / "old").mkdir()
    write_plan(here / "old", [task("a"), task("b", ["a"], run="test -e luck")])
    devs("run", "old/plan.json", code=1)
    (here / "old").rename(here / "new")
    assert "If you moved it, pass its new path" in devs("resume", "plan", code=2).err
    assert devs("status", "new/plan.json", "--json").document["workspace"] == str(here / "new" / "work")
    (here / "new" / "work" / "luck").touch()
    devs("resume", "new/plan.json", code=6)  # also what the files were has moved with them
    devs("resume", "new/plan.json", "--edits", "accept")
    assert effects(here / "new") == ["a"]


def test_a_run_does_not_change_its_workspace(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="false"))
    devs("run", "plan.json", code=1)
    (here / "elsewhere").mkdir()
    devs.plan(task("a", run="false"), workspace="elsewhere")
    assert f"Run plan works in {here / 'work'}, but plan.json now says" in devs("resume", "plan.json", code=2).err


@pytest.mark.long
def test_a_plan_that_changed_is_told_and_taken_in_when_somebody_says_so(devs: Devs, here: Path) -> None:
    devs.plan(*small())
    devs("run", "plan.json")
    devs.plan(task("a"), task("b", ["a"], run="sh task.sh b # otherwise"), task("c", ["a"]), task("e", ["b"]))
    told = devs("resume", "plan.json", code=5)
    assert [line.strip() for line in told.err.splitlines()[1:4]] == ["gone: d", "changed: b", "new: e"]
    devs("resume", "plan.json", "--replan")
    assert effects(here)[4:] == ["b", "e"]


@pytest.mark.long
def test_a_plan_that_lies_in_its_own_workspace_is_one_decision_and_not_two(devs: Devs, here: Path) -> None:
    plan = here / "own.toml"
    plan.write_text('[[tasks]]\nid = "a"\nrun = "false"\n')
    devs("run", "own.toml", code=1)
    plan.write_text(plan.read_text() + "# a remark\n")
    devs("resume", "own.toml", code=1)
    plan.write_text(plan.read_text().replace("false", "true"))
    assert "changed: a" in devs("resume", "own.toml", code=5).err
    devs("resume", "own.toml", "--replan")


@pytest.mark.long
def test_another_run_that_stands_in_the_workspace_is_not_disturbed(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="touch here; rm x || true"), task("b", ["a"]), restricted=["rm"])
    devs("run", "plan.json", code=3)
    devs("pause", "plan.json")
    devs("run", "plan.json", code=3)
    devs("resume", "plan.json", code=3)
    devs("pause", "plan.json")
    devs("resume", "plan.json", code=3)
    (here / "other.json").write_text(json.dumps({"workspace": "work", "tasks": [task("z")]}))
    snapshot = json.loads((here / "work" / ".devs" / "state_snapshot.json").read_text())
    assert [each["sessionId"] for each in snapshot["activeAgents"]] == ["plan"]
    assert "The unfinished run plan uses" in devs("run", "other.json", code=2).err
    devs("cancel", "plan")
    devs("run", "other.json")


@pytest.mark.long
def test_a_damaged_snapshot_is_told_and_can_be_deleted(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="rm x || true"), restricted=["rm"])
    devs("run", "plan.json", code=3)
    devs("pause", "plan.json")
    (here / "work" / ".devs" / "state_snapshot.json").write_text("{")
    assert "You can also delete the file: the store contains the same data" in devs("resume", "plan.json", code=2).err
    (here / "work" / ".devs" / "state_snapshot.json").unlink()
    devs("resume", "plan.json", code=3)


@pytest.mark.long
@pytest.mark.parametrize("verb", [["resume"], ["pause"], ["status"], ["skip", "a"], ["rewind", "a"]])
def test_what_was_never_run_is_not_found(devs: Devs, here: Path, verb: list[str]) -> None:
    devs.plan(*small())
    devs(verb[0], "plan.json", *verb[1:], code=4)
    devs("run", "plan.json")
    (here / "other.toml").write_text('[[tasks]]\nid = "a"\nrun = "true"')
    assert "has not been run" in devs(verb[0], "other.toml", *verb[1:], code=4).err


def test_a_run_can_be_paused_and_looked_at_by_a_plan_that_is_broken_by_now(devs: Devs, here: Path) -> None:
    devs.plan(task("a", run="false"))
    devs("run", "plan.json", code=1)
    (here / "plan.json").write_text("{")
    assert "plan is paused" in devs("pause", "plan.json").out
    assert "✗ a" in devs("status", "plan.json").out
    devs("resume", "plan.json", code=2)


def test_a_session_of_another_program_is_no_run(devs: Devs, here: Path) -> None:
    from pausepoint.apps.aura import aura
    from pausepoint.apps.aura.settings import starting

    devs.plan(*small())
    with Engine(here / ".pausepoint" / "pausepoint.db") as engine:
        engine.start(aura, starting("student-1", reports=here), session_id="plan", paused=True)
    assert "There is no run 'release'. Name a plan by its file" in devs("run", "release", code=4).err
    assert "is a session of workflow aura, not a run" in devs("run", "plan.json", code=2).err
    assert "belongs to workflow aura and is not the run of a plan" in devs("pause", "plan", code=2).err


# how it is shown


def test_a_graph_larger_than_the_screen_shows_what_matters_and_counts_the_rest() -> None:
    from pausepoint.apps.devs import display as showing
    from pausepoint.apps.devs.view import Row
    from pausepoint.orchestrator import Task

    view = View("big")
    view.status = "running"
    view.rows = {f"t{n}": Row(Task(id=f"t{n}", needs=[f"t{n - 1}"] if n else []), n) for n in range(200)}
    for n in range(100):
        view.rows[f"t{n}"].status = "done"
    view.rows["t150"].status, view.rows["t160"].status = "begun", "failed"
    for width, height in ((80, 24), (140, 40)):
        shown = [showing.plain(line) for line in showing.drawn(view, width, height)]
        assert len(shown) < height
        assert max(map(len, shown)) <= width
        assert {"t150", "t160"} <= {line.split()[1] for line in shown[1:-1]}
        assert shown[-1].strip().startswith("… and ")


# the README


def listed(heading: str) -> list[str]:
    """The first column of the first table below a heading."""
    below = section(README, heading).partition("\n### ")[0]
    return [re.findall(r"`(\S+?)[ `]", line)[0] for line in below.splitlines() if line.startswith("| `")]


def test_the_readme_lists_every_key_of_a_plan_and_every_command() -> None:
    assert listed("The plan") == [*Head.model_fields, "tasks"]
    assert listed("A task") == list(Todo.model_fields)
    assert listed("When it stops itself") == list(Stops.model_fields)
    assert listed("Commands") == ["run", "resume", "pause", "status", "logs", "skip", "rewind"]
    assert set(listed("Commands")) == set(main.commands)
    for file in re.findall(r"`(src/[^`]+)`", section(README, "Where things are")):
        assert (ROOT / file).exists()


def test_the_plan_in_the_readme_is_one(here: Path) -> None:
    (here / "release.toml").write_text(README.read_text().partition("```toml\n")[2].partition("```")[0])
    assert [todo.id for todo in read(here / "release.toml").todos] == ["test", "notes", "publish"]


@pytest.mark.covers("S5.58")
def test_the_requirement_is_named_where_it_is_covered() -> None:
    id = "1_PRD-REQ-UI-008"
    named = [path.name for path in sorted((ROOT / "tests" / "apps").glob("test_devs_*.py")) if id in path.read_text()]
    assert named == ["test_devs_faults.py", "test_devs_program.py"]
    assert id in README.read_text()
