"""The bodies and queries of requests. The names are those of the engine's options."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pausepoint.model.budgets import Budget
from pausepoint.model.bulk import BulkVerb
from pausepoint.model.limits import LimitKey
from pausepoint.model.questions import QuestionSort
from pausepoint.model.schedules import CatchUp, Overlap
from pausepoint.model.sessions import Level, PauseMode, Sort, StatusName
from pausepoint.server.roles import Role

Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Limit = Annotated[int, Meta(ge=1, le=200)]
Number = Annotated[int, Meta(ge=0, le=2**53)]  # larger ones do not survive a client in JavaScript
Visit = Annotated[str, Meta(min_length=1, max_length=10_000)]
Place = Number | Visit
"""A checkpoint or an operation by the number of its record, or a visit or a call such as ``write#2``."""
Usd = Annotated[float, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]
Fields = dict[str, Any]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all bodies and queries: an unknown name is refused, not ignored."""


class Nothing(Body, frozen=True):
    """No body, or an empty object."""


class Login(Body, frozen=True):
    """Trade a token for a cookie."""

    token: Annotated[str, Meta(max_length=2_000)]


class Budgeted(Body, frozen=True, kw_only=True):
    """The base of bodies with a budget. A limit that is not given stays as it is."""

    budget_usd: Usd | None = None
    budget_tokens: Number | None = None
    budget_operations: Number | None = None

    @property
    def budget(self) -> Budget | None:
        """The budget; None if no limit is given."""
        limits = (self.budget_usd, self.budget_tokens, self.budget_operations)
        return None if limits == (None, None, None) else Budget(usd=limits[0], tokens=limits[1], operations=limits[2])


class Start(Budgeted, frozen=True):
    """Start a session. ``input`` are the fields of the state.

    ``folder`` is the folder for its artifacts, relative to the folder in which the server was started.
    """

    workflow: Text
    input: Fields = {}
    session_id: Text | None = None
    owner: Text | None = None
    tags: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    folder: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None
    paused: bool = False
    reason: Text = ""
    queue: Name | None = None
    priority: Priority | None = None
    lane: Text | None = None


class Schedule(Body, frozen=True):
    """Start sessions at the times of a cron expression. ``input`` are the fields of their state."""

    workflow: Text
    cron: Annotated[str, Meta(max_length=200)]
    input: Fields = {}
    zone: Name = "UTC"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "newest"
    owner: Text | None = None
    tags: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    queue: Name | None = None
    priority: Priority | None = None
    lane: Text | None = None


class SetLimit(Body, frozen=True):
    """Limit the sessions at work at once, or with ``per_seconds`` those that get to work in that time.

    With ``most`` 0, no session gets to work.
    """

    most: Annotated[int, Meta(ge=0, le=1_000_000)] | None
    per_seconds: Annotated[float, Meta(gt=0, le=31_622_400)] | None = None
    by: LimitKey | None = None


class Pause(Body, frozen=True):
    """Pause a session, or everything."""

    reason: Text = ""
    mode: PauseMode = "finish"
    freeze: bool = False


class Resume(Budgeted, frozen=True):
    """Resume a session. Without options, close its pauses."""

    wake: bool = False
    code: Literal["accept"] | None = None
    pause_after: Text | None = None
    edits: Literal["accept", "discard"] | None = None
    rerun: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    steal: bool = False


class ResumeRun(Budgeted, frozen=True):
    """Resume a run, with a new budget if given."""


class Reason(Body, frozen=True):
    """Why something is done, for the history."""

    reason: Text = ""


class Edit(Body, frozen=True):
    """Change fields of the state."""

    fields: Fields
    reason: Text = ""


class AskAgain(Body, frozen=True):
    """Ask a question again: the one with this id, or the only one that was declined or got no valid answer."""

    question_id: Text | None = None
    reason: Text = ""


class Rewind(Body, frozen=True):
    """Rewind to the beginning of a visit: ``write``, ``write#2`` or the number of a checkpoint.

    Or to an operation: ``think``, ``think#3``, the number of its record, or its id. With ``result``, it returns that
    instead of running again.
    """

    to: Place | None = None
    to_operation: Place | None = None
    result: Any | UnsetType = UNSET
    changes: Fields = {}
    reuse: bool = False
    reason: Text = ""


class Fork(Body, frozen=True):
    """Create a session from another one's state: now, before a visit, or before an operation."""

    at: Place | None = None
    at_operation: Place | None = None
    changes: Fields = {}
    reuse: bool = False
    session_id: Text | None = None
    paused: bool = True
    reason: Text = ""


class Message(Body, frozen=True):
    """Send a message to a session. With ``key`` it is delivered once, however often it is sent.

    ``seen`` is the ``digest`` of the open question that its author saw; an empty text if none was open.
    """

    value: Any
    key: Text | None = None
    seen: Text | None = None


class Planned(Body, frozen=True):
    """Ask what a verb would do. The other members are those of the verb."""

    verb: Literal["resume", "rewind", "fork", "edit"]
    fields: Fields = {}
    rerun: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    to: Place | None = None
    to_operation: Place | None = None
    result: Any | UnsetType = UNSET
    at: Place | None = None
    at_operation: Place | None = None
    changes: Fields = {}
    reuse: bool = False
    wake: bool = False


class Answer(Body, frozen=True):
    """Answer a question. ``seen`` is the ``digest`` of the question that the person saw."""

    value: Any
    seen: Text | None = None


