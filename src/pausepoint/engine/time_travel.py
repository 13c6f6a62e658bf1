"""The verbs of time travel: edit a parked session's state, ask one of its questions again, rewind it, fork a new one.

Existing records are never changed. What such a verb does is a new record. Each is committed in one transaction with the
claim of the session, so a refused or interrupted one leaves no trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Unpack
from uuid import uuid4

import msgspec

from pausepoint.codec.values import decode
from pausepoint.definition.fields import Place
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.engine.contents import check_past
from pausepoint.engine.creation import trail_for
from pausepoint.engine.results import AGAIN, replaced
from pausepoint.errors import (
    DefinitionError,
    SessionChanged,
    SeveralQuestions,
    StateRefused,
    UnknownQuestion,
    VerbRefused,
    WrongSession,
)
from pausepoint.log.access import StateAccess
from pausepoint.log.decisions import refusal
from pausepoint.log.replay import (
    ASKING,
    UNANSWERED,
    EditBody,
    EventBody,
    Line,
    OperationBody,
    Origin,
    RewindBody,
    WaitBody,
    body_of,
    is_inside,
    operations_in,
    to_payload,
)
from pausepoint.log.state import Blob, Blobs, Change, State
from pausepoint.log.telemetry import Watch
from pausepoint.log.timeline import Before, Timeline
from pausepoint.log.trail import PublishedFile, Trail, Work
from pausepoint.log.versions import DoesNotFit, fits, upgrade
from pausepoint.model.commits import Commit, Facts, NewSession
from pausepoint.model.files import file_facts
from pausepoint.model.ids import KEPT, SessionId, check_strings, check_texts, shortened
from pausepoint.model.pauses import Paused
from pausepoint.model.questions import Inquiry, QuestionRow
from pausepoint.model.records import Record, RecordKind, first_digest, seal
from pausepoint.model.sessions import Pause, QuestionChange, QuestionStatus, SessionRow, Status
from pausepoint.runtime.park import report_ended

LEFT_OPEN = ("operator", "budget")
"""The kinds of pauses that do not depend on the session's position. A rewind leaves them open."""


