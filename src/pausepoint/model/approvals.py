"""What a person approves: all of a tool call, folded where it is long, and never cut without a sentence that says so.

The gate puts an `Approval` into the payload of its question. Every front end draws it from here: `question_line` is the
question itself, `sections` are the parts with the words that made the call restricted. The page gets the same pieces
in the payload, because it cannot call Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from pausepoint.model.marks import marked

LARGEST = 256 * 1024
"""The most bytes of one part. A longer one keeps its beginning and its end."""

LONG, MANY_LINES = 1_500, 30
"""The most characters and lines of a part that is not folded."""

Span = tuple[int, int]
"""Where a word begins and ends, in characters of the part."""

Piece = tuple[Literal["", "match", "fold"], str]
"""A part of a text: plain, a word that made the call restricted, or a line that says how much is folded here."""


class ApprovalPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of what a person approves: a command, the arguments of a tool, or the change of a file.

    ``spans`` are the words that made the call restricted. ``folded`` are the pieces of the short form, if the part is
    long. ``omitted`` is the number of bytes that are missing in ``text``, and ``sha256`` is that of the whole part.
    ``note`` is a sentence about the part.
    """

    title: str
    text: str = ""
    kind: Literal["text", "diff"] = "text"
    spans: tuple[Span, ...] = ()
    folded: tuple[Piece, ...] = ()
    note: str = ""
    omitted: int = 0
    sha256: str = ""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Return the whole text, with the restricted words as pieces of their own."""
        return _pieces(self.text, self.spans, [(0, len(self.text))])


class Approval(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The payload of a question whether an agent may call a tool. ``restricted`` are the rules that matched."""

    approval: Literal[1]
    agent: str
    tool: str
    folder: str
    restricted: tuple[str, ...] = ()
    parts: tuple[ApprovalPart, ...] = ()

    @property
    def is_folded(self) -> bool:
        """Whether the short form shows less than everything."""
        return any(part.folded for part in self.parts)


def approval_of(payload: Any) -> Approval | None:
    """Return the approval in the payload of a question; None if the question asks for something else."""
    if not isinstance(payload, dict) or "approval" not in payload:
        return None
    try:
        return msgspec.convert(payload, Approval)
    except msgspec.ValidationError:
        return None


def approval_part(title: str, text: str, spans: Iterable[Span] = (), **facts: Any) -> ApprovalPart:
    """Return a part, folded if it is long. A part above `LARGEST` keeps its beginning and its end, and says so."""
    part = _bounded(ApprovalPart(title, text, spans=tuple(sorted(set(spans))), **facts))
    if len(part.text) <= LONG and part.text.count("\n") < MANY_LINES:
        return part
    return replace(part, folded=_folded(part.text, part.spans, 600, 300, 80))


