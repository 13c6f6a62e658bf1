"""The contents of files in folders: next to a SQLite store, or in a folder that all machines of a fleet reach.

Each session has a folder below a common one, which holds nothing else. See `pausepoint.stores.disk` for how content
gets to the disk.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pausepoint.errors import InvalidSessionId, StoreUnavailable
from pausepoint.model.files import FileFacts
from pausepoint.model.ids import shortened
from pausepoint.stores import files
from pausepoint.stores.disk import PIECE, Folder, Upload, share, sync_folder
from pausepoint.stores.files import Chunks, Files, Recorded, Stored, damaged, pour, sessions_in, verified
from pausepoint.threads import in_thread, to_its_end

REMEMBERED = 10_000
"""The number of checked files that a process remembers."""

_verified: dict[tuple[object, ...], None] = {}


def session_folder(root: Path, session_id: str) -> Path:
    """Return the folder for a session's files. Raises `InvalidSessionId` for an id that could lead elsewhere."""
    return root / files.folder_name(session_id)


class SessionFolders:
    """The contents of all sessions of one store. ``root`` is the folder of their folders."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, session_id: str) -> FolderFiles:
        """Return the contents of one session. Raises `InvalidSessionId`."""
        return FolderFiles(self._root, session_id)

    async def sessions(self) -> list[str]:
        """Return the ids of the sessions that have a folder."""
        return await in_thread(lambda: sessions_in(os.listdir(self._root)) if self._root.is_dir() else [])

    def close(self) -> None:
        """Do nothing: the folders need no connection."""


class FolderUpload:
    """A `pausepoint.stores.files.Upload` whose bytes are in a temporary file of the session's folder."""

    def __init__(self, upload: Upload, where: FolderFiles, then: str) -> None:
        self._upload = upload
        self._where = where
        self._then = then
        self._name = ""

    @property
    def sha256(self) -> str:
        return self._upload.sha256

    @property
    def size(self) -> int:
        return self._upload.size

    async def keep(self, names: Sequence[str]) -> str:
        return await in_thread(self._upload.busily, partial(self._keep, names))

    def _keep(self, names: Sequence[str]) -> str:
        with self._where.written(then=self._then):
            for name in names[:-1]:
                if self._upload.publish(name):
                    self._name = name
                    return name
                if not self._where.folder.damage(name, self.sha256, self.size):
                    break
            else:
                name = names[-1]
            self._upload.take_over(name)
            self._name = name
            return name

    async def withdraw(self) -> None:
        if self._name:
            await in_thread(self._where.folder.remove, self._name)