class Link(Body, frozen=True):
    """Who gets an answer link, and for how many ``seconds``. ``url``: the server's address for that person."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] = "answer link"
    seconds: Annotated[int, Meta(ge=60, le=31_622_400)] = 604_800
    url: Annotated[str, Meta(max_length=1_000)] | None = None


class Which(Body, frozen=True):
    """Which sessions a bulk verb is for. ``since`` and ``until``: last updated then or later, or before."""

    status: tuple[StatusName, ...] = ()
    failed: bool | None = None
    workflow: Text | None = None
    owner: Text | None = None
    tag: Text | None = None
    queue: Name | None = None
    since: Time | None = None
    until: Time | None = None


class Bulk(Body, frozen=True):
    """Apply a verb to many sessions: by their ids, or to all that match a filter."""

    verb: BulkVerb
    ids: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    filter: Which | None = None
    reason: Text = ""
    dry_run: bool = False


class Paths(Body, frozen=True):
    """Artifacts, by their paths. Without any, all that differ."""

    paths: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    reason: Text = ""


class Redact(Body, frozen=True):
    """Remove one thing from a session permanently."""

    field: Text | None = None
    seq: Number | None = None
    signal: Number | None = None
    event: Text | None = None
    file: Text | None = None
    drawer: Text | None = None
    reason: Text = ""


class Collect(Body, frozen=True):
    """Clean the store up. Without ``apply``, only report what would be done."""

    apply: bool = False


class Token(Body, frozen=True):
    """A token to create. With ``owner``, it sees only the sessions of this owner. Without ``seconds`` it never ends."""

    role: Role
    name: Name | None = None
    owner: Name | None = None
    seconds: Annotated[int, Meta(ge=1, le=10**9)] | None = None


# queries


class NoQuery(Body, frozen=True):
    """An address without a query."""


class Sessions(Which, frozen=True):
    """The filters of the list of sessions. ``after`` is the ``next`` of the page before."""

    prefix: Text | None = None
    text: Text | None = None
    level: Level = "any"
    sort: Sort = "created"
    reverse: bool = False
    limit: Limit = 50
    after: Text | None = None
    count: bool = False


class Runs(Body, frozen=True):
    """The filters of the list of runs. ``after`` is the ``next`` of the page before."""

    status: tuple[StatusName, ...] = ()
    owner: str | None = None
    limit: Limit = 50
    after: str | None = None


class Topics(Body, frozen=True):
    """What a stream is about: ``now``, ``inbox``, and ``session:`` with an id. By default what the role may follow."""

    topics: tuple[Text, ...] = ()


class Inbox(Body, frozen=True):
    """The filters of the inbox. ``after`` is ``next`` of the page before."""

    status: tuple[Literal["WAITING_USER_INPUT", "RESUMED", "COMPLETED", "EXPIRED", "CANCELLED"], ...] = (
        "WAITING_USER_INPUT",
    )
    workflow: Text | None = None
    owner: Text | None = None
    sort: QuestionSort = "asked"
    reverse: bool = False
    after: Text | None = None
    limit: Limit = 50


class Checkpoints(Body, frozen=True):
    """A page of checkpoints, newest last. ``before`` is the ``seq`` of the first one of the page after it."""

    before: Number | None = None
    limit: Limit = 100


class Spans(Body, frozen=True):
    """A page of visits, oldest first. ``before`` is the ``seq`` of the first one of the page after it.

    ``at`` is the visit that the page begins with: a name such as ``write#2``, or the number of a record; 1 is the first
    visit. Send one of the two.
    """

    before: Number | None = None
    at: Visit | None = None
    limit: Limit = 100


class Totals(Body, frozen=True):
    """Where a page of visits begins: ``before`` is the ``seq`` of its first one."""

    before: Number | None = None


class Operations(Body, frozen=True):
    """A page of operations, oldest first. ``before`` is the ``seq`` of the first one of the page after it."""

    before: Number | None = None
    limit: Limit = 100


class Conversation(Body, frozen=True):
    """A page of turns, oldest first. ``before`` is the ``seq`` of the first one of the page after it.

    There may be a few more than ``limit``: turns with the same ``seq`` stay together.
    """

    before: Number | None = None
    limit: Limit = 100


class Events(Body, frozen=True):
    """A page of events. ``after`` is the cursor of the last event of the page before.

    With ``before``, the last events before that cursor, or the newest ones if it is empty.
    """

    after: Text = ""
    before: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class At(Body, frozen=True):
    """A checkpoint: a visit such as ``write#2``, or a number. Without it, now."""

    at: Visit | None = None


class Compared(Body, frozen=True):
    """Two checkpoints to compare. Without ``b``, ``a`` is compared with now.

    With ``other``, the id of another session, ``b`` is a checkpoint of that one. Without ``a`` and ``b``, the two
    sessions are compared as they are now.
    """

    a: Visit | None = None
    b: Visit | None = None
    other: Text | None = None


class Rerun(Body, frozen=True):
    """Finished steps that should run again."""

    rerun: tuple[Text, ...] = ()


class Described(Body, frozen=True):
    """The version of a workflow. Without it, the newest."""

    version: int | None = None


class Misfits(Body, frozen=True):
    """How many sessions to examine. ``after`` is the ``next`` of the page before."""

    limit: Limit = 100
    after: str | None = None


class Version(Body, frozen=True):
    """Which content of an artifact: as it is in the folder, or as the step has published it."""

    version: Literal["present", "recorded"] = "present"


class Import(Body, frozen=True):
    """The id of an imported session, unless it keeps its own, and the folder for its artifacts, if it publishes any.

    The ``folder`` is relative to the folder in which the server was started.
    """

    session_id: Text | None = None
    folder: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


class Upload(Body, frozen=True):
    """The name of an uploaded file."""

    filename: Text
    content_type: Text | None = None
