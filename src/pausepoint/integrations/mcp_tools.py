"""The tools of the MCP server: their names, their arguments, and what each of them needs.

`mcp_desk` carries them out, and `mcp_server` speaks the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from pausepoint.model.sessions import StatusName

Allow = Literal["look", "act"]
"""What a model may do: look and pause, or also answer, resume and send."""

Document = dict[str, Any]


# arguments

_Id = Annotated[str, Meta(description="The id of a session, or the beginning of it.", min_length=1, max_length=200)]
_Question = Annotated[str, Meta(description="The id of a question.", min_length=1, max_length=200)]
_Name = Annotated[str, Meta(max_length=200)]
_Limit = Annotated[int, Meta(description="The most items to return.", ge=1, le=100)]
_Reason = Annotated[str, Meta(description="Why, in a sentence for people. It is recorded.", max_length=1_000)]
_After = Annotated[str, Meta(description="`next` of the page before, to get the next page.", max_length=1_000)]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of all arguments: an unknown name is refused, not ignored."""


class ListSessions(Arguments, frozen=True, kw_only=True):
    status: Annotated[list[StatusName], Meta(description="Only sessions with one of these statuses.")] = []
    workflow: Annotated[_Name, Meta(description="Only sessions of this workflow.")] | None = None
    owner: Annotated[_Name, Meta(description="Only sessions of this owner.")] | None = None
    text: Annotated[_Name, Meta(description="Only sessions with this text in their id, owner, a tag, their failure, "
                                "or the reason of a pause.")] | None = None  # fmt: skip
    limit: _Limit = 20
    after: _After | None = None


class ShowSession(Arguments, frozen=True, kw_only=True):
    session_id: _Id
    field: Annotated[str, Meta(description="Return only this field of the state. NAME.PART is a part of a field.",
                               min_length=1, max_length=1_000)] | None = None  # fmt: skip
    at: Annotated[str, Meta(description="A checkpoint of the past: its number, or a visit such as write#2.",
                            min_length=1, max_length=1_000)] | None = None  # fmt: skip
    offset: Annotated[int, Meta(description="With `field`: the first character to return.", ge=0)] = 0


class Events(Arguments, frozen=True, kw_only=True):
    session_id: _Id
    limit: _Limit = 30
    after: Annotated[str, Meta(description="Return the events after this cursor, oldest first. An empty text begins"
                               " with the first event. Without it, the last events are returned.",
                               max_length=1_000)] | None = None  # fmt: skip


class OneSession(Arguments, frozen=True, kw_only=True):
    session_id: _Id


class PauseSession(Arguments, frozen=True, kw_only=True):
    session_id: _Id
    reason: _Reason = ""


class PauseEverything(Arguments, frozen=True, kw_only=True):
    reason: _Reason = ""


class OpenQuestions(Arguments, frozen=True, kw_only=True):
    session_id: _Id | None = None
    limit: _Limit = 20
    after: _After | None = None


class AnswerQuestion(Arguments, frozen=True, kw_only=True):
    question_id: _Question


class Send(Arguments, frozen=True, kw_only=True):
    session_id: _Id
    message: Annotated[Any, Meta(description="The message: a text, or any JSON value that the session expects.")]
    key: Annotated[str, Meta(description="A text that you choose for this message. If you send it again with the same"
                             " key, it is delivered once.", min_length=1, max_length=200)] | None = None  # fmt: skip


class Tool(NamedTuple):
    """A tool. ``needs`` is what the server must allow; ``is_look`` says that it changes nothing."""

    name: str
    arguments: type[Arguments]
    needs: Allow
    is_look: bool
    text: str

    @property
    def schema(self) -> Document:
        """The JSON schema of the arguments."""
        _, found = msgspec.json.schema_components([self.arguments])
        schema = found[self.arguments.__name__]
        fields = {name: _without_null(value) for name, value in schema["properties"].items()}
        return {"type": "object", "properties": fields, "required": schema["required"], "additionalProperties": False}


def _without_null(schema: Document) -> Document:
    """Return the schema of an optional argument as that of its value. Null is still accepted."""
    return schema["anyOf"][0] if "anyOf" in schema else schema


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("list_sessions", ListSessions, "look", True,
             "List sessions, newest first, and the pause of everything while it is in effect."),
        Tool("show_session", ShowSession, "look", True,
             "Show one session: its status, why it does not run, its open questions, and its state."),
        Tool("events", Events, "look", True, "Show the history of a session: its last events, oldest first."),
        Tool("plan", OneSession, "look", True,
             "Show what a resume would do with every step of a session, and why. Nothing runs."),
        Tool("open_questions", OpenQuestions, "look", True,
             "List the questions that wait for a person's answer, oldest first."),
        Tool("pause_session", PauseSession, "look", False,
             "Pause a session and its children. It stops at its next safe point, and loses no finished work."),
        Tool("pause_everything", PauseEverything, "look", False,
             "Pause everything in this store, until a person lifts the pause. New sessions are stored paused."),
        Tool("resume_session", OneSession, "act", False,
             "Withdraw the pauses of a session, so that a process that has its code continues it."),
        Tool("answer_question", AnswerQuestion, "act", False,
             "Ask the person in front of this client to answer an open question: the client shows a form. You cannot"
             " give the answer yourself."),
        Tool("send", Send, "act", False,
             "Send a message to a session that waits for one. It never answers a question."),
    )
}  # fmt: skip
"""Name → tool."""


def listed(allow: Allow) -> Iterator[Tool]:
    """Yield the tools that a server lists."""
    yield from (tool for tool in TOOLS.values() if tool.needs == "look" or allow == "act")
