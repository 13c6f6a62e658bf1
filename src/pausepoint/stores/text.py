"""Text that every store can hold: it has neither NUL nor lone surrogates. U+FFFD stands for such a character.

Postgres cannot store them. All stores replace them, so that a session is the same in each. What a checksum or a digest
covers must be replaced before it is computed, at the door of the store.
"""

from __future__ import annotations

import re
from typing import overload

from msgspec.structs import replace

from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.schedules import Schedule
from pausepoint.model.sessions import Pause
from pausepoint.model.stores import Whole

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
def storable(text: str | None) -> str | None:
    """Return a text as it can be stored.

    >>> storable("a\\0b")
    'a\ufffdb'
    """
    return None if text is None else _UNSTORABLE.sub("\ufffd", text)


def of_session(new: NewSession) -> NewSession:
    """Return a new session with text that can be stored."""
    pause = None if new.pause is None else of_pause(new.pause)
    tags = tuple(map(storable, new.tags))
    return replace(new, owner=storable(new.owner), lane=storable(new.lane), tags=tags, pause=pause)


def of_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule with text that can be stored."""
    said = {name: storable(getattr(schedule, name)) for name in ("owner", "by", "triggered_by", "paused_by", "lane")}
    return replace(schedule, tags=tuple(map(storable, schedule.tags)), **said)


def of_pause(pause: Pause) -> Pause:
    """Return a pause with text that can be stored."""
    return replace(pause, reason=storable(pause.reason), by=storable(pause.by), closed_by=storable(pause.closed_by))


def of_whole(whole: Whole) -> Whole:
    """Return an exported session with text that can be stored. Its signals stay: a digest covers their authors."""
    row = whole.row
    row = replace(row, owner=storable(row.owner), lane=storable(row.lane), tags=tuple(map(storable, row.tags)))
    return replace(whole, row=row, pauses=[of_pause(each) for each in whole.pauses])


def of_commit(commit: Commit) -> Commit:
    """Return a commit with text that can be stored. Most commits carry none that a person wrote."""
    if commit.closed_by is None and not commit.open_pauses:
        return commit
    return replace(commit, closed_by=storable(commit.closed_by), open_pauses=tuple(map(of_pause, commit.open_pauses)))
