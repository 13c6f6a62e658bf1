"""``pausepoint run``: fields as options, what is shown, how it ends, and what it says then."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pausepoint.cli.app import app
from tests.cli.desk import Desk, last_line, resume_command
from tests.cli.kit import Process, plain, run
from tests.cli.samples import execute


def parsed(desk: Desk, *args: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The fields that these arguments give, without a process."""
    from pausepoint.cli.commands import run as running

    monkeypatch.chdir(desk.root)
    seen: dict[str, Any] = {}

    def stop(cli: Any, workflow: Any, values: dict[str, Any], *rest: Any, **more: Any) -> None:
        seen.update(values)
        raise click.exceptions.Exit(0)

    monkeypatch.setattr(running, "_former", stop)
    app(["run", *args], standalone_mode=False)
    return seen


# fields


def test_fields_of_every_kind_become_options(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    given = parsed(
        desk, "brief.py", "--topic", "squid", "--count", "2", "--ratio=0.5", "--loud", "--tone", "playful",
        "--keywords", "a", "--keywords", "b c", "--numbers", "1", "--size", '{"pages": 3}', "--field", "owner=ada",
        monkeypatch=monkeypatch,
    )  # fmt: skip
    size = given.pop("size")
    assert size.pages == 3
    assert given == {
        "topic": "squid", "count": 2, "ratio": 0.5, "loud": True, "tone": "playful", "keywords": ["a", "b c"],
        "numbers": [1], "owner": "ada",
    }  # fmt: skip


def test_what_is_not_given_is_not_input(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(desk, "brief.py", "--topic", "5", "--no-loud", monkeypatch=monkeypatch) == {
        "topic": "5",
        "loud": False,
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["brief.py"], "Missing input: --topic TEXT", id="required"),
        pytest.param(["brief.py", "--topc", "x"], "'--topic'", id="mistyped"),
        pytest.param(["brief.py", "--topic", "x", "--count", "few"], "'few' is not a whole number.", id="no number"),
        pytest.param(["brief.py", "--topic", "x", "--tone", "playfull"], "Did you mean 'playful'", id="no choice"),
        pytest.param(["brief.py", "--topic", "x", "--size", "{"], "is not JSON", id="no json"),
        pytest.param(["brief.py", "--topic", "x", "--field", "tpic=1"], "Did you mean 'topic'", id="no field"),
        pytest.param(["brief.py", "--topic", "x", "--field", "owner"], "NAME=VALUE", id="no value"),
        pytest.param(["--topic", "x", "brief.py"], "Put fields after TARGET", id="before the target"),
        pytest.param(["brie.py"], "There is no file brie.py", id="no file"),
        pytest.param(["brief.py:breif"], "Did you mean 'brief'", id="no workflow"),
        pytest.param(["brief.py", "--topic", "x", "--resume", "--force-restart"], "Give one of them", id="both"),
        pytest.param(
            ["brief.py", "--topic", "x", "--resume", "--tag", "a", "--priority", "0"],
            "--priority and --tag cannot be used with --resume",
            id="for a new session",
        ),
        pytest.param([], "TARGET", id="nothing"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_usage(desk: Desk, args: list[str], said: str) -> None:
    code, message = desk.refused("run", *args)
    assert code == 2
    assert said in message
    assert not desk.store.exists()


def test_help_lists_the_fields_of_the_target(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.root)
    text = CliRunner().invoke(app, ["run", "brief.py", "--help"]).output
    assert re.search(r"--topic TEXT +What it is about\.  \[required\]", text)
    assert re.search(r"--loud / --no-loud +\[default: false\]", text)
    assert re.search(r"--tone formal\|playful", text)
    assert re.search(r"--keywords TEXT +\[repeatable, or a JSON list\]", text)
    assert "--size JSON" in text
    assert "--field owner=TEXT" in text  # since --owner means another thing
    head, _, tail = text.partition("Fields that steps write")
    assert "--draft" in tail
    assert "--draft" not in head
    assert "--budget BUDGET" in text
    assert "--topic" not in CliRunner().invoke(app, ["run", "--help"]).output


# without a terminal


@pytest.mark.covers("S4.61", "S4.62")
def test_a_run_says_each_step_as_it_runs_and_what_came_out(desk: Desk) -> None:
    code, out, err = run("run", "brief.py", "--topic", "otters", "--count", "1", "--loud", cwd=desk.root)
    assert (code, err) == (0, "")
    lines = [re.sub(r" in \d.*?s\b", " in TIME", line) for line in out.splitlines() if "prints" not in line]
    session = lines[0].split()[1]
    assert lines[:9] == [
        f"Session {session} of brief",
        "Running step: plan",
        "Finished step: plan in TIME",
        "Running step: research",
        "Finished step: research in TIME, $0.25",
        "Running step: write",
        "Finished step: write in TIME",
        "Running step: review",
        "Finished step: review in TIME",
    ]
    assert re.fullmatch(rf"Session {session} of brief completed after .*, \$0\.25", lines[9])
    assert 'draft    "OTTERS: FACT ABOUT OTTERS 0"' in out
    (info,) = desk.sessions()
    assert (info.session_id, info.status.value) == (session, "completed")


def test_json_is_one_document_and_what_steps_print_goes_elsewhere(desk: Desk) -> None:
    code, out, err = run(
        "run", "brief.py:brief", "--topic", "otters", "--field", "owner=ada", "--owner", "bob", "--tag", "a", "--tag",
        "b", "--session-id", "my-brief", "--budget", "9", "--json", cwd=desk.root,
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert "plan prints" in err
    assert (document["session_id"], document["status"], document["owner"]) == ("my-brief", "completed", "bob")
    assert (document["tags"], document["budget_usd"], document["spent_usd"]) == (["a", "b"], 9.0, 0.75)
    assert document["state"]["owner"] == "ada"
    assert document["resume"] is None


def test_jsonl_is_every_event_and_last_how_it_stands(desk: Desk) -> None:
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--at-step", "write", "--jsonl", cwd=desk.root)
    *events, outcome = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    kinds = [event["event_type"] for event in events]
    assert kinds[0] == "session.created"
    assert kinds.count("step.skipped") == 2
    assert kinds[-1] == "session.completed"
    assert outcome["status"] == "completed"


@pytest.mark.long
def test_a_failure_ends_with_the_reason_and_below_the_traceback_with_the_command_that_goes_on(desk: Desk) -> None:
    desk.breaks("write")
    code, out, err = run("run", "brief.py", "--topic", "otters", cwd=desk.root)
    assert code == 1
    assert "failed after" in out
    traceback, reason, command = (err.index(part) for part in ("Traceback", "write failed: ValueError", "Resume: "))
    assert traceback < reason < command
    (info,) = desk.sessions()
    assert resume_command(err) == ["resume", info.session_id, "--target", "brief.py"]
    desk.mend("write")
    desk.forget_calls()
    assert run(*resume_command(err), cwd=desk.root).code == 0
    assert desk.calls == ["write", "review"]


def test_what_a_failure_says_cannot_steer_the_terminal_and_shows_the_authors_own_frames(desk: Desk) -> None:
    source = (desk.root / "brief.py").read_text()
    wild = source.replace('ValueError(f"{name} is broken")', 'ValueError("gone\\n\\x1b[2J" + "\\nmore" * 7)')
    (desk.root / "brief.py").write_text(wild)
    desk.breaks("plan")
    code, out, _ = run("run", "brief.py", "--topic", "otters", cwd=desk.root, tty=True)
    text = plain(out)
    assert code == 1
    assert "\x1b[2J" not in out
    assert "plan failed: ValueError: gone ␛[2J" in text
    assert 'brief.py", line' in text
    assert "pausepoint/runtime" not in text
    assert re.search(r"… \d+ more lines: pausepoint show \w+ --full", text)


def test_sigterm_finishes_the_operation_and_prints_last_the_command_that_goes_on(desk: Desk) -> None:
    desk.hold("research")
    with Process("run", "brief.py", "--topic", "otters", "--store", "my.db", cwd=desk.root) as process:
        desk.reaches("research")
        process.signal(signal.SIGTERM)
        process.until("finishing the current operation")
        desk.release("research")
        done = process.wait()
    assert done.code == 143
    (session,) = re.findall(r"Session (\w+) of", done.stdout)
    assert resume_command(done.stdout) == ["resume", session, "--target", "brief.py", "--store", "my.db"]


def test_a_run_that_stands_still_says_how_to_go_on_and_exits_with_3(desk: Desk) -> None:
    code, _, err = run("run", "brief.py", "--topic", "otters", "--paused", "--by", "Ada", cwd=desk.root)
    (info,) = desk.sessions()
    assert code == 3
    assert "Paused by Ada." in err
    assert last_line(err).endswith(f"pausepoint resume {info.session_id} --target brief.py")
    assert desk.calls == []


@pytest.mark.long
def test_an_id_that_is_taken_goes_on_or_is_a_conflict(desk: Desk) -> None:
    desk.stored("mine")
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root)
    assert code == 0
    assert "Running step: plan" in out
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root)
    assert (code, "is already complete" in out) == (0, True)
    assert desk.calls.count("plan") == 1
    code, said = desk.refused("run", "brief.py", "--topic", "squid", "--session-id", "mine")
    assert (code, "already exists with different input" in said) == (5, True)


@pytest.mark.long
@pytest.mark.covers("S4.59")
def test_a_run_that_is_to_resume_and_finds_nothing_says_so_and_runs(desk: Desk) -> None:
    code, out, err = run("run", "brief.py", "--topic", "otters", "--resume", cwd=desk.root)
    assert code == 0
    assert err.startswith("No checkpoints found, starting from scratch\n")
    assert desk.calls.count("plan") == 1
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--resume", cwd=desk.root)
    assert (code, "is already complete" in out) == (0, True)
    assert desk.calls.count("plan") == 1


@pytest.mark.long
def test_a_detached_run_returns_once_it_is_stored_and_goes_on_by_itself(desk: Desk) -> None:
    desk.hold("write")
    code, out, err = run("run", "brief.py", "--topic", "otters", "--detach", cwd=desk.root)
    assert code == 0
    (session,) = re.findall(r"Session (\w+) of brief is running in the background, in process \d+", out)
    assert f"Watch:  pausepoint watch {session}" in err
    desk.release("write")
    assert run("watch", session, cwd=desk.root).code == 0
    assert (desk.root / ".pausepoint" / "logs" / f"{session}.log").read_text().count("Running step: review") == 1
    code, _, err = run("run", "brief.py", "--topic", "x", "--at-step", "nowhere", "--detach", cwd=desk.root)
    assert (code, "has no step 'nowhere'" in err) == (2, True)


# an interrupted session of the same input


@pytest.mark.long
@pytest.mark.covers("S4.62", "S4.78", "S4.79")
def test_without_a_terminal_an_interrupted_session_of_the_same_input_is_a_hint_and_a_fresh_one_starts(
    desk: Desk,
) -> None:
    first = desk.failed("write")
    code, out, err = run("run", "brief.py", "--topic", "otters", cwd=desk.root)
    assert (code, out.startswith(f"Session {first}")) == (0, False)
    assert f"Hint: Session {first} of brief has the same input: failed at write" in err
    assert f"pausepoint resume {first} --target brief.py" in err
    assert desk.calls.count("plan") == 1
    code, _, err = run("run", "brief.py", "--topic", "otters", "--force-restart", cwd=desk.root)
    assert (code, err) == (0, "")
    desk.forget_calls()
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--resume", "--budget", "9", cwd=desk.root)
    assert (code, "Resuming from checkpoint: research" in out) == (0, True)
    assert desk.calls == ["write", "review"]
    assert [each.budget_usd for each in desk.sessions() if each.session_id == first] == [9]


def test_to_find_a_session_of_the_same_input_no_other_is_read(desk: Desk) -> None:
    desk.stored("other", count=1)
    desk.stored("same")
    execute(desk.store, "UPDATE sessions SET visit = visit + 1 WHERE session_id = 'other'")
    code, _, err = run("run", "brief.py", "--topic", "otters", "--paused", cwd=desk.root)
    assert (code, "Hint: Session same of brief has the same input" in err) == (3, True)
    code, _, err = run("run", "brief.py", "--topic", "otters", "--count", "1", "--paused", cwd=desk.root)
    assert (code, "Hint" in err) == (3, False)  # it is damaged, and so it is none that could go on


def at_terminal(desk: Desk) -> Process:
    return Process("run", "brief.py", "--topic", "otters", cwd=desk.root, tty=True)


@pytest.mark.covers("S4.78")
@pytest.mark.parametrize(("answer", "runs"), [("\n", ["write", "review"]), ("n\n", ["plan", "look_up otters 0"])])
def test_on_a_terminal_it_is_offered(desk: Desk, answer: str, runs: list[str]) -> None:
    desk.failed("write")
    with at_terminal(desk) as process:
        process.until("Resume it? [Y/n]")
        process.type(answer)
        assert process.wait().code == 0
    assert desk.calls[:2] == runs


def test_a_wrong_key_at_the_offer_is_asked_again_and_the_end_of_the_input_leaves(desk: Desk) -> None:
    desk.failed("write")
    with at_terminal(desk) as process:
        process.until("Resume it? [Y/n]")
        process.type("q\n")
        process.until("Type y or n.")
        process.type("\x04")
        assert process.wait().code == 130
    assert len(desk.sessions()) == 1


@pytest.mark.long
def test_a_refused_run_creates_no_store(desk: Desk) -> None:
    for words in (
        ["--session-id", "no id"],
        ["--at-step", "wirte"],
        ["--folder", "out"],
        ["--detach", "--at-step", "x"],
    ):
        assert run("run", "brief.py", "--topic", "otters", *words, cwd=desk.root).code in (2, 5)
        assert not desk.store.exists(), words


@pytest.mark.covers("S4.79")
@pytest.mark.parametrize(("option", "code"), [("--force-restart", 0), ("--paused", 3)])
def test_a_forced_restart_and_a_session_to_store_paused_never_ask(desk: Desk, option: str, code: int) -> None:
    desk.stored("old")
    done = run("run", "brief.py", "--topic", "otters", option, cwd=desk.root, tty=True)
    assert (done.code, "Resume it?" in done.stdout) == (code, False)
    assert len(desk.sessions()) == 2


# on a terminal


@pytest.mark.long
@pytest.mark.covers("S4.80")
def test_a_terminal_shows_what_is_done_and_what_is_pending_and_at_the_end_when_it_ran(desk: Desk) -> None:
    desk.hold("write")
    args = ("run", "brief.py", "--topic", "otters", "--budget", "2")
    with Process(*args, cwd=desk.root, tty=True, size=(100, 30)) as process:
        process.until("2 of 4 steps")
        frame = process.until("review")
        assert re.search(r"✓ +plan +\d.*✓ +research +\d+.* +\$0\.75.*write.*· +review", frame, re.DOTALL)
        assert "$0.75 of $2.00" in frame
        desk.release("write")
        code, out, _ = process.wait()
    assert code == 0
    assert "\x1b[32m" in out
    chart = plain(out)[plain(out).rindex("  plan ") :]
    assert re.search(r"  plan +█.*\n  research +█.*\$0\.75\n  write +█.*\n  review +█.*\nSession", chart)
    assert all(len(line) <= 100 for line in chart.splitlines())


def test_no_color_means_none(desk: Desk) -> None:
    args = ("run", "brief.py", "--topic", "otters")
    _, out, _ = run(*args, cwd=desk.root, tty=True, env={"NO_COLOR": "1"})
    assert "completed" in plain(out)
    assert re.findall(r"\x1b\[[0-9;]*3[0-7]m", out) == []


@pytest.mark.long
def test_ctrl_c_finishes_the_operation_and_prints_last_the_command_that_goes_on(desk: Desk) -> None:
    desk.hold("write")
    with at_terminal(desk) as process:
        process.until("2 of 4 steps")
        process.type("\x03")
        process.until("Ctrl+C again aborts it")
        desk.release("write")
        done = process.wait()
    assert done.code == 130
    (info,) = desk.sessions()
    assert info.status.value == "ready"
    desk.forget_calls()
    assert run(*resume_command(done.stdout), cwd=desk.root).code == 0
    assert desk.calls == ["review"]  # what ran when it was interrupted had been finished, and is remembered
    assert resume_command(done.stdout) == ["resume", info.session_id, "--target", "brief.py"]


BUSY = """
import asyncio
import time
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Workflow, step


class State(BaseModel):
    seen: int = 0


@step(writes="seen")
async def first() -> int:
    return 1


@step(writes="seen")
async def second() -> int:
    Path("calls.txt").write_text("second")
    while Path("hold-second").exists():
        time.sleep(0.01)  # nobody gets a turn meanwhile, and nobody can look
    return 2


@step(writes="seen")
async def third() -> int:
    await asyncio.sleep(60)  # it is left here
    return 3


busy = Workflow("busy", state=State, steps=[first, second, third])
"""


def test_an_interrupted_program_says_where_the_session_stands_and_not_where_it_was_last_seen(desk: Desk) -> None:
    (desk.root / "busy.py").write_text(BUSY)
    desk.hold("second")
    with Process("run", "busy.py", cwd=desk.root) as process:
        desk.reaches("second")
        process.signal(signal.SIGINT)
        desk.release("second")
        done = process.wait()
    assert done.code == 130
    (info,) = desk.sessions()
    assert info.step == "third"
    assert "Interrupted at third#1. Finished work is kept." in done.stdout
