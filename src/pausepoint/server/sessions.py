"""The handlers that list, start and read sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

from pausepoint.engine import documents as engine_documents
from pausepoint.engine import history_documents
from pausepoint.engine.conversation import conversation as read_conversation
from pausepoint.engine.recent import recent_events
from pausepoint.engine.spans import operation as read_operation
from pausepoint.engine.spans import operations as read_operations
from pausepoint.engine.spans import totals as read_totals
from pausepoint.errors import DefinitionError, StateRefused, UnknownSession, did_you_mean
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import Event
from pausepoint.model.views import SessionInfo
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem
from pausepoint.server.workflows import drivers

TREE = 500
"""The most sessions of a tree that are listed."""

# The options of `Engine.start`, which a field of the state may be named like.
_OPTIONS = frozenset([
    "session_id", "owner", "tags", "budget", "at_step", "paused", "reason", "by", "keep_for", "folder", "queue",
    "priority", "lane",
])  # fmt: skip


async def index(call: Call) -> Reply:
    """List sessions."""
    asked = call.query(bodies.Sessions)
    chosen: dict[str, Any] = {
        "workflow": asked.workflow, "owner": call.access.owner_of(asked.owner), "tag": asked.tag,
        "status": asked.status or None, "failed": asked.failed, "level": asked.level,
        "text": asked.text, "queue": asked.queue, "since": asked.since, "until": asked.until,
    }  # fmt: skip
    found = await call.engine.sessions(
        **chosen, prefix=asked.prefix, sort=asked.sort, reverse=asked.reverse, limit=asked.limit, after=asked.after
    )
    total = sum((await call.engine.tally(**chosen)).values()) if asked.count and asked.prefix is None else None
    return Reply(documents.heads(found, total))


async def start(call: Call) -> Reply:
    """Start a session of a workflow that this server knows."""
    asked: bodies.Start = call.body
    workflow = call.engine.workflows.get(asked.workflow)
    if workflow is None:
        near = did_you_mean(asked.workflow, call.engine.workflows)
        raise DefinitionError(f"This server does not know the workflow {asked.workflow!r}{near}")
    if asked.session_id is not None and call.person.owner is not None:
        await _check_free(call, asked.session_id)
    if (asked.queue, asked.priority, asked.lane, asked.folder) != (None, None, None, None):
        call.access.check_sees_all()  # a person of one owner may not move ahead of the others, nor use their folders
    paused = asked.paused or not call.desk.drives
    options: dict[str, Any] = {
        "session_id": asked.session_id or call.new_id, "owner": call.access.owner_of(asked.owner), "tags": asked.tags,
        "budget": asked.budget,
        "folder": None if asked.folder is None else folder_below(asked.folder),
        "paused": paused, "reason": asked.reason, "by": call.by,
        "queue": asked.queue, "priority": asked.priority, "lane": asked.lane,
    }  # fmt: skip
    if _OPTIONS & asked.input.keys():
        session = await call.engine.start(workflow, built(workflow.model, asked.input), **options)
    else:
        session = await call.engine.start(workflow, **options, **asked.input)
    if paused and not asked.paused:  # another engine drives it
        await call.engine.session(session.id).resume(by=call.by, here=False)
        return await handed_over(call, await session.info(), 201)
    return await headed(call, await session.info(), 201)


def folder_below(name: str) -> Path:
    """Return a folder below the one in which the server was started. A request must not name any other."""
    here = Path.cwd().resolve()
    try:
        found = (here / name).resolve()
    except (OSError, ValueError, RuntimeError):
        found = here
    if (
        Path(name).is_absolute()
        or here not in found.parents
        or any(part.startswith(".") for part in found.relative_to(here).parts)
    ):
        raise Problem(
            422,
            f"The folder {shortened(name)} is not below the folder in which the server was started. Name it relative to"
            " that, without '..' and without hidden folders.",
            "folder-outside", field="folder",
        )  # fmt: skip
    return found


async def _check_free(call: Call, session_id: str) -> None:
    """Raise a 409 if another owner has a session with this id, before its input is compared with the given one."""
    found = await call.engine.sessions(tree=session_id, limit=1)
    if any(each.owner != call.person.owner for each in found):
        raise Problem(409, f"The id {session_id!r} is taken. Choose another session_id.", "input-conflict")


def built(model: Any, given: dict[str, Any]) -> Any:
    """Return the input as a state, if a field is named like an option."""
    from pydantic import ValidationError

    for name in given.keys() - model.model_fields.keys():  # Pydantic would ignore it
        near = did_you_mean(name, model.model_fields)
        raise StateRefused(f"The state of the workflow has no field {name!r}{near}", field=name)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise StateRefused(f"{field}: {first['msg']}. Correct the value, then send it again.", field=field) from None


async def headed(call: Call, info: SessionInfo, status: int = 200) -> Reply:
    """Return a session's facts, with its mark as ETag."""
    headers = {"ETag": documents.etag(info)}
    if status == 201:
        headers["Location"] = f"{call.desk.base(call.scope)}/sessions/{info.session_id}"
    return Reply(documents.HeadDocument.of(info), status, headers)


