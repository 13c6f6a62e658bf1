"""Names, links and left-overs: nothing that somebody gives or plants leads out of a session's folder."""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pausepoint.engine import BlockingEngine
from pausepoint.errors import FileRefused, StoreUnavailable
from pausepoint.model.files import LONGEST_NAME, cleaned, ending_of
from tests.files.kit import TEXT, desk, everything_in, folder_of, open_engine, standing
from tests.support.loop import on_loop

STORED = re.compile(r"hold\.db\.sessions/s\d+/files/file_[0-9a-f]{12}(?:[0-9a-f]{52})?\.[a-z0-9]{1,10}")

BAD = [
    "..", "../../etc/passwd", "/etc/passwd", "....//....//x", "..\\..\\x", "C:\\x", "\\\\server\\share\\x", "~/x",
    "CON", "nul.txt", "COM1.log", "LPT9", "aux.tar.gz", "/dev/null", "file\0.txt", "\0", "", " ", ".", "...", "a\nb",
    "a/../b", "-rf", "x" * 255, "x" * 256, "x" * 70_000, "é" * 200 + ".pdf", "a." + "b" * 300, "x.p\u202edf",
    "invoice\u202efdp.exe",
    "\u200f\u200e", "\ufeffname", "a\u0000b/../c", "%2e%2e%2f", "$(rm -rf /)", "`id`", "|id", ".part", ".x.part",
    "file_000000000000.pdf", "\ud800.txt", "name.", "name. ", "con .txt", "a/b\\c/..", "\u2024\u2024/x", "．．／x",
]  # fmt: skip

PARTS = ["..", ".", "/", "\\", "~", "\0", "CON", "\u202e", "\u200f", "%2e", "a", ".pdf", "x" * 100, ":", " "]
names = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.text(max_size=300), st.sampled_from(BAD)
)


def is_harmless(name: str) -> bool:
    shown = all(unicodedata.category(each) not in ("Cc", "Cf", "Cs") for each in name)
    return shown and name not in ("", ".", "..") and "/" not in name and "\\" not in name


@pytest.mark.long
@given(names)
@settings(max_examples=300)
def test_a_cleaned_name_is_a_plain_label(name: str) -> None:
    label = cleaned(name)
    assert is_harmless(label)
    assert 1 <= len(label.encode()) <= LONGEST_NAME
    assert cleaned(label) == label
    assert re.fullmatch(r"[a-z0-9]{1,10}", ending_of(label))
    assert not re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", label)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("attacks")
    with open_engine(path / "hold.db", desk) as engine:
        for number in range(10):
            engine.start(desk, session_id=f"s{number}")
        yield path, engine, []


@pytest.mark.long
@given(names, st.binary(max_size=20))
@settings(max_examples=120)
@example("../../x", b"1")
@example("pausepoint.db", b"1")
def test_no_name_leads_out_of_the_folder(place: tuple[Path, BlockingEngine, list[str]], name: str, data: bytes) -> None:
    """Many tries; what is there afterwards is what was there before, and perhaps one file more."""
    path, engine, before = place
    file = engine.session(f"s{len(before) % 10}").files.add(data, name, "text/plain")
    now = everything_in(path)
    assert file.storage_uri in now
    assert set(now) - {file.storage_uri} <= set(before)
    assert STORED.fullmatch(file.storage_uri)
    assert (path / file.storage_uri).read_bytes() == data
    assert is_harmless(file.filename)
    before[:] = now


@pytest.mark.parametrize("id", ["../../hold.db", "/etc/passwd", "file_x/../../y", "..", "", "\0", "file_*"])
@on_loop
async def test_an_id_is_looked_up_and_never_a_path(tmp_path: Path, id: str) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        with pytest.raises(Exception, match="has no file") as refusal:
            await session.files.open(id)
        assert type(refusal.value).__name__ == "UnknownFile"


@pytest.mark.parametrize("level", ["session", "files"])
@on_loop
async def test_a_folder_that_was_replaced_by_a_link_is_not_entered(tmp_path: Path, level: str) -> None:
    outside = tmp_path / "outside"
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        folder = folder_of(tmp_path) if level == "files" else folder_of(tmp_path).parent
        folder.rename(outside)
        folder.symlink_to(outside)
        before = everything_in(outside)
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await session.files.add(b"more", "more.txt")
        with pytest.raises(Exception, match="cannot be read"):
            await session.files.open(file.file_id)
        assert everything_in(outside) == before


