"""Waits of a step: for a time, a message, or a child session.

A wait holds no thread and no memory. When every branch of a visit waits, the step exits and the session is parked.
Later the step runs again from its top, reaches the same wait, and finds the wait over. A pause takes effect at a wait;
signals that arrive meanwhile stay in the session's mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pausepoint.clock import LATEST, to_micros
from pausepoint.codec.values import Typed, fingerprint, typed
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import ChildFailed, OperationTimeout, StateRefused, StepError, ValueRefused
from pausepoint.log.replay import WaitBody
from pausepoint.model.ids import SessionId
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.runtime.attempts import Policy, back_off, fail, timed_out
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait, key_text, mismatch

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
S = TypeVar("S", bound="BaseModel")

_NOTHING = typed(None)

FEW = 8
"""The number of signals that `receive` reads first."""

Duration = timedelta | float


class Message(msgspec.Struct, frozen=True):
    """The payload of a message, as the signal carries it."""

    value: msgspec.Raw


_message = msgspec.json.Decoder(Message)


# time


async def sleep(visit: Visit, frame: Frame, duration: Duration) -> None:
    """Wait for a duration, counted from the first time the step reaches this call."""
    micros = _micros(visit.step.name, duration)
    operation = Operation(visit.nth(f"{frame.scope}/sleep~{micros}"), "sleep", "", True)
    await _timer(visit, frame, operation, span=micros)


async def until(visit: Visit, frame: Frame, moment: datetime) -> None:
    """Wait until a point in time. Return immediately if it has passed."""
    due = to_micros(moment)
    operation = Operation(visit.nth(f"{frame.scope}/until~{due}"), "until", "", True)
    await _timer(visit, frame, operation, due)


async def _timer(visit: Visit, frame: Frame, operation: Operation, due: int = 0, span: int | None = None) -> None:
    found = visit.remembered(operation)
    await visit.admit(operation, frame, found)
    if found is not None:
        return
    waits, clock = visit.host.line.waits, visit.host.clock
    if span is not None:
        due = clock.now() + span  # counted from here, because a pause may have halted the call before
    if operation.id not in waits and due > (now := clock.now()):
        if due > LATEST:
            raise ValueError(
                f"Step {visit.step.name!r}: {operation.name} ends after the year 9999. Use an earlier time."
            )
        await visit.open_wait(WaitBody(operation.id, operation.name, due=due, agent=visit.agent, at=now))
    while (wait := waits.get(operation.id)) is not None and wait.due and wait.due > clock.now():
        await visit.wait(frame, Wait("timer", wait.due))
    while visit.host.must_stop:
        await visit.halt(frame)
    await conclude(visit, operation, _NOTHING, None, frame)


def _micros(step: str, duration: Duration) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if type(seconds) not in (int, float) or not isfinite(seconds) or seconds < 0:
        raise ValueError(f"Step {step!r}: sleep takes seconds or a timedelta, 0 or more, not {duration!r}.")
    return int(seconds * 1_000_000)


async def conclude(
    visit: Visit, operation: Operation, result: Typed, value: Any, frame: Frame, **facts: Any
) -> Any:  # fmt: skip
    """Remember the result of a finished wait, together with ``facts``. A wait counts as taking no time."""
    while (twin := visit.running.get(operation.id)) is not None:
        await twin.wait()  # another branch makes the same call with the same key
    if (found := visit.remembered(operation)) is not None:
        return await visit.recall(found, result)
    inside = Frame(operation.id, frame)
    visit.enter(inside)
    try:
        data = await visit.keep(operation, result, value, None, inside, **facts)
        return result.decode(data, operation.name)
    finally:
        visit.exit(inside)


# messages


async def receive(visit: Visit, frame: Frame, kind: Any) -> Any:
    """Wait for the session's next message that has not been received yet."""
    result = typed(kind)
    operation = Operation(visit.nth(f"{frame.scope}/receive"), "receive", "", True)
    found = visit.remembered(operation)
    await visit.admit(operation, frame, found)
    if found is not None:
        return await visit.recall(found, result)
    while True:
        message = await _next_message(visit)
        if message is None:
            await visit.wait(frame, Wait("message"))
            continue
        if visit.host.must_stop:
            await visit.halt(frame)
            continue
        visit.taken.add(message.n)  # another branch may get here while this one commits
        try:
            value = _read(message, result)
        except StateRefused as error:
            await visit.refuse_mail(message, f"step {visit.step.name!r}: {error}")
            continue
        return await conclude(visit, operation, result, value, frame, consume=(message.n,))


