"""`watch` and `events`."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.cli.commands import watch as watching
from tests.cli import documents
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, execute, letters, within
from tests.cli.zoo import fill, here, project

Zoo = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    return folder, fill(folder, "octopus", "fail", "wait", "call", student="lunch")


@contextmanager
def held(folder: Path) -> Iterator[Process]:
    """A session ``busy`` that another process drives; its step ``write`` ends when there is a file ``go``."""
    project(folder)
    with Process("run", "brief.py", "--topic", "hold", "--session-id", "busy", cwd=folder) as process:
        process.until("Running step: write")
        yield process


# events


def test_events_are_shown_oldest_first(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("events", ids["octopus"][:8], cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    kinds = [line.split()[1] for line in done.stdout.splitlines()]
    assert kinds[0] == "session.created"
    assert kinds.count("operation.completed") == 3
    assert kinds[-2:] == ["step.completed", "session.completed"]
    assert done.stdout.splitlines()[-2].endswith("step.completed        review#1 done")


def test_events_as_json_go_on_behind_a_cursor(zoo: Zoo) -> None:
    folder, ids = zoo
    every = here(folder, "events", ids["octopus"], "--jsonl").stdout
    documents.check("events", every, "jsonl")
    events = [json.loads(line) for line in every.splitlines()]
    rest = here(folder, "events", ids["octopus"], "--after", events[4]["cursor"], "--json").stdout
    documents.check("events", rest)
    assert json.loads(rest)["events"] == events[5:]
    steps = here(folder, "events", ids["octopus"], "--type", "step", "--last", "2", "--jsonl").stdout
    assert [json.loads(line)["summary"] for line in steps.splitlines()] == ["write#1 done", "review#1 done"]


def test_events_refuse_what_cannot_be_meant(zoo: Zoo) -> None:
    folder, ids = zoo
    wrong = here(folder, "events", ids["octopus"], "--after", "nowhere")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "'nowhere' is not a cursor" in wrong.stderr
    assert here(folder, "events", ids["octopus"], "-f", "--json").code == 2
    mistyped = here(folder, "events", ids["octopus"], "--type", "stepp")
    assert (mistyped.code, mistyped.stdout) == (0, "")
    assert "Did you mean 'step'?" in mistyped.stderr
    assert here(folder, "events", "nobody").code == 4


def test_following_events_ends_with_the_session(tmp_path: Path) -> None:
    with held(tmp_path) as runs, Process("events", "busy", "-f", "--jsonl", cwd=tmp_path) as follows:
        follows.until("research#1 done")
        (tmp_path / "go").touch()
        done = follows.wait()
        assert runs.wait().code == 0
    assert done.code == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    documents.check("events", done.stdout, "jsonl")
    assert events[-1]["event_type"] == "session.completed"


def test_redacted_and_damaged_history_is_called_so(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada", bob="Bob")
    within(store, lambda engine: engine.session("ada").send("a secret"))
    within(store, lambda engine: engine.session("ada").redact(signal=1, by="bob"))
    assert "signal 1 (message) was redacted" in here(tmp_path, "events", "ada").stdout
    execute(store, "UPDATE log SET payload = x'00' WHERE seq = 2")
    broken = here(tmp_path, "events", "bob")
    assert broken.code == 1
    assert "record 2" in broken.stderr


# watch


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        ("octopus", 0, "has completed"),
        ("fail", 1, "Resume:  pausepoint resume"),
        ("wait", 3, "Waiting for a message."),
        ("call", 3, "Waiting for a child."),
        ("student", 3, "Paused by bob: lunch"),
    ],
)
def test_the_exit_code_of_watch_tells_how_a_session_stands(zoo: Zoo, topic: str, code: int, said: str) -> None:
    folder, ids = zoo
    done = here(folder, "watch", ids.get(topic, topic))
    assert (done.code, done.stderr) == (code, "")
    assert said in done.stdout


def test_watch_as_a_process_gives_its_code_and_one_document(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("watch", ids["fail"], "--json", cwd=folder)
    assert (done.code, done.stderr) == (1, "")
    documents.check("watch", done.stdout)
    assert json.loads(done.stdout)["status"] == "failed"
    assert here(folder, "watch", "nobody").code == 4


@pytest.mark.long
def test_a_session_is_watched_in_a_pipe_until_it_ends(tmp_path: Path) -> None:
    with held(tmp_path) as runs, Process("watch", "busy", cwd=tmp_path) as watch:
        watch.until("Running step: write")
        (tmp_path / "go").touch()
        done = watch.wait()
        assert runs.wait().code == 0
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "busy (brief) is running: 1 visit done, now at write#1"
    assert [line.partition(" in ")[0] for line in lines if line.startswith("Finished")] == [
        "Finished step: write", "Finished step: review",
    ]  # fmt: skip
    assert lines[-1].startswith("busy has completed")


@pytest.mark.long
def test_a_session_is_watched_on_a_terminal_until_somebody_pauses_it(tmp_path: Path) -> None:
    with held(tmp_path) as runs, Process("watch", "busy", cwd=tmp_path, tty=True) as watch:
        watch.until("1 of 3 steps")
        found = json.loads(run("pause", "busy", "--reason", "lunch", "--by", "bob", "--json", cwd=tmp_path).stdout)
        assert [each["status"] for each in found["sessions"]] == ["pausing"]
        watch.until("Pausing at the next safe point")
        said = run("status", cwd=tmp_path).stdout
        assert re.search(r"finishing a step\n  busy  brief  write  bob: lunch · .+\n +running in process \d+ on ", said)
        (tmp_path / "go").touch()
        done = watch.wait()
        assert runs.wait().code == 3
    assert done.code == 3
    assert "Paused by bob: lunch\nResume:  pausepoint resume busy\n" in plain(done.stdout)


@pytest.mark.long
def test_ctrl_c_ends_the_watching_and_not_the_session(tmp_path: Path) -> None:
    with held(tmp_path) as runs, Process("watch", "--jsonl", "busy", cwd=tmp_path) as watch:
        listing = json.loads(here(tmp_path, "ls", "--status", "running", "--json").stdout)
        assert listing["total"] == 1
        with Process("watch", cwd=tmp_path) as every:
            every.until("busy is running at write")
            watch.signal(signal.SIGINT)
            assert watch.wait().code == 130
            (tmp_path / "go").touch()
            done = every.wait()
        assert runs.wait().code == 0
    assert done.code == 0, "all that ran have completed"
    assert "session.completed" in done.stdout
    assert done.stdout.endswith("busy has completed\n")


def test_nothing_to_watch_is_said(tmp_path: Path, zoo: Zoo) -> None:
    none = here(tmp_path, "watch")
    assert (none.code, none.stdout) == (0, "")
    assert "Nothing is running" in none.stderr
    idle = here(zoo[0], "watch", "--json")
    documents.check("watch", idle.stdout)
    assert (idle.code, json.loads(idle.stdout)["sessions"]) == (0, [])


@pytest.mark.long
def test_a_session_that_nobody_takes_up_is_not_watched_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(tmp_path, "sleep")
    monkeypatch.setattr(watching, "GRACE", 0.3)
    execute(tmp_path / STORE, "UPDATE sessions SET wakes_at = 0")
    done = here(tmp_path, "watch", ids["sleep"])
    assert done.code == 3
    assert "It can continue, but no process is running it." in done.stdout


def test_a_parent_is_watched_while_its_child_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = fill(tmp_path, "call")

    async def answers() -> Any:
        async with Engine(tmp_path / STORE) as engine:
            [child] = await engine.session(ids["call"]).children()
            assert await watching._is_progressing(engine, await engine.session(ids["call"]).info()) is False
            await engine.session(child.session_id).send("a draft")
            return await watching._is_progressing(engine, await engine.session(ids["call"]).info())

    assert asyncio.run(answers()) is None, "the child is due; somebody may be about to take it up"
