"""Waits of a step: for a time, a message, or a child session.

A wait holds no thread and no memory. When every branch of a visit waits, the step exits and the session is parked.
Later the step runs again from its top, reaches the same wait, and finds the wait over. A pause takes effect at a wait;
signals that arrive meanwhile stay in the session's mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pausepoint.clock import LATEST, to_micros
from pausepoint.codec.arguments import Arguments
from pausepoint.codec.values import fingerprint, typed
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import ChildFailed, OperationTimeout, StepError, ValueRefused
from pausepoint.log.replay import OperationBody, WaitBody
from pausepoint.model.ids import SessionId
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.runtime.attempts import Policy, fail, rest, timed_out
from pausepoint.runtime.messages import Receiving
from pausepoint.runtime.misses import mismatch
from pausepoint.runtime.pending import Done, Make, Pending, conclude
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait

if TYPE_CHECKING:
    from pydantic import BaseModel

R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")

_NOTHING = typed(None)

Duration = timedelta | float


# time


def sleeping(visit: Visit, frame: Frame, duration: Duration) -> Make[None]:
    """Return a wait for a duration, counted from the first time the step reaches the call."""
    span = micros(visit.step.name, "sleep", duration)
    return partial(_Timer, visit, frame, "sleep", span, None)


def waiting_until(visit: Visit, frame: Frame, moment: datetime) -> Make[None]:
    """Return a wait until a point in time. It is over if the time has passed."""
    return partial(_Timer, visit, frame, "until", None, to_micros(moment))


class _Timer(Pending[None]):
    rank = 2

    def __init__(self, visit: Visit, frame: Frame, name: str, span: int | None, due: int | None, scope: str) -> None:
        identity = visit.nth(frame, f"{scope}/{name}~{due if span is None else span}")
        super().__init__(visit, frame, Operation(identity, name, "", True))
        self.span = span
        self.due = due

    async def recall(self, found: OperationBody) -> None:
        return None

    async def look(self) -> Done | Wait | None:
        waits, now = self.host.line.waits, self.host.clock.now()
        if (wait := waits.get(self.operation.id)) is None:
            due = now + (self.span or 0) if self.due is None else self.due
            if due > now:
                await self._open(due, now)
                return None
        elif wait.due and wait.due > now:
            return Wait("timer", wait.due)
        if self.host.must_stop:
            await self.visit.halt(self.frame)
            return None
        return Done(await conclude(self.visit, self.operation, _NOTHING, None, self.frame, self.rivals))

    async def _open(self, due: int, now: int) -> None:
        operation, visit = self.operation, self.visit
        if due > LATEST:
            raise ValueError(
                f"Step {visit.step.name!r}: {operation.name} ends after the year 9999. Use an earlier time."
            )
        await visit.open_wait(WaitBody(operation.id, operation.name, due=due, agent=visit.agent, at=now))


def micros(step: str, what: str, duration: Duration) -> int:
    """Return a duration in microseconds. Raises `ValueError` if it is not one."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if type(seconds) not in (int, float) or not isfinite(seconds) or seconds < 0:
        raise ValueError(f"Step {step!r}: {what} takes seconds or a timedelta, 0 or more, not {duration!r}.")
    return int(seconds * 1_000_000)


# messages


def receiving(visit: Visit, frame: Frame, kind: Any, timeout: Duration | None) -> Make[Any]:
    """Return a wait for the session's next message."""
    span = None if timeout is None else micros(visit.step.name, "receive(timeout=)", timeout)
    return partial(Receiving, visit, frame, kind, span)


# children


def calling(
    visit: Visit, frame: Frame, workflow: Workflow[S, R], given: S | Mapping[str, Any], key: str | int | None,
    policy: Policy | None,
) -> Make[R]:  # fmt: skip
    """Return a wait for the end of a child session, which the wait starts.

    Its result is what the workflow returns, or the child's final state.
    """
    return partial(_Calling, visit, frame, workflow, given, key, policy)


