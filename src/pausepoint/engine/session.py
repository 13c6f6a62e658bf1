"""`Session`: a handle on one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypeVar

from pausepoint.engine.base import Until, owned
from pausepoint.engine.creation import Opening
from pausepoint.engine.filters import QuestionStatuses
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
    from pausepoint.runtime.driver import Run
    from pausepoint.runtime.files import Files

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state


class Session(SessionVerbs, Generic[S, R]):
    """A handle on one session: its id and the engine's verbs for it. It holds no other data.

    With an ``owner``, every verb raises `WrongOwner` if the session belongs to someone else. See `Engine.session`.
    """

    def __init__(
        self, engine: Engine, session_id: SessionId, owner: str | None = None, workflow: str | None = None
    ) -> None:
        self._engine = engine
        self._parts = engine._parts
        self._run: Run | None = None  # its drive in this engine, if it has one
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
        """Return the session's facts, such as status, position and cost, without reading its state.

        Raises `UnknownSession` if there is no such session.
        """
        return await self._parts.queries.info(self._ref)

    async def status(self) -> Status:
        """Return the session's status."""
        return (await self._parts.queries.info(self._ref)).status

    async def state(self, at_checkpoint: int | str | None = None) -> S:
        """Return the session's state at its last checkpoint, or at an earlier one.

        ``at_checkpoint`` is a visit (``"write#2"``, or ``"write"`` for the last one) or the number of any record of the
        log. The workflow must be registered; use `stored` if it is not. Raises `UnknownCheckpoint` if there is no such
        checkpoint, and `StateRefused` if the model does not accept the stored state.
        """
        await self._check_workflow()
        return cast(S, await self._parts.queries.state(self._ref, at_checkpoint))

    async def outcome(self, *, wait: bool = True, until: Until = "parked") -> Outcome[S, R]:
        """Wait until the session stops, and return its outcome: completed, failed, cancelled, paused, waiting or ready.

        A session has stopped when it has ended, is paused, or waits for a message or an answer. It is ready if a
        shutdown stopped it. While a timer runs or a child works, this keeps waiting. If this engine could not continue
        driving, it raises the error that broke the drive. If a signal to a server stops the engine, the outcome has the
        session's status at that time.

        ``until="ended"`` waits until the session has ended, also through pauses and waits for people. ``wait=False``
        returns the present outcome immediately, whatever the session does.
        """
        await self._check_workflow()
        outcome = await self._parts.queries.outcome(self._ref, self._run, wait=wait, until=until)
        return cast("Outcome[S, R]", outcome)

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
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Pause the session and its children at their next safe point. Return its facts first, then the children's.

        Sessions that have ended are returned with their status.

        - ``reason``, ``by``: recorded with the pause.
        - ``mode``: ``"finish"`` lets a running step stop at a safe point; ``"abort"`` cancels the step, and a resume
          runs it again.
        - ``freeze``: stop the sessions' timers too, so that they are due later by the length of the pause.
        - ``wait``: return when every one of them has stopped. From then on nothing begins until a resume. With
          ``timeout``, in seconds or as a timedelta, return after that time; ``working`` of the result then names the
          sessions that are still worked on, by which process and with what. Without ``wait``, an operation that a
          process admitted just before the pause was stored may still begin.

        Damaged children are paused too, and are listed in ``damaged`` of the result. If the session itself is damaged,
        its `DamagedRecord` is raised after the pause is stored.
        """
        return await self._parts.pauses.pause(
            self._ref, reason=reason, by=by, mode=mode, freeze=freeze, wait=wait, timeout=timeout
        )

    async def resume(
        self, *, by: str | None = None, steal: bool = False, budget: Amount | None = None, wake: bool = False,
        code: Literal["accept"] | None = None, pause_after: str | None = None,
        edits: Literal["accept", "discard"] | None = None, rerun: str | Sequence[str] = (), here: bool = True,
    ) -> Session[S, R]:  # fmt: skip
        """Resume the session in this process, exactly where it stopped.

        Operator pauses are closed. The conditions of other pauses, such as a budget, are checked again. A session that
        waits or sleeps continues to do so. A completed session is not changed.

        - ``by``: the person who resumes, recorded in the history.
        - ``steal``: take the session over from the process that drives it. Otherwise `AlreadyRunning` is raised.
        - ``budget``: a new budget: a number of dollars, or a `Budget`. A limit that it does not name stays.
        - ``wake``: end its open timers now.
        - ``code="accept"``: resume although steps before the session's position have changed, or a migration is
          missing, and run strict calls whose arguments have changed. Without it, the session pauses with the reason.
        - ``pause_after``: the step after which the session pauses again, if it gets there while this engine drives it.
        - ``edits``: ``"accept"`` adopts edited artifacts, ``"discard"`` restores the recorded content. Without it,
          `UndecidedEdits` is raised if the edits would make finished steps stale.
        - ``rerun``: finished steps to run again, together with all steps that read what they wrote.
        - ``here=False``: only close the pauses. The session becomes due, and an open engine that has its workflow picks
          it up, which pauses it again if the reason persists. A failed session is ready again. The workflow need not be
          registered here.

        A guest session (see `Engine.visit`) is never driven by a resume: all its pauses are closed, with ``wake`` its
        timers end, and its program continues it with its next visit.
        """
        resumed = await self._parts.control.resume(
            self._ref, by=by, steal=steal, budget=budget, wake=wake, code=code, pause_after=pause_after,
            edits=edits, rerun=rerun, here=here,
        )  # fmt: skip
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """Cancel the session and its children, and return its status. What it has done stays readable.

        Sessions that no process drives end immediately, all in one transaction; a running one at its next safe point.
        A session that has completed or was cancelled is not changed, but what is still open below it ends too.
        """
        return await self._parts.pauses.cancel(self._ref, reason=reason, by=by)

    async def take_up(self, *, fence: int | None = None, by: str | None = None) -> Session[S, R]:
        """Drive the session in this process if it is ready. Unlike `resume`, withdraw nothing.

        Use this in a program that looks for sessions to drive, such as a worker: a pause that arrives between its look
        and this call stays in effect.

        - ``fence``: the ``fence`` of the session when it was seen. If another process has driven the session since,
          `HoldLost` is raised.
        - ``by``: who picks it up, recorded in the history.

        Raises `VerbRefused` if the session is paused or has failed, `AlreadyRunning` if a process drives it, and
        `SessionEnded` if it is completed or cancelled. Raises `LimitReached` if no slot is free; an engine picks the
        session up when there is one.
        """
        taken = await self._parts.control.take_up(self._ref, fence=fence, by=by)
        self._run = taken._run or self._run
        return self

    async def send(
        self, value: Any, *, key: str | int | None = None, by: str | None = None, channel: str = "",
        seen: str | None = None, start: S | Mapping[str, Any] | None = None,
    ) -> Status:  # fmt: skip
        """Send a message and return the session's status.

        The message answers the open question if there is one; otherwise the next ``ctx.receive`` gets it. Messages are
        kept until they are received. Pass ``start``, the input of the session, to start it first if it does not exist.
        The handle then needs the workflow: ``engine.session(id, workflow).send("Hello", start={})``.

        Pass ``key`` to make the call idempotent: a message is delivered once for each key of a session, however often
        it is sent. Repeat the call with the same key if you do not know whether it took effect, for example after a
        crash or a lost connection. The same key with another value raises `AnswerConflict`.

        Pass ``seen`` to make sure that the message answers no question that its author has not seen: the
        `Question.digest` of the open question, or an empty string if none was open. If the session asks something else
        by now, `QuestionChanged` is raised. If it asks nothing, the message is delivered.

        Raises `SeveralQuestions` if several questions wait, and `QuestionClosed` for the first message after a question
        has expired, since it may be a late answer.
        """
        return await self._parts.questions.send(
            self._ref, value, key=key, by=by, channel=channel, seen=seen, new=self._start_with(start)
        )  # fmt: skip

    def _start_with(self, given: S | Mapping[str, Any] | None) -> Opening | None:
        if given is None:
            return None
        if self._workflow is None:
            raise TypeError(
                "send(start=…) needs the workflow of the new session. Pass it with the id:"
                f" engine.session({self.id!r}, workflow).send(…)."
            )
        return Opening(self._engine.workflows[self._workflow], given, self.owner)

    async def questions(self, status: QuestionStatuses = QuestionStatus.WAITING) -> Listing[Question]:
        """Return the open questions of the session and its children; with ``status=None``, all its questions."""
        return await self._parts.questions.questions(tree=self._ref, status=status)

    async def answer(
        self, value: Any, *, question: str | None = None, key: str | int | None = None, by: str | None = None,
        channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer the session's only open question, the one with this id (``question``), or the one with this ``key``.

        With a ``key``, it also works before the question is asked. See `Engine.answer` for the rest.
        """
        return await self._parts.questions.answer_of(
            self._ref, value, question=question, key=key, by=by, channel=channel, seen=seen
        )  # fmt: skip

    async def ask_again(
        self, question_id: str | None = None, /, *, by: str | None = None, reason: str = ""
    ) -> Status:  # fmt: skip
        """Ask a question of the parked session again, and return the session's status. A resume then asks it.

        Only what the question led to is forgotten: a no, a missing answer or, if you name the question, an answer. The
        other operations of its step keep their results and do not run again. The history keeps everything.

        - ``question_id``: a question of the session or of a child. By default the only one that was declined or got no
          valid answer.
        - ``by``, ``reason``: recorded in the history.

        Raises `VerbRefused` if there is nothing to ask again, if the question is still open, or if the session is
        driven; `SeveralQuestions` if you have to name one; `UnknownQuestion` and `WrongSession`.
        """
        return await self._parts.time_travel.ask_again(self._ref, question_id, by=by, reason=reason)

    async def fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        at_operation: int | str | None = None, session_id: str | None = None, reuse: bool = False,
        owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: Amount | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a new session from this one's present state, or from before visit ``at_step`` or ``at_operation``.

        The new session runs in the background, unless ``paused``. This session may have any status and is not changed.
        With ``paused`` and without changes, the workflow need not be registered with this engine.

        - ``at_step``: a visit, as for `rewind`. By default the fork continues where this session is now.
        - ``at_operation``: instead, an operation, as ``to_operation`` of `rewind`.
        - ``changes`` and keywords: changes of the state, as for `edit`.
        - ``reuse``: keep the finished operations of the visit, so that only the rest runs again.
        - ``owner``, ``tags``, ``budget``: by default those of this session.
        - ``folder``: the folder for its artifacts, if its steps publish any.
        """
        forked = await self._parts.control.fork(
            self._ref, at_step, changes, at_operation=at_operation, session_id=session_id, reuse=reuse, owner=owner,
            tags=tags, budget=budget, paused=paused, reason=reason, by=by, folder=folder, **named,
        )  # fmt: skip
        session = Session[S, R](self._engine, forked.id, self.owner and (owner or self.owner), self._workflow)
        session._run = forked._run
        return session

    def events(self, after: str = "", *, follow: bool = False, until: Until = "ended") -> AsyncIterator[Event]:
        """Yield the session's events after a cursor. With ``follow``, keep yielding new ones until the session ends.

        With ``until="parked"``, following also ends when the session stops before its end: when it is paused, has
        failed, or waits for a message or an answer. While a timer runs or a child works, it continues.

        ``after`` is the ``cursor`` of the last event you have seen. A removed session has one event,
        ``session.removed``.
        """
        return self._parts.queries.events(self._ref, after, follow=follow, until=until)