async def handed_over(call: Call, info: SessionInfo, status: int = 200) -> Reply:
    """Return a session's facts, and which engines pick it up, because this server does not drive it."""
    reply = await headed(call, info, status)
    return reply._replace(document=documents.HandedOver.of(info, drivers=await drivers(call.engine, [info.workflow])))


async def show(call: Call) -> Reply:
    """Return a session: its facts, pauses, open questions, origin, and the description of its workflow."""
    info = await call.access.info(call.session_id)
    if call.person.role == "answerer":
        return await headed(call, info)
    mark = documents.etag(info)
    if mark in call.header("if-none-match"):
        return Reply(None, 304, {"ETag": mark})
    session = call.engine.session(info.session_id)
    origin = await session.origin()
    if origin is not None and not await _may_see(call, origin.session_id):
        origin = None
    page = documents.SessionPage.of(
        info,
        pauses=[engine_documents.PauseDocument.of(pause) for pause in await session.pauses()],
        questions=[documents.HttpQuestion.of(question) for question in await session.questions()],
        origin=None if origin is None else documents.OriginDocument.of(origin),
        description=await session.description(),
        agent=await _agent(call, info) if info.guest or info.tags else None,
    )
    return Reply(page, 200, {"ETag": mark})


async def _agent(call: Call, info: SessionInfo) -> documents.AgentNoteDocument:
    """Return what agents of other programs wait to do in a session, and what they have left running."""
    from pausepoint.gate import agent_note  # most servers have no agents

    return documents.AgentNoteDocument.of(await agent_note(call.engine, info))


async def _may_see(call: Call, session_id: str) -> bool:
    """Return whether the person may see a session, even if it was removed."""
    if call.person.owner is None:
        return True
    try:
        await call.access.info(session_id)
    except (UnknownSession, Problem):
        return False
    return True


async def checkpoints(call: Call) -> Reply:
    """List the checkpoints of a session, newest last."""
    asked, info = call.query(bodies.Checkpoints), await call.access.info(call.session_id)
    found = await call.engine.session(info.session_id).checkpoints(before=asked.before, limit=asked.limit)
    return Reply(history_documents.checkpoints(info.session_id, found))


async def spans(call: Call) -> Reply:
    """List the visits of a session with their operations, waits, retries and cost, oldest first."""
    asked, info = call.query(bodies.Spans), await call.access.info(call.session_id)
    if asked.before is not None and asked.at is not None:
        raise Problem(400, "A page of visits ends before a visit or begins with one. Send 'before' or 'at'.")
    found = await call.engine.session(info.session_id).spans(
        before=asked.before, at=checkpoint_of(asked.at), limit=asked.limit
    )
    return Reply(documents.spans(info.session_id, found))


async def totals(call: Call) -> Reply:
    """Add up a session: how often each step and operation ran, how long, how often it failed, and its cost."""
    asked, info = call.query(bodies.Totals), await call.access.info(call.session_id)
    return Reply(
        documents.totals(info.session_id, await read_totals(call.engine, info.session_id, before=asked.before))
    )


