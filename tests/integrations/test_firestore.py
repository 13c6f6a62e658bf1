"""The mirror to Firestore, on the real emulator."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.cloud.firestore import Client, Query
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.cli.app import app
from pausepoint.integrations import documents, firestore
from pausepoint.integrations.documents import document
from pausepoint.integrations.firestore import BY, Mirrored, mirror_sessions
from tests.integrations.firestore_emulator import HOW, Emulator, emulating, find
from tests.stores.kit import process
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import async_until

JAR = find()
pytestmark = pytest.mark.skipif(JAR is None, reason=HOW)


class Brief(BaseModel):
    topic: str
    notes: list[str] = []
    grid: list[list[int]] = [[1, 2], [3]]
    weights: list[int] = []


@step(writes="notes")
async def collect(ctx: Context) -> list[str]:
    notes: list[str] = []
    while (note := await ctx.receive(str)) != "end":
        notes.append(note)
    return notes


brief = Workflow("brief", state=Brief, steps=[collect])


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    assert JAR is not None
    with emulating(JAR, tmp_path_factory.mktemp("firestore")) as running:
        yield running


@asynccontextmanager
async def mirroring(engine: Engine, client: Client) -> AsyncIterator[list[Mirrored]]:
    seen: list[Mirrored] = []
    work = asyncio.ensure_future(mirror_sessions(engine, client, report=seen.append))
    try:
        yield seen
        assert not work.done(), work.exception()
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


def read(client: Client, session_id: str) -> dict[str, Any]:
    return client.collection("workflow_states").document(session_id).get().to_dict() or {}


async def shown(client: Client, session_id: str, **wanted: Any) -> dict[str, Any]:
    """Wait until the document has these values, and return it."""
    end = time.monotonic() + PATIENCE
    while True:
        found = await asyncio.to_thread(read, client, session_id)
        if found and wanted.items() <= found.items():
            return found
        assert time.monotonic() < end, found
        await asyncio.sleep(0.05)


@pytest.mark.long
@on_loop
async def test_a_document_follows_its_session_and_pauses_it(emulator: Emulator, tmp_path: Path) -> None:
    client = emulator.client()
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine, mirroring(engine, client) as seen:
        await engine.start(brief, session_id="squid", topic="squid", owner="ann")
        found = await shown(client, "squid", status="waiting")
        assert (found["session_id"], found["workflow"], found["current_step"]) == ("squid", "brief", "collect")
        assert (found["pause_requested"], found["owner"]) == (False, "ann")
        assert found["state"] == {"topic": "squid", "notes": [], "grid": "[[1,2],[3]]", "weights": []}
        assert found["state_as_json"] == ["grid"]

        place = client.collection("workflow_states").document("squid")
        place.update({"pause_requested": True, "color": "red"})
        found = await shown(client, "squid", status="paused", pause_requested=True)
        assert found["color"] == "red"  # the fields of others stay
        (pause,) = await engine.session("squid").pauses()
        assert pause.by == BY

        place.update({"pause_requested": False})  # only a verb resumes a session
        await engine.session("squid").send("one")
        await shown(client, "squid", status="paused", pause_requested=True)
        began, before = time.monotonic(), len([each for each in seen if each.status == "written"])
        await engine.session("squid").resume()
        for number in range(20):
            await engine.session("squid").send(str(number))
            await asyncio.sleep(0.05)
        await engine.session("squid").send("end")
        await shown(client, "squid", status="completed", pause_requested=False)
        writes = len([each for each in seen if each.status == "written"]) - before
        assert writes <= time.monotonic() - began + 2

        await engine.session("squid").remove()
        await async_until(lambda: seen[-1].status == "deleted")
        assert not place.get().exists


@on_loop
async def test_a_restarted_mirror_continues_and_obeys_what_was_asked_meanwhile(
    emulator: Emulator, tmp_path: Path
) -> None:
    client = emulator.client()
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine:
        for name in ("ann", "ben", "cem"):
            await (await engine.start(brief, session_id=name, topic=name)).outcome()
        assert await mirror_sessions(engine, client, follow=False) == 0
        client.collection("workflow_states").document("ann").update({"pause_requested": True})
        await engine.session("ben").send("end")
        await engine.session("ben").outcome()
        seen: list[Mirrored] = []
        assert await mirror_sessions(engine, client, follow=False, report=seen.append) == 0
        assert {each.session_id for each in seen} == {"ann", "ben"}  # cem has not changed
        assert (await engine.session("ann").info()).status is Status.PAUSED
        assert read(client, "ben")["status"] == "completed"


@pytest.mark.long
@on_loop
async def test_a_request_takes_effect_once_and_is_never_overwritten(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = emulator.client()
    ann = client.collection("workflow_states").document("ann")
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine:
        await (await engine.start(brief, session_id="ann", topic="ann")).outcome()
        assert await mirror_sessions(engine, client, follow=False) == 0

        def asking(*args: Any) -> dict[str, Any]:
            """Set the flag after the mirror has read the document, and before it writes it."""
            monkeypatch.setattr(firestore, "document", document)
            ann.update({"pause_requested": True})
            return document(*args)

        monkeypatch.setattr(firestore, "document", asking)
        await engine.session("ann").send("one")
        await engine.idle()
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session("ann").info()).status is Status.PAUSED
        assert read(client, "ann")["pause_requested"] is True
        await engine.session("ann").resume()
        await engine.idle()
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert read(client, "ann")["pause_requested"] is False

        def failing(*args: Any) -> dict[str, Any]:
            raise ValueError("between the pause and the write")

        ann.update({"pause_requested": True})
        monkeypatch.setattr(firestore, "document", failing)
        assert await mirror_sessions(engine, client, follow=False) == 1
        assert (await engine.session("ann").info()).status is Status.PAUSED
        await engine.session("ann").resume()  # the document still asks for the pause that was
        await engine.idle()
        monkeypatch.setattr(firestore, "document", document)
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session("ann").info()).status is Status.WAITING
        assert read(client, "ann")["pause_requested"] is False

        ann.update({"pause_requested": True})  # another mirror takes this request, and dies before the pause
        asked_at = ann.get().update_time.timestamp()
        async with Engine(tmp_path / "a.db", drives="none") as other:
            key = f"firestore {read(client, 'ann')['mirror']['id']} ann {asked_at}"
            assert (await other.keys.remember(key, firestore.DIGEST)).claimed
            seen: list[Mirrored] = []
            assert await mirror_sessions(engine, client, follow=False, report=seen.append) == 1
            assert "Another mirror has taken this request" in seen[-1].reason
            assert read(client, "ann")["pause_requested"] is True
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session("ann").info()).status is Status.PAUSED


@pytest.mark.long
@on_loop
async def test_the_pause_of_everything_and_its_end_reach_the_documents(emulator: Emulator, tmp_path: Path) -> None:
    client, ready, begun = emulator.client(), asyncio.Event(), asyncio.Event()

    @step
    async def work() -> None:
        begun.set()
        await ready.wait()

    @step
    async def listen(ctx: Context) -> None:
        await ctx.receive()

    working = Workflow("working", state=Brief, steps=[work, listen])
    async with Engine(tmp_path / "a.db", workflows=[brief, working], hold=0) as engine:
        async with mirroring(engine, client):
            await engine.start(brief, session_id="ann", topic="ann")
            await engine.start(working, session_id="busy", topic="busy")
            await shown(client, "ann", status="waiting")
            await begun.wait()
            await engine.pause_all()
            await shown(client, "ann", status="paused", pause_requested=True)
            ready.set()
            await shown(client, "busy", status="paused", pause_requested=True)
        await engine.lift_pause()
        await engine.idle()
        assert await mirror_sessions(engine, client, follow=False) == 0  # it begins with what the other one knew
        found = read(client, "ann")
        assert (found["status"], found["pause_requested"]) == ("waiting", False)
        client.collection("workflow_states").document("ann").update({"pause_requested": True})
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session("ann").info()).status is Status.PAUSED


@pytest.mark.long
@on_loop
async def test_a_request_may_come_before_the_first_write_and_each_database_has_its_own_place(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = emulator.client()
    second = Client(project=client.project, database="second")
    client.collection("workflow_states").document("ann").set({"pause_requested": True})
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine:
        for name in ("ann", "ben"):
            await (await engine.start(brief, session_id=name, topic=name)).outcome()
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session("ann").info()).status is Status.PAUSED
        assert (read(client, "ann")["status"], read(second, "ben")) == ("paused", {})
        assert await mirror_sessions(engine, second, follow=False) == 0
        assert read(second, "ben")["status"] == "waiting"

        # Numbers take 8 bytes. What Firestore refuses in spite of the estimate is written without its state.
        large: dict[str, Any] = {"cem": {"topic": "cem", "weights": [1] * 115_000}, "dan": {"topic": "d" * 1_100_000}}
        for name, given in large.items():
            await (await engine.start(brief, session_id=name, **given)).outcome()
            assert await mirror_sessions(engine, client, follow=False) == 0
            assert (read(client, name)["status"], read(client, name)["state"]) == ("waiting", None)
            monkeypatch.setattr(documents, "LARGEST", 10**9)  # for the second one


@on_loop
async def test_a_lost_place_writes_only_what_differs(emulator: Emulator, tmp_path: Path) -> None:
    client = emulator.client()
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine:
        for name in ("ann", "ben", "cem", "dan"):
            await (await engine.start(brief, session_id=name, topic=name)).outcome()
        assert await mirror_sessions(engine, client, follow=False) == 0
        client.collection("workflow_states").document("ben").delete()
        await engine.session("dan").remove()  # it changed last
        seen: list[Mirrored] = []
        assert await mirror_sessions(engine, client, follow=False, report=seen.append) == 0
        assert {(each.status, each.session_id) for each in seen} == {("written", "ben"), ("deleted", "dan")}
        seen.clear()
        assert await mirror_sessions(engine, client, follow=False, everything=True, report=seen.append) == 0
        assert {each.session_id for each in seen} == {"ann", "ben", "cem"}


def failures(seen: list[Mirrored], session_id: str) -> list[Mirrored]:
    return [each for each in seen if (each.status, each.session_id) == ("failed", session_id)]


@pytest.mark.long
@on_loop
async def test_errors_of_firestore_are_shown_and_tried_again(emulator: Emulator, tmp_path: Path) -> None:
    client = emulator.client()
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine, mirroring(engine, client) as seen:
        await engine.start(brief, session_id="before", topic="squid")
        await shown(client, "before", status="waiting")
        emulator.stop()
        try:
            await engine.start(brief, session_id="meanwhile", topic="octopus")
            await async_until(lambda: failures(seen, "meanwhile"))  # there may be a second write of the first session
            other = emulator.client()
            async with Engine(tmp_path / "b.db", workflows=[brief]) as late, mirroring(late, other) as said:
                await async_until(lambda: said)  # the first look fails, and it is said
                assert (said[0].status, said[0].session_id, said[0].retry_in) == ("failed", "", firestore.LOOK_EVERY)
        finally:
            emulator.start()
        failed = failures(seen, "meanwhile")[0]
        assert failed.reason
        assert failed.retry_in == 1.0
        await shown(client, "meanwhile", status="waiting")
        client.collection("workflow_states").document("meanwhile").update({"pause_requested": True})
        await shown(client, "meanwhile", status="paused")


class Deaf:
    """A watch that looks alive and sends nothing, like one whose connection broke without a word."""

    is_active = True

    def close(self) -> None:
        """End the watch."""


@pytest.mark.long
@on_loop
async def test_a_request_arrives_although_firestore_does_not_send_it(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, listen, watches = emulator.client(), Query.on_snapshot, list[Any]()

    def watch(query: Query, callback: Any) -> Any:
        watches.append(Deaf() if not watches else listen(query, callback))
        return watches[-1]

    monkeypatch.setattr(Query, "on_snapshot", watch)
    monkeypatch.setattr(firestore, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(firestore, "ASK_AFTER", 0.3)
    async with Engine(tmp_path / "a.db", workflows=[brief], hold=0) as engine, mirroring(engine, client) as seen:
        await engine.start(brief, session_id="squid", topic="squid")
        await shown(client, "squid", status="waiting")
        client.collection("workflow_states").document("squid").update({"pause_requested": True})
        await shown(client, "squid", status="paused")
        await async_until(lambda: len(watches) == 2)  # the deaf one was replaced
        (failed,) = (each for each in seen if each.status == "failed")
        assert failed.reason == "Firestore stopped sending requests."


def test_the_command_mirrors_what_has_changed_once(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Engine("a.db", workflows=[brief], hold=0) as engine:
        engine.start(brief, session_id="squid", topic="squid").outcome()
    client = emulator.client()
    words = ("mirror", "firestore", "--project", client.project, "--store", "a.db", "--once")
    wrong = CliRunner().invoke(app, [*words, "--collection", "a/b"])
    assert (wrong.exit_code, "'a/b' does not name a collection" in wrong.output) == (2, True)
    first = CliRunner().invoke(app, [*words, "--json"])
    assert first.exit_code == 0, first.output
    assert [(each["status"], each["session_id"]) for each in json.loads(first.stdout)["mirrored"]] == [
        ("written", "squid")
    ]
    assert read(client, "squid")["status"] == "waiting"
    again = CliRunner().invoke(app, words)
    assert (again.exit_code, "0 documents written." in again.output) == (0, True)
    with Engine("a.db", drives="none") as engine:
        engine.session("squid").cancel()
    client.collection("workflow_states").document("squid").update({"pause_requested": True})
    ended = CliRunner().invoke(app, words)
    assert (ended.exit_code, "did not pause squid" in ended.output) == (0, True), ended.output
    assert "1 document written. 1 request to pause refused." in ended.output


# kills

SESSIONS = [f"s{n:02}" for n in range(14)]
LAST = 10
"""The document at which a mirror dies. It writes eight at a time, so some are written by then, and some are not."""

# Kills itself when it has read a document and is about to write it, after its place in the feed was stored at a time
# when documents had to be written. The twin stores its place as if all of them were written.
CHILD = """
import asyncio, os, signal, sys
from google.cloud.firestore import Client
from pausepoint import Engine
from pausepoint.integrations import cursor, firestore

