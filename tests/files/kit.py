"""A workflow that waits, workflows that add files, engines on disk, and views of a folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, File, Session, Workflow, step
from pausepoint.clock import Clock, SystemClock
from pausepoint.model import Chunk, ChunkState
from pausepoint.stores.sqlite import SqliteStore

TEXT = b"".join(b"line %d\n" % number for number in range(1000))


class Desk(BaseModel):
    registry: dict[str, File] = {}
    chunks: dict[str, ChunkState] = {}
    found: list[str] = []


@step(writes="found")
async def wait(ctx: Context) -> list[str]:
    return [await ctx.receive(str)]


desk = Workflow("desk", state=Desk, steps=[wait])


@step(writes="registry")
async def collect(ctx: Context) -> dict[str, File]:
    file = await ctx.files.add(TEXT, "notes.txt", course_ids=["calc2"], is_shared=False)
    return {file.file_id: file}


@step(writes="registry")
def collect_in_a_thread(ctx: BlockingContext) -> dict[str, File]:
    file = ctx.files.add(TEXT, "notes.txt")
    with ctx.files.open(file.file_id) as stream:
        assert stream.read() == TEXT
    assert ctx.files.list() == [ctx.files.get(file.file_id)]
    return {file.file_id: file}


async def first_words(chunk: Chunk, ctx: Context) -> str:
    """Return the number of a chunk and the first bytes in it."""
    with await ctx.files.open(chunk.file_id) as stream:
        stream.seek(chunk.index * chunk.params["size"])
        return f"{chunk.index}:{stream.read(6).decode()}"


def open_engine(path: Path, *workflows: Workflow[Any], clock: Clock | None = None) -> Engine:
    """Make an engine whose database does not wait for the disk. The files do."""
    clock = clock or SystemClock()
    store = SqliteStore(path, synchronous="OFF", clock=clock)
    return Engine(store, workflows=workflows, clock=clock, signals=False)


@asynccontextmanager
async def standing(path: Path) -> AsyncIterator[Session[Desk]]:
    """Start a session that waits for a message."""
    async with open_engine(path / "hold.db", desk) as engine:
        session = await engine.start(desk, session_id="s1")
        await session.outcome()
        yield session


def folder_of(path: Path, session_id: str = "s1") -> Path:
    """Return the folder with the files of a session."""
    return path / "hold.db.sessions" / session_id / "files"


def everything_in(path: Path) -> list[str]:
    """List all files below a folder, without those of the database."""
    found = [os.path.join(base, name) for base, _, names in os.walk(path) for name in names]
    names = (os.path.relpath(each, path) for each in found)
    return sorted(name for name in names if "hold.db-" not in name and (os.sep in name or not name.endswith(".db")))


class Trickle:
    """A stream that returns small pieces and can fail in the middle."""

    def __init__(self, size: int, piece: int = 65_536, fails_at: int | None = None) -> None:
        self.left, self.piece, self.given, self.fails_at = size, piece, 0, fails_at

    def read(self, size: int, /) -> bytes:
        if self.fails_at is not None and self.given >= self.fails_at:
            raise ConnectionResetError("the line went dead")
        count = min(self.left, self.piece, size)
        self.left -= count
        self.given += count
        return b"x" * count


async def dripping(pieces: Iterator[bytes] | list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
