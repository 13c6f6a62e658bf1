"""What the other verbs do with files: fork, rewind, export and import, redact, remove, expire, verify."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, File, Session
from pausepoint.errors import (
    DamagedFile,
    DamagedRecord,
    FileRefused,
    InputConflict,
    StoreUnavailable,
    UnknownFile,
    VerbRefused,
)
from pausepoint.model.stores import Whole
from pausepoint.stores.sqlite import SqliteStore
from tests.files.kit import TEXT, Desk, desk, everything_in, folder_of, open_engine, standing
from tests.support.children import outside_sql
from tests.support.loop import on_loop

BINARY = bytes(range(256)) * 10_000  # more than one piece


async def read(session: Session[Any], file: File) -> bytes:
    with await session.files.open(file.file_id) as stream:
        return stream.read()


# forks and rewinds


@on_loop
async def test_a_fork_has_the_files_of_its_source_and_they_outlive_it(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt", by="ann", course="calc")
        fork = await session.fork(session_id="s2")
        [shared] = await fork.files.list()
        same = {"storage_uri": file.storage_uri.replace("/s1/", "/s2/")}
        assert shared == file.model_copy(update=same)
        assert os.path.samefile(tmp_path / file.storage_uri, tmp_path / shared.storage_uri)
        assert (await fork.files.add(TEXT, "again.txt")).reused
        later = await session.files.add(BINARY, "later.bin")
        with pytest.raises(UnknownFile):
            await fork.files.get(later.file_id)
        await session.cancel()
        await session.remove()
        assert await read(fork, shared) == TEXT
        assert (await session._engine.verify()).ok


@on_loop
async def test_where_files_cannot_be_linked_a_fork_has_copies(tmp_path: Path, monkeypatch: Any) -> None:
    def refuses(*args: Any, **options: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    async with standing(tmp_path) as session:
        file = await session.files.add(BINARY, "data.bin")
        monkeypatch.setattr(os, "link", refuses)
        fork = await session.fork(session_id="s2")
        [copy] = await fork.files.list()
        assert not os.path.samefile(tmp_path / file.storage_uri, tmp_path / copy.storage_uri)
        assert await read(fork, copy) == BINARY
        assert (tmp_path / copy.storage_uri).stat().st_mode & 0o777 == 0o400


@on_loop
async def test_a_fork_of_a_session_whose_file_is_missing_says_so_when_it_is_used(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        kept = await session.files.add(BINARY, "data.bin")
        (tmp_path / file.storage_uri).unlink()
        fork = await session.fork(session_id="s2")
        assert await read(fork, kept) == BINARY
        with pytest.raises(DamagedFile, match="is missing"):
            await fork.files.open(file.file_id)
        assert [each.what for each in (await fork.verify()).problems] == ["file"]


@on_loop
async def test_a_fork_under_a_name_that_is_taken_touches_no_files(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        other = await session._engine.start(desk, session_id="s2")
        mine = await other.files.add(BINARY, "data.bin")
        with pytest.raises(InputConflict):
            await session.fork(session_id="s2")
        assert await other.files.list() == [mine]
        await session._engine.gc(apply=True)
        assert everything_in(folder_of(tmp_path, "s2")) == [Path(mine.storage_uri).name]


@on_loop
async def test_a_disk_without_room_refuses_a_fork_and_an_import_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        bundle = tmp_path / "s1.jsonl"
        await session._engine.session("s1").export(bundle)
        async with open_engine(tmp_path / "other.db", desk) as other:
            with monkeypatch.context() as patch:
                patch.setattr(os, "mkdir", full)
                with pytest.raises(StoreUnavailable, match=r"'s2'.*No space left on device.*fork the session again"):
                    await session.fork(session_id="s2")
                with pytest.raises(StoreUnavailable, match=r"'s1'.*No space left.*import the session again"):
                    await other.import_session(bundle)
            await session.fork(session_id="s2")
            await other.import_session(bundle)


@on_loop
async def test_a_rewind_takes_no_file_away(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        await session.pause()
        await session.rewind("wait")
        assert await session.files.list() == [file]


# from store to store


async def exported(tmp_path: Path) -> tuple[Path, list[File]]:
    target = tmp_path / "s1.jsonl"
    async with standing(tmp_path / "here") as session:
        files = [
            await session.files.add(TEXT, "notes.txt", course="calc"),
            await session.files.add(BINARY, "data.bin"),
            await session.files.add(b"", "empty"),
        ]
        await session._engine.session("s1").export(target)
        assert target.read_bytes() == (await session._engine.session("s1").export()).to_bytes()
    return target, files


@on_loop
async def test_files_travel_with_their_session(tmp_path: Path) -> None:
    target, files = await exported(tmp_path)
    assert json.loads(target.read_text().splitlines()[0])["format"] == 3
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        for session_id in ("s1", "other"):
            info = await engine.import_session(target, session_id=session_id)
            session = engine.session(info.session_id)
            assert [each.file_id for each in await session.files.list()] == [each.file_id for each in files]
            assert [await read(session, each) for each in files] == [TEXT, BINARY, b""]
            assert (await session.files.add(BINARY, "again.bin")).reused
        assert (await engine.verify()).ok


@on_loop
async def test_empty_lines_that_an_editor_left_in_a_bundle_do_not_matter(tmp_path: Path) -> None:
    target, files = await exported(tmp_path)
    target.write_bytes(target.read_bytes().replace(b"\n", b"\n\n\n"))
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        session = engine.session((await engine.import_session(target)).session_id)
        assert [await read(session, each) for each in files] == [TEXT, BINARY, b""]


@on_loop
async def test_a_file_that_could_not_be_found_any_more_is_named_by_verify(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "a.txt")
        assert (await session._engine.verify()).ok
        outside_sql(tmp_path / "hold.db", "DELETE FROM files")
        report = await session._engine.verify()
        assert any("the list of files does not match signal 1" in str(each) for each in report.problems)


def _changed(path: Path, change: Any) -> None:
    """Write a file anew as somebody would who knows the format: the last line fits again."""
    from hashlib import sha256

    lines = change([json.loads(line) for line in path.read_text().splitlines()[:-1]])
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    end = {"end": {"lines": len(lines), "sha256": sha256(body).hexdigest()}}
    path.write_bytes(body + json.dumps(end).encode() + b"\n")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda lines: [line for line in lines if "file" not in line], "is missing"),
        (lambda lines: [line | {"base64": "eHg="} if "file" in line else line for line in lines], "does not match"),
        (lambda lines: [line for line in lines if line.get("base64") != lines[-1]["base64"]], "missing|does not match"),
    ],
    ids=["without", "changed", "cut"],
)
@on_loop
async def test_a_bundle_whose_files_are_not_right_is_refused_and_leaves_nothing(
    tmp_path: Path, change: Any, what: str
) -> None:
    target, _ = await exported(tmp_path)
    _changed(target, change)
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        with pytest.raises(DamagedRecord, match=what):
            await engine.import_session(target)
        assert not await engine.sessions()
        assert not everything_in(tmp_path / "hold.db.sessions")


@on_loop
async def test_an_import_that_is_refused_touches_nobodys_files(tmp_path: Path) -> None:
    target, _ = await exported(tmp_path)
    async with standing(tmp_path) as session:
        mine = await session.files.add(b"mine", "mine.txt")
        with pytest.raises(InputConflict):
            await session._engine.import_session(target)
        assert everything_in(folder_of(tmp_path)) == [Path(mine.storage_uri).name]
    async with Engine(":memory:", workflows=[desk], signals=False) as engine:
        with pytest.raises(FileRefused, match="no folder for files"):
            await engine.import_session(target)
        assert not await engine.sessions()


@pytest.mark.parametrize("stored", [True, False])
@on_loop
async def test_of_two_imports_at_once_the_second_is_refused_and_withdraws_nothing(tmp_path: Path, stored: bool) -> None:
    target, files = await exported(tmp_path)

    class Late(SqliteStore):
        async def import_(self, sessions: Sequence[Whole]) -> bool:
            with pytest.raises(InputConflict, match="is being imported into this store by another"):
                await second.import_session(target)
            return await super().import_(sessions) if stored else False

    path = tmp_path / "hold.db"
    async with open_engine(path, desk) as second, Engine(Late(path), workflows=[desk], signals=False) as first:
        with nullcontext() if stored else pytest.raises(InputConflict, match="already exists"):
            await first.import_session(target)
        if not stored:
            assert not everything_in(tmp_path / "hold.db.sessions")
            await second.import_session(target)
        session = second.session("s1")
        assert [await read(session, each) for each in files] == [TEXT, BINARY, b""]
        assert (await second.verify()).ok


@on_loop
async def test_an_import_that_finds_its_id_taken_at_the_last_moment_leaves_the_files_of_that_session(
    tmp_path: Path,
) -> None:
    target, _ = await exported(tmp_path)

    class Late(SqliteStore):
        async def import_(self, sessions: Sequence[Whole]) -> bool:
            await other.start(desk, session_id="s1", paused=True)
            mine.append(await other.session("s1").files.add(TEXT, "mine.txt"))
            return await super().import_(sessions)

    path, mine = tmp_path / "hold.db", list[File]()
    async with open_engine(path, desk) as other, Engine(Late(path), workflows=[desk], signals=False) as late:
        with pytest.raises(InputConflict, match="already exists"):
            await late.import_session(target)
        assert await read(other.session("s1"), mine[0]) == TEXT
        assert (await other.verify()).ok


@pytest.mark.parametrize("stored", [True, False])
@on_loop
async def test_an_import_that_is_cut_while_it_commits_keeps_its_files_or_leaves_nothing(
    tmp_path: Path, stored: bool
) -> None:
    target, files = await exported(tmp_path)

    class Cut(SqliteStore):
        async def import_(self, sessions: Sequence[Whole]) -> bool:
            work = asyncio.ensure_future(super().import_(sessions if stored else ()))
            asyncio.get_running_loop().call_soon(importing.cancel)  # once the commit is on its way
            return await work and stored

    async with Engine(Cut(tmp_path / "hold.db"), workflows=[desk], signals=False) as engine:
        importing = asyncio.ensure_future(engine.import_session(target))
        with pytest.raises(asyncio.CancelledError):
            await importing
        assert (await engine.verify()).ok
        if stored:
            session = engine.session("s1")
            assert [await read(session, each) for each in files] == [TEXT, BINARY, b""]
        else:
            assert not await engine.sessions()
            assert not everything_in(tmp_path / "hold.db.sessions")


@on_loop
async def test_damaged_files_are_not_exported_as_if_they_were_whole(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(BINARY, "data.bin")
        stored = tmp_path / file.storage_uri
        stored.chmod(0o600)
        stored.write_bytes(b"z" + BINARY[1:])
        with pytest.raises(DamagedFile, match="does not match its hash"):
            await session._engine.session("s1").export(tmp_path / "out.jsonl")
        stored.unlink()
        with pytest.raises(DamagedFile, match="cannot be read"):
            await session._engine.session("s1").export(tmp_path / "out.jsonl")
        assert not [name for name in os.listdir(tmp_path) if "out.jsonl" in name]


# redaction


@on_loop
async def test_a_redacted_file_is_gone_with_its_name_and_its_bytes(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        secret = await session.files.add(BINARY, "diagnosis-of-ann.bin", patient="ann")
        kept = await session.files.add(TEXT, "notes.txt")
        await session.pause()
        redaction = await session.redact(file=secret.file_id, by="bob", reason="asked for")
        assert redaction.signals == (1,)
        assert await session.files.list() == [kept]
        with pytest.raises(UnknownFile):
            await session.files.open(secret.file_id)
        assert everything_in(tmp_path) == [kept.storage_uri]
        report = await session.verify()
        assert report.ok
        assert report.files == 1
        events = [event async for event in session.events()]
        assert "diagnosis" not in "".join(event.summary + str(event.data) for event in events)
        assert [event.summary for event in events if event.event_type == "session.redacted"] == [
            "a file was redacted by bob (asked for)"
        ]
        again = await session.files.add(BINARY, "second.bin")
        assert (again.file_id, again.reused, again.filename) == (secret.file_id, False, "second.bin")
        assert await read(session, again) == BINARY


@on_loop
async def test_a_file_can_be_redacted_by_its_event_as_well(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        await session.pause()
        [event] = [event async for event in session.events() if event.event_type == "file.added"]
        await session.redact(event=event.cursor)
        assert not await session.files.list()
        assert not everything_in(tmp_path)


@on_loop
async def test_what_is_not_redacted_keeps_its_bytes(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        session = await engine.start(desk, session_id="s1")
        file = await session.files.add(TEXT, "notes.txt")
        with pytest.raises(ValueError, match="exactly one thing"):
            await session.redact(file=file.file_id, seq=1)
        with pytest.raises(UnknownFile):
            await session.redact(file="file_none")
        await session.pause()
        await session.outcome()
        await session.redact(field="found")
        assert await read(session, file) == TEXT
        assert (await session.verify()).ok


# the end


@pytest.mark.covers("S3.93")
@on_loop
async def test_an_expired_session_goes_with_its_files(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "hold.db", desk) as engine:
        session = await engine.start(desk, session_id="s1", keep_for=timedelta(0))
        await session.outcome()
        file = await session.files.add(BINARY, "data.bin")
        report = await engine.gc()
        assert report.expired == ["s1"]
        assert report.expired_bytes >= len(BINARY)
        assert (tmp_path / file.storage_uri).exists()
        await engine.gc(apply=True)
        assert not (tmp_path / "hold.db.sessions" / "s1").exists()
        assert [event.event_type async for event in engine.session("s1").events()] == ["session.removed"]


@on_loop
async def test_a_session_that_is_being_removed_takes_no_files(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        engine = session._engine
        await session.cancel()
        await engine.store.remove("s1", None, "", 0)
        with pytest.raises(Exception, match="is being removed"):
            await session.files.add(TEXT, "notes.txt")
        await engine.gc(apply=True)
        assert not everything_in(tmp_path)


@on_loop
async def test_a_session_that_is_removed_during_an_upload_keeps_no_bytes(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.cancel()

        async def slowly() -> Any:
            yield TEXT
            await session._engine.store.remove("s1", None, "", 0)

        with pytest.raises(Exception, match="is being removed"):
            await session.files.add(slowly(), "notes.txt")
        assert not everything_in(tmp_path)


@on_loop
async def test_a_session_that_is_over_still_shows_its_files(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        file = await session.files.add(TEXT, "notes.txt")
        await session.cancel()
        assert await read(session, file) == TEXT
        with pytest.raises(VerbRefused):
            await session.resume()
        assert Desk().registry == {}
