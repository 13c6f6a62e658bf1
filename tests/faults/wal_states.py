"""States of a write-ahead log after power losses, several in a row, and what rules about damage make of them.

A *life* opens a database, runs random transactions and ends with a power loss. The next life opens what was left. The
WAL index is never synced, so any of its versions since its creation may be on the disk.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import apsw

from pausepoint.errors import StoreDamaged
from pausepoint.stores.sqlite import recovery, wal
from pausepoint.stores.sqlite.wal import INDEX, SECTOR, Damage, Read, Wal, find_damage, index_of
from tests.faults.crash_states import STYLES, Disk, Style, _File, _sectors, applied
from tests.faults.vfs import FaultVFS, Perform, Recorder, Touch

PAGE = 4096
LIVES = 4

Files = dict[str, bytes]


@dataclass(frozen=True)
class State:
    """The files after a power loss, by the ending of their names, and how they came about."""

    files: Files
    style: str
    padded: bool

    def wrong_alarms(self) -> list[str]:
        """Return the wrong rules that take this state for damage."""
        log = wal_of(self.files["-wal"])
        bad = log.live()[1]
        return [name for name, alarms in WRONG_RULES.items() if alarms(log, bad)]


def reader(content: bytes) -> Read:
    """Read from a file's content as SQLite reads: zeros follow its end."""
    return lambda offset, amount: content[offset : offset + amount].ljust(amount, b"\0")


def wal_of(content: bytes) -> Wal:
    return Wal(reader(content), len(content), PAGE)


def verdict(files: Files, with_index: bool = True, padded: bool = False) -> Damage | None:
    """Return what the rules say about files that nobody has open."""
    index = index_of(files.get("-shm", b"")) if with_index else None
    return find_damage(wal_of(files["-wal"]), reader(files[""]), None, index, padded)


def write(files: Files, path: Path) -> None:
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    for ending, content in files.items():
        Path(f"{path}{ending}").write_bytes(content)


def opens(files: Files, path: Path) -> bool:
    """Return whether the store's own check lets these files pass."""
    write(files, path)
    log = recovery.suspect(str(path), None)
    try:
        if log is not None:
            recovery.refuse_damage(log)
    except StoreDamaged:
        return False
    return True