@on_loop
async def test_a_link_in_the_place_of_a_new_file_is_replaced_and_never_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    async with standing(tmp_path) as session:
        first = await session.files.add(TEXT, "a.txt")
        stored = tmp_path / first.storage_uri
        stored.unlink()
        stored.symlink_to(victim)
        assert (await session.files.add(TEXT, "a.txt")).reused
        assert not stored.is_symlink()
        assert stored.read_bytes() == TEXT
        # Links that nobody has recorded go, what they point to stays.
        (folder_of(tmp_path) / "file_0123456789ab.txt").symlink_to(victim)
        await session._engine.gc(apply=True)
        assert len(everything_in(folder_of(tmp_path))) == 1
        assert victim.read_bytes() == b"precious"


@on_loop
async def test_what_a_crash_left_behind_is_cleared_and_what_is_under_way_is_not(tmp_path: Path) -> None:
    half, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> Any:
        yield TEXT
        half.set()
        await go_on.wait()

    async with standing(tmp_path) as session:
        engine = session._engine
        upload = asyncio.create_task(session.files.add(slowly(), "slow.txt"))
        await half.wait()
        folder = folder_of(tmp_path)
        for name, size in ((".dead.part", 5000), ("file_0123456789ab.pdf", 300)):
            (folder / name).write_bytes(bytes(size))
        os.mkfifo(folder / "pipe")
        (folder / "sub").mkdir()
        report = await engine.gc()
        assert (report.strays, report.stray_bytes) == (3, 5300)
        assert len(list(folder.iterdir())) == 5, "it only said so"
        report = await engine.gc(apply=True)
        assert (report.strays, report.stray_bytes) == (3, 5300)
        assert len(list(folder.iterdir())) == 2, "the upload that is under way, and a folder of somebody's"
        go_on.set()
        file = await upload
        assert everything_in(folder) == [Path(file.storage_uri).name]
        assert (await engine.gc(apply=True)).strays == 0


@on_loop
async def test_an_upload_clears_what_was_left_in_its_process_before_and_once_what_others_left(tmp_path: Path) -> None:
    async def breaks() -> Any:
        yield TEXT
        raise OSError("the line went dead")

    async with standing(tmp_path) as session:
        folder = folder_of(tmp_path)
        folder.mkdir(parents=True)
        left = folder / ".dead.part"
        left.write_bytes(b"of another process")
        await session.files.add(b"one", "one.txt")
        assert not left.exists()
        left.write_bytes(b"of one that lives")
        await session.files.add(b"two", "two.txt")
        assert left.exists(), "to look through the folder for every upload would cost more and more"
        with pytest.raises(OSError, match="dead"):
            await session.files.add(breaks(), "three.txt")
        await session.files.add(b"four", "four.txt")
        assert not left.exists()


@on_loop
async def test_folders_of_sessions_that_the_store_does_not_have_are_named_and_left(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "a.txt")
        stranger = folder_of(tmp_path).parent.parent / "stranger" / "files"
        stranger.mkdir(parents=True)
        (stranger / "file_0123456789ab.pdf").write_bytes(b"somebody's")
        report = await session._engine.gc(apply=True)
        assert (report.unknown, report.strays) == (["stranger"], 0)
        assert len(everything_in(stranger)) == 1


@on_loop
async def test_a_disk_that_refuses_is_named_and_nothing_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    write, left = os.write, [3]

    def fails(descriptor: int, data: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data[:1000]))  # and short writes before that

    async with standing(tmp_path) as session:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fails)
            with pytest.raises(StoreUnavailable, match=r"No space left on device.*add the file again"):
                await session.files.add(TEXT, "notes.txt")
        assert not everything_in(tmp_path)
        left[0] = 10**9
        monkeypatch.setattr(os, "write", fails)
        assert (await session.files.add(TEXT, "notes.txt")).size_bytes == len(TEXT)
        assert (await session.verify()).ok


@on_loop
async def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    async with standing(tmp_path / "store") as session:
        with pytest.raises(FileRefused, match="cannot be read"):
            await session.files.add(loop)
