"""Convert questions to AG-UI interrupts (core package 0.0.58), and resume entries to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pausepoint.integrations.answers import Said, schema_of
from pausepoint.model.questions import Question
from pausepoint.name import NAME

_OURS = NAME
"""The key of our metadata in an interrupt. A client that sends it back binds its answer to the question it saw."""


def to_ag_ui(question: Question) -> dict[str, Any]:
    """Return the question as an AG-UI ``Interrupt``. Use `ag_ui_outcome` for the outcome of a whole run."""
    call = _tool_call(question)
    ours = {"digest": question.digest, "round": question.current_round, "rounds": question.max_rounds}
    ours |= {"complaint": question.complaint} if question.complaint else {}
    ours |= {"tool": question.pending_tool_name} if question.pending_tool_name else {}
    ours |= {"payload": question.payload} if question.payload is not None else {}
    found: dict[str, Any] = {
        "id": question.id,
        "reason": _reason(question, call),
        "message": question.next_question,
        "responseSchema": schema_of(question),
        "metadata": {_OURS: ours},
    }
    if call is not None:
        found["toolCallId"] = call
    if question.expired_at is not None:
        found["expiresAt"] = question.expired_at.isoformat()
    return found


def _tool_call(question: Question) -> str | None:
    """Return the id of the waiting tool call, or None. A call without its own id is unknown to the front end."""
    return None if question.pending_tool_id == question.pending_tool_name else question.pending_tool_id


def _reason(question: Question, call: str | None) -> str:
    if question.kind != "confirm":
        return "input_required"
    return "confirmation" if call is None else "tool_call"


def ag_ui_outcome(questions: Sequence[Question]) -> dict[str, Any]:
    """Return the ``outcome`` of the event ``RUN_FINISHED``: an interrupt if questions are open, else a success."""
    if not questions:
        return {"type": "success"}
    return {"type": "interrupt", "interrupts": [to_ag_ui(each) for each in questions]}


def from_ag_ui(question: Question, entry: Mapping[str, Any]) -> Said | None:
    """Convert one entry of the next run's ``resume`` to an answer, or None if its status is ``cancelled``.

    A cancelled entry leaves the question open. To decline a confirmation, send ``resolved`` with a payload that
    declines. Raises `ValueError` if the entry belongs to another question or has another status.
    """
    if entry.get("interruptId") != question.id:
        raise ValueError(
            f"The entry answers {entry.get('interruptId')!r}, not question {question.id}."
            " Pass the question whose id is the entry's interruptId."
        )
    match entry.get("status"):
        case "resolved":
            ours = (entry.get("metadata") or {}).get(_OURS) or {}
            return Said(question.id, entry.get("payload"), ours.get("digest"))
        case "cancelled":
            return None
    raise ValueError(
        f"The entry for question {question.id} has status {entry.get('status')!r}. Use 'resolved' or 'cancelled'."
    )


def from_ag_ui_resume(questions: Sequence[Question], resume: Sequence[Mapping[str, Any]]) -> list[Said]:
    """Convert the whole ``resume`` of a run to answers, without the cancelled entries.

    Raises `ValueError` unless the entries address every open question and no other.
    """
    entries = {entry.get("interruptId"): entry for entry in resume}
    open_ = {question.id for question in questions}
    if missing := sorted(open_ - entries.keys()):
        raise ValueError(
            f"The resume list does not address {', '.join(missing)}. Add an entry for every open interrupt;"
            " its status may be 'cancelled'."
        )
    if strange := sorted(map(repr, entries.keys() - open_)):
        raise ValueError(f"The resume list addresses {', '.join(strange)}, which is not open. Remove the entry.")
    said = [from_ag_ui(question, entries[question.id]) for question in questions]
    return [each for each in said if each is not None]
