"""What a verb locks before it reads: the rows of its sessions, in ascending order of their keys.

A parent has a smaller key than its children. So two verbs that lock whole lines, from the root down, never wait for
each other. A child is created under the lock of its parent, so a line that was locked does not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec

from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.drawers import DrawerId
from pausepoint.model.questions import Answer
from pausepoint.model.sessions import Filter
from pausepoint.stores.sql import drawers, sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.rows import every, one

Lock = Callable[[Connection], None]


def keys(connection: Connection, found: Iterable[int]) -> None:
    """Lock sessions by key."""
    wanted = sorted(set(found))
    if wanted:
        connection.execute(connection.queries["lock"], (wanted,)).close()


def line(connection: Connection, *members: int) -> None:
    """Lock sessions, their ancestors and their descendants."""
    locked: set[int] = set()
    while True:
        found = {key for each in members for (key,) in every(connection, connection.queries["line_of"], each)}
        if found <= locked:
            return
        keys(connection, found)
        locked |= found


def line_at_once(connection: Connection, key: int) -> bool:
    """Lock a session with its ancestors and descendants, if no other transaction has locked one of them."""
    locked: set[int] = set()
    while True:
        found = {member for (member,) in every(connection, connection.queries["line_of"], key)}
        if found <= locked:
            return True
        locked |= {member for (member,) in every(connection, connection.queries["lock_free"], sorted(found))}
        if not found <= locked:
            return False


def line_of(session_id: str) -> Lock:
    """Return what locks the line of a session, if it exists."""

    def lock(connection: Connection) -> None:
        found = one(connection, connection.queries["key_of"], session_id)
        if found is not None:
            line(connection, found[0])

    return lock


def one_of(session_id: str) -> Lock:
    """Return what locks one session, if it exists."""

    return lambda connection: connection.execute(connection.queries["lock_one"], (session_id,)).close()


def schedules(connection: Connection) -> None:
    """Lock the table of schedules against other writers. They are few, and a new one has no row yet."""
    connection.execute(connection.queries["lock_schedules"])


def keyed(*wanted: int) -> Lock:
    """Return what locks sessions by key."""
    return lambda connection: keys(connection, wanted)


def lines(*members: int) -> Lock:
    """Return what locks the lines of sessions by key."""
    return lambda connection: line(connection, *members)


def of_new(new: NewSession) -> Lock | None:
    """Return what locks the parent of a new session, and the drawers that it copies."""
    wanted = [] if new.parent is None else [keyed(new.parent)]
    wanted += [] if new.drawers_of is None else [drawers_of(new.drawers_of)]

    def lock(connection: Connection) -> None:
        for each in wanted:
            each(connection)

    return lock if wanted else None


def of_commit(commit: Commit) -> Lock:
    """Return what locks the session of a commit, and its ancestors if its parent gets a report.

    What it spends locks no ancestor: it is appended to the charges.
    """
    reports = commit.parent is not None and commit.report is not None
    return lines(commit.key) if reports else keyed(commit.key)


def of_answer(given: Answer) -> Lock:
    """Return what locks the sessions that an answer may reach."""
    if given.question is None:
        return line_of(given.session_id or "")

    def lock(connection: Connection) -> None:
        try:
            id = UUID(given.question).bytes
        except ValueError:
            return
        found = one(connection, connection.queries["key_of_question"], id)
        if found is not None:
            line(connection, found[0])
        if given.session_id:
            line_of(given.session_id)(connection)

    return lock


def matching(connection: Connection, query: Filter, present: Present) -> Filter:
    """Lock the sessions that match, and return a filter that finds no others."""
    ids: list[str] = []
    found: list[tuple[str, int]] = []
    while not set(now := sessions.ids(connection, query, present)) <= set(ids):  # a child may have joined meanwhile
        ids = now
        found = every(connection, connection.queries["keys"], ids)
        keys(connection, [key for _, key in found])
    if query.session_id is not None:
        line(connection, *[key for id, key in found if id == query.session_id])
        return query
    return msgspec.structs.replace(query, ids=tuple(ids), tree=False)


def request(key: str) -> Lock:
    """Return what lets one engine at a time decide about a request by key."""
    return lambda connection: connection.execute(connection.queries["lock_request"], (key,)).close()


def drawer(id: DrawerId) -> Lock:
    """Return what lets one engine at a time write to a drawer. Its session, if it has one, is not removed meanwhile.

    It raises `UnknownSession` if there is no such session: one that appears afterwards would not be locked.
    """

    def lock(connection: Connection) -> None:
        key = drawers.session_of(connection, id, "lock_drawer_session")
        connection.execute(connection.queries["share_drawers"], (str(key),)).close()
        connection.execute(connection.queries["lock_drawer"], (str(key), id.name)).close()

    return lock


def drawers_of(*keys: int) -> Lock:
    """Return what keeps the drawers of sessions as they are, and lets no engine create one.

    The sessions are not removed meanwhile.
    """

    def lock(connection: Connection) -> None:
        for key in keys:
            connection.execute(connection.queries["drawer_source"], (key,)).close()
            connection.execute(connection.queries["lock_drawers"], (str(key),)).close()

    return lock
