"""Tests of the contents of files. A store that cannot hold files skips them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import sha256

import pytest
from msgspec.structs import replace

from pausepoint.errors import DamagedFile, FileRefused, InvalidSessionId
from pausepoint.model.files import FileFacts, file_id
from pausepoint.stores.base import Store
from pausepoint.stores.disk import PIECE
from pausepoint.stores.files import Chunks, Files, Stored
from pausepoint.testing.suite.base import Place, Suite, on_loop

TEXT = b"an octopus has three hearts\n" * 1000


class ContentTests(Suite):
    """Tests of `files_of` and `sessions_with_files`, and of the contents that they return."""

    @on_loop
    async def test_a_content_comes_back_as_it_was_put(self, place: Place) -> None:
        async def slowly(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        async with place.store() as store:
            contents = contents_of(store)
            large = [b"x" * (PIECE // 2), b"y" * (PIECE // 2), b"z"]
            for n, pieces in enumerate(([], [b"", b"x"], [TEXT], large)):
                for facts in [await put(contents, given) for given in (pieces, slowly(pieces))]:
                    assert (facts.size, facts.sha256) == digested(b"".join(pieces))
                    with await contents.open(facts) as file:
                        assert file.read() == b"".join(pieces)
                    assert b"".join(contents.pieces(facts)) == b"".join(pieces)
                    assert await contents.damage(facts) == ""
                    assert Stored(facts.stored_name, facts.size) in await contents.list()
                    assert contents.uri(facts.stored_name).endswith(facts.stored_name)
                assert len(await contents.list()) == n + 1, "the same content is stored once"

    @on_loop
    async def test_other_content_does_not_take_a_name(self, place: Place) -> None:
        async with place.store() as store:
            contents = contents_of(store)
            first = await put(contents, [TEXT])
            async with contents.put([b"other"]) as upload:
                assert await upload.keep([first.stored_name, "file_other.txt"]) == "file_other.txt"
            assert await contents.damage(first) == ""
            assert [each.name for each in await contents.list()] == sorted([first.stored_name, "file_other.txt"])

    @on_loop
    async def test_content_that_is_missing_or_was_changed_is_never_returned(self, place: Place) -> None:
        async with place.store() as store:
            contents = contents_of(store)
            facts = await put(contents, [TEXT])
            with await contents.open(facts) as file:
                assert file.read() == TEXT
            changes = {"does not match its hash": TEXT[::-1], "has 5 bytes instead of": b"short", "is missing": None}
            for words, wrong in changes.items():
                if wrong is None:
                    await contents.delete(facts)
                else:
                    async with contents.put([wrong]) as upload:
                        await upload.keep([facts.stored_name])
                assert (await contents.damage(facts)).startswith(words)
                with pytest.raises(DamagedFile):
                    await contents.open(facts)
                with pytest.raises(DamagedFile):
                    list(contents.pieces(facts))
            await put(contents, [TEXT])
            assert await contents.damage(facts) == ""

    @on_loop
    async def test_an_upload_that_is_not_kept_leaves_nothing(self, place: Place) -> None:
        def breaks() -> Iterator[bytes]:
            yield TEXT
            raise ZeroDivisionError

        async with place.store() as store:
            contents = contents_of(store)
            async with contents.put([TEXT]):
                pass
            with pytest.raises(ZeroDivisionError):
                await put(contents, breaks())
            for name in ("../x", "a/b", "..", "", ".hidden"):
                with pytest.raises(FileRefused):
                    await put(contents, [TEXT], name)
            assert await contents.list() == []

    @on_loop
    async def test_contents_are_deleted_for_one_session_alone(self, place: Place) -> None:
        async with place.store() as store:
            contents, others = contents_of(store), contents_of(store, "Other")
            facts, kept = await put(contents, [TEXT]), await put(others, [TEXT])
            assert await store.sessions_with_files() == ["Other", "s1"]
            await contents.delete(facts)
            await contents.delete(facts)
            assert await contents.list() == []
            await put(contents, [TEXT])
            await contents.delete_all()
            await contents.delete_all()
            assert await contents.list() == []
            assert await store.sessions_with_files() == ["Other"]
            assert await others.damage(kept) == ""

    @on_loop
    async def test_a_clean_up_keeps_what_is_recorded_or_being_added(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            contents = contents_of(store)
            recorded = await put(contents, [TEXT])

            async def names() -> list[str]:
                return [recorded.stored_name]

            async with contents.put([b"new"]) as upload:
                await upload.keep(["file_new.txt"])
                assert await contents_of(other).clear(names) == (0, 0)
                assert len(await contents.list()) == 2

    @on_loop
    async def test_a_session_can_share_the_contents_of_another(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            contents, fork = contents_of(store), contents_of(store, "s2")
            facts = await put(contents, [TEXT])
            lost = replace(facts, id="file_lost")

            async def names() -> list[str]:
                return []

            async with fork.share(contents, [facts, lost]):
                assert await contents_of(other, "s2").clear(names) == (0, 0)
            await contents.delete_all()
            assert await fork.damage(facts) == ""
            assert await fork.damage(lost) == "is missing"

    @on_loop
    async def test_the_contents_of_an_invalid_id_are_refused(self, place: Place) -> None:
        async with place.store() as store:
            contents_of(store)
            for id in ("../out", "/etc", "..", "a/b", ""):
                with pytest.raises(InvalidSessionId):
                    store.files_of(id)


def contents_of(store: Store, session_id: str = "s1") -> Files:
    """Return the contents of a session. Skip the test if the store has none."""
    found = store.files_of(session_id)
    if found is None:
        pytest.skip(f"{type(store).__name__} cannot hold files")
    return found


async def put(contents: Files, chunks: Chunks, name: str | None = None) -> FileFacts:
    """Store a content under the name that an engine would give it, and return its facts."""
    async with contents.put(chunks) as upload:
        id = file_id(upload.sha256)
        await upload.keep([f"{id}.txt" if name is None else name])
        return FileFacts(id, "notes.txt", "text/plain", upload.size, upload.sha256, "txt")


def digested(content: bytes) -> tuple[int, str]:
    """Return the size and the hash of a content."""
    return len(content), sha256(content).hexdigest()
