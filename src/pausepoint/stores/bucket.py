"""The contents of files in a bucket: S3, or another object store that fsspec reaches.

A content is one object, named as it would be in a folder. An object store shows an object when it has been sent
completely, and replaces it at once; nothing else is assumed of it. The content is first received in a temporary file of
this machine, because the name of an object cannot change, and is derived from the hash. So a process that is killed
leaves no part of a content in the bucket. On this machine it leaves the copies that it has read (see
`pausepoint.stores.copies`).

A bucket has no locks. A content that no record names is a leftover when it is older than `LEFTOVER_AFTER`: an upload
must be recorded within this time. A new upload does not use the name of an older leftover, so a clean-up cannot delete
what it stores.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from pausepoint.errors import FileRefused, PausepointError, StoreError, StoreUnavailable
from pausepoint.model.files import FileFacts
from pausepoint.name import NAME
from pausepoint.stores.copies import Copies
from pausepoint.stores.disk import PIECE, Abandonable, check_name
from pausepoint.stores.files import Chunks, Files, Recorded, Stored, damaged, folder_name, pour, sessions_in, verified
from pausepoint.threads import in_thread, to_its_end

LEFTOVER_AFTER = timedelta(days=1)
"""The age at which a content that no record names is a leftover. Uploads and clocks may be this late."""

BLOCK = 8 * 2**20
"""The number of bytes that are read from the bucket at once."""


class Bucket:
    """The contents of all sessions of one store. ``url`` is such as ``s3://bucket/prefix``, ``name`` is the store's.

    Raises `StoreError` if the package for such a URL is not installed.
    """

    def __init__(self, url: str, name: str) -> None:
        try:
            from fsspec.core import url_to_fs

            # Another process may change the bucket at any time, so nothing that was listed is remembered.
            self.fs, path = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except (ImportError, ValueError) as exc:
            raise StoreError(
                f"The files of the store cannot be in {url} ({exc}). For a bucket in S3, run"
                f" `pip install '{NAME}[bucket]'`; for another one, install the package that fsspec needs for it."
            ) from exc
        self.path = f"{path.rstrip('/')}/{name}.sessions"
        self.url = f"{url.rstrip('/')}/{name}.sessions"
        self.copies = Copies()

    def of(self, session_id: str) -> BucketFiles:
        """Return the contents of one session. Raises `InvalidSessionId`."""
        return BucketFiles(self, session_id)

    async def sessions(self) -> list[str]:
        """Return the ids of the sessions that have contents."""
        return await in_thread(self._sessions)

    def _sessions(self) -> list[str]:
        with self.reached(), suppress(FileNotFoundError):
            return sessions_in(each.rstrip("/").rpartition("/")[2] for each in self.fs.ls(self.path, detail=False))
        return []

    @contextmanager
    def reached(self, then: str = "try again") -> Iterator[None]:
        """Convert an error of the bucket. A missing object stays a `FileNotFoundError`."""
        try:
            yield
        except (PausepointError, FileNotFoundError, NotImplementedError):
            raise
        except Exception as exc:  # each package has its own errors, and not all are an OSError
            raise StoreUnavailable(
                f"The bucket {self.url} cannot be used ({type(exc).__name__}: {exc!s:.200}). Check the network and the"
                f" rights of its key, then {then}."
            ) from exc

    def close(self) -> None:
        """Delete the copies on this machine."""
        self.copies.close()


class BucketUpload(Abandonable):
    """A `pausepoint.stores.files.Upload` whose bytes are in a temporary file of this machine, which has no name."""

    def __init__(self, where: BucketFiles, then: str) -> None:
        super().__init__()
        self._where = where
        self._then = then
        self._digest = sha256()
        self._spool: IO[bytes] | None = None
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def begin(self) -> None:
        """Create the temporary file."""
        self._spool = TemporaryFile(prefix=f"{NAME}-files-")  # noqa: SIM115 (closed by `close`)

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        assert self._spool is not None
        view = memoryview(piece).cast("B")
        self._spool.write(view)
        self._digest.update(view)
        self.size += len(view)

    def finish(self) -> None:
        """Make the bytes ready to be sent."""
        assert self._spool is not None
        self._spool.flush()

    async def keep(self, names: Sequence[str]) -> str:
        return await in_thread(self.busily, partial(self._keep, names))

    def _keep(self, names: Sequence[str]) -> str:
        assert self._spool is not None
        paths = {name: self._where.path(name) for name in names}
        with self._where.bucket.reached(self._then):
            name = next((each for each in names[:-1] if self._is_free(each)), names[-1])
            self._spool.seek(0)
            try:
                self._where.bucket.fs.put_file(f"/dev/fd/{self._spool.fileno()}", paths[name])
            except FileNotFoundError as exc:
                raise StoreUnavailable(
                    f"The bucket {self._where.bucket.url} does not exist ({exc}). Create it, or check its name in the"
                    f" URL of the store, then {self._then}."
                ) from exc
        return name

    def _is_free(self, name: str) -> bool:
        """Return whether a name has no content, or the same one, which no clean-up will delete soon."""
        try:
            if self._where.age(name) > LEFTOVER_AFTER / 2:
                return False
            return not self._where.wrong(name, self.sha256, self.size)
        except FileNotFoundError:
            return True
        except NotImplementedError:
            return False  # the file system does not know when

    async def withdraw(self) -> None:
        """Do nothing: another import may have stored the same content, and there is no lock that would tell."""

    def close(self) -> None:
        """Delete the temporary file."""
        if self._spool is not None:
            self._spool.close()


class BucketFiles:
    """`pausepoint.stores.files.Files` below the prefix of a session."""

    def __init__(self, bucket: Bucket, session_id: str) -> None:
        self.bucket = bucket
        self._session_id = session_id
        self._folder = folder_name(session_id)
        self.where = f"{bucket.url}/{self._folder}/files"

    def path(self, name: str) -> str:
        """Return the path of a content in the bucket."""
        return f"{self.bucket.path}/{self._folder}/files/{check_name(name)}"

    def uri(self, name: str) -> str:
        return f"{self.where}/{name}"

    def outputs(self) -> Path:
        raise FileRefused(
            f"Session {self._session_id!r} has no folder for outputs, because its files are in a bucket. Write to a"
            " folder of your own, add the result with files.add(), or publish it as an artifact.",
            session_id=self._session_id,
        )

    @asynccontextmanager
    async def put(self, chunks: Chunks, then: str = "add the file again") -> AsyncIterator[BucketUpload]:
        upload = BucketUpload(self, then)
        try:
            await pour(chunks, upload, partial(self._spooled, then))
            yield upload
        finally:
            upload.abandon()

    @contextmanager
    def _spooled(self, then: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"The file for session {self._session_id!r} cannot be written to the folder for temporary files"
                f" ({exc.strerror or exc}). Check its disk space, or set TMPDIR to another folder, then {then}."
            ) from exc

    async def open(self, file: FileFacts) -> BinaryIO:
        return await in_thread(self._open, file)

    def _open(self, file: FileFacts) -> BinaryIO:
        path, fs = self.path(file.stored_name), self.bucket.fs
        try:
            with self.bucket.reached():
                version = fs.ukey(path)
                return self.bucket.copies.open(path, version, file.ending, lambda copy: self._fetch(file, copy))
        except FileNotFoundError:
            raise damaged(self._session_id, file, "is missing") from None

    def _fetch(self, file: FileFacts, copy: Path) -> None:
        """Write the verified content of a file to ``copy``."""
        self.bucket.fs.get_file(self.path(file.stored_name), str(copy))
        with open(copy, "rb") as found:
            if wrong := _compared(iter(lambda: found.read(PIECE), b""), file.sha256, file.size):
                raise damaged(self._session_id, file, wrong)

    def pieces(self, file: FileFacts) -> Iterator[bytes]:
        return verified(self._session_id, file, self._read_verified(file))

    def _read_verified(self, file: FileFacts) -> Iterator[bytes]:
        try:
            with self.bucket.reached():
                yield from self._read(file.stored_name)
        except FileNotFoundError:
            raise damaged(self._session_id, file, "is missing") from None

    def _read(self, name: str) -> Iterator[bytes]:
        with self.bucket.fs.open(self.path(name), "rb", block_size=BLOCK) as found:
            while piece := found.read(PIECE):
                yield piece

    async def damage(self, file: FileFacts) -> str:
        return await in_thread(self._damage, file)

    def _damage(self, file: FileFacts) -> str:
        try:
            with self.bucket.reached():
                return self.wrong(file.stored_name, file.sha256, file.size)
        except FileRefused:
            return "has a stored name that may lead out of its folder"
        except FileNotFoundError:
            return "is missing"

    def wrong(self, name: str, content: str, size: int) -> str:
        """Return what is wrong with a stored content. Raises `FileNotFoundError` if there is none."""
        found = self.bucket.fs.info(self.path(name))["size"]
        return f"has {found} bytes instead of {size}" if found != size else _compared(self._read(name), content, size)

    def age(self, name: str) -> timedelta:
        """Return how long ago a content was stored. Raises `FileNotFoundError` if there is none."""
        modified: datetime = self.bucket.fs.modified(self.path(name))
        return datetime.now(UTC) - (modified if modified.tzinfo else modified.replace(tzinfo=UTC))

    def _stored(self) -> list[Stored]:
        prefix = f"{self.bucket.path}/{self._folder}/files"
        found = {}
        with suppress(FileNotFoundError), self.bucket.reached():
            found = self.bucket.fs.find(prefix, detail=True)
        names = {path.rpartition("/")[2]: facts["size"] for path, facts in found.items()}
        return [Stored(*each) for each in sorted(names.items())]

    async def list(self) -> list[Stored]:
        return await in_thread(self._stored)

    async def delete(self, file: FileFacts) -> None:
        await in_thread(self._delete, file.stored_name)

    def _delete(self, name: str) -> None:
        path = self.path(name)
        with suppress(FileNotFoundError), self.bucket.reached():
            self.bucket.fs.rm_file(path)
        self.bucket.copies.forget(path)

    async def delete_all(self) -> None:
        await in_thread(self._delete_all)

    def _delete_all(self) -> None:
        prefix = f"{self.bucket.path}/{self._folder}"
        done = "call engine.gc(apply=True) to complete the removal"
        with suppress(FileNotFoundError), self.bucket.reached(done):
            if self.bucket.fs.exists(prefix):
                self.bucket.fs.rm(prefix, recursive=True)
        self.bucket.copies.forget(f"{prefix}/")

    async def clear(self, recorded: Recorded, apply: bool = True) -> tuple[int, int]:
        old = await in_thread(self._old, await recorded())
        now = await recorded() if old else ()  # one may have been recorded meanwhile
        left = [each for each in old if each.name not in now]
        for each in left if apply else ():
            await in_thread(self._delete, each.name)
        return len(left), sum(each.size for each in left)

    def _old(self, known: Collection[str]) -> Sequence[Stored]:
        return [each for each in self._stored() if each.name not in known and self._is_old(each.name)]

    def _is_old(self, name: str) -> bool:
        with suppress(FileNotFoundError, NotImplementedError), self.bucket.reached():
            return self.age(name) > LEFTOVER_AFTER
        return False

    @asynccontextmanager
    async def share(self, source: Files, files: Collection[FileFacts]) -> AsyncIterator[None]:
        assert isinstance(source, BucketFiles), source
        for file in files:
            await to_its_end(in_thread(self._copy, source, file.stored_name))
        yield

    def _copy(self, source: BucketFiles, name: str) -> None:
        with suppress(FileNotFoundError), self.bucket.reached():
            self.bucket.fs.cp_file(source.path(name), self.path(name))

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[bool]:
        yield True


def _compared(pieces: Iterable[bytes], content: str, size: int) -> str:
    """Return how content differs from what was recorded; an empty string if it does not."""
    digest, found = sha256(), 0
    for piece in pieces:
        digest.update(piece)
        found += len(piece)
    if found != size:
        return f"has {found} bytes instead of {size}"
    return "" if digest.hexdigest() == content else "does not match its hash"
