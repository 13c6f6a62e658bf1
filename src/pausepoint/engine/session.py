"""`Session`: a handle on one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypeVar

from pausepoint.artifacts.status import ArtifactState
from pausepoint.engine.base import Until, owned
from pausepoint.engine.questions import Statuses
from pausepoint.engine.retention import DEFAULT, Redaction
from pausepoint.log.replay import Origin
from pausepoint.model.budgets import Amount
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import facts
from pausepoint.model.questions import Question, Receipt
from pausepoint.model.sessions import Event, Pause, PauseMode, QuestionStatus, Status
from pausepoint.model.stores import Tombstone
from pausepoint.model.streams import StreamItem
from pausepoint.model.views import Checkpoint, Diff, Listing, Outcome, SessionInfo, Stale, StoredState

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.contents import Version
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.plans import Plan
    from pausepoint.engine.verify import Verification
    from pausepoint.log.spans import Span
    from pausepoint.model.descriptions import Description
    from pausepoint.runtime.driver import Run
    from pausepoint.runtime.files import Files

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state


class Session(Generic[S, R]):
    """A handle on one session: its id and the engine's verbs for it. It holds no other data.

    With an ``owner``, every verb raises `WrongOwner` if the session belongs to someone else. See `Engine.session`.
    """

    def __init__(self, engine: Engine, session_id: SessionId, run: Run | None = None, owner: str | None = None) -> None:
        self._engine = engine
        self._run = run
        self._ref = owned(session_id, owner)
        self.id = session_id
        self.owner = owner

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    @property
    def files(self) -> Files:
        """The session's files."""
        return self._engine.files(self._ref)

    async def info(self) -> SessionInfo:
        """Return the session's facts: status, position, owner, times and cost."""
        return await self._engine.info(self._ref)

    async def status(self) -> Status:
        """Return the session's status."""
        return (await self._engine.info(self._ref)).status

    async def state(self, at_checkpoint: int | str | None = None) -> S:
        """Return the session's state at its last checkpoint, or at an earlier one.

        ``at_checkpoint`` is a visit such as ``"write#2"``, or a checkpoint's number. See `Engine.state`.
        """
        return cast(S, await self._engine.state(self._ref, at_checkpoint))

    async def stored(self, at_checkpoint: int | str | None = None) -> StoredState:
        """Return the stored state as plain JSON, without the workflow's code."""
        return await self._engine.stored(self._ref, at_checkpoint)

    async def outline(self) -> tuple[str, ...]:
        """Return the workflow's steps in order, as of the last run of the session, without the workflow's code."""
        return await self._engine.outline(self._ref)

    async def description(self) -> Description:
        """Return the description of the session's workflow, without its code. See `Engine.description_of`."""
        return await self._engine.description_of(self._ref)

    async def outcome(self) -> Outcome[S, R]:
        """Wait until the session stops, and return its outcome: completed, failed, cancelled, paused, waiting or ready.

        A session is ready if a shutdown stopped it. See `Engine.outcome`.
        """
        return cast("Outcome[S, R]", await self._engine.outcome(self._ref, self._run))

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
                outcome = await self._engine.outcome(self._ref, self._run, until="ended")
        except TimeoutError:
            if not limit.expired():
                raise
            outcome = await self._engine.outcome(self._ref, wait=False)
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
        found = await self._engine.pause(
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
        resumed = await self._engine.resume(
            self._ref, by=by, owner=owner, steal=steal, budget=budget, wake=wake, code=code, until=until, edits=edits,
            rerun=rerun, here=here,
        )  # fmt: skip
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """Cancel the session and its children: immediately if no process drives it, else at its next safe point."""
        return await self._engine.cancel(self._ref, reason=reason, by=by)

    async def send(
        self, value: Any, *, key: str | int | None = None, by: str | None = None, channel: str = "",
        seen: str | None = None,
    ) -> Status:  # fmt: skip
        """Send a message. It answers the open question if there is one; otherwise the next ``ctx.receive`` gets it.

        With ``key``, the message is delivered once, however often you repeat the call. With ``seen``, the digest of the
        question that its author saw, it answers no other question. See `Engine.send`.
        """
        return await self._engine.send(self._ref, value, key=key, by=by, channel=channel, seen=seen)

    async def questions(self, status: Statuses = QuestionStatus.WAITING) -> Listing[Question]:
        """Return the open questions of the session and its children; with ``status=None``, all its questions."""
        return await self._engine.questions(self._ref, status=status)

    async def answer(
        self, value: Any, *, question: str | None = None, key: str | int | None = None, by: str | None = None,
        channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer the open question, or the one with this id (``question``) or ``key``. See `Engine.answer`."""
        return await self._engine.answer(
            question, value, session_id=self._ref, key=key, by=by, channel=channel, seen=seen
        )  # fmt: skip

    async def children(self) -> Listing[SessionInfo]:
        """Return the session's children, newest first."""
        return await self._engine.children(self._ref)

    async def plan(self, *, rerun: str | Sequence[str] = (), wake: bool = False) -> Plan:
        """Return what a resume would do with each step, and why. Runs nothing. The options are as for `resume`."""
        return await self._engine.plan(self._ref, rerun=rerun, wake=wake)

    async def artifacts(self) -> list[ArtifactState]:
        """Return the state of each published file: valid, edited, invalid, missing or stale."""
        return await self._engine.artifacts(self._ref)

    async def artifact(self, path: str, *, version: Version = "present") -> bytes:
        """Return the content of one artifact, as it is in the folder or as it is ``"recorded"`` in the log.

        See `Engine.artifact`.
        """
        return await self._engine.artifact(self._ref, path, version=version)

    async def adopt(
        self, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[Stale]:  # fmt: skip
        """Adopt edited artifacts, all or those in ``paths``, and return the steps that become stale. Runs nothing.

        See `Engine.adopt`.
        """
        return await self._engine.adopt(self._ref, paths, by=by, reason=reason)

    async def restore(
        self, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[str]:  # fmt: skip
        """Restore the recorded content of artifacts, all that differ or those in ``paths``, and return their paths.

        ``by`` and ``reason`` are recorded. See `Engine.restore`.
        """
        return await self._engine.restore(self._ref, paths, by=by, reason=reason)

    async def pauses(self) -> list[Pause]:
        """Return the session's open pauses: why it does not run."""
        return await self._engine.pauses(self._ref)

    async def checkpoints(self, *, before: int | None = None, limit: int | None = 100) -> list[Checkpoint]:
        """Return the checkpoints of the last finished visits, newest last. See `Engine.checkpoints`."""
        return await self._engine.checkpoints(self._ref, before=before, limit=limit)

    async def spans(self, *, before: int | None = None, limit: int = 100) -> list[Span]:
        """Return the last visits with their operations, waits, retries and cost, oldest first. See `Engine.spans`."""
        return await self._engine.spans(self._ref, before=before, limit=limit)

    async def diff(self, a: int | str | None = None, b: int | str | None = None, *, other: str | None = None) -> Diff:
        """Compare the state at two checkpoints, or with another session. See `Engine.diff`."""
        return await self._engine.diff(self._ref, a, b, other=None if other is None else owned(other, self.owner))

    async def origin(self) -> Origin | None:
        """Return the session and checkpoint that a fork comes from; None if the session is not a fork."""
        return await self._engine.origin(self._ref)

    async def edit(
        self, changes: Mapping[str, Any] | None = None, /, *,
        by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Change the state of a parked session, and return its status.

        Pass fields as keywords or as a mapping, which may name parts of a field, such as ``"plan.title"``. All changes
        are validated and take effect together or not at all. Pass ``based_on``, the ``seq`` from `info`, to make sure
        that the session has not changed since you read its state. See `Engine.edit`.
        """
        return await self._engine.edit(self._ref, changes, by=by, reason=reason, based_on=based_on, **named)

    async def ask_again(
        self, question_id: str | None = None, /, *, by: str | None = None, reason: str = ""
    ) -> Status:  # fmt: skip
        """Ask a question again, and return the session's status. A resume then asks it; finished operations are kept.

        By default it is the only question that was declined or got no valid answer. See `Engine.ask_again`.
        """
        return await self._engine.ask_again(self._ref, question_id, by=by, reason=reason)

    async def rewind(
        self, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Rewind the session to the beginning of a visit, and return its status. A resume then runs it again.

        ``to`` is ``"write"`` (its last visit), ``"write#2"``, or a checkpoint's number. Nothing is deleted. ``reuse``
        keeps the visit's finished operations, so that only the rest runs again. Changes, as for `edit`, apply to the
        state at the beginning of the visit, in the same transaction. See `Engine.rewind`.
        """
        return await self._engine.rewind(
            self._ref, to, changes, reuse=reuse, by=by, reason=reason, based_on=based_on, **named
        )  # fmt: skip

    async def plan_edit(self, changes: Mapping[str, Any] | None = None, /, **named: Any) -> Plan:
        """Return what a resume would do after such an edit. Validates the changes and stores nothing."""
        return await self._engine.plan_edit(self._ref, changes, **named)

    async def plan_rewind(
        self, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, rerun: str | Sequence[str] = (), **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what a resume, with this ``rerun``, would do after such a rewind. Validates the changes."""
        return await self._engine.plan_rewind(self._ref, to, changes, reuse=reuse, rerun=rerun, **named)

    async def plan_fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what such a fork would run. Validates the changes and stores nothing."""
        return await self._engine.plan_fork(self._ref, at_step, changes, reuse=reuse, **named)

    async def fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        session_id: str | None = None, reuse: bool = False, owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: Amount | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a new session from this one's state, now or before visit ``at_step``. See `Engine.fork`."""
        forked = await self._engine.fork(
            self._ref, at_step, changes, session_id=session_id, reuse=reuse, owner=owner, tags=tags, budget=budget,
            paused=paused, reason=reason, by=by, folder=folder, **named,
        )  # fmt: skip
        return Session(self._engine, forked.id, forked._run, self.owner and (owner or self.owner))

    def events(self, after: str = "", *, follow: bool = False, until: Until = "ended") -> AsyncIterator[Event]:
        """Yield the session's events after a cursor. With ``follow``, keep yielding new ones until the session ends.

        With ``until="parked"``, following also ends when the session is paused, has failed, or waits for a message or
        an answer. See `Engine.events`.
        """
        return self._engine.events(self._ref, after, follow=follow, until=until)

    def stream(
        self, after: int | None = 0, *, follow: bool = True, until: Until = "parked"
    ) -> AsyncIterator[StreamItem]:  # fmt: skip
        """Yield the live output that the session's steps send with ``ctx.stream``, until the session stops.

        Pass the ``n`` of the last item you have seen as ``after``, or None to leave out earlier output. See
        `Engine.stream`.
        """
        return self._engine.stream(self._ref, after, follow=follow, until=until)

    async def emit(
        self, event_type: str, summary: str = "", data: Mapping[str, Any] | None = None, *, agent_name: str = ""
    ) -> None:
        """Append an event to the session's history from outside its steps. See `Engine.emit`."""
        await self._engine.emit(self._ref, event_type, summary, data, agent_name=agent_name)

    def watch(self) -> AsyncIterator[SessionInfo]:
        """Yield the session's facts now and whenever they may have changed, until it has ended."""
        return self._engine.watch(self._ref)

    async def remove(self, *, by: str | None = None, reason: str = "") -> Tombstone:
        """Delete the session and its children. A tombstone stays. Raises `AlreadyRunning` if a process drives it."""
        return await self._engine.remove(self._ref, by=by, reason=reason)

    async def redact(
        self, *, field: str | None = None, value: Any = DEFAULT, seq: int | None = None, signal: int | None = None,
        event: str | None = None, file: str | None = None, drawer: str | None = None, by: str | None = None,
        reason: str = "",
    ) -> Redaction:  # fmt: skip
        """Permanently remove the content of a field, record, signal, event, file or drawer from the store.

        See `Engine.redact`.
        """
        return await self._engine.redact(
            self._ref, field=field, value=value, seq=seq, signal=signal, event=event, file=file, drawer=drawer, by=by,
            reason=reason,
        )  # fmt: skip

    async def verify(self) -> Verification:
        """Check all stored data of the session for damage, and return what was found."""
        return await self._engine.verify(self._ref)
