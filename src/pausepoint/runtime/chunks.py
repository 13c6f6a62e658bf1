"""``ctx.files``: the session's files as its steps see them.

Adding a file is an operation, and so is the work on each of its chunks. A failed chunk is recorded immediately, retried
after a delay, and given up after the last attempt; the other chunks continue. When all remaining chunks wait, for
example for a rate limit, the session sleeps and uses no resources.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, overload

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.codec.values import encode, fingerprint
from pausepoint.definition.functions import callee
from pausepoint.definition.retry import Retry, retry_after
from pausepoint.errors import ContextClosed, FileRefused, StepError, error_text
from pausepoint.model.chunks import GIVEN_UP, Chunk, Chunked, Failed, Part, Tally, state_of
from pausepoint.runtime.fanout import DEFAULT_CONCURRENCY, FanOut
from pausepoint.runtime.files import Files, Given, Source
from pausepoint.runtime.visit import Operation, Visit, Wait, is_count

if TYPE_CHECKING:
    from pausepoint.model.schemas import ChunkState, File
    from pausepoint.runtime.context import Context

R = TypeVar("R")

OnError = Literal["collect", "raise"]
DEFAULT_RETRY = Retry(attempts=5)


class StepFiles:
    """``ctx.files`` of an ``async def`` step."""

    __slots__ = ("_ctx", "_files")

    def __init__(self, ctx: Context) -> None:
        host = ctx._visit.host
        self._ctx = ctx
        self._files = Files(host.ledger.store, host.clock, host.session_id, ctx._visit.check_open)

    async def add(
        self, source: Source, /, filename: str | None = None, content_type: str | None = None, **metadata: Any
    ) -> File:
        """Add a file to the session once; see `Files.add`. After a crash the same call returns the same file."""
        from pausepoint.model.schemas import File

        visit = self._ctx._visit
        given = Given.of(visit.host.session_id, source, filename, content_type, metadata)
        print_ = fingerprint(given.filename, given.content_type, given.metadata, given.mark).hex()[:24]
        id = visit.nth(self._ctx._frame, f"{self._ctx._frame.scope}/files.add~{print_}")
        operation = Operation(id, "files.add", print_, False)
        arguments = (visit, self._files, given, id)
        file: File = await self._ctx._once(operation, callee(_added, File), _added, arguments, {})
        return file

    async def get(self, file_id: str) -> File:
        """Return one file. Raises `UnknownFile` if the session has no file with this id."""
        return await self._ctx._visit.uninterrupted(self._files.get(file_id))

    async def list(self) -> list[File]:
        """Return all files in the order they were added, including those added while the step runs."""
        return await self._ctx._visit.uninterrupted(self._files.list())

    async def open(self, file_id: str, mode: str = "rb") -> BinaryIO:
        """Open a file for reading; see `Files.open`."""
        return await self._ctx._visit.uninterrupted(self._files.open(file_id, mode))

    async def progress(self, file_id: str) -> ChunkState:
        """Return how many of a file's chunks are done and which of them failed."""
        return await self._ctx._visit.uninterrupted(self._files.progress(file_id))

    @property
    def outputs(self) -> Path:
        """The session's folder for output files; see `Files.outputs`."""
        self._ctx._visit.check_open()
        return self._files.outputs

    @overload
    async def chunks(
        self, file: File | str, work: Callable[..., Coroutine[Any, Any, R]], total: int, *,
        concurrency: int = DEFAULT_CONCURRENCY, retry: Retry | int = DEFAULT_RETRY, on_error: OnError = "collect",
        **params: Any,
    ) -> Chunked[R]: ...  # fmt: skip
    @overload
    async def chunks(
        self, file: File | str, work: Callable[..., R], total: int, *, concurrency: int = DEFAULT_CONCURRENCY,
        retry: Retry | int = DEFAULT_RETRY, on_error: OnError = "collect", **params: Any,
    ) -> Chunked[R]: ...  # fmt: skip
    async def chunks(
        self, file: File | str, work: Callable[..., Any], total: int, *, concurrency: int = DEFAULT_CONCURRENCY,
        retry: Retry | int = DEFAULT_RETRY, on_error: OnError = "collect", **params: Any,
    ) -> Chunked[Any]:  # fmt: skip
        """Process a file in chunks: call ``work(chunk)`` for each of ``total`` chunks, ``concurrency`` at a time.

        A chunk is identified by its file, its number and ``params`` (such as ``pages=20``), and carries all three.
        Each result is stored as soon as its chunk is done. A failed chunk is retried according to ``retry``; if the
        error has a ``retry_after``, all chunks wait that long. A plain function runs in a thread, one for each chunk.

        ``on_error="collect"`` returns the chunks that were given up in ``failed``, with the status ``partial``.
        ``"raise"`` raises `MapFailed`; a resume retries the failed chunks.
        """
        if on_error not in ("raise", "collect"):
            raise ValueError(f"on_error must be 'raise' or 'collect', not {on_error!r}.")
        known = await self._uploaded(file)
        fan = ChunkWork(self._ctx, known, work, total, params, Retry(retry) if isinstance(retry, int) else retry)
        await fan.run(concurrency)
        if fan.failed and on_error == "raise":
            raise fan.error()
        return Chunked(fan.state(), dict(sorted(fan.done.items())), dict(sorted(fan.failed.items())))

    async def _uploaded(self, file: File | str) -> str:
        if not isinstance(file, str) and file.upload_status != "uploaded":
            raise FileRefused(
                f"File {file.filename!r} is not uploaded yet. Pass the file that ctx.files.add() returned.",
                session_id=self._ctx._visit.host.session_id,
            )
        return (await self.get(file if isinstance(file, str) else file.file_id)).file_id