async def operations(call: Call) -> Reply:
    """List the operations of a session that have ended, with what they received and returned, oldest first."""
    asked, info = call.query(bodies.Operations), await call.access.info(call.session_id)
    rows = await read_operations(call.engine, info.session_id, before=asked.before, limit=asked.limit)
    return Reply(history_documents.operations(info.session_id, rows))


async def operation(call: Call) -> Reply:
    """Return one operation with its whole result."""
    info = await call.access.info(call.session_id)
    record = await read_operation(call.engine, info.session_id, call.params["id"])
    return Reply(history_documents.OperationDocument.of(record))


async def conversation(call: Call) -> Reply:
    """Read a session as a conversation: what models, tools and people said, oldest turn first."""
    asked, info = call.query(bodies.Conversation), await call.access.info(call.session_id)
    turns = await read_conversation(call.engine, info.session_id, before=asked.before, limit=asked.limit)
    return Reply(history_documents.conversation(info.session_id, turns))


async def events(call: Call) -> Reply:
    """List the events of a session after or before a cursor, oldest first."""
    query, info = call.query(bodies.Events), await call.access.info(call.session_id)
    if query.before is not None:
        if query.after:
            raise Problem(400, "A page of events begins after a cursor or ends before one. Send 'after' or 'before'.")
        history = await recent_events(call.engine, info.session_id, before=query.before, limit=query.limit)
        last = history[-1].cursor if history else query.before
        return Reply(documents.EventPage.of(history_documents.history(info.session_id, history), next=last))
    history = list[Event]()
    reading = cast(AsyncGenerator[Event, None], call.engine.session(info.session_id).events(query.after))
    try:
        async for event in reading:
            history.append(event)
            if len(history) >= query.limit:
                break
    finally:
        await reading.aclose()
    last = history[-1].cursor if history else query.after
    return Reply(documents.EventPage.of(history_documents.history(info.session_id, history), next=last))


async def state(call: Call) -> Reply:
    """Return the state of a session, now or at a checkpoint."""
    asked, info = call.query(bodies.At), await call.access.info(call.session_id)
    found = await call.engine.session(info.session_id).stored(checkpoint_of(asked.at))
    base = f"{call.desk.base(call.scope)}/sessions/{info.session_id}"
    return Reply(documents.state(info.session_id, found.seq, found.values, base, asked.at))


async def field(call: Call) -> Reply:
    """Return one field of the state."""
    query, info, name = call.query(bodies.At), await call.access.info(call.session_id), call.params["field"]
    state = await call.engine.session(info.session_id).stored(checkpoint_of(query.at))
    if name not in state.values:
        raise Problem(404, f"The state has no field {name!r}{did_you_mean(name, state.values)}", "unknown-field")
    return Reply(documents.FieldDocument(info.session_id, state.seq, name, state.values[name]))


async def diff(call: Call) -> Reply:
    """Compare the state at two checkpoints, also of two sessions."""
    query, info = call.query(bodies.Compared), await call.access.info(call.session_id)
    if query.a is None and query.other is None:
        raise Problem(400, "There is nothing to compare with. Send 'a', a checkpoint, or 'other', a session.")
    other = None if query.other is None else (await call.access.info(query.other)).session_id
    session = call.engine.session(info.session_id)
    return Reply(await session.diff(checkpoint_of(query.a), checkpoint_of(query.b), other=other))


def checkpoint_of(text: str | None) -> int | str | None:
    """Return a checkpoint as the engine takes it: a number, or the name of a visit."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 16
    return int(text) if is_number else text  # type: ignore[arg-type]


async def children(call: Call) -> Reply:
    """List the children of a session."""
    info = await call.access.info(call.session_id)
    return Reply(documents.heads(await call.engine.session(info.session_id).children()))


async def tree(call: Call) -> Reply:
    """List a session with all its descendants."""
    info = await call.access.info(call.session_id)
    return Reply(documents.heads(await call.engine.sessions(tree=info.session_id, limit=TREE)))
