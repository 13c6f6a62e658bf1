"""``pausepoint worker``: what nobody drives is driven; what a person stopped is left alone."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from pausepoint import Engine, Workflow, step
from pausepoint.cli.app import app
from pausepoint.cli.commands import worker
from pausepoint.cli.health import Health
from pausepoint.errors import StoreUnavailable
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.cli import brief as sample
from tests.cli.desk import Desk
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, execute, letters, project, within
from tests.support.loop import PATIENCE

TARGET = ("--target", "brief.py")

NAPS = """
from datetime import timedelta

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Nap(BaseModel):
    done: bool = False


@step(writes="done")
async def doze(ctx: Context) -> bool:
    await ctx.sleep(timedelta(milliseconds=300))
    return True


@step(writes="done")
async def ask(ctx: Context) -> bool:
    await ctx.sleep(timedelta(milliseconds=300))
    return (await ctx.call(inner)).done


inner = Workflow("inner", state=Nap, steps=[doze])
outer = Workflow("outer", state=Nap, steps=[ask])
"""


class Nothing(BaseModel):
    pass


@step
async def nothing() -> None:
    pass


other_letter = Workflow("nothing", state=Nothing, steps=[nothing])
"""An engine that knows this one alone only looks."""


def interrupted(desk: Desk, *ids: str) -> None:
    """Sessions that were started by an engine that was closed before they could do much."""

    async def start() -> None:
        async with Engine(desk.store) as engine:
            for session_id in ids:
                await engine.start(sample.brief, topic="otters", session_id=session_id)

    with chdir(desk.root):
        asyncio.run(start())
    desk.forget_calls()


@pytest.mark.long
def test_a_worker_drives_what_is_ready_and_leaves_what_was_paused_or_failed(desk: Desk) -> None:
    interrupted(desk, "one", "two")
    desk.stored("paused")
    desk.failed("plan", "failed")
    code, out, err = run("worker", "--once", *TARGET, cwd=desk.root)
    assert code == 0
    assert f"Driving brief in {desk.store}" in err
    for session in ("one", "two"):
        assert re.search(rf"^\d\d:\d\d:\d\d  {session}  resumed .*$", out, re.MULTILINE)
        assert re.search(rf"^\d\d:\d\d:\d\d  {session}  completed$", out, re.MULTILINE)
    stand = {info.session_id: info.status.value for info in desk.sessions()}
    assert stand == {"one": "completed", "two": "completed", "paused": "paused", "failed": "failed"}


@pytest.mark.long
def test_a_worker_takes_up_what_another_process_was_killed_with_and_ends_with_143(desk: Desk) -> None:
    with Process("worker", "--jsonl", *TARGET, cwd=desk.root) as worker:
        desk.hold("write")
        with Process("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root) as process:
            process.until("Running step: write")
            process.signal(signal.SIGKILL)
        desk.release("write")
        worker.until('"text": "completed"')
        worker.signal(signal.SIGTERM)
        done = worker.wait()
    assert done.code == 143
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["session_id"] for line in lines] == ["mine"] * len(lines)
    assert lines[0]["text"].startswith("resumed")
    assert desk.calls.count("plan") == 1


@pytest.mark.parametrize("everything", [False, True])
def test_a_pause_that_comes_between_the_look_and_the_pick_up_stays(
    desk: Desk, everything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(desk, "one", "two")
    take = SqliteStore.take
    looks = 0

    async def pause_then_take(store: SqliteStore, *given: Any) -> list[SessionRow]:
        nonlocal looks
        looks += 1
        async with Engine(desk.store) as operator:
            for session_id in ("one", "two") if not everything else ():
                await operator.session(session_id).pause(by="ann")
            if everything:
                await operator.pause_all(by="ann")
        return await take(store, *given)

    monkeypatch.setattr(SqliteStore, "take", pause_then_take)
    monkeypatch.chdir(desk.root)
    done = CliRunner().invoke(app, ["worker", "--once", *TARGET])
    assert (done.exit_code, desk.calls, looks) == (0, [], 1)
    assert {info.session_id: info.status.value for info in desk.sessions()} == {"one": "paused", "two": "paused"}


def test_an_interrupted_worker_leaves_its_sessions_ready(desk: Desk) -> None:
    interrupted(desk, "mine")
    desk.hold("write")
    with Process("worker", *TARGET, cwd=desk.root, tty=True) as worker:
        worker.until("mine  resumed")
        desk.reaches("write")
        worker.type("\x03")
        desk.release("write")
        done = worker.wait()
    assert done.code == 130
    assert "Stopped. Unfinished sessions are ready for the next worker." in done.stdout
    (info,) = desk.sessions()
    assert info.status.value in ("ready", "completed")


@pytest.mark.long
def test_a_worker_tells_its_health_and_drains_for_as_long_as_it_may(desk: Desk) -> None:
    interrupted(desk, "mine")
    desk.hold("write")
    with (
        Process("worker", "--health", "127.0.0.1:0", "--drain", "5", *TARGET, cwd=desk.root, tty=True) as worker,
        httpx.Client(timeout=PATIENCE, trust_env=False, verify=False) as client,  # certificates take long to load
    ):
        worker.until("mine  resumed")
        found = re.search(r"(http://\S+)/healthz", plain(worker.seen))
        assert found is not None
        desk.reaches("write")
        assert [client.get(found[1] + path).status_code for path in ("/healthz", "/readyz", "/x")] == [200, 200, 404]
        assert client.post(found[1] + "/healthz").status_code == 405
        figures = client.get(found[1] + "/metrics").text
        assert "pausepoint_worker_running 1\n" in figures
        assert "pausepoint_worker_taken_total 1\n" in figures
        worker.signal(signal.SIGTERM)
        codes = set()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:  # it answers until it has stopped
            try:
                codes.add(tuple(client.get(found[1] + path).status_code for path in ("/healthz", "/readyz")))
            except httpx.TransportError:
                break
            time.sleep(0.1)
        done = worker.wait()  # although the step still holds
    assert (done.code, (200, 503) in codes) == (143, True)
    (info,) = desk.sessions()
    assert info.status.value == "ready"
    assert within(desk.store, lambda engine: engine.health(), sample.brief).crashes == {}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("worker", "--once", "--health", address, *TARGET, cwd=desk.root)
    assert (done.code, f"{address}: Address already in use. Choose another" in done.stderr) == (2, True)
    for wrong in ("8099", "127.0.0.1:http", ":"):
        assert "HOST:PORT" in run("worker", "--once", "--health", wrong, *TARGET, cwd=desk.root).stderr


def test_one_document_tells_what_was_driven(desk: Desk) -> None:
    interrupted(desk, "mine")
    code, out, _ = run("worker", "--once", "--json", "--workflow", "brief", *TARGET, cwd=desk.root)
    assert code == 0
    assert [(each["session_id"], each["status"]) for each in json.loads(out)["sessions"]] == [("mine", "completed")]


def test_a_worker_needs_code_and_an_end_for_one_document(desk: Desk) -> None:
    code, said = desk.refused("worker")
    assert (code, "Add --target" in said) == (2, True)
    code, said = desk.refused("worker", "--workflow", "breif", *TARGET)
    assert (code, "Did you mean 'brief'" in said) == (2, True)
    code, said = desk.refused("worker", "--json", *TARGET)
    assert (code, "--once" in said) == (2, True)
    code, said = desk.refused("worker", "--store", "nowhere.db", *TARGET)
    assert (code, "There is no store at" in said) == (4, True)
    assert not desk.store.parent.exists()


def test_what_nobody_could_drive_is_not_even_read(desk: Desk) -> None:
    desk.stored(*(f"p{number}" for number in range(20)))
    interrupted(desk, "mine")
    execute(desk.store, "UPDATE sessions SET visit = visit + 1 WHERE session_id <> 'mine'")  # read, it is damaged
    done = run("worker", "--once", *TARGET, cwd=desk.root)
    assert (done.code, "damaged" in done.stdout + done.stderr) == (0, False)
    assert desk.calls.count("review") == 1


@pytest.mark.long
def test_a_run_drives_its_own_session_and_leaves_what_is_due_to_a_worker(tmp_path: Path) -> None:
    folder = project(tmp_path)
    store = letters(folder, other="Bob")

    async def reply(engine: Engine) -> None:
        await engine.session("other").send("hello")  # now it could go on, and nobody drives it

    within(store, reply, other_letter)
    with Process("run", "letter", "--name", "Ada", "--session-id", "mine", cwd=folder) as process:
        assert process.wait().code == 3
        assert statuses(store) == {"other": "ready", "mine": "waiting"}
    assert run("send", "mine", "thanks", cwd=folder).code == 0
    assert run("resume", "mine", cwd=folder).code == 0
    assert statuses(store) == {"other": "ready", "mine": "completed"}
    assert run("worker", "--once", cwd=folder).code == 0
    assert statuses(store) == {"other": "completed", "mine": "completed"}


@pytest.mark.long
def test_a_run_wakes_its_own_session_and_what_that_called(tmp_path: Path) -> None:
    (tmp_path / "nap.py").write_text(NAPS)
    code, out, _ = run("run", "nap.py:outer", "--session-id", "mine", cwd=tmp_path)
    assert (code, "Finished step: ask" in out) == (0, True)
    assert statuses(tmp_path / STORE) == {"mine": "completed", "mine.": "completed"}


def statuses(store: Path) -> dict[str, str]:
    async def look(engine: Engine) -> dict[str, str]:
        found = await engine.sessions()
        return {info.session_id[: info.session_id.find(".") + 1 or None]: info.status.value for info in found}

    seen: dict[str, str] = within(store, look, other_letter)
    return seen


class SlowSearch:
    """An engine whose searches take time. It finds one session, then nothing while that one runs."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.searches = 0

    async def take_ready(self, limit: int, by: str | None) -> list[str]:
        time.sleep(0.05)
        self.searches += 1
        found, self.running = [["s1"], [], []][self.searches - 1], ["s1"] if self.searches < 3 else []
        return found


