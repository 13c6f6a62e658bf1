"""The items of a session's live stream, and the text that they add up to."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class StreamChunk(msgspec.Struct, frozen=True):
    """One piece of live output that a step sent with ``ctx.stream``.

    ``n`` is its number in the session's stream, starting at 1. ``step``, ``visit`` and ``operation`` say who sent it;
    ``operation`` is the id that events show, and empty for the step's own code. ``run`` is the fence of the run that
    sent it, and ``attempt`` the attempt within the visit.
    """

    n: int
    data: str | bytes
    kind: str
    step: str
    visit: int
    operation: str
    run: int
    attempt: int

    @property
    def source(self) -> str:
        """What sent the chunk: step, visit and operation as one string. Chunks of one source are one text."""
        return source_of(self.step, self.visit, self.operation)


class Restarted(msgspec.Struct, frozen=True):
    """The chunks that these sources sent so far are void: they run again, after a kill, a pause or a failed attempt.

    Drop their text. Chunks that follow begin it again.
    """

    n: int
    sources: tuple[str, ...]


class Gap(msgspec.Struct, frozen=True):
    """``lost`` items were overwritten before this follower read them, or could not be written to a full disk.

    ``n`` is the number of the last one.
    """

    n: int
    lost: int


StreamItem: TypeAlias = StreamChunk | Restarted | Gap


class StreamText:
    """The text of a stream as a page should show it, without the output of runs that started again.

    ``parts`` has the text of each source, in the order in which they began. Only chunks of this ``kind`` count.

    >>> shown = StreamText()
    >>> shown.apply(StreamChunk(1, "Hel", "text", "write", 1, "", run=1, attempt=1))
    >>> shown.apply(Restarted(2, ("write#1",)))
    >>> shown.apply(StreamChunk(3, "Hello", "text", "write", 1, "", run=2, attempt=1))
    >>> str(shown)
    'Hello'
    """

    def __init__(self, kind: str = "text") -> None:
        self.kind = kind
        self.parts: dict[str, str] = {}

    def apply(self, item: StreamItem) -> None:
        """Take in the next item."""
        if isinstance(item, Restarted):
            for source in item.sources:
                self.parts.pop(source, None)
        elif isinstance(item, StreamChunk) and item.kind == self.kind and isinstance(item.data, str):
            self.parts[item.source] = self.parts.get(item.source, "") + item.data

    def __str__(self) -> str:
        return "".join(self.parts.values())


def source_of(step: str, visit: int, operation: str) -> str:
    """Return the name of a source.

    >>> source_of("write", 2, "/draft~1f#1")
    'write#2/draft~1f#1'
    """
    return f"{step}#{visit}{operation}"
