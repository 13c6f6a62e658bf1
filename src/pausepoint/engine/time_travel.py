"""The verbs of time travel: edit a parked session's state, rewind it to an earlier visit, fork a new session from it.

Existing records are never changed. An edit and a rewind are new records. Each is committed in one transaction with the
claim of the session, so a refused or interrupted one leaves no trace.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from pausepoint.definition.fields import Place
from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import check_texts
from pausepoint.engine.queries import Queries
from pausepoint.errors import AlreadyRunning, DefinitionError, HoldLost, SessionChanged, StateRefused, VerbRefused
from pausepoint.log.access import StateAccess
from pausepoint.log.decisions import refusal
from pausepoint.log.replay import EditBody, EventBody, Line, Origin, RewindBody, fold, to_payload
from pausepoint.log.state import Blob, Blobs, Change, State
from pausepoint.log.telemetry import Watch
from pausepoint.log.timeline import Before
from pausepoint.log.trail import Trail
from pausepoint.log.versions import DoesNotFit, fits, upgrade
from pausepoint.model.files import file_facts
from pausepoint.model.ids import SessionId
from pausepoint.model.pauses import Paused
from pausepoint.model.questions import Inquiry
from pausepoint.model.records import Record, RecordKind, first_digest, seal
from pausepoint.model.sessions import Commit, NewSession, Pause, QuestionChange, QuestionStatus, SessionRow, Status
from pausepoint.runtime.hold import report_ended
from pausepoint.stores.disk import Folder, share
from pausepoint.threads import in_thread, to_its_end

if TYPE_CHECKING:
    from pausepoint.engine.plan import Plan

LEFT_OPEN = ("operator", "budget")
"""The kinds of pauses that do not depend on the session's position. A rewind leaves them open."""


