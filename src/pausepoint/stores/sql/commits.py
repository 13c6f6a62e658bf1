"""What all databases do for a commit of the engine that holds a session, besides moving the session on.

A ``place`` is a row of the query `place`: key, seq, fence, holder, the end of the log, the four flags, and whether the
session has an end.
"""

from __future__ import annotations

from typing import Any

from pausepoint.errors import HoldLost
from pausepoint.model.commits import Commit
from pausepoint.model.endings import is_over
from pausepoint.stores.sql import blobs, engines, pauses, redaction, sessions, signals, standing
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine


def fits(engine: Engine, commit: Commit, place: Any) -> bool:
    """Return whether the session is where the driver assumes, is held by it, and is paused if that is required."""
    return (
        place[1] == commit.base_seq
        and place[2] == commit.fence
        and place[3] == engine.number
        and (not commit.only_if_paused or place[5] == 1)
    )


def refusal(connection: Connection, engine: Engine, commit: Commit, place: Any) -> HoldLost | None:
    """Return why a commit does not fit. None means that the pause or question it requires is no longer open."""
    if place is None:
        return HoldLost(
            f"No session in this store has the key {commit.key}. It may have been removed. Nothing was written."
            " List the sessions with engine.sessions().",
            session_id="",
        )
    _, seq, fence, holder, *_ = place
    if (seq, fence, holder) == (commit.base_seq, commit.fence, engine.number):
        return None
    session_id = connection.execute(connection.queries["session_id"], (commit.key,)).get
    return HoldLost(
        f"Session {session_id!r} is no longer held by this engine. The session is at record {seq} with fence"
        f" {fence}, this engine at record {commit.base_seq} with fence {commit.fence}. Nothing was written."
        f" The session is now held by {engines.describe(connection, holder)}. To drive it here again, call"
        f" engine.session({session_id!r}).resume(steal=True).",
        session_id=session_id,
    )


def under_everything(connection: Connection, place: Any, everything: int) -> Any:
    """Return a session's place with the pause of everything among its requests, unless the session is exempt."""
    if connection.execute(connection.queries["exempt"], (place[0],)).get >= everything >> 1:
        return place
    return (*place[:5], 1, "abort" if everything & 1 else place[6], *place[7:])


def attach(connection: Connection, engine: Engine, commit: Commit, place: Any, head: int) -> None:
    """Write what only some commits contain. ``head`` is the log id of this commit's last record, if it has one."""
    if commit.blobs:
        blobs.keep(connection, commit.key, commit.blobs)
    if commit.open_pauses or commit.close_pauses or commit.ended in ("completed", "cancelled"):
        pauses.attach(connection, commit, requested=place[5] == 1)
    if commit.consume:
        connection.executemany(connection.queries["consume"], [(commit.key, n) for n in commit.consume])
        connection.execute(connection.queries["look_for_mail"], (commit.key,))
    if commit.asks or commit.questions:
        asking.attach(connection, commit, head)
    if commit.settles or commit.ended in ("completed", "cancelled"):
        asking.settle(connection, commit)
    if commit.thaw:
        connection.execute(connection.queries["thaw"], (commit.key,))
    if commit.parent is not None:
        _report_to_parent(connection, engine, commit, commit.parent)
    if commit.only_if_paused and commit.release:
        connection.execute(connection.queries["took_effect"], (commit.updated_at, commit.key))
        standing.note(connection, commit.key, commit.step, after=commit.base_seq, took_effect_at=commit.updated_at)
    if commit.release:
        if commit.kept:
            connection.execute(connection.queries["keep"], (commit.key,))
        query = connection.queries["release" if commit.waiting is None else "release_waiting"]
        connection.execute(query, (commit.waiting, commit.wakes_at, commit.key))
        if commit.ended is None:  # what has ended is never ready, as what was held
            connection.execute(connection.queries["reckon"], (commit.key,))
    if commit.version is not None:
        connection.execute(connection.queries["set_version"], (commit.version, commit.key))
        sessions.seal_given(connection, commit.key)
    if commit.redact or commit.redact_signals or commit.unname or commit.empty_drawers:
        redaction.blank(connection, commit)


def _report_to_parent(connection: Connection, engine: Engine, commit: Commit, parent: int) -> None:
    """Add a child's spending to all its ancestors, and deliver its report to the parent.

    How it is added is up to the database, so that children which spend at the same time do not wait for each other.
    """
    spent = commit.spend_usd, commit.spend_tokens, commit.spend_operations
    if any(spent):
        connection.execute(connection.queries["charge_ancestors"], (commit.key, *spent))
    report = commit.report
    if report is None or is_over(sessions.get_by_key(connection, parent, engine.present)):
        return
    n = signals.append(connection, parent, "child", None, commit.updated_at, report.payload)
    if report.ends:
        signals.deliver(connection, parent, n, "child", report.payload)
