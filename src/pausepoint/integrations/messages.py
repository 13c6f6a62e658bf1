"""The message about a question: plain text with a way to answer it, and nothing of the session's state.

A question may quote anyone: a customer, a web page, a language model. So its text is cleaned, cut and marked as a
quotation, and nothing in it can look like the part that Pausepoint adds.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pausepoint.model.approvals import Approval, approval_of, approval_text
from pausepoint.model.marks import marked
from pausepoint.model.questions import Question

LONGEST, MOST_LINES = 1_000, 20
"""The most characters and lines of a question in a message. The page or the command that answers shows the rest."""

LONGEST_CALL = 4_000
"""The most characters of a call that a person has to approve. A longer one is shortened, and the message says so."""

LONGEST_TITLE = 100

LEAST = 60
"""The fewest characters of a question that a message is worth sending with."""

AGAIN = "This may be the second message about it: the process that sent the first one was stopped before it noted that."

_MENTIONS = re.compile(r"(?<!\w)@(?=(?:everyone|here|channel|all)\b)|<(?=[!@#])", re.IGNORECASE)


class Message(NamedTuple):
    """A title and a body, both plain text."""

    title: str
    body: str


def message(question: Question, way: str, room: int, again: bool = False) -> Message | None:
    """Return the message about a question, in at most ``room`` characters; None if that is too little.

    - ``way``: a line that says how to answer.
    - ``again``: a message about this round may have been sent before.
    """
    asks = "asks again" if question.version > 1 else "asks a question"
    title = f"{_cut(one_line(question.workflow_id), LONGEST_TITLE - len(asks) - 1)} {asks}"
    facts = [f"Question {question.id}"]
    if question.version > 1:
        facts[0] += f", round {question.version}. The last answer was not accepted"
    if question.expired_at is not None:
        facts.append(f"Open until {question.expired_at:%Y-%m-%d %H:%M} UTC")
    approval = approval_of(question.payload)
    end = "\n".join(["", way, ". ".join(facts) + ".", *([AGAIN] if again else [])])
    left = room - len(title) - len(end) - 2
    quoted = _quoted(question.next_question) if approval is None else _call(question, approval, left)
    least = len(quoted) if approval is not None else min(LEAST, len(quoted))
    return Message(title, f"{_cut(quoted, left)}\n{end}") if left >= least else None


def _quoted(text: str) -> str:
    """Return a text as a quotation, cut to a readable length."""
    lines = _quotation(text)
    shown = "\n".join(lines[:MOST_LINES])
    return _cut(shown if len(lines) <= MOST_LINES else f"{shown}\n> …", LONGEST)


def _quotation(text: str) -> list[str]:
    return [f"> {line}".rstrip() for line in plain(text).strip().split("\n")]


def _call(question: Question, approval: Approval, room: int) -> str:
    """Return a call that needs an approval: all of it, or a shortened form that says so."""
    texts = [f"{question.next_question}\n\n{approval_text(approval, whole)}" for whole in (True, False)]
    whole, folded = ("\n".join(_quotation(text)) for text in texts)
    room = min(room, LONGEST_CALL)
    if len(whole) <= room:
        return whole
    note = f"This message is shortened: the call has {len(texts[0]):,} characters. Read all of it before you answer."
    return f"{_cut(folded, max(room - len(note) - 2, LEAST))}\n\n{note}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)].rstrip() + "…"


def one_line(text: str) -> str:
    """Return a text as one line, with marks for control characters.

    >>> one_line("a\\n  b\\x1b[2J")
    'a b␛[2J'
    """
    return " ".join(plain(text).split())


def plain(text: str) -> str:
    """Return a text without characters that a reader's program obeys instead of showing them.

    Control characters, marks of writing direction and other invisible characters are drawn as marks. A space is put
    into words that call everyone in a chat, and into the references of chats.

    >>> plain("One\\r\\nTwo\\u202e \\x1b[31m")
    'One\\nTwo‹U+202E› ␛[31m'
    >>> plain("@everyone: see <!channel> of ann@here.example")
    '@ everyone: see < !channel> of ann@here.example'
    """
    return _MENTIONS.sub(lambda match: f"{match[0]} ", marked(text).replace("\r\n", "\n").replace("\t", " "))
