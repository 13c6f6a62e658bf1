"""The contents of files in a bucket: fsspec's own in memory, and S3 if its client and a server for it are installed.

    pip install s3fs 'moto[server]'

They take 330 MB, so they are not among the development tools.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from pausepoint import Engine
from pausepoint.errors import DamagedFile, FileRefused, StoreError, StoreUnavailable
from pausepoint.model.files import FileFacts
from pausepoint.stores import bucket
from pausepoint.stores.base import Store
from pausepoint.stores.bucket import Bucket, BucketFiles
from pausepoint.stores.copies import Copies
from pausepoint.stores.files import Files
from pausepoint.stores.postgres import PostgresStore
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from pausepoint.testing.suite.contents import ContentTests, put
from tests.files.kit import TEXT, desk
from tests.support.loop import on_loop
from tests.support.postgres import schema_of


class InBucket(SqliteStore):
    """A store in a file with the contents of its files in a bucket, which only Postgres has in use."""

    bucket: Bucket

    def files_of(self, session_id: str) -> Files | None:
        return self.bucket.of(session_id)

    async def sessions_with_files(self) -> list[str]:
        return await self.bucket.sessions()


class InBucketTests(ContentTests):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid4().hex}/files"

    @pytest.fixture(autouse=True)
    def bucket(self, url: str) -> Iterator[None]:
        self.made = [Bucket(url, "store") for _ in range(2)]  # of two machines
        self.free = list(self.made)
        yield
        for each in self.made:
            each.close()

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        store = InBucket(folder / "store.db", clock=clock, synchronous="OFF", ballast=0)
        store.bucket = self.free.pop()
        return store


class TestInMemory(InBucketTests):
    pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on this machine."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto[server], an S3 server, is not installed")
    server = importlib.import_module("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server._server.server_port}"
    server.stop()


@pytest.fixture
def in_s3(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket."""
    given = {"endpoint_url": server, "key": "ann", "secret": "hush", "client_kwargs": {"region_name": "eu-central-1"}}
    monkeypatch.setitem(fsspec.config.conf, "s3", given)
    name = f"bucket-{uuid4().hex}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}/files"


class TestInS3(InBucketTests):
    @pytest.fixture
    def url(self, in_s3: str) -> str:
        return in_s3


@pytest.fixture
def contents() -> Iterator[BucketFiles]:
    found = Bucket(f"memory://{uuid4().hex}", "store")
    yield found.of("s1")
    found.close()


async def recorded() -> list[str]:
    return []


def written(content: bytes) -> Callable[[Path], None]:
    """Return what writes a copy."""

    def write(copy: Path) -> None:
        copy.write_bytes(content)

    return write


