"""What runs again, and what it sees, where edits of files, edits of the state and rewinds come together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Merge, Workflow, step
from pausepoint.errors import UndecidedEdits
from tests.artifacts.pipeline import Desk, Finding, Memo, calls, in_folder
from tests.support.loop import on_loop

SECTIONS = ["01-intro", "02-team", "03-risks"]


# edits of the state


@on_loop
async def test_an_edit_of_the_state_stays_when_a_later_redo_goes_back_further_than_the_one_that_carried_it(
    desk: Desk,
) -> None:
    async with desk.engine() as engine:
        await engine.session("s1").edit(company="Moss")
        await (await engine.session("s1").resume(rerun="finalize")).outcome()
        outcome = await (await engine.session("s1").resume(rerun="research")).outcome()
        assert outcome.state.company == "Moss"
        outcome = await (await engine.session("s1").resume(rerun="draft")).outcome()
    assert outcome.state.company == "Moss"
    assert calls.taken() == ["finalize", *["research", "draft", *SECTIONS, "finalize"], "draft", *SECTIONS, "finalize"]


@on_loop
async def test_a_step_that_is_to_run_again_sees_what_was_edited_since_and_others_are_kept(desk: Desk) -> None:
    """header is kept, although it reads the company: an edit of the state does not make finished steps stale."""
    async with desk.engine() as engine:
        await engine.session("s1").edit(outline=["01-intro"], company="Moss")
        verdicts = {each.step: each.verdict for each in await engine.session("s1").plan(rerun="draft")}
        outcome = await (await engine.session("s1").resume(rerun="draft")).outcome()
    assert verdicts == {"research": "done", "draft": "next", "header": "done", "finalize": "will run"}
    assert calls.taken() == ["draft", "01-intro", "finalize"]
    assert [*outcome.state.sections] == ["01-intro"]
    assert outcome.state.company == "Moss"


@on_loop
async def test_an_edit_of_what_a_kept_step_wrote_stays_behind_it_however_often_it_is_kept(desk: Desk) -> None:
    desk.file("header.md").write_text("# by Ada\n")
    async with desk.engine() as engine:
        await engine.session("s1").adopt(by="ada")
        await engine.session("s1").edit(header="# by Bo\n")
        for _ in range(2):
            outcome = await (await engine.session("s1").resume(rerun="draft")).outcome()
            assert outcome.state.header == "# by Bo\n"
            assert outcome.state.memo.startswith("# by Bo\n")
    assert "header" not in calls.taken()


@on_loop
async def test_a_file_that_is_edited_after_its_field_was_edited_in_the_state_takes_its_place(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session = await engine.start(desk.workflow, company="Fern", session_id="s1", folder=desk.folder, paused=True)
        await (await session.resume(pause_after="research")).outcome()
        await session.edit(research=[Finding(claim="Edited in the state.")])
        desk.edit_research("Moss, in the file.")
        outcome = await (await session.resume()).outcome()
    assert outcome.state.research[0].claim == "Moss, in the file."
    assert calls.taken() == ["research", "draft", *SECTIONS, "header", "finalize"]


@on_loop
async def test_who_has_read_an_edit_of_the_state_is_stale_when_the_file_is_edited_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session = await engine.start(desk.workflow, company="Fern", session_id="s1", folder=desk.folder, paused=True)
        await (await session.resume(pause_after="research")).outcome()
        await session.edit(research=[Finding(claim="Edited in the state.")])
        await (await session.resume()).outcome()
        calls.taken()
        desk.edit_research("Moss, in the file.")
        with pytest.raises(UndecidedEdits):
            await session.resume()
        outcome = await (await session.resume(edits="accept")).outcome()
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "Moss, in the file." in outcome.state.memo


# decisions


@on_loop
async def test_discarding_puts_back_also_what_nobody_has_built_on(desk: Desk) -> None:
    recorded = desk.file("4-final.md").read_bytes()
    desk.file("4-final.md").write_text("## by hand, and nobody reads it\n")
    outcome = await desk.resume(edits="discard")
    assert desk.file("4-final.md").read_bytes() == recorded
    assert outcome.state.memo.encode() == recorded
    assert desk.bin() == [b"## by hand, and nobody reads it\n"]


@on_loop
async def test_where_nothing_was_edited_nothing_is_adopted_and_what_has_ended_stays_so(desk: Desk) -> None:
    async with desk.engine() as engine:
        before = await engine.session("s1").info()
        assert await engine.session("s1").adopt() == []
        after = await engine.session("s1").info()
    assert (after.seq, after.status) == (before.seq, before.status)


@on_loop
async def test_a_newline_less_at_the_end_is_an_edit_and_no_damage(desk: Desk) -> None:
    for path in ("1-research.json", "header.md"):
        desk.file(path).write_text(desk.file(path).read_text().rstrip("\n"))
    states = await desk.states()
    assert (states["1-research.json"], states["header.md"]) == ("edited", "edited")


@on_loop
async def test_a_json_text_that_was_made_shorter_by_hand_is_whole(desk: Desk) -> None:
    desk.file("1-research.json").write_text(json.dumps([]))
    assert (await desk.states())["1-research.json"] == "invalid", "less than the least size"
    desk.file("1-research.json").write_text('[{"claim": "Moss."}]')
    assert (await desk.states())["1-research.json"] == "edited"


# the same in another form


def indent_anew(desk: Desk, path: str = "1-research.json", indent: int | None = 7) -> bytes:
    """As an editor does that formats what it saves."""
    desk.file(path).write_text(json.dumps(json.loads(desk.file(path).read_text()), indent=indent))
    return desk.file(path).read_bytes()


@on_loop
async def test_what_is_only_written_otherwise_is_taken_in_and_nobody_is_stale(desk: Desk) -> None:
    for indent in (7, None):
        data = indent_anew(desk, indent=indent)
        found = await desk.ask(lambda engine: engine.session("s1").artifacts())
        assert [(each.state, each.why) for each in found if each.state != "valid"] == [
            ("edited", "the file was reformatted; its content is unchanged")
        ]
        plan = await desk.ask(lambda engine: engine.session("s1").plan())
        assert (plan.undecided, plan.stale, {each.verdict for each in plan}) == ((), (), {"done"})
        assert (await desk.resume(by="ada")).status.value == "completed"
        assert (calls.taken(), desk.file("1-research.json").read_bytes()) == ([], data)
        assert set((await desk.states()).values()) == {"valid"}
    assert [kind for kind, _ in await desk.events()].count("artifact.edited") == 2


@on_loop
async def test_who_has_read_it_is_stale_by_an_edit_that_comes_after_another_form(desk: Desk) -> None:
    form = indent_anew(desk)
    await desk.resume()
    desk.edit_research()
    with pytest.raises(UndecidedEdits):
        await desk.resume()
    await desk.resume(edits="discard")
    assert desk.file("1-research.json").read_bytes() == form
    desk.edit_research()
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "grows moss" in outcome.state.memo


@on_loop
async def test_another_form_stays_when_steps_before_and_behind_it_run_again(desk: Desk) -> None:
    form = indent_anew(desk)
    await desk.resume()
    async with desk.engine() as engine:
        await (await engine.session("s1").resume(rerun="draft")).outcome()
        await engine.session("s1").rewind("header")
        outcome = await (await engine.session("s1").resume()).outcome()
    assert desk.file("1-research.json").read_bytes() == form
    assert outcome.state.research[0].claim == "Fern grows ferns, call 1."
    assert calls.taken() == ["draft", *SECTIONS, "finalize", "header", "finalize"]


@on_loop
async def test_a_shorter_form_is_no_remnant(tmp_path: Path) -> None:
    """Below the least size, but all that was recorded is in it."""

    @step(writes="research", publishes=Artifact("1-research.json", min_bytes=60))
    async def find(company: str) -> list[Finding]:
        return [Finding(claim="Ferns, many.")]

    desk = Desk(tmp_path, Workflow("short", state=Memo, steps=[find]))
    await desk.run()
    assert len(indent_anew(desk, indent=None)) < 60
    assert await desk.states() == {"1-research.json": "edited"}
    assert (await desk.resume()).status.value == "completed"


# rewinds


@on_loop
async def test_what_an_adopted_edit_has_made_stale_stays_stale_over_a_rewind_to_a_later_step(desk: Desk) -> None:
    desk.edit_research()
    async with desk.engine() as engine:
        await engine.session("s1").adopt(by="ada")
        await engine.session("s1").rewind("finalize")
        verdicts = {each.step: each.verdict for each in await engine.session("s1").plan()}
        outcome = await (await engine.session("s1").resume()).outcome()
    assert verdicts == {"research": "done", "draft": "next", "header": "done", "finalize": "will run"}
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "grows moss" in outcome.state.memo


@on_loop
async def test_files_that_a_step_does_not_leave_any_more_go_to_the_bin(desk: Desk) -> None:
    gone = desk.file("2-sections/03-risks.md").read_bytes()
    desk.file("2-sections/notes.md").write_text("mine\n")
    async with desk.engine() as engine:
        await engine.session("s1").edit(outline=["01-intro", "02-team"])
        await (await engine.session("s1").resume(rerun="draft")).outcome()
    sections = [path for path in in_folder(desk.folder) if path.startswith("2-")]
    assert sections == ["2-sections/01-intro.md", "2-sections/02-team.md", "2-sections/notes.md"]
    assert desk.bin() == [gone]


@step(writes="research", publishes=Artifact("1-research.json", min_bytes=5))
async def study(company: str) -> list[Finding]:
    return [Finding(claim=f"{company} grows ferns.")]


def paragraph(name: str) -> str:
    return f"{name}, {calls(name)}"


def sections_of(stops: list[bool]) -> Workflow[Memo]:
    @step(writes="sections", publishes=Artifact("2-sections/*.md", min_bytes=5))
    async def compose(research: list[Finding], ctx: Context) -> dict[str, str]:
        """What it remembers does not show what it was made of."""
        one = await ctx.do(paragraph, "one")
        if stops.pop():
            raise ValueError("half way")
        return {"one": f"{one}: {research[0].claim}", "two": await ctx.do(paragraph, "two")}

    return Workflow("study", state=Memo, steps=[study, compose])


@pytest.mark.parametrize("edited", [True, False])
@on_loop
async def test_a_visit_that_remembers_work_on_what_was_edited_begins_anew(tmp_path: Path, edited: bool) -> None:
    desk = Desk(tmp_path, sections_of([False, True]))
    assert (await desk.run()).status.value == "failed"
    if edited:
        desk.edit_research()
    plan = await desk.ask(lambda engine: engine.session("s1").plan())
    assert ("starts again" in plan["compose"].why) is edited
    outcome = await desk.resume()
    assert outcome.status.value == "completed"
    assert calls.taken() == (["one", "one", "two"] if edited else ["one", "two"])
    assert ("moss" in outcome.state.sections["one"]) is edited


# what was made of what is made again


@on_loop
async def test_who_has_read_an_edit_of_what_a_step_wrote_is_stale_when_that_step_runs_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session = await engine.start(desk.workflow, company="Fern", session_id="s1", folder=desk.folder, paused=True)
        await (await session.resume(pause_after="header")).outcome()
        await session.edit(header="# by Bo\n")
        assert (await (await session.resume()).outcome()).state.memo.startswith("# by Bo\n")
        calls.taken()
        verdicts = [each.verdict for each in await session.plan(rerun="header")]
        await (await session.resume(rerun="header")).outcome()
    assert verdicts == ["done", "done", "next", "will run"]
    assert calls.taken() == ["header", "finalize"]


class Heap(BaseModel):
    heap: Annotated[dict[str, str], Merge] = {}
    total: str = ""


@on_loop
async def test_who_has_read_what_another_step_added_to_is_stale_when_what_it_was_added_to_is_made_again(
    tmp_path: Path,
) -> None:
    @step(writes="heap", publishes=Artifact("one.json", carries="heap", min_bytes=1))
    async def one() -> dict[str, str]:
        return {"one": str(calls("one"))}

    @step(writes="heap")
    async def two() -> dict[str, str]:
        calls("two")
        return {"two": "b"}

    @step(writes="total")
    async def total(heap: dict[str, str]) -> str:
        calls("total")
        return "".join(heap.values())

    flow = Workflow("heap", state=Heap, steps=[one, two, total])
    calls.taken()
    async with Engine(tmp_path / "hold.db", workflows=[flow], signals=False) as engine:
        session = await engine.start(flow, session_id="s1", folder=tmp_path / "out")
        assert (await session.outcome()).state.total == "1b"
        verdicts = [each.verdict for each in await session.plan(rerun="one")]
        outcome = await (await session.resume(rerun="one")).outcome()
    assert verdicts == ["next", "done", "will run"]
    assert outcome.state.total == "2b"
    assert calls.taken() == ["one", "two", "total", "one", "total"]


@on_loop
async def test_a_plan_says_of_what_reads_something_that_was_never_written_that_it_may_run(tmp_path: Path) -> None:
    """The header was skipped. If it runs now, who reads it runs again; if it is skipped once more, all is kept."""

    @step(writes="header", when=lambda company: company != "Fern")
    async def head(company: str) -> str:
        calls("head")
        return f"# {company}"

    @step(writes="memo", publishes=Artifact("memo.md", min_bytes=1))
    async def end(header: str | None) -> str:
        calls("end")
        return f"{header}: the memo"

    desk = Desk(tmp_path, Workflow("skipping", state=Memo, steps=[study, head, end]))
    await desk.run()
    assert calls.taken() == ["end"]
    async with desk.engine() as engine:
        plan = await engine.session("s1").plan(rerun="head")
        assert [each.verdict for each in plan] == ["done", "next", "may run"]
        assert plan["end"].why == "runs if its input header is written"
        await (await engine.session("s1").resume(rerun="head")).outcome()
        assert calls.taken() == []
        await engine.session("s1").edit(company="Moss")
        await (await engine.session("s1").resume(rerun="head")).outcome()
    assert calls.taken() == ["head", "end"]


@on_loop
async def test_of_edits_in_the_state_and_in_files_the_later_one_counts_however_far_a_redo_goes_back(desk: Desk) -> None:
    """The rest of the field stays as it was edited in the state."""
    sections = {"01-intro": "## one", "02-team": "## two", "03-risks": "## three"}
    async with desk.engine() as engine:
        await engine.session("s1").edit(sections=sections)
        desk.file("2-sections/01-intro.md").write_text("## by hand, and long enough")
        expected = sections | {"01-intro": "## by hand, and long enough"}
        orders: list[dict[str, Any]] = [{"edits": "accept"}, {"rerun": "finalize"}, {"rerun": "header"}]
        for options in orders:
            outcome: Any = await (await engine.session("s1").resume(**options)).outcome()
            assert outcome.state.sections == expected
            assert "## by hand, and long enough## two## three" in outcome.state.memo
        await engine.session("s1").edit(sections=sections)
        outcome = await (await engine.session("s1").resume(rerun=["header", "finalize"])).outcome()
    assert outcome.state.sections == sections
    assert "## one## two## three" in outcome.state.memo


@on_loop
async def test_a_step_that_was_to_be_kept_runs_if_it_is_named_in_the_middle_of_a_redo(desk: Desk) -> None:
    await desk.resume(rerun=["draft"], pause_after="draft")
    calls.taken()
    assert (await desk.plan())["header"] == "done"
    plan = await desk.ask(lambda engine: engine.session("s1").plan(rerun=["header"]))
    assert {each.step: each.verdict for each in plan}["header"] != "done"
    await desk.resume(rerun=["header"])
    assert calls.taken() == ["header", "finalize"]
