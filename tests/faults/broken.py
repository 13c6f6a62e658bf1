"""Engines that are broken on purpose, for the trials with real processes.

They prove that the trials notice a fault. Each function breaks the process that calls it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pausepoint.log.replay import Body, EventBody, body_of, to_payload
from pausepoint.model.commits import Commit, Flags
from pausepoint.model.records import Record, seal
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.requests import Requests
from pausepoint.runtime.visit import Visit
from pausepoint.stores import liveness as hold
from pausepoint.stores.found import Found
from pausepoint.stores.sql import commits as shared
from pausepoint.stores.sql import signals
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sqlite import commits, writer
from pausepoint.stores.sqlite.sql import QUERIES
from tests.support.points import points

NOTHING_ASKED = Flags(False, "finish", False)


def apply(twin: str, store: type[Any]) -> type[Any]:
    """Break this process in the named way and return the store to use. Without a name, nothing is broken."""
    return TWINS[twin](store) if twin else store


def split_checkpoint(store: type[Any]) -> type[Any]:
    """Write the changes of a visit in one commit and the next position of the session in another."""

    class Split(store):  # type: ignore[misc]  # the class to break is only known here
        async def write(self, commit: Commit) -> Flags | None:
            self.lock = getattr(self, "lock", None) or asyncio.Lock()
            async with self.lock:
                record = commit.records[0]
                body = body_of(record)
                if record.kind != "checkpoint" or body.next is None:
                    return await self.again(commit, record, body)
                where = replace(commit, step=record.step, visit=record.visit + 1)
                await self.again(where, record, replace(body, next=record.step))
                points.hit(f"split {self.begun}")
                return await self.again(
                    commit, replace(record, kind="event"), EventBody("moved", moved=True, next=body.next)
                )

        async def again(self, commit: Commit, record: Record, body: Body) -> Flags | None:
            """Seal the records again, because the log is longer than the engine believes."""
            seq, digest = self._read.execute("SELECT seq, digest FROM sessions WHERE key = ?", (commit.key,)).fetchone()
            sealed = seal(digest, seq + 1, seq, record.kind, record.step, record.visit, record.at, to_payload(body))
            flags: Flags | None = await super().write(replace(commit, base_seq=seq, records=(sealed,)))
            return flags

    return Split


def acknowledge_early(store: type[Any]) -> type[Any]:
    """Acknowledge a commit when only the previous one is on disk."""

    class Early(store):  # type: ignore[misc]  # the class to break is only known here
        kept: Commit | None = None

        async def write(self, commit: Commit) -> Flags | None:
            previous, self.kept = self.kept, commit
            return NOTHING_ASKED if previous is None else await super().write(previous)

    return Early


def forget_operations(store: type[Any]) -> type[Any]:
    """Remember only checkpoints, not operations."""

    async def remember(self: Drive, body: Any, blobs: Any, **facts: Any) -> None:
        return None

    Drive.remember = remember  # type: ignore[method-assign]
    return store


def split_mail(store: type[Any]) -> type[Any]:
    """Remove a message from the inbox in one transaction and record it in another."""
    empty = "DELETE FROM inbox WHERE session = ?"

    class Split(store):  # type: ignore[misc]  # the class to break is only known here
        async def write(self, commit: Commit) -> Flags | None:
            if commit.consume:
                await self._do(lambda connection: connection.execute(empty, (commit.key,)).fetchall())
                points.hit("split mail")
            flags: Flags | None = await super().write(commit)
            return flags

    return Split


def split_rewind(store: type[Any]) -> type[Any]:
    """Write the rewind in one transaction and its target in another."""
    facts = "SELECT key_frame, step, visit, held_by_guard FROM sessions WHERE key = ?"

    class Split(store):  # type: ignore[misc]  # the class to break is only known here
        async def revise(self, commit: Commit) -> Found:
            below: Found
            if len(commit.records) == 1:
                below = await super().revise(commit)
                return below
            frame, step, visit, held_by_guard = self._read.execute(facts, (commit.key,)).fetchone()
            before = {"key_frame": frame, "step": step, "visit": visit, "held_by_guard": bool(held_by_guard)}
            await super().revise(replace(commit, records=commit.records[:1], **before))
            points.hit("split rewind")
            behind = {"base_seq": commit.base_seq + 1, "fence": commit.fence + 1, "records": commit.records[1:]}
            below = await super().revise(replace(commit, **behind))
            return below

    return Split


def run_again(store: type[Any]) -> type[Any]:
    """Ignore the remembered results of ordinary operations."""
    remembered = Visit.remembered
    Visit.remembered = lambda self, operation: (  # type: ignore[method-assign]
        None if operation.name == "did" else remembered(self, operation)
    )
    return store


def cut_operations(store: type[Any]) -> type[Any]:
    """Exit immediately on a shutdown, instead of after the operation in flight."""
    stop = Requests.stop

    def stop_now(self: Requests, *args: Any) -> None:
        stop(self, *args)
        self.interrupter.interrupt("abort")

    Requests.stop = stop_now  # type: ignore[method-assign, assignment]
    return store


def blind_to_pauses(store: type[Any]) -> type[Any]:
    """Never check for a pause."""

    class Blind(store):  # type: ignore[misc]  # the class to break is only known here
        async def write(self, commit: Commit) -> Flags | None:
            flags: Flags | None = await super().write(commit)
            return flags and NOTHING_ASKED

        async def flags(self, keys: Any) -> dict[int, tuple[int, Flags]]:
            return {}

    return Blind


def ignore_fence(store: type[Any]) -> type[Any]:
    """Commit without checking the fence."""
    fits, moving = shared.fits, commits._moving

    def fooled(engine: Engine, commit: Commit, place: Any) -> bool:
        return fits(engine, commit, (*place[:2], commit.fence, engine.number, *place[4:]))

    # The row's checksum covers the fence, so the fence is set to the value in the commit.
    for name in ("_MOVE", "_MOVE_AND_COUNT"):
        text = getattr(commits, name)
        assert text.endswith(" WHERE key = ?")
        setattr(commits, name, text.replace(" WHERE key = ?", ", fence = ? WHERE key = ?"))
    commits._moving = lambda commit, tail, head: (*moving(commit, tail, head)[:-1], commit.fence, commit.key)
    shared.fits = fooled
    return store


def ignore_hold(store: type[Any]) -> type[Any]:
    """Treat every other holder as dead."""
    hold.FileHold.alive = lambda self, number: False  # type: ignore[method-assign]
    return store


def lose_signals(store: type[Any]) -> type[Any]:
    """Record every fifth request only as a flag, without a signal."""
    keep = signals.append
    count = 0

    def signal(*args: Any) -> None:
        nonlocal count
        count += 1
        if count % 5:
            keep(*args)

    signals.append = signal  # type: ignore[assignment]
    return store


def impatient(store: type[Any]) -> type[Any]:
    """Do not wait for other writers, and write slowly so that writers collide."""
    writer.LOCK_PATIENCE = 0.0  # type: ignore[attr-defined]  # the name that the writer looks up
    append = signals.append

    def slow(*args: Any) -> None:
        time.sleep(0.005)
        append(*args)

    signals.append = slow  # type: ignore[assignment]
    return store


def deaf(store: type[Any]) -> type[Any]:
    """Install no signal handlers; see `jobs.drive`."""
    return store


def starts_while_everything_is_paused(store: type[Any]) -> type[Any]:
    """Exempt every new session from the pause of everything."""
    right = "ifnull((SELECT above.exempt"
    assert right in QUERIES["create"]
    QUERIES["create"] = QUERIES["create"].replace(right, f"ifnull((SELECT round FROM standing_pause), 0), {right}")
    return store


TWINS: dict[str, Callable[[type[Any]], type[Any]]] = {
    "checkpoint in two commits": split_checkpoint,
    "acknowledges early": acknowledge_early,
    "forgets operations": forget_operations,
    "takes messages in two commits": split_mail,
    "rewinds in two commits": split_rewind,
    "runs operations again": run_again,
    "cuts operations": cut_operations,
    "blind to pauses": blind_to_pauses,
    "deaf to signals": deaf,
    "ignores the fence": ignore_fence,
    "ignores the hold": ignore_hold,
    "loses signals": lose_signals,
    "does not wait": impatient,
    "starts while everything is paused": starts_while_everything_is_paused,
}
