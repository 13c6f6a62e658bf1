"""Nothing that a person wrote into an artifact disappears unnamed: the plan lists it before, and an event after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Engine, Workflow, step
from pausepoint.artifacts.folder import digest_of, kept_as
from pausepoint.definition.artifacts import OWN
from pausepoint.errors import UndecidedEdits
from tests.artifacts.pipeline import Desk, Memo, calls, draft, header, memo, research
from tests.support.loop import on_loop

TEAM = "2-sections/02-team.md"
MINE = "## 02-team\n\nAda, alone. Written by hand.\n"
KEPT = kept_as(digest_of(MINE.encode()))
SECTIONS = ["01-intro", "02-team", "03-risks"]


async def with_accepted_edit(desk: Desk) -> None:
    desk.file(TEAM).write_text(MINE)
    await desk.resume(edits="accept", by="ada")
    assert calls.taken() == ["finalize"]


async def plan_of(desk: Desk, **options: Any) -> Any:
    return await desk.ask(lambda engine: engine.session("s1").plan(**options))


async def set_aside(desk: Desk) -> list[str]:
    return [summary for type, summary in await desk.events() if type == "artifact.set_aside"]


# accepted edits


@pytest.mark.covers("S4.81", "S4.97")
@on_loop
async def test_an_accepted_edit_that_a_rerun_would_replace_is_named_before_and_after_and_can_be_put_back(
    desk: Desk,
) -> None:
    await with_accepted_edit(desk)
    desk.edit_research()
    plan = await plan_of(desk)
    [replaced] = plan.replaces
    assert (replaced.path, replaced.step, replaced.by, replaced.accepted) == (TEAM, "draft", "ada", True)
    assert (replaced.kept, plan.needs_decision) == (KEPT, True)
    with pytest.raises(UndecidedEdits) as refused:
        await desk.resume()
    assert (refused.value.paths, refused.value.replaced) == (["1-research.json"], [TEAM])
    assert f"draft replaces {TEAM}, edited by ada (kept as {KEPT})" in str(refused.value)
    assert "edits='accept'" in str(refused.value)
    assert "edits='discard'" in str(refused.value)
    await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert await set_aside(desk) == [f"{TEAM}: its accepted edit was replaced; kept in {desk.folder}/{KEPT}"]
    shutil.copy(desk.folder / KEPT, desk.file(TEAM))
    assert (await desk.states())[TEAM] == "edited"
    outcome = await desk.resume(edits="accept")
    assert "Ada, alone." in outcome.state.memo


class Page(BaseModel):
    text: str = ""


@on_loop
async def test_an_accepted_edit_whose_lines_are_all_in_the_new_text_is_not_called_replaced(tmp_path: Path) -> None:
    texts = ["# Draft\n\nFerns grow.\n"]

    @step(writes="text", publishes=Artifact("page.md"))
    async def write() -> str:
        return texts[-1]

    page, path = Workflow("page", state=Page, steps=[write]), tmp_path / "files" / "page.md"
    async with Engine(tmp_path / "p.db", workflows=[page]) as engine:
        session = await engine.start(page, folder=path.parent)
        await session.outcome()
        path.write_text("# Draft\n\nFerns grow slowly.\n")
        await (await session.resume(edits="accept")).outcome()
        texts.append("# Draft\n\nFerns grow slowly.\n\nA chart.\n")  # the step has merged the edit
        await (await session.resume(rerun="write", edits="accept")).outcome()
        events = [event.summary async for event in session.events() if event.event_type == "artifact.set_aside"]
    assert path.read_text() == texts[-1]
    kept = path.parent / kept_as(digest_of(b"# Draft\n\nFerns grow slowly.\n"))
    assert events == [f"page.md was written again with every line of its accepted edit, which is kept in {kept}"]


@on_loop
async def test_discarding_the_new_edit_keeps_the_accepted_one(desk: Desk) -> None:
    await with_accepted_edit(desk)
    desk.edit_research()
    outcome = await desk.resume(edits="discard")
    assert (calls.taken(), desk.file(TEAM).read_text()) == ([], MINE)
    assert "Ada, alone." in outcome.state.memo


@on_loop
async def test_of_two_edits_at_once_the_one_that_the_other_would_replace_is_named(desk: Desk) -> None:
    desk.edit_research()
    desk.file(TEAM).write_text(MINE)
    [replaced] = (await plan_of(desk)).replaces
    assert (replaced.path, replaced.step, replaced.by, replaced.accepted) == (TEAM, "draft", None, False)
    with pytest.raises(UndecidedEdits) as refused:
        await desk.resume()
    assert refused.value.replaced == [TEAM]
    await desk.resume(edits="accept", by="ada")
    assert (desk.folder / KEPT).read_text() == MINE
    assert await set_aside(desk) == [f"{TEAM}: its accepted edit was replaced; kept in {desk.folder}/{KEPT}"]


@on_loop
async def test_a_missing_file_does_not_replace_an_accepted_edit_without_a_decision(desk: Desk) -> None:
    desk.file("4-final.md").write_text("## The whole memo, by hand, and longer than twenty bytes\n")
    await desk.resume(by="ada")
    desk.file("header.md").unlink()
    with pytest.raises(UndecidedEdits, match=r"finalize replaces 4-final.md, edited by ada") as refused:
        await desk.resume()
    assert (refused.value.paths, refused.value.replaced) == ([], ["4-final.md"])
    assert "restore()" in str(refused.value)
    with pytest.raises(UndecidedEdits):
        await desk.resume(edits="discard")  # there is nothing to discard
    await desk.ask(lambda engine: engine.session("s1").restore(["header.md"]))
    await desk.resume()
    assert (calls.taken(), "by hand" in desk.file("4-final.md").read_text()) == ([], True)
    desk.file("header.md").unlink()
    await desk.resume(edits="accept")
    assert calls.taken() == ["header", "finalize"]
    assert len(await set_aside(desk)) == 1


@on_loop
async def test_a_step_that_is_named_for_a_rerun_is_decided_and_others_are_not(desk: Desk) -> None:
    await with_accepted_edit(desk)
    with pytest.raises(UndecidedEdits, match="draft replaces"):
        await desk.resume(rerun="research")
    plan = await plan_of(desk, rerun=["research", "draft"])
    assert ([each.path for each in plan.replaces], plan.needs_decision) == ([TEAM], False)
    await desk.resume(rerun=["research", "draft"])
    assert len(await set_aside(desk)) == 1


@on_loop
async def test_an_edit_that_was_adopted_is_named_when_another_adoption_makes_its_step_stale(desk: Desk) -> None:
    desk.file(TEAM).write_text(MINE)
    desk.edit_research()
    async with desk.engine() as engine:
        await engine.session("s1").adopt([TEAM], by="ada")
        await engine.session("s1").adopt(["1-research.json"], by="bo")
        with pytest.raises(UndecidedEdits) as refused:
            await engine.session("s1").resume()
        assert (refused.value.paths, refused.value.replaced) == ([], [TEAM])
        await (await engine.session("s1").resume(edits="accept")).outcome()
    assert len(await set_aside(desk)) == 1


@on_loop
async def test_after_a_rewind_the_plan_names_the_accepted_edits_that_the_steps_replace(desk: Desk) -> None:
    await with_accepted_edit(desk)
    await desk.ask(lambda engine: engine.session("s1").rewind("draft"))
    plan = await plan_of(desk)
    assert ([(each.path, each.step) for each in plan.replaces], plan.needs_decision) == ([(TEAM, "draft")], False)
    await desk.resume()
    assert await set_aside(desk) == [f"{TEAM}: its accepted edit was replaced; kept in {desk.folder}/{KEPT}"]
    assert (await plan_of(desk)).replaces == ()


@on_loop
async def test_an_accepted_edit_of_a_file_that_is_no_longer_published_is_named_too(desk: Desk) -> None:
    await with_accepted_edit(desk)
    async with desk.engine() as engine:
        await engine.session("s1").edit(outline=["01-intro"])
        await (await engine.session("s1").resume(rerun="draft")).outcome()
    assert not desk.file(TEAM).exists()
    said = f"{TEAM} is no longer published; its accepted edit is kept in {desk.folder}/{KEPT}"
    assert await set_aside(desk) == [said]


@on_loop
async def test_a_file_that_was_only_reformatted_is_not_an_edit_that_can_be_lost(desk: Desk) -> None:
    found = json.loads(desk.file("1-research.json").read_text())
    desk.file("1-research.json").write_text(json.dumps(found))
    await desk.resume()
    assert (await plan_of(desk, rerun=["research"])).replaces == ()


@on_loop
async def test_files_that_a_rerun_can_spare_need_no_decision(desk: Desk) -> None:
    await with_accepted_edit(desk)
    desk.file("2-sections/03-risks.md").unlink()
    await desk.resume()
    assert calls.taken() == ["draft", "03-risks", "finalize"]
    assert desk.file(TEAM).read_text() == MINE
    assert await set_aside(desk) == []


# put back


@on_loop
async def test_a_file_that_is_put_back_to_its_older_version_is_an_edit(desk: Desk) -> None:
    old = desk.file("1-research.json").read_bytes()
    desk.edit_research()
    await desk.resume(edits="accept")
    newer = desk.file("1-research.json").read_bytes()
    calls.taken()
    desk.file("1-research.json").write_bytes(old)
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state == "edited"
    ]
    assert (found.path, found.why) == ("1-research.json", "it was put back to an older version")
    with pytest.raises(UndecidedEdits, match="put back to an older version"):
        await desk.resume()
    await desk.resume(edits="discard")
    assert (desk.file("1-research.json").read_bytes(), desk.bin()) == (newer, [old])
    desk.file("1-research.json").write_bytes(old)
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "call 1" in outcome.state.research[0].claim
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_a_file_that_is_put_back_after_its_adoption_is_an_edit_too(desk: Desk) -> None:
    old = desk.file(TEAM).read_bytes()
    desk.file(TEAM).write_text(MINE)
    await desk.ask(lambda engine: engine.session("s1").adopt())
    desk.file(TEAM).write_bytes(old)
    assert (await desk.states())[TEAM] == "edited"


@on_loop
async def test_a_copy_of_the_whole_folder_that_is_put_back_is_no_edit(desk: Desk) -> None:
    shutil.copytree(desk.folder, desk.path / "backup")
    await with_accepted_edit(desk)
    shutil.rmtree(desk.folder)
    (desk.path / "backup").rename(desk.folder)
    assert set((await desk.states()).values()) == {"valid"}, "as the records in that folder say"
    await desk.resume(rerun="header")
    assert desk.file(TEAM).read_text() == MINE
    assert desk.bin() == []


@step(writes="text", publishes=Artifact("page.md", min_bytes=1))
async def write() -> str:
    return "The first version.\n"


@step(writes="text", publishes=Artifact("page.md", min_bytes=1))
async def polish(text: str) -> str:
    return f"{text}Polished.\n"


@on_loop
async def test_content_whose_completion_record_a_crash_prevented_is_no_edit_after_a_rewind(tmp_path: Path) -> None:
    flow, folder = Workflow("page", state=Page, steps=[write, polish]), tmp_path / "output"
    async with Engine(":memory:", workflows=[flow], signals=False) as engine:
        session = await engine.start(flow, session_id="s1", folder=folder)
        await session.outcome()
        (folder / OWN / "done" / "polish.json").unlink()  # as if the process had been killed before it
        await session.rewind("polish")
        assert [each.state for each in await session.artifacts()] == ["valid"]
        await (await session.resume()).outcome()
        assert (folder / "page.md").read_text() == "The first version.\nPolished.\n"


# too short


@step(writes="memo", publishes=Artifact("4-final.md", min_bytes=1))
async def finalize(header: str | None, sections: dict[str, str]) -> str:
    return f"{header or ''}{''.join(sections.values())}Final call {calls('finalize')}.\n"


lowered = Workflow("memo", state=Memo, steps=[research, draft, header, finalize])


@pytest.mark.covers("S4.86", "S4.87")
@on_loop
async def test_a_text_below_the_least_size_is_named_and_kept_and_can_be_adopted_with_a_lower_one(desk: Desk) -> None:
    desk.file("4-final.md").write_text("## short")
    plan = await plan_of(desk)
    assert plan.obstacles == (
        "4-final.md is invalid: it has 8 bytes; a file below 20 bytes counts as incomplete; to adopt it, lower"
        " min_bytes= of its Artifact",
    )
    for edits in (None, "accept"):
        with pytest.raises(UndecidedEdits, match="lower min_bytes="):
            await desk.resume(edits=edits)
    desk.workflow = lowered
    assert (await desk.states())["4-final.md"] == "edited"
    outcome = await desk.resume(edits="accept")
    assert (outcome.state.memo, calls.taken()) == ("## short", [])
    desk.workflow = memo


@on_loop
async def test_a_broken_file_is_asked_about_also_if_its_step_runs_again_because_another_file_is_missing(
    desk: Desk,
) -> None:
    desk.file(TEAM).write_text("short")
    desk.file("2-sections/03-risks.md").unlink()
    with pytest.raises(UndecidedEdits, match=r"02-team.md is invalid"):
        await desk.resume()
    assert calls.taken() == []
    await desk.resume(rerun="draft")
    assert desk.bin() == [b"short"]
    assert len(await set_aside(desk)) == 1


@on_loop
async def test_a_broken_twin_that_looks_at_the_files_in_the_log_only_is_caught(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the session recorded once counts as its own: what the put-back tests are there for."""
    monkeypatch.setattr("pausepoint.artifacts.status.put_back", lambda *args: False)
    old = desk.file(TEAM).read_bytes()
    desk.file(TEAM).write_text(MINE)
    await desk.resume(edits="accept")
    desk.file(TEAM).write_bytes(old)
    assert (await desk.states())[TEAM] == "valid"
