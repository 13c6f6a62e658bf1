"""What a session is made of is in its folder: rebuilt in another store, it has the very state that it had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Append, Artifact, Engine, Session, Workflow, guard, route, step
from pausepoint.artifacts import detect
from pausepoint.definition.artifacts import OWN
from pausepoint.errors import FolderRefused
from tests.artifacts.pipeline import Desk, Finding, Memo, calls, memo
from tests.support.loop import on_loop


class Plan(BaseModel):
    title: str = ""
    body: str = ""


class Talk(BaseModel):
    round: int = 0
    said: Annotated[list[str], Append] = []
    opening: str = ""
    closing: str = ""
    plan: Plan = Plan()


@step(writes=("round", "said", "opening", "closing"))
async def speak(round: int) -> dict[str, Any]:
    written = {"opening": "Good day."} if round == 0 else {"closing": f"Bye, {round}."}
    return {"round": round + 1, "said": [f"words of round {round}"], **written}


@step(writes="plan", publishes=Artifact("plan.md", carries="plan.body", min_bytes=1))
async def plan(round: int) -> Plan:
    return Plan(title=f"Plan {round}", body=f"What to do, {round} times.\n")


@route(after="plan")
def enough(round: int) -> Literal["speak"] | None:
    return "speak" if round < 3 else None


talk = Workflow("talk", state=Talk, steps=[speak, plan], routes=[enough])


async def same_elsewhere(path: Path, workflow: Workflow[Any], folder: Path, state: Any) -> None:
    """Twice: what is rebuilt writes its completion records anew, and they are as good as the first."""
    for number in (1, 2):
        async with Engine(path / f"{workflow.name}-{number}.db", signals=False) as engine:
            session = await engine.rebuild(folder, workflow, session_id=f"again-{number}")
            outcome = await (await session.resume()).outcome()
        assert outcome.state == state


@on_loop
async def test_of_a_loop_all_rounds_are_in_the_folder_although_a_step_has_one_record(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        outcome = await (await engine.start(talk, folder=tmp_path / "out")).outcome()
    assert len(outcome.state.said) == 3
    assert (outcome.state.opening, outcome.state.plan.title) == ("Good day.", "Plan 3")
    await same_elsewhere(tmp_path, talk, tmp_path / "out", outcome.state)


@on_loop
async def test_edits_of_the_state_are_in_the_folder_whenever_they_were_made_and_whoever_read_them(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session: Session[Memo] = await engine.start(
            memo, company="Fern", session_id="s1", folder=desk.folder, paused=True
        )
        await session.edit(company="Moss")  # before the first step
        await (await session.resume(pause_after="draft")).outcome()
        await session.edit(score=1.0)  # nobody reads it
        await (await session.resume()).outcome()
        await session.edit(outline=["01-intro"])  # behind the last step
        outcome = await (await session.resume()).outcome()
    assert (outcome.state.company, outcome.state.score, outcome.state.outline) == ("Moss", 1.0, ["01-intro"])
    await same_elsewhere(tmp_path, memo, desk.folder, outcome.state)


@on_loop
async def test_an_edit_that_a_rewind_has_left_behind_is_not_in_the_folder_any_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    async with desk.engine() as engine:
        await engine.session("s1").edit(score=1.0)
        await (await engine.session("s1").resume()).outcome()
        assert (desk.folder / OWN / "edited.json").exists()
        await engine.session("s1").rewind("finalize")
        outcome = await (await engine.session("s1").resume()).outcome()
    assert outcome.state.score is None
    await same_elsewhere(tmp_path, memo, desk.folder, outcome.state)


@on_loop
async def test_a_session_that_did_not_begin_with_the_first_step_is_known_by_its_folder(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    calls.taken()
    async with desk.engine() as engine:
        fork = await engine.session("s1").fork(at_step="header", session_id="s2", folder=tmp_path / "fork")
        state = (await fork.outcome()).state
        given = Memo(company="Oak", research=[Finding(claim="Oak grows oaks.")])
        late = await engine.start(memo, given, at_step="draft", session_id="s3", folder=tmp_path / "late")
        later_state = (await late.outcome()).state
    assert calls.taken()[:2] == ["header", "finalize"]
    for folder, expected in ((tmp_path / "fork", state), (tmp_path / "late", later_state)):
        found = detect(folder, memo)
        assert (found.resume_at, found.inconsistent) == ("complete", ())
        async with Engine(tmp_path / f"{folder.name}.db", signals=False) as engine:
            outcome = await (await (await engine.rebuild(folder, memo)).resume()).outcome()
        assert outcome.state == expected
    assert calls.taken() == []


@on_loop
async def test_the_beginning_of_a_session_is_noted_anew_if_its_note_is_lost(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session = await engine.start(memo, company="Fern", session_id="s1", folder=desk.folder, paused=True)
        await session.edit(score=2.0)
        await (await session.resume()).outcome()
        (desk.folder / OWN / "session.json").unlink()
        outcome = await (await session.resume(rerun="finalize")).outcome()
    assert outcome.state.score == 2.0
    await same_elsewhere(tmp_path, memo, desk.folder, outcome.state)


@on_loop
async def test_a_completion_record_says_the_hash_the_version_and_whose_work_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    note = desk.folder / OWN / "done" / "research.json"
    work = json.loads(note.read_text())["work"]
    assert (work["step"], work["version"], work["by"]) == ("research", 1, None)
    assert len(work["files"][0]["sha256"]) == 64
    desk.edit_research()
    await desk.resume(edits="accept", by="ada")
    edited = json.loads(note.read_text())["work"]
    assert edited["by"] == "ada"
    assert edited["files"][0]["sha256"] != work["files"][0]["sha256"]


@on_loop
async def test_a_note_of_edits_that_is_damaged_is_refused_by_its_name(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.run()
    (desk.folder / OWN / "edited.json").write_text("{")
    with pytest.raises(
        FolderRefused, match=r"edited\.json is damaged .* Delete it. The last edits of the state are then lost"
    ):
        detect(desk.folder, memo)
    await desk.resume()
    assert detect(desk.folder, memo).complete, "who has the log puts it right"


class Note(BaseModel):
    topic: str = "ferns"
    text: str = ""
    parts: dict[str, str] = {}
    end: str = ""


@step(writes="text")
async def begin(topic: str) -> str:
    return f"on {topic}"


@step(writes="text")
async def polish(text: str) -> str:
    return f"polished({text})"


@step(writes="parts", publishes=Artifact("parts/*.md", min_bytes=1))
async def divide() -> dict[str, str]:
    return {"1": "one", "2": "two"}


@step(writes="end", publishes=Artifact("end.md", min_bytes=1))
async def close(text: str, parts: dict[str, str]) -> str:
    return f"{text}: {', '.join(parts.values())}"


note = Workflow("note", state=Note, steps=[begin, polish, divide, close])


async def redone_elsewhere(path: Path, session: Session[Note], steps: list[str]) -> None:
    """Each step run again, here and in a session that is made anew of the folder, comes to the same."""
    for name in steps:
        shutil.copytree(path / "out", path / name)
        async with Engine(path / f"{name}.db", signals=False) as engine:
            rebuilt = await engine.rebuild(path / name, note)
            assert await rebuilt.state() == await session.state(), name
            there = await (await rebuilt.resume(rerun=name)).outcome()
        here = await (await session.resume(rerun=name)).outcome()
        assert there.state == here.state, name


@on_loop
async def test_a_step_that_is_redone_after_a_rebuild_sees_what_was_edited_before_it_ran(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        session = await engine.start(note, session_id="s1", folder=tmp_path / "out", paused=True)
        await (await session.resume(pause_after="begin")).outcome()
        await session.edit(text="by hand", topic="moss")
        outcome = await (await session.resume()).outcome()
        assert outcome.state.end == "polished(by hand): one, two"
        await redone_elsewhere(tmp_path, session, ["polish", "close", "begin"])
        assert (await session.state()).text == "polished(on moss)"


@on_loop
async def test_an_edit_of_what_files_show_is_in_the_folder_wherever_steps_are_redone(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        session = await engine.start(note, session_id="s1", folder=tmp_path / "out")
        await session.outcome()
        await session.edit(parts={"1": "ONE", "2": "TWO"})
        await (await session.resume(rerun="begin")).outcome()  # divide is kept, with the edit behind it
        (tmp_path / "out" / "parts" / "1.md").write_text("by hand")
        outcome = await (await session.resume(edits="accept")).outcome()
        assert outcome.state.parts == {"1": "by hand", "2": "TWO"}
        await redone_elsewhere(tmp_path, session, ["begin", "close", "polish"])
        assert (await session.state()).parts == {"1": "by hand", "2": "TWO"}


@guard(after="divide")
def allowed(topic: str) -> str | None:
    return "not about moss" if topic == "moss" else None


guarded = Workflow("guarded", state=Note, steps=[begin, polish, divide, close], guards=[allowed])


@on_loop
async def test_a_fork_that_began_behind_a_step_is_known_by_its_folder(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", signals=False) as engine:
        session = await engine.start(guarded, topic="moss", session_id="s1", folder=tmp_path / "first")
        assert (await session.outcome()).status.value == "paused"
        fork = await session.fork(topic="ferns", session_id="s2", folder=tmp_path / "held")
        held = (await fork.outcome()).state
        ended = (await (await fork.fork(session_id="s3", folder=tmp_path / "ended")).outcome()).state
    assert held == ended
    for name in ("held", "ended"):
        assert detect(tmp_path / name, guarded).inconsistent == ()
        async with Engine(tmp_path / f"{name}.db", signals=False) as engine:
            rebuilt = await engine.rebuild(tmp_path / name, guarded)
            outcome = await (await rebuilt.resume()).outcome()
            ran = [each.step for each in await rebuilt.checkpoints()]
        assert (outcome.status.value, outcome.state) == ("completed", held)
        assert ran == ["close"] * (name == "held"), "what was done before the fork is not done again"
