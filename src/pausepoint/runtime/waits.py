"""What a step can wait for: a time, a message, a child session.

A wait does not raise, and it holds nothing: when all that is left of a visit waits, the step
is left and the session parked. Later the step's body runs again from its top, comes to the
same wait, and finds that what it waited for is there. A pause takes effect at a wait: what
comes while the session is to stop is left where it is.
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
from pausepoint.errors import ChildFailed, StateRefused, StepError, ValueRefused
from pausepoint.log.replay import WaitBody
from pausepoint.model.ids import SessionId
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait, key_text, mismatch

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
S = TypeVar("S", bound="BaseModel")

_NOTHING = typed(None)

FEW = 8
"""How many signals are looked at first when a message is to be received."""

Duration = timedelta | float


class Message(msgspec.Struct, frozen=True):
    """The payload of a message, as the signal carries it."""

    value: msgspec.Raw


_message = msgspec.json.Decoder(Message)


# time


async def sleep(visit: Visit, frame: Frame, duration: Duration) -> None:
    """Wait for a time span; it is counted from the first time that the step came here."""
    micros = _micros(visit.step.name, duration)
    operation = Operation(visit.nth(f"{frame.scope}/sleep~{micros}"), "sleep", "", True)
    await _timer(visit, frame, operation, visit.host.clock.now() + micros)


async def until(visit: Visit, frame: Frame, moment: datetime) -> None:
    """Wait for a moment; one that has passed is no wait."""
    due = to_micros(moment)
    operation = Operation(visit.nth(f"{frame.scope}/until~{due}"), "until", "", True)
    await _timer(visit, frame, operation, due)


async def _timer(visit: Visit, frame: Frame, operation: Operation, due: int) -> None:
    found = visit.remembered(operation)
    await visit.admit(operation, frame, found)
    if found is not None:
        return
    waits, clock = visit.host.line.waits, visit.host.clock
    if operation.id not in waits and due > (now := clock.now()):
        if due > LATEST:
            raise ValueError(f"{visit.step.name}: {operation.name} ends after the year 9999; there is no such moment")
        await visit.open_wait(WaitBody(operation.id, operation.name, due=due, agent=visit.agent, at=now))
    while (wait := waits.get(operation.id)) is not None and wait.due and wait.due > clock.now():
        await visit.wait(frame, Wait("timer", wait.due))
    while visit.host.wanted:
        await visit.stand_still(frame)
    await conclude(visit, operation, _NOTHING, None, frame)


def _micros(step: str, duration: Duration) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if type(seconds) not in (int, float) or not isfinite(seconds) or seconds < 0:
        raise ValueError(f"{step}: sleep takes a time span in seconds or a timedelta, not negative: {duration!r}")
    return int(seconds * 1_000_000)


async def conclude(
    visit: Visit, operation: Operation, result: Typed, value: Any, frame: Frame, **facts: Any
) -> Any:  # fmt: skip
    """What was waited for is there: remember it, with what goes with it. A wait is no work, so it took no time."""
    while (twin := visit.running.get(operation.id)) is not None:
        await twin.wait()  # another branch made the same call, under the same key
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
    """Wait for the next message of this session that nobody has received yet."""
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
        if visit.host.wanted:
            await visit.stand_still(frame)
            continue
        visit.taken.add(message.n)  # another branch may come here while this one commits
        try:
            value = _read(message, result)
        except StateRefused as error:
            await visit.refuse_mail(message, f"{visit.step.name}: {error}")
            continue
        return await conclude(visit, operation, result, value, frame, consume=(message.n,))


async def _next_message(visit: Visit) -> SignalRecord | None:
    """The oldest message that nobody has received. Thousands may wait behind it, so not all are looked at."""
    limit = FEW
    while True:
        mail = await visit.mail(limit)
        for signal in mail:
            if signal.kind == "message" and signal.n not in visit.taken:
                return signal
        if len(mail) < limit:
            return None
        limit *= FEW  # other branches are busy with all of these, or they are reports of children


def _read(message: SignalRecord, result: Typed) -> Any:
    try:
        value = result.decode(bytes(_message.decode(message.payload).value), f"message {message.n}")
        result.encode(value, f"message {message.n}")
    except (ValueRefused, msgspec.MsgspecError) as error:
        raise StateRefused(f"message {message.n} cannot be taken in: {error}", field="message") from error
    return value


# children


async def call(
    visit: Visit, frame: Frame, workflow: Workflow[S], given: S | Mapping[str, Any], key: str | int | None
) -> S:
    """Run a workflow as a child session and wait for its end; its final state comes back."""
    operation = _identify(visit, frame, workflow, given, key)
    result = typed(workflow.model)
    found = visit.remembered(operation)
    await visit.admit(operation, frame, found)
    if found is not None:
        known: S = await visit.recall(found, result)
        return known
    child = await _child_of(visit, frame, operation)
    while True:
        row = await visit.busily(visit.host.family.child(child))
        if row is not None and row.ended is not None and visit.host.wanted:
            await visit.stand_still(frame)
            continue
        if row is not None and row.ended == "completed":
            state = await visit.busily(visit.host.family.child_state(workflow, row))
            reports = tuple(report.n for report in await _reports(visit, child))
            done: S = await conclude(visit, operation, result, state, frame, consume=reports)
            return done
        if row is not None and row.ended is not None:
            await _raise_failure(visit, row)
        await _keep_going(visit, workflow, row, child, given)
        await visit.wait(frame, Wait("child", child=child))


async def _child_of(visit: Visit, frame: Frame, operation: Operation) -> str:
    """The id of the child that a call waits for; that it does is recorded before the child begins."""
    waits = visit.host.line.waits
    if (known := waits.get(operation.id)) is None:
        child = _child_id(visit, operation)
        known = WaitBody(operation.id, operation.name, child=child, agent=visit.agent, input=operation.input)
        await visit.open_wait(known)
    elif operation.keyed and known.input and operation.input and known.input != operation.input:
        await visit.refuse(frame, "mismatch", mismatch(visit.step.name, operation))
    return known.child


def _identify(
    visit: Visit, frame: Frame, workflow: Workflow[Any], given: BaseModel | Mapping[str, Any], key: str | int | None
) -> Operation:
    if not isinstance(workflow, Workflow):
        raise StepError(f"{visit.step.name}: ctx.call takes a Workflow, not {type(workflow).__name__}")
    if workflow.leaves:
        raise StepError(
            f"{visit.step.name}: {workflow.name!r} leaves artifacts, and a child session has no folder for them; start"
            " it as a session of its own: engine.start(..., folder=...)"
        )
    name = f"call:{workflow.name}"
    content = dict(given) if isinstance(given, Mapping) else given.model_dump()
    try:
        print_ = fingerprint(content).hex()[:24]
    except ValueRefused as error:
        if key is None:
            raise StepError(
                f"{visit.step.name}: the input of {name!r} cannot be encoded ({error}); pass key= to name the call"
            ) from error
        print_ = ""
    if key is not None:
        return Operation(f"{frame.scope}/{name}[{key_text(key)}]", name, print_, True)
    return Operation(visit.nth(f"{frame.scope}/{name}~{print_}"), name, print_, False)


def _child_id(visit: Visit, operation: Operation) -> SessionId:
    """The same whenever the step comes here again, another one in every visit."""
    parent = visit.host.session_id
    text = f"{parent}|{visit.host.line.opened}|{operation.id}"
    print_ = sha256(text.encode()).hexdigest()[:16]
    return SessionId(f"{parent}.{print_}" if len(parent) <= 100 else print_)


async def _reports(visit: Visit, child: str) -> list[SignalRecord]:
    return await visit.mail(kind="child", about=child)


async def _raise_failure(visit: Visit, row: SessionRow) -> None:
    """Raise the failure of a child. The next attempt at the step, or somebody who resumes it, has the child try again.

    A step that only goes on after a wait is told the same as before: if the child were tried again whenever its parent
    wakes, two children that fail would keep each other going for ever.
    """
    reports = await _reports(visit, row.session_id)
    told = row.session_id in visit.host.line.noticed and not _is_first_look(visit, row)
    if row.ended == "failed" and not (reports or told):
        return
    why = f"{row.failure.type}: {row.failure.message}" if row.failure is not None else ""
    text = f"{visit.step.name}: the child session {row.session_id!r} {row.ended}" + (f", {why}" if why else "")
    for report in reports:
        await visit.take_mail(report, "child.noticed", text, row.session_id if row.ended == "failed" else "")
    hint = (
        "; it goes on when this step runs again" if row.ended == "failed" else "; rewind this step to have another one"
    )
    raise ChildFailed(text + hint, child_id=row.session_id, status=str(row.ended))


async def _keep_going(
    visit: Visit, workflow: Workflow[Any], row: SessionRow | None, child: str, given: BaseModel | Mapping[str, Any]
) -> None:
    if row is None:
        await visit.busily(visit.host.family.begin_child(workflow, SessionId(child), given))
    elif row.status in (Status.CREATED, Status.READY, Status.FAILED) or (
        _is_resumed_with_us(row) and _is_first_look(visit, row)
    ):
        await visit.busily(visit.host.family.resume_child(workflow, row))


def _is_resumed_with_us(row: SessionRow) -> bool:
    """Whether a resume of the tree is also for this child.

    What has to go on may be a child of the child, and only its own step can tell. And what made it stand still (a
    budget, a guard) is tested again.
    """
    if row.status is Status.WAITING:
        return row.awaits_child
    return row.status is Status.PAUSED and not row.pause_requested


def _is_first_look(visit: Visit, row: SessionRow) -> bool:
    """Whether somebody resumed the tree, and this child was not looked at since."""
    if not visit.host.resumed or row.session_id in visit.nudged:
        return False
    visit.nudged.add(row.session_id)
    return True
