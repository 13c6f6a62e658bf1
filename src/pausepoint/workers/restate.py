"""A dispatcher on Restate: decides which process drives a session, and when. The sessions stay in Pausepoint's store.

One virtual object per session, without state of its own. Its handler ``drive`` picks up the session, waits until it
parks, and sends itself the next ``drive``: when a timer is due, or soon if another process holds the session. A child
is driven with the root of its tree. If the worker dies, Restate calls ``drive`` again, in any worker. The store's fence
decides which process may write, so a call that is repeated or late does no harm.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from pausepoint.errors import AlreadyRunning, HoldLost, LimitReached, SessionEnded, UnknownSession, VerbRefused
from pausepoint.model.sessions import Status
from pausepoint.name import NAME

if TYPE_CHECKING:
    from restate import VirtualObject

    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import Listing, SessionInfo

MISSING = (
    f"The dispatcher needs the package restate-sdk, which is not installed. Install it with pip install"
    f" '{NAME}[restate]'."
)

HELD = 2.0
"""Seconds until a session that another process holds is tried again: a killed one may hold it until its lease ends."""

PATIENCE = 300.0
"""The most seconds that one call waits for a session to park. The next call continues to wait."""

STALLED = timedelta(seconds=2 * PATIENCE)
"""When Restate asks a call to stop: later than the call ends by itself."""

EARLY = 1.0
"""Seconds that a call for a timer may be early, because times are rounded."""

AT_WORK = (Status.READY, Status.RUNNING)
ALIVE = (*AT_WORK, Status.SLEEPING, Status.WAITING)


class Next(msgspec.Struct, frozen=True):
    """What follows a call of ``drive``. Restate stores it.

    - ``session_id``: the session to drive next.
    - ``at``: when, in seconds since 1970. None means when a verb has reached the session.
    - ``key``: names the next call. Restate makes one call for a key, however many calls ask for it.
    """

    session_id: str
    at: float | None = None
    key: str = ""


def dispatcher(engine: Engine, *, name: str = NAME) -> VirtualObject:
    """Return the virtual object that drives sessions in this engine. Serve it with ``restate.app([…])``.

    Open the engine with ``drives="asked"`` and with the workflows of the sessions. Call the object's handler ``drive``
    with the id of a session as the key, after each verb that lets the session continue: start, resume, answer, send.

    ``name`` is the name of the object in Restate. Raises `ImportError` if restate-sdk is not installed.
    """
    try:
        import restate
    except ImportError as error:
        raise ImportError(MISSING) from error
    found = restate.VirtualObject(
        name, f"Drives the sessions of {NAME}. The key is the id of a session.",
        inactivity_timeout=STALLED, abort_timeout=STALLED,
        # Restate shows an error and repeats the call without end: another worker may have the workflow.
        invocation_retry_policy=restate.InvocationRetryPolicy(timedelta(seconds=0.1), 2.0, timedelta(seconds=10)),
    )  # fmt: skip

    async def drive(ctx: restate.ObjectContext) -> None:
        # By the clock of the server, a call for a timer is never early. By that of this worker it may be, and Restate
        # would not make the next call for the same timer.
        now = await ctx.time()

        async def once() -> Next:
            try:
                return await drive_once(engine, ctx.key(), now)
            except UnknownSession as error:
                raise restate.TerminalError(str(error), 404) from error

        after = await ctx.run_typed("drive", once, restate.RunOptions(type_hint=Next))
        if after.at is not None:
            delay = timedelta(seconds=max(after.at - await ctx.time(), 0.0))
            ctx.object_send(handler, after.session_id, None, send_delay=delay, idempotency_key=after.key)

    # The decorator looks at the annotations, which are names of this function.
    drive.__annotations__ = {"ctx": restate.ObjectContext, "return": None}
    handler = found.handler()(drive)
    return found


async def drive_once(engine: Engine, session_id: str, now: float | None = None) -> Next:
    """Drive a session until it parks, at most for `PATIENCE`, and return what follows.

    A session that only waits, or sleeps beyond ``now``, is left as it is. ``now`` is in seconds since 1970.
    """
    info = await engine.session(session_id).info()
    if info.parent_id is not None:
        return Next(info.parent_id, time.time(), f"child {session_id} {info.fence} {info.signals}")
    if session_id not in engine.running:
        if await _rests(engine, session_id, time.time() if now is None else now):
            return await _next(engine, session_id)
        try:
            await engine.session(session_id).take_up(by=NAME)
        except LimitReached:
            return _soon(session_id)
        except (VerbRefused, SessionEnded):  # only a verb lets it continue
            return Next(session_id)
        except (AlreadyRunning, HoldLost):
            return _soon(session_id)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await _parked(engine, session_id)
    return await _next(engine, session_id)


async def _rests(engine: Engine, session_id: str, now: float) -> bool:
    """Return whether a session and its children wait for messages or later timers."""
    tree = await _tree(engine, session_id)
    if not any(each.session_id == session_id for each in tree) or any(each.status in AT_WORK for each in tree):
        return False
    return all(each.wakes_at is None or each.wakes_at.timestamp() > now + EARLY for each in tree)


async def _parked(engine: Engine, session_id: str) -> None:
    """Wait until this engine drives no session of the tree."""
    while True:
        tree = {each.session_id for each in await _tree(engine, session_id)}
        busy = tree.intersection(engine.running)
        if not busy:
            return
        await engine.idle(*busy)


async def _next(engine: Engine, session_id: str) -> Next:
    tree = await _tree(engine, session_id)
    root = next((each for each in tree if each.session_id == session_id), None)
    if root is None:  # it has ended, has failed or is paused
        return Next(session_id)
    if any(each.status in AT_WORK for each in tree):
        return _soon(session_id)
    wakes_at = min((each.wakes_at for each in tree if each.wakes_at is not None), default=None)
    if wakes_at is None:  # it waits for a message or an answer
        return Next(session_id)
    at = wakes_at.timestamp()
    return Next(session_id, at, f"wake {session_id} {root.fence} {at}")


async def _tree(engine: Engine, session_id: str) -> Listing[SessionInfo]:
    return await engine.sessions(tree=session_id, status=ALIVE)


def _soon(session_id: str) -> Next:
    at = (time.time() // HELD + 2) * HELD  # two steps ahead, because the clocks of worker and server may differ
    return Next(session_id, at, f"soon {session_id} {at}")
