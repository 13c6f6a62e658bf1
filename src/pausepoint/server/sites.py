"""Sites: pages that a program adds to the server for people outside, such as the customers of a shop.

A signed link signs a visitor in to one site. The guard, the limits and the live stream are those of the server. The API
accepts no visitor.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pausepoint.server.calls import JSON, Receive, Reply, Scope, Send, Sent, body_of, decoded, header, start
from pausepoint.server.clients import Client, encoded
from pausepoint.server.guard import check_page, check_site
from pausepoint.server.limits import Attempts
from pausepoint.server.page import Page
from pausepoint.server.people import Person
from pausepoint.server.problems import Problem, problem_of
from pausepoint.server.seals import refused
from pausepoint.server.signin import address_of
from pausepoint.server.stream import Stream
from pausepoint.server.visitors import Visitor, Visitors

if TYPE_CHECKING:
    from pausepoint.server.asgi import Desk

WRONG = "The link is wrong, has expired or was revoked. Ask for a new one."
ADVICE = "Correct it, then send it again."


class Visit(msgspec.Struct, frozen=True):
    """One request of a visitor. ``name`` is the one in the signed link; ``body`` is the decoded body."""

    engine: Any
    name: str
    body: Any = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a site, below ``/<site>/api``.

    - ``handler``: gets a `Visit` and returns the document of the answer.
    - ``body``: the struct that the body is decoded to.
    - ``streams``: the answer is a stream. It has an event ``changed`` with the document at first, and again whenever a
      session that the visitor owns has changed and the document differs.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Visit], Awaitable[Any]]
    body: type[Any] | None = None
    streams: bool = False


class Site(msgspec.Struct, frozen=True):
    """What a program adds to the server at ``/<name>/``.

    - ``page``: the folder of the page's files, with an ``index.html``.
    - ``work``: gets the engine and runs while the server runs, if the server drives sessions.
    """

    name: str
    page: Traversable
    actions: tuple[Action, ...] = ()
    work: Callable[[Any], Coroutine[Any, Any, None]] | None = None


def site_routes(desk: Desk, site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the addresses of a site, and what answers to them."""
    door = _Door(desk, site.name)
    yield f"/{site.name}", _Redirect(f"{site.name}/")
    yield from Page(site.page).routes(f"/{site.name}")
    yield f"/{site.name}/api/login", _Endpoint(door, Action(method="POST", path="/login", handler=_nothing, body=Login))
    paths: dict[str, list[Action]] = {}
    for action in site.actions:
        paths.setdefault(action.path, []).append(action)
    for path, actions in paths.items():
        yield f"/{site.name}/api{path}", _Endpoint(door, *actions)


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a sign-in."""

    link: str


async def _nothing(visit: Visit) -> None:
    return None


class _Redirect:
    """Leads to the address of the page, which ends with a slash."""

    methods = ("GET",)

    def __init__(self, to: str) -> None:
        self._to = to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await start(send, 308, {"location": self._to})
        await send({"type": "http.response.body", "body": b""})


class _Door:
    """Finds out who comes in."""

    def __init__(self, desk: Desk, site: str) -> None:
        self.desk = desk
        self.site = site
        self._attempts = Attempts(desk.limits.wrong_tokens)
        self._found: Visitors | None = None

    async def visitors(self) -> Visitors:
        if self._found is None:
            await self.desk.find_tokens()
            if (tokens := self.desk.signin.tokens) is None:
                raise refused("This server has no tokens, so it has no links either. Start it with a store in a file.")
            self._found = Visitors(tokens, self.site)
        return self._found

    async def visitor(self, scope: Scope) -> Visitor:
        """Return the visitor who sends a request. Raises a 401 if there is none."""
        check_site(scope)
        found = (await self.visitors()).of(scope)
        if found is None:
            raise refused("You are not signed in, or your link has ended. Open your link again, or ask for a new one.")
        return found

    async def sign_in(self, link: str, scope: Scope) -> Reply:
        """Trade a link for a cookie."""
        address, visitors = address_of(scope), await self.visitors()
        self._attempts.check(address, link)
        found = visitors.find(link)
        if found is None:
            self._attempts.wrong(address, link)
            raise refused(WRONG)
        self._attempts.right(address, link)
        return Reply({"name": found.name}, 200, {"Set-Cookie": visitors.cookie(found, scope)})


class _Endpoint:
    """Answers the requests to one path of a site."""

    def __init__(self, door: _Door, *actions: Action) -> None:
        self._door = door
        self._actions = {each.method: each for each in actions}
        self.methods = list(self._actions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        action = self._actions["GET" if scope["method"] == "HEAD" else scope["method"]]
        begin, status = time.perf_counter(), 499
        try:
            reply = await self._answered(action, scope, receive)
            status = getattr(reply, "status", 200)
        except Exception as error:
            problem = problem_of(error)
            status = problem.status
            raise problem from error
        finally:
            path = f"/{self._door.site}{action.path}"
            self._door.desk.timings.add(action.method, path, status, time.perf_counter() - begin)
        await reply.send(send, scope["method"] == "HEAD")

    async def _answered(self, action: Action, scope: Scope, receive: Receive) -> Sent:
        desk = self._door.desk
        if action.body is Login:
            check_page(scope)
            body = await self._body(action, scope, receive)
            return await self._door.sign_in(body.link, scope)
        visitor = await self._door.visitor(scope)
        who = f"{self._door.site}:{visitor.name}"
        is_action = action.method != "GET"
        desk.rates.take(
            who, "actions" if is_action else "reads", desk.limits.actions if is_action else desk.limits.reads
        )
        body = None if action.body is None else await self._body(action, scope, receive)
        visit = Visit(desk.engine, visitor.name, body)
        if action.streams:
            return await self._stream(action, visit, visitor, scope, receive)
        return Reply(await action.handler(visit))

    async def _body(self, action: Action, scope: Scope, receive: Receive) -> Any:
        limits = self._door.desk.limits
        data = await body_of(scope, receive, limits.body, limits.body_seconds)
        if header(scope, "content-type").partition(";")[0].strip().lower() != JSON:
            raise Problem(415, f"The body must be JSON. Send the header 'Content-Type: {JSON}'.")
        return decoded(lambda: msgspec.json.decode(data, type=action.body or Any), "body", ADVICE)

    async def _stream(self, action: Action, visit: Visit, visitor: Visitor, scope: Scope, receive: Receive) -> Stream:
        desk, visitors = self._door.desk, await self._door.visitors()
        who = f"{self._door.site}:{visitor.name}"

        async def still() -> bool:
            return visitors.find(visitor.link) is not None

        await desk.hub.use()
        desk.streams.take(who, desk.limits)  # no await from here on: several may ask at the same time
        # The hub wakes the client when a session of this owner changes. What is sent then is read again.
        person = Person(visitor.name, "viewer", visitor.name)
        client = Client(person, ("now", "inbox"), None, who, visitor.link, still)
        leave = partial(desk.streams.leave, who)
        return Stream(desk.hub, client, receive, "", leave, _Changed(lambda: action.handler(visit)))


class _Changed:
    """Returns an event with a document, and nothing while the document stays the same."""

    def __init__(self, read: Callable[[], Awaitable[Any]]) -> None:
        self._read = read
        self._last = b""

    async def __call__(self) -> bytes:
        event = encoded("changed", await self._read())
        if event == self._last:
            return b""
        self._last = event
        return event
