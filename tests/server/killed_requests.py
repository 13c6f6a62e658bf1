"""Requests to a server that is killed at one of their writes, and what is left of them.

    python -m tests.server.killed_requests

runs them all. `before`, `inside` and `after` a write: nothing of it is stored; it is stored but not committed; it is
committed, and nobody knows.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeVar

import httpx
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.engine.remembered import RequestKeys
from pausepoint.model.commits import Commit, Flags
from pausepoint.server.asgi import Settings, application
from pausepoint.server.people import Person
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sqlite import SqliteStore
from tests.server.kit import API, FREE, brief
from tests.support.forkserver import Child, ForkServer, say

T = TypeVar("T")

WHEN = ("before", "inside", "after")

Twin = Literal["", "no key", "no once"]


class Chat(BaseModel):
    first: str = ""
    second: str = ""


@step(writes=["first", "second"])
async def listen(ctx: Context) -> dict[str, str]:
    return {"first": await ctx.receive(str), "second": await ctx.receive(str)}


chat = Workflow("chat", state=Chat, steps=[listen])


class Request(NamedTuple):
    """A request, and what has to be there before it. ``prepare`` returns what the path and the headers name."""

    path: str
    body: Any = None
    prepare: Callable[[Engine], Awaitable[dict[str, str]]] | None = None
    content: bytes = b""
    drives: bool = True
    method: str = "POST"


async def _waiting(engine: Engine) -> dict[str, str]:
    session = await engine.start(brief, session_id="s1", topic="octopus")
    outcome = await session.outcome()
    info = await session.info()
    (question,) = outcome.questions
    return {"question": question.id, "seen": question.digest, "mark": f'"{info.seq}.{info.signals}.{info.fence}"'}


async def _paused(engine: Engine) -> dict[str, str]:
    await engine.start(brief, session_id="s1", topic="octopus", paused=True)
    return {}


async def _failed(engine: Engine) -> dict[str, str]:
    await (await engine.start(brief, session_id="s1", topic="fail")).outcome()
    return {}


async def _chatting(engine: Engine) -> dict[str, str]:
    await (await engine.start(chat, session_id="s1")).outcome()
    return {}


async def _two(engine: Engine) -> dict[str, str]:
    await engine.start(brief, session_id="s2", topic="squid", paused=True)
    return await _waiting(engine)


async def _two_paused(engine: Engine) -> dict[str, str]:
    for name in ("s1", "s2"):
        await engine.start(brief, session_id=name, topic="squid", paused=True)
    return {}


async def _all_paused(engine: Engine) -> dict[str, str]:
    await engine.pause_all()
    return {}


START = {"workflow": "brief", "input": {"topic": "octopus"}}

REQUESTS = {
    "start": Request("/sessions", START),
    "start without driving": Request("/sessions", START, drives=False),
    "send": Request("/sessions/s1/send", {"value": "hello"}, _chatting),
    "send what is refused": Request("/sessions/s1/send", {"value": "rude"}, _waiting),
    "answer": Request("/inbox/{question}/answer", {"value": "formal"}, _waiting),
    "answer what was seen": Request("/inbox/{question}/answer", {"value": "formal", "seen": "{seen}"}, _waiting),
    "pause": Request("/sessions/s1/pause", {"reason": "lunch"}, _waiting),
    "resume": Request("/sessions/s1/resume", {}, _paused),
    "resume without driving": Request("/sessions/s1/resume", {}, _paused, drives=False),
    "resume what failed": Request("/sessions/s1/resume", {}, _failed),
    "fork": Request("/sessions/s1/fork", {"paused": False, "changes": {"topic": "squid"}}, _waiting),
    "edit": Request("/sessions/s1/edit", {"fields": {"notes": "better"}}, _waiting),
    "rewind": Request("/sessions/s1/rewind", {"to": "research"}, _waiting),
    "cancel": Request("/sessions/s1/cancel", {"reason": "enough"}, _waiting),
    "upload": Request("/sessions/s1/files?filename=notes.txt", None, _waiting, b"all about octopuses"),
    "bulk": Request("/sessions/bulk", {"verb": "pause", "ids": ["s1", "s2"]}, _two),
    "bulk by filter": Request("/sessions/bulk", {"verb": "pause", "filter": {"workflow": "brief"}}, _two),
    "bulk resume": Request("/sessions/bulk", {"verb": "resume", "ids": ["s1", "s2"]}, _two_paused),
    "bulk cancel": Request("/sessions/bulk", {"verb": "cancel", "ids": ["s1", "s2"]}, _two),
    "pause everything": Request("/standing-pause", {"reason": "stop"}, _waiting, method="PUT"),
    "lift the pause": Request("/standing-pause", {}, _all_paused, method="DELETE"),
    "remove": Request("/sessions/s1", {"reason": "asked to"}, _waiting, method="DELETE"),
    "redact": Request("/sessions/s1/redact", {"field": "notes", "reason": "private"}, _waiting),
}


class KilledStore(SqliteStore):
    """A store whose process kills itself at a write, once it is armed. ``points`` are those that it has passed."""

    point, when = -1, ""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.points: list[tuple[int, str]] = []

    def arm(self, point: int, when: str) -> None:
        self.point, self.when = point, when
        self.points.clear()

    async def commit(self, commit: Commit) -> Flags | None:
        number = self._passed("before", "after")
        self._die(number, "before")
        done = await super().commit(commit)
        self._die(number, "after")
        return done

    async def _do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T:
        number = self._passed(*WHEN)
        self._die(number, "before")

        def both(connection: Connection) -> T:
            done = verb(connection)
            self._die(number, "inside")
            return done

        done = await super()._do(both, urgent=urgent)
        self._die(number, "after")
        return done

    def _passed(self, *when: str) -> int:
        number = self.points[-1][0] + 1 if self.points else 0
        self.points += [(number, each) for each in when]
        return number

    def _die(self, number: int, when: str) -> None:
        if (number, when) == (self.point, self.when):
            os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def server(path: Path, drives: bool = True) -> AsyncIterator[tuple[Engine, KilledStore, httpx.AsyncClient]]:
    """Open an engine and an application that answers requests without a network."""
    store = KilledStore(path, synchronous="OFF", ballast=0)
    async with Engine(store, workflows=[brief, chat], signals=False, drives="all" if drives else "none") as engine:
        for workflow in engine.workflows.values():
            engine._service.described[workflow.name] = engine.clock.now()  # so that the writes belong to the request
        app: Any = application(
            engine, Settings(who=lambda request: Person("ann", "admin"), hosts=["test"], limits=FREE)
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://test{API}") as client:
            yield engine, store, client


async def prepared(path: Path, name: str) -> dict[str, str]:
    request = REQUESTS[name]
    async with server(path) as (engine, _, _):
        return {} if request.prepare is None else await request.prepare(engine)


async def sent(client: httpx.AsyncClient, name: str, names: dict[str, str], keyed: bool) -> httpx.Response:
    request = REQUESTS[name]
    headers = {"Authorization": "of a program", "If-Match": names.get("mark", "")} | (
        {"Idempotency-Key": "k"} if keyed else {}
    )
    body = {name: names["seen"] if value == "{seen}" else value for name, value in (request.body or {}).items()}
    given: dict[str, Any] = {"content": request.content} if request.content else {"json": body}
    return await client.request(request.method, request.path.format(**names), headers=headers, **given)


def post(path: str, name: str, names: dict[str, str], point: int, when: str, twin: Twin) -> None:
    """Send the request in this process, which dies at the point; a job of the fork server."""

    async def run() -> None:
        if twin == "no once":
            RequestKeys.once = lambda self, key, *, each=False: nullcontext()  # type: ignore[method-assign]
        async with server(Path(path), REQUESTS[name].drives) as (_, store, client):
            store.arm(point, when)
            answer = await sent(client, name, names, keyed=twin != "no key")
            say({"status": answer.status_code, "points": store.points})

    asyncio.run(run())


def warm_up() -> None:
    """Do once what every job would have to do."""
    with TemporaryDirectory() as folder:
        asyncio.run(prepared(Path(folder) / "store.db", "answer"))


class Trial:
    """One request, sent to a server that is killed, and sent again with the same key to another one.

    ``twin`` is a server that does not look at keys, or that does not store the effect together with its key.
    """

    def __init__(self, forks: ForkServer, folder: Path, name: str, twin: Twin = "") -> None:
        self.forks = forks
        self.folder = folder
        self.name = name
        self.twin = twin
        self.expected, self.points = self._undisturbed()

    def _undisturbed(self) -> tuple[dict[str, Any], list[tuple[int, str]]]:
        path, names = self._prepared("whole")
        child = self._begin(path, names, -1, "", "")
        heard = child.hear()
        assert child.wait() == 0
        assert heard["status"] < 300, heard
        left = asyncio.run(repeated(path, self.name, names))
        return left, [(number, when) for number, when in heard["points"]]

    def _prepared(self, place: str) -> tuple[Path, dict[str, str]]:
        path = self.folder / f"{place}.db"
        return path, asyncio.run(prepared(path, self.name))

    def _begin(self, path: Path, names: dict[str, str], point: int, when: str, twin: Twin) -> Child:
        given = {"path": str(path), "name": self.name, "names": names, "twin": twin}
        return self.forks.start("tests.server.killed_requests:post", point=point, when=when, **given)

    def died(self, point: int, when: str) -> tuple[Path, dict[str, str]]:
        """Kill the server at a write, and return its store, with the names for the request."""
        path, names = self._prepared(f"{point}-{when}")
        code = self._begin(path, names, point, when, self.twin).wait()
        assert code == -signal.SIGKILL, f"{self.name}: the kill {when} write {point} did not happen: {code}"
        return path, names

    def kill(self, point: int, when: str) -> list[str]:
        """Kill the server at a write, repeat the request, and return what differs from one that was not killed."""
        path, names = self.died(point, when)
        found = asyncio.run(repeated(path, self.name, names, keyed=self.twin != "no key"))
        return [
            f"{self.name}: killed {when} write {point}: {what} is {found[what]!r}, not {wanted!r}"
            for what, wanted in self.expected.items()
            if what != "answer" and found[what] != wanted
        ]


async def repeated(path: Path, name: str, names: dict[str, str], keyed: bool = True) -> dict[str, Any]:
    """Send the request to a new server, twice if it has a key, and return what it has left behind."""
    drives = REQUESTS[name].drives
    async with server(path, drives) as (engine, _, client):
        first = await sent(client, name, names, keyed)
        if keyed:
            second = await sent(client, name, names, keyed)
            assert second.headers.get("idempotency-replayed") == "true", second.text
            assert (first.status_code, first.content) == (second.status_code, second.content)
        if drives:
            await engine.take_ready()
            await engine.idle()
        return {"status": first.status_code, "answer": first.json()} | await left_behind(engine)


PICKED_UP = frozenset({"session.resumed", "session.stopped", "session.waiting", "step.started"})
"""Events of a session that another engine continues after the kill, or after the first one has ended."""


async def left_behind(engine: Engine) -> dict[str, Any]:
    """Return the effects of requests, without random ids and times."""
    found: dict[str, Any] = {
        "sessions": [],
        "events": Counter(),
        "files": [],
        "removed": len(await engine.tombstones()),
    }
    for info in await engine.sessions():
        values = (await engine.session(info.session_id).stored()).values
        found["sessions"].append((info.workflow, info.status.value, sorted(values.items()), info.pause_requested))
        found["files"] += [each.sha256 for each in await engine.session(info.session_id).files.list()]
        async for event in engine.session(info.session_id).events():
            if event.event_type not in PICKED_UP:
                found["events"][event.event_type] += 1
    found["sessions"].sort(key=str)
    standing = await engine.standing_pause()
    return found | {"standing": None if standing is None else standing.reason}


def main() -> int:
    """Kill the server at every write of every request."""
    wrong, kills = list[str](), 0
    with ForkServer(__spec__.name) as forks:
        for name in REQUESTS:
            with TemporaryDirectory() as folder:
                trial = Trial(forks, Path(folder), name)
                for point in trial.points:
                    wrong += trial.kill(*point)
                    kills += 1
                print(f"{name}: {len(trial.points)} points", flush=True)
    print(f"{kills} kills", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
