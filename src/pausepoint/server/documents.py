"""The JSON documents of the API. Those that the command line prints too come from `pausepoint.engine.documents`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.engine import documents
from pausepoint.engine.documents import moment
from pausepoint.engine.turns import in_turns
from pausepoint.server.words import with_requests

if TYPE_CHECKING:
    from pausepoint.engine.spans import Span
    from pausepoint.model.questions import Question, Receipt
    from pausepoint.model.schemas import File
    from pausepoint.model.sessions import Event
    from pausepoint.model.stores import Holder, Tombstone
    from pausepoint.model.views import Listing, Misfit, QueueInfo, SessionInfo, StandingPause
    from pausepoint.orchestrator import AgentStatus, RunReport, TaskStatus
    from pausepoint.server.people import Person

LARGE = 64 * 2**10
"""A field of a state that takes more bytes is left out, and has an address of its own."""

PARTS = 200
"""The most operations and waits of one visit that are listed."""


def etag(info: SessionInfo) -> str:
    """Return the mark of a session's present facts, for If-Match and If-None-Match."""
    return f'"{info.seq}.{info.signals}.{info.fence}"'


def standing_pause(found: StandingPause | None, person: Person) -> dict[str, Any] | None:
    """Return the pause of everything. How it took effect is only for people who see all sessions."""
    return documents.standing_pause(found) if found is None or person.sees_all else documents.pause(found)


def head(info: SessionInfo) -> dict[str, Any]:
    """Return a session's facts, with the mark that a change must name."""
    return documents.session(info) | {
        "seq": info.seq, "fence": info.fence, "signals": info.signals, "kept_by": info.kept_by, "etag": etag(info),
        "pause": None if info.pause is None else documents.pause(info.pause),
    }  # fmt: skip


def heads(found: Listing[SessionInfo], total: int | None = None) -> dict[str, Any]:
    """Return a list of sessions. ``next`` is the cursor of the next page."""
    broken = [documents.damaged(each) for each in found.damaged]
    page: dict[str, Any] = {"sessions": [head(each) for each in found], "next": found.next, "damaged": broken}
    return page if total is None else page | {"total": total}


def question(found: Question) -> dict[str, Any]:
    """Return a question with what a form needs."""
    given = documents.question(found, "")
    del given["answer"]  # the command that answers it
    answered = None if found.receipt is None else receipt(found.receipt)
    return given | {"n": found.n, "receipt": answered}


def receipt(found: Receipt) -> dict[str, Any]:
    """Return the confirmation of an answer."""
    return {
        "session_id": found.session_id,
        "question_id": found.question_id,
        "key": found.key,
        "version": found.version,
        "by": found.by,
        "channel": found.channel,
        "answered_at": moment(found.answered_at),
    }


def state(session_id: str, seq: int, values: dict[str, Any], base: str, at: str | None) -> dict[str, Any]:
    """Return a state. Large fields are replaced by their size and address."""
    query = "" if at is None else f"?at={quote(at, safe='')}"
    shown = {}
    for name, value in values.items():
        size = len(msgspec.json.encode(value))
        shown[name] = value if size <= LARGE else {"large": size, "href": f"{base}/state/{quote(name, safe='')}{query}"}
    return {"session_id": session_id, "seq": seq, "values": shown}


def spans(session_id: str, found: Sequence[Span]) -> dict[str, Any]:
    """Return visits as the bars of a chart, oldest first."""
    return {"session_id": session_id, "spans": [_span(each) for each in found]}


def _span(found: Span) -> dict[str, Any]:
    plain = msgspec.structs.asdict(found) | _times(found.began_at, found.ended_at)
    del plain["took"]
    parts = [msgspec.structs.asdict(each) | _times(each.began_at, each.ended_at) for each in found.parts[:PARTS]]
    return plain | {"took_seconds": found.took.total_seconds(), "parts": parts, "part_count": len(found.parts)}


def _times(began: datetime, ended: datetime | None) -> dict[str, Any]:
    return {"began_at": moment(began), "ended_at": moment(ended)}


def driver(workflow: str, found: Sequence[Holder]) -> dict[str, Any]:
    """Return the open engines that pick up sessions of a workflow. If there are none, ``advice`` says what to do."""
    advice = None if found else f"No engine drives {workflow!r}. Start `pausepoint worker`."
    return {"workflow": workflow, "engines": [engine(each) for each in found], "advice": advice}


