"""The live stream: continued after a break, cut for a slow client, and closed to other owners."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import to_builtins
from pydantic import BaseModel

from pausepoint import Context, Workflow, step
from pausepoint.engine import history_documents
from pausepoint.model.changes import Change
from pausepoint.server import Person, clients
from pausepoint.server import hub as hubs
from pausepoint.server.clients import Client
from pausepoint.server.hub import hub_of
from pausepoint.server.limits import Limits
from pausepoint.server.routes import ROUTES
from pausepoint.server.stream import Stream
from tests.server.kit import Served, brief, check_problem, fits, send, served
from tests.server.streams import Events, Reader, history, present, restarted, told
from tests.support.children import ROOT
from tests.support.loop import PATIENCE
from tests.support.waits import async_until, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("stream")) as found:
        yield found


def test_a_mark_that_only_the_store_knows_is_continued_too(server: Served) -> None:
    begin = present(server)
    server.finished("stored")

    server.run(restarted(hub_of(server.engine)))
    with server.admin() as client:
        reader = Reader(client, "session:stored", begin)
        reader.read(reader.ended)
        assert sorted(map(told, reader.lines)) == sorted(map(told, history(client, "stored")))


def test_heads_the_inbox_and_the_pause_of_everything_are_told_live(server: Served) -> None:
    with server.admin() as client:
        reader = Reader(client, "now,inbox")
        acted: list[str] = []

        def act() -> bool:
            if not acted and reader.last:
                acted.append(server.asked("live"))
            if len(acted) == 1 and reader.of("inbox"):
                with server.admin() as other:
                    assert other.put("/standing-pause", json={"reason": "check"}).status_code == 200
                acted.append("paused")
            return bool(reader.of("standing"))

        reader.read(act)
        assert reader.of("inbox")[0] == {"session_id": "live"}
        assert any(each["session_id"] == "live" for each in reader.of("head"))
        assert reader.of("standing")[-1]["standing_pause"]["reason"] == "check"
        found = client.get("/now").json()
        fits(found, "now")
        assert found["standing_pause"]["reason"] == "check"
        assert client.request("DELETE", "/standing-pause", json={}).status_code == 200


def test_a_client_that_comes_back_after_a_while_without_clients_gets_the_present_facts(server: Served) -> None:
    question = server.asked("left")
    with server.admin() as client:
        reader = Reader(client, "now", present(server))
        server.run(server.engine.session("left").pause(reason="first"))
        reader.read(lambda: any(each["session_id"] == "left" for each in reader.of("head")))
        server.run(async_until(lambda: not hub_of(server.engine).clients))
        server.run(server.engine.session("left").resume())
        server.run(server.engine.answer(question, "formal"))
        server.run(server.engine.session("left").outcome())
        server.run(read_by_the_hub(server))
        again = Reader(client, "now", reader.last)
        again.read(lambda: any(each["session_id"] == "left" for each in again.of("head")))
        assert again.of("head")[-1]["status"] == "completed"


async def read_by_the_hub(server: Served) -> None:
    """Wait until the hub knows everything that is stored."""
    hub = hub_of(server.engine)
    await hub.use()
    marks = [change.mark async for change in server.engine.changes(hub.mark)]
    await async_until(lambda: not marks or hub.mark == marks[-1])


@pytest.mark.parametrize("mark", ["nonsense", "999999:0123456789abcdef,0:,0:"])
def test_a_mark_that_is_gone_gets_a_reset(server: Served, mark: str) -> None:
    with server.admin() as client:
        reader = Reader(client, "now", mark)
        reader.read(lambda: bool(reader.of("reset")))
        assert reader.found[0] == ("reset", {})
        assert reader.last == present(server)


def test_another_owner_sees_nothing(server: Served) -> None:
    begin = present(server)
    server.finished("anns", owner="ann")
    question = server.asked("anns-2", owner="ann")
    server.asked("bobs", owner="bob")
    with server.client(server.token("operator", "bob")) as client:
        reader = Reader(client, "now,inbox", begin)
        reader.read(lambda: bool(reader.of("inbox")))
        assert {each["session_id"] for each in reader.of("head")} == {"bobs"}
        assert reader.of("inbox") == [{"session_id": "bobs"}]
        check_problem(client.get("/stream", params={"topics": "session:anns"}), 404)
        found = client.get("/now").json()
        assert found["counts"] == {"brief": {"waiting": 1}}
        assert found["questions"] == 1
        assert found["engines"] == []
        assert "anns" not in json.dumps(found)
        assert question not in json.dumps(found)


def test_a_role_follows_only_its_topics(server: Served) -> None:
    with server.client(server.token("viewer")) as client:
        assert check_problem(client.get("/stream", params={"topics": "inbox"}), 403)["role"] == "answerer"
        check_problem(client.get("/stream", params={"topics": "everything"}), 400)
    with server.client(server.token("answerer")) as client:
        for topic in ("now", "session:live"):
            assert check_problem(client.get("/stream", params={"topics": topic}), 403)["role"] == "viewer"


class Talk(BaseModel):
    topic: str = ""
    out: str = ""


async def speak(topic: str, ctx: Context) -> str:
    for word in topic.split():
        ctx.stream(word)
    return topic


@step(writes="out")
async def talk(ctx: Context, topic: str) -> str:
    await ctx.do(speak, topic)
    return await ctx.ask("More?")


chat = Workflow("chat", state=Talk, steps=[talk])


def test_the_live_output_of_a_session_is_told_to_all_who_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST", 8)
    words = [f"word-{n}" for n in range(300)]
    with served(tmp_path, workflows=(chat,)) as server, server.admin() as client:
        body = {"workflow": "chat", "input": {"topic": " ".join(words)}, "session_id": "spoken"}
        assert client.post("/sessions", json=body).status_code == 201
        server.run(server.engine.session("spoken").outcome())
        for _ in range(2):  # the hub has read the output when the second one comes
            reader = Reader(client, "session:spoken")
            reader.read(partial(reader.has, "token", len(words)))
            assert not reader.of("reset"), "a client is not slow because much was there before it came"
            assert [each["data"]["text"] for each in reader.of("token")] == words
            assert [each["data"]["n"] for each in reader.of("token")] == [*range(1, len(words) + 1)]


@pytest.mark.long
@pytest.mark.parametrize("why", ["slow", "the mark is lost", "another session has the id"])
def test_live_output_comes_again_after_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(clients, "MOST", 8)

    async def follow(server: Served) -> None:
        hub, client = hub_of(server.engine), Client(Person("ann", "admin"), ["now", "session:spoken"])
        await spoken(server, "one two")
        await hub.join(client, "")
        await async_until(lambda: words(client) == ["one", "two"])
        if why == "slow":
            await started(server, *(f"s{n}" for n in range(9)))
        elif why == "the mark is lost":
            await hub._round([Change("", 0, (), hub.mark, reset=True)])
        else:
            await started(server, "last")  # which the mark names
            client.queue.clear()
            await server.engine.session("spoken").remove()
            await read_by_the_hub(server)
            await spoken(server, "three")
        expected = ["three"] if why == "another session has the id" else ["one", "two"]
        await async_until(lambda: words(client) == expected)
        assert (b"reset" in client.queue[0]) == (why != "another session has the id")
        late = Client(Person("bob", "admin"), ["session:spoken"])
        await hub.join(late, "")
        assert words(late) == expected, "and nothing of a session that was removed"
        hub.leave(client)

    with served(tmp_path, workflows=(chat, brief)) as server:
        server.run(follow(server))


@pytest.mark.long
@pytest.mark.parametrize("lost", [True, False])
def test_live_output_of_a_session_of_another_owner_with_the_same_id_is_not_told(tmp_path: Path, lost: bool) -> None:
    async def follow(server: Served) -> None:
        hub, client = hub_of(server.engine), Client(Person("ann", "admin", "ann"), ["session:spoken"])
        await spoken(server, "one", "ann")
        await hub.join(client, "")
        await async_until(lambda: words(client) == ["one"])
        await server.engine.session("spoken").remove()
        await spoken(server, "secret", "bob")
        await read_by_the_hub(server)
        if lost:
            await hub._round([Change("", 0, (), hub.mark, reset=True)])
        other = Client(Person("bob", "admin", "bob"), ["session:spoken"])
        await hub.join(other, "")
        await async_until(lambda: words(other) == ["secret"])
        assert b"secret" not in b"".join(client.queue)
        client.reset(hub.mark)
        assert b"secret" not in b"".join(client.queue)
        hub.leave(client)
        hub.leave(other)

    with served(tmp_path, workflows=(chat,)) as server:
        server.run(follow(server))


async def spoken(server: Served, topic: str, owner: str | None = None) -> None:
    await (await server.engine.start(chat, session_id="spoken", topic=topic, owner=owner)).outcome()


def words(client: Client) -> list[str]:
    """The words of the live output that waits for a client, each once."""
    events = Events()
    events.feed(b"".join(client.queue))
    return list({each["data"]["n"]: each["data"]["text"] for each in events.of("token")}.values())


def test_the_streams_of_one_sign_in_are_limited(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(streams=2)) as server, server.admin() as client, ExitStack() as opened:
        kept = []  # a stream that nobody refers to is closed
        for _ in range(2):
            answer = opened.enter_context(client.stream("GET", "/stream"))
            kept.append(answer.iter_raw())
            while b"id: " not in next(kept[-1]):
                pass
        (route,) = (each for each in ROUTES if each.streams)
        assert check_problem(send(client, route), 429)["retry_after"] == 5
        with server.client(server.token("viewer")) as other, other.stream("GET", "/stream") as answer:
            assert answer.status_code == 200


@pytest.mark.long
def test_the_end_of_a_process_that_writes_nothing_is_told(tmp_path: Path) -> None:
    with served(tmp_path, drives="none") as server, server.admin() as client:
        words = [sys.executable, "-m", "tests.server.holder", str(tmp_path / "store.db")]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"holds\n"
            reader = Reader(client, "now")

            def statuses() -> list[str]:
                return [each["status"] for each in client_now(server)["running"]]

            until(lambda: statuses() == ["running"])
            killed: list[int] = []

            def ready() -> bool:
                if reader.last and not killed:
                    process.kill()
                    killed.append(process.wait(PATIENCE))
                return any(each["status"] == "created" for each in reader.of("head"))

            reader.read(ready)
            until(lambda: statuses() == [])
        finally:
            process.kill()
            process.wait(PATIENCE)
            if process.stdout is not None:
                process.stdout.close()


def client_now(server: Served) -> Any:
    with server.admin() as client:
        return client.get("/now").json()


@pytest.mark.long
def test_a_client_that_reads_the_store_while_sessions_run_gets_each_event_once(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        found = server.run(_joined_while_running(server, 30))
        for client, known in found:
            reader = _received(client)
            assert not reader.of("reset")
            assert sorted(map(told, reader.lines)) == known


def _received(client: Client) -> Events:
    reader = Events()
    reader.feed(b"".join(client.queue))
    return reader


async def _joined_while_running(server: Served, count: int) -> list[tuple[Client, list[Any]]]:
    """Let clients join one after the other, each with a mark that only the store knows, while a session runs."""
    hub, engine = hub_of(server.engine), server.engine
    await hub.use()
    begin, joined = hub.mark, list[Client]()

    async def join() -> None:
        for n in range(count):
            client = Client(Person(f"n{n}", "admin"), ["session:busy"])
            joined.append(client)
            with patch.object(hub._entries, "since", return_value=None):  # only the store knows the mark
                await hub.join(client, begin)
            await asyncio.sleep(0.005)

    joining = asyncio.create_task(join())
    session = await engine.start(brief, session_id="busy", topic="x")
    await session.outcome()
    for n in range(20):  # signals and records alternate
        await session.pause(reason=f"{n}")
        await session.resume()
    await joining
    (question,) = await session.questions()
    await engine.answer(question.id, "formal")
    await session.outcome()
    events = [to_builtins(history_documents.EventDocument.of(event)) async for event in engine.session("busy").events()]
    await async_until(lambda: all(len(_received(each).lines) >= len(events) for each in joined))
    return [(each, sorted(map(told, events))) for each in joined]


@pytest.mark.long
def test_a_client_that_does_not_read_gets_a_reset_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST", 8)
    with served(tmp_path) as server:
        reads, text = asyncio.Event(), bytearray()

        async def send_slowly(message: Any) -> None:
            if b"head" in message.get("body", b""):
                await reads.wait()
            text.extend(message.get("body", b""))

        async def receive() -> dict[str, Any]:
            return await asyncio.Future()

        async def slow() -> None:
            hub = hub_of(server.engine)
            client = Client(Person("slow", "admin"), ["now"])
            stream = asyncio.create_task(Stream(hub, client, receive, "", lambda: None).send(send_slowly))
            await async_until(lambda: b"id: " in text)
            for n in range(4):  # each time fewer than the queue holds
                await started(server, *(f"many-{n}-{each}" for each in range(5)))
            assert client.queue[0].startswith(b"event: reset\nid: ")
            assert len(client.queue) <= 8
            reads.set()
            await async_until(lambda: b"event: reset" in text)
            del text[:]
            await started(server, "after")
            await async_until(lambda: b'"after"' in text)
            assert b"event: reset" not in text
            stream.cancel()

        server.run(slow())


async def started(server: Served, *session_ids: str) -> None:
    """Create sessions, and wait until the hub has told its clients."""
    for each in session_ids:
        await server.engine.start(brief, session_id=each, topic="x", paused=True)
    await read_by_the_hub(server)
    await async_until(lambda: all(each.told == hub_of(server.engine).mark for each in hub_of(server.engine).clients))


@pytest.mark.long
def test_changes_that_nobody_takes_stay_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "BACKLOG", 4)
    with served(tmp_path) as server:

        async def blocked() -> None:
            hub, free = hub_of(server.engine), asyncio.Event()
            await hub.use()
            real = hub._round

            async def slow(changes: Any) -> None:
                await free.wait()
                await real(changes)

            monkeypatch.setattr(hub, "_round", slow)
            for n in range(20):
                await server.engine.start(brief, session_id=f"s{n}", topic="x", paused=True)
            await async_until(lambda: len(hub._changes) == 4)
            free.set()
            await read_by_the_hub(server)
            assert len(hub._changes) <= 4

        server.run(blocked())
