"""The handlers that anyone may call: whether the server lives and is ready, and signing in."""

from __future__ import annotations

from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.openapi import openapi
from pausepoint.server.problems import Problem
from pausepoint.server.signin import address_of


async def live(call: Call) -> Reply:
    """Answer, which shows that the process runs."""
    return Reply(None, 204)


async def ready(call: Call) -> Reply:
    """Answer if the store can be read and written."""
    await call.engine.standing_pause()
    if call.engine.trouble is not None or call.engine.ending:
        raise Problem(503, "The server is not ready: it is shutting down, or its store cannot be written. Retry later.")
    return Reply(None, 204)


async def login(call: Call) -> Reply:
    """Trade a token for a cookie."""
    asked: bodies.Login = call.body
    signed = call.desk.signin.by_token(asked.token, address_of(call.scope))
    return Reply(
        documents.MeDocument.of(signed.person), 200, {"Set-Cookie": call.desk.signin.cookie(signed, call.scope)}
    )


async def logout(call: Call) -> Reply:
    """Delete the cookie."""
    return Reply(None, 204, {"Set-Cookie": call.desk.signin.no_cookie(call.scope)})


async def me(call: Call) -> Reply:
    """Return the signed-in person."""
    return Reply(documents.MeDocument.of(call.person))


async def schema(call: Call) -> Reply:
    """Return the description of this API."""
    return Reply(openapi(call.desk.routes, call.desk.base(call.scope)))
