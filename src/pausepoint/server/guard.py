"""The guard in front of everything: Host, Origin, Sec-Fetch-Site, and the headers of every answer.

A page of another site can make a browser send requests here. The guard refuses them before anything else runs, on every
method: a read that another site can trigger tells it whether something exists.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Any

from pausepoint.server.calls import Receive, Reply, Scope, Send, header
from pausepoint.server.problems import PROBLEM, Problem, log, problem_of

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine. They are allowed with any port if nothing else is said."""

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types lit-html"
)

HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every answer, unless the answer sets them itself."""

SAFE = frozenset({"GET", "HEAD"})
"""The methods that change nothing."""


class Guard:
    """An ASGI application that lets only requests of its own page, and of programs, through to another one.

    ``hosts`` are the accepted values of Host: a name with a port, or a name alone for any port. ``proxies`` are the
    networks of proxies whose ``X-Forwarded-Proto`` and ``X-Forwarded-For`` are believed.
    """

    def __init__(self, app: Any, hosts: Collection[str] | None = None, proxies: Collection[str] = ()) -> None:
        self.app = app
        self.hosts = frozenset(each.lower() for each in (LOOPBACK if hosts is None else hosts))
        self.proxies = tuple(ipaddress.ip_network(each) for each in proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        answer = _Answer(send)
        try:
            await self.app(self._checked(scope), receive, answer)
        except Exception as error:
            refused = problem_of(error)
            if answer.status:
                raise  # a part of the answer is sent already, so the server can only cut the connection
            reply = Reply(refused.document(scope["path"]), refused.status, refused.headers, PROBLEM)
            await reply.send(answer, scope["method"] == "HEAD")
        finally:  # without the query and the body, which may contain secrets
            log.info("%s %s %s", scope["method"], scope["path"].encode("unicode_escape").decode(), answer.status)

    def _checked(self, scope: Scope) -> Scope:
        """Return the request as the application sees it. Raises a problem if it comes from somewhere else."""
        scope = self._behind_proxy(scope)
        host = header(scope, "host").lower()
        if not self._is_ours(host) or not scope["path"].startswith("/"):
            raise Problem(
                421,
                f"The server does not answer to the host {host[:100]!r}. Use the address that it printed, or name the"
                " host when you start it.",
            )
        if header(scope, "content-length") and header(scope, "transfer-encoding"):
            raise Problem(
                400, "The request gives both Content-Length and Transfer-Encoding. Send one of them.",
                headers={"Connection": "close"},  # a proxy may see another request in what follows
            )  # fmt: skip
        origin = header(scope, "origin")
        if origin and origin.lower() != f"{scope['scheme']}://{host}":
            raise Problem(
                403, f"A page of {origin[:100]!r} may not use this server. Open the server's own page.", "origin"
            )
        site = header(scope, "sec-fetch-site")
        if scope["method"] not in SAFE and site not in ("", "same-origin", "none"):
            raise Problem(403, "Another site sent this request. Open the server's own page.", "origin")
        return scope

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if host in self.hosts:
            return True
        return bool(colon) and port.isascii() and port.isdigit() and name in self.hosts

    def _behind_proxy(self, scope: Scope) -> Scope:
        """Take the scheme and the address of the client from a trusted proxy, and from no other sender."""
        peer = (scope.get("client") or ("", 0))[0]
        scope = {**scope, "pausepoint.proxy": False}
        if not self.proxies or not self._is_proxy(peer):
            return scope
        forwarded = header(scope, "x-forwarded-for").rpartition(",")[2].strip() or peer
        proto = header(scope, "x-forwarded-proto").strip().lower()
        scheme = proto if proto in ("http", "https") else scope["scheme"]
        return {**scope, "pausepoint.proxy": True, "scheme": scheme, "client": (forwarded, 0)}

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self.proxies)


class _Answer:
    """Adds the headers of every answer, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            sent = {name for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in sent]
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send(message)


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer a server that asks for a lifespan. The engine has its own, in the program that opened it."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def check_site(scope: Scope) -> None:
    """Raise a 403 if a page of another site or port made the browser send its sign-in along."""
    if header(scope, "sec-fetch-site") in ("cross-site", "same-site"):
        raise Problem(403, "Another site sent this request. Open the server's own page.", "origin")
    if scope["method"] not in SAFE:
        check_page(scope)


def check_page(scope: Scope) -> None:
    """Raise a 403 unless the server's own page sent the request. Another site cannot add this header."""
    if header(scope, "x-pausepoint") != "1":
        raise Problem(403, "The header 'X-Pausepoint: 1' is missing. Send it with every action.", "origin")
