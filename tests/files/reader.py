"""A program that takes a file in and works on its chunks, and is killed where it is told to be.

    python -m tests.files.reader DATABASE SOURCE CALLS [POINT]

Every call of the work is a line in CALLS. POINT is where the process kills itself: ``work:3`` while it works on chunk
3, ``kept:3`` once that is stored, or a point of the upload.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, File, Workflow, step
from pausepoint.model import Chunk, ChunkState
from pausepoint.model.commits import Commit
from pausepoint.stores.disk import Upload
from pausepoint.stores.sqlite import SqliteStore

CHUNKS, SIZE = 6, 700


class Book(BaseModel):
    source: str
    registry: dict[str, File] = {}
    ingestion: dict[str, ChunkState] = {}
    topics: list[str] = []


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def read(chunk: Chunk, ctx: Context) -> str:
    with open(sys.argv[3], "a", encoding="utf-8") as calls:
        calls.write(f"{chunk}\n")
    if sys.argv[4:] == [f"work:{chunk.index}"]:
        die()
    with await ctx.files.open(chunk.file_id) as stream:
        stream.seek(chunk.index * SIZE)
        return stream.read(SIZE).decode().strip().splitlines()[0]


@step(writes="registry")
async def collect(source: str, ctx: Context) -> dict[str, File]:
    file = await ctx.files.add(Path(source), "book.txt")
    return {file.file_id: file}


@step(writes=["ingestion", "topics"])
async def ingest(registry: dict[str, File], ctx: Context) -> dict[str, Any]:
    [file] = registry
    found = await ctx.files.chunks(file, read, CHUNKS, concurrency=1, size=SIZE)
    return {"ingestion": {file: found.state}, "topics": list(found.done.values())}


book = Workflow("book", state=Book, steps=[collect, ingest])


class Mortal(SqliteStore):
    """Dies behind the commit of a chunk, or around that of a file."""

    async def commit(self, commit: Commit) -> Any:
        found = await super().commit(commit)
        point = ":".join(sys.argv[4:])
        if point.startswith("kept:") and f'"index":{point[5:]}'.encode() in commit.records[0].payload:
            die()
        return found

    async def add_file(self, *args: Any, **options: Any) -> Any:
        if sys.argv[4:] == ["published"]:
            die()
        found = await super().add_file(*args, **options)
        if sys.argv[4:] == ["recorded"]:
            die()
        return found


def arm(point: str) -> None:
    """Have the process die at a point of the upload."""
    name = {"pouring": "write", "finishing": "finish", "publishing": "publish"}.get(point)
    if name is not None:
        before = getattr(Upload, name)

        def deadly(self: Upload, *args: Any, **options: Any) -> Any:
            if point == "pouring":
                before(self, args[0][:1000])
            die()

        setattr(Upload, name, deadly)


async def main() -> None:
    arm(":".join(sys.argv[4:]))
    async with Engine(Mortal(sys.argv[1]), workflows=[book]) as engine:
        session = await engine.start(book, session_id="s1", source=sys.argv[2])
        outcome = await session.outcome()
        print(outcome.status.value, outcome.state.model_dump_json())


if __name__ == "__main__":
    asyncio.run(main())
