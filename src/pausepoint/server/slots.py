"""The handlers of limits. They concern all owners, so a person who sees one owner only may not use them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pausepoint.engine import store_documents
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem


async def index(call: Call) -> Reply:
    """List the limits of queues, workflows and lanes, and how many sessions are at work."""
    call.access.check_sees_all()
    return Reply(store_documents.limits(await call.engine.limits.list()))


async def queues(call: Call) -> Reply:
    """List the queues that have sessions ready or at work, or a limit."""
    call.access.check_sees_all()
    return Reply(documents.QueuesDocument(await call.engine.limits.queues()))


async def put(call: Call) -> Reply:
    """Set or replace a limit of a queue, a workflow or a lane. `most` null lifts the limit of the code."""
    asked: bodies.SetLimit = call.body
    call.access.check_sees_all()
    per = None if asked.per_seconds is None else timedelta(seconds=asked.per_seconds)
    info = await call.engine.limit(**_target(call), most=asked.most, per=per, by=asked.by)
    return Reply(store_documents.LimitChanged(store_documents.limit(info)))


async def delete(call: Call) -> Reply:
    """Remove the limits of a queue, a workflow or a lane. A limit of the code counts again."""
    reply = await removed(call)
    if not reply.document.removed:
        scope, name = call.params["scope"], call.params["name"]
        why = f"No limit of {scope} {name!r:.80} was set. List the limits with GET /limits."
        raise Problem(404, why, "unknown-limit")
    return reply


async def removed(call: Call) -> Reply:
    """Remove the limits again, if they were removed before."""
    call.access.check_sees_all()
    return Reply(store_documents.LimitsRemoved(await call.engine.limits.remove(**_target(call))))


def _target(call: Call) -> dict[str, Any]:
    scope, name = call.params["scope"], call.params["name"]
    if scope not in ("queue", "workflow", "lane"):
        raise ValueError(f"There is no limit of a {scope!r:.40}. Use queue, workflow or lane.")
    if not name:
        raise ValueError(f"The address names no {scope}. Add its name.")
    return {scope: name}
