"""The files of a session: uploaded once, stored completely or not at all, and never changed.

The store is the source of truth: a signal of the session describes each file. Its bytes are stored under the file's id,
in a folder or a bucket (`pausepoint.stores.files`). Bytes without a record are not a file and are deleted. A record
without its bytes is damage and is reported.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, cast

import msgspec

from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import decode, encode
from pausepoint.errors import (
    FileRefused,
    UnknownFile,
    UnknownSession,
    did_you_mean,
    error_text,
)
from pausepoint.log.replay import fold
from pausepoint.model.chunks import state_of
from pausepoint.model.files import FileFacts, cleaned, ending_of, file_facts, file_id, is_content_type
from pausepoint.model.ids import shortened
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import SessionRow
from pausepoint.name import DEFAULT_STORE
from pausepoint.stores.base import Store
from pausepoint.stores.disk import PIECE
from pausepoint.stores.files import Chunks, Upload
from pausepoint.stores.files import Files as Contents

if TYPE_CHECKING:
    from pausepoint.model.schemas import ChunkState, File

REPORT_EVERY = 8 * 2**20
"""The number of bytes between two reports of progress."""

REMEMBERED = 10_000
"""The number of cleaned folders that a process remembers."""

_cleared: dict[str, None] = {}  # where this process has deleted the remains of interrupted uploads


class Readable(Protocol):
    """A binary stream, such as an open file or the body of a response."""

    def read(self, size: int, /) -> bytes: ...


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Readable | AsyncIterable[bytes]
"""The source of a file's bytes. A string is a path."""


OnProgress = Callable[["File"], None]
Known = list[tuple[SignalRecord, FileFacts]]


@dataclass(frozen=True)
class Given:
    """A file to be added, checked before it is read. ``mark`` distinguishes it from others as far as possible."""

    source: Any
    filename: str
    content_type: str
    metadata: bytes
    mark: str
    size: int | None

    @classmethod
    def of(
        cls, session_id: str, source: Source, filename: str | None, content_type: str | None, metadata: dict[str, Any]
    ) -> Given:
        """Check the arguments of `Files.add`. Raises `FileRefused` if one is wrong."""
        import mimetypes  # few programs need it

        mark, size, name = _inspected(session_id, source)
        if filename is None and not name:
            raise FileRefused("The stream has no name. Pass one: add(stream, 'notes.pdf').", session_id=session_id)
        label = cleaned(_text(session_id, "filename", name if filename is None else filename))
        kind = mimetypes.guess_type(label)[0] or "application/octet-stream" if content_type is None else content_type
        if not is_content_type(_text(session_id, "content_type", kind)):
            raise FileRefused(
                f"{kind!r:.80} is not a content type. Pass one such as 'application/pdf', or leave it out.",
                session_id=session_id,
            )
        from pausepoint.model.schemas import File

        own = sorted(metadata.keys() & File.model_fields.keys())
        if own:
            raise FileRefused(
                f"{own[0]!r} is a field of every file and cannot be metadata. Choose another name.",
                session_id=session_id,
            )
        return cls(source, label, kind, encode(metadata, f"metadata of {label}"), mark, size)


