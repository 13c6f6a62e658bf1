"""``pausepoint resume``: which session, from where, how far, and what it says about that."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from tests.cli.desk import Desk, last_line, resume_command
from tests.cli.kit import Process, plain, run
from tests.cli.samples import execute

TARGET = ("--target", "brief.py")


@pytest.mark.covers("S1.63", "S4.53", "S4.57", "S4.60", "S4.77", "S4.105", "S4.106", "S4.107")
def test_without_an_id_the_last_interrupted_session_goes_on_and_everything_about_that_is_said(desk: Desk) -> None:
    desk.hold("write")
    with Process("run", "brief.py", "--topic", "otters", cwd=desk.root) as process:
        process.until("Running step: write")
        process.signal(signal.SIGKILL)
    desk.release("write")
    desk.forget_calls()
    (info,) = desk.sessions()
    code, out, err = run("resume", *TARGET, cwd=desk.root)
    assert code == 0
    assert desk.calls == ["write", "review"]
    assert f"Picked the last session: {info.session_id} (brief), ready at write" in err
    said = [line for line in out.splitlines() if "prints" not in line]
    assert said[:3] == [
        "Resuming from checkpoint: research",
        "Skipped, done before: plan, research",
        "Running step: write",
    ]
    ((event, took),) = asyncio.run(resumptions(desk.store))
    assert (event["step"], event["skipped"], event["saved_usd"]) == ("write", 2, 0.75)
    assert event["saved_seconds"] == pytest.approx(
        took, abs=0.002
    )  # what the skipped visits took, by their own records
    assert re.search(r"^Saved by resuming: (\d[\d.]* s and )?\$0\.75 \(2 visits done before\)$", out, re.MULTILINE)


async def resumptions(store: Path) -> list[tuple[dict[str, Any], float]]:
    """Each resume of the only session, as its log has it, and how long all visits before it took."""
    found, took = [], 0.0
    async with Engine(store) as engine:
        (info,) = await engine.sessions()
        async for event in engine.session(info.session_id).events():
            if event.event_type == "step.completed":
                took += event.data["took"]
            elif event.event_type == "session.resumed":
                found.append((event.data, took))
    return found


def test_less_than_a_second_is_not_called_a_saving(desk: Desk) -> None:
    session = desk.failed("research")
    code, out, _ = run("resume", session, "--from", "research", *TARGET, cwd=desk.root)
    assert code == 0
    *_, (event, took) = asyncio.run(resumptions(desk.store))
    assert (event["skipped"], event["saved_usd"], took > 0) == (1, 0, True)
    assert ("Saved by resuming" in out) == (event["saved_seconds"] >= 1)
    assert "Skipped, done before: plan\n" in out


def test_several_candidates_are_listed_and_not_guessed(desk: Desk) -> None:
    desk.stored("one", "two")
    code, out, err = run("resume", *TARGET, cwd=desk.root)
    assert code == 2
    assert re.search(r"^one +brief +paused.*\n", out, re.MULTILINE)
    assert re.search(r"^two +brief +paused.*\n", out, re.MULTILINE)
    assert "Name one:  pausepoint resume" in err
    code, out, _ = run("resume", "--json", *TARGET, cwd=desk.root)
    assert code == 2
    assert {each["session_id"] for each in json.loads(out)["candidates"]} == {"one", "two"}
    assert desk.calls == []


def test_of_many_candidates_the_newest_are_listed_and_no_others_read(desk: Desk) -> None:
    desk.stored(*(f"s{number:02}" for number in range(30)))
    execute(desk.store, "UPDATE sessions SET visit = visit + 1 WHERE session_id < 's05'")
    code, out, err = run("resume", *TARGET, cwd=desk.root)
    assert (code, len(out.splitlines())) == (2, 21)
    assert out.splitlines()[1].startswith("s29 ")
    assert err == "More than 20 sessions can be resumed. Name one:  pausepoint resume s29 --target brief.py\n"


@pytest.mark.long
def test_what_was_done_within_the_first_step_is_kept_and_said_to_be(desk: Desk) -> None:
    source = (desk.root / "brief.py").read_text()
    (desk.root / "brief.py").write_text(source.replace('await ctx.do(begin, "plan")', FIRST))
    desk.hold("plan")
    with Process("run", "brief.py", "--topic", "otters", cwd=desk.root) as process:
        desk.reaches("plan")
        process.signal(signal.SIGKILL)
    desk.release("plan")
    code, out, _ = run("resume", *TARGET, cwd=desk.root)
    assert code == 0
    assert "Resuming within plan: there is no checkpoint yet\nSkipped, done before: 1 operation of plan\n" in out
    assert re.search(r"^Saved by resuming: (\d[\d.]* s and )?\$0\.25 \(operations done before\)$", out, re.MULTILINE)
    assert "from scratch" not in out
    (info,) = desk.sessions()
    desk.forget_calls()
    code, out, _ = run("rewind", info.session_id, "--to", "plan", "--reuse", "--run", *TARGET, cwd=desk.root)
    assert (code, "plan" in desk.calls, "look_up first" in desk.calls) == (0, False, False)
    assert "Resuming within plan: there is no checkpoint yet\nSkipped, done before: 2 operations of plan\n" in out
    assert "from scratch" not in out


FIRST = 'await ctx.do(look_up, "first"); await ctx.do(begin, "plan")'


def test_what_is_not_there_cannot_go_on(desk: Desk) -> None:
    code, _, err = run("resume", cwd=desk.root)
    assert (code, "There is no store at" in err) == (4, True)
    assert not desk.store.parent.exists()
    desk.stored("one-1", "one-2")
    code, said = desk.refused("resume", "two", *TARGET)
    assert (code, "There is no session 'two' in this store" in said) == (4, True)
    code, said = desk.refused("resume", "one", *TARGET)
    assert (code, "one-1" in said, "one-2" in said) == (2, True, True)
    code, said = desk.refused("resume", "one-1", "--dry-run")
    assert (code, "Add --target file.py:name" in said) == (2, True)


@pytest.mark.long
def test_the_code_of_a_session_is_found_in_the_project_also_from_a_folder_below(desk: Desk) -> None:
    (desk.root / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nbrief = "brief.py:brief"\n')
    below = desk.root / "notes"
    below.mkdir()
    desk.stored("mine")
    code, _, err = run("resume", "mine", "--pause-after", "plan", cwd=below)
    assert code == 3
    assert last_line(err) == "Resume:  pausepoint resume mine"
    code, out, err = run("run", "brief", "--topic", "squid", "--paused", "--json", cwd=below)
    assert json.loads(out)["resume"].endswith("--target brief.py:brief")
    assert len(desk.sessions()) == 2


@pytest.mark.long
def test_the_environment_names_the_code_and_a_printed_command_works_without_it(desk: Desk) -> None:
    desk.stored("one", "two")
    env = {"PAUSEPOINT_TARGET": "brief.py"}
    line = next(each for each in run("show", "one", cwd=desk.root, env=env).stdout.splitlines() if "Resume" in each)
    assert line == "Resume:  pausepoint resume one --target brief.py"
    assert run(*shlex.split(line)[2:], cwd=desk.root).code == 0
    assert run("resume", "two", cwd=desk.root, env=env).code == 0
    added = ("schedule", "add", "daily", "brief.py", "--cron", "0 7 * * *", "--field", "topic=squid")
    assert run(*added, cwd=desk.root, env={"PAUSEPOINT_TARGET": "other.py"}).code == 0
    code, said = desk.refused("resume", "one", "--from", "plan")
    assert (code, "set PAUSEPOINT_TARGET=file.py:name" in said) == (2, True)


@pytest.mark.covers("S1.63")
def test_a_dry_run_shows_the_plan_and_runs_nothing(desk: Desk) -> None:
    session = desk.failed("write")
    code, out, err = run("resume", session, "--dry-run", *TARGET, cwd=desk.root)
    assert (code, err) == (0, "This is a dry run: nothing has run.\n")
    verdicts = re.findall(r"^\W+(done|next|will run) +(\w+)", out, re.MULTILINE)
    assert verdicts == [("done", "plan"), ("done", "research"), ("next", "write"), ("will run", "review")]
    args = ("resume", session, "--dry-run", "--from", "research", "--pause-after", "write", "--json", *TARGET)
    code, out, _ = run(*args, cwd=desk.root)
    assert code == 0
    assert [each["verdict"] for each in json.loads(out)["steps"]] == ["done", "next", "will run", "will run"]
    assert desk.calls == []
    code, said = desk.refused("resume", session, "--pause-after", "plan", *TARGET)
    assert (code, "Redo the step with --from plan." in said) == (2, True)
    code, said = desk.refused("resume", session, "--pause-after", "reviw", *TARGET)
    assert (code, "Did you mean 'review'" in said) == (2, True)


@pytest.mark.long
def test_from_a_step_until_a_step(desk: Desk) -> None:
    session = desk.failed("review")
    args = ("resume", session, "--from", "research", "--pause-after", "write", "--by", "Ada", *TARGET)
    code, out, err = run(*args, cwd=desk.root)
    assert code == 3
    assert "Resuming from checkpoint: plan" in out
    assert desk.calls == ["look_up otters 0", "look_up otters 1", "look_up otters 2", "research", "write"]
    assert "Paused by Ada: ran until write as requested" in err
    assert resume_command(err) == ["resume", session, *TARGET]


def test_a_resume_as_another_owner_is_refused_before_the_session_is_rewound(desk: Desk) -> None:
    desk.stored("mine", owner="ann")
    assert run("resume", "mine", "--pause-after", "plan", *TARGET, cwd=desk.root).code == 3
    before = desk.sessions()
    for words in (["--from", "plan"], ["--dry-run"]):
        code, said = desk.refused("resume", "mine", *words, "--owner", "bob", *TARGET)
        assert (code, "'mine' belongs to 'ann', not to 'bob'" in said) == (5, True)
    assert desk.sessions() == before


@pytest.mark.long
@pytest.mark.covers("S4.63")
def test_ctrl_c_while_resuming_says_how_to_resume_and_exits_with_130(desk: Desk) -> None:
    session = desk.failed("write")
    desk.hold("review")
    with Process("resume", session, *TARGET, cwd=desk.root, tty=True) as process:
        seen = process.until("3 of 4 steps")
        assert "Resuming from checkpoint: research" in seen
        assert re.search(r"✓ +research +[\d.]+ m?s +\$0\.75 +kept", seen)
        process.type("\x03")
        process.until("Finishing the current operation")
        desk.release("review")
        done = process.wait()
    assert done.code == 130
    assert resume_command(done.stdout) == ["resume", session, *TARGET]


@pytest.mark.long
def test_a_complete_session_is_said_to_be_complete_and_nothing_runs(desk: Desk) -> None:
    document = json.loads(run("run", "brief.py", "--topic", "otters", "--json", cwd=desk.root).stdout)
    desk.forget_calls()
    code, out, _ = run("resume", document["session_id"], *TARGET, cwd=desk.root)
    assert (code, "is already complete" in out) == (0, True)
    assert document["state"]["verdict"] in out
    assert desk.calls == []


@pytest.mark.long
def test_a_session_that_runs_elsewhere_is_a_conflict_unless_it_is_taken_over(desk: Desk) -> None:
    desk.hold("write")
    with Process("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root) as process:
        process.until("Running step: write")
        code, _, err = run("resume", "mine", *TARGET, cwd=desk.root)
        assert code == 5
        assert str(process.child.pid) in err
        assert "pausepoint watch mine" in err
        process.signal(signal.SIGSTOP)
        desk.release("write")
        assert run("resume", "mine", "--steal", *TARGET, cwd=desk.root).code == 0
        process.signal(signal.SIGCONT)
        done = process.wait()
        assert done.code == 5  # it finds out, and writes nothing
    (info,) = desk.sessions()
    assert info.status.value == "completed"


@pytest.mark.long
def test_a_new_budget_lets_a_session_go_on_and_a_wrong_owner_does_not(desk: Desk) -> None:
    desk.stored("mine", owner="ada", budget=0.5)
    code, said = desk.refused("resume", "mine", "--owner", "bob", *TARGET)
    assert (code, "belongs to 'ada'" in said) == (5, True)
    code, _, err = run("resume", "mine", *TARGET, cwd=desk.root)
    assert (code, "--budget USD" in last_line(err)) == (3, True)
    code, out, _ = run("resume", "mine", "--budget", "5", "--owner", "ada", "--json", *TARGET, cwd=desk.root)
    document = json.loads(out)
    assert (code, document["status"], document["budget_usd"]) == (0, "completed", 5.0)
    assert plain(document["state"]["draft"]).startswith("otters")


@pytest.mark.parametrize(
    ("step", "says"),
    [("wriet", "has no step 'wriet'. Did you mean 'write'?"), ("write", "so --rerun has no effect. Redo the step and")],
    ids=["unknown", "without artifacts"],
)
def test_a_rerun_that_would_do_nothing_is_refused(desk: Desk, step: str, says: str) -> None:
    desk.failed("review")
    desk.forget_calls()
    done = run("resume", "--rerun", step, *TARGET, cwd=desk.root)
    assert (done.code, says in done.stderr) == (2, True), done
    assert desk.calls == []
