"""The handlers of schedules. They concern all owners, so a person who sees one owner only may not use them."""

from __future__ import annotations

from typing import Any

from pausepoint.engine import store_documents
from pausepoint.errors import DefinitionError, UnknownSchedule, did_you_mean
from pausepoint.server import bodies
from pausepoint.server.calls import Call, Reply
from pausepoint.server.sessions import built

_OPTIONS = frozenset({"cron", "zone", "overlap", "catch_up", "owner", "tags", "by", "queue", "priority", "lane"})


async def index(call: Call) -> Reply:
    """List the schedules."""
    call.access.check_sees_all()
    return Reply(store_documents.schedules(await call.engine.schedules.list()))


async def show(call: Call) -> Reply:
    """Return a schedule."""
    return await _present(call)


async def put(call: Call) -> Reply:
    """Store a schedule of a workflow that this server knows, or replace the one with this name."""
    asked: bodies.Schedule = call.body
    call.access.check_sees_all()
    workflow = call.engine.workflows.get(asked.workflow)
    if workflow is None:
        near = did_you_mean(asked.workflow, call.engine.workflows)
        raise DefinitionError(f"This server does not know the workflow {asked.workflow!r}{near}")
    options: dict[str, Any] = {
        "cron": asked.cron, "zone": asked.zone, "overlap": asked.overlap, "catch_up": asked.catch_up,
        "owner": asked.owner, "tags": asked.tags, "by": call.by,
        "queue": asked.queue, "priority": asked.priority, "lane": asked.lane,
    }  # fmt: skip
    if _OPTIONS & asked.input.keys():
        await call.engine.schedule(call.params["name"], workflow, built(workflow.model, asked.input), **options)
    else:
        await call.engine.schedule(call.params["name"], workflow, **options, **asked.input)
    return await _present(call)


async def pause(call: Call) -> Reply:
    """Start no sessions of a schedule until it is resumed."""
    call.access.check_sees_all()
    await call.engine.schedules.pause(call.params["name"], by=call.by)
    return await _present(call)


async def resume(call: Call) -> Reply:
    """Let a schedule start sessions again, from its next time on."""
    call.access.check_sees_all()
    await call.engine.schedules.resume(call.params["name"])
    return await _present(call)


async def trigger(call: Call) -> Reply:
    """Start a session of a schedule now, in an engine that drives its workflow."""
    call.access.check_sees_all()
    session_id = await call.engine.schedules.trigger(call.params["name"], by=call.by)
    return await _present(call, session_id)


async def delete(call: Call) -> Reply:
    """Remove a schedule. Its sessions stay."""
    call.access.check_sees_all()
    await call.engine.schedules.remove(call.params["name"])
    return Reply(store_documents.ScheduleRemoved(call.params["name"]))


async def removed(call: Call) -> Reply:
    """Answer that a schedule was removed before."""
    return Reply(store_documents.ScheduleRemoved(call.params["name"]))


async def _present(call: Call, session_id: str | None = None) -> Reply:
    call.access.check_sees_all()
    name, infos = call.params["name"], await call.engine.schedules.list()
    for info in infos:
        if info.name == name:
            schedule = store_documents.ScheduleDocument.of(info)
            return Reply(store_documents.ScheduleChanged(schedule, session_id))
    known = [info.name for info in infos]
    raise UnknownSchedule(f"This store has no schedule {name!r:.80}{did_you_mean(name, known)}", name=name)
