"""One request and its reply, as the handlers see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec

from pausepoint.integrations.words import complaint
from pausepoint.server.people import Person
from pausepoint.server.problems import Problem
from pausepoint.server.roles import Role

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.server.access import Access
    from pausepoint.server.asgi import Desk
    from pausepoint.server.retries import Intent

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

JSON = "application/json"

CUT_OFF = "request-cut-off"
"""The kind of the problem that a client's connection ended too early."""

KEY_PATTERN = "^[!-~]{1,200}$"
"""What an Idempotency-Key looks like: visible ASCII characters."""


class Reply(NamedTuple):
    """A JSON document, or nothing. `Attachment` is the reply with bytes."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    content_type: str = JSON

    async def send(self, send: Send, head: bool = False) -> None:
        """Send the reply. ``head``: without its body, as the answer to HEAD."""
        data = b"" if self.document is None else msgspec.json.encode(self.document)
        headers = dict(self.headers)
        if self.document is not None:
            headers |= {"content-type": self.content_type, "content-length": str(len(data))}
        await start(send, self.status, headers)
        await send({"type": "http.response.body", "body": b"" if head else data})


class Attachment(NamedTuple):
    """Bytes that a browser saves and never shows. ``content_type`` is sent only if it is a harmless text type."""

    filename: str
    content_type: str
    size: int
    chunks: AsyncIterator[bytes]
    status: int = 200
    headers: Mapping[str, str] = {}

    async def send(self, send: Send, head: bool = False) -> None:
        """Send the bytes as they come."""
        harmless = self.content_type.partition(";")[0].strip().lower() in HARMLESS
        headers = dict(self.headers) | {
            "content-type": "text/plain; charset=utf-8" if harmless else "application/octet-stream",
            "content-length": str(self.size),
            "content-disposition": disposition(self.filename),
            "content-security-policy": "sandbox; default-src 'none'",
        }
        await start(send, self.status, headers)
        if not head:
            async for chunk in self.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


HARMLESS = frozenset({"text/plain", "text/markdown", "text/csv", "application/json", "application/jsonl"})
"""Types that are sent as plain text. Everything else is sent as bytes of no known type."""


class Sent(Protocol):
    """A reply of any kind."""

    async def send(self, send: Send, head: bool = False) -> None: ...


Handler = Callable[["Call"], Awaitable[Sent]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of routes.

    - ``path``: below ``/api/v1``. ``role``: who may call it; ``"any"`` means everyone who is signed in, None
      everyone. ``heads``: an answerer may call it too, and sees the facts of a session only. ``links``: an answer link
      may call it.
    - ``verb``: the engine's verb that it calls; empty if it calls none.
    - ``body``, ``query``: the structs that the request is decoded to. ``uploads``: the body is bytes of any size.
      ``streams``: the answer does not end.
    - ``answer``: the document of the answer; None if it has no JSON, then ``content`` is its type. ``status``: that of
      a success.
    - ``errors``: the statuses of refusals, besides those of every route.
    - ``example``: a body that is accepted.
    - ``keyless``: an Idempotency-Key does not count, because the answer must not be stored or there is no effect in the
      store.
    """

    method: str
    path: str
    role: Role | Literal["any"] | None
    handler: Handler
    verb: str = ""
    heads: bool = False
    links: bool = False
    body: type[Any] | None = None
    query: type[Any] | None = None
    answer: type[Any] | None = None
    content: str = "application/octet-stream"
    status: int = 200
    errors: tuple[int, ...] = ()
    example: Any = None
    uploads: bool = False
    streams: bool = False
    keyless: bool = False

    @property
    def summary(self) -> str:
        """What the route does: the first line of its handler."""
        return (self.handler.__doc__ or "").strip().split("\n")[0]

    @property
    def is_action(self) -> bool:
        """Whether the route changes something."""
        return self.method != "GET" and not self.verb.startswith("plan")

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key counts. Signing in and out changes nothing in the store, and has secrets."""
        return self.is_action and self.role is not None and not self.keyless


class Call:
    """One request of a signed-in person.

    ``is_page``: a browser signed in by a cookie sends it. ``signed`` is the sign-in, for limits. `retries` sets
    ``intent`` for a request with a key, ``new_id``, the id of a session that it creates, and ``message_key``.
    """

    def __init__(
        self, desk: Desk, access: Access, scope: Scope, receive: Receive, person: Person | None, body: Any = None,
        query: Any = None, is_page: bool = False, signed: str = "",
    ) -> None:  # fmt: skip
        self.desk = desk
        self.engine: Engine = desk.engine
        self.access = access
        self.scope = scope
        self.receive = receive
        self.body = body
        self.is_page = is_page
        self.signed = signed
        self._query = query
        self._person = person
        self.params: dict[str, str] = scope.get("path_params", {})
        self.intent: Intent | None = None
        self.new_id: str | None = None
        self.message_key: str | None = None

    @property
    def person(self) -> Person:
        """The signed-in person."""
        assert self._person is not None
        return self._person

    @property
    def by(self) -> str:
        """The name for the history. It is always that of the signed-in person."""
        return self.person.name

    @property
    def session_id(self) -> str:
        return self.params["session_id"]

    def header(self, name: str) -> str:
        """Return a header; empty if it was not sent."""
        return header(self.scope, name)

    def query(self, kind: type[S]) -> S:
        """Return the query of the address, which is decoded to the struct that the table of routes names."""
        assert isinstance(self._query, kind)
        return self._query

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, without a limit of its size."""
        async for chunk in chunks_of(self.receive, self.desk.limits.body_seconds):
            yield chunk


