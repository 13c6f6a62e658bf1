"""Notes that outlive a process: its requests to the store, the replies, and what it ran.

A `Witness` is a store between the engine and the real store. Every note is in the file before anything else happens, so
after a kill the notes show exactly which writes were acknowledged and which were in flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.stores.base import Store
from pausepoint.stores.found import Found

Log = tuple[tuple[int, str], ...]  # sequence number and digest of records


class Note(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """One line of the notes. ``what`` determines which fields are set."""

    what: str  # begin · ask · ack · ran · fired
    verb: str = ""
    number: int = 0  # connects an ack to its ask
    records: Log = ()
    signal: int = 0  # the time of the signal, which identifies it
    fence: int = 0
    label: str = ""


_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(list[Note])


class Notes:
    """The notes file, open for appending. ``listen`` also receives every note."""

    def __init__(self, path: Path, listen: Callable[[Note], None] = lambda note: None) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._listen = listen

    def write(self, note: Note) -> None:
        os.write(self._descriptor, _encode(note) + b"\n")  # one write is atomic, and the kernel keeps it after a kill
        self._listen(note)


def read_notes(path: Path) -> list[Note]:
    """Return all notes of all processes, in order."""
    return _lines.decode(b"[" + b",".join(path.read_bytes().splitlines()) + b"]") if path.exists() else []


class Witness:
    """A store that notes every writing verb before the call and after the acknowledgement."""

    def __init__(self, inner: Store, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, new: NewSession) -> SessionRow | None:
        done = self._ask("create", records=_log(new.records), signal=new.pause.created_at if new.pause else 0)
        row = await self._inner.create(new)
        if row is not None:
            done()
        return row

    async def claim(self, *given: Any) -> SessionRow:
        done = self._ask("claim")
        row = await self._inner.claim(*given)
        done(fence=row.fence)
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        done = self._ask("commit", records=_log(commit.records))
        flags = await self._inner.commit(commit)
        if flags is not None:
            done()
        return flags

    async def pause(self, query: Filter, pause: Pause) -> Found:
        done = self._ask("pause", signal=pause.created_at)
        rows = await self._inner.pause(query, pause)
        done()
        return rows

    async def unpause(self, session_id: str, by: str | None, at: int, *given: Any) -> SessionRow:
        before = await self._inner.get(session_id)
        if before is None or not before.pause_requested:  # the call then writes nothing
            return await self._inner.unpause(session_id, by, at, *given)
        done = self._ask("unpause", signal=at)
        row = await self._inner.unpause(session_id, by, at, *given)
        done()
        return row

    def _ask(self, verb: str, **said: Any) -> Callable[..., None]:
        self._number += 1
        number = self._number
        self._notes.write(Note("ask", verb, number, **said))
        return lambda **more: self._notes.write(Note("ack", verb, number, **(said | more)))


def _log(records: tuple[Record, ...]) -> Log:
    return tuple((record.seq, record.digest.hex()) for record in records)
