"""The ASGI application: the guard, the routes of the table, and the page."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from pausepoint.server.access import Access
from pausepoint.server.board import Acts
from pausepoint.server.bodies import NoQuery
from pausepoint.server.calls import (
    COMPARE,
    CORRECT,
    JSON,
    Call,
    Receive,
    Route,
    Scope,
    Send,
    Sent,
    body_of,
    decoded,
    header,
    query_of,
)
from pausepoint.server.guard import SAFE, Guard, check_page, check_site
from pausepoint.server.hub import hub_of
from pausepoint.server.limits import Attempts, Limits, Rates, Streams
from pausepoint.server.metrics import Timings
from pausepoint.server.page import Page
from pausepoint.server.people import Person
from pausepoint.server.problems import Problem, problem_of
from pausepoint.server.retries import Retries, is_given
from pausepoint.server.routes import ROUTES
from pausepoint.server.runs import Readers
from pausepoint.server.seals import refused
from pausepoint.server.signin import Signed, SignIn, Who
from pausepoint.server.sites import Site, site_routes
from pausepoint.server.store import Jobs
from pausepoint.server.tokens import Tokens

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

API = "/api/v1"


class Settings(msgspec.Struct, frozen=True):
    """How a server is run. `app` and ``pausepoint serve`` fill it in.

    ``tokens``: None means those next to the engine's store, which is found with the first request.
    """

    who: Who | None = None
    page: bool = True
    hosts: Collection[str] | None = None
    drives: bool | None = None
    tokens: Tokens | None = None
    name: str = "admin"
    proxies: Collection[str] = ()
    limits: Limits = Limits()
    sites: Sequence[Site] = ()


def app(
    engine: Engine, *, who: Who | None = None, page: bool = True, hosts: Collection[str] | None = None,
    drives: bool | None = None,
) -> Callable[[Any, Any, Any], Any]:  # fmt: skip
    """Return the server as an ASGI application, to run it or to mount it in another one.

    It opens and closes nothing: the engine must be open while requests are answered. It has no lifespan of its own, so
    it can be mounted with ``api.mount("/pausepoint", app(engine, who=…))``.

    - ``who``: a function that gets the request and returns a `Person`, or None to refuse it with a 401. It may be
      async. By default people sign in with the tokens next to the store.
    - ``page``: whether to serve the web page too.
    - ``hosts``: the accepted values of the header Host, with or without a port. By default the names of this machine.
    - ``drives``: whether sessions are driven by this engine. By default as the engine was opened.
    """
    return application(engine, Settings(who, page, hosts, drives))


LATE = ("engine.obstacles", "engine.operations", "engine.plans", "engine.spans")
"""The modules that the engine imports when it is first asked for a plan or spans. All requests would wait for that."""


def application(engine: Engine, settings: Settings) -> Guard:
    """Return the guarded application."""
    for module in LATE:
        import_module(f"pausepoint.{module}")
    desk = Desk(engine, settings)
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    routes: list[Any] = [_Path(API + path, Endpoint(desk, methods)) for path, methods in paths.items()]
    if settings.page:
        routes += [_Path(path, endpoint) for path, endpoint in Page().routes()]
    for site in settings.sites:
        routes += [_Path(path, endpoint) for path, endpoint in site_routes(desk, site)]
    router = Router(routes, redirect_slashes=False, default=_unknown)
    return Guard(router, settings.hosts, settings.proxies)


class Desk:
    """What all requests share: the engine, its hub, the sign-in, the limits, the jobs and the readers of runs.

    ``acts``: when each sign-in has last changed something.
    """

    routes: Sequence[Route] = ROUTES

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.hub = hub_of(engine)
        self.limits = settings.limits
        self.rates = Rates()
        self.streams = Streams()
        self.jobs = Jobs()
        self.readers = Readers()
        self.timings = Timings()
        self.acts = Acts()
        self.retries = Retries(engine)
        self._drives = settings.drives
        attempts = Attempts(settings.limits.wrong_tokens)
        self.signin = SignIn(settings.tokens, attempts, settings.name, settings.who, bool(settings.proxies))
        self._finds_tokens = settings.who is None and settings.tokens is None

    @property
    def drives(self) -> bool:
        """Whether this engine drives the sessions that are started and resumed here."""
        return self.engine.drives != "none" if self._drives is None else self._drives

    def base(self, scope: Scope) -> str:
        """Return the address of the API, below which its routes are."""
        return f"{scope.get('root_path', '')}{API}"

    async def find_tokens(self) -> None:
        """Find the tokens next to the engine's store, unless they were given or found before."""
        if self._finds_tokens:
            place = (await self.engine.health()).store.place
            self.signin.tokens = Tokens(Path(place).absolute().parent) if Path(place).is_file() else None
            self._finds_tokens = False