class TimeTravel(Queries):
    """The verbs that move a session along its own history."""

    async def edit(
        self, session_id: str, changes: Mapping[str, Any] | None = None, /, *,
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
        self._check_open()
        check_texts(by=by, reason=reason)
        given = _needed("edit", merged_changes(changes, named))
        while True:
            row = await self._parked(session_id, "edited", based_on)
            try:
                await self._edit(row, given, by, reason)
            except (HoldLost, AlreadyRunning):
                continue  # the session has changed since it was read
            return (await self._row(session_id)).status

    async def _edit(self, row: SessionRow, given: dict[str, Any], by: str | None, reason: str) -> None:
        line, body, blobs, facts = await self._edited(row, given, by, reason)
        summary = f"edited{f' by {by}' if by else ''}: {', '.join(given)}"
        questions = await self._cancelled_questions(row)
        await self._revise(
            row, line, "edit", body, summary, blobs=blobs, closed_by=by, questions=questions, **facts
        )  # fmt: skip

    async def _edited(
        self, row: SessionRow, given: dict[str, Any], by: str | None = None, reason: str = ""
    ) -> tuple[Line, EditBody, Blobs, dict[str, Any]]:
        """Return the line after an edit, the edit's record, its large values, and the pauses that it closes and opens.

        Raises if the edit is refused.
        """
        timeline = self._timeline(row)
        line = await timeline.line()
        access = self._editing(
            row, line.version, line.state, "Resume it to migrate it, pause it, then edit it; or fork it."
        )
        blobs: Blobs = []
        changes = await edit_changes(access, given, blobs)
        body = EditBody(changes, by, reason, row.ended or "", await timeline.last_step() if line.step is None else None)
        line.state.provide(dict(blobs))
        line.edit(body)
        return line, body, blobs, await self._evaluate_guards_again(row, access, line)

    async def plan_edit(
        self, session_id: str, changes: Mapping[str, Any] | None = None, /, **named: Any
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such an edit. Validates the changes and stores nothing.

        The arguments are those of `edit`. An edit that would be refused raises the same error here.
        """
        self._check_open()
        given = _needed("plan_edit", merged_changes(changes, named))
        row = await self._parked(session_id, "edited")
        line, body, _, facts = await self._edited(row, given)
        record = seal(row.digest, row.seq + 1, row.seq, "edit", "", 0, row.updated_at, to_payload(body))
        line.fold(record, body, applied=True)
        closed = facts.get("close_pauses", ())
        pauses = [pause for pause in await self.store.pauses(row.key) if pause.id not in closed]
        pauses += facts.get("open_pauses", ())
        return await self._planned(self._workflow_of(row), _restarted(row, line, len(pauses)), line, pauses)

    def _editing(self, row: SessionRow, version: int, state: State, instead: str) -> StateAccess:
        """Return the access that validates edits of a state. ``instead`` says what to do if the version differs."""
        workflow = self._workflow_of(row)
        if version != workflow.version:
            raise VerbRefused(
                f"Session {row.session_id!r} was stored by version {version} of {row.workflow!r}, and this code is"
                f" version {workflow.version}. {instead}",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        return StateAccess(workflow, state, self.store, self.limits)

    async def _cancelled_questions(self, row: SessionRow) -> tuple[QuestionChange, ...]:
        """Return changes that cancel the open questions. After the edit the step asks again if it still needs to."""
        waiting = await self.store.questions(Inquiry(session=row.key, statuses=(QuestionStatus.WAITING,)))
        for damage in waiting.damaged:
            raise damage
        return tuple(QuestionChange(each.facts.id, QuestionStatus.CANCELLED) for each in waiting)

    async def _evaluate_guards_again(self, row: SessionRow, access: StateAccess, line: Line) -> dict[str, Any]:
        """Evaluate the guards again. Return the guard pauses to close, and the one to open if the reason is new."""
        pauses = [pause for pause in await self.store.pauses(row.key) if pause.kind == "guard"]
        if not pauses or line.step is None:
            return {}
        try:
            for check in access.workflow.guards.get(line.step, ()):
                if access.needs_prefetch(check):
                    await access.prefetch(check)
            refused = refusal(access.workflow, line.step, access.evaluate)
            why = refused.refused if refused is not None else ""
        except Paused as paused:
            why = paused.reason
        except Exception:
            return {}  # the pause stays; a resume evaluates the guard again, and its error fails the session
        if any(pause.reason == why for pause in pauses):
            return {}
        opened = (Pause(str(uuid4()), "guard", why, None, self.clock.now(), line.step),) if why else ()
        return {"close_pauses": tuple(pause.id for pause in pauses), "open_pauses": opened}

    async def rewind(
        self, session_id: str, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Rewind a parked session to the beginning of a visit, and return its status. A resume then runs it again.

        The old records stay in the log and readable. Money spent stays spent. Children that have not ended are
        cancelled.

        - ``to``: ``"write"`` (its last visit), ``"write#2"``, or a checkpoint's number.
        - ``changes`` and keywords: changes of the state at the beginning of the visit, as for `edit`, in the same
          transaction.
        - ``reuse``: keep the visit's finished operations, so that only the rest runs again. By default the visit starts
          without remembered operations.
        - ``by``, ``reason``, ``based_on``: as for `edit`.

        Raises `UnknownCheckpoint` if there is no such visit, and `VerbRefused` if the session is driven or has changed.
        """
        self._check_open()
        check_texts(by=by, reason=reason)
        given = merged_changes(changes, named)
        while True:
            row = await self._parked(session_id, "rewound", based_on)
            try:
                await self._rewind(row, to, reuse, given, by, reason)
            except (HoldLost, AlreadyRunning):
                continue  # the session has changed since it was read
            return (await self._row(session_id)).status

    async def _rewind(
        self, row: SessionRow, to: int | str, reuse: bool, given: dict[str, Any], by: str | None, reason: str
    ) -> None:
        line, base, visit = await self._back(row, to, reuse)
        await self._check_past(row, line)
        blobs = line.state.seal()
        edit = EditBody(await self._edits_there(row, line, given, blobs), by, reason) if given else None
        pauses = [pause.id for pause in await self.store.pauses(row.key) if pause.kind not in LEFT_OPEN]
        body = RewindBody(visit, reuse, by, reason, row.ended or "")
        summary = f"rewound{f' by {by}' if by else ''} to before {visit}"
        await self._revise(
            row, line, "rewind", body, f"{summary}, edited: {', '.join(given)}" if given else summary,
            parent=base, edit=edit, blobs=blobs, close_pauses=tuple(pauses), closed_by=by, thaw=True, settles=True,
            cancel_children=f"{row.session_id} was rewound",
        )  # fmt: skip

    async def _edits_there(
        self, row: SessionRow, line: Line, given: dict[str, Any], blobs: Blobs
    ) -> tuple[Change, ...]:  # fmt: skip
        """Return the changes of the state that a rewind leads to. The line itself stays unchanged, as the key frame."""
        instead = "Fork it at that visit with the changes, which migrates the fork; or rewind it without changes."
        return await edit_changes(self._editing(row, line.version, line.state.copy(), instead), given, blobs)

    async def _back(self, row: SessionRow, to: int | str, reuse: bool) -> Before:
        found = await self._timeline(row).before(to, reuse)
        line = found.line
        if row.seq > found.base:
            line.left_behind = (*line.left_behind, (found.base + 1, row.seq))
        if line.trail is not None:  # files published by the abandoned line belong to this session too
            now = (await self._timeline(row).line()).trail
            line.trail.known = now.known if now is not None else line.trail.known
        line.opened = row.seq + 2  # its key frame, so that the visit gets new idempotency keys
        return found

    async def _check_past(self, row: SessionRow, line: Line) -> None:
        """Raise if the files of that point in time are missing by now. Sessions without artifacts have none."""

    async def plan_rewind(
        self, session_id: str, /, to: int | str, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, rerun: str | Sequence[str] = (), **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such a rewind. Validates the changes and stores nothing.

        The session may be running. The arguments are those of `rewind`; ``rerun`` is as for `resume`.
        """
        self._check_open()
        row = await self._row(session_id)
        workflow, given = self._workflow_of(row), merged_changes(changes, named)
        line = (await self._back(row, to, reuse)).line
        await self._check_past(row, line)
        if given:
            blobs: Blobs = []
            body = EditBody(await self._edits_there(row, line, given, blobs))
            line.fold(seal(row.digest, row.seq + 3, row.seq + 2, "edit", "", 0, row.updated_at, to_payload(body)), body)
            line.state.provide(dict(blobs))
        pauses = [pause for pause in await self.store.pauses(row.key) if pause.kind in LEFT_OPEN]
        return await self._planned(workflow, _restarted(row, line, len(pauses)), line, pauses, as_names(rerun))

    async def plan_fork(
        self, source: str, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        reuse: bool = False, **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what such a fork would run. Validates the changes and stores nothing.

        The arguments are those of `fork`. The plan's ``session_id`` is that of the source.
        """
        self._check_open()
        row = await self._row(source)
        workflow = self._workflow_of(row)
        new = await self._forked(
            workflow, row, SessionId(row.session_id), at_step, merged_changes(changes, named), reuse, None, "."
        )
        line = fold(new.records)
        row = msgspec.structs.replace(row, seq=1, live=False, pause_requested=False)
        return await self._planned(workflow, _restarted(row, line), line, [])

    async def _parked(self, session_id: str, what: str, based_on: int | None = None) -> SessionRow:
        row = await self._row(session_id)
        if row.live:
            raise VerbRefused(
                f"Session {row.session_id!r} is {row.status.value}, driven by {self.store.describe_holder(row.holder)},"
                f" and can only be {what} while no process drives it. Pause it and wait for its outcome() first.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        if based_on not in (None, row.seq):
            raise SessionChanged(
                f"Session {row.session_id!r} has changed since its state was read: its log was at record {based_on}"
                f" and is now at {row.seq}. Read the state again, then retry with based_on={row.seq}.",
                session_id=row.session_id, status=row.status.value, seq=row.seq, based_on=based_on,
            )  # fmt: skip
        return row

    async def _revise(
        self, row: SessionRow, line: Line, kind: RecordKind, body: EditBody | RewindBody, summary: str,
        *, parent: int | None = None, edit: EditBody | None = None, blobs: Blobs, **facts: Any,
    ) -> None:  # fmt: skip
        """Commit a record to a session that no process drives. With a ``parent``, a key frame follows it.

        ``edit`` is a separate record with changes of that key frame.
        """
        now, step, visit = self.clock.now(), line.step or "", line.visit
        records = [seal(row.digest, row.seq + 1, parent or row.seq, kind, step, visit, now, to_payload(body))]
        if parent is not None:
            records.append(_after(records[0], "key", to_payload(line.key_body())))
        frame = row.key_frame if parent is None else records[-1].seq
        if edit is not None:
            records.append(_after(records[-1], "edit", to_payload(edit)))
        commit = Commit(
            row.key, row.fence, row.seq, tuple(records), max(now, row.updated_at),
            frame, line.step, visit, line.held_by_guard,
            release=True, version=line.version, blobs=tuple(blobs), **facts,
        )  # fmt: skip
        below = await self.store.revise(commit)
        Watch(row.session_id, row.workflow).committed(commit, EventBody(f"session.{kind}", summary))
        report_ended(below)
        self.driver.changed(row.session_id)
        self.driver.on_change()

    def _new_trail(self, workflow: Workflow[Any], session_id: str, folder: str | Path | None) -> Trail | None:
        """Return the artifact trail of a fork."""
        raise NotImplementedError

    # forking

    async def _forked(
        self, workflow: Workflow[Any] | None, row: SessionRow, session_id: SessionId, at_step: int | str | None,
        given: dict[str, Any], reuse: bool, by: str | None, folder: str | Path | None = None,
    ) -> NewSession:  # fmt: skip
        """Return a new session that begins with another one's state, now or before a visit. Large values are shared.

        Without the ``workflow``, the fork keeps the version of the source, and nothing can be changed.
        """
        timeline = self._timeline(row)
        line, base, visit = await (timeline.now(reuse) if at_step is None else timeline.before(at_step, reuse))
        blobs = [] if workflow is None else await self._upgraded(workflow, line, row)
        changes: tuple[Change, ...] = ()
        if given and workflow is not None:
            access = StateAccess(workflow, line.state, self.store, self.limits)
            changes = await edit_changes(access, given, blobs, frozen=False)
            line.edit(EditBody(changes))
        line.opened, line.left_behind = 1, ()
        if line.trail is not None:  # what it publishes, only its code knows
            line.trail = self._new_trail(workflow or self._workflow_of(row), session_id, folder)
        blobs += line.state.seal()
        origin = Origin(row.session_id, base, visit, tuple(given))
        body = msgspec.structs.replace(line.key_body(), created=True, by=by, origin=origin)
        now = self.clock.now()
        first = seal(first_digest(session_id), 1, 0, "key", line.step or "", line.visit, now, to_payload(body))
        named = line.state.named() | {each.value.hash for each in line.operations.values() if type(each.value) is Blob}
        names = {bytes.fromhex(name) for name in named} - {name for name, _ in blobs}
        digest = sha256(f"fork|{row.session_id}|{row.created_at}|{base}|{visit}|{reuse}|".encode())
        digest.update(msgspec.json.encode(changes))
        return NewSession(
            session_id, row.workflow, line.version, row.owner, row.tags, digest.digest(), now, line.step,
            line.visit, row.budget_usd, (first,), tuple(blobs), names=tuple(sorted(names)),
            held_by_guard=line.held_by_guard, keep_for=row.keep_for, budget_tokens=row.budget_tokens,
            budget_operations=row.budget_operations, guest=row.guest,
        )  # fmt: skip

    @asynccontextmanager
    async def _sharing_files(self, row: SessionRow, new: NewSession) -> AsyncIterator[NewSession]:
        """Share a session's files with its fork, and lock them until the fork is stored, so that none is deleted."""
        signals = await self.store.files(row.key)
        folders = self.store.folder(row.session_id), self.store.folder(new.session_id)
        if not signals or None in folders:
            yield new
            return
        source, target = (Folder(each / "files") for each in folders if each is not None)
        names = [file_facts(signal.payload).stored_name for signal in signals]
        locks: list[int] = []
        try:
            await to_its_end(in_thread(share, source, target, names, locks))
            yield msgspec.structs.replace(new, files=tuple(signals))
        finally:
            for lock in locks:
                os.close(lock)

    async def _upgraded(self, workflow: Workflow[Any], line: Line, row: SessionRow) -> Blobs:
        """Upgrade a line to the present definition. Return the new large values."""
        if fits(workflow, line):
            return []
        try:
            body, blobs = await upgrade(workflow, line, self.store, self.limits)
        except DoesNotFit as wrong:
            raise DefinitionError(
                f"Session {row.session_id!r} does not fit this definition and cannot be forked or rewound: {wrong}"
            ) from None
        line.upgrade(body)
        line.state.provide(dict(blobs))
        return blobs


def _restarted(row: SessionRow, line: Line, open_pauses: int = 0) -> SessionRow:
    """Return the facts of a session that starts again where a line ends."""
    return msgspec.structs.replace(
        row, step=line.step, visit=line.visit, held_by_guard=line.held_by_guard, version=line.version, ended=None,
        failure=None, waiting=None, wakes_at=None, due=False, open_pauses=open_pauses,
    )  # fmt: skip


def merged_changes(fields: Mapping[str, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
    """Merge changes given as a mapping and as keywords. Raises `TypeError` if a field is given twice."""
    if fields is not None and not isinstance(fields, Mapping):
        raise TypeError(f"Changes must be a mapping or keywords, not {type(fields).__name__}.")
    twice = sorted((fields or {}).keys() & named.keys())
    if twice:
        raise TypeError(f"{', '.join(twice)} is given twice, in the mapping and as a keyword. Pass it once.")
    return {**(fields or {}), **named}


def _needed(verb: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the changes. Raises `TypeError` if there are none."""
    if not given:
        ways = f"{verb}(topic='squid') or {verb}({{'plan.title': 'Squid'}})"
        raise TypeError(f"{verb}() needs changes. Pass them: {ways}.")
    return given


async def edit_changes(
    access: StateAccess, given: dict[str, Any], blobs: Blobs, *, frozen: bool = True
) -> tuple[Change, ...]:  # fmt: skip
    """Return the changes of an edit, validated field by field and, if the model requires it, as a whole."""
    access.fill_new_fields()
    for path in given:
        around = next((other for other in given if path.startswith(f"{other}.")), None)
        if around is not None:
            raise StateRefused(f"{path!r} is part of {around!r}, which is changed too. Pass only one.", field=path)
    places = [(_place(access, path, frozen), value) for path, value in given.items()]
    changes = tuple([access.replaced(place, value, blobs) for place, value in places])
    return await access.accept_whole(changes, blobs) if access.shape.needs_whole else changes


def _place(access: StateAccess, path: str, frozen: bool) -> Place:
    try:
        place = access.shape.place(path)
    except DefinitionError as error:
        raise StateRefused(error.message, field=path) from None
    if place.frozen and frozen:
        raise StateRefused(
            f"Field {path!r} is frozen, so it cannot be edited. Fork the session and pass the change there.", field=path
        )
    if place.under_optional:
        raise StateRefused(
            f"{path!r} cannot be changed alone, because a part of its path may be None. Pass {place.parts[0]!r} as a"
            " whole.",
            field=path,
        )
    return place


def _after(record: Record, kind: RecordKind, payload: bytes) -> Record:
    return seal(record.digest, record.seq + 1, record.seq, kind, record.step, record.visit, record.at, payload)
