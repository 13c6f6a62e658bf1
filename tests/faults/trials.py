"""Trials in which a process dies or fails at a chosen touch, and the verdict on the files that remain.

These functions fork, so they run in a process without threads and without SQLite connections: the server in
`bench_server`.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pausepoint import Engine
from pausepoint.errors import StoreError
from pausepoint.stores.base import Store
from tests.faults import bit_flips, crash_states, disk_trouble, oracle, platter, programs, twins
from tests.faults.bit_flips import Flip
from tests.faults.disk_trouble import Told
from tests.faults.oracle import Undisturbed
from tests.faults.programs import PROGRAMS
from tests.faults.vfs import Fail, FaultVFS, Kill, Recorder, Touch, Trouble, Variant
from tests.faults.witness import Note, Notes, read_notes
from tests.support.folders import scratch

VFS = "faults"
REPETITIONS = 9
TWINS: dict[str, Callable[[Store], Store]] = {
    "": lambda store: store, "apart": twins.Apart, "early": twins.Early, "swallows": twins.Swallows,
}  # fmt: skip


class Point(NamedTuple):
    """The touch at which a process is killed, and optionally the touch at which the next one is."""

    touch: int
    variant: Variant
    second: int = 0  # the touch at which the resuming process dies, too


class Report(NamedTuple):
    """The result of a trial. ``fired`` lists the labels of the faults that happened, one per dead process."""

    point: Point
    fired: tuple[str, ...]
    statuses: tuple[int, ...]
    complaints: tuple[str, ...]


class Loss(NamedTuple):
    """A state after a power loss: how it came about, what distinguishes it from others, and the complaints."""

    name: str
    digest: bytes
    complaints: tuple[str, ...]


class Trace(NamedTuple):
    """A recorded run: all touches and notes, in order."""

    events: list[Any]
    undisturbed: Undisturbed

    @property
    def touches(self) -> list[Touch]:
        return [event for event in self.events if isinstance(event, Touch)]


def in_child(act: Callable[[], Any], answer: Path) -> int:
    """Fork, run, and write the result or the error to a file. Return the child's status, as `os.waitpid` gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        result: Any = act()
    except BaseException:
        result = traceback.format_exc()
        code = 1
    else:
        code = 0
    answer.write_bytes(pickle.dumps(result))
    os._exit(code)


def asked(act: Callable[[], Any], folder: Path) -> Any:
    """Return the result of a child process, or raise its error."""
    answer = folder / "answer"
    if in_child(act, answer):
        raise RuntimeError(f"a child failed: {pickle.loads(answer.read_bytes())}")
    return pickle.loads(answer.read_bytes())


class Judge:
    """A long-lived child that gives one verdict after the other. It may open databases; this process may not."""

    def __init__(self, verdict: Callable[[Path, int], list[str]]) -> None:
        self._here, there = Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._serve(there, verdict)
        there.close()

    def _serve(self, there: Connection[Any, Any], verdict: Callable[[Path, int], list[str]]) -> NoReturn:
        while (question := there.recv()) is not None:
            try:
                there.send(tuple(verdict(*question)))
            except BaseException:
                there.send((f"no verdict: {traceback.format_exc()}",))
        os._exit(0)

    def ask(self, folder: Path, incarnation: int) -> tuple[str, ...]:
        self._here.send((folder, incarnation))
        answer: tuple[str, ...] = self._here.recv()
        return answer

    def close(self) -> None:
        self._here.send(None)
        os.waitpid(self._pid, 0)


def warm_up() -> None:
    """Run every program once in memory, so that forked children do not start cold.

    This opens and closes SQLite connections, but none to a file, so a child inherits nothing.
    """
    for program in PROGRAMS.values():
        asyncio.run(_in_memory(program))


async def _in_memory(program: programs.Program) -> None:
    clock = programs.Clock(0)
    async with Engine(":memory:", workflows=[program.workflow], clock=clock, signals=False) as engine:
        programs.NOW.ran, programs.NOW.engine = lambda label: None, engine
        await programs.complete(engine, program)
        await oracle.read_stored(engine)


