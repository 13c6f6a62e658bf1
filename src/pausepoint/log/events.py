"""Derives the events of a session from its log and its signals.

Events are not stored separately. A record *is* an event, and an event that a step emits is stored in the record that it
was committed with. Log and signals share one order, because a signal stores the log's ``seq`` at its arrival. So a
cursor ``"seq.signal.index"`` is exact: a reader that continues from it gets no event twice and misses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.codec.arguments import arguments_of, cut, line_of, value_of
from pausepoint.log.replay import (
    CheckpointBody,
    DefinitionBody,
    EditBody,
    Effect,
    EventBody,
    KeyBody,
    Line,
    OperationBody,
    Origin,
    RewindBody,
    WaitBody,
    body_of,
    retry_line,
)
from pausepoint.log.state import Inline
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.ids import shortened
from pausepoint.model.questions import Asked, Reply, reply_of
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import Event
from pausepoint.model.stores import Tombstone
from pausepoint.model.views import Retrying

_NAME = re.compile(r"/([^/~\[\]]+)(?:~[^/]*|\[.*\])$")
_ANSWERS = {"answer": "question.answered", "early": "answer.kept", "refused": "answer.refused"}
_SIGNALS = {"pause": "pause.requested", "resume": "resume.requested", "cancel": "cancel.requested"}


class Cursor(msgspec.Struct, frozen=True):
    """A reader's position: after record ``seq``, signal ``signal``, and ``index`` events of the next entry."""

    seq: int = 0
    signal: int = 0
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the cursor of an event.

        >>> Cursor.parse("12.3.0")
        Cursor(seq=12, signal=3, index=0)
        """
        try:
            seq, signal, index = (int(part) for part in text.split("."))
        except (ValueError, AttributeError, TypeError):  # text from outside may be anything
            raise ValueError(
                f"{shortened(text)} is not a cursor. Pass the cursor of an event, or '' for the beginning."
            ) from None
        return cls(seq, signal, index)

    def __str__(self) -> str:
        return f"{self.seq}.{self.signal}.{self.index}"


def events(
    session_id: str, start: Cursor, records: Iterable[Record], signals: Iterable[SignalRecord]
) -> Iterator[Event]:
    """Yield the events after ``start``, in order.

    Pass the records after ``start.seq`` and the signals after ``start.signal``.
    """
    entries: list[tuple[int, int, Record | SignalRecord]] = [(record.seq, 0, record) for record in records]
    entries += [(signal.after, signal.n, signal) for signal in signals]
    entries.sort(key=lambda entry: entry[:2])
    seq, signal, skip = start.seq, start.signal, start.index
    for _, _, entry in entries:
        if isinstance(entry, Record):
            lines = list(_of_record(entry))
            after = (entry.seq, signal)
        else:
            lines = [_of_signal(entry)]
            after = (seq, entry.n)
        for index, (at, agent, kind, summary, data) in enumerate(lines):
            if index < skip:
                continue
            last = index == len(lines) - 1
            cursor = Cursor(*after, 0) if last else Cursor(seq, signal, index + 1)
            yield Event(str(cursor), session_id, at, agent, kind, summary, data)
        seq, signal = after
        skip = 0


Parts = tuple[int, str, str, str, dict[str, Any]]


def of_tombstone(stone: Tombstone) -> Event:
    """Return the last event of a removed session, the only one that remains."""
    who = stone.by or "someone"
    data = {
        "by": stone.by, "reason": stone.reason, "status": stone.status, "workflow": stone.workflow,
        "owner": stone.owner, "created_at": to_datetime(stone.created_at).isoformat(), "records": stone.records,
        "digest": stone.digest.hex(),
    }  # fmt: skip
    summary = f"removed by {who}" + (f": {stone.reason}" if stone.reason else "")
    cursor = Cursor(stone.records + 1)
    return Event(str(cursor), stone.session_id, stone.removed_at, stone.by or "", "session.removed", summary, data)


def _of_signal(signal: SignalRecord) -> Parts:
    if signal.redacted:
        return signal.at, signal.by or "", "redacted", f"signal {signal.n} ({signal.kind}) was redacted", {}
    data = msgspec.json.decode(signal.payload)
    if signal.kind == "message":
        return (
            signal.at,
            signal.by or "",
            "message.received",
            f"message received from {signal.by or 'someone'}",
            {"n": signal.n},
        )
    if signal.kind in _ANSWERS:
        return _of_answer(signal, reply_of(signal.payload))
    if signal.kind == "file":
        return signal.at, signal.by or "", "file.added", *_of_file(file_facts(signal.payload))
    if signal.kind == "child":
        text = f"child session {data['child']} {data['status']}" + (f": {data['reason']}" if data["reason"] else "")
        return signal.at, "", f"child.{data['status']}", text, data
    if "budget_usd" in data:  # tokens and operations are shown as they are stored
        data["budget_usd"] /= 1e6  # stored in microdollars, shown in dollars
    who = signal.by or "someone"
    reason = f": {data['reason']}" if data.get("reason") else ""
    return signal.at, signal.by or "", _SIGNALS[signal.kind], f"{who} asked to {signal.kind}{reason}", data


def _of_answer(signal: SignalRecord, reply: Reply) -> Parts:
    who = signal.by or "someone"
    data: dict[str, Any] = {"n": signal.n, "by": signal.by, "channel": reply.channel}
    if signal.kind == "early":
        data["key"] = reply.key
        return signal.at, who, "answer.kept", f"{who} answered {reply.key!r} before it was asked", data
    data |= {"question_id": reply.question, "round": reply.version}
    if not reply.why:
        return signal.at, who, "question.answered", f"{who} answered", data
    data |= {"why": reply.why} | ({"reason": reply.reason} if reply.reason else {"refused": reply.count})
    return signal.at, who, "answer.refused", f"an answer from {who} was refused: {reply.reason or reply.why}", data


def _of_file(file: FileFacts) -> tuple[str, dict[str, Any]]:
    summary = f"{file.filename}, {file.size:,} bytes, as {file.id}"
    data = {
        "file_id": file.id, "filename": file.filename, "content_type": file.content_type, "size_bytes": file.size,
        "sha256": file.sha256,
    }  # fmt: skip
    return summary, data


def _of_record(record: Record) -> Iterator[Parts]:
    if record.redacted:
        yield record.at, "", "redacted", f"record {record.seq} was redacted", {}
        return
    body = body_of(record)
    for effect in getattr(body, "effects", ()):
        if effect.published is None or (effect.published.files and not effect.published.of):
            yield _of_effect(effect)
    if isinstance(body, KeyBody):
        if body.created:
            yield record.at, body.by or "", "session.created", "created", {"first": body.step}
        if body.origin is not None:
            yield _of_origin(record, body, body.origin)
    elif isinstance(body, OperationBody):
        yield _of_operation(record, body)
    elif isinstance(body, WaitBody):
        if body.ask is not None:
            yield from _of_question(record, body, body.ask)
        else:
            yield _of_wait(record, body)
    elif isinstance(body, EditBody | RewindBody):
        yield from _of_reopening(record, body.reopened, body.by or "")
        if isinstance(body, EditBody) and body.adopted:
            yield _of_adoption(record, body)
        else:
            yield _of_edit(record, body) if isinstance(body, EditBody) else _of_rewind(record, body)
    elif isinstance(body, CheckpointBody):
        yield from _of_checkpoint(record, body)
    elif isinstance(body, DefinitionBody):
        yield record.at, body.by or "", body.type, body.summary, msgspec.json.decode(body.data)
    elif isinstance(body, EventBody):
        yield from _of_reopening(record, body.reopened, body.agent)
        yield record.at, body.agent, body.type, body.summary, msgspec.json.decode(body.data)
        if body.moved and body.next is None and not body.held_by_guard:
            yield record.at, body.agent, "session.completed", "completed", {}


def _of_reopening(record: Record, was: str, by: str) -> Iterator[Parts]:
    if was:
        yield record.at, by, "session.reopened", f"reopened, was {was}", {"was": was}


def _of_origin(record: Record, body: KeyBody, origin: Origin) -> Parts:
    data = {"from": origin.session_id, "seq": origin.seq, "at_step": origin.at_step, "fields": list(origin.edited)}
    at = origin.at_step
    if origin.at_operation:
        at, data["at_operation"] = f"{operation_name(origin.at_operation)} in {at}", origin.at_operation
    summary = f"forked from {origin.session_id} at {at}"
    return record.at, body.by or "", "session.forked", summary, data


def _of_edit(record: Record, body: EditBody) -> Parts:
    fields = list(dict.fromkeys(change.path for change in body.changes))
    summary = f"edited by {body.by or 'someone'}: {', '.join(fields)}" + (f" ({body.reason})" if body.reason else "")
    return record.at, body.by or "", "session.edited", summary, {"fields": fields, "by": body.by, "reason": body.reason}


def _of_adoption(record: Record, body: EditBody) -> Parts:
    files = {each.file.path: each.file.sha256 for each in body.adopted}
    summary = f"edited by {body.by or 'someone'}: {', '.join(files)}" + (f" ({body.reason})" if body.reason else "")
    return record.at, body.by or "", "artifact.edited", summary, {"files": files, "by": body.by, "reason": body.reason}


def _of_rewind(record: Record, body: RewindBody) -> Parts:
    why = f" ({body.reason})" if body.reason else ""
    data = {"to": body.to, "seq": record.parent, "reuse": body.reuse, "by": body.by, "reason": body.reason}
    to = body.to
    if body.operation:
        to, data["operation"] = f"{operation_name(body.operation)} in {to}", body.operation
        data["replaced"] = body.replaced
    end = f", whose result is replaced{why}" if body.replaced else why
    summary = f"rewound by {body.by or 'someone'} to before {to}{end}"
    return record.at, body.by or "", "session.rewound", summary, data


def _of_effect(effect: Effect) -> Parts:
    if effect.type == "spent":
        usage = msgspec.json.decode(effect.data)
        by = f", {usage['model']}" if "model" in usage else ""
        return (
            effect.at, effect.agent, "spent", f"${effect.usd / 1e6:.4f}, {_counted(effect.tokens, 'token')}{by}",
            {"usd": effect.usd / 1e6, "tokens": effect.tokens, **usage, **_spender(effect.id)},
        )  # fmt: skip
    return effect.at, effect.agent, effect.type, effect.summary, msgspec.json.decode(effect.data)


def _spender(id: str) -> dict[str, str]:
    """Return the id of the operation that spent something; empty for the step itself.

    >>> _spender('/task["0:fix"]/ask~1#1/spend:10:0#1!1'), _spender("/spend:10:0#1")
    ({'operation': '/task["0:fix"]/ask~1#1'}, {})
    """
    operation = id.rpartition("/spend:")[0]
    return {"operation": operation} if operation else {}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _of_operation(record: Record, body: OperationBody) -> Parts:
    agent = body.agent or record.step
    if body.total:
        data: dict[str, Any] = {"id": body.id, "total": body.total}
        return record.at, agent, "map.started", f"{body.name}: {_counted(body.total, 'item')}", data
    data = {"id": body.id, "took": body.took / 1e6, "result": result_of(body)}
    arguments = arguments_of(body.arguments)
    return (
        record.at,
        agent,
        "operation.completed",
        body.name,
        data | ({} if arguments is None else {"arguments": arguments}),
    )


def result_of(body: OperationBody) -> Any:
    """Return the result of an operation as plain JSON data; only the beginning, or the size, of a large one."""
    return value_of(bytes(body.value.data)) if isinstance(body.value, Inline) else cut(body.value.size)


def operation_name(id: str) -> str:
    """Return the name of an operation, from its id.

    >>> operation_name("/map:draft/draft~1f#1"), operation_name('/fetch["a"]')
    ('draft', 'fetch')
    """
    match = _NAME.search(id)
    return match[1] if match else id


def label_of(id: str, name: str, arguments: Mapping[str, Any] | None) -> str:
    """Return what tells a call from others: the key of an item of a map, the arguments of another call, or its key.

    >>> label_of('/map:fetch/fetch["row 1"]', "fetch", {"url": "a"}), label_of("/fetch~1f#1", "fetch", {"url": "a"})
    ('row 1', 'a')
    >>> label_of("/artifact.spared[2-sections/*.md]", "artifact.spared", None)
    '2-sections/*.md'
    """
    scope, mark, key = id.rpartition(f"/{name}[")
    if arguments and not (mark and scope.endswith(f"/map:{name}")):
        return line_of(arguments)
    if not mark:
        return ""
    try:
        return line_of({"": msgspec.json.decode(key[:-1])})
    except msgspec.DecodeError:  # the engine's own operations have a key in plain text
        return line_of({"": key[:-1]})


def _of_wait(record: Record, body: WaitBody) -> Parts:
    agent = body.agent or record.step
    if body.error:
        return record.at, agent, "operation.retried", retry_line(body), _retry_data(body)
    if body.after:
        summary = f"child session {body.after} exceeded the timeout of {body.name!r} and is cancelled"
        return record.at, agent, "child.noticed", summary, {"child": body.after}
    if body.child or body.due is None:
        return record.at, agent, "child.called", body.name, {"id": body.id, "child": body.child}
    until = to_datetime(body.due).isoformat(timespec="seconds")
    return record.at, agent, "timer.set", f"{body.name}, until {until}", {"id": body.id, "until": until}


def retries_of(line: Line, since: int = 0) -> list[Retrying]:
    """Return the operations of the open visit that wait to be retried. ``since``: leave out attempts that began."""
    return [
        Retrying(wait.name, wait.attempt, wait.error, to_datetime(wait.due or 0))
        for wait in line.waits.values()
        if wait.error and (wait.due or 0) >= since
    ]


def _retry_data(body: WaitBody) -> dict[str, Any]:
    until = None if body.due is None else to_datetime(body.due).isoformat(timespec="seconds")
    delay = max((body.due or 0) - body.at, 0) / 1e6
    item = {"item": body.item} if body.item else {}
    return {"id": body.id, **item, "attempt": body.attempt, "delay": delay, "until": until, "error": body.error}


def _of_question(record: Record, body: WaitBody, ask: Asked) -> Iterator[Parts]:
    agent = body.agent or record.step
    if ask.instead_of:
        summary = f"no answer to {ask.text!r}, asking again"
        yield record.at, agent, "question.escalated", summary, {"question_id": ask.id, "instead_of": ask.instead_of}
    until = None if body.due is None else to_datetime(body.due).isoformat(timespec="seconds")
    data = {"id": body.id, "question_id": ask.id, "round": ask.round, "rounds": ask.rounds, "until": until}
    if ask.complaint:
        data["complaint"] = ask.complaint
    yield record.at, agent, "question.asked", ask.text, data


def _of_checkpoint(record: Record, body: CheckpointBody) -> Iterator[Parts]:
    agent = body.agent or record.step
    visit = f"{record.step}#{record.visit}"
    data = {
        "step": record.step,
        "visit": record.visit,
        "took": body.took / 1e6,
        "attempts": body.attempts,
        "next": body.next,
    }
    if body.skipped:
        yield record.at, agent, "step.skipped", f"{visit} skipped: {body.skipped}", data
    else:
        yield record.at, agent, "step.completed", f"{visit} done", data
    if body.refused:
        yield record.at, agent, "guard.refused", body.refused, {"step": record.step}
        yield record.at, agent, "session.paused", body.refused, {"kind": "guard"}
    elif body.failure:
        yield record.at, agent, "session.failed", body.failure.message, {"type": body.failure.type}
    elif body.next is None and not body.held_by_guard:
        yield record.at, agent, "session.completed", "completed", {}
