"""Questions in the shapes of other protocols, and their answers back: AG-UI interrupts (as of its core package 0.0.58),
MCP elicitation (2025-06-18, 2025-11-25 and 2026-07-28), and the human review of LangChain's agents.

Pure functions. Every ``from_…`` returns what to pass to `Engine.answer`, or None if the person has left the question
open: then it goes on waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pausepoint.integrations.answers import Said, schema_of
from pausepoint.model.questions import Question
from pausepoint.name import NAME

# AG-UI

_OURS = NAME
"""The key of what is ours in the metadata of an interrupt; a client that sends it back binds its answer to it."""


def to_ag_ui(question: Question) -> dict[str, Any]:
    """An ``Interrupt``; several of them are the ``interrupts`` of a finished run's outcome."""
    call = _tool_call(question)
    ours = {"digest": question.digest, "round": question.current_round, "rounds": question.max_rounds}
    ours |= {"complaint": question.complaint} if question.complaint else {}
    ours |= {"tool": question.pending_tool_name} if question.pending_tool_name else {}
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
    """The id of the call that waits. One that has only a name was not called where a front end could have seen it."""
    return None if question.pending_tool_id == question.pending_tool_name else question.pending_tool_id


def _reason(question: Question, call: str | None) -> str:
    if question.kind != "confirm":
        return "input_required"
    return "confirmation" if call is None else "tool_call"


def ag_ui_outcome(questions: Sequence[Question]) -> dict[str, Any]:
    """The ``outcome`` of the event ``RUN_FINISHED``."""
    if not questions:
        return {"type": "success"}
    return {"type": "interrupt", "interrupts": [to_ag_ui(each) for each in questions]}


def from_ag_ui(question: Question, entry: Mapping[str, Any]) -> Said | None:
    """One entry of the next run's ``resume``. A no is in its payload; ``cancelled`` means that nothing was said."""
    if entry.get("interruptId") != question.id:
        raise ValueError(f"the entry answers {entry.get('interruptId')!r}, not question {question.id}")
    match entry.get("status"):
        case "resolved":
            ours = (entry.get("metadata") or {}).get(_OURS) or {}
            return Said(question.id, entry.get("payload"), ours.get("digest"))
        case "cancelled":
            return None
    raise ValueError(f"an entry is resolved or cancelled, not {entry.get('status')!r}")


def from_ag_ui_resume(questions: Sequence[Question], resume: Sequence[Mapping[str, Any]]) -> list[Said]:
    """The whole ``resume`` of a run: it has to address every interrupt that is open, and no other."""
    entries = {entry.get("interruptId"): entry for entry in resume}
    open_ = {question.id for question in questions}
    if missing := sorted(open_ - entries.keys()):
        raise ValueError(f"the resume does not address {', '.join(missing)}; it has to address every open interrupt")
    if strange := sorted(map(repr, entries.keys() - open_)):
        raise ValueError(f"the resume addresses {', '.join(strange)}, which is not open")
    said = [from_ag_ui(question, entries[question.id]) for question in questions]
    return [each for each in said if each is not None]


# MCP


# LangChain
