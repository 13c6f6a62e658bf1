"""The verbs of `Engine` that start, pause, resume and cancel sessions, and those that answer their questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from typing_extensions import TypeVar

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.bulk import JOBS
from pausepoint.engine.bulk_run import OnProgress
from pausepoint.engine.filters import Statuses, When
from pausepoint.engine.guests import Visitor
from pausepoint.engine.session import Session
from pausepoint.model.budgets import Amount
from pausepoint.model.bulk import BulkReport
from pausepoint.model.ids import SessionId
from pausepoint.model.questions import Question, Receipt
from pausepoint.model.sessions import PauseMode, Status
from pausepoint.model.views import Listing, SessionInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.parts import Parts

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state


class ControlVerbs:
    """The verbs that change sessions. Each is carried out by a part of the engine."""

    _parts: Parts

    @overload
    def session(self, session_id: str, *, owner: str | None = None) -> Session[Any]: ...
    @overload
    def session(self, session_id: str, workflow: Workflow[S, R], *, owner: str | None = None) -> Session[S, R]: ...
    def session(
        self, session_id: str, workflow: Workflow[Any] | None = None, *, owner: str | None = None
    ) -> Session[Any]:
        """Return a handle on a session, with the verbs for it. Reads nothing: `Session.info` raises `UnknownSession`.

        Pass ``workflow`` to get a typed state; `Session.state` and `Session.outcome` then raise `UnknownSession` if the
        session belongs to another workflow. Pass ``owner`` to keep users apart: every verb of the handle then checks
        the owner in its own transaction, and raises `WrongOwner` if the session belongs to someone else. A session
        without an owner is open to everyone.
        """
        return self._parts.control.session(session_id, workflow, owner=owner)

    async def start(
        self, workflow: Workflow[S, R], state: S | None = None, /, *,
        session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
        budget: Amount | None = None, at_step: str | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
        folder: str | Path | None = None, queue: str | None = None, priority: int | None = None,
        lane: str | None = None, **fields: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a session, run it in the background, and return a handle on it.

        Pass the input as a ``state`` or as keyword ``fields``. If a session with this ``session_id`` exists and has the
        same input, it is resumed; if the input differs, `InputConflict` is raised.

        - ``session_id``: by default a new random id.
        - ``owner``, ``tags``: stored with the session, to find and filter sessions.
        - ``budget``: the most the session and its children may spend: a number of dollars, or a `Budget`. The session
          pauses when it is spent.
        - ``at_step``: start at a later step. The earlier steps are recorded as skipped.
        - ``paused``, with ``reason`` and ``by``: store the session paused instead of running it.
        - ``keep_for``: how long after its last update `gc` may remove the session. The default is the engine's;
          ``timedelta.max`` means forever.
        - ``folder``: the folder for its artifacts. Required if its steps publish any.
        - ``queue``, ``priority``: by default those of the workflow. The lowest number goes first. Workers can drive the
          sessions of some queues only.
        - ``lane``: among sessions of the same priority, lanes take turns; by default the ``owner``.

        If a `limit` leaves no slot, the session is stored ready, and an engine picks it up when a slot is free.
        """
        return await self._parts.control.start(
            workflow, state, session_id=session_id, owner=owner, tags=tags, budget=budget, at_step=at_step,
            paused=paused, reason=reason, by=by, keep_for=keep_for, folder=folder, queue=queue, priority=priority,
            lane=lane, **fields,
        )  # fmt: skip

    def visit(
        self, workflow: Workflow[S], *, session_id: str | None = None, input: S | Mapping[str, Any] | None = None,
        owner: str | None = None, tags: str | Sequence[str] = (), budget: Amount | None = None,
        by: str | None = None, keep_for: timedelta | None = None,
    ) -> Visitor[S]:  # fmt: skip
        """Run the code of a guest session: the block of ``async with engine.visit(…) as ctx:``.

        On a blocking engine, it is the block of ``with engine.visit(…) as ctx:``.

        ``workflow`` comes from `Workflow.guest`. The first visit creates the session with ``input``, a state or a
        mapping of fields; later ones continue it, and finished operations return immediately. No engine and no worker
        ever runs the block: a pause, an answer or a timer takes effect with the next operation or the next visit.

        Set ``ctx.output`` to a dict of the fields to write. When the block ends, the session is completed. If the block
        raises an exception, the session has failed, and the next visit tries again. If the session must stop, for a
        pause, a question or a spent budget, the operation raises a signal that ``except Exception`` does not catch, and
        the block raises `Parked`.

        - ``session_id``: by default a new random id. ``owner``, ``tags``, ``budget``, ``keep_for``: as for `start`.
        - ``by``: who visits, recorded in the history.

        Raises `Parked` if the session is paused or waits, `SessionEnded` if it has ended, and `AlreadyRunning` if
        another visit is open.
        """
        return self._parts.control.visit(
            workflow, session_id=session_id, input=input, owner=owner, tags=tags, budget=budget, by=by,
            keep_for=keep_for,
        )  # fmt: skip

    async def rebuild(
        self, folder: str | Path, workflow: Workflow[S, R], /, *, session_id: str | None = None,
        incomplete: Literal["accept"] | None = None, by: str | None = None, **given: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Return the session of an artifact folder. If this store does not have it, create it from the folder.

        No step runs. The session's position comes from the folder's completion records or, without them, from its
        files. In the second case ``given`` is the input that no file contains. If the files do not determine the
        position, `FolderRefused` is raised; pass ``incomplete="accept"`` to continue with the first step that is not
        known to be done. The folder is not changed.
        """
        return await self._parts.control.rebuild(
            folder, workflow, session_id=session_id, incomplete=incomplete, by=by, **given,
        )  # fmt: skip

    async def take_ready(self, limit: int = 100, *, by: str | None = None) -> list[SessionId]:
        """Pick up to ``limit`` ready sessions of the registered workflows, drive them here, and return their ids.

        A session is ready if it was interrupted, if its timer is due, or if what it waits for has arrived. Sessions of
        processes that died are ready too. Sessions of schedules that are due start as well. As with `take_up`, nothing
        is withdrawn: paused and failed sessions stay as they are. Finding the sessions costs the same, however many are
        stored. ``by`` is recorded in the history.
        """
        return await self._parts.control.take_ready(limit, by=by)

    async def lift_pause(self, *, by: str | None = None) -> Listing[SessionInfo]:
        """Lift the pause of everything and return the first `PAGE` sessions that it alone had paused, newest first.

        Sessions that it stopped resume here, or in another running process that has their workflow; the others are as
        they were before the pause. Sessions that were also paused individually stay paused.
        """
        return await self._parts.control.lift_pause(by=by)

    async def idle(self, *session_ids: str) -> None:
        """Wait until this engine drives none of these sessions. Without ids, wait until it drives no session."""
        return await self._parts.control.idle(*session_ids)

    @overload
    async def resume(
        self, session_id: str, *, by: str | None = None, owner: str | None = None, steal: bool = False,
        budget: Amount | None = None, wake: bool = False, code: Literal["accept"] | None = None,
        until: str | None = None, edits: Literal["accept", "discard"] | None = None, rerun: str | Sequence[str] = (),
        here: bool = True,
    ) -> Session[Any]: ...  # fmt: skip
    @overload
    async def resume(
        self, *, ids: Sequence[str] | None = None, status: Statuses = None, failed: bool | None = None,
        workflow: str | None = None, tag: str | None = None, owner: str | None = None, since: When | None = None,
        until: When | None = None, queue: str | None = None,
        by: str | None = None, budget: Amount | None = None, wake: bool = False, code: Literal["accept"] | None = None,
        edits: Literal["accept", "discard"] | None = None, here: bool = True, jobs: int = JOBS, dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> BulkReport: ...  # fmt: skip
    async def resume(
        self, session_id: str | None = None, *, by: str | None = None, owner: str | None = None, steal: bool = False,
        budget: Amount | None = None, wake: bool = False, code: Literal["accept"] | None = None,
        until: str | When | None = None, edits: Literal["accept", "discard"] | None = None,
        rerun: str | Sequence[str] = (), here: bool = True, ids: Sequence[str] | None = None, status: Statuses = None,
        failed: bool | None = None, workflow: str | None = None, tag: str | None = None, since: When | None = None,
        queue: str | None = None, jobs: int = JOBS, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> Session[Any] | BulkReport:  # fmt: skip
        """Resume a session in this process, exactly where it stopped, and return a handle on it.

        Operator pauses are closed. The conditions of other pauses, such as a budget, are checked again. A session that
        waits or sleeps continues to do so. A completed session is returned unchanged.

        - ``by``: the person who resumes, recorded in the history.
        - ``owner``: raise `WrongOwner` if the session belongs to someone else.
        - ``steal``: take the session over from the process that drives it. Otherwise `AlreadyRunning` is raised.
        - ``budget``: a new budget: a number of dollars, or a `Budget`. A limit that it does not name stays.
        - ``wake``: end its open timers now.
        - ``code="accept"``: resume although steps before the session's position have changed, or a migration is
          missing, and run strict calls whose arguments have changed. Without it, the session pauses with the reason.
        - ``until``: the step after which the session pauses again, if it gets there while this engine drives it.
        - ``edits``: ``"accept"`` adopts edited artifacts, ``"discard"`` restores the recorded content. Without it,
          `UndecidedEdits` is raised if the edits would make finished steps stale.
        - ``rerun``: finished steps to run again, together with all steps that read what they wrote.
        - ``here=False``: only close the pauses. The session becomes due, and an open engine that has its workflow picks
          it up, which pauses it again if the reason persists. A failed session is ready again. The workflow need not be
          registered here.

        A guest session (see `visit`) is never driven by a resume: all its pauses are closed, with ``wake`` its timers
        end, and its program continues it with its next visit.

        **Without an id**, resume all sessions that match, and return a `BulkReport`. Failed sessions are retried::

            report = await engine.resume(status="failed", tag="night")

        - ``ids``: the sessions, by id. Those that have ended are skipped; those that do not exist are in ``failed``.
        - ``status``, ``failed``, ``workflow``, ``tag``, ``owner``, ``queue``, ``since``, ``until``: the filters, as
          for `sessions`. Give at least one, or ``ids``; all must match. Without ``status`` and ``ids``, completed and
          cancelled sessions do not match.
        - ``jobs``: how many sessions to drive at a time. The call returns when each of them has stopped: it has ended,
          or it is paused, waits, or sleeps for more than 5 seconds.
        - ``here=False``: return when the sessions are due. ``unattended`` of the report names workflows whose sessions
          no open engine took up within 1.5 seconds.
        - ``dry_run``: report what would be resumed and what would be skipped, and change nothing.
        - ``on_progress``: a function that is called with a `BulkProgress` before and after each session.
        - ``by``, ``budget``, ``wake``, ``code``, ``edits``: as above, for each session.

        Sessions that are running, wait or sleep are skipped, and so are guests, unless they are paused. A child whose
        parent matches too is left to its parent. One session that fails does not stop the others.
        """
        return await self._parts.bulk.resume(
            session_id, by=by, owner=owner, steal=steal, budget=budget, wake=wake, code=code, until=until, edits=edits,
            rerun=rerun, here=here, ids=ids, status=status, failed=failed, workflow=workflow, tag=tag, since=since,
            queue=queue, jobs=jobs, dry_run=dry_run, on_progress=on_progress,
        )  # fmt: skip

    @overload
    async def pause(
        self, session_id: str, *, reason: str = "", by: str | None = None, mode: PauseMode = "finish",
        freeze: bool = False, wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]: ...  # fmt: skip
    @overload
    async def pause(
        self, *, everything: Literal[True], reason: str = "", by: str | None = None, mode: PauseMode = "finish",
        freeze: bool = False, wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]: ...  # fmt: skip
    @overload
    async def pause(
        self, *, ids: Sequence[str] | None = None, status: Statuses = None, failed: bool | None = None,
        workflow: str | None = None, tag: str | None = None, owner: str | None = None, since: When | None = None,
        until: When | None = None, queue: str | None = None,
        reason: str = "", by: str | None = None, mode: PauseMode = "finish", freeze: bool = False, wait: bool = False,
        timeout: float | timedelta | None = None, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> BulkReport: ...  # fmt: skip
    async def pause(
        self, session_id: str | None = None, *, everything: bool = False, ids: Sequence[str] | None = None,
        status: Statuses = None, failed: bool | None = None, workflow: str | None = None, tag: str | None = None,
        owner: str | None = None, queue: str | None = None,
        since: When | None = None, until: When | None = None, reason: str = "", by: str | None = None,
        mode: PauseMode = "finish", freeze: bool = False, wait: bool = False,
        timeout: float | timedelta | None = None, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> Listing[SessionInfo] | BulkReport:  # fmt: skip
        """Pause one session with its children, all sessions that match, or everything.

        Sessions stop at their next safe point. For one session, return it and its children. Of everything, return the
        first `PAGE` sessions, those that are still driven first. Sessions that have ended are returned with their
        status. For filters, return a `BulkReport`.

        - ``ids``, ``status``, ``failed``, ``workflow``, ``tag``, ``owner``, ``queue``, ``since``, ``until``: pause all
          sessions that match, each with its children. The filters are those of `sessions`; without ``status``, ended
          sessions do not match.
          Failed sessions do not run anyway: they are skipped and stay failed. ``dry_run`` reports what would be paused
          and changes nothing; ``on_progress`` is as for `resume`.
        - ``everything=True``: pause all sessions until `lift_pause`; sessions that any process starts meanwhile are
          stored paused. Failed sessions stay failed. If another process keeps a SQLite store locked, the pause takes
          effect at once, a warning names that process, and the call returns when the pause is stored.
        - ``reason``, ``by``: recorded with the pause.
        - ``mode``: ``"finish"`` lets a running step stop at a safe point; ``"abort"`` cancels the step, and a resume
          runs it again.
        - ``freeze``: stop the sessions' timers too, so that they are due later by the length of the pause.
        - ``wait``: return when every one of them has stopped. From then on nothing begins until a resume. With
          ``timeout``, in seconds or as a timedelta, return after that time; ``working`` of the result then names the
          sessions that are still worked on, by which process and with what. Without ``wait``, an operation that a
          process admitted just before the pause was stored may still begin.

        Damaged sessions are paused too, and are listed in ``damaged`` or ``failed`` of the result. If the session you
        named is damaged, its `DamagedRecord` is raised after the pause is stored.
        """
        return await self._parts.bulk.pause(
            session_id, everything=everything, ids=ids, status=status, failed=failed, workflow=workflow, tag=tag,
            owner=owner, queue=queue, since=since, until=until, reason=reason, by=by, mode=mode, freeze=freeze,
            wait=wait, timeout=timeout, dry_run=dry_run, on_progress=on_progress,
        )  # fmt: skip

    @overload
    async def cancel(self, session_id: str, *, reason: str = "", by: str | None = None) -> Status: ...
    @overload
    async def cancel(
        self, *, ids: Sequence[str] | None = None, status: Statuses = None, failed: bool | None = None,
        workflow: str | None = None, tag: str | None = None, owner: str | None = None, since: When | None = None,
        until: When | None = None, queue: str | None = None,
        reason: str = "", by: str | None = None, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> BulkReport: ...  # fmt: skip
    async def cancel(
        self, session_id: str | None = None, *, ids: Sequence[str] | None = None, status: Statuses = None,
        failed: bool | None = None, workflow: str | None = None, tag: str | None = None, owner: str | None = None,
        queue: str | None = None, since: When | None = None,
        until: When | None = None, reason: str = "", by: str | None = None, dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Status | BulkReport:  # fmt: skip
        """Cancel a session and its children, and return its status. What it has done stays readable.

        Sessions that no process drives end immediately, all in one transaction; a running one at its next safe point.
        A session that has completed or was cancelled is not changed, but what is still open below it ends too.

        **Without an id**, cancel all sessions that match, each with its children, and return a `BulkReport`. The
        filters are those of `resume`; give at least one. Without ``status`` and ``ids``, ended ones do not match.
        ``dry_run`` reports what would be cancelled and changes nothing; ``on_progress`` is as for `resume`.
        """
        return await self._parts.bulk.cancel(
            session_id, ids=ids, status=status, failed=failed, workflow=workflow, tag=tag, owner=owner, queue=queue,
            since=since, until=until, reason=reason, by=by, dry_run=dry_run, on_progress=on_progress,
        )  # fmt: skip

    async def question(self, question_id: str) -> Question:
        """Return one question, with the state, the step's finished operations and the chat history at that time.

        Raises `UnknownQuestion` if there is no question with this id.
        """
        return await self._parts.questions.question(question_id)

    async def answer(
        self, question_id: str, value: Any, *, by: str | None = None, channel: str = "", seen: str | None = None
    ) -> Receipt:
        """Answer a question and return a receipt.

        The first answer counts. The same answer again gets the same receipt; a different one raises `AnswerConflict`.

        Without the question's id, use `Session.answer`.

        - ``by``, ``channel``: the person who answers, and how. Both are recorded.
        - ``seen``: the `Question.digest` that the person saw. If the session asks something else by now,
          `QuestionChanged` is raised.

        Raises a `QuestionError` if the answer is not accepted, for example `UnknownQuestion`, `QuestionClosed` or
        `AnswerRefused`. Refused answers are recorded in the session's history.
        """
        return await self._parts.questions.answer(
            question_id, value, by=by, channel=channel, seen=seen,
        )  # fmt: skip
