"""`pause`, `cancel` and `send`, as processes beside one that drives the sessions. None of them needs any code."""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from pausepoint import Engine, Session, Status
from pausepoint.cli.app import app
from tests.cli import documents, office
from tests.cli.kit import Done, Process, plain, run
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import Gate

OFFICE = Path(office.__file__)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a store and nothing that says where code is."""
    (tmp_path / ".pausepoint").mkdir()
    yield tmp_path
    office.held.clear()


@asynccontextmanager
async def opened(place: Path) -> AsyncIterator[Engine]:
    url = f"sqlite:///{place}/.pausepoint/pausepoint.db"
    async with Engine(url, workflows=[office.brief, office.chat], signals=False) as engine:
        yield engine


@asynccontextmanager
async def writing(place: Path) -> AsyncIterator[tuple[Session[Any], Gate]]:
    """A session that this process drives, in the middle of `write`."""
    gate = office.held["write"] = Gate()
    async with opened(place) as engine:
        session = await engine.start(office.brief, topic="otters", session_id="brief-1")
        await gate.reached.wait()
        yield session, gate


async def beside(*args: str | Path, cwd: Path, **how: Any) -> Done:
    return await asyncio.to_thread(run, *args, cwd=cwd, **how)


def call(*args: str) -> Result:
    """In this process: for what ends before anything is opened."""
    return CliRunner().invoke(app, list(args))


# pause


@pytest.mark.covers("S1.48")
@on_loop
async def test_a_running_session_is_paused_by_a_command_that_knows_no_code(place: Path) -> None:
    async with writing(place) as (session, gate):
        done = await beside("pause", "brief-1", "--reason", "lunch", cwd=place)
        assert done.code == 0
        assert done.stdout.startswith("brief-1  brief  pausing    still finishing write (process ")
        assert done.stderr == "Resume:  pausepoint resume brief-1\n"
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, (await session.info()).step) == (Status.PAUSED, "review")
        (pause,) = outcome.pauses
        assert (pause.reason, pause.by, pause.mode, pause.freeze) == ("lunch", getpass.getuser(), "finish", False)


@on_loop
async def test_wait_waits_until_the_step_is_finished(place: Path) -> None:
    async with writing(place) as (session, gate):
        with Process("pause", "brief-1", "--wait", "--by", "ann", "--freeze", cwd=place) as process:
            await asyncio.to_thread(process.until, "still finishing write")
            assert (await session.info()).status is Status.PAUSING
            assert process.child.poll() is None
            gate.opened.set()
            done = await asyncio.to_thread(process.wait)
        assert done.code == 0
        assert done.stdout.splitlines()[1] == "brief-1  brief  paused     at review"
        assert re.search(r"All have stopped, [\d.]+ m?s after the request\.", done.stdout + done.stderr)
        (pause,) = await session.pauses()
        assert (pause.by, pause.freeze) == ("ann", True)


@on_loop
async def test_how_long_it_took_counts_from_the_first_time_that_somebody_asked(place: Path) -> None:
    async with writing(place) as (session, gate):
        began = time.monotonic()
        await session.pause(reason="lunch")
        await asyncio.sleep(0.2)
        with Process("pause", "brief-1", "--wait", cwd=place) as process:
            await asyncio.to_thread(process.until, "still finishing write")
            gate.opened.set()
            done = await asyncio.to_thread(process.wait)
        took = re.search(r"All have stopped, ([\d.]+) (m?s) after the request\.", done.stdout)
        assert took
        seconds = float(took[1]) / (1000 if took[2] == "ms" else 1)
        assert 0.2 <= seconds <= time.monotonic() - began + 0.05  # it is rounded


@on_loop
async def test_every_command_and_the_page_have_the_same_figure_for_one_pause(place: Path) -> None:
    async with writing(place) as (_, gate):
        with Process("pause", "--all", "--wait", cwd=place) as process:
            await asyncio.to_thread(process.until, "still finishing write")
            gate.opened.set()
            done = await asyncio.to_thread(process.wait)
        took = re.search(r"All have stopped, (.+) after the request\.", done.stdout + done.stderr)
        listed = await beside("ls", cwd=place)
        within = re.search(r"the last one within (.+?)\. ", listed.stdout + listed.stderr)
        assert took
        assert within
        assert took[1] == within[1]
        again = json.loads((await beside("pause", "--all", "--wait", "--json", cwd=place)).stdout)
        assert again["stopped_in"] in (None, again["standing_pause"]["longest_seconds"])


@on_loop
async def test_abort_does_not_wait_for_the_step_and_json_says_how_it_ended(place: Path) -> None:
    async with writing(place) as (_, gate):
        done = await beside("pause", "brief-1", "--abort", "--wait", "--json", cwd=place)
        assert done.code == 0
        documents.check("pause", done.stdout)
        told = json.loads(done.stdout)
        (found,) = told["sessions"]
        assert (found["session_id"], found["status"], found["step"]) == ("brief-1", "paused", "write")
        assert 0 < told["stopped_in"] < PATIENCE
        assert not gate.opened.is_set()


@on_loop
async def test_who_waits_is_told_that_somebody_took_the_pause_back(place: Path) -> None:
    async with writing(place) as (session, gate):
        with Process("pause", "brief-1", "--wait", cwd=place) as process:
            await asyncio.to_thread(process.until, "still finishing write")
            await session.resume()
            done = await asyncio.to_thread(process.wait)
        assert (done.code, "The pause was withdrawn: brief-1" in done.stdout) == (5, True)
        gate.opened.set()


@on_loop
async def test_who_is_tired_of_waiting_leaves_the_pause_behind(place: Path) -> None:
    async with writing(place) as (session, gate):
        with Process("pause", "brief-1", "--wait", cwd=place, tty=True) as process:
            await asyncio.to_thread(process.until, "still finishing")
            process.type("\x03")
            done = await asyncio.to_thread(process.wait)
        assert (done.code, "The pause stays requested." in done.stdout) == (130, True)
        assert (await session.info()).pause_requested
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED


@on_loop
async def test_filters_pause_those_that_match_all_of_them(place: Path) -> None:
    async with opened(place) as engine:
        for name, tag in (("a", "night"), ("b", "day"), ("c", "night")):
            await engine.start(office.chat, session_id=name, tags=tag, owner="ann")
        await engine.start(office.brief, topic="otters", session_id="done", tags="old")
        await engine.session("done").outcome()
        done = await beside("pause", "--workflow", "chat", "--tag", "night", "--json", cwd=place)
        assert done.code == 0
        assert sorted(each["session_id"] for each in json.loads(done.stdout)["done"]) == ["a", "c"]
        statuses = {info.session_id: info.status.value for info in await engine.sessions()}
        assert statuses == {"a": "paused", "b": "waiting", "c": "paused", "done": "completed"}

        done = await beside("pause", "--owner", "anne", cwd=place)
        assert (done.code, done.stderr) == (4, "pausepoint: No session has the owner 'anne'. Did you mean 'ann'?\n")
        done = await beside("pause", "--tag", "old", cwd=place)
        assert (done.code, done.stdout) == (0, "There is nothing to pause: the matching session has ended.\n")

        done = await beside("pause", "--all", cwd=place, tty=True)
        assert done.code == 0
        assert "\x1b[33mpaused\x1b[0m" in done.stdout
        assert [line.split() for line in plain(done.stdout).splitlines()[:3]] == [
            [name, "chat", "paused", "at", "listen"] for name in "cba"
        ]


@on_loop
async def test_a_session_that_has_ended_stays_as_it_is_and_says_so(place: Path) -> None:
    async with opened(place) as engine:
        session = await engine.start(office.brief, topic="otters", session_id="done")
        await session.outcome()
        for verb in ("pause", "cancel"):
            done = await beside(verb, "done", cwd=place)
            assert done == (0, "Session done has already completed. Nothing was changed.\n", "")
        talk = await engine.start(office.chat, session_id="talk")
        await talk.outcome()
        both = await beside("cancel", "talk", "done", cwd=place)
        assert "talk  chat  cancelled  ended at listen\n" in both.stdout
        assert "Session done has already completed. Nothing was changed.\n" in both.stdout
        again = await beside("cancel", "talk", cwd=place)
        assert again == (0, "Session talk was already cancelled. Nothing was changed.\n", "")


@on_loop
async def test_a_damaged_session_does_not_keep_the_others_from_being_stopped(place: Path) -> None:
    async with opened(place) as engine:
        for name in ("a", "b"):
            session = await engine.start(office.chat, session_id=name)
            await session.outcome()
    connection = apsw.Connection(str(place / ".pausepoint/pausepoint.db"))
    connection.execute("UPDATE sessions SET tags = 'no json' WHERE session_id = 'a'")
    assert connection.changes() == 1
    connection.close()
    done = await beside("pause", "--all", cwd=place)
    assert done.code == 5
    assert "b  chat  paused     at listen" in done.stdout
    assert "a  is damaged, but the pause is stored. " in done.stdout


@pytest.mark.parametrize(
    "args",
    [(), ("one", "--all"), ("one", "--tag", "x"), ("--all", "--workflow", "x"), ("--reason", "x" * 10_001, "one")],
    ids=["nothing", "one and all", "one and a filter", "all and a filter", "a long reason"],
)
def test_what_to_pause_has_to_be_clear(args: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert call("pause", *args).exit_code == 2


def test_without_a_store_all_is_nothing_and_an_id_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = call("pause", "--all")
    assert (found.exit_code, "nothing to pause" in found.stdout) == (0, True)
    assert json.loads(call("pause", "--all", "--json").stdout) == {
        "standing_pause": None,
        "sessions": [],
        "total": 0,
        "next": None,
        "damaged": [],
        "stopped_in": None,
    }
    for args in (("pause", "x"), ("cancel", "x"), ("send", "x", "hi"), ("pause", "--all", "--store", "gone.db")):
        assert call(*args).exit_code == 4
    assert list(tmp_path.iterdir()) == []


# cancel


@on_loop
async def test_cancel_ends_what_nobody_drives_at_once_and_the_rest_at_its_next_safe_point(place: Path) -> None:
    gate = office.held["write"] = Gate()
    async with opened(place) as engine:
        session = await engine.start(office.brief, topic="otters", session_id="brief-1")
        await gate.reached.wait()
        await (await engine.start(office.chat, session_id="talk")).outcome()
        done = await beside("cancel", "talk", "nobody", cwd=place)
        assert (done.code, (await engine.session("talk").info()).status) == (4, Status.WAITING)

        with Process("cancel", "brief-1", "talk", "--wait", "--reason", "no use", cwd=place) as process:
            await asyncio.to_thread(process.until, "ended at listen")
            gate.opened.set()
            done = await asyncio.to_thread(process.wait)
        assert done.code == 0
        first, second, third = done.stdout.splitlines()
        assert first.startswith("brief-1  brief  running    ends after write (process ")
        assert second == "talk     chat   cancelled  ended at listen"
        assert third == "brief-1  brief  cancelled  ended at review"
        events = [event async for event in session.events() if event.event_type == "cancel.requested"]
        assert [event.data.get("reason") for event in events] == ["no use"]


@on_loop
async def test_cancelling_twice_is_no_error(place: Path) -> None:
    async with opened(place) as engine:
        await (await engine.start(office.chat, session_id="talk")).outcome()
        await engine.session("talk").cancel()
        done = await beside("cancel", "talk", "--json", cwd=place)
        assert (done.code, json.loads(done.stdout)["sessions"][0]["status"]) == (0, "cancelled")


# send


@on_loop
async def test_messages_reach_a_session_as_text_as_json_and_from_the_standard_input(place: Path) -> None:
    async with opened(place) as engine:
        session = await engine.start(office.chat, session_id="talk")
        await session.outcome()
        for number, (args, typed) in enumerate([(("5",), ""), (("-",), "two\nlines\n"), (("--data", "-"), '{"a": 6}')]):
            done = await beside("send", "talk", *args, cwd=place, typed=typed)
            assert done.code == 0
            while len((await session.state()).said) <= number:
                await asyncio.sleep(0.02)
        assert (await session.state()).said == ["5", "two\nlines", {"a": 6}]


@on_loop
async def test_the_hint_of_a_pause_works_without_the_code_while_the_process_still_has_the_step(place: Path) -> None:
    async with writing(place) as (session, gate):
        paused = await beside("pause", "brief-1", cwd=place)
        hint = paused.stderr.removeprefix("Resume:  pausepoint ").split()
        done = await beside(*hint, cwd=place)
        assert (done.code, done.stderr) == (0, "")
        assert done.stdout.startswith("The pause of brief-1 is withdrawn. It continues in process ")
        gate.opened.set()
        assert not (await session.info()).pause_requested


@pytest.mark.long
@on_loop
async def test_the_hint_of_a_pause_works_without_the_code_after_the_step_has_exited(place: Path) -> None:
    gate = office.held["write"] = Gate()
    async with opened(place) as engine:
        session = await engine.start(office.brief, topic="otters", session_id="brief-1")
        await gate.reached.wait()
        paused = await beside("pause", "brief-1", "--abort", "--wait", cwd=place)
        assert "Resume:  pausepoint resume brief-1\n" in paused.stderr
        assert re.search(r"^brief-1 was driven by:  .*python", paused.stderr, re.MULTILINE)
        gate.opened.set()
        done = await beside("resume", "brief-1", cwd=place)
        assert (done.code, done.stderr) == (0, "")
        told = r"The pause of brief-1 is withdrawn\. It (continues in process .*|has completed)\.\n"
        assert re.fullmatch(told, done.stdout)
        assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.long
def test_a_pause_can_be_withdrawn_without_the_code_and_the_command_says_what_is_still_needed(place: Path) -> None:
    with Engine(place / ".pausepoint" / "pausepoint.db") as engine:
        engine.start(office.brief, topic="otters", session_id="brief-1", paused=True)
    assert "Resume:  pausepoint resume brief-1\n" in run("show", "brief-1", cwd=place).stdout
    done = run("resume", "brief-1", cwd=place)
    assert (done.code, done.stdout) == (3, "The pause of brief-1 is withdrawn.\n")
    assert "No open process has its workflow 'brief'." in done.stderr
    assert "Resume (add --target file.py:name):  pausepoint resume brief-1\n" in done.stderr
    refused = run("resume", "brief-1", cwd=place)
    assert (refused.code, "Add --target file.py:name" in refused.stderr) == (2, True)
    assert (
        "Resume (add --target file.py:name):  pausepoint resume brief-1\n" in run("show", "brief-1", cwd=place).stdout
    )
    assert run("resume", "brief-1", "--target", f"{OFFICE}:brief", cwd=place).code == 0


def test_a_hint_names_the_store_that_the_command_was_given(place: Path) -> None:
    with Engine(place / "other.db") as engine:
        engine.start(office.brief, topic="otters", session_id="brief-1", paused=True)
        engine.pause_all()
    for command in ("ls", "status", "doctor", "show nosuch"):
        done = run(*command.split(), "--store", "other.db", cwd=place)
        hints = re.findall(r"pausepoint (?!run --help|init)[a-z]+ [^`\n]*|pausepoint ls", done.stdout + done.stderr)
        assert hints
        assert all("--store other.db" in hint for hint in hints), hints


@on_loop
async def test_a_message_is_kept_until_somebody_drives_the_session_on(place: Path) -> None:
    async with opened(place) as engine:
        await (await engine.start(office.chat, session_id="talk")).outcome()
    done = await beside("send", "talk", "bye", cwd=place)
    assert done.stdout == "talk  ready: the message is stored, and delivered when the session is resumed\n"
    assert done.stderr == "Resume (add --target file.py:name):  pausepoint resume talk\n"
    async with opened(place) as engine:
        assert (await engine.session("talk").outcome()).status is Status.COMPLETED
    done = await beside("send", "talk", "again", cwd=place)
    assert (done.code, "accepts no more messages" in done.stderr) == (5, True)


@on_loop
async def test_a_message_with_a_key_is_sent_once(place: Path) -> None:
    async with opened(place) as engine:
        await (await engine.start(office.chat, session_id="talk")).outcome()
    for _ in range(2):
        done = await beside("send", "talk", "hi", "--key", "m1", cwd=place)
        assert (done.code, done.stdout) == (
            0, "talk  ready: the message is stored, and delivered when the session is resumed\n",
        )  # fmt: skip
    done = await beside("send", "talk", "ho", "--key", "m1", cwd=place)
    assert (done.code, "different message with the key 'm1'" in done.stderr) == (5, True)
    assert (await beside("send", "talk", "ho", "--key", "", cwd=place)).code == 2
    async with opened(place) as engine:
        session = engine.session("talk")
        await session.outcome()
        assert (await session.state()).said == ["hi"]


@on_loop
async def test_with_a_workflow_a_session_is_started_and_every_turn_is_run_here(place: Path) -> None:
    target = f"{OFFICE}:chat"
    done = await beside("send", "talk", "hi", "--workflow", target, "--field", "name=ann", "--json", cwd=place)
    found = json.loads(done.stdout)
    assert (done.code, found["status"], found["state"]) == (3, "waiting", {"name": "ann", "said": ["hi"]})
    done = await beside("send", "talk", "bye", "--workflow", target, cwd=place)
    assert (done.code, '"bye"]' in done.stdout) == (0, True)
    done = await beside("send", "talk", "x", "--workflow", f"{OFFICE}:brief", cwd=place)
    assert (done.code, "belongs to workflow 'chat', not to 'brief'" in done.stderr) == (5, True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("talk",), "Missing input: --field topic=TEXT."),
        (("talk", "--field", "topc=otters"), "has no field 'topc'. Did you mean 'topic'?"),
        (("no id", "--field", "topic=otters"), "'no id' is not a valid session id"),
    ],
    ids=["no input", "unknown field", "no id"],
)
def test_a_refused_start_creates_no_store(args: tuple[str, ...], says: str, place: Path) -> None:
    name, *fields = args
    done = run("send", name, "hi", "--workflow", f"{OFFICE}:brief", *fields, cwd=place)
    assert (done.code, says in done.stderr) == (2, True), done
    assert list((place / ".pausepoint").iterdir()) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "Give either TEXT or --data JSON"),
        (("hi", "--data", "5"), "Give either TEXT or --data JSON"),
        (("--data", "{"), "--data is not JSON"),
        (("hi", "--field", "name=ann"), "Add --workflow to start one"),
    ],
    ids=["nothing", "both", "no json", "fields of what"],
)
def test_what_is_sent_has_to_be_clear(
    args: tuple[str, ...], says: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    found = call("send", "talk", *args)
    assert (found.exit_code, says in found.stderr) == (2, True)
