"""The JSON documents of the API. Those that the command line prints too come from `pausepoint.engine.documents`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.engine import documents
from pausepoint.engine.documents import moment

if TYPE_CHECKING:
    from pausepoint.model.questions import Question, Receipt
    from pausepoint.model.schemas import File
    from pausepoint.model.sessions import Tombstone
    from pausepoint.model.views import Listing, SessionInfo
    from pausepoint.server.people import Person

LARGE = 64 * 2**10
"""A field of a state that takes more bytes is left out, and has an address of its own."""


def etag(info: SessionInfo) -> str:
    """Return the mark of a session's present facts, for If-Match and If-None-Match."""
    return f'"{info.seq}.{info.signals}.{info.fence}"'


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


def bulk(
    verb: str, dry_run: bool, done: Sequence[Any], skipped: Sequence[Any], refused: Sequence[Any],
    unattended: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return what a bulk verb did. ``refused`` has a problem for each session that it could not treat."""
    return {
        "verb": verb, "dry_run": dry_run, "done": list(done), "skipped": list(skipped), "refused": list(refused),
        "unattended": list(unattended),
    }  # fmt: skip