def remember_checksums() -> Callable[[], None]:
    """Compute each checksum once, because states of one life share most pages. Return a function that undoes it."""
    plain, known = wal.checksum, dict[tuple[int, bool, tuple[int, int]], tuple[int, int]]()

    def remembered(data: bytes, big_endian: bool, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        key = (hash(data), big_endian, start)
        if key not in known:
            if len(known) > 1_000_000:
                known.clear()
            known[key] = plain(data, big_endian, start)
        return known[key]

    wal.checksum = remembered
    return lambda: setattr(wal, "checksum", plain)


class IndexRecorder(Recorder):
    """Also notes the WAL index before every touch: the version that the previous touches have led to.

    If ``full_after`` is set, the disk refuses a write to the log after that many others, and keeps about half of it. A
    full disk has no more blocks, so it never cuts a write inside of a sector.
    """

    full_after = 0

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = Path(f"{path}-shm")
        self.versions: list[bytes] = []
        self._descriptor: int | None = None

    def __call__(self, touch: Touch, perform: Perform) -> None:
        self.versions.append(self.look())
        if self._refuses(touch):
            half = max((touch.offset + len(touch.data) // 2) // SECTOR * SECTOR - touch.offset, 0)
            perform(half)
            self.trace.append(Touch(touch.index, "write", "-wal", touch.offset, touch.data[:half]))
            raise apsw.FullError("the disk is full (by order of the test)")
        super().__call__(touch, perform)

    def _refuses(self, touch: Touch) -> bool:
        if not self.full_after or (touch.file, touch.kind) != ("-wal", "write") or not touch.offset:
            return False
        self.full_after -= 1
        return self.full_after == 0

    def look(self) -> bytes:
        if self._descriptor is None and self.path.exists():
            self._descriptor = os.open(self.path, os.O_RDONLY)  # closing it would drop SQLite's locks
        return b"" if self._descriptor is None else os.pread(self._descriptor, INDEX, 0)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclass
class Habits:
    """How the lives of one database differ from those of another."""

    autocheckpoint: int
    spill: bool  # a tiny cache writes frames to the log before their commit, and rollbacks leave them there
    pads: bool  # without POWERSAFE_OVERWRITE, SQLite repeats the last frame of a commit
    synchronous: str = "FULL"

    @classmethod
    def drawn(cls, rng: random.Random) -> Habits:
        return cls(rng.choice([200, 200, 20, 60, 1000]), rng.random() < 0.4, rng.random() < 0.15)


def open_database(path: Path, vfs: str, habits: Habits, limit: int) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.as_uri()}?psow={int(not habits.pads)}", flags=flags, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("page_size", PAGE)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", habits.synchronous)
    connection.pragma("secure_delete", "ON")
    connection.pragma("journal_size_limit", limit)
    connection.wal_autocheckpoint(habits.autocheckpoint)
    if habits.spill:
        connection.pragma("cache_size", 6)
    return connection


def live(connection: apsw.Connection, recorder: IndexRecorder, rng: random.Random, transactions: int) -> None:
    """Run random transactions: single rows, groups, rollbacks, refused writes, and checkpoints of all kinds."""
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, d BLOB)")
    for _ in range(transactions):
        recorder.full_after = rng.randint(1, 8) if rng.random() < 0.15 else 0
        try:
            _transact(connection, rng)
        except apsw.FullError:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        recorder.full_after = 0
        if rng.random() < 0.02:
            kind = rng.choice(["restart", "truncate", "passive"])
            connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchall()


def _transact(connection: apsw.Connection, rng: random.Random) -> None:
    connection.execute("BEGIN IMMEDIATE")
    size = rng.random()
    rows = 1 if size < 0.5 else rng.randint(2, 12) if size < 0.85 else rng.randint(20, 80)
    for _ in range(rows):
        if rng.random() < 0.7:
            data = rng.randbytes(rng.choice([100, 900, 3000]))
            connection.execute("INSERT INTO t (d) VALUES (?)", (data,))
        else:
            change = "UPDATE t SET d = ? WHERE id = (SELECT ? % (max(id) + 1) FROM t)"
            connection.execute(change, (rng.randbytes(900), rng.randrange(2**31)))
    connection.execute("ROLLBACK" if rng.random() < 0.08 else "COMMIT")


def recorded_life(path: Path, rng: random.Random, habits: Habits) -> tuple[list[Touch], list[bytes]]:
    """Run one life. Return its touches, and the version of the index after each."""
    recorder = IndexRecorder(path)
    name = f"wal-{path.parent.name}-{path.name}"
    vfs = FaultVFS(name, recorder)
    connection = open_database(path, name, habits, rng.choice([16 * 2**20, 100_000]))
    live(connection, recorder, rng, rng.choice([3, 15, 60]))
    versions = [*recorder.versions[1:], recorder.look()]
    connection.close(True)
    recorder.close()
    vfs.unregister()
    return recorder.trace, versions


def states(folder: Path, rng: random.Random, density: int, habits: Habits | None = None) -> Iterator[State]:
    """Yield different states of the lives of one database. ``density`` is the number of random moments per life."""
    base: Files = {"": b""}
    habits, seen = habits or Habits.drawn(rng), set[bytes]()
    for number in range(LIVES):
        path = folder / f"life{number}.db"
        write(base, path)
        trace, versions = recorded_life(path, rng, habits)
        for files, style in _losses(base, trace, versions, rng, density):
            base = files if rng.random() < 0.05 or number == 0 else base
            if "-wal" in files and (digest := sha256(files["-wal"]).digest()) not in seen:
                seen.add(digest)
                yield State(files, style, habits.pads)