class _Calling(Pending[Any]):
    def __init__(
        self, visit: Visit, frame: Frame, workflow: Workflow[Any, Any], given: BaseModel | Mapping[str, Any],
        key: str | int | None, policy: Policy | None, scope: str,
    ) -> None:  # fmt: skip
        super().__init__(visit, frame, _identify(visit, frame, scope, workflow, given, key))
        self.workflow = workflow
        self.given = given
        self.policy = policy
        self.timeout = None if policy is None else policy.timeout
        self.result = typed(workflow.model)
        self.child = ""  # that of the current attempt; empty before the attempt begins

    async def recall(self, found: OperationBody) -> Any:
        return self._returned(await self.visit.recall(found, self.result))

    async def look(self) -> Done | Wait | None:
        policy, operation = self.policy, self.operation
        if not self.child:
            if policy is not None and (left := await rest(self.visit, self.frame, operation.id)) is not None:
                return left
            self.child = await _child_of(self.visit, self.frame, operation, self.timeout)
        try:
            return await self._ended()
        except (ChildFailed, OperationTimeout) as error:
            if policy is None or error.fields.get("status") == "cancelled":
                raise  # a person cancelled it
            await fail(self.visit, operation, policy, error, self.host.line.waits[operation.id].child)
            self.child = ""
            return None

    async def _ended(self) -> Done | Wait | None:
        """Return the result of the child if it has ended. Raises if it fails or takes too long."""
        visit, host, child = self.visit, self.host, self.child
        row = await visit.uninterrupted(host.children.child(child))
        if row is not None and row.ended is not None and host.must_stop:
            await visit.halt(self.frame)
            return None
        if row is not None and row.ended == "completed":
            return Done(await self._completed(child, row))
        due = host.line.waits[self.operation.id].due if self.timeout is not None else None
        if due is not None and due <= host.clock.now() and (row is None or row.ended in (None, "cancelled")):
            if host.must_stop:
                await visit.halt(self.frame)
                return None
            await _give_up(visit, self.operation, row)
            raise timed_out(self.operation, self.timeout)
        if row is not None and row.ended is not None:
            await _raise_failure(visit, row)
        await _start_or_resume(visit, self.workflow, row, child, self.given)
        return Wait("child", due, child)

    async def _completed(self, child: str, row: SessionRow) -> Any:
        state = await self.visit.uninterrupted(self.host.children.child_state(self.workflow, row))
        reports = tuple(report.n for report in await _reports(self.visit, child))
        kept = await conclude(self.visit, self.operation, self.result, state, self.frame, self.rivals, consume=reports)
        return self._returned(kept)

    def _returned(self, state: Any) -> Any:
        name = self.workflow.returns
        return state if name is None else getattr(state, name)


async def _give_up(visit: Visit, operation: Operation, row: SessionRow | None) -> None:
    """Cancel a child that takes too long, and record which child a further attempt starts.

    The child is cancelled first: if this process dies in between, its time is over for the next one, too.
    """
    if row is None:
        return
    await visit.uninterrupted(visit.host.children.cancel_child(row.session_id, "its caller's timeout has passed"))
    known, following = visit.host.line.waits[operation.id], _child_id(visit, operation, row.session_id)
    body = msgspec.structs.replace(known, due=None, child=following, after=row.session_id, error="", effects=())
    await visit.open_wait(body)


async def _child_of(visit: Visit, frame: Frame, operation: Operation, timeout: float | None) -> str:
    """Return the id of the child that a call waits for. The wait is recorded before the child starts."""
    known = visit.host.line.waits.get(operation.id)
    if known is not None and operation.keyed and known.input and operation.input and known.input != operation.input:
        await visit.refuse(frame, "mismatch", mismatch(visit.step.name, operation))
    if known is None or known.error or (timeout is not None and known.due is None):
        child, attempt = (_child_id(visit, operation), 0) if known is None else (known.child, known.attempt)
        now = 0 if timeout is None else visit.host.clock.now()
        due = None if timeout is None else min(now + int(timeout * 1e6), LATEST)
        known = WaitBody(
            operation.id, operation.name, due, child, visit.agent, at=now, input=operation.input, attempt=attempt
        )
        await visit.open_wait(known)
    return known.child


