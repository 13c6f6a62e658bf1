"""Files of a session: uploaded once, known by their content, never changed."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import stat
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, File, Workflow, step
from pausepoint.engine import BlockingSession
from pausepoint.errors import DamagedFile, FileRefused, UnknownFile, UnknownSession
from pausepoint.stores.disk import PIECE
from pausepoint.stores.sqlite import SqliteStore
from tests.files.kit import (
    TEXT,
    Desk,
    Trickle,
    collect,
    collect_in_a_thread,
    desk,
    dripping,
    everything_in,
    folder_of,
    open_engine,
    standing,
)
from tests.support.children import run_child
from tests.support.loop import PATIENCE, on_loop
from tests.support.otherstores import ProxyStore


@pytest.mark.covers("S3.18", "S3.19", "S3.20")
@on_loop
async def test_an_uploaded_file_has_all_fields_and_lies_in_its_sessions_folder(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "calc notes.txt", course_ids=["calc2"], is_shared=False)
    assert file.entry() == {
        "filename": "calc notes.txt",
        "content_type": "text/plain",
        "size_bytes": len(TEXT),
        "storage_uri": f"hold.db.sessions/s1/files/{file.file_id}.txt",
        "sha256": sha256(TEXT).hexdigest(),
        "upload_status": "uploaded",
        "course_ids": ["calc2"],
        "is_shared": False,
    }
    assert (tmp_path / file.storage_uri).read_bytes() == TEXT
    assert everything_in(tmp_path) == [file.storage_uri]


@pytest.mark.covers("S3.1")
@on_loop
async def test_a_file_is_uploaded_once_and_used_by_later_calls_and_processes(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
    program = """
        async with Engine(args[0]) as engine:
            files = engine.session("s1").files
            [file] = await files.list()
            with await files.open(file.file_id) as stream:
                say(file.filename, len(stream.read()))
    """
    assert run_child(program, tmp_path / "hold.db") == f"notes.txt {len(TEXT)}"
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        assert await engine.session("s1").files.get(file.file_id) == file


@pytest.mark.covers("S3.75", "S3.76")
@on_loop
async def test_the_same_content_is_one_file_whatever_it_is_called_and_says_reused(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        first = await session.files.add(TEXT, "notes.txt", course="calc")
        lying = (tmp_path / first.storage_uri).stat()
        again = await session.files.add(io.BytesIO(TEXT), "other.md", course="physics")
        assert (first.reused, again.reused) == (False, True)
        assert again == first.model_copy(update={"reused": True})
        assert (tmp_path / first.storage_uri).stat() == lying
        changed = await session.files.add(TEXT + b".", "notes.txt")
        assert changed.file_id != first.file_id
        assert [file.file_id for file in await session.files.list()] == [first.file_id, changed.file_id]
        assert len(everything_in(tmp_path)) == 2
        added = [event async for event in session.events() if event.event_type == "file.added"]
        assert [event.data["file_id"] for event in added] == [first.file_id, changed.file_id]


@on_loop
async def test_two_uploads_of_one_content_at_a_time_are_one_file(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        files = await asyncio.gather(*[session.files.add(TEXT, f"{n}.{n % 3}t") for n in range(12)])
        assert len({file.file_id for file in files}) == 1
        assert [file.reused for file in files].count(False) == 1
        [kept] = await session.files.list()
        assert everything_in(tmp_path) == [kept.storage_uri]


@on_loop
async def test_bytes_paths_streams_and_async_iterators_are_taken_in_alike(tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_bytes(TEXT)
    async with standing(tmp_path / "store") as session:
        sources: list[Any] = [TEXT, bytearray(TEXT), memoryview(TEXT), path, str(path), io.BytesIO(TEXT)]
        files = [await session.files.add(source, "given.txt") for source in sources]
        files.append(await session.files.add(dripping([TEXT[:100], b"", TEXT[100:]]), "given.txt"))
        with path.open("rb") as stream:
            files.append(await session.files.add(stream))
            assert not stream.closed
        assert {file.sha256 for file in files} == {sha256(TEXT).hexdigest()}
        assert (await session.files.add(path)).filename == "given.txt"
        empty = await session.files.add(b"", "nothing.bin")
        assert (empty.size_bytes, empty.content_type) == (0, "application/octet-stream")


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        (b"x", {}, "The stream has no name"),
        (io.BytesIO(b"x"), {}, "The stream has no name"),
        (b"x", {"filename": 7}, "filename must be a string"),
        (b"x", {"filename": "a", "by": "\udc00"}, "cannot be stored"),
        (b"x", {"filename": "a", "content_type": "pdf"}, "is not a content type"),
        (b"x", {"filename": "a", "content_type": "a/b\r\nX-Evil: 1"}, "is not a content type"),
        (b"x", {"filename": "a", "sha256": "0" * 64}, "'sha256' is a field of every file"),
        (12, {"filename": "a"}, "cannot be added from int. Pass a path, bytes or a binary stream"),
        ("/no/such/file", {}, "cannot be read"),
        ("nul\0name", {}, "cannot be read"),
        ("/dev/zero", {}, "is not a file"),
        ("/", {}, "is not a file"),
        (io.StringIO("text"), {"filename": "a"}, "Open it in binary mode"),
    ],
)
@on_loop
async def test_what_cannot_be_a_file_is_refused_and_leaves_nothing(
    tmp_path: Path, source: Any, options: dict[str, Any], why: str
) -> None:
    async with standing(tmp_path) as session:
        with pytest.raises(FileRefused, match=why):
            await session.files.add(source, **options)
        assert not await session.files.list()
        assert not everything_in(tmp_path)


@on_loop
async def test_to_add_open_or_find_one_file_reads_none_of_the_others(tmp_path: Path) -> None:
    found: list[int] = []

    class Watched(ProxyStore):
        async def files(self, *args: Any, **options: Any) -> Any:
            signals = await self._inner.files(*args, **options)
            found.append(len(signals))
            return signals

    async with Engine(Watched(SqliteStore(tmp_path / "hold.db")), workflows=[desk], signals=False) as engine:
        session = await engine.start(desk)
        files = [await session.files.add(b"%d" % number, f"{number}.txt") for number in range(50)]
        found.clear()
        await session.files.add(b"another", "another.txt")
        assert (await session.files.add(b"7", "again.txt")).reused
        assert (await session.files.get(files[8].file_id)).filename == "8.txt"
        (await session.files.open(files[9].file_id)).close()
        assert max(found) == 1


@pytest.mark.covers("S3.47")
@on_loop
async def test_an_uploaded_file_cannot_be_changed(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        for mode in ("wb", "r+b", "ab", "w", "xb"):
            with pytest.raises(FileRefused, match="files are never changed"):
                await session.files.open(file.file_id, mode)
        with await session.files.open(file.file_id) as stream:
            assert not stream.writable()
        assert stat.S_IMODE((tmp_path / file.storage_uri).stat().st_mode) == 0o400
        with pytest.raises(ValueError, match="frozen"):
            file.filename = "other.txt"
        assert (tmp_path / file.storage_uri).read_bytes() == TEXT


@pytest.mark.covers("S3.21")
@on_loop
async def test_an_upload_is_no_file_until_all_of_it_is_there(tmp_path: Path) -> None:
    seen: list[File] = []
    half, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> Any:
        yield bytes(9 * 2**20)
        half.set()
        await go_on.wait()
        yield b"end"

    async with standing(tmp_path) as session:
        upload = asyncio.create_task(session.files.add(slowly(), "film.mp4", on_progress=seen.append, course="art"))
        await half.wait()
        assert [file.upload_status for file in seen] == ["uploading"]
        assert (seen[0].filename, seen[0].size_bytes, seen[0].metadata) == ("film.mp4", 9 * 2**20, {"course": "art"})
        assert not await session.files.list()
        with pytest.raises(UnknownFile):
            await session.files.open(seen[0].file_id)
        go_on.set()
        file = await upload
        assert (file.upload_status, file.size_bytes) == ("uploaded", 9 * 2**20 + 3)
        assert await session.files.list() == [file]


@on_loop
async def test_a_file_that_nobody_has_is_named(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        for verb in (session.files.get, session.files.open, session.files.progress):
            with pytest.raises(UnknownFile, match=f"Did you mean '{file.file_id}'") as refusal:
                await verb(file.file_id[:-1])
            assert refusal.value.session_id == "s1"
        async with open_engine(tmp_path / "hold.db") as other:
            with pytest.raises(UnknownSession, match="nobody"):
                await other.session("nobody").files.add(TEXT, "notes.txt")
        assert not (folder_of(tmp_path, "nobody")).exists()


@on_loop
async def test_files_of_one_session_are_not_those_of_another(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        one, other = [await engine.start(desk, session_id=each) for each in ("s1", "S1")]
        file = await one.files.add(TEXT, "notes.txt")
        with pytest.raises(UnknownFile):
            await other.files.open(file.file_id)
        assert not (await other.files.add(TEXT, "notes.txt")).reused
        names = {Path(name).parts[1].lower() for name in everything_in(tmp_path)}
        assert len(names) == 2, "where capital letters do not count, they would share a folder"


@on_loop
async def test_a_store_without_a_place_for_files_says_so() -> None:
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(desk)
        with pytest.raises(FileRefused, match="no folder for files"):
            await session.files.add(TEXT, "notes.txt")
        assert not await session.files.list()


# damage


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.chmod(0o600), path.write_bytes(b"y" + TEXT[1:])), "does not match its hash"),
        (lambda path: (path.chmod(0o600), path.write_bytes(TEXT[1:])), "bytes instead of"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/hostname")), "cannot be read"),
        (lambda path: [act(path) for act in (os.unlink, os.mkfifo)], "cannot be read"),
    ],
    ids=["missing", "changed", "cut", "linked", "piped"],
)
@on_loop
async def test_damage_is_named_when_a_file_is_opened_and_mended_when_it_is_added_again(
    tmp_path: Path, harm: Any, what: str
) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        (await session.files.open(file.file_id)).close()  # a proof of yesterday does not count
        harm(tmp_path / file.storage_uri)
        with pytest.raises(DamagedFile, match=what) as damage:
            await session.files.open(file.file_id)
        assert (damage.value.session_id, damage.value.file_id) == ("s1", file.file_id)
        report = await session.verify()
        assert [(each.what, each.session_id) for each in report.problems] == [("file", "s1")]
        assert file.file_id in report.problems[0].text
        assert what in report.problems[0].text
        assert (await session.files.add(TEXT, "notes.txt")).reused
        assert (await session.verify()).ok
        with await session.files.open(file.file_id) as stream:
            assert stream.read() == TEXT


@on_loop
async def test_two_contents_whose_ids_begin_alike_are_two_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("pausepoint.runtime.files.file_id", lambda content, length=0: f"file_{content[:length]}")
    async with standing(tmp_path) as session:
        one = await session.files.add(b"one", "a.txt")
        other = await session.files.add(b"other", "b.txt")
        assert one.file_id == "file_"
        assert other.file_id == f"file_{sha256(b'other').hexdigest()}"
        assert (await session.files.add(b"other", "c.txt")).file_id == other.file_id
        assert (await session.verify()).ok


@on_loop
async def test_a_name_that_other_bytes_have_taken_is_not_overwritten(tmp_path: Path) -> None:
    """Somebody is about to record another content under the same short id."""
    async with standing(tmp_path) as session:
        hash_ = sha256(TEXT).hexdigest()
        folder = folder_of(tmp_path)
        await session.files.add(b"first", "a.txt")
        with (folder / f"file_{hash_[:12]}.txt").open("xb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH)
            stream.write(b"theirs")
            stream.flush()
            file = await session.files.add(TEXT, "notes.txt")
            assert file.file_id == f"file_{hash_}"
            assert (folder / f"file_{hash_[:12]}.txt").read_bytes() == b"theirs"


# not in the way of others


@on_loop
async def test_an_upload_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        here = threading.get_ident()
        gate, entered = threading.Event(), threading.Event()

        class Slow:
            def read(self, size: int, /) -> bytes:
                assert threading.get_ident() != here
                assert size <= PIECE
                entered.set()
                gate.wait(PATIENCE)
                return b""

        upload = asyncio.create_task(session.files.add(Slow(), "slow.bin"))
        await asyncio.to_thread(entered.wait, 10)
        assert (await session.info()).status.value == "waiting"  # everybody else goes on
        gate.set()
        assert (await upload).size_bytes == 0


@on_loop
async def test_an_upload_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        with pytest.raises(ConnectionResetError):
            await session.files.add(Trickle(10**6, fails_at=300_000), "cut.bin")

        async def breaks() -> Any:
            yield TEXT
            raise ConnectionResetError("the line went dead")

        with pytest.raises(ConnectionResetError):
            await session.files.add(breaks(), "cut.bin")
        assert not await session.files.list()
        assert not everything_in(tmp_path)


@on_loop
async def test_an_upload_that_is_cancelled_leaves_nothing_once_its_thread_is_back(tmp_path: Path) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow:
        def read(self, size: int, /) -> bytes:
            entered.set()
            gate.wait(PATIENCE)
            return b"late"

    async with standing(tmp_path) as session:
        upload = asyncio.create_task(session.files.add(Slow(), "slow.bin"))
        await asyncio.to_thread(entered.wait, 10)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert len(everything_in(tmp_path)) == 1, "the thread still has it"
        assert (await session.files.add(TEXT, "notes.txt")).size_bytes == len(TEXT), "and keeps nobody else waiting"
        gate.set()
        while len(everything_in(tmp_path)) > 1:
            await asyncio.sleep(0.001)
        assert len(await session.files.list()) == 1


@pytest.mark.covers("S3.93")
@on_loop
async def test_a_removal_deletes_the_files_before_the_record(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        engine = session._engine
        seen: list[list[str]] = []
        strip = engine.store.strip

        async def watched(key: int, limit: int) -> Any:
            seen.append(everything_in(tmp_path))
            return await strip(key, limit)

        engine.store.strip = watched  # type: ignore[method-assign]
        await session.remove(by="ann")
        assert seen
        assert not any(seen)
        with pytest.raises(UnknownSession):
            await session.files.list()


# in steps


@pytest.mark.parametrize("work", [collect, collect_in_a_thread], ids=["async", "thread"])
@on_loop
async def test_a_step_adds_a_file_once_and_later_steps_find_it(tmp_path: Path, work: Any) -> None:
    flow = Workflow("collects", state=Desk, steps=[work])
    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(flow)
        outcome = await session.outcome()
        assert outcome.failure is None
        [file] = outcome.state.registry.values()
        assert file == await session.files.get(file.file_id)
        [event] = [event async for event in session.events() if event.event_type == "file.added"]
        assert event.agent_name == work.__name__
        await session.rewind(work.__name__)
        outcome = await (await session.resume()).outcome()
        [again] = outcome.state.registry.values()
        assert again.reused, "the file stays when the step is done again"


def test_blocking_code_has_the_same_verbs(tmp_path: Path) -> None:
    with open_engine(tmp_path / "hold.db", desk) as engine:
        session: BlockingSession[Desk] = engine.start(desk)
        file = session.files.add(TEXT, "notes.txt", course="calc")
        assert engine.session(session.id).files.list() == session.files.list() == [file]
        with session.files.open(file.file_id) as stream:
            assert stream.read() == TEXT
            assert Path(stream.name).read_bytes() == TEXT
        assert session.files.progress(file.file_id).status == "pending"


@on_loop
async def test_a_step_that_takes_in_a_large_file_shows_how_far_it_is(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as stream:
        stream.truncate(40 * 2**20)
    go_on = asyncio.Event()

    @step(writes="found")
    async def upload(ctx: Context) -> list[str]:
        ctx.progress(1, 3)
        await go_on.wait()
        file = await ctx.files.add(large)
        assert ctx._visit.host.ledger.progress == (1, 3), "then what was shown before is shown again"
        return [file.file_id]

    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(Workflow("upload", state=Desk, steps=[upload]))
        seen: list[tuple[int, int]] = []
        async for event in session.events(follow=True):
            if event.event_type == "progress":
                seen.append((event.data["done"], event.data["total"]))
                go_on.set()
        assert seen[0] == (1, 3)
        assert {total for _, total in seen} == {3, 40 * 2**20}
        assert (await session.outcome()).failure is None


@on_loop
async def test_a_step_that_is_cancelled_in_an_upload_adds_nothing_and_does_it_again_on_resume(tmp_path: Path) -> None:
    entered, gate = threading.Event(), threading.Event()

    class Slow:
        def __init__(self) -> None:
            self.left = 2

        def read(self, size: int, /) -> bytes:
            entered.set()
            gate.wait(PATIENCE)
            self.left -= 1
            return b"late" * self.left

    @step(writes="found")
    async def upload(ctx: Context) -> list[str]:
        return [(await ctx.files.add(Slow(), "slow.bin")).file_id]

    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(Workflow("upload", state=Desk, steps=[upload]))
        await asyncio.to_thread(entered.wait, 10)
        await session.pause(mode="abort")
        assert (await session.outcome()).status.value == "paused"
        assert not await session.files.list()
        gate.set()
        outcome = await (await session.resume()).outcome()
        [file] = await session.files.list()
        assert outcome.state.found == [file.file_id]
        assert file.size_bytes == 4
