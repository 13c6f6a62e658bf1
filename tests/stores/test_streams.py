"""The ring of a live stream: laps, several readers, takeover by a higher fence, damage, and the files it makes."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pausepoint.model.streams import Gap, Restarted, StreamChunk, StreamItem
from pausepoint.stores import places, streams
from pausepoint.stores.places import FilePlace, Medium, MemoryMedium, MemoryPlace, Place, StreamFolder
from pausepoint.stores.streams import (
    CAPACITY,
    LARGEST,
    RESTART,
    TEXT,
    Entry,
    Header,
    Reader,
    Writer,
    mark,
    origin_of,
    read_header,
    unsettled,
)


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return MemoryPlace() if request.param == "memory" else folder(tmp_path).place(7)


def folder(tmp_path: Path, mode: int = 0o600) -> StreamFolder:
    store = tmp_path / "s.db"
    store.touch()
    store.chmod(mode)
    return StreamFolder(tmp_path / "s.db-streams", store)


def chunk(text: str, operation: str = "/say#1", attempt: int = 1) -> Entry:
    return Entry(TEXT, 0, 0, attempt, 1, "talk", operation, "text", text.encode())


def put(writer: Writer, entry: Entry) -> bool:
    return writer.write(origin_of(entry), entry.data)


def read(reader: Reader) -> list[StreamItem]:
    found = reader.read()
    while reader.more:
        found += reader.read()
    return found


def texts(items: list[StreamItem]) -> list[str | bytes]:
    return [item.data for item in items if isinstance(item, StreamChunk)]


def text_of(n: int) -> str:
    """Return the text of chunk ``n``, which a reader can check: it is of any length, and there is none like it."""
    return f"{n}:" + "x" * (n * 7919 % 3_000)


def check_law(items: list[StreamItem], last: int) -> int:
    """Check that every number up to ``last`` is a chunk with its own text or counted as lost. Return the lost."""
    n = lost = 0
    for item in items:
        if isinstance(item, Gap):
            n, lost = n + item.lost, lost + item.lost
            assert item.n == n
        else:
            assert isinstance(item, StreamChunk)
            n += 1
            assert (item.n, item.data) == (n, text_of(n))
    assert n == last
    return lost


def test_a_reader_gets_what_was_written_and_what_is_written_later(place: Place) -> None:
    writer = Writer(place, 1)
    early = Reader(place, 0)
    assert early.read() == []
    put(writer, chunk("a"))
    assert texts(early.read()) == ["a"]
    put(writer, chunk("b"))
    assert [texts(read(each)) for each in (early, Reader(place, 0), Reader(place, 1), Reader(place, None))] == [
        ["b"], ["a", "b"], ["b"], [],
    ]  # fmt: skip


def test_chunks_carry_their_origin(place: Place) -> None:
    data = "ö\ud800".encode("utf-8", "surrogatepass")
    put(Writer(place, 4), Entry(TEXT, 0, 0, 2, 3, "talk", "/say[1]", "html", data))
    assert read(Reader(place, 0)) == [StreamChunk(1, "ö\ud800", "html", "talk", 3, "/say[1]", 4, 2)]


def test_a_ring_holds_its_capacity_and_readers_count_what_they_missed(place: Place) -> None:
    writer, slow = Writer(place, 1), Reader(place, 0)
    for n in range(1, 601):
        put(writer, chunk(text_of(n)))
    items = read(slow)
    lost = check_law(items, 600)
    kept = sum(len(text_of(n)) for n in range(lost + 1, 601))
    assert CAPACITY * 0.5 < kept <= CAPACITY
    if isinstance(place, FilePlace):
        assert place.path.stat().st_size <= CAPACITY + 72


def test_one_read_is_short_however_small_the_chunks_are(place: Place) -> None:
    writer, reader = Writer(place, 1), Reader(place, 0)
    for _ in range(1_000):
        put(writer, chunk("x"))
    pieces = [len(reader.read())]
    while reader.more:
        pieces.append(len(reader.read()))
    assert (sum(pieces), max(pieces) <= 256) == (1_000, True)


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_writes_reads_and_takeovers_keeps_the_law(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    writer, fence, written = Writer(place, 1), 1, 0
    readers: list[tuple[Reader, list[StreamItem]]] = [(Reader(place, 0), []) for _ in range(2)]
    for _ in range(150):
        match chance.choices(["write", "flood", "read", "one", "take over", "reopen"], [20, 2, 6, 6, 1, 1])[0]:
            case "write" | "flood" as what:
                for _ in range(1 if what == "write" else chance.randrange(300)):
                    written += 1
                    assert put(writer, chunk(text_of(written)))
            case "read":
                reader, items = chance.choice(readers)
                items += read(reader)
            case "one":
                reader, items = chance.choice(readers)
                items += reader.read()
            case "take over":
                fence += 1
                writer = Writer(place, fence)
            case "reopen":
                reader, items = readers[0]
                reader.close()
                last = next((item.n for item in reversed(items)), 0)
                readers[0] = Reader(place, last), items
    for reader, items in readers:
        check_law([item for item in items + read(reader) if not isinstance(item, Restarted)], written)


def test_a_source_that_sends_in_a_higher_run_has_begun_again(place: Place) -> None:
    reader = Reader(place, 0)
    put(Writer(place, 1), chunk("old"))
    put(Writer(place, 2), chunk("other", "/say#2"))
    put(Writer(place, 3), chunk("new"))
    first, second, *rest = read(reader)
    assert texts([first, second]) == ["old", "other"]
    assert isinstance(rest[0], Restarted)
    assert rest[0].sources == ("talk#1/say#1",)
    assert texts(rest) == ["new"]


def test_a_further_attempt_begins_again_and_a_declared_restart_is_reported_once(place: Place) -> None:
    writer, reader = Writer(place, 1), Reader(place, 0)
    put(writer, chunk("old"))
    put(writer, Entry(RESTART, 0, 0, 0, 0, "", "", "", b"talk#1/say#1"))
    put(writer, chunk("new", attempt=2))
    put(writer, chunk("newer", attempt=3))
    kinds = [type(item).__name__ for item in read(reader)]
    assert kinds == ["StreamChunk", "Restarted", "StreamChunk", "Restarted", "StreamChunk"]


def test_a_reader_that_continues_after_a_number_learns_that_a_source_began_again(place: Place) -> None:
    put(Writer(place, 1), chunk("old"))
    put(Writer(place, 2), chunk("new"))
    found = read(Reader(place, 1))
    assert [type(item).__name__ for item in found] == ["Restarted", "StreamChunk"]


# takeover


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a writer check at every chunk that its ring is still its own."""
    monkeypatch.setattr(streams, "CHECK_EVERY", 0.0)


