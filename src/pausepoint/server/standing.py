"""The handlers of the pause of everything."""

from __future__ import annotations

from pausepoint.server import bodies
from pausepoint.server.calls import Call, Reply
from pausepoint.server.documents import heads, standing_pause


async def show(call: Call) -> Reply:
    """Return the pause of everything, with what still finishes; null if it is not in effect."""
    return Reply(await _document(call))


async def put(call: Call) -> Reply:
    """Pause everything until it is lifted. Twice is not an error."""
    asked: bodies.Pause = call.body
    call.access.check_sees_all()
    found = await call.engine.pause_all(reason=asked.reason, by=call.by, mode=asked.mode, freeze=asked.freeze)
    await call.desk.hub.look_at_standing()  # the next request sees it
    return Reply(await _document(call) | {"sessions": heads(found)["sessions"]})


async def delete(call: Call) -> Reply:
    """Lift the pause of everything."""
    call.access.check_sees_all()
    found = await call.engine.lift_pause(by=call.by)
    await call.desk.hub.look_at_standing()
    return Reply(await _document(call) | {"sessions": heads(found)["sessions"]})


async def again(call: Call) -> Reply:
    """Return the pause of everything after a request that has taken effect before, with sessions that are paused."""
    found = await call.engine.sessions(status=["pausing", "paused"], limit=100)
    return Reply(await _document(call) | {"sessions": heads(found)["sessions"]})


async def _document(call: Call) -> dict[str, object]:
    return {"standing_pause": standing_pause(await call.engine.standing_pause(), call.person)}
