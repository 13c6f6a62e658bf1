"""``pausepoint run`` and ``resume`` of a session that sleeps: with a terminal, without one, in the background."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from tests.cli import naps
from tests.cli.desk import Desk
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, within
from tests.support.waits import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(naps.__file__, tmp_path / "naps.py")
    return tmp_path


def asleep(folder: Path) -> None:
    """Store a session that sleeps for three hours."""

    async def start(engine: Engine) -> None:
        await engine.start(naps.nap, session_id="x")
        async for info in engine.session("x").watch():
            if info.status is Status.SLEEPING:
                return

    within(folder / STORE, start, naps.nap)


def status_of(folder: Path) -> Status:
    async def look(engine: Engine) -> Status:
        return (await engine.session("x").info()).status

    found: Status = within(folder / STORE, look, naps.nap)
    return found


@pytest.mark.parametrize("target", ["naps.py:nap", "naps.py:parent"])
def test_without_a_terminal_a_run_that_sleeps_returns_3_and_the_wake_time(folder: Path, target: str) -> None:
    code, out, err = run("run", target, "--session-id", "x", cwd=folder)
    assert code == 3
    assert re.search(r"is (sleeping|waiting) after", out)
    assert re.search(r"leeping until .* \(in (3 h|2 h 59 min)\)", err)
    assert "pausepoint resume x --target" in err


@pytest.mark.long
@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_without_a_terminal_the_document_has_the_wake_time(folder: Path, form: str) -> None:
    code, out, err = run("run", "naps.py:nap", "--session-id", "x", form, cwd=folder)
    assert (code, err) == (3, "")
    found = json.loads(out.splitlines()[-1] if form == "--jsonl" else out)
    assert found["status"] == "sleeping"
    wakes = datetime.fromisoformat(found["wakes_at"]) - datetime.now(UTC)
    assert timedelta(hours=2) < wakes < timedelta(hours=3)
    code, out, err = run("resume", "x", "--target", "naps.py:nap", form, cwd=folder)
    assert (code, err) == (3, "")
    again = json.loads(out.splitlines()[-1] if form == "--jsonl" else out)
    assert (again["status"], again["wakes_at"]) == ("sleeping", found["wakes_at"])
    assert again["resume"] == "pausepoint resume x --target naps.py:nap"


@pytest.mark.long
def test_a_short_sleep_is_waited_for(folder: Path) -> None:
    for target in ("naps.py:nap", "naps.py:parent"):
        code, out, _ = run("run", target, "--seconds", "0.3", cwd=folder)
        assert (code, "completed" in out) == (0, True)


@pytest.mark.covers("S4.63")
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated")]
)
@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_signal_while_a_session_sleeps_prints_two_lines(
    folder: Path, verb: str, number: signal.Signals, code: int, said: str
) -> None:
    words = ["run", "naps.py:nap", "--session-id", "x"]
    if verb == "resume":
        asleep(folder)
        words = ["resume", "x", "--target", "naps.py:nap"]
    with Process(*words, cwd=folder, tty=True, size=(200, 24)) as process:
        process.until("sleeping")
        process.type("\x03") if number == signal.SIGINT else process.signal(number)
        done = process.wait()
    assert done.code == code
    lines = [line.strip() for line in plain(done.stdout).rstrip().splitlines()]
    assert re.fullmatch(rf"(\^C)?{said} at rest#1, sleeping until .+\. Finished work is kept\.", lines[-2])
    assert lines[-1] == "Resume:  pausepoint resume x --target naps.py:nap"
    assert not re.search(r"Traceback|Error|never retrieved", done.stdout)
    assert status_of(folder) is Status.SLEEPING


@pytest.mark.long
def test_a_background_process_stays_with_a_sleeping_session_until_a_signal(folder: Path) -> None:
    code, out, _ = run("run", "naps.py:nap", "--session-id", "x", "--detach", cwd=folder)
    assert code == 0
    process = int(re.findall(r"in process (\d+)", out)[0])
    log = folder / ".pausepoint" / "logs" / "x.log"
    try:
        until(lambda: status_of(folder) is Status.SLEEPING)
        until(lambda: "Finished step: lie_down" in log.read_text())
    finally:
        os.kill(process, signal.SIGTERM)  # fails if it has ended on its own
    until(lambda: "Resume:" in log.read_text())
    assert "Terminated at rest#1, sleeping until" in log.read_text().splitlines()[-2]
    assert not re.search(r"Traceback|never retrieved", log.read_text())


# resume --detach


@pytest.mark.long
def test_a_detached_resume_returns_once_it_has_begun_and_continues_in_the_background(desk: Desk) -> None:
    session = desk.failed("write")
    desk.hold("write")
    code, out, err = run("resume", session, "--target", "brief.py", "--detach", cwd=desk.root)
    assert code == 0, err
    assert re.search(rf"Session {session} of brief is running in the background, in process \d+", out)
    assert f"Watch:  pausepoint watch {session}" in err
    desk.reaches("write")
    desk.release("write")
    assert run("watch", session, cwd=desk.root).code == 0
    assert desk.calls == ["write", "review"]


@pytest.mark.long
def test_a_detached_resume_passes_its_options_on_and_refuses_as_a_plain_one_does(desk: Desk) -> None:
    session = desk.failed("write")
    args = ("resume", session, "--target", "brief.py", "--detach")
    code, _, err = run(*args, "--owner", "eve", cwd=desk.root)
    assert code == 0, err
    until(lambda: desk.sessions()[0].status is Status.COMPLETED)
    code, out, _ = run(*args, "--from", "research", "--pause-after", "research", "--json", cwd=desk.root)
    assert (code, json.loads(out)["session_id"]) == (0, session)
    until(lambda: desk.sessions()[0].status is Status.PAUSED)
    assert desk.sessions()[0].step == "write"
    desk.hold("write")
    with Process("resume", session, "--target", "brief.py", cwd=desk.root) as process:
        process.until("Running step: write")
        code, _, err = run(*args, cwd=desk.root)
        assert (code, f"Session '{session}' is running in" in err) == (5, True)
        desk.release("write")
        assert process.wait().code == 0


@pytest.mark.long
def test_a_detached_run_that_resumes_does_so_in_the_background_too(desk: Desk) -> None:
    session = desk.failed("write")
    code, out, _ = run("run", "brief.py", "--topic", "otters", "--resume", "--detach", cwd=desk.root)
    assert (code, f"Session {session} of brief is running in the background" in out) == (0, True)
    until(lambda: desk.sessions()[0].status is Status.COMPLETED)
