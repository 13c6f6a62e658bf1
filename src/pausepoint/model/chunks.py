"""How far the work on a file has come, chunk by chunk: folded from the log, so it is true at any moment.

The set of chunks is recorded first, then each one as it is done or fails. A chunk is known by its file, its number and
the parameters of the whole (such as the pages per chunk), so that what was done with other parameters is never
mistaken for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from pausepoint.model.schemas import ChunkState, ChunkStatus

R = TypeVar("R")


class Part(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a record says of a chunk. Without an ``index`` it begins the work: the chunks, of which some may be done.

    ``work`` tells one work on a file from another. With an ``error`` the chunk failed, at the ``attempt``-th attempt,
    and is tried again after a time, or it was given up. ``limit``: until then no other chunk is begun either.
    """

    file_id: str
    work: str
    index: int = -1
    params: msgspec.Raw = msgspec.Raw(b"{}")
    done: int = 0
    error: str = ""
    attempt: int = 0
    until: int = 0
    limit: bool = False


GIVEN_UP = -1
"""The attempt of a chunk that is not tried again, unless somebody resumes the session or the step is tried again."""


class Failed(NamedTuple):
    """What was wrong with a chunk, at which attempt, when it may be tried again, and whether others wait for that."""

    error: str
    attempt: int = 0
    until: int = 0
    limit: bool = False


class Tally(msgspec.Struct, omit_defaults=True):
    """The fold of a file's parts. ``failed`` are the chunks that failed and were not done since, the last one last."""

    work: str
    total: int
    params: msgspec.Raw = msgspec.Raw(b"{}")
    processed: int = 0
    failed: dict[int, Failed] = {}

    def fold(self, part: Part) -> None:
        """Take in the next part of the same work."""
        self.failed.pop(part.index, None)
        if part.error:
            self.failed[part.index] = Failed(part.error, part.attempt, part.until, part.limit)
        else:
            self.processed += 1

    def begin_anew(self) -> None:
        """What failed is tried again, as often as if for the first time, but not sooner."""
        self.failed = {index: each._replace(attempt=0) for index, each in self.failed.items()}

    def wake(self) -> None:
        """What waits for a time waits no longer."""
        self.failed = {index: each._replace(until=0) for index, each in self.failed.items()}

    @property
    def status(self) -> ChunkStatus:
        """What has become of it so far."""
        if self.processed >= self.total:
            return "complete"
        if not self.processed and not self.failed:
            return "pending"
        return "failed" if len(self.failed) == self.total else "partial"


def fold_part(tallies: dict[str, Tally], part: Part, total: int) -> None:
    """Take in what a record says. A new set of chunks takes the place of an older one of the same file."""
    if part.index < 0:
        tallies[part.file_id] = Tally(part.work, total, part.params, part.done)
    elif (tally := tallies.get(part.file_id)) is not None and tally.work == part.work:
        tally.fold(part)


def state_of(tally: Tally | None) -> ChunkState:
    """A tally, for people and for the state of a workflow. None: nothing was begun."""
    from pausepoint.model.schemas import ChunkState  # who only looks at sessions does without Pydantic

    if tally is None:
        return ChunkState(chunking={}, processed_chunks=0, failed_chunks=[], status="pending")
    params = msgspec.json.decode(tally.params)
    last = next(reversed(tally.failed.values()), None)
    return ChunkState(
        chunking=params | {"total_chunks": tally.total},
        processed_chunks=tally.processed,
        failed_chunks=sorted(tally.failed),
        status=tally.status,
        last_error=None if last is None else last.error,
    )


@dataclass(frozen=True)
class Chunk:
    """One chunk of a file, as the function that works on it gets it. Numbers begin at 0."""

    file_id: str
    index: int
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file_id}:{self.index}"


@dataclass(frozen=True)
class Chunked(Generic[R]):
    """What ``ctx.files.chunks`` returns: how far it came, the results, and what went wrong, by number of the chunk."""

    state: ChunkState
    done: dict[int, R] = field(default_factory=dict)
    failed: dict[int, Exception] = field(default_factory=dict)