@on_loop
async def test_a_leftover_is_deleted_when_it_is_old(contents: BucketFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = await put(contents, [TEXT])
    assert await contents.clear(recorded) == (0, 0), "it may be an upload that is about to be recorded"
    monkeypatch.setattr(bucket, "LEFTOVER_AFTER", timedelta(0))
    assert await contents.clear(recorded, apply=False) == (1, len(TEXT))
    assert await contents.damage(facts) == ""
    assert await contents.clear(recorded) == (1, len(TEXT))
    assert await contents.list() == []


@on_loop
async def test_an_upload_does_not_use_the_name_of_an_old_leftover(
    contents: BucketFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, before = ["file_1.txt", "file_12.txt"], bucket.LEFTOVER_AFTER
    for after, name in ((before, names[0]), (before, names[0]), (timedelta(0), names[1])):
        monkeypatch.setattr(bucket, "LEFTOVER_AFTER", after)
        async with contents.put([TEXT]) as upload:
            assert await upload.keep(names) == name


@on_loop
async def test_a_file_that_is_opened_often_is_fetched_once(
    contents: BucketFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, fetched = await put(contents, [TEXT]), await put(contents, [b"other"]), list[str]()
    fetch = contents.bucket.fs.get_file

    def counted(path: str, to: str) -> None:
        fetched.append(path)
        fetch(path, to)

    monkeypatch.setattr(contents.bucket.fs, "get_file", counted)

    async def opened(facts: FileFacts) -> Path:
        with await contents.open(facts) as file:
            assert file.read() == (TEXT if facts is first else b"other")
            return Path(file.name)

    copies = {await opened(first) for _ in range(3)} | {await opened(second)}
    assert (len(fetched), len(copies)) == (2, 2)
    assert {each.suffix for each in copies} == {".txt"}
    monkeypatch.setattr("pausepoint.stores.copies.LARGEST", len(TEXT))
    await put(contents, [TEXT])  # again, so that it has another version
    with await contents.open(second) as used:
        await opened(first)
        assert len([each for each in copies if each.exists()]) == 1, "one was replaced, the other one is open"
    await put(contents, [TEXT])
    await opened(first)
    assert not Path(used.name).exists(), "it was used least recently"
    await opened(second)
    assert len(fetched) == 5
    await contents.delete(second)
    with pytest.raises(DamagedFile, match="is missing"):
        await contents.open(second)
    contents.bucket.close()
    assert not next(iter(copies)).parent.exists()


@on_loop
async def test_copies_of_a_killed_process_are_deleted_by_the_next_one(
    contents: BucketFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            Copies().open("a", "1", "txt", written(TEXT))
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    [left] = tmp_path.glob("*/*.txt")
    assert left.read_bytes() == TEXT
    (tmp_path / "pausepoint-copies-other").mkdir()
    (tmp_path / "pausepoint-copies-other" / "kept").touch()
    with await contents.open(await put(contents, [TEXT])) as file:
        assert not left.parent.exists()
        assert (tmp_path / "pausepoint-copies-other" / "kept").exists(), "it has no lock file"
        with Copies().open("a", "1", "txt", written(b"x")):
            assert Path(file.name).exists(), "its process lives"


@on_loop
async def test_a_missing_bucket_is_named(tmp_path: Path) -> None:
    found = Bucket(f"file://{tmp_path}/nothing", "store").of("s1")
    with pytest.raises(StoreUnavailable, match=r"nothing/store.sessions does not exist .*Create it"):
        await put(found, [TEXT])
    assert await found.list() == []


@on_loop
async def test_an_outage_is_not_damage(contents: BucketFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, outages = await put(contents, [TEXT]), list[str]()

    class Refused(Exception):
        """An error of a package that knows no OSError."""

    for name in ("put_file", "info", "open", "find", "rm_file", "exists", "ls"):

        def fails(*given: Any, name: str = name, **options: Any) -> None:
            outages.append(name)
            raise Refused("no route to host")

        monkeypatch.setattr(contents.bucket.fs, name, fails)
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: put(contents, [b"other"]), lambda: contents.open(facts), lambda: contents.damage(facts), contents.list,
        lambda: contents.delete(facts), contents.delete_all, contents.bucket.sessions, lambda: contents.clear(recorded),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(StoreUnavailable, match="Refused: no route to host"):
            await act()
    with pytest.raises(StoreUnavailable, match="no route"):
        list(contents.pieces(facts))
    assert len(outages) == len(acts) + 1


def test_a_bucket_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for url, why in (("s3://team/files", "s3fs"), ("nothing://x", "nothing")):
        with pytest.raises(StoreError, match=rf"{why}.*pip install 'pausepoint\[bucket\]'"):
            Bucket(url, "store")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "s3"])
@on_loop
async def test_a_fleet_keeps_the_files_of_its_sessions_in_a_bucket(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    place = f"memory://{uuid4().hex}/team" if kind == "memory" else request.getfixturevalue("in_s3")
    with schema_of() as url:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        store = PostgresStore(f"{url}&files={place}")
        async with Engine(store, workflows=[desk], signals=False) as engine, Engine(tmp_path / "a.db") as other:
            session = await engine.start(desk, session_id="s1", paused=True)
            file = await session.files.add(TEXT, "notes.txt")
            assert file.storage_uri.startswith(f"{kind}://")
            assert file.storage_uri.endswith(f".sessions/s1/files/{file.file_id}.txt")
            assert (await session.files.add(TEXT, "again.txt")).reused
            with await session.files.open(file.file_id) as stream:
                assert stream.read() == TEXT
                assert Path(stream.name).read_bytes() == TEXT
            with pytest.raises(FileRefused, match="in a bucket"):
                _ = session.files.outputs
            fork = await session.fork(session_id="s2", paused=True)
            await engine.session("s1").export(tmp_path / "s1.jsonl")
            await session.redact(file=file.file_id)
            assert await session.files.list() == []
            await session.remove()
            assert (await engine.verify()).ok
            await other.import_session(tmp_path / "s1.jsonl")
            await engine.import_session(tmp_path / "s1.jsonl", session_id="s3")
            for each, id in ((other, "s1"), (engine, "s2"), (engine, "s3")):
                with await each.session(id).files.open(file.file_id) as stream:
                    assert stream.read() == TEXT
            assert (await other.verify()).ok
            found = store.files_of("s2")
            assert found is not None
            async with found.put([b"damaged"]) as upload:
                await upload.keep([f"{file.file_id}.txt"])
            [problem] = (await engine.verify()).problems
            assert "has 7 bytes instead of" in problem.text
            with pytest.raises(DamagedFile):
                await fork.files.open(file.file_id)
            assert (await fork.files.add(TEXT, "notes.txt")).reused, "which repairs it"
            assert (await engine.verify()).ok
            monkeypatch.setattr(bucket, "LEFTOVER_AFTER", timedelta(0))
            async with found.put([b"never recorded"]) as upload:
                await upload.keep(["file_never.txt"])
            report = await engine.gc(apply=True)
            assert (report.strays, report.unknown) == (1, [])
            assert [each.name for each in await found.list()] == [f"{file.file_id}.txt"]
        assert [each for each in os.listdir(tmp_path) if each.startswith("pausepoint-files-")] == []
