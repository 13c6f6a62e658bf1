"""`Session`: a handle on one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypeVar

from pausepoint.engine.base import Until, owned
from pausepoint.engine.questions import Statuses
from pausepoint.engine.session_verbs import SessionVerbs
from pausepoint.errors import UnknownSession
from pausepoint.model.budgets import Amount
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import facts
from pausepoint.model.questions import Question, Receipt
from pausepoint.model.sessions import Event, PauseMode, QuestionStatus, Status
from pausepoint.model.views import Listing, Outcome, SessionInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.engine import Engine
    from pausepoint.engine.verify import Verification
    from pausepoint.runtime.driver import Run
    from pausepoint.runtime.files import Files

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state


class Session(SessionVerbs, Generic[S, R]):
    """A handle on one session: its id and the engine's verbs for it. It holds no other data.

    With an ``owner``, every verb raises `WrongOwner` if the session belongs to someone else. See `Engine.session`.
    """

    def __init__(
        self,
        engine: Engine,
        session_id: SessionId,
        run: Run | None = None,
        owner: str | None = None,
        workflow: str | None = None,
    ) -> None:
        self._engine = engine
        self._parts = engine._parts
        self._run = run
        self._workflow = workflow
        self._ref = owned(session_id, owner)
        self.id = session_id
        self.owner = owner

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    async def _check_workflow(self) -> None:
        """Raise `UnknownSession` if the session belongs to another workflow than the one of this handle."""
        if self._workflow is None:
            return
        row = await self._parts.queries.service.row(self._ref)
        if row.workflow != self._workflow:
            raise UnknownSession(
                f"Session {self.id!r} belongs to workflow {row.workflow!r}, not {self._workflow!r}. Check the id, or"
                " leave out the workflow.",
                session_id=self.id,
            )

    @property
    def files(self) -> Files:
        """The session's files."""
        return self._parts.control.files(self._ref)

    async def info(self) -> SessionInfo:
        """Return the session's facts: status, position, owner, times and cost."""
        return await self._parts.queries.info(self._ref)

    async def status(self) -> Status:
        """Return the session's status."""
        return (await self._parts.queries.info(self._ref)).status

    async def state(self, at_checkpoint: int | str | None = None) -> S:
        """Return the session's state at its last checkpoint, or at an earlier one.

        ``at_checkpoint`` is a visit such as ``"write#2"``, or a checkpoint's number. See `Engine.state`.
        """
        await self._check_workflow()
        return cast(S, await self._parts.queries.state(self._ref, at_checkpoint))

    async def outcome(self) -> Outcome[S, R]:
        """Wait until the session stops, and return its outcome: completed, failed, cancelled, paused, waiting or ready.

        A session is ready if a shutdown stopped it. See `Engine.outcome`.
        """
        await self._check_workflow()
        return cast("Outcome[S, R]", await self._parts.queries.outcome(self._ref, self._run))

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait until the session has ended, and return its result: what the function returned, or the final state.

        It keeps waiting while the session is paused, sleeps, or waits for a person, and follows the session into other
        processes. A session that failed or was cancelled raises `NotFinished`, whose message has the error. So does a
        session that has not ended after ``timeout``, in seconds; the message says what the session waits for.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._check_workflow()
                outcome = await self._parts.queries.outcome(self._ref, self._run, until="ended")
        except TimeoutError:
            if not limit.expired():
                raise
            outcome = await self._parts.queries.outcome(self._ref, wait=False)
        return cast("R", outcome.result)

    async def pause(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False,
        wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Status:  # fmt: skip
        """Pause the session and its children at their next safe point, and return the status.

        ``mode="abort"`` cancels the running step instead; a resume runs it again. ``freeze`` stops the session's timers
        too. ``wait`` returns when they have stopped, at most after ``timeout``. ``reason`` and ``by`` are recorded. See
        `Engine.pause`.
        """
        found = await self._parts.pauses.pause(
            self._ref, reason=reason, by=by, mode=mode, freeze=freeze, wait=wait, timeout=timeout
        )
        return found[0].status

    async def resume(
        self,
        *,
        by: str | None = None,
        owner: str | None = None,
        steal: bool = False,
        budget: Amount | None = None,
        wake: bool = False,
        code: Literal["accept"] | None = None,
        until: str | None = None,
        edits: Literal["accept", "discard"] | None = None,
        rerun: str | Sequence[str] = (),
        here: bool = True,
    ) -> Session[S, R]:
        """Resume the session in this process, exactly where it stopped.

        - ``steal``: take the session over from the process that drives it.
        - ``budget``: a new budget, in dollars or as a `Budget`. ``wake``: end open timers now.
        - ``code="accept"``: resume although steps before the session's position have changed, and run strict calls
          whose arguments have changed.
        - ``until``: the step after which the session pauses again.
        - ``edits``: ``"accept"`` or ``"discard"`` edited artifacts. ``rerun``: finished steps to run again.
        - ``here=False``: only close the pauses and leave the session to an open engine that has its workflow.

        See `Engine.resume` for details and errors.
        """
        resumed = await self._parts.control.resume(
            self._ref, by=by, owner=owner, steal=steal, budget=budget, wake=wake, code=code, until=until, edits=edits,
            rerun=rerun, here=here,
        )  # fmt: skip
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """Cancel the session and its children: immediately if no process drives it, else at its next safe point."""
        return await self._parts.pauses.cancel(self._ref, reason=reason, by=by)

    async def send(
        self, value: Any, *, key: str | int | None = None, by: str | None = None, channel: str = "",
        seen: str | None = None,
    ) -> Status:  # fmt: skip
        """Send a message. It answers the open question if there is one; otherwise the next ``ctx.receive`` gets it.

        With ``key``, the message is delivered once, however often you repeat the call. With ``seen``, the digest of the
        question that its author saw, it answers no other question. See `Engine.send`.
        """
        return await self._parts.questions.send(self._ref, value, key=key, by=by, channel=channel, seen=seen)

    async def questions(self, status: Statuses = QuestionStatus.WAITING) -> Listing[Question]:
        """Return the open questions of the session and its children; with ``status=None``, all its questions."""
        return await self._parts.questions.questions(self._ref, status=status)

    async def answer(
        self, value: Any, *, question: str | None = None, key: str | int | None = None, by: str | None = None,
        channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer the open question, or the one with this id (``question``) or ``key``. See `Engine.answer`."""
        return await self._parts.questions.answer(
            question, value, session_id=self._ref, key=key, by=by, channel=channel, seen=seen
        )  # fmt: skip

    async def ask_again(
        self, question_id: str | None = None, /, *, by: str | None = None, reason: str = ""
    ) -> Status:  # fmt: skip
        """Ask a question again, and return the session's status. A resume then asks it; finished operations are kept.

        By default it is the only question that was declined or got no valid answer. See `Engine.ask_again`.
        """
        return await self._parts.time_travel.ask_again(self._ref, question_id, by=by, reason=reason)

    async def fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        session_id: str | None = None, reuse: bool = False, owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: Amount | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a new session from this one's present state, or from its state before visit ``at_step``.

        The new session runs in the background, unless ``paused``. This session may have any status and is not changed.
        With ``paused`` and without changes, the workflow need not be registered with this engine.

        - ``at_step``: a visit, as for `rewind`. By default the fork continues where this session is now.
        - ``changes`` and keywords: changes of the state, as for `edit`.
        - ``reuse``: keep the finished operations of the visit, so that only the rest runs again.
        - ``owner``, ``tags``, ``budget``: by default those of this session.
        - ``folder``: the folder for its artifacts, if its steps publish any.
        """
        forked = await self._parts.control.fork(
            self._ref, at_step, changes, session_id=session_id, reuse=reuse, owner=owner, tags=tags, budget=budget,
            paused=paused, reason=reason, by=by, folder=folder, **named,
        )  # fmt: skip
        return Session(self._engine, forked.id, forked._run, self.owner and (owner or self.owner), self._workflow)

    def events(self, after: str = "", *, follow: bool = False, until: Until = "ended") -> AsyncIterator[Event]:
        """Yield the session's events after a cursor. With ``follow``, keep yielding new ones until the session ends.

        With ``until="parked"``, following also ends when the session is paused, has failed, or waits for a message or
        an answer. See `Engine.events`.
        """
        return self._parts.queries.events(self._ref, after, follow=follow, until=until)

    async def verify(self) -> Verification:
        """Check all stored data of the session for damage, and return what was found."""
        return await self._parts.retention.verify(self._ref)