class _Path(StarletteRoute):
    """One path. Unlike Starlette's, it answers to a wrong method with a problem, and adds nothing of its own."""

    def __init__(self, path: str, endpoint: Any) -> None:
        super().__init__(path, endpoint=endpoint, methods=endpoint.methods)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)  # the name of a lane may contain a line end

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        if self.methods and scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            raise Problem(
                405, f"This address accepts {allowed} only. See GET /openapi.json.", headers={"Allow": allowed}
            )
        await self.app(scope, receive, send)


async def _unknown(scope: Any, receive: Any, send: Any) -> None:
    raise Problem(404, "There is nothing at this address. See GET /openapi.json for all addresses.", "unknown-address")


class Endpoint:
    """Answers the requests to one path of the API: checks the sign-in, decodes the request, and calls the handler."""

    def __init__(self, desk: Desk, methods: dict[str, Route]) -> None:
        self.desk = desk
        self.routes = methods
        self.methods = list(methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.routes["GET" if scope["method"] == "HEAD" else scope["method"]]
        begin, status = time.perf_counter(), 499  # unless something is answered, the client has left
        try:
            reply = await self._answered(route, scope, receive)
            status = getattr(reply, "status", route.status)
        except Exception as error:
            problem = problem_of(error)
            status = problem.status
            raise problem from error
        finally:
            self.desk.timings.add(route.method, route.path, status, time.perf_counter() - begin)
        await reply.send(send, scope["method"] == "HEAD")

    async def _answered(self, route: Route, scope: Scope, receive: Receive) -> Sent:
        signed = await self._allowed(route, scope)
        person = None if signed is None else signed.person
        advice = COMPARE if person is None or person.question is None else CORRECT
        query = query_of(scope, route.query or NoQuery, advice)
        data = b"" if route.body is None else await self._data(scope, receive)
        body = None
        if route.body is not None:
            body = decoded(lambda: msgspec.json.decode(data or b"{}", type=route.body), "body", advice)
        call = Call(
            self.desk, Access(self.desk.engine, person), scope, receive, person, body, query,
            signed is not None and signed.ambient, "" if signed is None else signed.id,
        )  # fmt: skip
        if route.is_action:
            try:
                return await self._carried_out(route, call, data)
            finally:  # a refusal may have changed something, too
                self.desk.acts.note(call.signed)
        if route.method != "GET":
            return await route.handler(call)
        seconds = self.desk.limits.read_seconds
        try:
            async with asyncio.timeout(seconds):
                return await route.handler(call)
        except TimeoutError:
            raise Problem(503, f"The answer took longer than {seconds:g} s. Ask for less, or retry later.") from None

    async def _carried_out(self, route: Route, call: Call, data: bytes) -> Sent:
        if route.takes_key and is_given(call.scope):
            return await self.desk.retries.answer(route, call, data)
        return await route.handler(call)

    async def _allowed(self, route: Route, scope: Scope) -> Signed | None:
        """Return the sign-in of the request; None if the route needs none. Raises a problem if it may not be used."""
        if route.role is None:
            if route.method not in SAFE:
                check_page(scope)
                await self.desk.find_tokens()
            return None
        await self.desk.find_tokens()
        signed = await self.desk.signin.person(scope)
        if signed is None:
            raise refused(
                "You are not signed in. Send a token as 'Authorization: Bearer …', or open the printed address."
            )
        if signed.ambient:
            check_site(scope)
        self._check_role(route, signed.person)
        kind, most = ("actions", self.desk.limits.actions) if route.is_action else ("reads", self.desk.limits.reads)
        self.desk.rates.take(signed.id, kind, most)
        return signed

    def _check_role(self, route: Route, person: Person) -> None:
        if person.question is not None and not route.links:
            raise Problem(403, "An answer link can see and answer its question only. Sign in with a token.", "role",
                          role=route.role)  # fmt: skip
        if route.role is None or route.role == "any" or route.heads or person.may(route.role):
            return
        raise Problem(
            403, f"This needs the role {route.role}, and {person.name!r} has the role {person.role}. Ask an admin.",
            "role", role=route.role,
        )  # fmt: skip

    async def _data(self, scope: Scope, receive: Receive) -> bytes:
        data = await body_of(scope, receive, self.desk.limits.body, self.desk.limits.body_seconds)
        given = header(scope, "content-type").partition(";")[0].strip().lower()
        if given != JSON and (data or given):
            raise Problem(415, f"The body must be JSON. Send the header 'Content-Type: {JSON}'.")
        return data