def engine(found: Holder) -> dict[str, Any]:
    """Return an open engine, without the sessions that it holds: they may belong to others."""
    return {"pid": found.pid, "host": found.host, "since": moment(to_datetime(found.since))}


def queues(found: Sequence[QueueInfo]) -> dict[str, Any]:
    """Return all queues."""
    return {"queues": [{"name": each.name, "ready": each.ready, "at_work": each.at_work} for each in found]}


def misfit(found: Misfit) -> dict[str, Any]:
    """Return a session that does not fit the present code, the reasons, and what to do."""
    ways = [with_requests(each, found.session.session_id) for each in found.ways]
    return {"session": head(found.session), "reasons": list(found.reasons), "ways": ways}


def file(found: File) -> dict[str, Any]:
    """Return a file's facts. Its place on the server's disk is left out."""
    plain = found.model_dump(mode="json")
    del plain["storage_uri"]
    return plain


def tombstone(found: Tombstone) -> dict[str, Any]:
    """Return what is left of a removed session."""
    plain = msgspec.structs.asdict(found)
    times = {name: moment(to_datetime(plain[name])) for name in ("created_at", "removed_at")}
    names = ("session_id", "workflow", "owner", "status", "by", "reason")
    return {name: plain[name] for name in names} | times


def me(person: Person) -> dict[str, Any]:
    """Return the signed-in person."""
    return {"name": person.name, "role": person.role, "owner": person.owner, "question": person.question}


def run_head(info: SessionInfo) -> dict[str, Any]:
    """Return a run without its tasks."""
    from pausepoint.orchestrator import phase_of

    phase = phase_of(info)
    return head(info) | {"phase": None if phase is None else phase.value}


def runs(found: Listing[SessionInfo]) -> dict[str, Any]:
    """Return a list of runs. ``next`` is the cursor of the next page."""
    broken = [documents.damaged(each) for each in found.damaged]
    return {"runs": [run_head(each) for each in found], "next": found.next, "damaged": broken}


async def run(found: RunReport) -> dict[str, Any]:
    """Return a run with its tasks, agents, questions and pauses. A run may have many tasks, so these are encoded."""
    tasks = {each.question: each.task.id for each in found.tasks if each.question is not None}
    return run_head(found.info) | {
        "reason": found.reason or None,
        "counts": found.counts,
        "pauses": [documents.pause(each) for each in found.pauses],
        "agents": [_agent(each) for each in found.agents],
        "tasks": await in_turns(_task, found.tasks),
        "questions": [question(each) | {"task": tasks.get(each.id)} for each in found.questions],
    }


def _agent(found: AgentStatus) -> dict[str, Any]:
    return {
        "id": found.id, "task": found.task, "since": moment(found.since), "last": _last(found.last),
        "spent_usd": found.spent_usd, "spent_tokens": found.spent_tokens,
    }  # fmt: skip


def _task(found: TaskStatus) -> msgspec.Raw:
    """Return a task without its data, which may be large and is in the state of the run."""
    document = {
        "id": found.task.id,
        "status": found.status,
        "needs": found.task.needs,
        "waits_for": list(found.waits_for),
        "priority": found.task.priority,
        "agent": found.agent or None,
        "note": found.note or None,
        "question": found.question,
        "began_at": moment(found.began_at),
        "ended_at": moment(found.ended_at),
        "last": None if found.last is None else _last(found.last),
        "spent_usd": found.spent_usd,
        "spent_tokens": found.spent_tokens,
    }
    return msgspec.Raw(msgspec.json.encode(document))


def _last(found: Event) -> dict[str, Any]:
    at = moment(to_datetime(found.created_at))
    return {"event_type": found.event_type, "summary": found.summary, "created_at": at}


def bulk(
    verb: str, dry_run: bool, done: Sequence[Any], skipped: Sequence[Any], refused: Sequence[Any],
    drivers: Sequence[Any] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return what a bulk verb did. ``refused`` has a problem for each session that it could not treat."""
    return {
        "verb": verb, "dry_run": dry_run, "done": list(done), "skipped": list(skipped), "refused": list(refused),
        "drivers": list(drivers),
    }  # fmt: skip
