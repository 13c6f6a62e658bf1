"""What a person may see. Every handler asks here before it calls a verb, because the engine checks no owners.

A session of another owner does not exist for a person with an owner: the answer is the same as for an unknown id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.errors import QuestionClosed, UnknownQuestion, UnknownSession
from pausepoint.model.sessions import QuestionStatus
from pausepoint.server.people import Person
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.questions import Question
    from pausepoint.model.stores import Tombstone
    from pausepoint.model.views import SessionInfo


class Access:
    """One person's view of the store."""

    def __init__(self, engine: Engine, person: Person | None) -> None:
        self.engine = engine
        self._person = person

    @property
    def person(self) -> Person:
        assert self._person is not None
        return self._person

    async def info(self, session_id: str) -> SessionInfo:
        """Return the facts of a session that this person may see.

        Raises `UnknownSession` otherwise, and a 410 if the session was removed.
        """
        try:
            info = await self.engine.session(session_id).info()
        except UnknownSession:
            stones = await self.engine.tombstones(session_id)
            if stones and self.owner in (None, stones[-1].owner) and self.person.role != "answerer":
                raise gone(stones[-1]) from None
            raise
        if not await self._sees(info):
            raise UnknownSession("", session_id=session_id)
        return info

    async def _sees(self, info: SessionInfo) -> bool:
        if self.person.role == "answerer" and not await self._asks(info):
            return False
        return self.owner in (None, info.owner)  # children have the owner of their root

    async def _asks(self, info: SessionInfo) -> bool:
        """Return whether a session, or one of its children, has an open question that this answerer may answer."""
        found = await self.engine.session(info.session_id).questions()
        return any(self.person.question in (None, each.id) for each in found)

    async def question(self, question_id: str) -> Question:
        """Return a question that this person may see. Raises `UnknownQuestion` otherwise."""
        if self.person.question not in (None, question_id):
            raise UnknownQuestion("", session_id="", question_id=question_id)
        found = await self.engine.question(question_id)
        if self.owner not in (None, found.owner):
            raise UnknownQuestion("", session_id="", question_id=question_id)
        if self.person.question is not None and found.status is not QuestionStatus.WAITING:
            raise QuestionClosed(
                "The question of this link is answered or closed, so the link has ended.",
                session_id=found.session_id, question_id=question_id, status=found.status.value,
            )  # fmt: skip
        return found

    @property
    def owner(self) -> str | None:
        """The only owner whose sessions this person sees; None if the person sees all."""
        return self.person.owner

    def owner_of(self, asked: str | None) -> str | None:
        """Return the owner for a filter or a new session. Raises a 403 if the person asks for another owner."""
        if self.owner is None:
            return asked
        if asked not in (None, self.owner):
            raise Problem(403, f"You may use the sessions of {self.owner!r} only. Leave out the owner.")
        return self.owner

    def check_sees_all(self) -> None:
        """Raise a 403 if the person is limited to the sessions of an owner."""
        if not self.person.sees_all:
            raise Problem(
                403,
                "This concerns the sessions of all owners, and you are signed in for one owner. Ask the operator of the"
                " server.",
            )


def gone(stone: Tombstone) -> Problem:
    """Return the answer to a request for a removed session, with its tombstone."""
    from pausepoint.server.documents import tombstone

    by = f" by {stone.by}" if stone.by else ""
    return Problem(
        410, f"Session {stone.session_id!r} was removed{by}. Only its tombstone is left.", "removed-session",
        tombstone=tombstone(stone),
    )  # fmt: skip
