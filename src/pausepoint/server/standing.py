"""The handlers of the pause of everything."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from pausepoint.model.views import SessionInfo
from pausepoint.server import bodies
from pausepoint.server.calls import Call, Reply
from pausepoint.server.documents import HeadDocument, StandingDocument, standing_pause


async def show(call: Call) -> Reply:
    """Return the pause of everything, with what still finishes; null if it is not in effect."""
    return Reply(await _document(call))


async def put(call: Call) -> Reply:
    """Pause everything until it is lifted. Twice is not an error."""
    body: bodies.Pause = call.body
    call.access.check_sees_all()
    infos = await call.engine.pause_all(reason=body.reason, by=call.by, mode=body.mode, freeze=body.freeze)
    await call.desk.hub.look_at_standing()  # the next request sees it
    return Reply(await _document(call, infos))


async def delete(call: Call) -> Reply:
    """Lift the pause of everything."""
    call.access.check_sees_all()
    infos = await call.engine.lift_pause(by=call.by)
    await call.desk.hub.look_at_standing()
    return Reply(await _document(call, infos))


async def again(call: Call) -> Reply:
    """Return the pause of everything after a request that has taken effect before, with sessions that are paused."""
    infos = await call.engine.sessions(status=["pausing", "paused"], limit=100)
    return Reply(await _document(call, infos))


async def _document(call: Call, infos: Iterable[SessionInfo] | None = None) -> StandingDocument:
    pause = standing_pause(await call.engine.standing_pause(), call.person)
    return StandingDocument(pause, UNSET if infos is None else [HeadDocument.of(info) for info in infos])