class TimeTravel:
    """The verbs that move a session along its own history."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def edit(
        self, session_id: str, changes: Mapping[str, Any] | None = None, /, *,
        by: str | None = None, reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Change the state of a parked session, and return its status. All changes take effect, or none."""
        self.service.check_open()
        check_texts(by=by, reason=reason)
        given = needed("edit", merged_changes(changes, named))

        async def attempt() -> None:
            await self._edit(await self.parked(session_id, "edited", based_on), given, by, reason)

        await self.service.retried(attempt)
        return (await self.service.row(session_id)).status

    async def _edit(self, row: SessionRow, given: dict[str, Any], by: str | None, reason: str) -> None:
        line, body, blobs, facts = await self.edited(row, given, by, reason)
        summary = f"edited{f' by {by}' if by else ''}: {', '.join(given)}"
        facts["closed_by"], facts["questions"] = by, await self.cancelled_questions(row)
        await self.revise(row, line, "edit", body, summary, blobs=blobs, **facts)

    async def edited(
        self, row: SessionRow, given: dict[str, Any], by: str | None = None, reason: str = ""
    ) -> tuple[Line, EditBody, Blobs, Facts]:
        """Return the line after an edit, the edit's record, its large values, and the pauses that it closes and opens.

        Raises if the edit is refused.
        """
        timeline = self.service.timeline(row)
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

    def _editing(self, row: SessionRow, version: int, state: State, instead: str) -> StateAccess:
        """Return the access that validates edits of a state. ``instead`` says what to do if the version differs."""
        workflow = self.service.workflow_of(row)
        if version != workflow.version:
            raise VerbRefused(
                f"Session {row.session_id!r} was stored by version {version} of {row.workflow!r}, and this code is"
                f" version {workflow.version}. {instead}",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        return StateAccess(workflow, state, self.service.store, self.service.sizes)

    async def cancelled_questions(self, row: SessionRow) -> tuple[QuestionChange, ...]:
        """Return changes that cancel the open questions. After the edit the step asks again if it still needs to."""
        waiting = await self.service.store.questions(Inquiry(session=row.key, statuses=(QuestionStatus.WAITING,)))
        for damage in waiting.damaged:
            raise damage
        return tuple(QuestionChange(each.facts.id, QuestionStatus.CANCELLED) for each in waiting)

    async def _evaluate_guards_again(self, row: SessionRow, access: StateAccess, line: Line) -> Facts:
        """Evaluate the guards again. Return the guard pauses to close, and the one to open if the reason is new."""
        pauses = [pause for pause in await self.service.store.pauses(row.key) if pause.kind == "guard"]
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
        opened = (Pause(str(uuid4()), "guard", why, None, self.service.clock.now(), line.step),) if why else ()
        return {"close_pauses": tuple(pause.id for pause in pauses), "open_pauses": opened}

    async def rewind(
        self, session_id: str, /, to: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        to_operation: int | str | None = None, result: Any = AGAIN, reuse: bool = False, by: str | None = None,
        reason: str = "", based_on: int | None = None, **named: Any,
    ) -> Status:  # fmt: skip
        """Rewind a parked session to before a visit or an operation, and return its status. A resume runs it again."""
        self.service.check_open()
        check_texts(by=by, reason=reason)
        given, place = merged_changes(changes, named), Target.of_rewind(to, to_operation, reuse, result)

        async def attempt() -> None:
            await self._rewind(await self.parked(session_id, "rewound", based_on), place, given, result, by, reason)

        await self.service.retried(attempt)
        return (await self.service.row(session_id)).status

    async def _rewind(
        self, row: SessionRow, place: Target, given: dict[str, Any], result: Any, by: str | None, reason: str
    ) -> None:  # fmt: skip
        line, base, visit, operation = await line_before(self.service, row, place)
        await check_past(self.service, row, line)
        blobs = line.state.seal()
        edit = EditBody(await self.edits_there(row, line, given, blobs), by, reason) if given else None
        replacement = None
        if operation is not None and result is not AGAIN:
            workflow, sizes = self.service.workflow_of(row), self.service.sizes
            replacement = replaced(workflow, row, line, operation, result, sizes, blobs, by)
        pauses = [pause.id for pause in await self.service.store.pauses(row.key) if pause.kind not in LEFT_OPEN]
        id = operation.id if operation is not None else ""
        body = RewindBody(visit, place.reuse, by, reason, row.ended or "", id, replacement is not None)
        summary = f"rewound{f' by {by}' if by else ''} to before {id or visit}"
        await self.revise(
            row, line, "rewind", body, f"{summary}, edited: {', '.join(given)}" if given else summary,
            base=base, edit=edit, replacement=replacement, blobs=blobs, close_pauses=tuple(pauses), closed_by=by,
            thaw=True, settles=True, cancel_children=f"{row.session_id} was rewound",
        )  # fmt: skip

    async def edits_there(
        self, row: SessionRow, line: Line, given: dict[str, Any], blobs: Blobs
    ) -> tuple[Change, ...]:  # fmt: skip
        """Return the changes of the state that a rewind leads to. The line itself stays unchanged, as the key frame."""
        instead = "Fork it at that visit with the changes, which migrates the fork; or rewind it without changes."
        return await edit_changes(self._editing(row, line.version, line.state.copy(), instead), given, blobs)

    async def parked(self, session_id: str, what: str, based_on: int | None = None) -> SessionRow:
        row = await self.service.row(session_id)
        if row.live:
            raise VerbRefused(
                f"Session {row.session_id!r} is {row.status.value}, driven by {await self.service.holder(row)},"
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

    async def revise(
        self, row: SessionRow, line: Line, kind: RecordKind, body: EditBody | RewindBody | EventBody, summary: str,
        *, base: int | None = None, edit: EditBody | None = None, replacement: OperationBody | None = None,
        blobs: Blobs, **facts: Unpack[Facts],
    ) -> None:  # fmt: skip
        """Commit a record to a session that no process drives. With a ``base``, a key frame follows it.

        ``edit`` is a separate record with changes of that key frame, ``replacement`` one of an operation with another
        result.
        """
        now, step, visit = self.service.clock.now(), line.step or "", line.visit
        records = [seal(row.digest, row.seq + 1, base or row.seq, kind, step, visit, now, to_payload(body))]
        if base is not None:
            records.append(_after(records[0], "key", to_payload(line.key_body())))
        frame = row.key_frame if base is None else records[-1].seq
        if edit is not None:
            records.append(_after(records[-1], "edit", to_payload(edit)))
        if replacement is not None:
            records.append(_after(records[-1], "operation", to_payload(replacement)))
        facts["release"], facts["version"] = True, line.version
        if replacement is not None and row.parent is not None:
            facts["parent"] = row.parent  # which counts the operations of its children, too
        commit = Commit(
            row.key, row.fence, row.seq, tuple(records), max(now, row.updated_at),
            frame, line.step, visit, line.held_by_guard,
            blobs=tuple(blobs), spend_operations=0 if replacement is None else operations_in(replacement), **facts,
        )  # fmt: skip
        below = await self.service.store.revise(commit)
        event = body if isinstance(body, EventBody) else EventBody(f"session.{kind}", summary)
        Watch(row.session_id, row.workflow).committed(commit, event)
        report_ended(below)
        self.service.driver.changed(row.session_id)
        self.service.driver.on_change()

    # asking again

    async def ask_again(
        self, session_id: str, question_id: str | None = None, /, *, by: str | None = None, reason: str = ""
    ) -> Status:  # fmt: skip
        """Forget what a question of the open visit led to, so that a resume asks it again. Return the status."""
        self.service.check_open()
        check_texts(by=by, reason=reason)

        async def attempt() -> None:
            question = None if question_id is None else await self._question(session_id, question_id)
            asker = session_id if question is None else question.session_id
            row = await self.parked(asker, "changed")
            line = await self.service.timeline(row).line()
            await self._forget(row, line, await self._to_forget(row, line, question_id, question), by, reason)

        await self.service.retried(attempt)
        return (await self.service.row(session_id)).status

    async def _forget(
        self, row: SessionRow, line: Line, remembered: tuple[str, OperationBody], by: str | None, reason: str
    ) -> None:  # fmt: skip
        question_id, operation = remembered
        data = {"question_id": question_id, "operation": operation.id, "was": operation.outcome or "answered",
                "by": by, "reason": reason}  # fmt: skip
        why = f" ({reason})" if reason else ""
        body = EventBody(
            "question.forgotten", f"{operation.name} is asked again, requested by {by or 'someone'}{why}", by or "",
            msgspec.Raw(msgspec.json.encode(data)), forgets=(operation.id,), reopened=row.ended or "",
        )  # fmt: skip
        due = None if row.wakes_at is None else 0  # a worker may resume it at once, whatever it waited for until now
        await self.revise(row, line, "event", body, body.summary, blobs=[], closed_by=by, wakes_at=due)

    async def _question(self, session_id: str, question_id: str) -> QuestionRow | None:
        """Return a question of the session or of a session below it; None if the store no longer has it."""
        check_strings(question_id=question_id)
        await self.service.row(session_id)
        rows = list(await self.service.store.questions(Inquiry(ids=(question_id,))))
        if not rows:
            return None
        above: str | None = rows[0].session_id
        while above is not None and above != session_id:
            above = (await self.service.row(above)).parent_id
        if above is None:
            raise WrongSession(
                f"Question {question_id} belongs to session {rows[0].session_id!r}, not to {session_id!r}. Ask it again"
                " there.",
                session_id=session_id, question_id=question_id,
            )  # fmt: skip
        return rows[0]

    async def _to_forget(
        self, row: SessionRow, line: Line, question_id: str | None, question: QuestionRow | None
    ) -> tuple[str, OperationBody]:
        """Return the id of the question to ask again, and the operation that remembers what it led to."""
        failed = await self._without_answer(line)
        if question_id in failed:
            return question_id, failed[question_id]
        if question_id is None:
            if len(failed) == 1:
                return next(iter(failed.items()))
            if failed:
                raise SeveralQuestions(
                    f"Session {row.session_id!r} has {len(failed)} questions that were declined or got no valid answer."
                    f" Name one of them: {', '.join(failed)}.",
                    session_id=row.session_id, question_id="", candidates=list(failed),
                )  # fmt: skip
            why = f"Session {row.session_id!r} has no question to ask again: its open step has none that was declined"
            raise _nothing(row, f"{why} or got no valid answer. To ask an answered one again, name it by its id.")
        if question is None:
            raise UnknownQuestion(
                f"This store has no question with the id {shortened(question_id)}. List those of the session with"
                f" engine.session({row.session_id!r}).questions(status=None).",
                session_id=row.session_id, question_id=question_id[:KEPT],
            )  # fmt: skip
        id = _operation_of(question)
        if id in line.waits:
            answered = question.facts.status is QuestionStatus.RESUMED
            what = "was answered, and its step has not read the answer yet. Resume" if answered else "is open. Answer"
            raise _nothing(row, f"Question {question_id} {what} {'the session' if answered else 'it'} first.")
        later = await self.service.store.questions(Inquiry(session=row.key, after=(question.n,)))
        if id not in line.operations or any(_operation_of(each) == id for each in later):
            raise _nothing(
                row,
                f"Question {question_id} has no answer that the open step of session {row.session_id!r} remembers, so"
                " there is nothing to forget. Resume the session: it asks what it still needs to know. If the step has"
                " finished, rewind to it; plan_rewind() lists what would run again.",
            )
        if not _is_reachable(line, id):
            raise _nothing(row, f"The operation that asked question {question_id} has finished. Rewind to its step.")
        return question_id, line.operations[id]

    async def _without_answer(self, line: Line) -> dict[str, OperationBody]:
        """Return the questions of the open visit that were declined or got no valid answer, by their ids."""
        failed = [body for body in line.operations.values() if body.outcome in UNANSWERED and body.name in ASKING]
        failed = [body for body in failed if _is_reachable(line, body.id)]
        large = await self.service.store.blobs({bytes.fromhex(b.value.hash) for b in failed if type(b.value) is Blob})
        questions: dict[str, OperationBody] = {}
        for body in failed:
            value = body.value
            data = large[bytes.fromhex(value.hash)] if isinstance(value, Blob) else bytes(value.data)
            questions[decode(data)["question_id"]] = body
        return questions

    # forking

    async def forked(
        self, workflow: Workflow[Any] | None, row: SessionRow, session_id: SessionId, place: Target,
        given: dict[str, Any], by: str | None, folder: str | Path | None = None,
    ) -> NewSession:  # fmt: skip
        """Return a new session that begins with another one's state, now or before a visit. Large values are shared.

        Drawers are copied as they are now, because they have no history.

        Without the ``workflow``, the fork keeps the version of the source, and nothing can be changed.
        """
        line, base, visit, operation = await place.find(self.service.timeline(row))
        blobs = [] if workflow is None else await self.upgraded(workflow, line, row)
        changes: tuple[Change, ...] = ()
        if given and workflow is not None:
            access = StateAccess(workflow, line.state, self.service.store, self.service.sizes)
            changes = await edit_changes(access, given, blobs, frozen=False)
            line.edit(EditBody(changes))
        line.opened, line.left_behind = 1, ()
        if line.trail is not None:  # what it publishes, only its code knows
            line.trail = trail_for(workflow or self.service.workflow_of(row), session_id, folder)
        blobs += line.state.seal()
        id = operation.id if operation is not None else ""
        origin = Origin(row.session_id, base, visit, tuple(given), id)
        body = msgspec.structs.replace(line.key_body(), created=True, by=by, origin=origin)
        now = self.service.clock.now()
        first = seal(first_digest(session_id), 1, 0, "key", line.step or "", line.visit, now, to_payload(body))
        named = line.state.named() | {each.value.hash for each in line.operations.values() if type(each.value) is Blob}
        names = {bytes.fromhex(name) for name in named} - {name for name, _ in blobs}
        digest = sha256(f"fork|{row.session_id}|{row.created_at}|{base}|{visit}|{place.reuse}|{id}".encode())
        digest.update(msgspec.json.encode(changes))
        return NewSession(
            session_id, row.workflow, line.version, row.owner, row.tags, digest.digest(), now, line.step,
            line.visit, row.budget_usd, (first,), tuple(blobs), names=tuple(sorted(names)),
            held_by_guard=line.held_by_guard, keep_for=row.keep_for, budget_tokens=row.budget_tokens,
            budget_operations=row.budget_operations, guest=row.guest, queue=row.queue, priority=row.priority,
            lane=None if row.lane == row.owner else row.lane, drawers_of=row.key,
        )  # fmt: skip

    @asynccontextmanager
    async def sharing_files(self, row: SessionRow, new: NewSession) -> AsyncIterator[NewSession]:
        """Share a session's files with its fork, and lock them until the fork is stored, so that none is deleted."""
        signals = await self.service.store.files(row.key)
        source, target = self.service.store.files_of(row.session_id), self.service.store.files_of(new.session_id)
        if not signals or source is None or target is None:
            yield new
            return
        async with target.share(source, [file_facts(signal.payload) for signal in signals]):
            yield msgspec.structs.replace(new, files=tuple(signals))

    async def upgraded(self, workflow: Workflow[Any], line: Line, row: SessionRow) -> Blobs:
        """Upgrade a line to the present definition. Return the new large values."""
        if fits(workflow, line):
            return []
        try:
            body, blobs = await upgrade(workflow, line, self.service.store, self.service.sizes)
        except DoesNotFit as wrong:
            raise DefinitionError(
                f"Session {row.session_id!r} does not fit this definition and cannot be forked or rewound: {wrong}"
            ) from None
        line.upgrade(body)
        line.state.provide(dict(blobs))
        return blobs


def _operation_of(question: QuestionRow) -> str:
    """Return the id of the operation that asked a question; empty if its record was redacted."""
    return msgspec.json.decode(question.payload, type=WaitBody).id if question.payload else ""


def _is_reachable(line: Line, id: str) -> bool:
    """Return whether the step runs an operation again if it is forgotten: it is not inside one that is remembered."""
    return not is_inside(id, {body.id for body in line.operations.values() if not body.total})


def _nothing(row: SessionRow, text: str) -> VerbRefused:
    return VerbRefused(text, session_id=row.session_id, status=row.status.value)


def restarted(row: SessionRow, line: Line, open_pauses: int = 0) -> SessionRow:
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


def needed(verb: str, given: dict[str, Any]) -> dict[str, Any]:
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
    changes = access.on_assumed(tuple([access.replaced(place, value, blobs) for place, value in places]))
    return await access.validated_whole(changes, blobs) if access.shape.needs_whole else changes


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


class Target(NamedTuple):
    """Where a rewind or a fork goes: before a visit, before an operation or, for a fork, where the session is now.

    ``reuse`` keeps the finished operations of the visit; those before an ``operation`` are always kept.
    """

    visit: int | str | None
    operation: int | str | None = None
    reuse: bool = False

    @classmethod
    def of_rewind(
        cls, to: int | str | None, to_operation: int | str | None, reuse: bool, result: Any = AGAIN
    ) -> Target:
        """Return the target of a rewind. Raises `TypeError` unless it is one visit or one operation."""
        if result is not AGAIN and to_operation is None:
            raise TypeError(
                "result= is what an operation returns from now on. Name the operation with to_operation=. To change a"
                " field named result, pass {'result': …}."
            )
        if (to is None) == (to_operation is None):
            raise TypeError("rewind() needs one place. Pass a visit, such as 'write#2', or to_operation='think#3'.")
        return cls(to, to_operation, reuse or to_operation is not None)

    @classmethod
    def of_fork(cls, at_step: int | str | None, at_operation: int | str | None, reuse: bool) -> Target:
        """Return the target of a fork. Raises `TypeError` if it is both a visit and an operation."""
        if at_step is not None and at_operation is not None:
            raise TypeError("fork() takes one place. Pass at_step= or at_operation=.")
        return cls(at_step, at_operation, reuse or at_operation is not None)

    async def find(self, timeline: Timeline) -> Before:
        """Return the session as it was there."""
        if self.operation is not None:
            return await timeline.before_operation(self.operation)
        return await (timeline.now(self.reuse) if self.visit is None else timeline.before(self.visit, self.reuse))


async def line_before(service: Service, row: SessionRow, place: Target) -> Before:
    """Return the line there, with later edits of earlier steps' artifacts, so that steps run again with them."""
    found = await place.find(service.timeline(row))
    line = found.line
    if row.seq > found.base:
        line.left_behind = (*line.left_behind, (found.base + 1, row.seq))
    line.opened = row.seq + 2  # its key frame, so that the visit gets new idempotency keys
    if line.trail is not None:
        await _carry_all(service, row, found, line.trail)
    return found


async def _carry_all(service: Service, row: SessionRow, found: Before, trail: Trail) -> None:
    now = (await service.timeline(row).line()).trail
    assert now is not None
    trail.known = now.known  # files published by the abandoned line belong to this session too
    trail.reused, trail.redo = {}, {}
    workflow = service.workflows.get(row.workflow)
    old = {new: was for was, new in workflow.renamed.items()} if workflow is not None else {}
    for work in in_order(now):
        step = work.step if work.step in trail.works else old.get(work.step, work.step)
        if step in trail.works and trail.works[step].seq == work.seq:
            await _carry_edits(service, row, found, step, work)


async def _carry_edits(service: Service, row: SessionRow, found: Before, step: str, work: Work) -> None:
    """Apply later edits of a step's artifacts to a line that ends before them."""
    line, trail = found.line, found.line.trail
    assert trail is not None
    before = trail.works[step]
    fields = {file.path: file.field for file in before.files}
    for seq in work.edit_seqs:
        if seq <= found.base or seq in before.edit_seqs:
            continue
        (record,) = await service.store.records(row.key, seq, seq)
        body: EditBody = body_of(record)
        for each in body.adopted:
            if each.step == work.step and not each.same:
                field = fields[each.file.path]
                trail.replaced = (*trail.replaced, *trail.readers(trail.works[step], field))
                line.state.apply(msgspec.structs.replace(each.change, path=field))
                trail.versions[field] = seq
        before = trail.works[step] = msgspec.structs.replace(
            trail.works[step], edit_seqs=(*before.edit_seqs, seq), by=work.by,
            writes={**before.writes, **{key: at for key, at in work.writes.items() if at == seq}},
            files=_edited(before.files, body, seq),
        )  # fmt: skip


def in_order(trail: Trail) -> list[Work]:
    """Return the finished steps in the order in which they ran."""
    return sorted(trail.works.values(), key=lambda work: work.seq)


def _edited(files: Sequence[PublishedFile], body: EditBody, seq: int) -> tuple[PublishedFile, ...]:
    """Return the files with the edited ones replaced by their edited form."""
    new = {each.file.path: each.file for each in body.adopted}
    return tuple(
        msgspec.structs.replace(file, sha256=new[file.path].sha256, size=new[file.path].size, at=seq)
        if file.path in new
        else file
        for file in files
    )