async def _added(visit: Visit, files: Files, given: Given, id: str) -> File:
    """Store the file. The upload's progress is shown meanwhile; the step's own progress is restored afterwards."""
    host, before = visit.host, visit.host.ledger.progress

    def show(file: File) -> None:
        if given.size and not visit.exited:
            host.show_progress(min(file.size_bytes, given.size), given.size)

    try:
        return await files._take(
            given, by=visit.step.agent, origin=visit.idempotency_key(id), fence=host.fence, on_progress=show
        )
    finally:
        host.ledger.progress = before


class ChunkWork(FanOut):
    """One call of `StepFiles.chunks`."""

    def __init__(
        self, ctx: Context, file_id: str, work: Callable[..., Any], total: int, params: dict[str, Any], retry: Retry
    ) -> None:
        if not is_count(total):
            raise ValueError(f"total must be a number of chunks, not {total!r}.")
        self.file_id = file_id
        self.params = msgspec.Raw(encode(params, "the parameters of the chunks"))
        self.retry = retry
        self.print = fingerprint(params).hex()[:12]
        chunks = [Chunk(file_id, index, params) for index in range(total)]
        super().__init__(ctx, work, chunks, lambda chunk: f"{chunk}:{self.print}")
        self.clock = self.visit.host.clock
        self.quiet_until = max([each.until for each in self._tally().failed.values() if each.limit], default=0)

    @property
    def work(self) -> str:
        """The name that distinguishes this work from other work on the same file."""
        return f"{self.what.name}:{self.print}"

    def _identify(self, item: Any, key: Callable[[Any], str | int] | None) -> Operation:
        part = Part(self.file_id, self.work, item.index)
        return msgspec.structs.replace(super()._identify(item, key), part=part)

    def _header(self, header: Operation) -> Operation:
        known = self.visit.host.line.operations
        done = sum(operation.id in known for operation in self.operations)
        return msgspec.structs.replace(header, part=Part(self.file_id, self.work, params=self.params, done=done))

    def _tally(self) -> Tally:
        found = self.visit.host.line.chunked.get(self.file_id)
        if found is not None and (found.work, found.total) == (self.work, len(self.items)):
            return found
        failed = {index: Failed(_error(error)) for index, error in self.failed.items()}
        return Tally(self.work, len(self.items), self.params, len(self.done), failed)

    def state(self) -> ChunkState:
        """Return how many chunks are done and which of them failed."""
        return state_of(self._tally())

    async def _one(self, index: int) -> Any:
        while self.operations[index].id not in self.visit.host.line.operations:
            last = self._tally().failed.get(index, Failed(""))
            if last.attempt == GIVEN_UP:  # by an earlier run of this visit
                raise StepError(f"{self.items[index]}: {last.error}")
            await self._rest(max(last.until, self.quiet_until))
            try:
                return await super()._one(index)
            except ContextClosed:
                raise
            except Exception as error:
                if not await self._again(index, last.attempt + 1, error):
                    raise
        return await super()._one(index)

    async def _rest(self, until: int) -> None:
        visit, frame = self.visit, self.ctx._frame
        while self.clock.now() < max(until, self.quiet_until):
            await visit.wait(frame, Wait("timer", max(until, self.quiet_until)))
        while visit.host.must_stop:
            await visit.halt(frame)

    async def _again(self, index: int, attempt: int, error: Exception) -> bool:
        """Record that a chunk failed. Return whether it will be retried."""
        now = self.clock.now()
        delay = self.retry.delay(attempt, error, random.random, to_datetime(now))
        until = 0 if delay is None else now + int(delay * 1e6)
        limit = delay is not None and bool(retry_after(error, to_datetime(now)))
        if limit:
            self.quiet_until = max(self.quiet_until, until)  # a rate limit applies to all chunks
        part = Part(
            self.file_id, self.work, index, error=_error(error), attempt=GIVEN_UP if delay is None else attempt,
            until=until, limit=limit,
        )  # fmt: skip
        retry = "" if delay is None else f"; retry in {delay:.1f} s"
        summary = f"{self.items[index]}, attempt {attempt}: {type(error).__name__}: {part.error}{retry}"
        data = {"file_id": self.file_id, "chunk": index, "attempt": attempt, "error": part.error, "again_in": delay}
        self.visit.check_open()
        noted = self.visit.host.note("chunk.failed", summary, data, agent=self.visit.step.agent, part=part)
        await self.visit.uninterrupted(noted)
        return delay is not None

    def _note_failure(self, index: int, error: Exception) -> None:
        """Do nothing: `_again` has recorded the failure already."""


def _error(error: Exception) -> str:
    return error_text(error) or type(error).__name__
