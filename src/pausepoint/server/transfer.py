"""The handlers that export a session as a bundle, and import one. A bundle is the file of `pausepoint export`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from tempfile import NamedTemporaryFile
from typing import IO, Any, NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord, FolderRefused, InputConflict
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Attachment, Call, Reply
from pausepoint.server.problems import Problem
from pausepoint.server.sessions import folder_below
from pausepoint.threads import in_thread


async def export(call: Call) -> Attachment:
    """Return a session and its children as a bundle, which `import` reads."""
    info = await call.access.info(call.session_id)
    bundle = await call.engine.session(info.session_id).export()
    data = await asyncio.to_thread(bundle.to_bytes)  # it reads the files

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    return Attachment(f"{info.session_id}.bundle", "application/octet-stream", len(data), chunks())


async def import_session(call: Call) -> Reply:
    """Import a session and its children from a bundle. Its status is that of the time when it was exported."""
    asked = call.query(bodies.Import)
    call.access.check_sees_all()  # a bundle may be of any owner
    folder = None if asked.folder is None else folder_below(asked.folder)
    async with _received(call) as bundle:
        try:
            info = await call.engine.import_session(bundle.path, session_id=asked.session_id, folder=folder)
        except (DamagedRecord, FolderRefused, InputConflict) as error:
            raise _refused(error, bundle.path) from error
    return _imported(call, documents.ImportedSession.of(info, sha256=bundle.sha256))


async def import_again(call: Call) -> Reply:
    """Answer with the session that was imported before. The bytes of its bundle have to come again."""
    async with _received(call) as bundle:
        named = call.query(bodies.Import).session_id
        session_id = await in_thread(_id_in, bundle.path) if named is None else named
    info = await call.access.info(session_id)
    return _imported(call, documents.ImportedSession.of(info, sha256=bundle.sha256))


def _imported(call: Call, document: documents.ImportedSession) -> Reply:
    place = f"{call.desk.base(call.scope)}/sessions/{document.session_id}"
    return Reply(document, 201, {"ETag": document.etag, "Location": place})


class _Bundle(NamedTuple):
    """A bundle that has come: the file in which it is meanwhile, and the digest of its bytes."""

    path: str
    sha256: str


@asynccontextmanager
async def _received(call: Call) -> AsyncIterator[_Bundle]:
    """Write the body of a request to a file that only this user can read, and delete the file after the block."""
    with NamedTemporaryFile(prefix="pausepoint-import-") as file:
        digest = await _written(call, file)
        yield _Bundle(file.name, digest)


async def _written(call: Call, file: IO[bytes]) -> str:
    digest, size, most = sha256(), 0, call.desk.limits.bundle
    async for chunk in call.chunks():
        size += len(chunk)
        if size > most:
            raise Problem(
                413, f"The bundle is larger than {most:,} bytes. Import it on the machine of the server, from a file.",
                limit=most,
            )  # fmt: skip
        digest.update(chunk)
        await in_thread(file.write, chunk)
    await in_thread(file.flush)
    return digest.hexdigest()


class _Facts(msgspec.Struct):
    """The second line of a bundle: the facts of its session."""

    session: dict[str, Any]


def _id_in(path: str) -> str:
    with open(path, "rb") as file:
        file.readline()
        return str(msgspec.json.decode(file.readline(), type=_Facts).session["session_id"])


def _refused(error: DamagedRecord | FolderRefused | InputConflict, path: str) -> Exception:
    """Return the problem of a bundle that cannot be imported. Nothing was imported."""
    if isinstance(error, InputConflict):
        return Problem(
            409, f"Session {error.session_id!r}, or one of its children, already exists in this store. Nothing was"
            " imported. Import it under another 'session_id'.", "input-conflict", session_id=error.session_id,
        )  # fmt: skip
    if isinstance(error, FolderRefused):
        return error if error.path else Problem(
            422, f"Session {error.session_id!r} publishes artifacts, and the folder of its sender is not used. Nothing"
            " was imported. Send 'folder', a folder for them on the machine of the server.", "folder-missing",
            field="folder", session_id=error.session_id,
        )  # fmt: skip
    text = str(error).replace(f"The file {path}", "The bundle").replace("Check the path.", "Send an exported session.")
    return Problem(422, text.replace("`", "'"), "damaged-bundle")
