"""The JSON documents that ``--json`` prints: the stable shapes of sessions, checkpoints, events and pauses.

`schema.json` describes them, and docs/cli.md shows them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pausepoint.clock import to_datetime

if TYPE_CHECKING:
    from pausepoint.artifacts.status import ArtifactState
    from pausepoint.engine.bundle import Bundle
    from pausepoint.engine.copies import Move
    from pausepoint.engine.plans import Plan
    from pausepoint.engine.retention import CleanUp, Redaction
    from pausepoint.engine.verify import Verification
    from pausepoint.model.bulk import BulkItem, BulkReport, BulkResult
    from pausepoint.model.descriptions import Description
    from pausepoint.model.questions import Question, Receipt
    from pausepoint.model.schedules import ScheduleInfo
    from pausepoint.model.sessions import Event, Failure, Pause
    from pausepoint.model.stores import Holder
    from pausepoint.model.streams import StreamItem
    from pausepoint.model.views import (
        Checkpoint,
        Health,
        LimitInfo,
        Listing,
        Outcome,
        SessionInfo,
        StandingPause,
        StoredState,
    )


def session(info: SessionInfo) -> dict[str, Any]:
    """Return a session without its state."""
    return {
        "session_id": info.session_id,
        "workflow": info.workflow,
        "version": info.version,
        "status": info.status.value,
        "step": info.step,
        "visit": info.visit,
        "held_by_guard": info.held_by_guard,
        "guest": info.guest,
        "owner": info.owner,
        "tags": list(info.tags),
        "created_at": moment(info.created_at),
        "updated_at": moment(info.updated_at),
        "pause_requested": info.pause_requested,
        "cancel_requested": info.cancel_requested,
        "holder": info.holder,
        "failure": None if info.failure is None else failure(info.failure),
        "spent_usd": info.spent_usd,
        "spent_tokens": info.spent_tokens,
        "spent_operations": info.spent_operations,
        "budget_usd": info.budget_usd,
        "budget_tokens": info.budget_tokens,
        "budget_operations": info.budget_operations,
        "progress": None if info.progress is None else {"done": info.progress[0], "total": info.progress[1]},
        "waiting": list(info.waiting),
        "wakes_at": moment(info.wakes_at),
        "parent_id": info.parent_id,
        "pause": None if info.pause is None else pause(info.pause),
        "queue": info.queue,
        "priority": info.priority,
        "lane": info.lane,
        "waits_for_slot": info.waits_for_slot,
    }


def failure(found: Failure) -> dict[str, Any]:
    """Return the error that failed a session."""
    return {
        "step": found.step,
        "type": found.type,
        "message": found.message,
        "attempts": found.attempts,
        "traceback": found.traceback,
    }


def pause(found: Pause) -> dict[str, Any]:
    """Return a pause: why a session does not run."""
    return {
        "kind": found.kind,
        "reason": found.reason,
        "by": found.by,
        "created_at": moment(to_datetime(found.created_at)),
        "step": found.step,
        "mode": found.mode,
        "freeze": found.freeze,
        "standing": found.standing,
    }


def standing_pause(found: StandingPause | None) -> dict[str, Any] | None:
    """Return the pause of everything, and how it took effect."""
    if found is None:
        return None
    return pause(found) | {
        "asked": found.asked,
        "stopped": found.stopped,
        "finishing": [
            {
                "session_id": each.session_id,
                "step": each.step,
                "operation": each.operation,
                "since": moment(each.since),
            }
            for each in found.finishing
        ],
        "longest_seconds": None if found.longest is None else found.longest.total_seconds(),
    }


def question(found: Question, answer: str) -> dict[str, Any]:
    """Return a question: its record, the details a front end needs, and the command that answers it."""
    return found.record() | {
        "kind": found.kind,
        "key": found.key,
        "version": found.version,
        "digest": found.digest,
        "answer_schema": found.answer_schema,
        "choices": found.choices,
        "complaint": found.complaint,
        "default": found.default,
        "payload": found.payload,
        "on_expiry": found.on_expiry,
        "instead_of": found.instead_of,
        "owner": found.owner,
        "failure": found.failure,
        "answer": answer,
    }


def inbox(found: Sequence[dict[str, Any]], total: int, broken: Any, next: str | None = None) -> dict[str, Any]:
    """Return the result of ``inbox``: questions, the number of all matches, and unreadable questions.

    ``next`` is the cursor of the next page.
    """
    return {"questions": list(found), "total": total, "next": next, "damaged": [damaged(each) for each in broken]}


def answered(found: Receipt, info: SessionInfo, resume: str) -> dict[str, Any]:
    """Return the result of ``answer``: the receipt, the session, and the command that resumes it."""
    return {
        "question_id": found.question_id,
        "key": found.key,
        "version": found.version,
        "by": found.by,
        "channel": found.channel,
        "answered_at": moment(found.answered_at),
        "session": session(info),
        "resume": resume,
    }


def outcome(
    found: Outcome[Any], info: SessionInfo, resume: str | None = None, questions: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the outcome of a session that ran here. ``resume`` is the command that resumes it; None if it completed.

    ``state`` is None if the stored state does not fit the present code.
    """
    from pausepoint.errors import StateRefused

    try:
        content = state(found.state)
    except StateRefused:
        content = None
    return session(info) | {
        "pauses": [pause(each) for each in found.pauses],
        "skipped_visits": found.skipped_visits,
        "saved_seconds": found.saved_time.total_seconds(),
        "saved_usd": found.saved_usd,
        "questions": list(questions),
        "state": content,
        "resume": resume,
    }