def _identify(
    visit: Visit, frame: Frame, scope: str, workflow: Workflow[Any], given: BaseModel | Mapping[str, Any],
    key: str | int | None,
) -> Operation:  # fmt: skip
    if not isinstance(workflow, Workflow):
        raise StepError(f"Step {visit.step.name!r}: ctx.call takes a Workflow, not {type(workflow).__name__}.")
    if workflow.is_guest:
        raise StepError(
            f"Step {visit.step.name!r}: workflow {workflow.name!r} is a guest, so no engine can run it. Visit it with"
            " engine.visit, or call a workflow with steps."
        )
    if workflow.publishes:
        raise StepError(
            f"Step {visit.step.name!r}: workflow {workflow.name!r} publishes artifacts, and a child session has no"
            " folder for them. Start it as a separate session: engine.start(..., folder=...)."
        )
    name = f"call:{workflow.name}"
    content = dict(given) if isinstance(given, Mapping) else given.model_dump()
    try:
        print_ = fingerprint(content).hex()[:24]
    except ValueRefused as error:
        if key is None:
            raise StepError(
                f"Step {visit.step.name!r}: the input of {name!r} cannot be encoded. Pass key= to name the call."
                f" Reason: {error}"
            ) from error
        print_ = ""
    if key is not None:
        return visit.keyed(scope, name, key, print_, Arguments(content))
    return visit.unkeyed(frame, scope, name, print_, Arguments(content))


def _child_id(visit: Visit, operation: Operation, after: str = "") -> SessionId:
    """Return the child's id: the same whenever the step reaches this call again, different in every visit.

    ``after`` is the child that it replaces.
    """
    parent = visit.host.session_id
    text = f"{parent}|{visit.host.line.opened}|{operation.id}" + (f"|{after}" if after else "")
    print_ = sha256(text.encode()).hexdigest()[:16]
    # Without the dots at the end of the parent's id, because no id contains "..".
    return SessionId(f"{parent.rstrip('.')}.{print_}" if len(parent) <= 100 else print_)


async def _reports(visit: Visit, child: str) -> list[SignalRecord]:
    return await visit.mail(kind="child", about=child)


async def _raise_failure(visit: Visit, row: SessionRow) -> None:
    """Raise the failure of a child. The next attempt at the step, or a resume, retries the child.

    If the step only continues after a wait, it gets the same error again and the child is not retried. Otherwise two
    failing children would restart each other forever, because the end of each one wakes the parent.
    """
    reports = await _reports(visit, row.session_id)
    reported = row.session_id in visit.host.line.noticed and not _is_first_look(visit, row)
    if row.ended == "failed" and not (reports or reported):
        return
    why = f" Reason: {row.failure.type}: {row.failure.message}" if row.failure is not None else ""
    failed = row.ended == "failed"
    text = f"Step {visit.step.name!r}: child session {row.session_id!r} {'failed' if failed else 'was cancelled'}."
    for report in reports:
        await visit.take_mail(report, "child.noticed", text + why, row.session_id if failed else "")
    hint = " It resumes when this step runs again." if failed else " Rewind this step to start another one."
    raise ChildFailed(text + hint + why, child_id=row.session_id, status=str(row.ended))


async def _start_or_resume(
    visit: Visit, workflow: Workflow[Any], row: SessionRow | None, child: str, given: BaseModel | Mapping[str, Any]
) -> None:
    if row is None:
        await visit.uninterrupted(visit.host.children.begin_child(workflow, SessionId(child), given))
    elif row.status in (Status.CREATED, Status.READY, Status.FAILED) or (
        _is_resumed_with_us(row) and _is_first_look(visit, row)
    ):
        await visit.uninterrupted(visit.host.children.resume_child(workflow, row))


def _is_resumed_with_us(row: SessionRow) -> bool:
    """Return whether a resume of the parent also resumes this child.

    A child that waits for its own child is resumed, because only its own step knows whether that one must resume. A
    child that was paused by a budget or a guard is resumed so that the condition is checked again.
    """
    if row.status is Status.WAITING:
        return row.awaits_child
    return row.status is Status.PAUSED and not row.pause_requested


def _is_first_look(visit: Visit, row: SessionRow) -> bool:
    """Return whether the session was resumed and this is the first check of the child since."""
    if not visit.host.resumed or row.session_id in visit.nudged:
        return False
    visit.nudged.add(row.session_id)
    return True
