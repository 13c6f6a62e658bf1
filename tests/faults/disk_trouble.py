"""A disk that is full or broken from a chosen touch on, and what a program is told about it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.stores.sqlite import SqliteStore
from tests.faults import oracle, programs
from tests.faults.oracle import Undisturbed
from tests.faults.programs import NOW, Clock, Program
from tests.faults.vfs import Fail, FaultVFS
from tests.faults.witness import Note, Notes, Witness, read_notes

VFS = "trouble"


class Told(NamedTuple):
    """What a program was told. Texts are the names of errors; empty: no error."""

    phase: str  # where the first error came up: open, run, close; empty if nowhere
    error: str
    fired: int  # how often the disk refused
    reading: tuple[str, ...] = ()  # complaints about reads while the disk still refuses
    going_on: str = ""  # what the same engine said when it was to go on afterwards
    closing: str = ""


async def meet(program: Program, folder: Path, fail: Fail, undisturbed: Undisturbed, heal: bool) -> Told:
    """Run a program into trouble. Then read; with ``heal``, let the trouble pass and go on with the same engine."""
    program.arrange()
    notes = Notes(folder / "notes")
    notes.write(Note("begin", number=1))
    clock = Clock(1)
    vfs = FaultVFS(VFS, fail)
    store = Witness(SqliteStore(folder / "store.db", clock=clock, vfs=VFS), notes)
    engine = Engine(store, workflows=[program.workflow], clock=clock, signals=False)
    NOW.ran = lambda label: notes.write(Note("ran", label=label))
    NOW.engine = engine
    try:
        await engine.__aenter__()
    except Exception as error:
        return Told("open", kind(error), fail.fired)
    told = await _run(engine, program, folder, fail, undisturbed, heal)
    try:
        await engine.close()
    except Exception as error:
        told = told._replace(closing=kind(error))
        if not told.phase:
            told = told._replace(phase="close", error=told.closing)
    vfs.unregister()
    return told._replace(fired=fail.fired)


async def _run(
    engine: Engine, program: Program, folder: Path, fail: Fail, undisturbed: Undisturbed, heal: bool
) -> Told:
    try:
        await programs.complete(engine, program)
    except Exception as error:
        told = Told("run", kind(error), fail.fired)
    else:
        return Told("", "", fail.fired)
    try:
        stored = await oracle.read_stored(engine)
        complaints = oracle.compare(read_notes(folder / "notes"), stored, undisturbed)
    except Exception as error:
        complaints = [f"cannot read: {kind(error)}: {error}"]
    told = told._replace(reading=tuple(complaints))
    if not heal:
        return told
    fail.heal()
    try:
        await programs.complete(engine, program)
    except Exception as error:
        return told._replace(going_on=f"{kind(error)}: {error}")
    return told


def kind(error: Exception) -> str:
    """The error's name; of one that is not ours, with a mark that no test accepts."""
    name = type(error).__name__
    return name if isinstance(error, HoldfastError) else f"!{name}: {error}"