def test_a_writer_that_lost_the_session_reaches_nobody(place: Place) -> None:
    old, new, reader = Writer(place, 1), Writer(place, 2), Reader(place, 0)
    put(old, chunk("a"))
    put(new, chunk("b", "/say#2"))
    put(old, chunk("zombie"))  # it does not know yet
    put(new, chunk("c", "/say#2"))
    assert texts(read(reader)) == ["a", "b", "c"]
    assert texts(read(Reader(place, 0))) == ["a", "b", "c"]


@pytest.mark.usefixtures("impatient")
def test_a_writer_with_a_lower_fence_never_takes_the_ring_back(place: Place) -> None:
    old, new = Writer(place, 1), Writer(place, 2)
    assert put(old, chunk("a"))
    assert put(new, chunk("b"))
    assert not put(old, chunk("zombie"))
    assert old.overtaken
    assert not put(Writer(place, 1), chunk("late zombie"))
    assert put(new, chunk("c"))
    assert texts(read(Reader(place, 0))) == ["a", "b", "c"]


@pytest.mark.usefixtures("impatient")
def test_a_ring_that_a_zombie_put_in_place_is_replaced_by_the_higher_fence(place: Place) -> None:
    new, reader = Writer(place, 2), Reader(place, 0)
    put(new, chunk("a"))
    place.replace(Header(place.owner, 1, CAPACITY, fence=1).to_bytes())  # it checked before the other one wrote
    put(new, chunk("b"))
    assert texts(read(reader))[-1] == "b"
    assert not put(Writer(place, 1), chunk("zombie"))