async def _next_message(visit: Visit) -> SignalRecord | None:
    """Return the oldest message not received yet. Reads only a few signals at a time, since thousands may wait."""
    limit = FEW
    while True:
        mail = await visit.mail(limit)
        for signal in mail:
            if signal.kind == "message" and signal.n not in visit.taken:
                return signal
        if len(mail) < limit:
            return None
        limit *= FEW  # all of these are reports of children or are being received by other branches


def _read(message: SignalRecord, result: Typed) -> Any:
    try:
        value = result.decode(bytes(_message.decode(message.payload).value), f"message {message.n}")
        result.encode(value, f"message {message.n}")
    except (ValueRefused, msgspec.MsgspecError) as error:
        raise StateRefused(f"Message {message.n} cannot be received: {error}", field="message") from error
    return value


# children


async def call(
    visit: Visit, frame: Frame, workflow: Workflow[S], given: S | Mapping[str, Any], key: str | int | None,
    policy: Policy | None = None,
) -> S:  # fmt: skip
    """Run a workflow as a child session, wait until it ends, and return its final state."""
    operation = _identify(visit, frame, workflow, given, key)
    result = typed(workflow.model)
    found = visit.remembered(operation)
    await visit.admit(operation, frame, found)
    if found is not None:
        known: S = await visit.recall(found, result)
        return known
    while policy is not None:
        await back_off(visit, frame, operation.id)
        try:
            return await _ended(visit, frame, operation, workflow, given, policy.timeout)
        except (ChildFailed, OperationTimeout) as error:
            if error.fields.get("status") == "cancelled":
                raise  # a person cancelled it
            await fail(visit, operation, policy, error, visit.host.line.waits[operation.id].child)
    return await _ended(visit, frame, operation, workflow, given, None)


async def _ended(
    visit: Visit, frame: Frame, operation: Operation, workflow: Workflow[S], given: S | Mapping[str, Any],
    timeout: float | None,
) -> S:  # fmt: skip
    """Wait until the child has ended and return its final state. Raises if it fails or takes too long."""
    result, waits = typed(workflow.model), visit.host.line.waits
    child = await _child_of(visit, frame, operation, timeout)
    while True:
        row = await visit.uninterrupted(visit.host.family.child(child))
        if row is not None and row.ended is not None and visit.host.must_stop:
            await visit.halt(frame)
            continue
        if row is not None and row.ended == "completed":
            state = await visit.uninterrupted(visit.host.family.child_state(workflow, row))
            reports = tuple(report.n for report in await _reports(visit, child))
            done: S = await conclude(visit, operation, result, state, frame, consume=reports)
            return done
        due = waits[operation.id].due if timeout is not None else None
        if due is not None and due <= visit.host.clock.now() and (row is None or row.ended in (None, "cancelled")):
            if visit.host.must_stop:
                await visit.halt(frame)
                continue
            await _give_up(visit, operation, row)
            raise timed_out(operation, timeout)
        if row is not None and row.ended is not None:
            await _raise_failure(visit, row)
        await _start_or_resume(visit, workflow, row, child, given)
        await visit.wait(frame, Wait("child", due, child))


async def _give_up(visit: Visit, operation: Operation, row: SessionRow | None) -> None:
    """Cancel a child that takes too long, and record which child a further attempt starts.

    The child is cancelled first: if this process dies in between, its time is over for the next one, too.
    """
    if row is None:
        return
    await visit.uninterrupted(visit.host.family.cancel_child(row.session_id, "its caller's timeout has passed"))
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
    visit: Visit, frame: Frame, workflow: Workflow[Any], given: BaseModel | Mapping[str, Any], key: str | int | None
) -> Operation:
    if not isinstance(workflow, Workflow):
        raise StepError(f"Step {visit.step.name!r}: ctx.call takes a Workflow, not {type(workflow).__name__}.")
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
        return Operation(f"{frame.scope}/{name}[{key_text(key)}]", name, print_, True)
    return Operation(visit.nth(f"{frame.scope}/{name}~{print_}"), name, print_, False)


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
        await visit.uninterrupted(visit.host.family.begin_child(workflow, SessionId(child), given))
    elif row.status in (Status.CREATED, Status.READY, Status.FAILED) or (
        _is_resumed_with_us(row) and _is_first_look(visit, row)
    ):
        await visit.uninterrupted(visit.host.family.resume_child(workflow, row))


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
