"""The sentences of errors in the words of HTTP.

The engine's messages name Python calls as the way out. A client of the API cannot call them, so the sentences below
name the request instead: `LINES` replace the whole message, `NEXT` replaces only the advice.
"""

from __future__ import annotations

import re

from pausepoint.errors import QuestionError, StepError, UnknownOperation
from pausepoint.integrations.words import Words

LINES = {
    "UnknownSession": "There is no session {session_id!r}. List the sessions with GET /sessions.",
    "UnknownQuestion": "There is no question {question_id!r}. List the open questions with GET /inbox.",
    "AlreadyRunning": (
        'Session {session_id!r} is driven by {holder}. Pause it first, or resume it with "steal": true to take it over.'
    ),
    "InputConflict": (
        "Session {session_id!r} already exists with different input. Choose another session_id, or resume it with"
        " POST /sessions/{session_id}/resume."
    ),
    "UndecidedEdits": (
        "Artifacts of session {session_id!r} were edited: {paths}. Nothing was changed. Resume it with"
        ' "edits": "accept" to keep the edits, or "discard" to restore the recorded content.'
    ),
    "HoldLost": "Session {session_id!r} has changed since it was read. Nothing was written. Read it again, then retry.",
}
"""Error → the whole message. It is used if the error has all fields that it names."""

NEXT = {
    "AmbiguousSession": "Send more of the id.",
    "CallRefused": "Start a server or a worker that drives sessions.",
    "DefinitionError": "Start the server with the code of the workflow.",
    "FileRefused": "Correct the request, then send it again.",
    "FolderRefused": "Check the folder on the server, then retry.",
    "KeyLost": "Send the request again with the same Idempotency-Key.",
    "NotFinished": "Read the session again later.",
    "QuestionClosed": "List the open questions with GET /inbox.",
    "ScheduleRefused": "Correct the request, then send it again.",
    "SessionEnded": "Rewind or fork the session, or start a new one.",
    "StateRefused": "Correct the value, then send it again.",
    "StoreClosed": "The server is shutting down or not ready. Retry in a moment.",
    "StoreUnavailable": "Check the store on the server, then retry.",
    "UnknownCheckpoint": "List the checkpoints with GET /sessions/{session_id}/checkpoints.",
    "UnknownOperation": "List them with GET /sessions/{session_id}/operations.",
    "UnknownSchedule": "List the schedules with GET /schedules.",
    "ValueRefused": "Correct the value, then send it again.",
    "VerbRefused": "Read the session with GET /sessions/{session_id}, then choose another action.",
}
"""Error → the advice that replaces sentences which name Python or the command line."""

_CALL = re.compile(r"""session\.(resume|rewind|fork|ask_again)\((?:code=|at_step=)?['"]([^'"]*)['"]\)""")
_MEMBERS = {"resume": "code", "rewind": "to", "fork": "at", "ask_again": "question_id"}


_PLACE = re.compile(r"(?<![\w./…])(?<!GET )(?<!PUT )(?<!POST )(?<!DELETE )/(?:[^\s'\"/:,;]+/)+([^\s'\"/:,;]+)")
"""A path on the server's disk, which a client must not learn. The addresses of the API follow a method."""

WORDING = Words(LINES, NEXT, "The request was refused. Read the session again, then choose another action.")


def detail_of(error: BaseException) -> str:
    """Return an error's message for a client of the API.

    >>> from pausepoint.errors import SessionEnded, UnknownSession
    >>> detail_of(UnknownSession("This store has no session 'x'. See engine.sessions().", session_id="x"))
    "There is no session 'x'. List the sessions with GET /sessions."
    >>> detail_of(SessionEnded("Session 'x' has ended. Call engine.session('x').fork().", session_id="x"))
    "Session 'x' has ended. Rewind or fork the session, or start a new one."
    """
    if (line := WORDING.line(error)) is not None:
        return line
    said = WORDING.rest(error)
    return said if isinstance(error, QuestionError | StepError | UnknownOperation) else _without_places(said)


def _without_places(text: str) -> str:
    """Return a message that names files of the server by the last part of their paths.

    >>> _without_places("/srv/ann/x.db: the disk is full. See GET /store.")
    '…/x.db: the disk is full. See GET /store.'
    """
    return _PLACE.sub(r"…/\1", text)


def with_requests(text: str, session_id: str) -> str:
    """Return an engine's advice with requests instead of Python calls.

    >>> with_requests("run the later steps again: session.rewind('write')", "octopus-1")
    'run the later steps again: POST /sessions/octopus-1/rewind with {"to": "write"}'
    """
    return _CALL.sub(
        lambda found: f'POST /sessions/{session_id}/{found[1]} with {{"{_MEMBERS[found[1]]}": "{found[2]}"}}', text
    )