@pytest.mark.usefixtures("impatient")
def test_a_deleted_ring_is_made_again_and_readers_continue(place: Place) -> None:
    writer, reader = Writer(place, 1), Reader(place, 0)
    put(writer, chunk("a"))
    assert texts(read(reader)) == ["a"]
    place.remove()
    assert read(reader) == []
    put(writer, chunk("b"))
    assert texts(read(reader)) == ["b"]
    place.remove()  # a missing ring is not an error
    place.remove()


def test_what_an_earlier_run_left_is_found_until_it_is_settled(place: Place) -> None:
    writer = Writer(place, 1)
    put(writer, chunk("a", "/say#1"))
    writer.settle()
    put(writer, chunk("b", "/say#2"))
    put(writer, chunk("c", "/say#3"))
    put(writer, Entry(RESTART, 0, 0, 0, 0, "", "", "", b"talk#1/say#3"))
    assert list(unsettled(place)) == ["talk#1/say#2"]
    assert unsettled(MemoryPlace()) == {}


# damage


def spoil(place: Place, at: int, data: bytes) -> None:
    if isinstance(place, MemoryPlace):
        assert place.medium is not None
        place.medium.write(data, at)
    else:
        assert isinstance(place, FilePlace)
        with open(place.path, "r+b") as file:
            os.pwrite(file.fileno(), data, at)


@pytest.mark.parametrize("offset", [78, 108, 133])
def test_a_damaged_record_is_a_gap_and_not_the_end(place: Place, offset: int) -> None:
    writer, reader = Writer(place, 1), Reader(place, 0)
    for n in range(1, 4):
        put(writer, chunk(text_of(n)))
    writer.settle()
    spoil(place, offset, b"\xff\xff")
    assert read(reader) == [Gap(3, 3)]
    put(writer, chunk("after"))
    assert texts(read(reader)) == ["after"]


@pytest.mark.parametrize("content", [b"", b"x" * 30, b"x" * 5_000, bytes(5_000)])
def test_a_ring_without_a_header_is_empty_and_the_next_writer_begins_a_new_one(place: Place, content: bytes) -> None:
    place.replace(content)
    reader = Reader(place, 0)
    assert read(reader) == []
    put(Writer(place, 1), chunk("a"))
    assert texts(read(reader)) == ["a"]


def test_a_full_ring_with_a_damaged_tail_can_still_be_written(place: Place) -> None:
    writer, reader = Writer(place, 1), Reader(place, None)
    for n in range(1, 300):
        put(writer, chunk(text_of(n)))
    found = place.find(None)
    assert found is not None
    header = read_header(found, place.owner)
    assert header is not None
    spoil(place, 72 + header.tail % CAPACITY, b"\xff" * 64)
    for n in range(300, 600):
        assert put(writer, chunk(text_of(n)))
    assert texts(read(reader))[-1] == text_of(599)


class Mortal(MemoryPlace):
    """A ring whose process is killed at one of its writes: in the middle of a record, or before a header.

    A header is too short to be written by halves.
    """

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def replace(self, content: bytes) -> Medium:
        medium = self.medium = MortalMedium(self, content)
        return medium


