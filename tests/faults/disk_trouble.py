"""Run programs on a disk that is full or broken from a chosen touch on, and note the errors they get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pausepoint import Engine, Status
from pausepoint.errors import PausepointError, StoreReadOnly
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore, trouble
from pausepoint.stores.sqlite.ballast import SIZE, Ballast
from tests.faults import oracle, programs
from tests.faults.oracle import Undisturbed
from tests.faults.programs import NOW, SESSION, Clock, Program
from tests.faults.vfs import Act, Fail, FaultVFS
from tests.faults.witness import Note, Notes, Witness, read_notes
from tests.support.loop import PATIENCE

VFS = "trouble"
REFUSALS = 30


class Told(NamedTuple):
    """The errors that a program got, by name. An empty string means no error."""

    phase: str  # where the first error occurred: open, run or close; empty if nowhere
    error: str
    fired: int  # how often the disk refused a write
    seen: bool = False  # whether the engine ever reported trouble
    reading: tuple[str, ...] = ()  # wrong results of reads while the disk still refuses
    refused: tuple[str, ...] = ()  # wrong results of verbs that write while the disk still refuses
    going_on: str = ""  # the error when the same engine resumed afterwards
    closing: str = ""
    paid: bool = False  # whether space was taken from the ballast and not returned


async def meet(
    program: Program, folder: Path, fail: Fail, undisturbed: Undisturbed, heal: bool,
    twin: Callable[[Store], Store] = lambda store: store,
) -> Told:  # fmt: skip
    """Run a program until the disk fails, then read. With ``heal``, repair the disk and resume with the same engine."""
    program.arrange()
    trouble.FIRST_WAIT = 0.01
    notes = Notes(folder / "notes")
    notes.write(Note("begin", number=1))
    clock = Clock(1)
    vfs = FaultVFS(VFS, fail)
    store = Witness(twin(SqliteStore(folder / "store.db", clock=clock, vfs=VFS)), notes)
    engine = Engine(store, workflows=[program.workflow], clock=clock, signals=False)
    NOW.ran = lambda label: notes.write(Note("ran", label=label))
    NOW.engine = engine
    try:
        await engine.__aenter__()
    except Exception as error:
        return Told("open", kind(error), fail.fired)
    opening = engine.trouble is not None
    told = await _run(engine, program, vfs, folder, fail, undisturbed, heal)
    told = told._replace(seen=told.seen or opening)
    try:
        await engine.close()
    except Exception as error:
        told = told._replace(closing=kind(error))
        if not told.phase:
            told = told._replace(phase="close", error=told.closing)
    vfs.unregister()
    return told._replace(fired=fail.fired, paid=Ballast(str(folder / "store.db"), SIZE).short())


async def _run(
    engine: Engine, program: Program, vfs: FaultVFS, folder: Path, fail: Fail, undisturbed: Undisturbed, heal: bool
) -> Told:
    try:
        await programs.complete(engine, program)
    except Exception as error:
        told = Told("run", kind(error), fail.fired, engine.trouble is not None)
    else:
        return Told("", "", fail.fired)
    try:
        stored = await oracle.read_stored(engine)
        complaints = oracle.compare(read_notes(folder / "notes"), stored, undisturbed)
    except Exception as error:
        complaints = [f"cannot read: {kind(error)}: {error}"]
    told = told._replace(reading=tuple(complaints))
    if not fail.once:
        # A record whose sync failed is in the WAL. If nothing more can be written, the next process finds it there.
        Notes(folder / "notes").write(Note("begin", number=1))
        told = told._replace(refused=tuple(await _refusals(engine, program, vfs)))
    if not heal:
        return told
    fail.heal()
    try:
        await _recovery(engine)
        await programs.complete(engine, program)
    except Exception as error:
        return told._replace(going_on=f"{kind(error)}: {error}")
    return told


async def go_on(program: Program, folder: Path, notes: Notes, act: Act) -> None:
    """Run a program until it completes. Resume it whenever the disk refuses a write."""
    program.arrange()
    trouble.FIRST_WAIT = 0.01
    notes.write(Note("begin", number=1))
    clock = Clock(1)
    vfs = FaultVFS(VFS, act)
    store = Witness(SqliteStore(folder / "store.db", clock=clock, vfs=VFS), notes)
    with suppress(StoreReadOnly):  # the last sync may fail, too
        async with Engine(store, workflows=[program.workflow], clock=clock, signals=False) as engine:
            NOW.ran, NOW.engine = lambda label: None, engine
            await _complete_at_last(engine, program)
    vfs.unregister()


async def _complete_at_last(engine: Engine, program: Program) -> None:
    while True:
        try:
            if await engine.store.get(SESSION) is None:
                await programs.complete(engine, program)
            while (await (await engine.session(SESSION).resume(by="ann")).outcome()).status is not Status.COMPLETED:
                pass
        except StoreReadOnly:
            await _recovery(engine)
        else:
            return


async def _refusals(engine: Engine, program: Program, vfs: FaultVFS) -> list[str]:
    """Check that new sessions are refused with a helpful message, without trying the disk each time."""
    complaints, touches = [], vfs.count
    for _ in range(REFUSALS):
        try:
            await engine.start(program.workflow, topic="squid")
        except StoreReadOnly as error:
            needed = (error.path, "Nothing was written", "read-only since", "are kept", "becomes writable on its own")
            complaints += [f"does not say {words!r}: {error}" for words in needed if words not in str(error)]
        else:
            complaints.append("a session was started on a disk that refuses")
    if vfs.count - touches >= REFUSALS:
        complaints.append(f"{REFUSALS} verbs touched the disk {vfs.count - touches} times")
    return complaints


async def _recovery(engine: Engine) -> None:
    """Wait until the engine reports that the disk is healthy. No one calls the engine meanwhile."""
    end = time.monotonic() + PATIENCE
    while engine.trouble is not None:
        assert time.monotonic() < end, f"does not recover: {engine.trouble}"
        await asyncio.sleep(0.002)


def kind(error: Exception) -> str:
    """Return the name of an error. Errors that are not Pausepoint's get a mark that no test accepts."""
    name = type(error).__name__
    return name if isinstance(error, PausepointError) else f"!{name}: {error}"
