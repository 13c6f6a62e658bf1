"""Errors as ``application/problem+json``: a status, a type, and a sentence that says what to do next."""

from __future__ import annotations

import logging
import re
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from msgspec.structs import asdict

from pausepoint.errors import PausepointError
from pausepoint.model.documents import Document
from pausepoint.name import NAME
from pausepoint.server.words import detail_of

log = logging.getLogger(f"{NAME}.server")

PROBLEM = "application/problem+json"

STATUS = {
    "AlreadyRunning": 409,
    "AmbiguousSession": 409,
    "AnswerConflict": 409,
    "AnswerRefused": 422,
    "CallRefused": 409,
    "DamagedFile": 500,
    "DamagedRecord": 500,
    "DefinitionError": 409,
    "EventRefused": 422,
    "FileRefused": 422,
    "FolderRefused": 409,
    "FolderUnavailable": 507,
    "HoldLost": 412,
    "InputConflict": 409,
    "InvalidSessionId": 400,
    "KeyLost": 503,
    "NotFinished": 409,
    "QuestionChanged": 412,
    "QuestionClosed": 410,
    "Redacted": 410,
    "ScheduleRefused": 422,
    "SessionChanged": 412,
    "SessionEnded": 410,
    "SeveralQuestions": 409,
    "StateRefused": 422,
    "StoreClosed": 503,
    "StoreError": 503,
    "UndecidedEdits": 409,
    "UnknownCheckpoint": 404,
    "UnknownOperation": 404,
    "UnknownFile": 404,
    "UnknownQuestion": 404,
    "UnknownSchedule": 404,
    "UnknownSession": 404,
    "ValueRefused": 422,
    "VerbRefused": 409,
    "WriteRefused": 422,
    "WrongOwner": 403,
    "WrongSession": 409,
}
"""Error → status. A subclass has the status of its nearest base class in this table."""

TITLES = {
    400: "Malformed request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "Conflict",
    410: "Gone",
    412: "It has changed",
    413: "Too large",
    415: "Wrong content type",
    416: "No such range",
    421: "Wrong host",
    422: "Not accepted",
    428: "A condition is missing",
    429: "Too many requests",
    500: "Error of the server",
    503: "Not available",
    507: "The disk is full",
}
"""Status → title."""

_PRIVATE = frozenset({"path", "kept", "errno", "problem", "way_out"})
"""Fields of errors that name places on the server's disk."""


class Problem(Exception):
    """A refused request. ``fields`` become members of the document, and ``headers`` are sent with it."""

    def __init__(
        self, status: int, detail: str, kind: str = "", /, *, headers: dict[str, str] | None = None, **fields: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind or kebab(TITLES[status])
        self.detail = detail
        self.headers = headers or {}
        self.fields = fields

    def document(self, instance: str) -> Any:
        """Return the problem as a `ProblemDocument` with more fields. ``instance`` is the path of the request."""
        title = TITLES[self.status]
        return self.fields | asdict(
            ProblemDocument(f"urn:{NAME}:{self.kind}", title, self.status, self.detail, instance)
        )


class ProblemDocument(Document):
    """Why a request was refused (RFC 9457). Errors of the engine add their fields."""

    type: Annotated[str, msgspec.Meta(pattern=f"^urn:{NAME}:")]
    title: str
    status: int
    detail: str
    instance: str


def problem_of(error: Exception) -> Problem:
    """Return the problem that an error is reported as. Unexpected errors are logged and reported by an id only."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, PausepointError) and (status := status_of(error)):
        return Problem(status, detail_of(error), kebab(type(error).__name__), **_fields(error))
    if type(error) is ValueError and str(error).endswith((".", "?")):  # the engine's sentence about an argument
        return Problem(400, detail_of(error))
    number = uuid4().hex[:12]
    log.error("error %s: %s", number, type(error).__name__, exc_info=error)
    return Problem(
        500, f"The server failed to handle the request. Its log has the reason under the id {number}.", id=number
    )


def status_of(error: PausepointError) -> int:
    """Return the status of an error; 0 if the API does not expect it.

    >>> from pausepoint.errors import StoreReadOnly, UnknownSession
    >>> status_of(UnknownSession("", session_id="x")), status_of(StoreReadOnly("", path="", full=True))
    (404, 507)
    """
    if getattr(error, "full", False):
        return 507
    for cls in type(error).__mro__:
        if cls.__name__ in STATUS:
            return STATUS[cls.__name__]
    return 0


def kebab(name: str) -> str:
    """Return a name as part of a URN.

    >>> kebab("UnknownSession"), kebab("Not signed in")
    ('unknown-session', 'not-signed-in')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\s+", "-", name).lower()


def _fields(error: PausepointError) -> dict[str, Any]:
    """Return the fields of an error that fit into a JSON document."""
    named = {"status": "present_status"}  # of a session or question; ``status`` is that of the answer
    found = {named.get(name, name): value for name, value in error.fields.items() if name not in _PRIVATE}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False
    return True