def stopped(info: SessionInfo, resume: str) -> dict[str, Any]:
    """Return the result of ``run`` or ``resume`` if the program ends before the session does."""
    return session(info) | {"resume": resume}


def detached(session_id: str, process: int, log: str, watch: str) -> dict[str, Any]:
    """Return the result of ``--detach``: the process that drives the session, its log, and how to follow it."""
    return {"session_id": session_id, "process": process, "log": log, "watch": watch}


def candidates(found: Sequence[SessionInfo]) -> dict[str, Any]:
    """Return the result of ``resume`` if there is more than one session that it could resume."""
    return {"candidates": [session(each) for each in found]}


def log_line(at: datetime, level: str, session_id: str, step: str, text: str) -> dict[str, Any]:
    """Return one line of a worker's log."""
    return {"logged_at": moment(at), "level": level, "session_id": session_id, "step": step, "text": text}


def bulk(report: BulkReport, left: int, again: str | None) -> dict[str, Any]:
    """Return the result of a bulk verb. ``left`` sessions were not reached; the command ``again`` continues."""
    return {
        "verb": report.verb,
        "dry_run": report.dry_run,
        "done": [bulk_item(each) for each in report.done],
        "skipped": [bulk_item(each) for each in report.skipped],
        "failed": [bulk_item(each) for each in report.failed],
        "left": left,
        "unattended": list(report.unattended),
        "continue": again,
    }


def bulk_item(item: BulkItem, result: BulkResult | None = None) -> dict[str, Any]:
    """Return one session of a bulk verb. ``result`` is given if the item is a line of its own."""
    found = {
        "session_id": item.session_id,
        "workflow": item.workflow,
        "status": None if item.status is None else item.status.value,
        "reason": item.reason,
    }
    return found if result is None else {"result": result} | found


def worked(driven: Sequence[SessionInfo]) -> dict[str, Any]:
    """Return the result of ``worker --once``: the sessions it drove, as they are afterwards."""
    return {"sessions": [session(each) for each in driven]}


