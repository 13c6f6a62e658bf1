"""A real server on loopback: uvicorn and an engine in a thread of their own, and a client."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Workflow, step
from pausepoint.clock import Clock
from pausepoint.engine.base import Drives
from pausepoint.gate.gates import PROMPT
from pausepoint.gate.guests import AGENTS
from pausepoint.integrations.words import names_code
from pausepoint.server.asgi import Settings, application
from pausepoint.server.calls import Route
from pausepoint.server.limits import Limits
from pausepoint.server.listener import bound
from pausepoint.server.openapi import schemas
from pausepoint.server.roles import Role
from pausepoint.server.routes import ROUTES
from pausepoint.server.tokens import Tokens
from tests.support.loop import PATIENCE

T = TypeVar("T")
API = "/api/v1"
FREE = Limits(actions=10_000, reads=10_000, wrong_tokens=10_000)
"""Limits that no test reaches by accident."""


class Brief(BaseModel):
    topic: str
    notes: str = ""
    tone: str = ""
    text: str = ""


@step(writes="notes")
async def research(ctx: Context, topic: str) -> str:
    if topic == "fail":
        raise RuntimeError("the library burned down")
    return await ctx.do(str, f"notes on {topic}")


@step(writes="tone")
async def choose(ctx: Context) -> str:
    return await ctx.ask("Which tone?", choices=["formal", "playful"])


@step(writes="text")
async def write(notes: str, tone: str) -> str:
    return f"{tone}: {notes}"


brief = Workflow("brief", state=Brief, steps=[research, choose, write])


class Letter(BaseModel):
    topic: str
    text: str = ""


@step(writes="text", publishes=Artifact("letter.html"))
async def compose(topic: str) -> str:
    return f"<script>alert('{topic}')</script>\n"


letter = Workflow("letter", state=Letter, steps=[compose])


class Served:
    """A running server."""

    def __init__(self, folder: Path, engine: Engine, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.folder = folder
        self.engine = engine
        self.loop = loop
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.app: Any = None
        self.tokens = Tokens(folder)
        self.questions: dict[str, str] = {}
        """Session → the id of its question, for tests that share a server."""
        self.clients: dict[Any, httpx.Client] = {}
        self._created: dict[tuple[str, str | None, str | None], str] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a verb of the engine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """Return a client, signed in with a token."""
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.base + API, headers=given | headers, timeout=PATIENCE, trust_env=False, verify=False
        )  # without certificates, which take long to load

    @contextmanager
    def kept(self, token: str | None = None, **headers: str) -> Iterator[httpx.Client]:
        """Yield a client that keeps its connection for the next test."""
        key = token, tuple(headers.items())
        if key not in self.clients:
            self.clients[key] = self.client(token, **headers)
        yield self.clients[key]

    def admin(self, **headers: str) -> httpx.Client:
        return self.client(self.tokens.own, **headers)

    def token(self, role: Role, owner: str | None = None, name: str | None = None) -> str:
        """Create a token, and return its secret."""
        key = role, owner, name
        if key not in self._created:
            self._created[key] = self.tokens.create(name or f"{role}-{owner}", role, owner, time.time(), None)[1]
        return self._created[key]

    def asked(self, session_id: str, topic: str = "octopus", owner: str | None = None) -> str:
        """Start a session, wait until it asks, and return the id of its question."""

        async def start() -> str:
            session = await self.engine.start(brief, session_id=session_id, owner=owner, topic=topic)
            await session.outcome()
            (question,) = await session.questions()
            return question.id

        return self.run(start())

    def finished(self, session_id: str, owner: str | None = None) -> None:
        """Run a session of ``brief`` to its end."""
        question = self.asked(session_id, owner=owner)

        async def answer() -> None:
            await self.engine.answer(question, "formal")
            await self.engine.session(session_id).outcome()

        self.run(answer())


@contextmanager
def served(
    folder: Path, *, drives: Drives = "all", workflows: tuple[Workflow[Any], ...] = (brief, letter),
    make: Callable[[Engine, Tokens, int], Any] | None = None, limits: Limits = FREE, port: int = 0,
    clock: Clock | None = None,
) -> Iterator[Served]:  # fmt: skip
    """Serve a store in this folder until the block ends. ``make`` returns another application than ours."""
    listener = bound("127.0.0.1", port)
    port = listener.getsockname()[1]
    ready: list[Served] = []
    began, failed = threading.Event(), list[BaseException]()
    stop: Callable[[], None] = lambda: None  # noqa: E731

    async def main() -> None:
        nonlocal stop
        tokens = Tokens(folder)
        tokens.make()
        options: dict[str, Any] = {"workflows": workflows, "drives": drives, "clock": clock}
        async with Engine(folder / "store.db", signals=False, **options) as engine:
            hosts = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"]
            settings = Settings(hosts=hosts, tokens=tokens, name="root", limits=limits)
            app = application(engine, settings) if make is None else make(engine, tokens, port)
            config = uvicorn.Config(
                app,
                log_config=None,
                lifespan="auto",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=5,
            )
            server = uvicorn.Server(config)
            loop = asyncio.get_running_loop()

            def ends() -> None:
                server.should_exit = True

            stop = ends
            ready.append(Served(folder, engine, loop, port))
            ready[0].app = app
            began.set()
            await server.serve(sockets=[listener])

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        finally:
            began.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert began.wait(PATIENCE)
        if failed:
            raise failed[0]
        yield ready[0]
    finally:
        for one in ready:
            for client in one.clients.values():
                client.close()
        stop()
        thread.join(PATIENCE)
        listener.close()
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def raw(server: Served, text: str) -> str:
    """Send bytes as they are, and return the whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return answer.decode("latin-1")