class Files:
    """The files of one session, for code outside its steps. Inside a step, use ``ctx.files``."""

    def __init__(self, store: Store, clock: Clock, session_id: str, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._clock = clock
        self._session_id = session_id
        self._check = check

    async def add(
        self, source: Source, /, filename: str | None = None, content_type: str | None = None, *,
        by: str | None = None, on_progress: OnProgress | None = None, **metadata: Any,
    ) -> File:  # fmt: skip
        """Add a file to the session from a path, bytes, a binary stream, or an async iterator of bytes.

        The content is streamed, whatever its size. When this returns, the file is stored durably. Adding the same
        content again returns the existing file with ``reused`` set.

        ``filename`` is a label; it need not be unique. ``content_type`` is guessed from it by default. ``by`` is the
        person who adds the file. ``on_progress`` is called with the file as it grows. Other keywords are stored as
        metadata. Raises `FileRefused` if an argument is wrong or the source cannot be read.
        """
        self._check()
        if by is not None and error_text(ValueError(_text(self._session_id, "by", by))) != by:
            raise FileRefused(
                f"by={by!r:.60} cannot be stored. Pass a string that can be encoded as UTF-8.",
                session_id=self._session_id,
            )
        given = Given.of(self._session_id, source, filename, content_type, metadata)
        return await self._take(given, by=by, on_progress=on_progress)

    async def get(self, file_id: str) -> File:
        """Return one file. Raises `UnknownFile` if the session has no file with this id."""
        signal = await self._signal(file_id)
        return self._file(signal, file_facts(signal.payload))

    async def list(self) -> list[File]:
        """Return all files in the order they were added."""
        row = await self._row()
        return [self._file(signal, facts) for signal, facts in await self._recorded(row.key)]

    async def open(self, file_id: str, mode: str = "rb") -> BinaryIO:
        """Open a file for reading. Its ``name`` is the path.

        The content is checked against the recorded hash when a process first opens the file, and again if the file was
        touched since. Raises `DamagedFile` if it does not match. Files cannot be changed: every mode except ``"rb"``
        raises `FileRefused`.
        """
        facts = file_facts((await self._signal(file_id)).payload)
        if mode != "rb":
            raise FileRefused(
                f"File {file_id!r} of session {self._session_id!r} cannot be opened with mode {mode!r}, because files"
                " are never changed. Open it with mode 'rb', or add the new content as another file.",
                session_id=self._session_id,
            )
        return await self._contents().open(facts)

    async def progress(self, file_id: str) -> ChunkState:
        """Return how many of a file's chunks are done and which of them failed, as of now."""
        await self._signal(file_id)
        row = await self._row()
        line = fold(await self._store.records(row.key, row.key_frame))
        return state_of(line.chunked.get(file_id))

    @property
    def outputs(self) -> Path:
        """The session's folder for output files. It is created on first use and deleted with the session."""
        return self._contents().outputs()

    # adding

    async def _take(
        self, given: Given, *, by: str | None = None, origin: str = "", fence: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> File:  # fmt: skip
        """Add a checked file. ``origin`` is the operation that adds it, ``fence`` the fence of its hold."""
        row, contents = await self._row(), self._contents()
        try:
            async with contents.put(self._chunks(given, on_progress)) as upload:
                await self._clear_at_first(row.key, contents)
                if (same := await self._same(row.key, contents, upload)) is not None:
                    return self._file(*same, reused=not origin or same[1].origin != origin)
                name = await self._kept(row.key, upload, ending_of(given.filename))
                facts = _facts_of(given, upload, name, origin)
                signal, new = await self._noted(contents, by, facts, fence)
                return self._file(signal, file_facts(signal.payload), reused=not new)
        except BaseException:
            _cleared.pop(contents.where, None)  # the next upload deletes whatever this one left
            raise

    async def _clear_at_first(self, key: int, contents: Contents) -> None:
        """Clear the folder once per process. Listing it for every upload would cost more with every file in it."""
        if contents.where not in _cleared:
            await self._clear(key)
            if len(_cleared) >= REMEMBERED:
                _cleared.clear()
            _cleared[contents.where] = None

    def _chunks(self, given: Given, on_progress: OnProgress | None) -> Chunks:
        report_size = _throttled(lambda size: on_progress(self._uploading(given, size)) if on_progress else None)
        if isinstance(given.source, AsyncIterable):
            return _Watched(aiter(given.source), self._checked, report_size)
        return self._pieces(given.source, report_size)

    def _pieces(self, source: Any, report_size: Callable[[int], None]) -> Iterator[bytes]:
        size = 0
        with _stream(self._session_id, source) as stream:
            while piece := stream.read(PIECE):
                yield self._checked(piece)
                size += memoryview(piece).nbytes
                report_size(size)

    def _checked(self, piece: Any) -> bytes:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise FileRefused(
                f"The stream yields {type(piece).__name__}, not bytes. Open it in binary mode.",
                session_id=self._session_id,
            )
        return cast(bytes, piece)

    async def _same(
        self, key: int, contents: Contents, upload: Upload
    ) -> tuple[SignalRecord, FileFacts] | None:  # fmt: skip
        """Return the file that already has this content. If its bytes are damaged, replace them with the new ones."""
        for signal, facts in await self._recorded(key, sha256=upload.sha256):
            if facts.size == upload.size:
                if await contents.damage(facts):
                    await upload.keep([facts.stored_name])
                return signal, facts
        return None

    async def _kept(self, key: int, upload: Upload, ending: str) -> str:
        """Name the bytes after their hash: the short form, unless other content has that name already."""
        short, long = file_id(upload.sha256), file_id(upload.sha256, len(upload.sha256))
        free = [long] if await self._store.files(key, id=short) else [short, long]
        return await upload.keep([f"{each}.{ending}" for each in free])

    async def _noted(
        self, contents: Contents, by: str | None, facts: FileFacts, fence: int | None
    ) -> tuple[SignalRecord, bool]:  # fmt: skip
        """Record a file whose bytes are stored. If another record of the same content exists, delete these bytes."""
        try:
            found = await self._store.add_file(self._session_id, by, self._clock.now(), facts, fence)
        except UnknownSession:  # the session was removed meanwhile
            await contents.delete(facts)
            raise
        if file_facts(found[0].payload).stored_name != facts.stored_name:  # added first by another upload
            await contents.delete(facts)
        return found

    async def _forget(self, files: Iterable[FileFacts]) -> None:
        """Delete the bytes of files whose records were deleted."""
        for file in files:
            await self._contents().delete(file)

    async def _clear(self, key: int, apply: bool = True) -> tuple[int, int]:
        """Delete the remains of interrupted uploads. Return the number of files and of bytes."""

        async def recorded() -> set[str]:
            return {facts.stored_name for _, facts in await self._recorded(key)}

        return await self._contents().clear(recorded, apply)

    # looking up

    def _contents(self) -> Contents:
        """Return where the files' bytes are. Raises `FileRefused` if the store has no place for them."""
        found = self._store.files_of(self._session_id)
        if found is None:
            raise FileRefused(
                f"This store has no folder for files. Use a store on disk: Engine('sqlite:///{DEFAULT_STORE}'). For a"
                " store in Postgres, name a folder that all machines reach: ?files=/path at the end of its URL.",
                session_id=self._session_id,
            )
        return found

    async def _row(self) -> SessionRow:
        self._check()
        row = await self._store.get(self._session_id, sure=True)
        if row is None:
            raise UnknownSession(
                f"This store has no session {self._session_id!r}. List its sessions with engine.sessions().",
                session_id=self._session_id,
            )
        return row

    async def _recorded(self, key: int, sha256: str | None = None) -> Known:
        return [(signal, file_facts(signal.payload)) for signal in await self._store.files(key, sha256=sha256)]

    async def _signal(self, file_id: str) -> SignalRecord:
        """Return the signal that describes a file."""
        key = (await self._row()).key
        for signal in await self._store.files(key, id=str(file_id)):
            return signal
        known = [facts.id for _, facts in await self._recorded(key)]
        raise UnknownFile(
            f"Session {self._session_id!r} has no file {shortened(file_id)}" + did_you_mean(str(file_id), known),
            session_id=self._session_id,
            file_id=file_id,
        )

    def _file(self, signal: SignalRecord, facts: FileFacts, reused: bool = False) -> File:
        from pausepoint.model.schemas import File  # imported here so that reading sessions does not load Pydantic

        return File(
            file_id=facts.id, filename=facts.filename, content_type=facts.content_type, size_bytes=facts.size,
            storage_uri=self._contents().uri(facts.stored_name), sha256=facts.sha256, upload_status="uploaded",
            created_at=to_datetime(signal.at), metadata=decode(bytes(facts.metadata)), reused=reused,
        )  # fmt: skip

    def _uploading(self, given: Given, size: int) -> File:
        from pausepoint.model.schemas import File

        return File(
            file_id="", filename=given.filename, content_type=given.content_type, size_bytes=size, storage_uri="",
            sha256="", upload_status="uploading", created_at=to_datetime(self._clock.now()),
            metadata=decode(given.metadata),
        )  # fmt: skip


class _Watched:
    """Passes the pieces of an async source on, and reports how many bytes were received."""

    def __init__(
        self, pieces: AsyncIterator[Any], check: Callable[[Any], bytes], report_size: Callable[[int], None]
    ) -> None:
        self._pieces, self._check, self._report_size = pieces, check, report_size
        self._size = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._report_size(self._size)
        piece = self._check(await anext(self._pieces))
        self._size += memoryview(piece).nbytes
        return piece


def _facts_of(given: Given, upload: Upload, name: str, origin: str) -> FileFacts:
    id, _, ending = name.partition(".")
    return FileFacts(
        id, given.filename, given.content_type, upload.size, upload.sha256, ending, msgspec.Raw(given.metadata), origin
    )


def _throttled(report: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function, callable in any thread, that reports the size on the event loop every `REPORT_EVERY` bytes."""
    loop, reported = asyncio.get_running_loop(), 0

    def report_size(size: int) -> None:
        nonlocal reported
        if size - reported >= REPORT_EVERY:
            reported = size
            loop.call_soon_threadsafe(report, size)

    return report_size


def _inspected(session_id: str, source: Any) -> tuple[str, int | None, str]:
    """Return a source's distinguishing mark, size and name, as far as they are known before it is read."""
    if isinstance(source, bytes | bytearray | memoryview):
        return f"bytes:{sha256(source).hexdigest()}", memoryview(source).nbytes, ""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        facts = _facts_at(session_id, path)
        if not stat.S_ISREG(facts.st_mode):
            raise FileRefused(f"{path} is not a file. Pass the path of a file.", session_id=session_id)
        return f"path:{path}", facts.st_size, path.name
    if isinstance(source, AsyncIterable) or callable(getattr(source, "read", None)):
        name = getattr(source, "name", "")
        return "stream", None, name if isinstance(name, str) else ""
    raise FileRefused(
        f"A file cannot be added from {type(source).__name__}. Pass a path, bytes or a binary stream.",
        session_id=session_id,
    )


def _facts_at(session_id: str, path: Path) -> os.stat_result:
    try:
        return path.stat()
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise FileRefused(f"{str(path)!r} cannot be read ({why}). Check the path.", session_id=session_id) from exc


@contextmanager
def _stream(session_id: str, source: Any) -> Iterator[Readable]:
    """Yield the source as a stream. A stream passed by the caller stays open."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield BytesIO(source)
    elif isinstance(source, str | os.PathLike):
        with _file_at(session_id, source) as file:
            yield file
    else:
        yield source


def _file_at(session_id: str, path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as exc:
        raise FileRefused(
            f"{os.fspath(path)!r} cannot be read ({exc.strerror}). Check its permissions.", session_id=session_id
        ) from exc


def _text(session_id: str, what: str, value: object) -> str:
    if not isinstance(value, str):
        raise FileRefused(f"{what} must be a string, not {type(value).__name__}: {value!r:.60}.", session_id=session_id)
    return value
