"""What can be declared about an artifact, what is refused when the workflow is made, and what a step may not do."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, BlockingContext, Context, Engine, Merge, Workflow, step
from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.definition import Codec
from pausepoint.definition.artifacts import OWN, BoundArtifact, Unfit, bind, entry_of, position, safe_name
from pausepoint.definition.fields import shape
from pausepoint.errors import DefinitionError, FolderRefused, UndecidedEdits
from tests.artifacts.pipeline import Desk, Memo, calls, memo
from tests.support.loop import on_loop


class Point(BaseModel):
    x: int
    y: int = 0


class State(BaseModel):
    name: str = "Fern"
    text: str = ""
    maybe: str | None = None
    points: list[Point] = []
    entries: dict[str, str] = {}
    plan: Point = Point(x=1)


def bound(spec: Artifact, *writes: str) -> BoundArtifact:
    places = shape(State)
    return bind(spec, tuple(places.place(path) for path in writes), places)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x.md", "a/../x.md", "./x.md", "a//x.md", "a\\x.md", ".pausepoint/x.json", "a/*/b*.md",
     "x?.md", "folder/", "a\nb.md", ".PausePoint/x.json", ".{name}/x.json", ".*", "a/*/b.md"],
)  # fmt: skip
def test_a_path_that_leads_out_of_the_folder_or_is_none_is_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="Artifact"):
        Artifact(path)


@pytest.mark.parametrize(
    ("spec", "writes", "why"),
    [
        (Artifact("a.json"), ("text", "maybe"), "Name the field of this artifact with carries="),
        (Artifact("a.json", carries="points"), ("text",), "the step does not write 'points'"),
        (Artifact("a.json", carries="pionts"), ("points",), "Did you mean 'points'"),
        (Artifact("*.md"), ("text",), r"needs a field of type dict\[str, \.\.\.\]"),
        (Artifact("*.md", count="nane"), ("entries",), "Did you mean 'name'"),
        (Artifact("{nane}.md"), ("text",), "Did you mean 'name'"),
    ],
)
def test_what_cannot_be_right_is_refused_when_the_workflow_is_made(
    spec: Artifact, writes: tuple[str, ...], why: str
) -> None:
    @step(writes=writes, publishes=spec)
    async def work() -> Any: ...

    with pytest.raises(DefinitionError, match=why):
        Workflow("work", state=State, steps=[work])


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(DefinitionError, match="count= needs a path with a"):
        Artifact("a.json", count=3)
    with pytest.raises(DefinitionError, match="min_bytes"):
        Artifact("a.json", min_bytes=-1)
    with pytest.raises(DefinitionError, match="is not an Artifact"):
        bound("a.json", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        (Artifact("a.json"), "points", [Point(x=1), Point(x=2, y=3)]),
        (Artifact("a.json"), "plan", Point(x=-5)),
        (Artifact("a.md"), "text", "no line feed at the end"),
        (Artifact("a.md", codec="markdown"), "text", "# One\n\n"),
        (Artifact("a.json"), "text", "a text as JSON: \x00 ü \u2028"),
        (Artifact("a.txt"), "points", [Point(x=7)]),
        (Artifact("a.csv", codec=Codec(write=lambda point: f"{point.x};{point.y}",
                                       read=lambda text: dict(zip("xy", text.split(";"), strict=True)))),
         "plan", Point(x=3, y=4)),
    ],
)  # fmt: skip
def test_what_was_written_is_read_back_as_it_was(spec: Artifact, field: str, value: Any) -> None:
    artifact = bound(spec, field)
    [(path, (key, data))] = artifact.files(value, {}).items()
    assert (path, key, artifact.decoded(data)) == (spec.path, "", value)


def test_a_dict_is_a_file_for_each_entry_and_none_leaves_none() -> None:
    artifact = bound(Artifact("s/*.md", count=2), "entries")
    files = artifact.files({"a": "1", "b c": "2"}, {})
    assert files == {"s/a.md": ("a", b"1"), "s/b c.md": ("b c", b"2")}
    assert [entry_of("s/*.md", path) for path in files] == ["a", "b c"]
    assert bound(Artifact("m.md"), "maybe").files(None, {}) == {}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"[", "line 1, column 2: Expecting value"),
        (b'[\n {"x": 1},\n {"x": "no"}]', "line 3, column 8: 1.x"),
        (b'[\n {"y": 1}]', r"line 2, column 2: 0.x"),
        (b'"\xff"', "line 1, column 2: the file is not UTF-8"),
        (b"{}", "line 1, column 1: "),
        pytest.param(b"[" * 100_000, "it is nested too deep", id="deep"),
        pytest.param(b"[\n" + b"9" * 5_000 + b"]", "a number has too many digits", id="digits"),
    ],
)
def test_what_cannot_be_read_has_a_line_and_a_column(data: bytes, where: str) -> None:
    with pytest.raises(Unfit) as unfit:
        bound(Artifact("a.json"), "points").decoded(data)
    assert str(unfit.value).startswith(where)


def test_a_place_in_json_is_found_through_anything() -> None:
    text = '{"a b": [ {}, {"c": {"d": [1, 2,\n  "x"]}}],"e":null}'
    assert position(text, ("a b", 1, "c", "d", 2)) == (2, 3)
    assert position(text, ("e",)) == (2, 15)
    assert position(text, ("nowhere",)) == (1, 1)


def test_a_name_is_safe_whatever_it_is_made_of() -> None:
    assert [safe_name(text) for text in ("a/b", "..", ".hidden", "x" * 300)] == ["a-b", "unnamed", "hidden", "x" * 100]


async def ran(folder: Path, workflow: Workflow[Any]) -> Any:
    async with Engine(folder / "hold.db", workflows=[workflow], signals=False) as engine:
        session = await engine.start(workflow, folder=folder / "out", session_id="s1")
        return await session.outcome()


@pytest.mark.parametrize(
    ("spec", "value", "why"),
    [
        (Artifact("*.md", count=2), {"a": "x"}, "1 of 2 files are there"),
        (Artifact("*.md", holds=lambda entries: "b" in entries), {"a": "x"}, "its holds= check returned False"),
        (Artifact("*.md", holds=lambda entries: "no b in it"), {"a": "x"}, "no b in it"),
        (Artifact("*.md"), {"../a": "x"}, "cannot be a file name"),
        (Artifact("*.md"), {".a": "x"}, "cannot be a file name"),
    ],
)
@on_loop
async def test_a_step_that_does_not_leave_what_it_declares_fails_and_leaves_nothing(
    tmp_path: Path, spec: Artifact, value: dict[str, str], why: str
) -> None:
    @step(writes="entries", publishes=spec)
    async def work() -> dict[str, str]:
        return value

    outcome = await ran(tmp_path, Workflow("work", state=State, steps=[work]))
    assert outcome.status.value == "failed"
    assert why in outcome.failure.message
    assert outcome.state.entries == {}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [OWN]


@on_loop
async def test_two_artifacts_of_one_step_cannot_share_a_file(tmp_path: Path) -> None:
    @step(writes=["text", "maybe"], publishes=[Artifact("a.md", carries="text"), Artifact("a.md", carries="maybe")])
    async def work() -> dict[str, str]:
        return {"text": "1", "maybe": "2"}

    outcome = await ran(tmp_path, Workflow("work", state=State, steps=[work]))
    assert "publishes 'a.md' twice" in outcome.failure.message


class Growing(BaseModel):
    entries: dict[str, str] = {}
    notes: list[str] = []


@on_loop
async def test_several_steps_may_leave_the_same_files_and_the_newest_counts(tmp_path: Path) -> None:
    """As enrichers do, one after the other, on fields that they read and write."""

    @step(writes="entries", publishes=Artifact("s/*.md", min_bytes=1))
    async def first() -> dict[str, str]:
        calls("first")
        return {"a": "alpha", "b": "beta"}

    @step(writes="entries", publishes=Artifact("s/*.md", min_bytes=1))
    async def second(entries: dict[str, str]) -> dict[str, str]:
        calls("second")
        return {**entries, "a": entries["a"] + "!"}

    @step(writes="entries", publishes=Artifact("s/*.md", min_bytes=1))
    async def third(entries: dict[str, str]) -> dict[str, str]:
        calls("third")
        return entries  # no trace in the text

    flow = Workflow("flow", state=Growing, steps=[first, second, third])
    calls.taken()
    await ran(tmp_path, flow)
    assert calls.taken() == ["first", "second", "third"]
    file = tmp_path / "out" / "s" / "a.md"
    async with Engine(tmp_path / "hold.db", workflows=[flow], signals=False) as engine:
        session = engine.session("s1")
        assert {(each.path, each.step) for each in await session.artifacts()} == {
            ("s/a.md", "third"),
            ("s/b.md", "third"),
        }
        file.write_text("by hand")
        await session.resume()
        assert (await session.outcome()).state.entries == {"a": "by hand", "b": "beta"}
        assert calls.taken() == []
        await session.resume(rerun="second", edits="accept")  # replaces what was written by hand
        assert (await session.outcome()).state.entries == {"a": "alpha!", "b": "beta"}
        assert calls.taken() == ["second", "third"]
        file.unlink()
        await session.resume()
        await session.outcome()
        assert (calls.taken(), file.read_text()) == (["third"], "alpha!")


@on_loop
async def test_fields_that_grow_are_kept_and_redone_as_they_grew(tmp_path: Path) -> None:
    from typing import Annotated

    class Heap(BaseModel):
        seed: str = "s"
        heap: Annotated[dict[str, str], Merge] = {}
        total: str = ""

    @step(writes="heap", publishes=Artifact("one.json", carries="heap", min_bytes=1))
    async def one(seed: str) -> dict[str, str]:
        return {"one": seed}

    @step(writes="heap")
    async def two() -> dict[str, str]:
        calls("two")
        return {"two": "2"}

    @step(writes="total", publishes=Artifact("total.md", min_bytes=1))
    async def total(heap: dict[str, str]) -> str:
        return ",".join(sorted(heap.values()))

    flow = Workflow("heap", state=Heap, steps=[one, two, total])
    calls.taken()
    assert (await ran(tmp_path, flow)).state.total == "2,s"
    assert calls.taken() == ["two"]
    (tmp_path / "out" / "one.json").write_text('{"one": "edited"}')
    async with Engine(tmp_path / "hold.db", workflows=[flow], signals=False) as engine:
        session = await engine.session("s1").resume(edits="accept")
        outcome = await session.outcome()
    assert (outcome.state.heap, outcome.state.total) == ({"one": "edited", "two": "2"}, "2,edited")
    assert calls.taken() == []


@on_loop
async def test_a_blocking_step_sees_its_artifacts_too(tmp_path: Path) -> None:
    seen: list[Any] = []

    @step(writes="text", publishes=Artifact("a.md", min_bytes=1))
    def first() -> str:
        return "one"

    @step(writes="entries", publishes=Artifact("s/*.md", min_bytes=1))
    def second(text: str, ctx: BlockingContext) -> dict[str, str]:
        artifact = ctx.artifact("a.md")
        seen.extend([artifact.path, artifact.read(), ctx.artifact("s/*.md").spared()])
        return {"a": text}

    flow = Workflow("flow", state=State, steps=[first, second])
    await ran(tmp_path, flow)
    assert seen == [tmp_path / "out" / "a.md", b"one", {}]


@on_loop
async def test_a_step_cannot_read_what_is_not_there_as_it_was_left(tmp_path: Path) -> None:
    said: list[str] = []

    @step(writes="text", publishes=Artifact("a.md", min_bytes=1))
    async def first() -> str:
        return "one"

    @step
    async def second(ctx: Context) -> None:
        for path in ("b.md", "../hold.db", "a.md"):
            if path == "a.md":
                (tmp_path / "out" / "a.md").write_text("meanwhile")
            try:
                await ctx.artifact(path).read()
            except (FolderRefused, DefinitionError) as error:
                said.append(str(error))

    await ran(tmp_path, Workflow("flow", state=State, steps=[first, second]))
    assert [text.partition(". ")[0] for text in said] == [
        "No step of session 's1' has published 'b.md' yet",
        "Artifact '../hold.db': the path must be relative and stay inside the session's folder",
        "File 'a.md' was changed or deleted since step 'first' published it",
    ]


# somebody plants links


@pytest.mark.parametrize("what", ["file", "folder", "own"])
@on_loop
async def test_no_link_inside_the_folder_is_followed(tmp_path: Path, what: str) -> None:
    desk, outside = Desk(tmp_path), tmp_path / "outside"
    outside.mkdir()
    (outside / "target.md").write_text("not to be touched")
    desk.folder.mkdir()
    link = {"file": desk.file("header.md"), "folder": desk.file("2-sections"), "own": desk.file(OWN)}[what]
    link.symlink_to(outside / "target.md" if what == "file" else outside)
    try:
        await desk.run()
    except (FolderRefused, OSError):
        assert what == "own"
    assert (outside / "target.md").read_text() == "not to be touched"
    assert [path.name for path in outside.iterdir()] == ["target.md"]
    if what == "file":
        assert desk.file("header.md").read_text().startswith("# Fern")
        assert not desk.file("header.md").is_symlink()


@on_loop
async def test_an_artifact_that_became_a_link_is_not_read_through_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    (tmp_path / "secret.md").write_text("# secret, long enough to pass for a header\n")
    desk.file("header.md").unlink()
    desk.file("header.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(UndecidedEdits, match=r"header\.md is invalid: .* without following a link"):
        await desk.resume(edits="accept")
    async with desk.engine() as engine:
        assert "secret" not in str(await engine.session("s1").state())
    await desk.resume(edits="discard")
    assert desk.file("header.md").read_text() == "# Fern, call 1\n"
    assert not desk.file("header.md").is_symlink()
    assert (tmp_path / "secret.md").read_text().startswith("# secret")


def test_something_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = ArtifactFolder(tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    for name in ("pipe.md", "folder.md"):
        with pytest.raises(FolderRefused, match="is not a regular file"):
            folder.read(name)
    assert folder.read("nowhere/at/all.md") is None


def test_a_workflow_without_artifacts_writes_nothing_about_them(tmp_path: Path) -> None:
    class Plain(BaseModel):
        n: int = 0

    @step(writes="n")
    async def count(n: int) -> int:
        return n + 1

    async def run() -> list[bytes]:
        async with Engine(tmp_path / "hold.db", signals=False) as engine:
            session = await engine.start(Workflow("plain", state=Plain, steps=[count]))
            await session.outcome()
            row = await engine.store.get(session.id)
            assert row is not None
            return [record.payload for record in await engine.store.records(row.key, 1)]

    payloads = b"".join(asyncio.run(run()))
    assert b"trail" not in payloads
    assert b"left" not in payloads


@on_loop
async def test_a_decision_is_needed_also_if_the_session_is_started_once_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    desk.edit_research()
    with pytest.raises(UndecidedEdits):
        await desk.run()
    assert memo.publishes


@on_loop
async def test_a_workflow_that_leaves_artifacts_is_refused_as_a_child_before_anything_is_stored(tmp_path: Path) -> None:
    @step(writes="memo")
    async def hand_over(company: str, ctx: Context) -> str:
        return (await ctx.call(memo, company=company)).memo

    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        session = await engine.start(Workflow("parent", state=Memo, steps=[hand_over]), company="Fern")
        failure = (await session.outcome()).failure
        assert failure is not None
        assert "'memo' publishes artifacts, and a child session has no folder for them. Start it" in failure.message
        assert [info.session_id for info in await engine.sessions()] == [session.id]
