"""The files of a session: uploaded once, stored completely or not at all, and never changed.

The store is the source of truth: a signal of the session describes each file, and its bytes are stored in the session's
folder under the file's id. Bytes without a record are not a file and are deleted. A record without its bytes is damage
and is reported.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec

from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import decode, encode
from pausepoint.errors import (
    DamagedFile,
    FileRefused,
    StoreUnavailable,
    UnknownFile,
    UnknownSession,
    did_you_mean,
    error_text,
)
from pausepoint.log.replay import fold
from pausepoint.model.chunks import state_of
from pausepoint.model.files import FileFacts, cleaned, ending_of, file_facts, file_id, is_content_type
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import SessionRow
from pausepoint.name import DEFAULT_STORE
from pausepoint.stores.base import Store
from pausepoint.stores.disk import PIECE, Folder, Upload
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.model.schemas import ChunkState, File

REPORT_EVERY = 8 * 2**20
"""The number of bytes between two reports of progress."""

REMEMBERED = 10_000
"""The number of checked files, and of cleaned folders, that a process remembers."""

_verified: dict[tuple[object, ...], None] = {}
_cleared: dict[Path, None] = {}  # folders in which this process has deleted the remains of interrupted uploads


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
        return await in_thread(self._opened, facts)

    async def progress(self, file_id: str) -> ChunkState:
        """Return how many of a file's chunks are done and which of them failed, as of now."""
        await self._signal(file_id)
        row = await self._row()
        line = fold(await self._store.records(row.key, row.key_frame))
        return state_of(line.chunked.get(file_id))

    @property
    def outputs(self) -> Path:
        """The session's folder for output files. It is created on first use and deleted with the session."""
        folder = Folder(self._folder().path.with_name("outputs"))
        with self._on_disk("outputs", "try again"), folder.opened(create=True):
            return folder.path

    # adding

    async def _take(
        self, given: Given, *, by: str | None = None, origin: str = "", fence: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> File:  # fmt: skip
        """Add a checked file. ``origin`` is the operation that adds it, ``fence`` the fence of its hold."""
        row, folder = await self._row(), self._folder()
        upload = Upload(folder)
        try:
            with self._on_disk():
                await in_thread(upload.busily, upload.begin)
            await self._pour(upload, given, on_progress)
            await self._clear_at_first(row.key, folder)
            if (same := await self._same(row.key, folder, upload)) is not None:
                return self._file(*same, reused=not origin or same[1].origin != origin)
            name = await self._published(row.key, folder, upload, ending_of(given.filename))
            facts = _facts_of(given, upload, name, origin)
            signal, new = await self._noted(folder, by, facts, fence)
            return self._file(signal, file_facts(signal.payload), reused=not new)
        except BaseException:
            _cleared.pop(folder.path, None)  # the next upload deletes whatever this one left in the folder
            raise
        finally:
            upload.abandon()

    async def _clear_at_first(self, key: int, folder: Folder) -> None:
        """Clear the folder once per process. Listing it for every upload would cost more with every file in it."""
        if folder.path not in _cleared:
            await self._clear(key)
            _remember(_cleared, folder.path)

    async def _pour(self, upload: Upload, given: Given, on_progress: OnProgress | None) -> None:
        report_size = _throttled(lambda size: on_progress(self._uploading(given, size)) if on_progress else None)
        if isinstance(given.source, AsyncIterable):
            async for piece in given.source:
                await in_thread(upload.busily, partial(self._write, upload, piece))
                report_size(upload.size)
            await in_thread(upload.busily, partial(self._finish, upload))
        else:
            await in_thread(upload.busily, partial(self._read, upload, given.source, report_size))

    def _read(self, upload: Upload, source: Any, report_size: Callable[[int], None]) -> None:
        with _stream(self._session_id, source) as stream:
            while (piece := stream.read(PIECE)) and not upload.abandoned:
                self._write(upload, piece)
                report_size(upload.size)
        if not upload.abandoned:
            self._finish(upload)

    def _write(self, upload: Upload, piece: Any) -> None:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise FileRefused(
                f"The stream yields {type(piece).__name__}, not bytes. Open it in binary mode.",
                session_id=self._session_id,
            )
        with self._on_disk():
            upload.write(piece)

    def _finish(self, upload: Upload) -> None:
        with self._on_disk():
            upload.finish()

    async def _same(
        self, key: int, folder: Folder, upload: Upload
    ) -> tuple[SignalRecord, FileFacts] | None:  # fmt: skip
        """Return the file that already has this content. If its bytes are damaged, replace them with the new ones."""
        for signal, facts in await self._recorded(key, sha256=upload.sha256):
            if facts.size == upload.size:
                if await in_thread(folder.damage, facts.stored_name, facts.sha256, facts.size):
                    with self._on_disk():
                        await in_thread(upload.busily, partial(upload.take_over, facts.stored_name))
                return signal, facts
        return None

    async def _published(self, key: int, folder: Folder, upload: Upload, ending: str) -> str:
        """Name the bytes after their hash: the short form, unless other content has that name already."""
        short, long = file_id(upload.sha256), file_id(upload.sha256, len(upload.sha256))
        name = f"{long}.{ending}" if await self._store.files(key, id=short) else f"{short}.{ending}"
        with self._on_disk():
            if not await in_thread(upload.busily, partial(upload.publish, name)):
                same = not await in_thread(folder.damage, name, upload.sha256, upload.size)
                name = name if same else f"{long}.{ending}"
                await in_thread(upload.busily, partial(upload.take_over, name))
        return name

    async def _noted(
        self, folder: Folder, by: str | None, facts: FileFacts, fence: int | None
    ) -> tuple[SignalRecord, bool]:  # fmt: skip
        """Record a file whose bytes are stored. If another record of the same content exists, delete these bytes."""
        try:
            found = await self._store.add_file(self._session_id, by, self._clock.now(), facts, fence)
        except UnknownSession:  # the session was removed meanwhile
            await in_thread(folder.remove, facts.stored_name)
            raise
        if file_facts(found[0].payload).stored_name != facts.stored_name:  # added first by someone else
            await in_thread(folder.remove, facts.stored_name)
        return found

    async def _forget(self, files: Iterable[FileFacts]) -> None:
        """Delete the bytes of files whose records were deleted."""
        with self._on_disk():
            for file in files:
                await in_thread(self._folder().remove, file.stored_name)

    async def _clear(self, key: int, apply: bool = True) -> tuple[int, int]:
        """Delete the remains of interrupted uploads. Return the number of files and of bytes."""
        folder, count, size = self._folder(), 0, 0
        with self._on_disk():
            strays = await in_thread(folder.strays, _names(await self._recorded(key)))
        try:
            now = _names(await self._recorded(key)) if strays else ()  # one may have been recorded meanwhile
            for stray in strays:
                if stray.name not in now:
                    if apply:
                        stray.remove()
                    count, size = count + 1, size + stray.size
        finally:
            for stray in strays:
                stray.close()
        return count, size

    # looking up

    def _folder(self) -> Folder:
        """Return the folder of the files' bytes. Raises `FileRefused` if the store has none."""
        found = self._store.folder(self._session_id)
        if found is None:
            raise FileRefused(
                f"This store has no folder for files. Use a store on disk: Engine('sqlite:///{DEFAULT_STORE}').",
                session_id=self._session_id,
            )
        return Folder(found / "files")

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
            f"Session {self._session_id!r} has no file {file_id!r}" + did_you_mean(str(file_id), known),
            session_id=self._session_id,
            file_id=file_id,
        )

    def _file(self, signal: SignalRecord, facts: FileFacts, reused: bool = False) -> File:
        from pausepoint.model.schemas import File  # imported here so that reading sessions does not load Pydantic

        return File(
            file_id=facts.id, filename=facts.filename, content_type=facts.content_type, size_bytes=facts.size,
            storage_uri=self._uri(facts.stored_name), sha256=facts.sha256, upload_status="uploaded",
            created_at=to_datetime(signal.at), metadata=decode(bytes(facts.metadata)), reused=reused,
        )  # fmt: skip

    def _uploading(self, given: Given, size: int) -> File:
        from pausepoint.model.schemas import File

        return File(
            file_id="", filename=given.filename, content_type=given.content_type, size_bytes=size, storage_uri="",
            sha256="", upload_status="uploading", created_at=to_datetime(self._clock.now()),
            metadata=decode(given.metadata),
        )  # fmt: skip

    def _uri(self, name: str) -> str:
        path = self._folder().path / name
        return path.relative_to(path.parents[3]).as_posix()

    def _opened(self, facts: FileFacts) -> BinaryIO:
        folder, name = self._folder(), facts.stored_name
        try:
            file = folder.read(name)
        except OSError:
            raise damaged(self._session_id, facts, folder.damage(name, facts.sha256, facts.size)) from None
        seen = os.fstat(file.fileno())
        key = facts.sha256, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
        if key not in _verified:
            if wrong := folder.damage(name, facts.sha256, facts.size):
                file.close()
                raise damaged(self._session_id, facts, wrong)
            _remember(_verified, key)
        return file

    @contextmanager
    def _on_disk(self, name: str = "files", then: str = "add the file again") -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"The {name} of session {self._session_id!r} in {self._folder().path.with_name(name)} cannot be written"
                f" ({exc.strerror or exc}). Check the disk space and the folder's permissions, then {then}."
            ) from exc


def damaged(session_id: str, facts: FileFacts, what: str) -> DamagedFile:
    """Return the error for a file whose bytes are damaged; ``what`` describes the damage."""
    return DamagedFile(
        f"File {facts.id!r} ({facts.filename}) of session {session_id!r} {what}. Add the same content again to repair"
        " it, or restore the folder from a backup.",
        session_id=session_id,
        file_id=facts.id,
    )


def _remember(among: dict[Any, None], what: object) -> None:
    if len(among) >= REMEMBERED:
        among.clear()
    among[what] = None


def _names(known: Known) -> set[str]:
    return {facts.stored_name for _, facts in known}


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