def _losses(
    base: Files, trace: Sequence[Touch], versions: Sequence[bytes], rng: random.Random, density: int
) -> Iterator[tuple[Files, str]]:
    disk = Disk(base[""])
    disk.files.update({ending: _File(content) for ending, content in base.items() if ending != "-shm"})
    moments = _moments(trace, rng, density)
    for number, touch in enumerate(trace):
        disk.touch(touch)
        for style in moments.get(number, ()):
            files = _crash(disk, touch, style, rng)
            if files is not None:
                before = base.get("-shm", b"") if rng.random() < 0.1 else versions[rng.randint(0, number)]
                yield {**files, "-shm": rng.choice((versions[number], before))}, style


def _moments(trace: Sequence[Touch], rng: random.Random, density: int) -> dict[int, tuple[str, ...]]:
    """Choose when the power fails: anywhere, at headers of the log, and while a large commit is unsynced."""
    styles = (*STYLES, "bytes", "one missing")
    chosen: dict[int, tuple[str, ...]] = dict.fromkeys(rng.sample(range(len(trace)), min(density, len(trace))), styles)
    pending = 0
    large = []
    for number, touch in enumerate(trace):
        if touch.file != "-wal":
            continue
        if touch.kind == "write" and touch.offset == 0 and rng.random() < 0.5:
            chosen[number] = styles
        if touch.kind == "sync" and pending >= 4:
            large.append(number - 1)
        pending = 0 if touch.kind == "sync" else pending + 1
    for number in rng.sample(large, min(len(large), density // 2)):
        chosen[number] = (*styles, *("subset", "sectors", "sectors", "one missing") * 3)
    return chosen


def _crash(disk: Disk, touch: Touch, style: str, rng: random.Random) -> Files | None:
    if style == "one missing":
        return _without_one_sector(disk, rng)
    if style == "bytes":
        return _torn_header(disk, touch, rng)
    names: dict[str, Style] = {name: name for name in STYLES}
    return disk.crash(names[style], rng)


def _without_one_sector(disk: Disk, rng: random.Random) -> Files | None:
    log = disk.files.get("-wal")
    parts = [] if log is None else [part for each in log.pending for part in _sectors(each)]
    if log is None or log.content is None or not parts:
        return None
    gap = rng.randrange(len(parts))
    return {**disk.crash("all", rng), "-wal": applied(log.content, parts[:gap] + parts[gap + 1 :])}


def _torn_header(disk: Disk, touch: Touch, rng: random.Random) -> Files | None:
    """Return a state in which only the first bytes of the log's new header reached the disk."""
    if (touch.file, touch.kind, touch.offset) != ("-wal", "write", 0):
        return None
    log = disk.files["-wal"]
    part = Touch(0, "write", "-wal", 0, touch.data[: rng.randrange(1, len(touch.data))])
    return {**disk.crash("all", rng), "-wal": applied(log.content or b"", [*log.pending[:-1], part])}


# rules that are wrong on purpose


def any_frame_with_the_salt(log: Wal, bad: int) -> bool:
    """Take every frame with the log's salt behind the bad one for damage."""
    return any(log.frame(number).salt == log.salt for number in range(bad + 1, log.count + 1))


def two_marks_without_proof(log: Wal, bad: int) -> bool:
    """Count commit marks with the salt, and do not check any checksum."""
    frames = [log.frame(number) for number in range(bad + 1, log.count + 1)]
    return sum(frame.salt == log.salt and frame.commit > 0 for frame in frames) > 1


def two_commits_in_any_stretches(log: Wal, bad: int) -> bool:
    """Add up the proved commits of all stretches."""
    return sum(log.commits(start, end) for start, end in log.stretches(bad)) > 1


def mark_without_a_commit_behind_it(log: Wal, bad: int) -> bool:
    """Take a marked frame for a synced commit as soon as one frame continues it."""
    return log.header_fits and log.ends_commit(bad) and bad < log.count and log.proves(bad + 1, log.salt)


def every_refused_header(log: Wal, bad: int) -> bool:
    """Take every refused header for damage, whether the database has the pages or not."""
    return not log.header_fits and log.count > 0


WRONG_RULES: dict[str, Callable[[Wal, int], bool]] = {
    "any frame with the salt": any_frame_with_the_salt,
    "two marks without proof": two_marks_without_proof,
    "two commits in any stretches": two_commits_in_any_stretches,
    "mark without a commit behind it": mark_without_a_commit_behind_it,
    "every refused header": every_refused_header,
}


# flipped bits


@dataclass
class Flips:
    """What became of flipped bits in a log: how many lost commits, and how many of these were noticed."""

    flips: int = 0
    losing: int = 0
    noticed: int = 0  # without the index, as after a power loss
    noticed_with_index: int = 0
    alarms_without_loss: int = 0
    missed: list[int] = field(default_factory=list)  # bits whose loss was not noticed without the index


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_all(files: Files, bits: Sequence[int]) -> Flips:
    """Flip each bit of the log of a killed process, one at a time."""
    found, log = Flips(), wal_of(files["-wal"])
    last = log.live()[0]
    ends = [0, *(number for number in range(1, last + 1) if log.frame(number).commit)]
    database, index = reader(files[""]), index_of(files["-shm"])
    folded = _is_folded(log, last, database)
    for bit in bits:
        log = wal_of(flipped(files["-wal"], bit))
        before = max(end for end in ends if log.place(end + 1) <= bit // 8 or not end)  # SQLite reads up to there
        loses = log.live(before)[0] < last if log.header_fits else not folded
        without = find_damage(log, database, before) is not None
        with_index = without or find_damage(log, database, before, index) is not None
        found.flips += 1
        found.losing += loses
        found.noticed += loses and without
        found.noticed_with_index += loses and with_index
        found.alarms_without_loss += with_index and not loses
        if loses and not without:
            found.missed.append(bit)
    return found


def _is_folded(log: Wal, last: int, database: Read) -> bool:
    """Return whether the database has the last version of every page, so that the whole log may be lost."""
    pages = {log.frame(number).page: number for number in range(1, last + 1)}
    return all(database((page - 1) * PAGE, PAGE) == log.page(number) for page, number in pages.items())


def bits_of(content: bytes, rng: random.Random, count: int) -> list[int]:
    """Draw bits of a log: a third of the headers, a third of the pages in use, a third anywhere."""
    log = wal_of(content)
    last = log.live()[0]
    drawn = []
    for number in range(count):
        frame = log.place(rng.randint(1, last))
        where = (rng.choice((0, frame)), frame + 24 + rng.randrange(PAGE), rng.randrange(len(content)))[number % 3]
        byte = where + (rng.randrange(24) if number % 3 == 0 else 0)
        drawn.append(byte * 8 + rng.randrange(8))
    return drawn


def killed(path: Path, rng: random.Random, transactions: int) -> Files:
    """Return the files that a killed process leaves: everything that it wrote, and its index."""
    recorder = IndexRecorder(path)
    name = f"wal-{path.parent.name}-{path.name}"
    vfs = FaultVFS(name, recorder)
    connection = open_database(path, name, Habits(200, False, False), 16 * 2**20)
    live(connection, recorder, rng, transactions)
    # A process that dies between a restart of the log and the next commit leaves an index without frames.
    connection.execute("INSERT INTO t (d) VALUES ('last')")
    if rng.random() < 0.2:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    files = {ending: Path(f"{path}{ending}").read_bytes() for ending in ("-wal",)}
    size = path.stat().st_size
    files[""] = connection.read("main", 0, 0, size)[1]
    files["-shm"] = recorder.look()
    connection.close(True)
    recorder.close()
    vfs.unregister()
    return files