def schedule(info: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule."""
    from msgspec.structs import asdict  # here, because the help of commands does not need it

    times = ("created_at", "next_at", "triggered_at", "paused_at", "last_at")
    return asdict(info) | {name: moment(getattr(info, name)) for name in times} | {"tags": list(info.tags)}


def schedules(found: Listing[ScheduleInfo]) -> dict[str, Any]:
    """Return all schedules. ``damaged`` are those that cannot be read."""
    broken = [{"name": each.fields["name"], "message": str(each)} for each in found.damaged]
    return {"schedules": [schedule(each) for each in found], "damaged": broken}


def schedule_changed(info: ScheduleInfo, session_id: str | None = None) -> dict[str, Any]:
    """Return a schedule after a change, and the session that a trigger starts."""
    return {"schedule": schedule(info), "session_id": session_id}


def limit(info: LimitInfo) -> dict[str, Any]:
    """Return a limit of the sessions at work."""
    return {
        "scope": info.scope,
        "name": info.name,
        "most": info.most,
        "per_seconds": None if info.per is None else info.per.total_seconds(),
        "by": info.by,
        "declared": info.declared,
        "counts": info.counts,
        "at_work": info.at_work,
    }


def limits(found: Listing[LimitInfo]) -> dict[str, Any]:
    """Return all limits. ``damaged`` are the errors of those that cannot be read."""
    return {"limits": [limit(each) for each in found], "damaged": [str(each) for each in found.damaged]}


def limit_changed(info: LimitInfo) -> dict[str, Any]:
    """Return a limit after a change."""
    return {"limit": limit(info)}


def state(model: Any) -> Any:
    """Return a state as plain JSON, serialised by its model."""
    return model.model_dump(mode="json")


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    """Return the checkpoint of one finished visit."""
    return {
        "seq": found.seq,
        "name": found.name,
        "step": found.step,
        "visit": found.visit,
        "ended_at": moment(found.ended_at),
        "took_seconds": found.took.total_seconds(),
        "skipped": found.skipped,
        "attempts": found.attempts,
        "fields": list(found.fields),
        "version": found.version,
        "left_behind": found.left_behind,
        "redacted": found.redacted,
    }


def event(found: Event) -> dict[str, Any]:
    """Return one event of a session's history."""
    return {
        "cursor": found.cursor,
        "session_id": found.session_id,
        "created_at": moment(to_datetime(found.created_at)),
        "agent_name": found.agent_name,
        "event_type": found.event_type,
        "summary": found.summary,
        "data": found.data,
    }


def stream_item(session_id: str, item: StreamItem) -> dict[str, Any]:
    """Return an item of a session's live stream in the shape of an event. It is not stored, so it has no cursor."""
    from pausepoint.model.streams import Restarted, StreamChunk  # help and completion do without msgspec

    data: dict[str, Any] = {"n": item.n}
    summary = step = ""
    if isinstance(item, StreamChunk):
        kind, step = "stream.chunk", item.step
        data |= {"kind": item.kind, "source": item.source, "operation": item.operation}
        data |= {"run": item.run, "attempt": item.attempt}
        if isinstance(item.data, str):
            data["text"] = summary = item.data
        else:
            data["base64"] = b64encode(item.data).decode()
    elif isinstance(item, Restarted):
        kind, summary = "stream.restarted", f"{len(item.sources)} started again"
        data["sources"] = list(item.sources)
    else:
        kind, summary = "stream.gap", f"{item.lost} lost"
        data["lost"] = item.lost
    return {
        "cursor": "",
        "session_id": session_id,
        "created_at": moment(datetime.now(UTC)),
        "agent_name": step,
        "event_type": kind,
        "summary": summary,
        "data": data,
    }


def moment(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, in UTC."""
    return None if when is None else when.isoformat()


def damaged(error: Any) -> dict[str, Any]:
    """Return a session or question that cannot be read, with the error."""
    return {"session_id": error.session_id, "error": str(error)}


def listing(
    infos: Any, total: int, broken: Any, standing: StandingPause | None = None, next: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Return the result of ``ls``: sessions up to the limit, the number of all matches, and unreadable sessions.

    ``standing`` is the pause of everything, while it is in effect. ``next`` is the cursor of the next page.
    """
    return {
        "standing_pause": standing_pause(standing),
        "sessions": [session(each) for each in infos],
        "total": total,
        "next": next,
        "damaged": [damaged(each) for each in broken],
    }


def store_status(
    store: str, trouble: str | None, standing: StandingPause | None, counts: dict[str, int], found: Any, broken: Any
) -> dict[str, Any]:  # fmt: skip
    """Return the result of ``status``.

    ``found`` are sessions, each with its open pauses, the sessions it waits for, and the tasks that agents of a run are
    finishing while it pauses.
    """
    return {
        "store": store,
        "trouble": trouble,
        "standing_pause": standing_pause(standing),
        "counts": counts,
        "sessions": [
            session(one.info)
            | {
                "pauses": [pause(each) for each in one.pauses],
                "waits_for": [{"session_id": each.session_id, "status": each.status.value} for each in one.waits_for],
                "finishing": [{"agent": agent, "task": task} for task, agent in one.agents.items()],
            }
            for one in found
        ],
        "damaged": [damaged(each) for each in broken],
    }


def shown(
    info: SessionInfo, pauses: Sequence[Pause], questions: Sequence[dict[str, Any]], reached: Checkpoint | None,
    stored: StoredState | None, error: str, artifacts: Sequence[ArtifactState] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the result of ``show``: a session with its state at record ``seq``, or why that cannot be read."""
    from msgspec.structs import asdict  # here, because the help of commands does not need it

    return session(info) | {
        "pauses": [pause(each) for each in pauses],
        "questions": list(questions),
        "checkpoint": None if reached is None else checkpoint(reached),
        "seq": None if stored is None else stored.seq,
        "state": None if stored is None else stored.values,
        "state_error": error or None,
        "artifacts": [asdict(each) for each in artifacts],
    }


def workflows(found: Sequence[tuple[str, Description | None, int]]) -> dict[str, Any]:
    """Return the result of ``workflows``: names, with what is known about each, and the number of its sessions."""
    return {
        "workflows": [
            {
                "name": name,
                "version": None if described is None else described.version,
                "steps": [] if described is None else list(described.outline),
                "sessions": sessions,
            }
            for name, described, sessions in found
        ]
    }


def why(found: Plan, step: str, last: Checkpoint | None) -> dict[str, Any]:
    """Return the result of ``why`` for a step. ``last`` is its last visit that was not undone by a rewind."""
    planned = found[step]
    return {
        "session_id": found.session_id,
        "status": found.status.value,
        "step": step,
        "verdict": planned.verdict,
        "why": planned.why,
        "visits": planned.visits,
        "obstacles": list(found.obstacles),
        "last": None if last is None else checkpoint(last),
        "artifacts": [each for each in found.to_json()["artifacts"] if each["step"] == step],
    }


def checkpoints(session_id: str, found: Sequence[Checkpoint]) -> dict[str, Any]:
    """Return the checkpoints of a session, newest last."""
    return {"session_id": session_id, "checkpoints": [checkpoint(each) for each in found]}


def history(session_id: str, found: Sequence[Event]) -> dict[str, Any]:
    """Return the events of a session, oldest first."""
    return {"session_id": session_id, "events": [event(each) for each in found]}


def verification(found: Verification, session_id: str | None) -> dict[str, Any]:
    """Return the result of ``verify``: what was checked, and the problems found."""
    return {
        "ok": found.ok,
        "session_id": session_id,
        "sessions": found.sessions,
        "records": found.records,
        "redacted": found.redacted,
        "signals": found.signals,
        "values": found.values,
        "files": found.files,
        "tombstones": found.tombstones,
        "problems": [
            {"what": each.what, "text": each.text, "session_id": each.session_id, "seq": each.seq}
            for each in found.problems
        ],
    }


def redaction(session_id: str, found: Redaction) -> dict[str, Any]:
    """Return the result of ``redact``: the records and signals that lost their content."""
    return {
        "session_id": session_id,
        "records": list(found.records),
        "signals": list(found.signals),
        "erased": found.erased,
    }


def clean_up(found: CleanUp, total: int) -> dict[str, Any]:
    """Return the result of ``gc``: what it did, or would do. Sizes are in bytes."""
    return {
        "applied": found.applied,
        "expired": list(found.expired),
        "expired_bytes": found.expired_bytes,
        "completed": list(found.completed),
        "kept": [{"session_id": session_id, "why": why} for session_id, why in found.kept.items()],
        "values": found.values,
        "value_bytes": found.value_bytes,
        "questions": found.questions,
        "requests": found.requests,
        "descriptions": found.descriptions,
        "drawers": found.drawers,
        "streams": found.streams,
        "strays": found.strays,
        "stray_bytes": found.stray_bytes,
        "unknown_folders": list(found.unknown),
        "free_bytes": found.free_bytes,
        "given_back_bytes": found.given_back,
        "folded": found.folded,
        "total_bytes": total,
    }


def health(found: Health) -> dict[str, Any]:
    """Return the health of a store: its size, its disk, and the engines that have it open."""
    about = found.store
    return {
        "kind": about.kind,
        "place": about.place,
        "schema": about.schema,
        "size_bytes": about.size,
        "free_bytes": about.free,
        "versions": about.versions,
        "file_system": about.file_system,
        "disk_free_bytes": about.disk_free,
        "ballast_bytes": about.ballast,
        "server": about.server,
        "latency_ms": about.latency_ms,
        "clock_skew_us": about.clock_skew_us,
        "trouble": found.trouble,
        "standing_pause": None if found.standing_pause is None else pause(found.standing_pause),
        "sessions": {status.value: count for status, count in found.sessions.items()},
        "engines": [holder(each) for each in found.engines],
        "gone": [holder(each) for each in found.gone],
        "crashes": dict(found.crashes),
    }


def holder(found: Holder) -> dict[str, Any]:
    """Return an engine, the sessions it holds or held when it died, and the workflows and queues it drives."""
    return {
        "pid": found.pid,
        "host": found.host,
        "since": moment(to_datetime(found.since)),
        "sessions": list(found.sessions),
        "workflows": list(found.workflows),
        "queues": None if found.queues is None else list(found.queues),
    }


def exported(found: Bundle, file: str, count: int) -> dict[str, Any]:
    """Return the result of ``export``: what was written, including the session's children."""
    return {
        "session_id": found.session_id,
        "file": file,
        "bytes": count,
        "sessions": [each.session_id for each in found.sessions],
        "records": sum(len(each.records) for each in found.sessions),
        "signals": sum(len(each.signals) for each in found.sessions),
        "values": len(found.blobs),
    }


def imported(info: SessionInfo, file: str) -> dict[str, Any]:
    """Return the result of ``import``: the imported session."""
    return {"file": file, "session": session(info)}


def moved(source: str, target: str, dry_run: bool, found: Move) -> dict[str, Any]:
    """Return the result of ``move``: the sessions that were moved, were there already, or could not be moved."""
    return {
        "from": source, "to": target, "dry_run": dry_run, "moved": found.moved, "there": found.there,
        "removed": found.removed, "running": found.running, "refused": found.refused, "schedules": found.schedules,
        "limits": found.limits, "drawers": found.drawers,
    }  # fmt: skip


def edited(info: SessionInfo, changed: Sequence[str], resume: str) -> dict[str, Any]:
    """Return the result of ``edit``: the session, the changed fields, and the command that resumes it."""
    return session(info) | {"changed": list(changed), "resume": resume}


def rewound(
    info: SessionInfo, left_behind: Sequence[str], changed: Sequence[str], resume: str
) -> dict[str, Any]:  # fmt: skip
    """Return the result of ``rewind``: the session, the visits that were undone, and the changed fields."""
    return session(info) | {"left_behind": list(left_behind), "changed": list(changed), "resume": resume}


def forked(info: SessionInfo, source: str, resume: str) -> dict[str, Any]:
    """Return the result of ``fork``: the new session and its source."""
    return session(info) | {"forked_from": source, "resume": resume}
