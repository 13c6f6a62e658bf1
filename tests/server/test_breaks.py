"""A stream that breaks at any byte continues with nothing missing or double."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pausepoint.server.entries import Entry
from pausepoint.server.hub import hub_of
from tests.server.kit import Served, brief, served
from tests.server.streams import Events, Reader, history, present, received, restarted, told
from tests.support.waits import async_until

TOPICS = "now,inbox,session:broken"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("breaks")) as found:
        yield found


class Recorded:
    """A session that has run while a client followed it: the mark before it, the bytes of its stream, its history."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.begin = present(server)
        self.bytes = server.run(self._record())
        with server.admin() as client:
            self.known = sorted(map(told, history(client, "broken")))

    async def _record(self) -> bytes:
        hub = hub_of(self.server.engine)
        await self.server.engine.start(brief, session_id="broken", topic="octopus", paused=True)
        recording = asyncio.create_task(self.rest(self.begin))
        await async_until(lambda: hub.clients or recording.done())
        await self._run()
        return await recording

    async def _run(self) -> None:
        engine = self.server.engine
        session = await engine.session("broken").resume()
        await session.outcome()
        for n in range(3):  # some changes come in a round of their own
            await session.pause(reason=f"{n}")
            await asyncio.sleep(0.15 * (n % 2))
            await session.resume()
        (question,) = await session.questions()
        await engine.answer(question.id, "formal")
        await session.outcome()

    async def rest(self, last: str) -> bytes:
        """Return what a client gets that comes back with a mark."""
        server = self.server
        host = f"127.0.0.1:{server.port}"
        return await received(
            server.app, host, server.tokens.own, TOPICS, last, lambda data: b"session.completed" in data
        )

    def broken(self) -> list[int]:
        """Return the bytes at which a break loses or doubles an event."""
        wrong, events, verdicts = list[int](), Events(self.begin), dict[tuple[int, str], bool]()
        for cut, byte in enumerate(self.bytes, 1):
            events.feed(bytes([byte]))
            got = len(events.found), events.last  # what a client has then depends on nothing else
            if got not in verdicts:
                verdicts[got] = self._continues(events)
            if not verdicts[got]:
                wrong.append(cut)
        assert len(verdicts) > 5, "no break came between two events"
        return wrong

    def _continues(self, events: Events) -> bool:
        """Return whether a client that has these events gets the others, each once."""
        rest = Events(events.last)
        if not events.ended():
            rest.feed(self.server.run(self.rest(events.last)))
        return sorted(map(told, events.lines + rest.lines)) == self.known and not rest.of("reset")


@pytest.fixture(scope="module")
def recorded(server: Served) -> Recorded:
    return Recorded(server)


@pytest.mark.long
def test_nothing_is_missing_or_double_after_a_break_at_any_byte(recorded: Recorded) -> None:
    assert len(recorded.bytes) > 2000
    assert recorded.broken() == []


def test_the_same_holds_if_another_server_continues(server: Served, recorded: Recorded) -> None:
    server.run(restarted(hub_of(server.engine)))  # it knows the store only
    assert recorded.broken() == []


def test_a_line_with_the_mark_of_the_next_one_would_be_found(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = re.findall(rb"event: line\nid: (.*)\n", recorded.bytes)
    monkeypatch.setattr(recorded, "bytes", recorded.bytes.replace(first, second, 1))
    assert recorded.broken()


def test_a_connection_that_breaks_continues(server: Served, recorded: Recorded) -> None:
    with server.admin() as client:
        for cut in range(1, len(recorded.bytes), len(recorded.bytes) // 6):
            reader = Reader(client, TOPICS, recorded.begin)
            reader.read(reader.ended, cut)
            reader.read(reader.ended)
            assert sorted(map(told, reader.lines)) == recorded.known, cut


def test_events_that_a_client_has_from_the_store_do_not_move_its_mark_back() -> None:
    class Seen:
        cursor = "1"
        event_type = "step.completed"

    entry: Any = Entry("5", "a", None, True, (Seen(),))  # type: ignore[arg-type]
    assert entry.is_new(())
    assert entry.is_new({("a", "2")})
    assert not entry.is_new({("a", "1")})
