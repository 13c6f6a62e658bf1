"""The progress of the work on a file, chunk by chunk. It is computed from the log, so it is always current.

The log first records the set of chunks, then each chunk when it finishes or fails. A chunk is identified by its file,
its number and the chunking parameters (such as the pages per chunk), so that chunks made with other parameters are
never mistaken for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from pausepoint.model.schemas import ChunkState, ChunkStatus

R = TypeVar("R")


class Part(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The part of a record that concerns a chunk. Without an ``index`` it starts the work on a file.

    ``work`` identifies the work; a file may be chunked more than once. ``done`` counts the chunks that were done before
    the work started. With an ``error``, attempt number ``attempt`` of the chunk failed: the chunk is retried after
    ``until``, or not at all (`GIVEN_UP`). ``limit`` means that no other chunk starts before ``until`` either.
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
"""The attempt number of a chunk that is retried only when the session is resumed or the step is retried."""


class Failed(NamedTuple):
    """A chunk's failure: the error, the attempt, the earliest retry time, and whether other chunks wait as well."""

    error: str
    attempt: int = 0
    until: int = 0
    limit: bool = False


class Tally(msgspec.Struct, omit_defaults=True):
    """The progress of a file. ``failed`` are the chunks whose last attempt failed, most recent failure last."""

    work: str
    total: int
    params: msgspec.Raw = msgspec.Raw(b"{}")
    processed: int = 0
    failed: dict[int, Failed] = {}

    def fold(self, part: Part) -> None:
        """Apply the next part of the same work."""
        self.failed.pop(part.index, None)
        if part.error:
            self.failed[part.index] = Failed(part.error, part.attempt, part.until, part.limit)
        else:
            self.processed += 1

    def reset_attempts(self) -> None:
        """Give failed chunks their full number of attempts again. Their retry times stay the same."""
        self.failed = {index: each._replace(attempt=0) for index, each in self.failed.items()}

    def wake(self) -> None:
        """Let failed chunks be retried immediately."""
        self.failed = {index: each._replace(until=0) for index, each in self.failed.items()}

    @property
    def status(self) -> ChunkStatus:
        """Return the status of the work so far."""
        if self.processed >= self.total:
            return "complete"
        if not self.processed and not self.failed:
            return "pending"
        return "failed" if len(self.failed) == self.total else "partial"


def fold_part(tallies: dict[str, Tally], part: Part, total: int) -> None:
    """Apply a part to the tallies. A new set of chunks replaces an older set of the same file."""
    if part.index < 0:
        tallies[part.file_id] = Tally(part.work, total, part.params, part.done)
    elif (tally := tallies.get(part.file_id)) is not None and tally.work == part.work:
        tally.fold(part)


def state_of(tally: Tally | None) -> ChunkState:
    """Return a tally as a `ChunkState`. None means that no work has started."""
    from pausepoint.model.schemas import ChunkState  # imported here because listing sessions must not load Pydantic

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
    """One chunk of a file, as passed to the function that processes it. Numbers start at 0."""

    file_id: str
    index: int
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file_id}:{self.index}"


@dataclass(frozen=True)
class Chunked(Generic[R]):
    """The result of ``ctx.files.chunks``: the progress, and the results and errors by chunk number."""

    state: ChunkState
    done: dict[int, R] = field(default_factory=dict)
    failed: dict[int, Exception] = field(default_factory=dict)