def named(route: Route) -> str:
    """The name of a test of a route."""
    return f"{route.method} {route.path}"


def filled(route: Route, session_id: str, question: str) -> str:
    """The path of a route, with real names in it."""
    real = {"session_id": session_id, "question_id": question, "field": "topic", "step": "write", "name": "brief",
            "file_id": "file_0123456789ab", "path:path": "letter.html", "name:path": "brief", "job": "999",
            "token_id": "00000000"}  # fmt: skip
    path = route.path
    for name, value in real.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def state_of(server: Served, session_id: str) -> object:
    """What must not change when a request is refused."""
    info = server.run(server.engine.session(session_id).info())
    return info, server.run(server.engine.standing_pause()), len(server.run(server.engine.sessions()))


def send(client: httpx.Client, route: Route, path: str | None = None, body: Any = ..., **more: Any) -> httpx.Response:
    """Send a request to a route, with its example as the body unless another one is given."""
    if body is ... and route.body is not None:
        more["json"] = route.example
    elif body is not ...:
        more["json"] = body
    if not route.streams:
        return client.request(route.method, path or route.path, **more)
    with client.stream(route.method, path or route.path, **more) as answer:  # it does not end
        if answer.status_code != 200:
            answer.read()
        return answer


def fits(document: Any, name: str) -> None:
    """Check a document against its ``$def``."""
    _validator(name).validate(document)


@cache
def _validator(name: str) -> Draft202012Validator:
    """Return what checks a ``$def``. It is kept, because the schemas of all bodies take some milliseconds to make."""
    return Draft202012Validator({"components": {"schemas": schemas(ROUTES)}, "$ref": f"#/components/schemas/{name}"})


def check_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """Check that an answer is a problem with one of these statuses, and that its sentence is for a client."""
    assert answer.status_code in statuses, (answer.request.method, str(answer.request.url), answer.text)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document: dict[str, Any] = answer.json()
    fits(document, "problem")
    assert document["status"] == answer.status_code
    assert document["detail"].endswith((".", "?")), document
    assert not names_code(document["detail"]), document
    assert "Traceback" not in answer.text
    return document


async def at_the_gate(engine: Engine, session_id: str = "claude-ada", prompt: str = "Fix it.") -> None:
    """Add the session of an agent that has ended a turn."""
    state = {"kind": "claude", "session": session_id}
    with suppress(asyncio.CancelledError):
        async with engine.visit(AGENTS, session_id=session_id, input=state, tags=["claude"]) as ctx:
            place = {"folder": "/srv/site", "branch": "main", "terminal": "pts/3"}
            ctx.emit(PROMPT, prompt, text=prompt, **place)
            await ctx.commit()
            raise asyncio.CancelledError