def _bounded(part: ApprovalPart) -> ApprovalPart:
    data = part.text.encode("utf-8", "replace")
    if len(data) <= LARGEST:
        return part
    head = data[: LARGEST // 2].decode("utf-8", "ignore")
    tail = data[-LARGEST // 2 :].decode("utf-8", "ignore")
    missing = len(data) - len(head.encode()) - len(tail.encode())
    digest = sha256(data).hexdigest()
    begin = f"{head}\n‹{missing:,} bytes are missing here. SHA-256 of all {len(data):,} bytes: {digest}›\n"
    shift = len(begin) - (len(part.text) - len(tail))
    kept = [span for span in part.spans if span[1] <= len(head)]
    late = [(a + shift, b + shift) for a, b in part.spans if a >= len(part.text) - len(tail)]
    facts = {"omitted": part.omitted + missing, "sha256": part.sha256 or digest}
    return replace(part, text=begin + tail, spans=(*kept, *late), **facts)


# folding


def _folded(text: str, spans: Sequence[Span], head: int, tail: int, near: int) -> tuple[Piece, ...]:
    """Return the beginning, the surroundings of restricted words and the end of a text, and what is folded between."""
    first = min(head, _nth_line(text, MANY_LINES // 2))
    last = max(len(text) - tail, len(text) - _nth_line(text[: -tail - 1 : -1], MANY_LINES // 4))
    around = [(max(0, a - near), min(len(text), b + near)) for a, b in spans[:20]]
    shown: list[Span] = []
    for begin, end in sorted([(0, first), *around, (last, len(text))]):
        if shown and begin <= shown[-1][1] + near:
            shown[-1] = (shown[-1][0], max(end, shown[-1][1]))
        else:
            shown.append((begin, end))
    return _pieces(text, spans, shown)


def _nth_line(text: str, count: int) -> int:
    """Return where the line after the first ``count`` lines begins; the length of the text if it has fewer."""
    at = -1
    for _ in range(count):
        at = text.find("\n", at + 1)
        if at < 0:
            return len(text)
    return at + 1


def _pieces(text: str, spans: Sequence[Span], shown: Sequence[Span]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    at = 0
    for begin, end in shown:
        if begin > at:
            pieces.append(("fold", _gap(text[at:begin])))
        at = begin
        for first, last in spans:
            if at <= first and last <= end:
                pieces += [("", text[at:first]), ("match", text[first:last])]
                at = last
        pieces.append(("", text[at:end]))
        at = end
    if at < len(text):
        pieces.append(("fold", _gap(text[at:])))
    return tuple(piece for piece in pieces if piece[1])


def _gap(text: str) -> str:
    lines = text.count("\n")
    return f"[… {f'{lines:,} lines, ' if lines > 1 else ''}{len(text):,} characters folded …]"


# text


def line_of(part: ApprovalPart) -> str:
    """Return a part as one line with marks. A long one is folded, and a line end is drawn as ⏎.

    >>> line_of(approval_part("Command", "cd x\\ngit push\\u202e"))
    'cd x ⏎ git push‹U+202E›'
    >>> line_of(approval_part("Command", f"cd x && {'true; ' * 90}git push", [(548, 556)]))[150:]
    '; true; tr[… 336 characters folded …]ue; true; true; true; true; true; true; true; true; git push'
    """
    return "".join(_on_one_line(piece) for _, piece in _folded(_flat(part), part.spans, 160, 60, 40))


def _flat(part: ApprovalPart) -> str:
    """Return the text of a part. JSON loses its line ends, which mean nothing."""
    return re.sub(r"\n *", " ", part.text) if part.title == "Arguments" else part.text


def _title_or_text(approval: Approval) -> str:
    """Return what the first part is about: the title of a change, otherwise its text."""
    first = approval.parts[0]
    return first.title if first.kind == "diff" or not first.text else _flat(first)


def _on_one_line(text: str) -> str:
    return " ⏎ ".join(marked(text).replace("\r\n", "\n").replace("\t", " ").split("\n"))


def question_line(approval: Approval) -> str:
    """Return the question: who wants to run what, why a person is asked, and what the person cannot see."""
    first = approval.parts[0]
    text = _title_or_text(approval)
    call = f"{approval.tool}: {line_of(first) if text == _flat(first) else _on_one_line(text)}"
    return marked(
        f"{approval.agent} wants to run “{call}”. It is restricted ({', '.join(approval.restricted)})."
        f"{''.join(f' {sentence}' for sentence in omissions(approval))} Allow it?"
    )


def omissions(approval: Approval) -> list[str]:
    """Return a sentence for each part that is not stored as a whole."""
    return [
        f"{part.title}: {part.omitted:,} bytes are missing in this question, so nobody can check them here"
        f" (SHA-256 of the whole: {part.sha256})."
        for part in approval.parts
        if part.omitted
    ]


class Section(NamedTuple):
    """A part for a front end: its heading, its pieces with marks, and whether they are a diff."""

    heading: str
    pieces: tuple[Piece, ...]
    is_diff: bool = False


def sections(approval: Approval, whole: bool) -> list[Section]:
    """Return what a person is shown: the facts of the call, then each part, folded or ``whole``."""
    rules = ", ".join(approval.restricted)
    facts = f"Tool: {approval.tool} · restricted ({rules})\nFolder: {approval.folder}\nAgent: {approval.agent}"
    drawn = [Section("", (("", marked(facts)),))]
    for part in approval.parts:
        pieces = part.pieces if whole or not part.folded else part.folded
        heading = marked(f"{part.title}{f': {part.note}' if part.note else ''}")
        drawn.append(Section(heading, tuple((kind, marked(text)) for kind, text in pieces), part.kind == "diff"))
    return drawn


def approval_text(approval: Approval, whole: bool) -> str:
    """Return what a person is shown as plain text, folded or ``whole``."""
    blocks = [
        "\n".join(filter(None, (section.heading, "".join(text for _, text in section.pieces))))
        for section in sections(approval, whole)
    ]
    return "\n\n".join(blocks)
