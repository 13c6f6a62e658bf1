"""The content of an artifact: as it is in the folder, and as the log records it. Nothing outside the folder is read."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from pausepoint import Engine, Workflow, step
from pausepoint.artifacts import folder as folders
from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.definition.artifacts import LARGEST
from pausepoint.engine.contents import Version
from pausepoint.errors import DefinitionError, FolderRefused, VerbRefused
from pausepoint.stores.disk import PIECE
from tests.artifacts.pipeline import Desk, Memo, calls
from tests.support.loop import on_loop

RESEARCH = "1-research.json"


@step(writes="header")
def head(company: str) -> str:
    return company


plain = Workflow("plain", state=Memo, steps=[head])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A session that has completed, so that its folder has every file."""
    desk = Desk(tmp_path)
    assert asyncio.run(desk.run()).status.value == "completed"
    calls.taken()
    return desk


def edit(desk: Desk) -> tuple[bytes, bytes]:
    """Edit the research by hand. Return its content before and after."""
    file = desk.file(RESEARCH)
    before, after = file.read_bytes(), b'[{"claim": "Edited by hand.", "weight": 5}]\n'
    file.write_bytes(after)
    return before, after


@on_loop
async def test_present_and_recorded_content_differ_after_an_edit(desk: Desk) -> None:
    async with desk.engine() as engine:
        session = engine.session("s1")
        assert await session.artifact(RESEARCH) == await session.artifact(RESEARCH, version="recorded")
        before, after = edit(desk)
        assert await session.artifact(RESEARCH) == after
        assert await session.artifact(RESEARCH, version="recorded") == before
        assert (
            await engine.session("s1").artifact("2-sections/02-team.md")
            == desk.file("2-sections/02-team.md").read_bytes()
        )
    assert calls.taken() == [], "reading runs nothing"


@on_loop
async def test_an_accepted_edit_is_the_recorded_content(desk: Desk) -> None:
    _, after = edit(desk)
    async with desk.engine() as engine:
        await engine.session("s1").adopt([RESEARCH], by="ann")
        desk.file(RESEARCH).unlink()
        assert await engine.session("s1").artifact(RESEARCH, version="recorded") == after


@on_loop
async def test_without_the_code_an_unchanged_file_is_its_recorded_content(desk: Desk) -> None:
    async with Engine(desk.path / "hold.db", drives="none", create=False) as engine:
        whole = desk.file(RESEARCH).read_bytes()
        assert await engine.session("s1").artifact(RESEARCH, version="recorded") == whole
        before, after = edit(desk)
        assert await engine.session("s1").artifact(RESEARCH) == after
        with pytest.raises(DefinitionError, match=r"not registered with this engine. Pass it: Engine\(…, workflows="):
            await engine.session("s1").artifact(RESEARCH, version="recorded")
    assert before != after


@on_loop
async def test_a_missing_file_still_has_its_recorded_content(desk: Desk) -> None:
    whole = desk.file(RESEARCH).read_bytes()
    desk.file(RESEARCH).unlink()
    async with desk.engine() as engine:
        assert await engine.session("s1").artifact(RESEARCH, version="recorded") == whole
        with pytest.raises(FolderRefused, match=r"Artifact '1-research.json' is missing .* restore\(\)") as refused:
            await engine.session("s1").artifact(RESEARCH)
    assert (refused.value.session_id, refused.value.path) == ("s1", RESEARCH)


HOSTILE = [
    "../secret.txt", "2-sections/../../secret.txt", "/etc/passwd", "1-research.json\0", "", ".", "2-sections", "./x",
    "1-research.json/", "//1-research.json", ".pausepoint/session.json", ".PAUSEPOINT/session.json", "*",
    "2-sections/*", "\ud800.md", "x" * 100_000,
]  # fmt: skip