def header(scope: Scope, name: str) -> str:
    """Return a header of a request; empty if it was not sent. Several lines are joined by a comma."""
    return ", ".join(header_lines(scope, name))


def header_lines(scope: Scope, name: str) -> list[str]:
    """Return the lines of a header, in their order."""
    wanted = name.lower().encode()
    return [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == wanted]


COMPARE = "Compare it with GET /openapi.json."
"""What to do with a request that is not accepted."""

CORRECT = "Correct it, then send it again."
"""The same for people who may not read the description of the API."""


def query_of(scope: Scope, kind: type[S], advice: str = COMPARE) -> S:
    """Decode the query of a request. The values of a list are separated by commas.

    Raises a 400 for unknown names and wrong values.
    """
    try:
        pairs = parse_qsl(scope.get("query_string", b"").decode("ascii"), keep_blank_values=True, max_num_fields=50,
                          errors="strict")  # fmt: skip
    except ValueError:
        raise Problem(
            400, "The query of the address is malformed. Encode it as UTF-8, with at most 50 names."
        ) from None
    lists = {field.name for field in msgspec.structs.fields(kind) if "tuple" in str(field.type)}
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            given.setdefault(name, []).extend(value.split(","))
        elif name in given:
            raise Problem(400, f"The query names {name!r} twice. Send it once.")
        else:
            given[name] = value
    return decoded(lambda: msgspec.convert(given, kind, strict=False), "query", advice)


def decoded(decode: Callable[[], T], what: str, advice: str = COMPARE) -> T:
    """Return what ``decode`` returns. Raises a 400 with a sentence of ours if it does not fit."""
    try:
        return decode()
    except RecursionError:
        raise Problem(400, f"The {what} is nested too deeply. Send a flatter one.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = complaint(error)
        note = " The name of the signed-in person is recorded as 'by'." if "'by'" in why else ""
        raise Problem(400, f"The {what} is not accepted: {why}.{note} {advice}") from None


async def body_of(scope: Scope, receive: Receive, most: int, seconds: float) -> bytes:
    """Read the body of a request. Raises a 413 if it is larger than ``most``, and a 408 if it comes too slowly."""
    if (given := header(scope, "content-length")).isdecimal() and int(given) > most:
        raise too_large(most)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(seconds):  # for all of it: a byte now and then would keep the connection for days
            async for chunk in chunks_of(receive, seconds):
                size += len(chunk)
                if size > most:
                    raise too_large(most)
                parts.append(chunk)
    except TimeoutError:
        raise _too_slow(seconds) from None
    return b"".join(parts)


async def chunks_of(receive: Receive, seconds: float) -> AsyncIterator[bytes]:
    """Yield the body of a request. Raises a 408 if nothing comes for so many seconds."""
    more = True
    while more:
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise _too_slow(seconds) from None
        if message["type"] == "http.disconnect":
            raise Problem(400, "The connection ended before the body did. Send the request again.", CUT_OFF)
        more = message.get("more_body", False)
        if chunk := message.get("body", b""):
            yield chunk


def _too_slow(seconds: float) -> Problem:
    return Problem(408, f"The body did not come within {seconds:g} s. Send the request again.")


def too_large(most: int) -> Problem:
    """Return the refusal of a body that is too large."""
    return Problem(413, f"The body is larger than {most:,} bytes. Send less, or upload it as a file.", limit=most)


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send the status and the headers of a reply."""
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})


def disposition(filename: str) -> str:
    """Return the header that makes a browser save a file. The name is encoded, so it cannot add another header.

    >>> disposition('a "b".html')
    "attachment; filename*=UTF-8''a%20%22b%22.html"
    """
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