class FolderFiles:
    """`pausepoint.stores.files.Files` in the folder of a session, which is directly below ``root``."""

    def __init__(self, root: Path, session_id: str) -> None:
        self.path = session_folder(root, session_id)
        self.folder = Folder(self.path / "files")
        self._root = root
        self._session_id = session_id
        self.where = str(self.folder.path)

    def uri(self, name: str) -> str:
        path = self.folder.path / name
        return path.relative_to(path.parents[3]).as_posix()

    def outputs(self) -> Path:
        folder = Folder(self.path / "outputs")
        with self.written("outputs", "try again"), folder.opened(create=True):
            return folder.path

    @asynccontextmanager
    async def put(self, chunks: Chunks, then: str = "add the file again") -> AsyncIterator[FolderUpload]:
        upload = Upload(self.folder)
        try:
            await pour(chunks, upload, partial(self.written, then=then))
            yield FolderUpload(upload, self, then)
        finally:
            upload.abandon()

    async def open(self, file: FileFacts) -> BinaryIO:
        return await in_thread(self._open, file)

    def _open(self, facts: FileFacts) -> BinaryIO:
        name = facts.stored_name
        try:
            file = self.folder.read(name)
        except OSError:
            raise damaged(self._session_id, facts, self.folder.damage(name, facts.sha256, facts.size)) from None
        seen = os.fstat(file.fileno())
        key = facts.sha256, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
        if key not in _verified:
            if wrong := self.folder.damage(name, facts.sha256, facts.size):
                file.close()
                raise damaged(self._session_id, facts, wrong)
            if len(_verified) >= REMEMBERED:
                _verified.clear()
            _verified[key] = None
        return file

    def pieces(self, file: FileFacts) -> Iterator[bytes]:
        return verified(self._session_id, file, self._read(file))

    def _read(self, facts: FileFacts) -> Iterator[bytes]:
        try:
            with self.folder.read(facts.stored_name) as file:
                while piece := file.read(PIECE):
                    yield piece
        except OSError as exc:
            raise damaged(self._session_id, facts, f"cannot be read ({exc.strerror or exc})") from exc

    async def damage(self, file: FileFacts) -> str:
        return await in_thread(self.folder.damage, file.stored_name, file.sha256, file.size)

    async def list(self) -> list[Stored]:
        return [Stored(*each) for each in await in_thread(self.folder.entries)]

    async def delete(self, file: FileFacts) -> None:
        with self.written():
            await in_thread(self.folder.remove, file.stored_name)

    async def delete_all(self) -> None:
        remove = partial(_remove, self.path, self._root, self._session_id)
        await in_thread(remove) if self._root.exists() else remove()  # a thread costs more

    async def clear(self, recorded: Recorded, apply: bool = True) -> tuple[int, int]:
        count = size = 0
        with self.written():
            strays = await in_thread(self.folder.strays, await recorded())
        try:
            now = await recorded() if strays else ()  # one may have been recorded meanwhile
            for stray in strays:
                if stray.name not in now:
                    if apply:
                        stray.remove()
                    count, size = count + 1, size + stray.size
        finally:
            for stray in strays:
                stray.close()
        return count, size

    @asynccontextmanager
    async def share(self, source: Files, files: Collection[FileFacts]) -> AsyncIterator[None]:
        assert isinstance(source, FolderFiles), source
        names, locks = [file.stored_name for file in files], list[int]()
        try:
            with self.written(then="fork the session again"):
                await to_its_end(in_thread(share, source.folder, self.folder, names, locks))
            yield
        finally:
            for lock in locks:
                os.close(lock)

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[bool]:
        held: list[int] = []

        def reserve() -> None:
            if (found := self.folder.reserve()) is not None:
                held.append(found)

        try:
            with self.written(then="import the session again"):
                await to_its_end(in_thread(reserve))
            yield bool(held)
        finally:
            for descriptor in held:
                os.close(descriptor)

    @contextmanager
    def written(self, name: str = "files", then: str = "add the file again") -> Iterator[None]:
        """Convert an error of the disk."""
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"The {name} of session {self._session_id!r} in {self.path / name} cannot be written"
                f" ({exc.strerror or exc}). Check the disk space and the folder's permissions, then {then}."
            ) from exc


def _remove(folder: Path, root: Path, session_id: str) -> None:
    """Delete a session's folder durably, before anything else of the session is deleted.

    ``root`` is the folder of all sessions' folders. Nothing but a direct child of it is ever deleted.
    """
    if folder.parent != root or folder.name in ("", ".", ".."):
        raise InvalidSessionId(
            f"The files of session {shortened(session_id)} would be in {folder}, which is not in {root}. Nothing was"
            " deleted. Restore the session's row in the database from a backup.",
            session_id=session_id,
        )
    if not os.path.lexists(folder.parent):
        return
    import shutil

    try:
        while os.path.lexists(folder):
            with suppress(FileNotFoundError):  # another process deletes the same folder
                folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
        sync_folder(folder.parent)
    except OSError as exc:
        raise StoreUnavailable(
            f"The files of session {session_id!r} in {folder} cannot be deleted ({exc.strerror}). Check the folder's"
            " permissions, then call engine.gc(apply=True) to complete the removal."
        ) from exc