def test_a_worker_rests_after_a_search_that_found_nothing_and_not_after_it_has_begun_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", rest)
    job: Any = SimpleNamespace(health=Health(1), concurrency=2, by=None)
    asyncio.run(worker.Job._loop(job, SlowSearch(), once=True))  # type: ignore[arg-type]  # all that the loop needs
    assert rests[0] == 0.05
    assert rests[1] > 0.05 * worker.SHARE / 2
    assert len(rests) == 2


@pytest.mark.long
def test_stranded_sessions_are_those_that_no_running_process_drives(desk: Desk) -> None:
    interrupted(desk, "mine")
    done = run("ls", "--stranded", cwd=desk.root)
    assert ("mine" in done.stdout, "worker" in done.stderr) == (True, True)
    listed = json.loads(run("ls", "--stranded", "--json", cwd=desk.root).stdout)
    assert [each["session_id"] for each in listed["sessions"]] == ["mine"]
    assert run("ls", "--stranded", "--owner", "ann", cwd=desk.root).code == 2

    async def look(engine: Engine) -> list[str]:
        return [info.session_id for info in await engine.stranded()]

    assert within(desk.store, look, sample.brief) == []  # this engine drives it
    assert within(desk.store, look, Workflow("other", state=Nothing, steps=[nothing])) == ["mine"]
    desk.hold("write")
    with Process("worker", *TARGET, cwd=desk.root, tty=True) as process:
        process.until("mine  resumed")
        assert "No session is stranded" in run("ls", "--stranded", cwd=desk.root).stderr
        desk.release("write")
        process.signal(signal.SIGTERM)
        process.wait()


def test_a_session_in_a_queue_that_no_worker_serves_is_stranded_and_the_queue_is_named(desk: Desk) -> None:
    with chdir(desk.root), Engine(desk.store, workflows=[sample.brief], queues=["mail"]) as engine:
        engine.start(sample.brief, topic="otters", session_id="painted", queue="gpu")
        shown = run("ls", "--stranded", cwd=desk.root)
        [listed] = json.loads(run("ls", "--stranded", "--json", cwd=desk.root).stdout)["sessions"]
    assert "in queue gpu, which no running process drives" in shown.stderr
    assert "worker --queue gpu" in shown.stderr
    assert (listed["session_id"], listed["queue"]) == ("painted", "gpu")


def test_a_worker_looks_again_when_the_store_cannot_be_reached() -> None:
    class Down:
        async def take_ready(self, limit: int, by: str | None) -> list[str]:
            raise StoreUnavailable("The server restarts.")

    engine: Any = Down()
    assert asyncio.run(worker._taken(engine, 1, None, once=False)) == []
    with pytest.raises(StoreUnavailable):
        asyncio.run(worker._taken(engine, 1, None, once=True))