class MortalMedium(MemoryMedium):
    def __init__(self, place: Mortal, content: bytes) -> None:
        super().__init__(content)
        self.place = place

    def write(self, data: bytes, at: int) -> None:
        self.place.left -= 1
        if self.place.left > 0:
            super().write(data, at)
        else:
            super().write(data[: len(data) // 2] if at else b"", at)
            raise KeyboardInterrupt


class Careless(Writer):
    """Overwrites old records without telling readers first."""

    def _publish(self, medium: Medium, **changes: int) -> None:
        super()._publish(MemoryMedium(b"") if "tail" in changes else medium, **changes)


def survives(left: int, kind: type[Writer]) -> bool:
    """Return whether a new reader finds everything that the ring held when its process was killed."""
    place = Mortal(left)
    writer, written = kind(place, 1), 0
    with suppress(KeyboardInterrupt):
        while put(writer, chunk(f"{written + 1:0>2000}")):
            written += 1
    found = texts(read(Reader(place, max(written - 50, 0))))
    expected = [f"{n:0>2000}" for n in range(max(written - 50, 0) + 1, written + 2)]
    return found in (expected, expected[:-1])  # the last one may have been written when the kill came


KILLS = [*range(1, 5), *range(250, 290), *range(1_000, 1_040)]


@pytest.mark.long
def test_a_kill_at_any_write_leaves_a_ring_that_can_be_read() -> None:
    assert [left for left in KILLS if not survives(left, Writer)] == []


@pytest.mark.long
def test_a_writer_that_does_not_tell_what_it_overwrites_is_caught() -> None:
    assert [left for left in KILLS if not survives(left, Careless)]


# files


def test_a_ring_has_the_permissions_of_its_store(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        found = folder(tmp_path, 0o640).place(3)
        put(Writer(found, 1), chunk("a"))
    finally:
        os.umask(before)
    assert found.path == tmp_path / "s.db-streams" / "3.ring"
    assert found.path.stat().st_mode & 0o777 == 0o640
    assert found.path.parent.stat().st_mode & 0o777 == 0o750


def test_links_are_not_followed(tmp_path: Path) -> None:
    rings = folder(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "5.ring").write_text("theirs")
    rings.path.symlink_to(outside)
    assert not put(Writer(rings.place(5), 1), chunk("a"))
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        rings.place(5).remove()
    rings.tidy(keep=-1)
    assert rings.keys() == []
    assert (outside / "5.ring").read_text() == "theirs"
    rings.path.unlink()
    rings.path.mkdir()
    (rings.path / "5.ring").symlink_to(outside / "5.ring")
    assert put(Writer(rings.place(5), 1), chunk("a"))  # in the place of the link
    assert (outside / "5.ring").read_text() == "theirs"
    assert not (rings.path / "5.ring").is_symlink()


def test_old_rings_and_the_remains_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    rings = folder(tmp_path)
    for key in (1, 2):
        put(Writer(rings.place(key), 1), chunk("a"))
    (rings.path / "3.part").touch()
    (rings.path / "notes.txt").touch()
    old = time.time() - places.KEEP - 60
    for name in ("1.ring", "3.part", "notes.txt"):
        os.utime(rings.path / name, (old, old))
    assert rings.keys() == [1, 2, 3]
    rings.tidy()
    assert sorted(os.listdir(rings.path)) == ["2.ring", "notes.txt"]


def test_the_ring_of_another_session_is_not_read_and_is_replaced(tmp_path: Path) -> None:
    theirs, ours = folder(tmp_path).place(1, mark("theirs", 5)), folder(tmp_path).place(1, mark("ours", 6))
    put(Writer(theirs, 9), chunk("secret"))
    reader = Reader(ours, 0)
    assert (read(reader), unsettled(ours)) == ([], {})
    assert put(Writer(ours, 1), chunk("a"))
    assert read(reader) == read(Reader(ours, 0)) == [StreamChunk(1, "a", "text", "talk", 1, "/say#1", 1, 1)]
    assert b"secret" not in ours.path.read_bytes()


@pytest.mark.usefixtures("impatient")
def test_two_processes_that_replace_a_ring_at_once_leave_it_to_the_higher_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path).place(1)
    old, new = Writer(place, 1), Writer(place, 2)
    renamed: list[bool] = []
    rename = os.rename

    def late(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        monkeypatch.setattr(os, "rename", rename)
        renamed.append(put(new, chunk("b")))  # it deletes the first one's file, and makes its own
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", late)
    assert not put(old, chunk("zombie"))  # the file is gone that it wanted to rename
    assert renamed == [True]
    assert put(new, chunk("c"))
    assert not put(old, chunk("zombie"))
    assert texts(read(Reader(place, 0))) == ["b", "c"]
    assert os.listdir(place.path.parent) == ["1.ring"]


def test_the_largest_record_is_read_in_one_piece_wherever_it_is_in_the_ring(place: Place) -> None:
    writer, reader = Writer(place, 1), Reader(place, 0)
    name = "🐙" * 512  # longer names are cut
    for n in range(2 * CAPACITY // LARGEST):
        assert put(writer, Entry(TEXT, 0, 0, 1, 1, name, name, name, b"x" * LARGEST))
        assert reader.read() == [StreamChunk(n + 1, "x" * LARGEST, name, name, 1, name, 1, 1)]