url, project, last, kind = sys.argv[1:]
cursor.SAVE_EVERY = firestore.SAVE_EVERY = 0.05
saved, begun = [], []
save, document = cursor.Cursor.save, firestore.document

async def noted(self, waiting):
    await save(self, () if kind == "twin" else waiting)
    saved.append(len(waiting) if self.mark is not None else 0)

def fatal(*given):
    begun.append(given)
    if len(begun) >= int(last) and any(saved):
        os.kill(os.getpid(), signal.SIGKILL)
    return document(*given)

cursor.Cursor.save, firestore.document = noted, fatal

async def main():
    async with Engine(url, drives="none") as engine:
        print("ready", flush=True)
        await firestore.mirror_sessions(engine, Client(project=project))

asyncio.run(main())
"""


def documents_of(client: Client) -> dict[str, dict[str, Any]]:
    return {each.id: each.to_dict() or {} for each in client.collection("workflow_states").stream()}


async def expected(engine: Engine, mirror_id: str) -> dict[str, dict[str, Any]]:
    found = {}
    for info in await engine.sessions():
        found[str(info.session_id)] = document(info, (await engine.session(info.session_id).stored()).values, mirror_id)
    return found


async def killed(url: Path, client: Client, last: int, kind: str = "") -> None:
    """Run a mirror until it kills itself at its ``last`` document."""
    with process(CHILD, url, client.project, str(last), kind) as child:
        assert await asyncio.to_thread(child.child.wait) == -signal.SIGKILL


async def begin(engine: Engine) -> None:
    for name in SESSIONS:
        await (await engine.start(brief, session_id=name, topic=name)).outcome()


@pytest.mark.long
@on_loop
async def test_after_kill_9_another_mirror_continues_and_the_documents_are_those_of_the_store(
    emulator: Emulator, tmp_path: Path
) -> None:
    client, url = emulator.client(), tmp_path / "a.db"
    async with Engine(url, workflows=[brief], hold=0) as engine:
        await begin(engine)
        await killed(url, client, LAST)
        early = documents_of(client)
        assert 0 < len(early) < len(SESSIONS), "it died in the middle"
        asked = min(early)
        client.collection("workflow_states").document(asked).update({"pause_requested": True})
        await engine.session("s13").send("end")
        await engine.session("s12").remove()
        await engine.idle()
        await killed(url, client, 2)
        assert await mirror_sessions(engine, client, follow=False) == 0
        assert (await engine.session(asked).info()).status is Status.PAUSED
        assert await mirror_sessions(engine, client, follow=False) == 0
        found = documents_of(client)
        assert found == await expected(engine, found[asked]["mirror"]["id"])
        assert (read(client, "s13")["status"], "s12" in found) == ("completed", False)


@pytest.mark.long
@on_loop
async def test_a_mirror_that_forgets_what_it_has_not_written_is_noticed(emulator: Emulator, tmp_path: Path) -> None:
    client, url = emulator.client(), tmp_path / "a.db"
    async with Engine(url, workflows=[brief], hold=0) as engine:
        await begin(engine)
        await killed(url, client, LAST, "twin")
        assert await mirror_sessions(engine, client, follow=False) == 0
        found = documents_of(client)
        assert found.keys() < set(SESSIONS)
