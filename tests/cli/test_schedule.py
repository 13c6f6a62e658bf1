"""``pausepoint schedule``: add, list, pause, resume, trigger and remove schedules."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.clock import to_micros
from pausepoint.model.schedules import ScheduleInfo
from pausepoint.testing import ManualClock
from tests.cli.kit import run
from tests.cli.samples import STORE, execute, letter, project

TURN = ("--queue", "gpu", "--priority", "-5", "--lane", "c7")
ADD = ("schedule", "add", "morning", "letter.py", "--cron", "0 7 * * 1-5", "--zone", "Europe/Berlin",
       "--field", "name=ada")  # fmt: skip


def stored(folder: Path) -> list[ScheduleInfo]:
    async def read() -> list[ScheduleInfo]:
        async with Engine(folder / STORE, create=False, drives="none") as engine:
            return list(await engine.schedules.list())

    return asyncio.run(read())


@pytest.mark.long
def test_a_schedule_is_added_listed_paused_triggered_and_removed(tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = run(*ADD, "--tag", "a", "--owner", "ann", "--by", "ben", *TURN, cwd=folder)
    assert done.code == 0, done.stderr
    assert "Next run: " in done.stdout
    assert "pausepoint worker --target letter.py" in done.stderr
    (made,) = stored(folder)
    assert (made.cron, made.zone, made.input, made.tags, made.owner, made.by) == (
        "0 7 * * 1-5", "Europe/Berlin", {"name": "ada"}, ("a",), "ann", "ben",
    )  # fmt: skip
    assert "07:00" in run("schedule", "ls", cwd=folder).stdout
    assert run("schedule", "pause", "morning", "--by", "ann", cwd=folder).code == 0
    assert "paused" in run("schedule", "ls", cwd=folder).stdout
    triggered = json.loads(run("schedule", "trigger", "morning", "--json", cwd=folder).stdout)
    worked = run("worker", "--once", "--target", "letter.py", cwd=folder)
    assert worked.code == 0, worked.stderr
    shown = json.loads(run("show", triggered["session_id"], "--json", cwd=folder).stdout)
    assert (shown["queue"], shown["priority"], shown["lane"]) == ("gpu", -5, "c7")
    assert shown["status"] == "waiting"  # `worker --once` started it, and drove it until it waits for a reply
    listed = json.loads(run("schedule", "ls", "--json", cwd=folder).stdout)
    assert listed["schedules"][0]["last_session_id"] == triggered["session_id"]
    assert run("schedule", "resume", "morning", cwd=folder).code == 0
    assert json.loads(run("schedule", "rm", "morning", "--json", cwd=folder).stdout) == {"removed": "morning"}
    assert "no schedules" in run("schedule", "ls", cwd=folder).stdout


def test_the_target_may_be_an_option_and_a_list_without_a_store_says_how_to_add_a_schedule(tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = run("schedule", "ls", cwd=folder)
    assert (done.code, "`pausepoint schedule add --help`" in done.stderr) == (4, True)
    words = [word for word in ADD if word != "letter.py"]
    assert run(*words, "--target", "letter.py", cwd=folder).code == 0
    assert [each.workflow for each in stored(folder)] == ["letter"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (ADD, "--replace"),
        (("schedule", "add", "x", "letter.py", "--field", "name=ada", "--cron", "0 7 * *"), "five fields"),
        (
            ("schedule", "add", "x", "letter.py", "--cron", "0 7 * * *", "--field", "name=ada", "--zone", "Moon"),
            "time zone",
        ),
        (("schedule", "add", "a@b", "letter.py", "--cron", "0 7 * * *", "--field", "name=ada"), "not a valid name"),
        (("schedule", "add", "x", "letter.py"), "--cron"),
        (("schedule", "add", "x", "letter.py", "--cron", "0 7 * * *"), "--field name=VALUE"),
        (("schedule", "add", "x", "letter.py", "--cron", "0 7 * * *", "--field", "nmae=x"), "name"),
        (("schedule", "add", "x", "letter.py", "--cron", "0 7 * * *", "--overlap", "skp"), "skip"),
        ((*ADD, "--replace", "--queue", "a b"), "not a valid name of a queue"),
        ((*ADD, "--replace", "--priority", "2000"), "from -1000 (first) to 1000"),
        (("schedule", "pause", "mornin"), "Did you mean 'morning'"),
        (("schedule", "pause"), "NAME"),
        (("schedule", "ls", "morning"), "no name"),
        (("schedule", "rm", "morning", "--zone", "UTC"), "belong to add"),
        (("schedule", "pause", "morning", "--priority", "0"), "belong to add"),
        (("schedule", "remove", "morning"), "ls"),
        ((*ADD, "--target", "other.py"), "several targets: letter.py, other.py"),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert run(*ADD, cwd=folder).code == 0
    before = stored(folder)
    done = run(*words, cwd=folder)
    assert done.code not in (0, 1), done
    assert said in done.stderr
    assert stored(folder) == before


def test_a_run_that_nothing_starts_is_overdue(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert run(*ADD, cwd=folder).code == 0
    [made] = stored(folder)
    assert "overdue" not in run("schedule", "ls", cwd=folder).stdout

    async def missed() -> None:
        clock = ManualClock(start=to_micros(datetime(2026, 1, 1, tzinfo=UTC)))
        async with Engine(folder / STORE, clock=clock, drives="none") as engine:
            await engine.schedule("morning", letter, cron=made.cron, zone=made.zone, name="ada")

    asyncio.run(missed())
    assert "2026-01-01 07:00, overdue" in run("schedule", "ls", cwd=folder).stdout


def test_a_damaged_schedule_is_listed_and_can_be_removed(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert run(*ADD, cwd=folder).code == 0
    execute(folder / STORE, "UPDATE schedules SET zone = 'UTC'")
    done = run("schedule", "ls", cwd=folder)
    assert (done.code, "morning" in done.stdout, "Remove it" in done.stdout) == (5, True, True)
    assert json.loads(run("schedule", "ls", "--json", cwd=folder).stdout)["damaged"][0]["name"] == "morning"
    assert run("schedule", "rm", "morning", cwd=folder).code == 0
    assert run("schedule", "ls", cwd=folder).code == 0
