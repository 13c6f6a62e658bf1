"""Tests of files. A store keeps only the facts about a session's files; their bytes are stored elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint.errors import FileRefused, HoldLost, UnknownSession
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.testing.suite.base import Place, Suite, created, new_session, on_loop, started

NOTES = FileFacts("file_1", "notes.pdf", "application/pdf", 12, "ab" * 32, "pdf")


class FileTests(Suite):
    """Tests of `add_file` and `files`, and of files that a new session shares with another one."""

    @on_loop
    async def test_a_file_is_a_signal_and_not_mail(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store)
            signal, new = await store.add_file("s1", "ann", 5000, NOTES)
            assert new
            assert (signal.n, signal.kind, signal.by, signal.at) == (1, "file", "ann", 5000)
            assert file_facts(signal.payload) == NOTES
            assert await store.signals(row.key, 0) == await store.files(row.key) == [signal]
            assert not await store.mail(row.key)

    @on_loop
    async def test_adding_the_same_content_returns_the_existing_file(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store)
            first, _ = await store.add_file("s1", None, 5000, NOTES)
            again = replace(NOTES, id="file_2", filename="copy.txt", ending="txt")
            assert await store.add_file("s1", None, 6000, again) == (first, False)
            larger = replace(again, size=13)
            assert (await store.add_file("s1", None, 7000, larger))[1]
            assert [file_facts(each.payload) for each in await store.files(row.key)] == [NOTES, larger]

    @on_loop
    async def test_an_id_belongs_to_one_content(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store)
            await store.add_file("s1", None, 5000, NOTES)
            with pytest.raises(FileRefused, match="file_1"):
                await store.add_file("s1", None, 6000, replace(NOTES, sha256="cd" * 32))
            assert len(await store.signals(row.key, 0)) == 1

    @on_loop
    async def test_an_engine_that_lost_the_hold_cannot_add_a_file(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.claim("s1", steal=True)
            with pytest.raises(HoldLost):
                await store.add_file("s1", None, 5000, NOTES, fence=driver.fence)
            assert not await store.files(driver.key)
            assert (await store.add_file("s1", None, 5000, NOTES, fence=driver.fence + 1))[1]

    @on_loop
    async def test_an_unknown_session_has_no_files(self, place: Place) -> None:
        async with place.store() as store:
            with pytest.raises(UnknownSession, match="nobody"):
                await store.add_file("nobody", None, 1, NOTES)

    @on_loop
    async def test_files_are_found_among_other_signals_and_redacted_ones_are_left_out(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            files: list[Any] = []
            for number in range(3):
                await store.send("s1", None, number, b'{"value":1}')
                file = replace(NOTES, id=f"file_{number}", sha256=f"{number}" * 64)
                files.append((await store.add_file("s1", None, number, file))[0])
            assert await store.files(driver.key) == files
            await driver.commit(redact_signals=(4,), release=True)
            assert await store.files(driver.key) == [files[0], files[2]]
            assert await store.files(driver.key, id="file_1") == await store.files(driver.key, sha256="1" * 64) == []

    @on_loop
    async def test_one_file_is_found_by_its_id_or_by_its_content(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store)
            one, _ = await store.add_file("s1", None, 1, NOTES)
            two, _ = await store.add_file("s1", None, 2, replace(NOTES, id="file_2", sha256="cd" * 32))
            assert await store.files(row.key, id="file_1") == await store.files(row.key, sha256="ab" * 32) == [one]
            assert await store.files(row.key, sha256="cd" * 32) == [two]
            assert await store.files(row.key, id="file_3") == []

    @on_loop
    async def test_a_session_can_share_the_files_of_another(self, place: Place) -> None:
        async with place.store() as store:
            await created(store)
            signal, _ = await store.add_file("s1", "ann", 5000, NOTES)
            row = await store.create(new_session("s2", files=(signal,)))
            assert row is not None
            [shared] = await store.files(row.key)
            assert (shared.n, shared.by, shared.at, shared.payload) == (1, "ann", 5000, signal.payload)
            assert not (await store.add_file("s2", None, 6000, NOTES))[1]

    @on_loop
    async def test_the_weight_of_a_session_includes_its_files(self, place: Place) -> None:
        async with place.store() as store:
            await created(store)
            before = await store.weight("s1")
            await store.add_file("s1", None, 1, replace(NOTES, size=1_000_000))
            assert await store.weight("s1") - before >= 1_000_000
