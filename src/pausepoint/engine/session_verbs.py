"""The verbs of `Session` that look into a session, change its past, and remove it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausepoint.artifacts.status import ArtifactState
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Until, owned
from pausepoint.engine.contents import Version
from pausepoint.engine.redaction import DEFAULT, Redaction
from pausepoint.engine.results import AGAIN
from pausepoint.log.replay import Origin
from pausepoint.model.sessions import Event, Pause, Status
from pausepoint.model.stores import Tombstone
from pausepoint.model.streams import StreamItem
from pausepoint.model.views import Checkpoint, Diff, Listing, Obstacles, Retrying, SessionInfo, Stale, StoredState

if TYPE_CHECKING:
    from pausepoint.engine.bundle import Bundle
    from pausepoint.engine.parts import Parts
    from pausepoint.engine.plans import Plan
    from pausepoint.engine.verify import Verification
    from pausepoint.log.spans import Span
    from pausepoint.model.descriptions import Description


class SessionVerbs:
    """Verbs over one session. Each is carried out by a part of the engine."""

    _parts: Parts
    _ref: str
    owner: str | None

    async def pauses(self) -> list[Pause]:
        """Return the open pauses of the session: why it does not run."""
        return await self._parts.queries.pauses(self._ref)

    async def children(self) -> Listing[SessionInfo]:
        """Return the session's children, newest first."""
        return await self._parts.queries.children(self._ref)

    async def outline(self) -> tuple[str, ...]:
        """Return the workflow's steps in order, as of the last run of the session, without the workflow's code."""
        return await self._parts.queries.outline(self._ref)

    async def description(self) -> Description:
        """Return the description of the session's workflow, as of the last run of the session.

        If it was never stored, because an older version of Pausepoint ran the session or it was imported, the
        description has the names of the steps only, and its ``state`` is None.
        """
        return await self._parts.descriptions.description_of(self._ref)

    async def definition(self) -> Workflow[Any]:
        """Return the definition of the session's workflow. Raises `DefinitionError` if it is not registered here."""
        return await self._parts.queries.workflow_of(self._ref)

    async def obstacles(self) -> Obstacles:
        """Return why a resume would not run the session now. Changes nothing.

        Stored pauses are tested again, as a resume does: with the present code, state and budget.
        """
        return await self._parts.queries.obstacles(self._ref)

    async def retries(self) -> list[Retrying]:
        """Return the operations of the session that wait to be retried, without the workflow's code."""
        return await self._parts.queries.retries(self._ref)

    async def stored(self, at_checkpoint: int | str | None = None) -> StoredState:
        """Return the stored state as plain JSON, without the workflow's code.

        ``at_checkpoint`` is as for `state`.
        """
        return await self._parts.queries.stored(self._ref, at_checkpoint)

    async def checkpoints(self, *, before: int | None = None, limit: int | None = 100) -> list[Checkpoint]:
        """Return the checkpoints of the last finished visits, newest last. Those undone by a rewind are marked.

        To page backwards, pass the ``seq`` of the first checkpoint you have as ``before``. ``limit=None`` returns all.
        """
        return await self._parts.queries.checkpoints(self._ref, before=before, limit=limit)

    async def spans(self, *, before: int | None = None, at: int | str | None = None, limit: int = 100) -> list[Span]:
        """Return the session's last visits with their operations, waits, retries and cost, oldest first.

        Visits that a rewind left behind are marked. The open visit comes last. To page backwards, pass the ``seq`` of
        the first visit you have as ``before``. ``at`` is the visit that the page begins with: a name such as
        ``write#2``, or the number of a record; 1 is the first visit. The cost follows the page, not the length of the
        log.
        """
        return await self._parts.queries.spans(self._ref, before=before, at=at, limit=limit)

    async def diff(self, a: int | str | None = None, b: int | str | None = None, *, other: str | None = None) -> Diff:
        """Compare the state at two checkpoints, given as for `state`. None means now.

        Pass ``other=`` to compare with another session, such as a fork: ``b`` is then a checkpoint of that one.
        Stored values are compared, so the two states may be of different versions of the workflow.
        """
        return await self._parts.queries.diff(
            self._ref, a, b, other=None if other is None else owned(other, self.owner)
        )

    async def origin(self) -> Origin | None:
        """Return the session and checkpoint that a fork comes from.

        None if the session is not a fork, or if its first record was redacted.
        """
        return await self._parts.queries.origin(self._ref)

    async def plan(self, *, rerun: str | Sequence[str] = (), wake: bool = False) -> Plan:
        """Return what a resume would do with each step, and why. Runs and changes nothing.

        ``rerun`` and ``wake`` are as for `resume`.
        """
        return await self._parts.plans.plan(self._ref, rerun=rerun, wake=wake)

    async def edit(
        self, changes: Mapping[str, Any] | None = None, /, *,
        by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Change the state of a parked session, and return its status. All changes take effect, or none.

        Pass fields as keywords or as a mapping, which may also name parts of a field (``"plan.title"``). A field that
        steps append to is replaced. The values are validated by the model. A guard that holds the session is evaluated
        again.

        - ``by``, ``reason``: recorded in the history.
        - ``based_on``: the ``seq`` from `info`. Pass it to make sure that the session has not changed since you read
          its state.

        Raises `VerbRefused` if the session is driven, `SessionChanged` if it is no longer at ``based_on``, and
        `StateRefused` if the model does not accept the changes.
        """
        return await self._parts.time_travel.edit(self._ref, changes, by=by, reason=reason, based_on=based_on, **named)

    async def plan_edit(
        self, changes: Mapping[str, Any] | None = None, /, **named: Any
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such an edit. Validates the changes and stores nothing.

        The arguments are those of `edit`. An edit that would be refused raises the same error here.
        """
        return await self._parts.plans.plan_edit(self._ref, changes, **named)

    async def rewind(
        self, /, to: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        to_operation: int | str | None = None, result: Any = AGAIN, reuse: bool = False, by: str | None = None,
        reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Rewind a parked session to before a visit or an operation, and return its status. A resume runs it again.

        The old records stay in the log and readable. Money spent stays spent. Children that have not ended are
        cancelled.

        - ``to``: ``"write"`` (its last visit), ``"write#2"``, or a checkpoint's number.
        - ``to_operation``: instead of ``to``, an operation that has ended: ``"think"`` (its last call), ``"think#3"``,
          the number of its record, or its id. Its visit keeps the results of the operations that did not begin after
          it.
        - ``result``: what the operation returns from now on; it then does not run again. The value must fit the type
          that the operation's function returns. If that is not known, any value is accepted, with a warning.
        - ``changes`` and keywords: changes of the state at the beginning of the visit, as for `edit`, in the same
          transaction.
        - ``reuse``: keep the visit's finished operations, so that only the rest runs again. By default the visit starts
          without remembered operations.
        - ``by``, ``reason``, ``based_on``: as for `edit`.

        Raises `UnknownCheckpoint` or `UnknownOperation` if there is no such visit or operation, and `VerbRefused` if
        the session is driven or has changed.
        """
        return await self._parts.time_travel.rewind(
            self._ref, to, changes, to_operation=to_operation, result=result, reuse=reuse, by=by, reason=reason,
            based_on=based_on, **named,
        )  # fmt: skip

    async def forget(
        self, operation: int | str, nth: int | None = None, /, *,
        by: str | None = None, reason: str = "", based_on: int | None = None,
    ) -> Status:  # fmt: skip
        """Forget the result of an operation of a parked session, and all that began after it. Return the status.

        A resume then calls the operation again. This is a `rewind` with ``to_operation``.

        - ``operation``, ``nth``: ``"think"`` and which of its calls, in the order in which they ended; by default the
          last one. Or an operation's id, or the number of its record.
        - ``by``, ``reason``, ``based_on``: as for `edit`.
        """
        if nth is not None:
            operation = f"{operation}#{nth}"
        return await self.rewind(to_operation=operation, by=by, reason=reason, based_on=based_on)

    async def plan_rewind(
        self, /, to: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        to_operation: int | str | None = None, result: Any = AGAIN, reuse: bool = False,
        rerun: str | Sequence[str] = (), **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such a rewind. Validates the changes and stores nothing.

        The session may be running. The arguments are those of `rewind`; ``rerun`` is as for `resume`.
        """
        return await self._parts.plans.plan_rewind(
            self._ref, to, changes, to_operation=to_operation, result=result, reuse=reuse, rerun=rerun, **named
        )

    async def plan_fork(
        self, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        at_operation: int | str | None = None, reuse: bool = False, **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what such a fork would run. Validates the changes and stores nothing.

        The arguments are those of `fork`. The plan's ``session_id`` is that of the source.
        """
        return await self._parts.plans.plan_fork(
            self._ref, at_step, changes, at_operation=at_operation, reuse=reuse, **named
        )

    async def artifacts(self) -> list[ArtifactState]:
        """Return the state of each artifact: valid, edited, invalid, missing or stale. Changes nothing.

        If the session's workflow is not registered, changed files are only compared with the record: an invalid file
        then counts as edited.
        """
        return await self._parts.artifacts.artifacts(self._ref)

    async def artifact(self, path: str, *, version: Version = "present") -> bytes:
        """Return the content of one artifact: of the file in the folder or, with ``version="recorded"``, of the log.

        ``path`` is one of the paths that `artifacts` lists; nothing else is read, no link is followed, and a file of
        more than 256 MiB is refused. Changes nothing, and works while the session runs.

        The recorded content is what the session published or what a person's accepted edit contains, even if the file
        has been changed or deleted since. If the folder no longer has these bytes, they are made again by the code of
        the workflow, which must be registered; otherwise `DefinitionError` is raised.

        Raises `FolderRefused` if the session has no such artifact or its content cannot be read, and `VerbRefused` if
        the session has no artifacts at all.
        """
        return await self._parts.artifacts.artifact(self._ref, path, version=version)

    async def adopt(self, paths: Collection[str] = (), *, by: str | None = None, reason: str = "") -> list[Stale]:
        """Adopt edited artifacts and return the steps that become stale, with the cost of running them again.

        ``paths`` are the artifacts to adopt; by default all edited ones. ``by`` and ``reason`` are recorded. No step
        runs: the next resume runs the stale steps again. Raises `FolderRefused` if a path is not an artifact of the
        session, and `VerbRefused` if it is not edited.
        """
        return await self._parts.artifacts.adopt(self._ref, paths, by=by, reason=reason)

    async def restore(self, paths: Collection[str] = (), *, by: str | None = None, reason: str = "") -> list[str]:
        """Restore the recorded content of artifacts and return their paths.

        ``paths`` are the artifacts to restore; by default all that differ. The replaced content is kept in the folder's
        ``.pausepoint/bin``. ``by`` and ``reason`` are recorded, before the files are written. Raises `FolderRefused` if
        a path is not an artifact of the session.
        """
        return await self._parts.artifacts.restore(self._ref, paths, by=by, reason=reason)

    def watch(self) -> AsyncGenerator[SessionInfo, None]:
        """Yield the session's facts now and whenever they may have changed, until the session has ended.

        Another process may change the session without notifying this one, so it is also checked every second.
        """
        return self._parts.queries.watch(self._ref)

    def stream(
        self, after: int | None = 0, *, follow: bool = True, until: Until = "parked"
    ) -> AsyncIterator[StreamItem]:
        """Yield the live output that the session's steps send with ``ctx.stream``, in this process or another.

        The stream begins with what is still there, at most 256 KiB. ``after`` is the ``n`` of the last item you have
        seen; None leaves out what was sent before this call. Besides chunks, it yields a `Restarted` when operations
        run again, and their text so far is void, and a `Gap` if items were lost.

        It ends when the session stops, as `outcome` defines it; with ``until="ended"``, only when the session has
        ended. With ``follow=False``, it ends when everything that was sent so far has been read.
        """
        return self._parts.streams.stream(self._ref, after, follow=follow, until=until)

    async def last_event(self, event_type: str, *, since: int | None = None) -> Event | None:
        """Return the last event of a type that `emit` or a step added; None if there is none.

        ``since`` is a time in microseconds. Older records are not read.
        """
        return await self._parts.queries.last_event(self._ref, event_type, since=since)

    async def emit(
        self, event_type: str, summary: str = "", data: Mapping[str, Any] | None = None, *,
        agent_name: str = "",
    ) -> None:  # fmt: skip
        """Append an event to the session's history from outside its steps. Inside a step, use `Context.emit`.

        Raises `AlreadyRunning` if another process drives the session, and `EventRefused` if ``event_type`` is one of
        the engine's own events.
        """
        return await self._parts.control.emit(self._ref, event_type, summary, data, agent_name=agent_name)

    async def export(self, path: str | Path | None = None) -> Bundle:
        """Export the session and its children as a `Bundle`; with ``path``, also write it to that file.

        The session may have any status and is not changed. An existing file is replaced atomically. Without a path,
        `Bundle.to_bytes` returns the content of the file.
        """
        return await self._parts.transfer.export_session(self._ref, path)

    async def redact(
        self, *, field: str | None = None, value: Any = DEFAULT, seq: int | None = None,
        signal: int | None = None, event: str | None = None, file: str | None = None, drawer: str | None = None,
        by: str | None = None, reason: str = "",
    ) -> Redaction:  # fmt: skip
        """Permanently remove content from the store. The history still shows that it existed and who removed it.

        Name exactly one thing to redact:

        - ``field``: a field of the state. Its present value becomes ``value`` (the field's default if not given). Every
          record that contains the field is emptied, with the operations of the visits that wrote it.
        - ``seq``: one record, by its number.
        - ``signal``: a message or request, by its number.
        - ``event``: the record or signal of an event, by the event's cursor.
        - ``file``: a file, by its id, with its bytes. Redact the fields that steps derived from it separately.
        - ``drawer``: one of the session's drawers, by its name, with everything in it. No other redaction looks into
          drawers, because only the program that uses one knows what its bytes mean.

        ``by`` and ``reason`` are recorded. Raises `ValueError` unless one thing is named, and `VerbRefused` if the
        record or signal does not exist or cannot be redacted.
        """
        return await self._parts.retention.redact(
            self._ref, field=field, value=value, seq=seq, signal=signal, event=event, file=file, drawer=drawer, by=by,
            reason=reason,
        )  # fmt: skip

    async def remove(self, *, by: str | None = None, reason: str = "") -> Tombstone:
        """Delete the session and its children: their files first, then their records. Return the tombstone that stays.

        ``by`` and ``reason`` are recorded in the tombstone. Raises `AlreadyRunning` if a process drives one of the
        sessions; pause or cancel it first. If the removal is interrupted, another call or `gc` completes it.
        """
        return await self._parts.retention.remove(self._ref, by=by, reason=reason)

    async def verify(self, *, on_progress: Callable[[Verification], None] | None = None) -> Verification:
        """Check all stored data of the session for damage, and return what was found. Changes nothing.

        ``on_progress`` is called with the report so far.
        """
        return await self._parts.retention.verify_session(self._ref, on_progress=on_progress)

    async def stand_by(self) -> SessionInfo:
        """Wait until someone resumes or answers the session, which has stopped, in any process. Return its facts.

        Meanwhile this engine does not pick the session up, so you can check what has changed before you call `resume`.
        Other processes see in `Engine.engines` that this one stands by, and leave the session to it. Also returns when
        another engine drives the session, when it has ended, or when this engine is ending. Open the engine with
        ``drives="asked"``.
        """
        return await self._parts.control.stand_by(self._ref)

    async def drive_only(self) -> None:
        """Let this engine pick up only this session and its children from now on.

        Sessions that already run here are not stopped. Use this with ``Engine(drives="asked")``, where the engine picks
        up only sessions that a verb asked for.
        """
        return await self._parts.control.drive_only(self._ref)