@on_loop
async def test_only_artifacts_of_the_session_are_read(desk: Desk, opened: list[str]) -> None:
    desk.folder.parent.joinpath("secret.txt").write_text("secret")
    async with desk.engine() as engine:
        versions: tuple[Version, ...] = ("present", "recorded")
        for path, version in itertools.product(HOSTILE, versions):
            with pytest.raises(FolderRefused, match=r"has no artifact") as refused:
                await engine.session("s1").artifact(path, version=version)
            assert len(str(refused.value)) < 1000
        assert opened == [], "not even tried"
        await engine.session("s1").artifact(RESEARCH)
        assert RESEARCH in opened, "an attempt is noticed"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were read from a folder of artifacts."""
    found: list[str] = []
    read = ArtifactFolder.read

    def watched(self: ArtifactFolder, path: str) -> bytes | None:
        found.append(path)
        return read(self, path)

    monkeypatch.setattr(ArtifactFolder, "read", watched)
    return found


@pytest.mark.parametrize("where", ["file", "folder"])
@on_loop
async def test_no_link_is_followed(desk: Desk, where: str) -> None:
    outside = desk.folder.parent / "outside"
    outside.mkdir()
    (outside / "02-team.md").write_text("secret")
    replaced = desk.file("2-sections/02-team.md") if where == "file" else desk.file("2-sections")
    os.rename(replaced, desk.folder.parent / "aside")
    replaced.symlink_to(outside / "02-team.md" if where == "file" else outside)
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match="Put a regular file or folder there"):
            await engine.session("s1").artifact("2-sections/02-team.md")
        # The recorded content does not need the file.
        assert b"secret" not in await engine.session("s1").artifact("2-sections/02-team.md", version="recorded")


@pytest.mark.parametrize("kind", ["folder", "fifo"])
@on_loop
async def test_what_is_not_a_regular_file_is_refused(desk: Desk, kind: str) -> None:
    desk.file(RESEARCH).unlink()
    if kind == "folder":
        desk.file(RESEARCH).mkdir()
    else:
        os.mkfifo(desk.file(RESEARCH))
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=r"is not a regular file\. Move it away and try again."):
            await engine.session("s1").artifact(RESEARCH)


@on_loop
async def test_a_huge_file_is_refused_before_it_is_read(desk: Desk) -> None:
    with desk.file(RESEARCH).open("r+b") as file:
        file.truncate(LARGEST + 1)  # sparse
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=f"has {LARGEST + 1} bytes, but the limit"):
            await engine.session("s1").artifact(RESEARCH)


@on_loop
async def test_a_file_that_grows_while_it_is_read_does_not_fill_the_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, pieces = os.read, list[int]()

    def endless(descriptor: int, size: int) -> bytes:
        if os.fstat(descriptor).st_size != desk.file(RESEARCH).stat().st_size:
            return read(descriptor, size)  # of another file
        pieces.append(size)
        return b"x" * size if len(pieces) < 100 else b""

    monkeypatch.setattr(folders, "LARGEST", 2**20)
    monkeypatch.setattr(os, "read", endless)
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match="grew while it was read"):
            await engine.session("s1").artifact(RESEARCH)
    assert sum(pieces) <= 2**20 + 2 * PIECE


@on_loop
async def test_a_folder_of_another_session_is_not_read(desk: Desk) -> None:
    note = desk.file(".pausepoint/session.json")
    note.write_text(note.read_text().replace('"s1"', '"s2"'))
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match="belongs to session 's2'"):
            await engine.session("s1").artifact(RESEARCH)


@on_loop
async def test_other_mistakes_are_named(desk: Desk) -> None:
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=r"Did you mean '1-research.json'"):
            await engine.session("s1").artifact("1-reserch.json")
        with pytest.raises(ValueError, match="version must be 'present' or 'recorded', not 'newest'"):
            await engine.session("s1").artifact(RESEARCH, version="newest")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="path must be a string, not PosixPath"):
            await engine.session("s1").artifact(Path(RESEARCH))  # type: ignore[arg-type]
        await (await engine.start(plain, session_id="plain", company="Fern")).outcome()
        with pytest.raises(VerbRefused, match="has no artifacts"):
            await engine.session("plain").artifact(RESEARCH)