class Bench:
    """Runs trials of one program. Knows its uninterrupted run and keeps a prepared store to copy."""

    def __init__(self, name: str, synchronous: str = "FULL", twin: str = "") -> None:
        self.program = PROGRAMS[name]
        self.synchronous = synchronous
        self.twin = twin
        self._home = scratch()
        self.home = self._home.__enter__()
        if self.program.prepared:
            asked(lambda: asyncio.run(programs.prepare(self.home / "prepared.db")), self.home)
        else:
            (self.home / "prepared.db").touch()
        with scratch() as folder:
            self._furnish(folder)
            self.trace: Trace = asked(lambda: self._record(folder), folder)
        self.judge = Judge(self._verdict)

    def close(self) -> None:
        self.judge.close()
        self._home.__exit__(None, None, None)

    def _furnish(self, folder: Path) -> None:
        shutil.copyfile(self.home / "prepared.db", folder / "store.db")

    # an uninterrupted run

    def _record(self, folder: Path) -> Trace:
        recorder = Recorder()
        self._run(folder, recorder, Notes(folder / "notes", recorder.trace.append), 1)
        stored = asyncio.run(oracle.look_at(self.program, folder / "store.db"))
        assert stored.row is not None
        ran = Counter(note.label for note in read_notes(folder / "notes") if note.what == "ran")
        states = asyncio.run(oracle.states_along(self.program, folder / "store.db"))
        return Trace(recorder.trace, Undisturbed(tuple(states), dict(ran), stored.row.spent_usd))

    def _run(self, folder: Path, act: Any, notes: Notes, incarnation: int) -> None:
        vfs = FaultVFS(VFS, act)
        running = programs.run(
            self.program, folder / "store.db", notes, incarnation,
            vfs=VFS, synchronous=self.synchronous, twin=TWINS[self.twin],
        )  # fmt: skip
        asyncio.run(running)
        vfs.unregister()

    # kill points

    def touches(self) -> list[Touch]:
        """Return the touches of the uninterrupted run."""
        return self.trace.touches

    def points(self) -> list[Point]:
        """Return every moment of the uninterrupted run at which a process can die.

        The moment before a touch equals the moment after the previous one, unless the program did something or got a
        reply in between.
        """
        found: list[Point] = []
        before: Any = None
        for event in self.trace.events:
            if isinstance(event, Touch):
                again = isinstance(before, Touch)
                found += [Point(event.index, v) for v in event.variants if not (again and v == "before")]
            before = event
        return found

    def kill(self, point: Point) -> Report:
        """Kill a process at the point, and the resuming one if the point says so. Judge the files that remain."""
        with scratch() as folder:
            self._furnish(folder)
            statuses = [in_child(lambda: self._victim(folder, point.touch, point.variant, 1), folder / "answer")]
            if point.second:
                statuses.append(
                    in_child(lambda: self._victim(folder, point.second, point.variant, 2), folder / "answer")
                )
            fired = tuple(note.label for note in read_notes(folder / "notes") if note.what == "fired")
            return Report(point, fired, tuple(statuses), self._judge(folder, len(statuses) + 1))

    def kill_at(self, point: Point) -> Report:
        """Kill like `kill`, and again if a point was not reached: on a busy machine, threads share more writes."""
        report = self.kill(point)
        for _ in range(REPETITIONS):
            if report.complaints or killed(report):
                break
            report = self.kill(point)
        return report

    def _judge(self, folder: Path, incarnation: int) -> tuple[str, ...]:
        """Return the verdict of another process. A verdict that fails is a complaint."""
        return self.judge.ask(folder, incarnation)

    def _verdict(self, folder: Path, incarnation: int) -> list[str]:
        return asyncio.run(oracle.verdict(self.program, folder, self.trace.undisturbed, incarnation))

    def _victim(self, folder: Path, index: int, variant: Variant, incarnation: int) -> None:
        notes = Notes(folder / "notes")

        def announce(touch: Touch) -> None:
            notes.write(Note("fired", number=touch.index, label=f"{touch.index} {variant} {touch.kind}{touch.file}"))

        self._run(folder, Kill(index, variant, announce), notes, incarnation)

    # a failing disk

    def meet(self, index: int, trouble: Trouble, once: bool, heal: bool) -> tuple[Told, tuple[str, ...]]:
        """Run on a full or broken disk. Return the errors, and the verdict after the disk is repaired."""
        with scratch() as folder:
            self._furnish(folder)
            fail, twin = Fail(index, trouble, once), TWINS[self.twin]
            meeting = (self.program, folder, fail, self.trace.undisturbed, heal, twin)
            told: Told = asked(lambda: asyncio.run(disk_trouble.meet(*meeting)), folder)
            return told, self._judge(folder, 2)

    def lose_sync(self, index: int, again: bool = False) -> tuple[int, list[str]]:
        """Let a sync fail, continue, and lose power at the first or second acknowledgement afterwards.

        Returns how often the sync failed, and what was missing. With ``again``, the sync is repeated and its result
        trusted.
        """
        with scratch() as folder:
            self._furnish(folder)
            found: tuple[int, list[str]] = asked(lambda: self._lose_sync(folder, index, again), folder)
            return found

    def _lose_sync(self, folder: Path, index: int, again: bool) -> tuple[int, list[str]]:
        disk = platter.Platter((folder / "store.db").read_bytes(), index)
        losses: list[tuple[int, platter.Files]] = []

        def listen(note: Note) -> None:
            heard.append(note)
            if disk.fired and note.what == "ack" and len(losses) < 2:
                losses.append((len(heard), disk.left()))

        heard: list[Note] = []
        notes = Notes(folder / "notes", listen)
        act = platter.asking_again(disk) if again else disk
        asyncio.run(disk_trouble.go_on(self.program, folder, notes, act))
        return disk.fired, list(self._losses(folder, heard, losses))

    def _losses(
        self, folder: Path, notes: Sequence[Note], losses: Sequence[tuple[int, platter.Files]]
    ) -> Iterator[str]:
        for number, (length, files) in enumerate(losses):
            path = folder / f"loss{number}.db"
            platter.build(files, path)
            try:
                stored = asyncio.run(oracle.look_at(self.program, path))
            except StoreError as error:
                yield f"broken: {error}"
            else:
                yield from oracle.compare(notes[:length], stored, self.trace.undisturbed)

    # flipped bits

    def flip(self, seed: int, count: int, within: bytes = b"") -> list[Flip]:
        """Flip bits of the closed store of an uninterrupted run. ``within`` limits the flips to these bytes."""
        with scratch() as folder:
            self._furnish(folder)
            asked(lambda: self._run(folder, Recorder(), Notes(folder / "notes"), 1), folder)
            original = (folder / "store.db").read_bytes()
            flipping = (self.program, original, folder / "flipped.db", seed, count, within)
            found: list[Flip] = asked(lambda: asyncio.run(bit_flips.flip(*flipping)), folder)
            return found

    # power loss

    def lose_power(self, seed: int, count: int) -> list[Loss]:
        """Build up to ``count`` different states that a power loss can leave, and judge each."""
        with scratch() as folder:
            found: list[Loss] = asked(lambda: list(self._states_lost(folder, seed, count)), folder)
            return found

    def _states_lost(self, folder: Path, seed: int, count: int) -> Iterator[Loss]:
        base = (self.home / "prepared.db").read_bytes()
        for number, crash in enumerate(crash_states.sample(self.trace.events, base, random.Random(seed), count)):
            place = folder / str(number)
            place.mkdir()
            crash.build(place / "store.db")
            yield Loss(crash.name, crash.digest(), tuple(self._judge_loss(place, crash, go_on=number % 10 == 0)))
            shutil.rmtree(place)

    def _judge_loss(self, place: Path, crash: crash_states.CrashState, go_on: bool) -> list[str]:
        undisturbed = self.trace.undisturbed
        try:
            if not go_on:
                stored = asyncio.run(oracle.look_at(self.program, place / "store.db"))
                return oracle.compare(crash.notes, stored, undisturbed)
            notes = Notes(place / "notes")
            for note in crash.notes:
                notes.write(note)
            return asyncio.run(oracle.verdict(self.program, place, undisturbed, 2))
        except Exception as error:
            return [f"broken: {type(error).__name__}: {error}"]


def killed(report: Report) -> bool:
    """Return whether every process that should die was killed by signal 9 at its chosen touch."""
    expected = [report.point.touch, *([report.point.second] if report.point.second else [])]
    places = [int(label.split()[0]) for label in report.fired]
    return places == expected and all(os.WIFSIGNALED(s) and os.WTERMSIG(s) == signal.SIGKILL for s in report.statuses)


def bad(reports: Sequence[Report]) -> list[Report]:
    return [report for report in reports if report.complaints or not killed(report)]
