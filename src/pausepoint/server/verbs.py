"""The handlers of the verbs over one session, and of bulk verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from pausepoint.engine import documents as engine_documents
from pausepoint.engine import store_documents
from pausepoint.errors import PausepointError, SessionChanged, did_you_mean, error_text
from pausepoint.model.bulk import BulkItem, BulkReport
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import Status
from pausepoint.model.views import Checkpoint, SessionInfo
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem, problem_of
from pausepoint.server.sessions import handed_over, headed
from pausepoint.server.workflows import drivers

if TYPE_CHECKING:
    from pausepoint.engine.plans import Plan


async def pause(call: Call) -> Reply:
    """Pause a session and its children."""
    asked: bodies.Pause = call.body
    info = await call.access.info(call.session_id)
    await call.engine.session(info.session_id).pause(
        reason=asked.reason, by=call.by, mode=asked.mode, freeze=asked.freeze
    )
    now = await call.engine.session(info.session_id).info()
    if now.status in (Status.COMPLETED, Status.CANCELLED):
        how = "has already completed" if now.status is Status.COMPLETED else "was already cancelled"
        raise Problem(
            410, f"Session {now.session_id!r} {how}, so nothing was paused. Read it with GET"
            f" /sessions/{now.session_id}.", "session-ended", session_id=now.session_id,
        )  # fmt: skip
    return await headed(call, now)


async def resume(call: Call) -> Reply:
    """Resume a session: here if this server drives its workflow, else in another engine."""
    asked: bodies.Resume = call.body
    info = await call.access.info(call.session_id)
    here = call.desk.drives and info.workflow in call.engine.workflows
    if here:
        _check_steps(call, info.workflow, *asked.rerun, *(() if asked.pause_after is None else (asked.pause_after,)))
    if here or info.guest:
        await call.engine.session(info.session_id).resume(
            by=call.by, steal=asked.steal, budget=asked.budget, wake=asked.wake, code=asked.code,
            pause_after=asked.pause_after, edits=asked.edits, rerun=asked.rerun,
        )  # fmt: skip
        return await _after(call)
    if asked.steal or asked.wake or asked.code or asked.pause_after or asked.edits or asked.rerun:
        raise Problem(
            409,
            f"This server does not drive workflow {info.workflow!r}, so it can only close the pauses of session"
            f" {info.session_id!r}. Leave out the other options, or ask a server that drives it.",
            "call-refused",
        )
    await call.engine.session(info.session_id).resume(by=call.by, budget=asked.budget, here=False)
    return await handed_over(call, await call.engine.session(call.session_id).info())


def _check_steps(call: Call, workflow: str, *names: str) -> None:
    """Raise a 422 unless a workflow that this server drives has these steps."""
    known = [each.name for each in call.engine.workflows[workflow].steps]
    for name in names:
        if name not in known:
            raise _unknown_step(422, workflow, name, known)


def _unknown_step(status: int, workflow: str, name: str, known: Sequence[str]) -> Problem:
    text = f"Workflow {workflow!r} has no step {shortened(name)}{did_you_mean(name, known)}"
    return Problem(status, text, "unknown-step", workflow=workflow)


async def cancel(call: Call) -> Reply:
    """Cancel a session and its children."""
    info = await call.access.info(call.session_id)
    await call.engine.session(info.session_id).cancel(reason=call.body.reason, by=call.by)
    return await _after(call)


async def send(call: Call) -> Reply:
    """Send a message to a session."""
    asked: bodies.Message = call.body
    info = await call.access.info(call.session_id)
    await call.engine.session(info.session_id).send(
        asked.value, key=asked.key or call.message_key, by=call.by, channel="http", seen=asked.seen
    )
    return await _after(call)


async def edit(call: Call) -> Reply:
    """Change the state of a session, if it is still as the person saw it."""
    asked: bodies.Edit = call.body
    _check_fields(asked.fields)

    async def apply(info: SessionInfo) -> None:
        await call.engine.session(info.session_id).edit(
            asked.fields, by=call.by, reason=asked.reason, based_on=info.seq
        )

    return await _conditional(call, apply)


def _check_fields(fields: bodies.Fields) -> None:
    if not fields:
        raise Problem(400, "The body names no field to change. Send at least one in 'fields'.")


async def ask_again(call: Call) -> Reply:
    """Ask a question again that was declined or got no valid answer. Finished operations are kept."""
    asked: bodies.AskAgain = call.body
    info = await call.access.info(call.session_id)
    await call.engine.session(info.session_id).ask_again(asked.question_id, by=call.by, reason=asked.reason)
    return await _after(call)


async def rewind(call: Call) -> Reply:
    """Rewind a session, if it is still as the person saw it."""
    asked: bodies.Rewind = call.body
    place = _place_of(asked)

    async def apply(info: SessionInfo) -> None:
        await call.engine.session(info.session_id).rewind(
            changes=asked.changes, by=call.by, reason=asked.reason, based_on=info.seq, **place
        )

    return await _conditional(call, apply)


def _place_of(asked: bodies.Rewind | bodies.Planned) -> dict[str, Any]:
    """Return where a rewind goes, as arguments of the verb."""
    if (asked.to is None) == (asked.to_operation is None):
        raise Problem(400, "A rewind goes to one place. Send 'to', a visit, or 'to_operation', an operation.")
    place = {"to": asked.to, "to_operation": asked.to_operation, "reuse": asked.reuse}
    if asked.result is UNSET:
        return place
    if asked.to_operation is None:
        raise Problem(400, "A 'result' belongs to an operation. Send 'to_operation', too.")
    return place | {"result": asked.result}


async def _conditional(call: Call, apply: Callable[[SessionInfo], Awaitable[None]]) -> Reply:
    """Apply a change if If-Match is the present mark of the session. Otherwise answer with the present facts."""
    info = await call.access.info(call.session_id)
    wanted = call.header("if-match")
    if not wanted:
        raise Problem(
            428,
            "The header If-Match is missing. Send the ETag of the session as you have read it, so that you change"
            " nothing that you have not seen.",
        )
    if wanted != documents.etag(info):
        raise _changed(info)
    try:
        await apply(info)
    except SessionChanged:  # between the check above and the commit
        raise _changed(await call.access.info(call.session_id)) from None
    return await _after(call)


def _changed(info: SessionInfo) -> Problem:
    return Problem(
        412,
        f"Session {info.session_id!r} has changed since you read it. Nothing was written. Compare it with 'present',"
        " then send the change again with its ETag.",
        headers={"ETag": documents.etag(info)}, present=documents.HeadDocument.of(info),
    )  # fmt: skip


async def fork(call: Call) -> Reply:
    """Create a session from another one."""
    asked: bodies.Fork = call.body
    info = await call.access.info(call.session_id)
    paused = asked.paused or not call.desk.drives
    forked = await call.engine.session(info.session_id).fork(
        asked.at, asked.changes, at_operation=_operation_of(asked), session_id=asked.session_id or call.new_id,
        reuse=asked.reuse, owner=call.person.owner, paused=paused, reason=asked.reason, by=call.by,
    )  # fmt: skip
    if paused and not asked.paused:  # another engine drives it
        await call.engine.session(forked.id).resume(by=call.by, here=False)
        return await handed_over(call, await forked.info(), 201)
    return await headed(call, await forked.info(), 201)


def _operation_of(asked: bodies.Fork | bodies.Planned) -> int | str | None:
    if asked.at is not None and asked.at_operation is not None:
        raise Problem(400, "A fork starts at one place. Send 'at', a visit, or 'at_operation', an operation.")
    return asked.at_operation


async def plan(call: Call) -> Reply:
    """Return what a resume would do. Changes nothing."""
    asked, info = call.query(bodies.Rerun), await call.access.info(call.session_id)
    return Reply((await call.engine.session(info.session_id).plan(rerun=asked.rerun)).to_json())


async def plan_verb(call: Call) -> Reply:
    """Return what a verb would do. Changes nothing."""
    asked: bodies.Planned = call.body
    info = await call.access.info(call.session_id)
    return Reply((await _planned(call, info.session_id, asked)).to_json())


async def _planned(call: Call, session_id: str, asked: bodies.Planned) -> Plan:
    if asked.verb == "resume":
        return await call.engine.session(session_id).plan(rerun=asked.rerun, wake=asked.wake)
    if asked.verb == "fork":
        return await call.engine.session(session_id).plan_fork(
            asked.at, asked.changes, at_operation=_operation_of(asked), reuse=asked.reuse
        )
    if asked.verb == "edit":
        _check_fields(asked.fields)
        return await call.engine.session(session_id).plan_edit(asked.fields)
    return await call.engine.session(session_id).plan_rewind(
        changes=asked.changes, rerun=asked.rerun, **_place_of(asked)
    )


async def why(call: Call) -> Reply:
    """Explain why a resume would run a step, or would not."""
    info, step = await call.access.info(call.session_id), call.params["step"]
    found = await call.engine.session(info.session_id).plan()
    known = [each.step for each in found]
    if step not in known:
        raise _unknown_step(404, info.workflow, step, known)
    return Reply(engine_documents.why(found, step, await _last_visit(call, info.session_id, step)))


async def _last_visit(call: Call, session_id: str, step: str) -> Checkpoint | None:
    found = await call.engine.session(session_id).checkpoints(limit=None)
    return next((each for each in reversed(found) if each.step == step and not each.left_behind), None)


async def remove(call: Call) -> Reply:
    """Delete a session and its children permanently."""
    info = await call.access.info(call.session_id)
    stone = await call.engine.session(info.session_id).remove(by=call.by, reason=call.body.reason)
    return Reply(documents.tombstone(stone))


async def redact(call: Call) -> Reply:
    """Remove content from a session permanently."""
    asked: bodies.Redact = call.body
    info = await call.access.info(call.session_id)
    _check_one_thing(asked)
    report = await call.engine.session(info.session_id).redact(
        field=asked.field, seq=asked.seq, signal=asked.signal, event=asked.event, file=asked.file,
        drawer=asked.drawer, by=call.by, reason=asked.reason,
    )  # fmt: skip
    return Reply(store_documents.redaction(info.session_id, report))


def _check_one_thing(asked: bodies.Redact) -> None:
    given = [asked.field, asked.seq, asked.signal, asked.event, asked.file, asked.drawer]
    if len([each for each in given if each is not None]) != 1:
        raise Problem(
            400, "A redaction removes one thing. Send one of 'field', 'seq', 'signal', 'event', 'file' and 'drawer'."
        )


async def _after(call: Call) -> Reply:
    """Return the facts of the session after a verb."""
    return await headed(call, await call.engine.session(call.session_id).info())


# bulk


async def bulk(call: Call) -> Reply:
    """Apply a verb to many sessions. One that refuses does not stop the others."""
    asked: bodies.Bulk = call.body
    if bool(asked.ids) == (asked.filter is not None):
        raise Problem(400, "A bulk verb needs either 'ids' or 'filter'. Send one of them.", "ids-or-filter")
    which, refused = await _named(call, asked.ids) if asked.ids else (_filtered(call, asked.filter), [])
    report = await _applied(call, asked, which)
    done, skipped = (store_documents.bulk_items(items) for items in (report.done, report.skipped))
    refused += [_refusal(call, each) for each in report.failed]
    found = [each.workflow for each in report.done] if asked.verb == "resume" else []
    driven = await drivers(call.engine, found) if found else []
    return Reply(documents.BulkResultDocument(asked.verb, asked.dry_run, done, skipped, refused, driven))


def _refusal(call: Call, item: BulkItem) -> documents.RefusalDocument:
    """Return the problem of one session that a bulk verb could not treat."""
    if item.error is None:
        text = f"Session {item.session_id!r} was resumed and has failed again."
        advice = f"Read it with GET /sessions/{item.session_id}."
        problem = Problem(409, f"{text} {advice}", "session-failed", session_id=item.session_id)
    else:
        problem = problem_of(item.error)
        problem.detail = item.reason.removesuffix(error_text(item.error)) + problem.detail  # such as: it is paused
    return documents.RefusalDocument(item.session_id, problem.document(call.scope["path"]))


async def _named(call: Call, ids: Sequence[str]) -> tuple[dict[str, Any], list[documents.RefusalDocument]]:
    """Return the sessions that the person may see, and a problem for each other one."""
    seen, refused = list[str](), list[documents.RefusalDocument]()
    for session_id in dict.fromkeys(ids):
        try:
            seen.append((await call.access.info(session_id)).session_id)
        except (PausepointError, Problem) as error:
            problem = problem_of(error).document(call.scope["path"])
            refused.append(documents.RefusalDocument(session_id, problem))
    return {"ids": seen}, refused


def _filtered(call: Call, asked: bodies.Which | None) -> dict[str, Any]:
    assert asked is not None
    which: dict[str, Any] = {
        "status": asked.status or None, "failed": asked.failed, "workflow": asked.workflow,
        "owner": call.access.owner_of(asked.owner), "tag": asked.tag, "queue": asked.queue,
        "since": asked.since, "until": asked.until,
    }  # fmt: skip
    if all(value is None for value in which.values()):
        raise Problem(
            400, "The filter of a bulk verb is empty, so it names all sessions. Send at least one condition.",
            "empty-filter",
        )  # fmt: skip
    return which


async def _applied(call: Call, asked: bodies.Bulk, which: dict[str, Any]) -> BulkReport:
    if which == {"ids": []}:
        return BulkReport(asked.verb, asked.dry_run)
    sessions = call.engine.select(**which)
    if asked.verb == "pause":
        return await sessions.pause(asked.reason, by=call.by, dry_run=asked.dry_run)
    if asked.verb == "cancel":
        return await sessions.cancel(asked.reason, by=call.by, dry_run=asked.dry_run)
    # driven by any engine: the answer must not wait until all of them have stopped
    return await sessions.resume(by=call.by, here=False, dry_run=asked.dry_run)
