"""A handle on one session: an id and the verbs of its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from pausepoint.artifacts.status import ArtifactState
from pausepoint.engine.questions import Statuses
from pausepoint.engine.retention import DEFAULT, Redaction
from pausepoint.log.replay import Origin
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import facts
from pausepoint.model.questions import Question, Receipt
from pausepoint.model.sessions import Event, Pause, PauseMode, QuestionStatus, Status, Tombstone
from pausepoint.model.views import Checkpoint, Diff, Listing, Outcome, SessionInfo, Stale, StoredState

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.control import Control
    from pausepoint.engine.plan import Plan
    from pausepoint.engine.verify import Verification
    from pausepoint.runtime.driver import Run
    from pausepoint.runtime.files import Files

S = TypeVar("S", bound="BaseModel")


class Session(Generic[S]):
    """A handle on one session: an id and an engine, nothing else."""

    def __init__(self, control: Control, session_id: SessionId, run: Run | None = None) -> None:
        self._control = control
        self._run = run
        self.id = session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    @property
    def files(self) -> Files:
        """The files of the session."""
        return self._control.files(self.id)

    async def info(self) -> SessionInfo:
        """Status, position, owner, times."""
        return await self._control.info(self.id)

    async def status(self) -> Status:
        """What the session is doing."""
        return (await self._control.info(self.id)).status

    async def state(self, at_checkpoint: int | str | None = None) -> S:
        """The state as of the last checkpoint, or of an earlier one: its number, or a visit such as ``"write#2"``."""
        return cast(S, await self._control.state(self.id, at_checkpoint))

    async def stored(self, at_checkpoint: int | str | None = None) -> StoredState:
        """The state as it is stored, as plain JSON, whatever code is at hand."""
        return await self._control.stored(self.id, at_checkpoint)

    async def outline(self) -> tuple[str, ...]:
        """The steps of its workflow, in their order, as it was last driven; whatever code is at hand."""
        return await self._control.outline(self.id)

    async def outcome(self) -> Outcome[S]:
        """Wait until the session stops running: completed, failed, cancelled, paused, or left ready by a shutdown."""
        return cast("Outcome[S]", await self._control.outcome(self.id, self._run))

    async def pause(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False
    ) -> Status:
        """Stop at the next safe point (``finish``), or cancel the running step (``abort``: resume runs it again).

        With ``freeze`` the time that it sleeps stands still too.
        """
        return (await self._control.pause(self.id, reason=reason, by=by, mode=mode, freeze=freeze))[0].status

    async def resume(
        self,
        *,
        by: str | None = None,
        owner: str | None = None,
        steal: bool = False,
        budget: float | Decimal | None = None,
        wake: bool = False,
        code: Literal["accept"] | None = None,
        until: str | None = None,
        edits: Literal["accept", "discard"] | None = None,
        rerun: str | Sequence[str] = (),
        here: bool = True,
    ) -> Session[S]:
        """Go on from exactly there, in this process; ``wake`` ends its timers now.

        ``code="accept"``: what the definition has changed behind the session is taken as it is. ``until`` a step:
        pause once that has ended. ``edits``: what becomes of artifacts that somebody changed; ``rerun``: finished steps
        to run again, with what reads from them. ``here=False`` leaves it to another engine. See
        `Engine.resume`.
        """
        resumed = await self._control.resume(
            self.id, by=by, owner=owner, steal=steal, budget=budget, wake=wake, code=code, until=until, edits=edits,
            rerun=rerun, here=here,
        )  # fmt: skip
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """End the session: at once if nobody drives it, else at its next safe point."""
        return await self._control.cancel(self.id, reason=reason, by=by)

    async def send(self, value: Any, *, by: str | None = None) -> Status:
        """Send a message: it answers the question that waits, else the session's next ``ctx.receive`` gets it."""
        return await self._control.send(self.id, value, by=by)

    async def questions(self, status: Statuses = QuestionStatus.WAITING) -> Listing[Question]:
        """The questions that wait for an answer, here and in what it called; with ``status=None`` all there were."""
        return await self._control.questions(self.id, status=status)

    async def answer(
        self, value: Any, *, question: str | None = None, key: str | int | None = None, by: str | None = None,
        channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer the question that waits, or the one that is named by its id or key. See `Engine.answer`."""
        return await self._control.answer(
            question, value, session_id=self.id, key=key, by=by, channel=channel, seen=seen
        )  # fmt: skip

    async def children(self) -> Listing[SessionInfo]:
        """The sessions that this one has called, newest first."""
        return await self._control.children(self.id)

    async def plan(self, *, rerun: str | Sequence[str] = ()) -> Plan:
        """What a resume would do with each step, and why. Nothing runs. ``rerun`` is as for `resume`."""
        return await self._control.plan(self.id, rerun=rerun)

    async def artifacts(self) -> list[ArtifactState]:
        """The files that its steps left, and how each stands: valid, edited, invalid, missing or stale."""
        return await self._control.artifacts(self.id)

    async def adopt(
        self, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[Stale]:  # fmt: skip
        """Take edited artifacts in, all or those that are named; what becomes stale by that. Nothing runs."""
        return await self._control.adopt(self.id, paths, by=by, reason=reason)

    async def restore(self, paths: Collection[str] = ()) -> list[str]:
        """Put the recorded content of artifacts back, of all that differ or those that are named."""
        return await self._control.restore(self.id, paths)

    async def pauses(self) -> list[Pause]:
        """Why the session stands still: the open pause records."""
        return await self._control.pauses(self.id)

    async def checkpoints(self, *, before: int | None = None, limit: int | None = 100) -> list[Checkpoint]:
        """The last finished visits, the newest last; ``before`` a number, to page backwards. ``limit=None``: all."""
        return await self._control.checkpoints(self.id, before=before, limit=limit)

    async def diff(self, a: int | str | None = None, b: int | str | None = None, *, other: str | None = None) -> Diff:
        """Compare the state at two checkpoints, or with another session. See `Engine.diff`."""
        return await self._control.diff(self.id, a, b, other=other)

    async def origin(self) -> Origin | None:
        """Where a fork comes from; None if the session is none."""
        return await self._control.origin(self.id)

    async def edit(
        self, changes: Mapping[str, Any] | None = None, /, *,
        by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Change the state of a parked session: fields by name, or a mapping (also of parts, such as ``"plan.title"``).

        All of it is validated and takes effect as a whole, or not at all. ``based_on``: the ``seq`` of its `info` when
        the state was read; refused if it has moved since.
        """
        return await self._control.edit(self.id, changes, by=by, reason=reason, based_on=based_on, **named)

    async def rewind(
        self, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Redo a visit and what follows: ``"write"`` (the last one), ``"write#2"``, or a checkpoint's number.

        Nothing is deleted. ``reuse`` inherits what the visit has finished, so that only the rest is done again. With
        changes, given as for `edit`, the state that the visit begins with is changed in the same transaction.
        """
        return await self._control.rewind(
            self.id, to, changes, reuse=reuse, by=by, reason=reason, based_on=based_on, **named
        )  # fmt: skip

    async def plan_rewind(
        self, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, rerun: str | Sequence[str] = (), **named: Any,
    ) -> Plan:  # fmt: skip
        """What a resume, with this ``rerun``, would do after such a rewind; the changes are validated."""
        return await self._control.plan_rewind(self.id, to, changes, reuse=reuse, rerun=rerun, **named)

    async def plan_fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, **named: Any,
    ) -> Plan:  # fmt: skip
        """What such a fork would do; the changes are validated. Nothing is stored."""
        return await self._control.plan_fork(self.id, at_step, changes, reuse=reuse, **named)

    async def fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        session_id: str | None = None, reuse: bool = False, owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: float | Decimal | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[S]:  # fmt: skip
        """A new session that begins as this one stands, or stood before visit ``at_step``; with ``changes``."""
        forked = await self._control.fork(
            self.id, at_step, changes, session_id=session_id, reuse=reuse, owner=owner, tags=tags, budget=budget,
            paused=paused, reason=reason, by=by, folder=folder, **named,
        )  # fmt: skip
        return cast("Session[S]", forked)

    def events(self, after: str = "", *, follow: bool = False) -> AsyncIterator[Event]:
        """The history after a cursor; with ``follow``, also what comes, until the session ends."""
        return self._control.events(self.id, after, follow=follow)

    async def emit(
        self, event_type: str, summary: str = "", data: Mapping[str, Any] | None = None, *, agent_name: str = ""
    ) -> None:
        """Append an event to the history, from outside of its steps. See `Engine.emit`."""
        await self._control.emit(self.id, event_type, summary, data, agent_name=agent_name)

    def watch(self) -> AsyncIterator[SessionInfo]:
        """Yield what is known about the session: now, and each time it may have changed, until it has ended."""
        return self._control.watch(self.id)

    async def remove(self, *, by: str | None = None, reason: str = "") -> Tombstone:
        """Delete the session and all that it called; a tombstone stays. One that is driven is refused."""
        return await self._control.remove(self.id, by=by, reason=reason)

    async def redact(
        self, *, field: str | None = None, value: Any = DEFAULT, seq: int | None = None, signal: int | None = None,
        event: str | None = None, file: str | None = None, by: str | None = None, reason: str = "",
    ) -> Redaction:  # fmt: skip
        """Take the content of a field, a record, a signal, an event or a file out of what is stored, for good."""
        return await self._control.redact(
            self.id, field=field, value=value, seq=seq, signal=signal, event=event, file=file, by=by, reason=reason
        )

    async def verify(self) -> Verification:
        """Look whether anything that is stored of the session is damaged."""
        return await self._control.verify(self.id)
