"""The protocol for the contents of files: where the bytes of one session's files are, and how they get there.

A store records that a session has a file (`pausepoint.model.files.FileFacts`); the bytes are in its `Files`, under the
stored name. Content is verified by its hash and size. Content that no record names is a leftover of a crash.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from zlib import crc32

from pausepoint.errors import DamagedFile
from pausepoint.model.files import FileFacts
from pausepoint.model.ids import check_session_id, is_session_id
from pausepoint.threads import in_thread

Chunks = Iterable[bytes] | AsyncIterable[bytes]
"""The bytes of a file in pieces. A plain iterable is read in a thread, an async one on the event loop."""

Recorded = Callable[[], Awaitable[Collection[str]]]
"""Returns the stored names that the session's records have at this moment."""


class Stored(NamedTuple):
    """One content: its stored name and its size in bytes."""

    name: str
    size: int


class Upload(Protocol):
    """Content that was received completely. It has no name yet, so it is not stored."""

    @property
    def sha256(self) -> str:
        """The hash of the content."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    async def keep(self, names: Sequence[str]) -> str:
        """Store the content durably under the first name that no other content has. Return the name.

        The last name is used in any case: content that has it is replaced. A reader finds either all of the content
        or none. Raises `FileRefused` for a name that could lead elsewhere, and `StoreUnavailable`.
        """

    async def withdraw(self) -> None:
        """Delete the content that `keep` stored for a session that was not imported after all.

        Without locks (see `Files.reserved`) it stays: another import of the session may have stored it, too.
        """


class Files(Protocol):
    """The contents of one session's files. Nothing here blocks the event loop, except `pieces`, which says so.

    An outage raises `StoreUnavailable`. A missing or changed content raises `DamagedFile` when it is read.
    """

    @property
    def where(self) -> str:
        """The folder or the bucket with the contents, for messages. No other session has the same."""

    def uri(self, name: str) -> str:
        """Return where a content is, or would be. This does not look whether it is there."""

    def outputs(self) -> Path:
        """Create the folder for the session's output files, and return it. Raises `FileRefused` if there is none."""

    def put(self, chunks: Chunks, then: str = "add the file again") -> AbstractAsyncContextManager[Upload]:
        """Receive content, and keep it from clean-ups until the end of the block. Store it with `Upload.keep`.

        What was not stored at the end of the block is gone, also if the process is killed. Errors of ``chunks`` are
        raised as they are; ``then`` says in an error message what to do after an outage.
        """

    async def open(self, file: FileFacts) -> BinaryIO:
        """Return the verified content of a file for reading. Its ``name`` is a path on this machine."""

    def pieces(self, file: FileFacts) -> Iterator[bytes]:
        """Yield the content of a file, verified at its end. This blocks: call it in a thread."""

    async def damage(self, file: FileFacts) -> str:
        """Return what is wrong with the content of a file; an empty string if its size and hash are as recorded."""

    async def list(self) -> list[Stored]:
        """Return all contents, also those that no record names, in the order of their names."""

    async def delete(self, file: FileFacts) -> None:
        """Delete the content of a file permanently. A missing one is not an error."""

    async def delete_all(self) -> None:
        """Delete all contents of the session permanently, and its outputs. Nothing has to be there."""

    async def clear(self, recorded: Recorded, apply: bool = True) -> tuple[int, int]:
        """Delete leftovers: contents that no record names and no upload keeps. Return their number and their bytes.

        ``recorded`` is called when the candidates are known, so that an upload that is recorded meanwhile is kept.
        Without ``apply``, only count them.
        """

    def share(self, source: Files, files: Collection[FileFacts]) -> AbstractAsyncContextManager[None]:
        """Give this session the contents of another session's files, and keep them from clean-ups during the block.

        Missing contents are skipped; opening them or verifying the session reports the damage.
        """

    def reserved(self) -> AbstractAsyncContextManager[bool]:
        """Keep other calls of this method out during the block. Yield False if one of them is in its block.

        Two imports of the same session could withdraw each other's contents. Without locks, this always yields True.
        """


class Receiver(Protocol):
    """Receives content, piece by piece. See `pausepoint.stores.disk.Abandonable`."""

    abandoned: bool

    def begin(self) -> object: ...
    def write(self, piece: bytes, /) -> object: ...
    def finish(self) -> object: ...
    def busily(self, act: Callable[[], object], /) -> object: ...


async def pour(chunks: Chunks, into: Receiver, edge: Callable[[], AbstractContextManager[None]]) -> None:
    """Receive all of ``chunks`` in threads. ``edge`` converts the errors of the receiver, not those of the chunks."""

    def act(step: Callable[..., object], *given: bytes) -> None:
        with edge():
            step(*given)

    def pour_all(pieces: Iterable[bytes]) -> None:
        act(into.begin)
        for piece in pieces:
            if into.abandoned:
                return
            act(into.write, piece)
        act(into.finish)

    if not isinstance(chunks, AsyncIterable):
        await in_thread(into.busily, partial(pour_all, chunks))
        return
    await in_thread(into.busily, partial(act, into.begin))
    async for piece in chunks:
        await in_thread(into.busily, partial(act, into.write, piece))
    await in_thread(into.busily, partial(act, into.finish))


def folder_name(session_id: str) -> str:
    """Return the name of the folder, or the last part of the prefix, for a session's files.

    Ids with capital letters get a suffix, so that ids that differ only in case do not share a folder on file systems
    that ignore case. Raises `InvalidSessionId` for an id that could lead to another folder.

    >>> folder_name("octopus-1"), folder_name("Octopus")
    ('octopus-1', 'Octopus~01edc325')
    """
    check_session_id(session_id)
    mark = "" if session_id == session_id.lower() else f"~{crc32(session_id.encode()):08x}"
    return f"{session_id}{mark}"


def sessions_in(names: Iterable[str]) -> list[str]:
    """Return the ids of the sessions whose folders have these names, in order. Other names are left out."""
    return sorted(id for id in (name.partition("~")[0] for name in names) if is_session_id(id))


def verified(session_id: str, file: FileFacts, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a content. Raises `DamagedFile` at the end if they are not those of the file."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != file.sha256:
        raise damaged(session_id, file, "does not match its hash")


def damaged(session_id: str, file: FileFacts, what: str) -> DamagedFile:
    """Return the error for a file whose bytes are damaged; ``what`` describes the damage."""
    return DamagedFile(
        f"File {file.id!r} ({file.filename}) of session {session_id!r} {what}. Add the same content again to repair"
        " it, or restore the folder from a backup.",
        session_id=session_id,
        file_id=file.id,
    )
