"""A loop and its artifacts: what was edited is read anew in every round that has read it, not in the last one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Engine, Session, Workflow, route, step
from tests.artifacts.pipeline import calls
from tests.support.loop import on_loop


class Paper(BaseModel):
    round: int = 0
    sources: str = ""
    date: str = ""
    draft: str = ""
    remark: str = ""
    final: str = ""


@step(writes="sources", publishes=Artifact("sources.md", min_bytes=1))
async def collect() -> str:
    calls("collect")
    return "old"


@step(writes="date", publishes=Artifact("date.md", min_bytes=1))
async def stamp() -> str:
    calls("stamp")
    return "May"


@step(writes=("draft", "round"), publishes=Artifact("draft.md", carries="draft", min_bytes=1))
async def write(round: int, sources: str, draft: str) -> dict[str, str | int]:
    calls("write")
    return {"draft": f"{draft}[{sources} {round}]", "round": round + 1}


@step(writes="remark", publishes=Artifact("remark.md", min_bytes=1))
async def review(draft: str) -> str:
    calls("review")
    return f"{len(draft)} characters of {draft}"


@step(writes="final", publishes=Artifact("final.md", min_bytes=1))
async def finish(draft: str, remark: str, date: str) -> str:
    calls("finish")
    return f"{draft} {remark} {date}"


@route(after="review")
def enough(round: int) -> Literal["write", "finish"]:
    return "write" if round < 3 else "finish"


@route(after="write")
def reviewed_once(round: int) -> Literal["review", "finish"]:
    return "review" if round < 2 else "finish"


paper = Workflow("paper", state=Paper, steps=[collect, stamp, write, review, finish], routes=[enough])
brief = Workflow("brief", state=Paper, steps=[collect, stamp, write, review, finish], routes=[enough, reviewed_once])
"""Only the first of its two drafts is reviewed."""


@step(writes="remark", publishes=Artifact("remark.md", min_bytes=1))
async def note(draft: str, date: str) -> str:
    calls("note")
    return f"{draft} {date}"


@route(after="note")
def three_times(round: int) -> Literal["write"] | None:
    return "write" if round < 3 else None


dated = Workflow("dated", state=Paper, steps=[collect, stamp, write, note], routes=[three_times])

ROUND = ["write", "review"]


async def started(engine: Engine, workflow: Workflow[Paper], folder: Path, until: str | None = None) -> Session[Paper]:
    calls.taken()
    session = await engine.start(workflow, session_id="s1", folder=folder, paused=True)
    await (await session.resume(pause_after=until)).outcome()
    return session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@on_loop
async def test_an_edit_of_what_every_round_has_read_is_redone_from_the_first_round_on(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder)
        assert calls.taken() == ["collect", "stamp", *ROUND * 3, "finish"]
        (folder / "sources.md").write_text("new")
        verdicts = [each.verdict for each in await session.plan()]
        outcome = await (await session.resume(edits="accept")).outcome()
        assert {each.state for each in await session.artifacts()} == {"valid"}
    assert verdicts == ["done", "done", "next", "will run", "will run"]
    assert calls.taken() == [*ROUND * 3, "finish"]
    assert outcome.state.draft == "[new 0][new 1][new 2]"


@on_loop
async def test_the_same_in_the_middle_of_a_loop(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder, until="review")
        await (await session.resume(pause_after="review")).outcome()
        assert calls.taken() == ["collect", "stamp", *ROUND * 2]
        (folder / "sources.md").write_text("new")
        outcome = await (await session.resume(edits="accept")).outcome()
    assert calls.taken() == [*ROUND * 3, "finish"]
    assert outcome.state.draft == "[new 0][new 1][new 2]"


@on_loop
async def test_who_has_read_an_earlier_round_is_stale_with_it(folder: Path) -> None:
    """The review was made of the first draft, which nothing in the folder shows any more."""
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, brief, folder)
        assert calls.taken() == ["collect", "stamp", "write", "review", "write", "finish"]
        (folder / "sources.md").write_text("new")
        assert [each.step for each in (await session.plan()).stale] == ["review", "write", "finish"]
        outcome = await (await session.resume(edits="accept")).outcome()
    assert calls.taken() == ["write", "review", "write", "finish"]
    assert outcome.state.final == "[new 0][new 1] 7 characters of [new 0] May"


@on_loop
async def test_what_only_the_last_round_has_left_is_made_again_by_the_last_round_alone(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder)
        calls.taken()
        (folder / "draft.md").unlink()
        await (await session.resume()).outcome()
        assert calls.taken() == [*ROUND, "finish"]
        (folder / "draft.md").write_text("[by hand]")
        outcome = await (await session.resume(edits="accept")).outcome()
        assert calls.taken() == ["review", "finish"]
        (folder / "date.md").write_text("June")
        outcome = await (await session.resume(edits="accept")).outcome()
    assert calls.taken() == ["finish"]
    assert outcome.state.final == "[by hand] 9 characters of [by hand] June"


@on_loop
async def test_a_file_edited_after_its_field_was_edited_in_the_state_counts_in_every_round(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder, until="review")
        await session.edit(sources="edited")
        outcome = await (await session.resume()).outcome()
        assert outcome.state.draft == "[old 0][edited 1][edited 2]"
        (folder / "sources.md").write_text("new")
        outcome = await (await session.resume(edits="accept")).outcome()
    assert (outcome.state.sources, outcome.state.draft) == ("new", "[new 0][new 1][new 2]")


@on_loop
async def test_a_plan_says_of_a_step_whose_rounds_are_passed_once_more_that_it_may_run(folder: Path) -> None:
    """Nothing that `write` has read was edited, but only its last visit could be kept."""
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, dated, folder)
        (folder / "date.md").write_text("June")
        verdicts = {each.step: each.verdict for each in await session.plan()}
        calls.taken()
        outcome = await (await session.resume(edits="accept")).outcome()
    assert verdicts == {"collect": "done", "stamp": "done", "write": "may run", "note": "next"}
    assert calls.taken() == ["note", "write", "note", "write", "note"]
    assert outcome.state.remark == "[old 0][old 1][old 2] June"


@on_loop
async def test_a_plan_in_the_middle_of_a_loop_has_one_step_that_comes_next(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder, until="review")
        (folder / "draft.md").write_text("[by hand]")
        verdicts = {each.step: each.verdict for each in await session.plan()}
        calls.taken()
        await (await session.resume(edits="accept", pause_after="write")).outcome()
    assert verdicts == {"collect": "done", "stamp": "done", "write": "may run", "review": "next", "finish": "may run"}
    assert calls.taken() == ["review", "write"]


@on_loop
async def test_an_edit_of_the_state_in_the_middle_of_a_loop_is_known_by_the_folder_alone(folder: Path) -> None:
    async with Engine(folder.parent / "hold.db", signals=False) as engine:
        session = await started(engine, paper, folder, until="review")
        await session.edit(sources="edited")
        outcome = await (await session.resume()).outcome()
    calls.taken()
    async with Engine(folder.parent / "other.db", signals=False) as engine:
        rebuilt = await (await (await engine.rebuild(folder, paper)).resume()).outcome()
    assert (rebuilt.state, calls.taken()) == (outcome.state, [])
    assert rebuilt.state.sources == "edited"
