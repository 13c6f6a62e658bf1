"""A session made anew of its folder, and what a folder tells without a store."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Workflow, migrate, step
from pausepoint.artifacts import VersionFolders, detect
from pausepoint.definition.artifacts import OWN
from pausepoint.definition.steps import Step
from pausepoint.errors import FolderRefused, UndecidedEdits
from tests.artifacts.pipeline import Desk, Finding, Memo, calls, draft, finalize, header, memo, rate, rated, research
from tests.support.loop import on_loop

STEPS = ["research", "draft", "header", "finalize", "rate"]
MADE_BY = {"research": "1-research.json", "draft": "2-sections/01-intro.md", "header": "header.md",
           "finalize": "4-final.md"}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path, rated)
    asyncio.run(desk.run())
    calls.taken()
    return desk


async def stopped_after(desk: Desk, last: str) -> None:
    async with desk.engine() as engine:
        options: dict[str, Any] = {"session_id": "s1", "folder": desk.folder, "paused": True}
        session = await engine.start(desk.workflow, company="Fern", **options)
        await session.resume(pause_after=last)
        await session.outcome()


def ran() -> list[str]:
    return [name for name in calls.taken() if name in STEPS]


@pytest.mark.covers("S4.39")
def test_without_a_folder_or_anything_in_it_a_session_starts_from_scratch(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        found = detect(folder, memo)
        assert (found.resume_at, found.complete, found.recorded) == ("start", False, False)
        assert {each.state for each in found.steps} == {"to run"}


@pytest.mark.covers("S4.26", "S4.40", "S4.51")
@pytest.mark.parametrize("last", range(len(STEPS) - 1))
@on_loop
async def test_every_step_can_be_where_a_session_goes_on_in_another_store(tmp_path: Path, last: int) -> None:
    desk = Desk(tmp_path, rated)
    await stopped_after(desk, STEPS[last])
    calls.taken()
    async with desk.engine() as engine:
        state = await engine.session("s1").state()
    found = detect(desk.folder, rated)
    assert (found.resume_at, found.recorded, found.inconsistent) == (STEPS[last + 1], True, ())
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, rated)
        assert session.id == "s1"
        assert await session.state() == state, "as before the interruption"
        assert (await session.plan())[STEPS[last + 1]].verdict == "next"
        await session.resume()
        outcome = await session.outcome()
        assert (await engine.verify()).ok
    assert (outcome.status.value, ran()) == ("completed", STEPS[last + 1 :])
    assert detect(desk.folder, rated).complete


@on_loop
async def test_a_complete_folder_is_complete_and_no_step_runs(desk: Desk) -> None:
    assert detect(desk.folder, rated).resume_at == "complete"
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, rated)
        await session.resume()
        outcome = await session.outcome()
        again = await engine.rebuild(desk.folder, rated)
    assert (outcome.status.value, ran(), again.id) == ("completed", [], "s1")
    async with desk.engine() as engine:
        assert outcome.state == await engine.session("s1").state(), "also what no file carries"


@pytest.mark.covers("S4.40", "S4.75")
@pytest.mark.parametrize("broken", MADE_BY)
@pytest.mark.parametrize("how", ["deleted", "truncated"])
@on_loop
async def test_a_damaged_folder_is_gone_on_with_at_the_damage(desk: Desk, broken: str, how: str) -> None:
    file = desk.file(MADE_BY[broken])
    if how == "deleted":
        file.unlink()
    else:
        file.write_bytes(b"[" if broken == "research" else b"")
    found = detect(desk.folder, rated)
    assert found.resume_at == broken
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, rated)
        await session.resume(rerun=[broken])
        outcome = await session.outcome()
    readers = {"research": ["draft", "finalize", "rate"], "draft": ["finalize", "rate"], "header": ["finalize", "rate"],
               "finalize": ["rate"]}  # fmt: skip
    assert (outcome.status.value, ran()) == ("completed", [broken, *readers[broken]])


@on_loop
async def test_an_edit_is_found_as_one_without_the_store_too(desk: Desk) -> None:
    desk.edit_research()
    assert detect(desk.folder, rated).resume_at == "research"
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, rated)
        with pytest.raises(UndecidedEdits):
            await session.resume()
        await session.resume(edits="accept")
        outcome = await session.outcome()
    assert ran() == ["draft", "finalize", "rate"]
    assert "grows moss" in outcome.state.memo


@pytest.mark.covers("S4.41")
@on_loop
async def test_a_recorded_step_whose_predecessor_is_not_recorded_is_inconsistent(desk: Desk) -> None:
    (desk.folder / OWN / "done" / "draft.json").unlink()
    found = detect(desk.folder, rated)
    assert found.resume_at == "draft"
    assert found.inconsistent[0] == "header is recorded, but draft before it is not"
    assert len(found.inconsistent) == 3
    async with desk.engine("other.db") as engine:
        with pytest.raises(FolderRefused, match="is inconsistent"):
            await engine.rebuild(desk.folder, rated)
        session = await engine.rebuild(desk.folder, rated, incomplete="accept")
        await session.resume()
        await session.outcome()
    assert ran() == ["draft", "header", "finalize", "rate"]


@on_loop
async def test_an_edit_of_the_state_that_a_step_has_read_is_in_the_folder_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, rated)
    await stopped_after(desk, "draft")
    async with desk.engine() as engine:
        await engine.session("s1").edit(company="Moss")
        outcome = await (await engine.session("s1").resume(pause_after="header")).outcome()
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, rated)
        assert await session.state() == outcome.state
    assert outcome.state.header == "# Moss, call 1\n"


# without records


@pytest.mark.covers("S4.26", "S4.52", "S4.74")
@on_loop
async def test_without_records_the_files_tell_and_the_input_is_asked_for(desk: Desk) -> None:
    shutil.rmtree(desk.folder / OWN)
    desk.file("4-final.md").unlink()
    found = detect(desk.folder, memo)
    assert (found.resume_at, found.recorded, found.inconsistent) == ("finalize", False, ())
    async with Engine(desk.path / "other.db", workflows=[memo], signals=False) as engine:
        session = await engine.rebuild(desk.folder, memo, company="Fern")
        await session.resume()
        outcome = await session.outcome()
    assert (outcome.status.value, ran()) == ("completed", ["finalize"])
    assert outcome.state.research[0].claim == "Fern grows ferns, call 1."


@on_loop
async def test_without_records_too_only_the_missing_entries_are_made(desk: Desk) -> None:
    shutil.rmtree(desk.folder / OWN)
    for name in ("2-sections/02-team.md", "header.md", "4-final.md"):
        desk.file(name).unlink()
    kept = desk.file("2-sections/03-risks.md").read_bytes()
    given: dict[str, Any] = {"company": "Fern", "outline": ["01-intro", "02-team", "03-risks"]}
    async with Engine(desk.path / "other.db", workflows=[memo], signals=False) as engine:
        session = await engine.rebuild(desk.folder, memo, **given)
        plan = await session.plan()
        assert (plan["draft"].verdict, plan["draft"].why) == ("next", "2 of its files already exist")
        await session.resume()
        assert (await session.outcome()).status.value == "completed"
    assert calls.taken() == ["draft", "02-team", "header", "finalize"]
    assert desk.file("2-sections/03-risks.md").read_bytes() == kept
    assert desk.bin() == []


@pytest.mark.covers("S4.41", "S4.76")
@on_loop
async def test_a_late_artifact_without_its_predecessors_is_inconsistent(desk: Desk) -> None:
    shutil.rmtree(desk.folder / OWN)
    desk.file("2-sections/02-team.md").unlink()
    found = detect(desk.folder, memo, outline=["01-intro", "02-team", "03-risks"])
    assert found.resume_at == "draft"
    assert len(found.inconsistent) == 2
    assert "2 of 3 files are there" in found.inconsistent[0]
    async with Engine(desk.path / "other.db", workflows=[memo], signals=False) as engine:
        with pytest.raises(
            FolderRefused, match="is inconsistent: the artifacts of header are there, but draft before it"
        ):
            await engine.rebuild(desk.folder, memo, company="Fern", outline=["01-intro", "02-team", "03-risks"])
        given: dict[str, Any] = {"company": "Fern", "outline": ["01-intro", "02-team", "03-risks"]}
        session = await engine.rebuild(desk.folder, memo, incomplete="accept", **given)
        await session.resume()
        await session.outcome()
    assert ran() == ["draft", "header", "finalize"]


@pytest.mark.covers("S4.74", "S4.85", "S4.86", "S4.87")
def test_without_records_a_file_counts_only_if_it_can_be_read_and_is_large_enough(desk: Desk) -> None:
    shutil.rmtree(desk.folder / OWN)
    whole = desk.file("1-research.json").read_text()
    for text, why in ((whole[:30], "line "), ("[]", "2 bytes"), ("", "0 bytes")):
        desk.file("1-research.json").write_text(text)
        found = detect(desk.folder, memo)
        assert found.resume_at == "start"
        assert why in found.steps[0].why
        assert "1-research.json" in found.steps[0].why
    desk.file("1-research.json").write_text(whole)
    assert detect(desk.folder, memo).complete


def test_what_a_step_has_to_leave_is_asked_of_its_content(desk: Desk) -> None:
    shutil.rmtree(desk.folder / OWN)
    desk.file("4-final.md").write_text("a text without any heading in it\n")
    assert detect(desk.folder, memo).resume_at == "finalize"


# other versions of the code


class Newer(Memo):
    region: str = ""


@migrate(from_version=1)
def with_region(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"region": "Sussex"}


@migrate(from_version=1)
def fails(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no way")


@pytest.mark.covers("S4.92", "S4.94")
@on_loop
async def test_an_older_folder_is_migrated_a_newer_one_refused_and_one_that_cannot_be_carried_up_stays(
    desk: Desk,
) -> None:
    listed: list[Step[..., Any]] = [research, draft, header, finalize, rate]
    newer = Workflow("rated", state=Newer, steps=listed, version=2, migrations=[with_region])
    hopeless = Workflow("rated", state=Newer, steps=listed, version=2, migrations=[fails])
    before = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    async with Engine(desk.path / "hopeless.db", workflows=[hopeless], signals=False) as engine:
        with pytest.raises(FolderRefused, match="cannot be resumed with this code"):
            await engine.rebuild(desk.folder, hopeless)
        assert await engine.sessions() == []
    assert {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()} == before
    async with Engine(desk.path / "newer.db", workflows=[newer], signals=False) as engine:
        session = await engine.rebuild(desk.folder, newer)
        await session.resume()
        outcome = await session.outcome()
    assert (outcome.status.value, outcome.state.region, ran()) == ("completed", "Sussex", [])
    with pytest.raises(FolderRefused, match=r"version 2 of 'rated', but this code is version 1. Run the newer code"):
        detect(desk.folder, rated)


def test_the_folder_of_another_workflow_is_refused_with_a_short_message(desk: Desk) -> None:
    with pytest.raises(FolderRefused, match="belongs to workflow 'rated', not 'memo'"):
        detect(desk.folder, memo)
    note = desk.folder / ".pausepoint" / "session.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"workflow": "x" * 5_000}))
    with pytest.raises(FolderRefused, match=r"belongs to workflow 'xxx.*x…, not 'memo'") as refused:
        detect(desk.folder, memo)
    assert len(str(refused.value)) < 500


# numbered folders


@pytest.mark.covers("S4.102")
def test_the_latest_folder_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    folders = VersionFolders(tmp_path / "output", "Fern & Stone")
    assert folders.latest() is None
    made = [folders.make() for _ in range(11)]
    assert made[0].name == "Fern-Stone-v0.0.1"
    assert folders.latest() == made[10]
    assert [path.name for path in folders.all()][8:] == [f"Fern-Stone-v0.0.{number}" for number in (9, 10, 11)]
    made[10].rmdir()
    assert folders.latest() == made[9]
    assert folders.find("v0.0.3") == made[2]
    with pytest.raises(FolderRefused, match=r"No artifacts found for Fern-Stone v0\.0\.99"):
        folders.find("v0.0.99")
    (tmp_path / "output" / "Fern-Stone-v0.0.11").write_text("no folder")
    assert folders.make().name == "Fern-Stone-v0.0.12"


@on_loop
async def test_those_that_have_begun_and_are_not_complete_are_known(desk: Desk, tmp_path: Path) -> None:
    folders = VersionFolders(tmp_path / "output", "Fern")
    for last in ("finalize", "research", "rate"):
        where = folders.make()
        async with desk.engine(f"{last}.db") as engine:
            session = await engine.start(rated, company="Fern", folder=where, paused=True)
            await session.resume(pause_after=last)
            await session.outcome()
    folders.make()
    assert [path.name for path in folders.incomplete(rated)] == ["Fern-v0.0.1", "Fern-v0.0.2"]


@on_loop
async def test_a_session_whose_steps_leave_artifacts_needs_a_folder_and_others_have_none(desk: Desk) -> None:
    class Nothing(BaseModel):
        pass

    @step
    async def rest() -> None: ...

    quiet = Workflow("quiet", state=Nothing, steps=[rest])
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match=r"needs a folder for them\. Pass folder="):
            await engine.start(rated, company="Fern")
        with pytest.raises(FolderRefused, match="publishes no artifacts"):
            await engine.start(quiet, folder=desk.folder)
        assert await engine.session((await engine.start(quiet, session_id="q")).id).artifacts() == []


def test_paths_with_fields_are_found_if_the_fields_are_given(tmp_path: Path) -> None:
    @step(writes="memo", publishes=Artifact("{company}/memo.md", min_bytes=1))
    async def only(company: str) -> str:
        return f"{company}!"

    flow = Workflow("only", state=Memo, steps=[only])

    async def run() -> None:
        async with Engine(tmp_path / "hold.db", workflows=[flow], signals=False) as engine:
            session = await engine.start(flow, company="../Fern & Co", folder=tmp_path / "out")
            await session.outcome()

    asyncio.run(run())
    assert (tmp_path / "out" / "Fern-Co" / "memo.md").read_text() == "../Fern & Co!"
    assert detect(tmp_path / "out", flow).complete
    shutil.rmtree(tmp_path / "out" / OWN)
    assert "its name needs company" in detect(tmp_path / "out", flow).steps[0].why
    assert detect(tmp_path / "out", flow, company="../Fern & Co").complete


@on_loop
async def test_a_folder_that_was_moved_is_not_taken_for_one_whose_files_are_missing(desk: Desk) -> None:
    moved = desk.path / "moved"
    desk.folder.rename(moved)
    with pytest.raises(FolderRefused, match=r"The folder of session 's1' is missing or empty: .*output. Put it back"):
        await desk.resume()
    assert not desk.folder.exists()
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match="which is in this store with its folder at"):
            await engine.rebuild(moved, rated)
        session = await engine.rebuild(moved, rated, session_id="s2")
        await session.resume()
        assert (await session.outcome()).status.value == "completed"
        assert {each.state for each in await session.artifacts()} == {"valid"}
    assert ran() == []
    assert detect(moved, rated).session_id == "s2"


@on_loop
async def test_a_session_that_was_migrated_on_its_way_is_rebuilt_from_its_folder(tmp_path: Path) -> None:
    desk = Desk(tmp_path, rated)
    await stopped_after(desk, "draft")
    listed: list[Step[..., Any]] = [research, draft, header, finalize, rate]
    newer = Workflow("rated", state=Newer, steps=listed, version=2, migrations=[with_region])
    async with Engine(desk.path / "hold.db", workflows=[newer], signals=False) as engine:
        outcome = await (await engine.session("s1").resume(pause_after="header")).outcome()
    assert outcome.state.region == "Sussex"
    calls.taken()
    async with Engine(desk.path / "newer.db", workflows=[newer], signals=False) as engine:
        session = await engine.rebuild(desk.folder, newer)
        assert await session.state() == outcome.state
        await session.resume()
        assert (await session.outcome()).status.value == "completed"
    assert ran() == ["finalize", "rate"]


@pytest.mark.covers("S4.94")
@pytest.mark.parametrize("why", ["cannot be resumed with this code", "Run the newer code"])
@on_loop
async def test_a_folder_that_cannot_be_carried_up_is_refused_and_stays_as_it_is(tmp_path: Path, why: str) -> None:
    listed: list[Step[..., Any]] = [research, draft, header, finalize, rate]
    old = Workflow("rated", state=Memo, steps=listed, version=3 if "newer" in why else 1)
    now = Workflow("rated", state=Newer, steps=listed, version=2, migrations=[fails])
    folders = VersionFolders(tmp_path / "output", "Fern")
    async with Engine(tmp_path / "old.db", signals=False) as engine:
        await (await engine.start(old, company="Fern", folder=folders.make())).outcome()
    before = {path: path.read_bytes() for path in tmp_path.rglob("Fern-v0.0.1/**/*") if path.is_file()}
    assert len(before) > 6
    async with Engine(tmp_path / "now.db", workflows=[now], signals=False) as engine:
        with pytest.raises(FolderRefused, match=why):
            await engine.rebuild(folders.find("v0.0.1"), now)
        assert not list(await engine.sessions())
    assert {path: path.read_bytes() for path in tmp_path.rglob("Fern-v0.0.1/**/*") if path.is_file()} == before
    assert folders.incomplete(now) == ([] if "newer" not in why else [folders.find("v0.0.1")])


# people in between


class Reviewed(Memo):
    approved: bool = False


@step(writes="approved")
async def approve(memo: str, ctx: Context) -> bool:
    calls("approve")
    return await ctx.ask(f"Is this well? {memo[:20]}", bool)


@pytest.mark.covers("S4.70")
@on_loop
async def test_a_question_to_a_person_is_skipped_neither_by_a_rebuild_nor_by_an_edit(tmp_path: Path) -> None:
    reviewed = Workflow("reviewed", state=Reviewed, steps=[research, draft, header, finalize, approve])
    desk = Desk(tmp_path)
    async with Engine(tmp_path / "a.db", workflows=[reviewed], signals=False) as engine:
        session = await engine.start(reviewed, company="Fern", folder=desk.folder, session_id="s1")
        assert (await session.outcome()).status.value == "waiting"
    assert detect(desk.folder, reviewed).resume_at == "approve"
    async with Engine(tmp_path / "b.db", workflows=[reviewed], signals=False) as engine:
        session = await engine.rebuild(desk.folder, reviewed)
        await session.resume()
        assert (await session.outcome()).status.value == "waiting", "asked again"
        await session.answer(True)
        assert (await session.outcome()).state.approved
        calls.taken()
        desk.file("4-final.md").write_text("## Edited by hand after the approval\n")
        await session.resume(edits="accept")
        outcome = await session.outcome()
        assert (outcome.status.value, calls.taken()) == ("waiting", ["approve"])
        assert "Edited" in outcome.questions[0].next_question


class Renamed(BaseModel):
    company: str
    outline: list[str] = []
    findings: list[Finding] = []
    sections: dict[str, str] = {}
    header: str | None = None
    memo: str = ""
    score: float | None = None


@step(writes="findings", was="research", publishes=Artifact("1-research.json", min_bytes=10))
async def dig(company: str) -> list[Finding]:
    calls("dig")
    return [Finding(claim=f"{company} digs.")]


@step(writes="sections", was="draft", publishes=Artifact("2-sections/*.md", count="outline", min_bytes=10))
async def tell(outline: list[str], findings: list[Finding]) -> dict[str, str]:
    calls("tell")
    return {name: f"## {name}: {findings[0].claim}" for name in outline}


@migrate(from_version=1)
def to_findings(state: dict[str, Any]) -> dict[str, Any]:
    state["findings"] = state.pop("research")
    return state


@on_loop
async def test_steps_and_fields_that_are_called_otherwise_now_are_still_known_by_their_files(desk: Desk) -> None:
    newer = Workflow(
        "rated", state=Renamed, steps=[dig, tell, header, finalize, rate], version=2, migrations=[to_findings]
    )  # fmt: skip
    async with Engine(desk.path / "hold.db", workflows=[newer], signals=False) as engine:
        await engine.session("s1").rewind("finalize")
        await (await engine.session("s1").resume()).outcome()
        assert calls.taken() == ["finalize", "rate"]
        assert {each.state for each in await engine.session("s1").artifacts()} == {"valid"}
        desk.edit_research()
        outcome = await (await engine.session("s1").resume(edits="accept")).outcome()
    assert calls.taken() == ["tell", "finalize", "rate"]
    assert "grows moss" in outcome.state.memo


DEEP = f'{{"x": {"[" * 100_000}{"]" * 100_000}}}'


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("session.json", "{", "is damaged"),
        ("done/draft.json", "{}", "Delete it. Its step then runs again"),
        ("session.json", None, "was written by a newer Pausepoint"),
        pytest.param("session.json", DEEP, "is damaged", id="deep session note"),
        pytest.param("done/draft.json", DEEP, "Delete it. Its step then runs again", id="deep completion record"),
    ],
)
def test_a_note_that_is_damaged_or_newer_is_refused_by_its_name(
    desk: Desk, name: str, text: str | None, why: str
) -> None:
    note = desk.folder / OWN / name
    note.write_text(text or note.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(FolderRefused, match=why):
        detect(desk.folder, rated)


@on_loop
async def test_a_completion_record_that_is_damaged_is_written_anew_by_who_has_the_log(desk: Desk) -> None:
    note = desk.folder / OWN / "done" / "draft.json"
    whole = note.read_bytes()
    note.write_text("{")
    (desk.folder / OWN / "done" / "nobody.json").write_text("{}")
    await desk.resume()
    assert note.read_bytes() == whole
    assert not (desk.folder / OWN / "done" / "nobody.json").exists()
    assert ran() == []


@on_loop
async def test_a_large_value_that_no_file_carries_is_in_the_completion_record(tmp_path: Path) -> None:
    @step(writes="memo")
    async def fill() -> str:
        return "large " * 10_000

    large = Workflow("large", state=Memo, steps=[research, fill])
    async with Engine(tmp_path / "a.db", workflows=[large], signals=False) as engine:
        session = await engine.start(large, company="Fern", folder=tmp_path / "out")
        outcome = await session.outcome()
    async with Engine(tmp_path / "b.db", workflows=[large], signals=False) as engine:
        rebuilt = await engine.rebuild(tmp_path / "out", large)
        assert await rebuilt.state() == outcome.state
