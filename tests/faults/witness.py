"""What a process asked of its store, what it was told, and what it ran: notes that outlive the process.

A `Witness` stands between engine and store. Every note is in the file before anything else happens,
so after a kill the notes say exactly what had been acknowledged and what was in flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pausepoint.model.records import Record
from pausepoint.model.sessions import Commit, Filter, Flags, NewSession, Pause, SessionRow
from pausepoint.stores.base import Found, Store

Log = tuple[tuple[int, str], ...]  # seq and digest of records


class Note(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """One line of the notes. Which fields are set depends on ``what``."""

    what: str  # begin · ask · ack · ran · fired
    verb: str = ""
    number: int = 0  # ties an ack to its ask
    records: Log = ()
    signal: int = 0  # when the signal was made, which names it
    fence: int = 0
    label: str = ""


_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(list[Note])


class Notes:
    """The file, open for appending. ``listen`` hears every note too."""

    def __init__(self, path: Path, listen: Callable[[Note], None] = lambda note: None) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._listen = listen

    def write(self, note: Note) -> None:
        os.write(self._descriptor, _encode(note) + b"\n")  # one write: whole or not at all, and the kernel has it
        self._listen(note)


def read_notes(path: Path) -> list[Note]:
    """All notes of all processes, in order."""
    return _lines.decode(b"[" + b",".join(path.read_bytes().splitlines()) + b"]") if path.exists() else []


class Witness:
    """A store that notes every writing verb before it is asked and after it was acknowledged."""

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

    async def claim(self, session_id: str, steal: bool = False, fence: int | None = None) -> SessionRow:
        done = self._ask("claim")
        row = await self._inner.claim(session_id, steal, fence)
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

    async def unpause(self, session_id: str, by: str | None, at: int, budget_usd: int | None = None) -> SessionRow:
        before = await self._inner.get(session_id)
        if before is None or not before.pause_requested:  # then it writes nothing
            return await self._inner.unpause(session_id, by, at, budget_usd)
        done = self._ask("unpause", signal=at)
        row = await self._inner.unpause(session_id, by, at, budget_usd)
        done()
        return row

    def _ask(self, verb: str, **said: Any) -> Callable[..., None]:
        self._number += 1
        number = self._number
        self._notes.write(Note("ask", verb, number, **said))
        return lambda **more: self._notes.write(Note("ack", verb, number, **(said | more)))


def _log(records: tuple[Record, ...]) -> Log:
    return tuple((record.seq, record.digest.hex()) for record in records)
