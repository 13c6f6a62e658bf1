"""The contents of files in memory."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from pausepoint.errors import FileRefused
from pausepoint.model.files import FileFacts
from pausepoint.model.ids import check_session_id
from pausepoint.stores.disk import check_name
from pausepoint.stores.files import Chunks, Files, Recorded, Stored, damaged
from tests.support.dictstore.data import Data


class DictUpload:
    """A content that was received."""

    def __init__(self, files: DictFiles, content: bytes) -> None:
        self.files, self.content, self.name = files, content, ""
        self.sha256, self.size = sha256(content).hexdigest(), len(content)

    async def keep(self, names: Sequence[str]) -> str:
        for name in names:
            check_name(name)
        stored = self.files.stored
        self.name = next((name for name in names[:-1] if stored.get(name, self.content) == self.content), names[-1])
        stored[self.name] = self.content
        self.files.in_use.append(self.name)
        return self.name

    async def withdraw(self) -> None:
        self.files.stored.pop(self.name, None)


class DictFiles:
    """`pausepoint.stores.files.Files` of one session, in a dictionary."""

    def __init__(self, data: Data, session_id: str) -> None:
        self.data, self.session_id = data, check_session_id(session_id)
        self.where = f"memory:{session_id}"

    @property
    def stored(self) -> dict[str, bytes]:
        return self.data.files.setdefault(self.session_id, {})

    @property
    def in_use(self) -> list[str]:
        return self.data.in_use.setdefault(self.session_id, [])

    def uri(self, name: str) -> str:
        return f"{self.where}/{name}"

    def outputs(self) -> Path:
        raise FileRefused("Dictionaries have no folder for outputs.", session_id=self.session_id)

    @asynccontextmanager
    async def put(self, chunks: Chunks, then: str = "") -> AsyncIterator[DictUpload]:
        pieces = [each async for each in chunks] if isinstance(chunks, AsyncIterable) else chunks
        upload = DictUpload(self, b"".join(pieces))
        try:
            yield upload
        finally:
            if upload.name:
                self.in_use.remove(upload.name)

    async def open(self, file: FileFacts) -> BinaryIO:
        return BytesIO(b"".join(self.pieces(file)))

    def pieces(self, file: FileFacts) -> Iterator[bytes]:
        if wrong := self.wrong(file):
            raise damaged(self.session_id, file, wrong)
        yield self.stored[file.stored_name]

    def wrong(self, file: FileFacts) -> str:
        try:
            content = self.stored.get(check_name(file.stored_name))
        except FileRefused:
            return "has a stored name that may lead out of its folder"
        if content is None:
            return "is missing"
        if len(content) != file.size:
            return f"has {len(content)} bytes instead of {file.size}"
        return "" if sha256(content).hexdigest() == file.sha256 else "does not match its hash"

    async def damage(self, file: FileFacts) -> str:
        return self.wrong(file)

    async def list(self) -> list[Stored]:
        return [Stored(name, len(content)) for name, content in sorted(self.stored.items())]

    async def delete(self, file: FileFacts) -> None:
        self.stored.pop(check_name(file.stored_name), None)

    async def delete_all(self) -> None:
        self.data.files.pop(self.session_id, None)

    async def clear(self, recorded: Recorded, apply: bool = True) -> tuple[int, int]:
        known = {*await recorded(), *self.in_use}
        left = {name: len(content) for name, content in self.stored.items() if name not in known}
        for name in left if apply else ():
            del self.stored[name]
        return len(left), sum(left.values())

    @asynccontextmanager
    async def share(self, source: Files, files: Collection[FileFacts]) -> AsyncIterator[None]:
        assert isinstance(source, DictFiles)
        names = [file.stored_name for file in files if file.stored_name in source.stored]
        self.stored.update({name: source.stored[name] for name in names})
        self.in_use.extend(names)
        try:
            yield
        finally:
            for name in names:
                self.in_use.remove(name)

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[bool]:
        free = self.session_id not in self.data.reserved
        self.data.reserved.add(self.session_id)
        try:
            yield free
        finally:
            if free:
                self.data.reserved.discard(self.session_id)
