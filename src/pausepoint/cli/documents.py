"""The JSON documents that only the command line prints: what its commands set up, serve, send and check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from pausepoint.model.documents import Document, Moment


class ErrorDocument(Document):
    """An error, printed to stderr in place of text if --json or --jsonl was given."""

    error: str
    exit_code: int


# projects


class Initialised(Document):
    """The files that `init` created, and those that existed. ``next`` is a command to try."""

    folder: str
    made: Sequence[str]
    kept: Sequence[str]
    next: str


class SkillDocument(Document):
    """The skill for a coding agent, and what was done with its file."""

    file: str
    done: Literal["created", "replaced", "kept"]


# sessions that run elsewhere


class LogLine(Document):
    """One line of a worker's log."""

    logged_at: Moment
    level: str
    session_id: str
    step: str
    text: str


class Detached(Document):
    """A session that a separate process drives."""

    session_id: str
    process: int
    log: str
    watch: str


# servers


class DevelopmentProcesses(Document):
    """The numbers of the processes of `dev`."""

    postgres: int
    worker: int
    server: int


class Development(Document):
    """What `dev` runs. The address signs you in. ``processes`` has the numbers of its processes by name."""

    address: str
    store: str
    folder: str
    processes: DevelopmentProcesses
    workflows: Sequence[str]


class Serving(Document):
    """A server that has begun to answer, on one line.

    ``address`` signs you in with the token in ``token_file``. ``drives`` is false if it drives no sessions. ``sites``
    are the addresses of a program's own sites, by name.
    """

    address: str
    token_file: str
    store: str
    sessions: int
    drives: bool
    workflows: Sequence[str]
    sites: dict[str, str] | UnsetType = UNSET


class AccessTokenDocument(Document):
    """A token of `serve token`, without its secret. Without ``expires_at`` it never ends."""

    id: str
    name: str
    role: Literal["viewer", "answerer", "operator", "admin"]
    owner: str | None
    created_at: Moment
    expires_at: Moment | None
    expired: bool


class CreatedTokenDocument(AccessTokenDocument):
    """A token that `serve token create` has created. ``token`` is its secret, which is not stored."""

    token: str


class AccessTokens(Document):
    """The tokens that were created, oldest first."""

    tokens: Sequence[AccessTokenDocument]


class RevokedToken(Document):
    """The id of a token that was revoked."""

    revoked: str


class AnswerLink(Document):
    """An address that can see and answer one question until it ends."""

    address: str
    question_id: str
    expires_at: Moment


class ModelTool(Document):
    """A tool for a language model. ``changes`` says whether it changes anything. ``arguments`` is a JSON schema."""

    name: str
    changes: bool
    description: str
    arguments: dict[str, Any]


class ModelTools(Document):
    """The tools of `mcp --tools`."""

    allow: Literal["look", "act"]
    tools: Sequence[ModelTool]


# copies and messages


class MirroredDocument(Document):
    """What happened to the document of a session.

    ``session_id`` is empty if all documents could not be read. ``retry_in`` is the number of seconds until the next
    attempt.
    """

    mirrored_at: Moment
    status: Literal["written", "deleted", "paused", "refused", "failed"]
    session_id: str
    reason: str
    retry_in: float | None


class MirrorDocument(Document):
    """The documents of `mirror --once`. ``failed`` is the number of attempts that failed."""

    mirrored: Sequence[MirroredDocument]
    failed: int


class NoticeDocument(Document):
    """A message about a question that was sent to a service, or that the service did not accept.

    ``number`` is the position of the service's URL in the command. ``retry_in`` is the number of seconds until the next
    attempt.
    """

    noticed_at: Moment
    status: Literal["sent", "failed"]
    question_id: str
    round: int
    workflow: str
    service: str
    number: int
    reason: str
    retry_in: float | None


class NotifiedDocument(Document):
    """The messages of `notify --once`. ``unsent`` is the number of those that were not accepted."""

    notices: Sequence[NoticeDocument]
    unsent: int


# the gate


class FileChange(Document):
    """A file that changes, and the difference."""

    file: str
    diff: str


class GateUninstall(Document):
    """The changes that take back what `gate install` wrote, and whether they were written."""

    written: bool
    changes: Sequence[FileChange]


class GateInstall(Document):
    """The changes that put an agent under the gate, and whether they were written."""

    written: bool
    changes: Sequence[FileChange]
    agent: Literal["claude", "codex"]
    gate: str


class GateVerdict(Document):
    """Whether a script may do what it asked for."""

    do: Literal["run", "refuse", "later"]
    reason: str | None
    approved: bool


class GateServe(Document):
    """Where the gate is served, when it begins."""

    socket: str
    store: str
    restricted: Sequence[str]


class GateSpend(Document):
    """Whether a cost was recorded."""

    recorded: bool
