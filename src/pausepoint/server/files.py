"""The handlers of a session's files and artifacts. Their content is sent as an attachment and never shown inline."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from typing import BinaryIO

from pausepoint.engine.documents import ArtifactsDocument
from pausepoint.errors import did_you_mean
from pausepoint.model.views import Stale
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Attachment, Call, Reply
from pausepoint.server.problems import Problem
from pausepoint.threads import in_thread

PIECE = 256 * 2**10
"""How many bytes are read at a time."""


async def index(call: Call) -> Reply:
    """List the files of a session."""
    info = await call.access.info(call.session_id)
    records = await call.engine.session(info.session_id).files.list()
    return Reply(documents.FilesDocument(info.session_id, [documents.FileDocument.of(file) for file in records]))


async def content(call: Call) -> Attachment:
    """Return the content of a file, or a part of it."""
    info = await call.access.info(call.session_id)
    files = call.engine.session(info.session_id).files
    found = await files.get(call.params["file_id"])
    wanted = call.header("range")
    first, last = range_of(wanted, found.size_bytes)
    part = {"Content-Range": f"bytes {first}-{last}/{found.size_bytes}"} if wanted else {}
    headers = {"Accept-Ranges": "bytes", "ETag": f'"{found.sha256}"', **part}
    is_head = call.scope["method"] == "HEAD"
    chunks = _read(BytesIO() if is_head else await files.open(found.file_id), first, last - first + 1)
    return Attachment(found.filename, found.content_type, last - first + 1, chunks, 206 if part else 200, headers)


async def _read(opened: BinaryIO, first: int, count: int) -> AsyncIterator[bytes]:
    with opened:
        await in_thread(opened.seek, first)
        while count and (piece := await in_thread(opened.read, min(PIECE, count))):
            count -= len(piece)
            yield piece


def range_of(text: str, size: int) -> tuple[int, int]:
    """Return the first and the last byte that a Range header asks for. Several ranges are refused.

    >>> range_of("", 10), range_of("bytes=2-4", 10), range_of("bytes=7-", 10), range_of("bytes=-3", 10)
    ((0, 9), (2, 4), (7, 9), (7, 9))
    """
    if not text:
        return 0, size - 1
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", text, re.ASCII)
    first, last = found.groups() if found is not None else ("", "")
    begin = int(first) if first else size - int(last) if last else -1
    end = int(last) if first and last else size - 1
    if found is None or not 0 <= begin <= end or begin >= size:
        raise Problem(
            416, f"The file has {size:,} bytes, and the range is not one part of them. Ask for another one.",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return begin, min(end, size - 1)


async def upload(call: Call) -> Reply:
    """Add a file. The body is its content, as it is."""
    query, info = call.query(bodies.Upload), await call.access.info(call.session_id)
    kind = query.content_type or call.header("content-type") or None
    record = await call.engine.session(info.session_id).files.add(call.chunks(), query.filename, kind, by=call.by)
    return Reply(documents.FileDocument.of(record), 200 if record.reused else 201)


# artifacts


async def artifacts(call: Call) -> Reply:
    """List the artifacts of a session and their states."""
    info = await call.access.info(call.session_id)
    return Reply(await _artifacts(call, info.session_id))


async def artifact(call: Call) -> Attachment:
    """Return the content of an artifact, as it is in the folder or as it was published."""
    asked, info, path = call.query(bodies.Version), await call.access.info(call.session_id), call.params["path"]
    known = {each.path for each in await call.engine.session(info.session_id).artifacts()}
    if path not in known:
        near = did_you_mean(path[:200], known)
        raise Problem(404, f"Session {info.session_id!r} has no artifact {path[:200]!r}{near}", "unknown-artifact")
    data = await call.engine.session(info.session_id).artifact(path, version=asked.version)

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    name = path.rpartition("/")[2]
    return Attachment(name, mimetypes.guess_type(name)[0] or "", len(data), chunks())


async def adopt(call: Call) -> Reply:
    """Adopt edited artifacts."""
    asked: bodies.Paths = call.body
    info = await call.access.info(call.session_id)
    stale = await call.engine.session(info.session_id).adopt(asked.paths, by=call.by, reason=asked.reason)
    return Reply(await _artifacts(call, info.session_id, stale=stale))


async def restore(call: Call) -> Reply:
    """Restore the recorded content of artifacts."""
    asked: bodies.Paths = call.body
    info = await call.access.info(call.session_id)
    changed = await call.engine.session(info.session_id).restore(asked.paths, by=call.by, reason=asked.reason)
    return Reply(await _artifacts(call, info.session_id, changed))


async def _artifacts(
    call: Call, session_id: str, changed: Sequence[str] = (), stale: Sequence[Stale] = ()
) -> ArtifactsDocument:
    return ArtifactsDocument(session_id, await call.engine.session(session_id).artifacts(), changed, stale)
