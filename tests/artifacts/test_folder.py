"""The folder as others leave it: shared, moved, emptied, with names and files in it that no disk or memory can hold."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Workflow, step
from pausepoint.artifacts import detect
from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.definition.artifacts import LARGEST, OWN, clash
from pausepoint.errors import FolderRefused, UndecidedEdits
from tests.artifacts.pipeline import FILES, Desk, calls, in_folder, memo
from tests.support.loop import on_loop

# what is on disk, and when


class Watched:
    """The module `os` for who writes artifacts: what is written, synced and renamed, in order."""

    def __init__(self) -> None:
        self.acts: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("write", "fsync", "rename"):
            return found

        def act(target: Any, *args: Any, **kwargs: Any) -> Any:
            self.acts.append((name, os.fstat(target).st_ino if isinstance(target, int) else 0))
            return found(target, *args, **kwargs)

        return act


class Chapters(BaseModel):
    chapters: dict[str, str] = {}
    verdict: str = ""


@step(writes="chapters", publishes=Artifact("chapters/*.md"))
async def write_chapters() -> dict[str, str]:
    return {f"{number:02}": f"Chapter {number}. {'Text. ' * 20}" for number in range(60)}


@step(writes="verdict")
async def listen(ctx: Context) -> str:
    return await ctx.receive(str)


book = Workflow("book", state=Chapters, steps=[write_chapters, listen])


@on_loop
async def test_a_resume_that_changes_nothing_reads_each_artifact_once_and_threads_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, reads, start, read = list[str](), Counter[str](), threading.Thread.start, ArtifactFolder.read

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    def counted(folder: ArtifactFolder, path: str) -> bytes | None:
        reads[path] += 1
        return read(folder, path)

    monkeypatch.setattr(threading.Thread, "start", noted)
    monkeypatch.setattr(ArtifactFolder, "read", counted)
    async with Engine(tmp_path / "a.db", hold=0) as engine:
        await (await engine.start(book, session_id="b", folder=tmp_path / "out")).outcome()
        await engine.session("b").pause()
    assert len(list((tmp_path / "out" / "chapters").iterdir())) == 60
    assert len(started) < 30, started
    started.clear()
    reads.clear()
    async with Engine(tmp_path / "a.db", workflows=[book], hold=0) as engine:
        await engine.session("b").send("good")
        assert (await (await engine.session("b").resume()).outcome()).state.verdict == "good"
    chapters = {path: count for path, count in reads.items() if path.startswith("chapters/")}
    assert (len(chapters), set(chapters.values())) == (60, {1})
    assert len(started) < 30, started


def test_content_is_on_disk_before_it_has_a_name_and_so_is_its_name_before_anybody_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ArtifactFolder(tmp_path / "out")
    folder.make()
    (tmp_path / "out" / "notes").mkdir()
    watched = Watched()
    monkeypatch.setattr("pausepoint.stores.disk.os", watched)
    monkeypatch.setattr("pausepoint.artifacts.folder.os", watched)
    staged = tmp_path / "out" / OWN / "staged"
    digest = folder.stage("notes/a.md", b"text")
    (content,) = [path.stat().st_ino for path in staged.iterdir()]
    assert watched.acts == [("write", content), ("fsync", content), ("rename", 0), ("fsync", staged.stat().st_ino)]
    watched.acts.clear()
    folder.publish("notes/a.md", digest, ())
    folders = [(tmp_path / "out" / "notes").stat().st_ino, staged.stat().st_ino]
    made = ("fsync", (tmp_path / "out").stat().st_ino)  # somebody else has made the folder "notes"
    assert watched.acts == [made, ("rename", 0), *(("fsync", folder) for folder in folders)]
    watched.acts.clear()
    (tmp_path / "out" / "notes" / "a.md").write_bytes(b"an edit")
    folder.stage("notes/a.md", b"text")
    watched.acts.clear()
    folder.publish("notes/a.md", digest, ())
    binned = [(tmp_path / "out" / OWN / "bin").stat().st_ino, folders[0]]
    assert watched.acts[:3] == [("rename", 0), *(("fsync", folder) for folder in binned)], "first the edit is safe"


# whose it is


@on_loop
async def test_of_sessions_that_begin_in_one_folder_at_a_time_one_gets_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def run(engine: Engine, number: int) -> str:
        try:
            session = await engine.start(memo, company=f"C{number}", session_id=f"s{number}", folder=desk.folder)
            return (await session.outcome()).status.value
        except FolderRefused as error:
            return str(error)

    async with desk.engine() as engine:
        said = await asyncio.gather(*(run(engine, number) for number in range(4)))
        owner = said.index("completed")
        assert [
            text for text in said if f"belongs to session 's{owner}'" in text and "Choose another folder" in text
        ] == [text for text in said if text != "completed"]
        assert len({*said}) == 2
        state: Any = await engine.session(f"s{owner}").state()
        assert desk.file("4-final.md").read_text() == state.memo


@on_loop
async def test_a_session_that_asks_for_the_folder_of_another_is_not_stored(desk: Desk) -> None:
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=r"belongs to session 's1'. Choose another folder for this session"):
            await engine.start(memo, company="Moss", session_id="s2", folder=desk.folder)
        with pytest.raises(FolderRefused, match="belongs to session 's1'"):
            await engine.session("s1").fork(session_id="s3", folder=desk.folder)
        assert [each.session_id for each in await engine.sessions()] == ["s1"]


@on_loop
async def test_an_empty_folder_is_not_taken_for_one_whose_files_are_missing_and_can_be_written_anew(desk: Desk) -> None:
    """As of a disk that is not there at the moment. To run everything again would cost what it had cost."""
    content = {path: desk.file(path).read_bytes() for path in FILES}
    shutil.rmtree(desk.folder)
    desk.folder.mkdir()
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=r"missing or empty: .*/output. Put it back, .* restore\(\)"):
            await engine.session("s1").resume()
        assert sorted(await engine.session("s1").restore()) == sorted(FILES)
        await engine.session("s1").resume()
    assert calls.taken() == []
    assert {path: desk.file(path).read_bytes() for path in FILES} == content
    assert detect(desk.folder, memo).complete, "the completion records are there again too"


@on_loop
async def test_who_takes_a_session_up_does_not_begin_its_folder_anew(tmp_path: Path) -> None:
    """A session that goes on by itself, as with an answer, is not examined before."""

    @step(writes="first", publishes=Artifact("first.md"))
    async def write() -> str:
        return "text"

    @step(writes="second")
    async def ask(ctx: Context) -> str:
        return str(await ctx.ask("Is it fine?"))

    workflow, folder = Workflow("asking", state=Notes, steps=[write, ask]), tmp_path / "output"
    async with Engine(tmp_path / "hold.db", workflows=[workflow], signals=False) as engine:
        await (await engine.start(workflow, session_id="s1", folder=folder)).outcome()
        folder.rename(tmp_path / "elsewhere")
        [question] = await engine.questions()
        await engine.answer(question.id, "yes")
        with pytest.raises(FolderRefused, match="is missing or empty"):
            await engine.session("s1").outcome()
        assert not folder.exists()
        (tmp_path / "elsewhere").rename(folder)
        outcome = await (await engine.session("s1").resume()).outcome()
    assert outcome.state.second == "yes"


# what lies in it


@on_loop
async def test_a_file_that_is_too_large_for_an_artifact_is_not_read(desk: Desk) -> None:
    os.truncate(desk.file("header.md"), LARGEST + 1)
    states = {each.path: each for each in await desk.ask(lambda engine: engine.session("s1").artifacts())}
    assert states["header.md"].state == "invalid"
    assert f"has {LARGEST + 1} bytes" in states["header.md"].why
    await desk.resume(edits="discard")
    assert desk.file("header.md").read_text() == "# Fern, call 1\n"
    [aside] = (desk.folder / OWN / "bin").iterdir()
    assert aside.stat().st_size == LARGEST + 1


@on_loop
async def test_a_file_that_cannot_be_read_is_put_aside_and_said_to_be_that(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.file("header.md").write_text("# by hand\n")
    real = os.open

    def guarded(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == "header.md":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("pausepoint.artifacts.folder.os.open", guarded)
        with pytest.raises(
            UndecidedEdits, match=r"header.md cannot be used \(Permission denied\). Check the permissions"
        ):
            await desk.resume()
        await desk.resume(edits="discard")
    assert desk.file("header.md").read_text() == "# Fern, call 1\n"
    assert desk.bin() == [b"# by hand\n"]


@on_loop
async def test_our_own_folder_behind_a_link_is_refused_by_its_name(desk: Desk) -> None:
    own = desk.folder / OWN
    own.rename(desk.path / "elsewhere")
    own.symlink_to(desk.path / "elsewhere")
    for act in (desk.states, desk.plan, desk.resume):
        with pytest.raises(
            FolderRefused, match=r"\.pausepoint.* without following a link .*[.] Put a regular file or folder"
        ):
            await act()


def test_something_that_is_staged_by_another_hand_does_not_stop_the_clearing(tmp_path: Path) -> None:
    folder = ArtifactFolder(tmp_path / "folder")
    folder.make()
    (tmp_path / "folder" / OWN / "staged" / "mine").mkdir()
    folder.clear([])


@on_loop
async def test_a_text_that_may_be_cut_off_is_not_complete_where_only_the_folder_knows_it(desk: Desk) -> None:
    whole = desk.file("4-final.md").read_bytes()
    desk.file("4-final.md").write_bytes(whole[:60])
    found = detect(desk.folder, memo)
    assert found.resume_at == "finalize"
    assert f"60 bytes instead of {len(whole)}" in found.steps[-1].why
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, memo)
        with pytest.raises(UndecidedEdits, match="it was shortened or truncated"):
            await session.resume()
        with pytest.raises(
            FolderRefused, match=r"rebuilt from its folder. Accept the file as it is .* or run step .finalize. again"
        ):
            await session.resume(edits="discard")
        outcome = await (await session.resume(rerun="finalize")).outcome()
    assert calls.taken() == ["finalize"]
    assert outcome.state.memo.encode() == desk.file("4-final.md").read_bytes()


@pytest.mark.parametrize("title", ["A-B", ""])
def test_without_records_a_step_that_may_be_skipped_is_judged_by_what_its_condition_says(
    tmp_path: Path, title: str
) -> None:
    """One that was to run has to have left its file, one that was not cannot have."""

    @step(writes="first", publishes=Artifact("first.md", min_bytes=1), when=lambda title: bool(title))
    async def introduce(title: str) -> str:
        return title

    @step(writes="second", publishes=Artifact("second.md", min_bytes=1))
    async def tell() -> str:
        return "text"

    workflow = Workflow("notes", state=Notes, steps=[introduce, tell])
    (tmp_path / "second.md").write_text("text")
    found = detect(tmp_path, workflow, title=title)
    assert found.resume_at == ("start" if title else "complete")
    assert bool(found.inconsistent) is bool(title)


# names


class Notes(BaseModel):
    title: str = "A-B"
    notes: dict[str, str] = {}
    first: str = ""
    second: str = ""


async def run(tmp_path: Path, *steps: Any) -> Any:
    workflow = Workflow("notes", state=Notes, steps=steps)
    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        return await (await engine.start(workflow, folder=tmp_path / "output")).outcome()


def noting(*names: str) -> Any:
    @step(writes="notes", publishes=Artifact("notes/*.md"))
    async def note() -> dict[str, str]:
        return dict.fromkeys(names, "text")

    return note


def pair(one: str, other: str) -> Callable[[], Any]:
    def make() -> Any:
        leaves = [Artifact(one, carries="first"), Artifact(other, carries="second")]

        @step(writes=["first", "second"], publishes=leaves)
        async def both() -> dict[str, str]:
            return {"first": "1", "second": "2"}

        return both

    return make


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: noting("ü" * 150), "has a name of more than 240 bytes"),
        (lambda: noting("Team", "team"), "'notes/Team.md' and 'notes/team.md' of step 'note' cannot both be files"),
        (lambda: noting("caf\u00e9", "cafe\u0301"), "cannot both be files"),
        (pair("x", "x/y.md"), "'x' and 'x/y.md' of step 'both' cannot both be files"),
    ],
)
@on_loop
async def test_names_that_a_disk_could_not_hold_fail_the_step_before_anything_is_recorded(
    tmp_path: Path, make: Callable[[], Any], problem: str
) -> None:
    outcome = await run(tmp_path, make())
    assert outcome.status.value == "failed"
    assert problem in outcome.failure.message
    assert in_folder(tmp_path / "output") == []


def test_paths_that_can_both_be_files_do_not_clash() -> None:
    assert clash(["a.md", "a/b.md", "a/b/c.md", "ab/c.md", "a.md"]) is None
    assert clash(["a/b/c.md", "a", "b.md"]) == ("a", "a/b/c.md")


@on_loop
async def test_an_entry_is_known_by_its_name_whatever_the_fields_in_the_path_are(tmp_path: Path) -> None:
    """``{title}-*.md``: what belongs to the title, and what to the entry, cannot be told from the name alone."""
    spared: list[dict[str, str]] = []

    @step(writes="notes", publishes=Artifact("{title}-*.md", min_bytes=1))
    async def note(ctx: Context) -> dict[str, str]:
        spared.append(await ctx.artifact("{title}-*.md").spared())
        return {"c-d": "1", "e-f": "2"}

    workflow = Workflow("notes", state=Notes, steps=[note])
    async with Engine(tmp_path / "hold.db", workflows=[workflow], signals=False) as engine:
        await (await engine.start(workflow, session_id="s1", folder=tmp_path / "output")).outcome()
        (tmp_path / "output" / "A-B-e-f.md").unlink()
        await (await engine.session("s1").resume()).outcome()
    shutil.rmtree(tmp_path / "output" / OWN)
    async with Engine(tmp_path / "other.db", signals=False) as engine:
        rebuilt: Any = await engine.session(
            (await engine.rebuild(tmp_path / "output", workflow, title="A-B")).id
        ).state()
    assert spared == [{}, {"c-d": "1"}]
    assert rebuilt.notes == {"c-d": "1", "e-f": "2"}
