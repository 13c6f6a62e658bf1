"""How artifacts stand, each way by example, and that a resume does what the plan says: calls are counted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Workflow, migrate
from pausepoint.errors import DefinitionError, FolderRefused, InputConflict, UndecidedEdits, VerbRefused
from tests.artifacts.pipeline import FILES, Desk, Memo, calls, draft, finalize, header, in_folder, rated, research
from tests.support.loop import on_loop

SECTIONS = ["01-intro", "02-team", "03-risks"]
ALL = ["research", "draft", *SECTIONS, "header", "finalize"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A session that has completed."""
    desk = Desk(tmp_path)
    outcome = asyncio.run(desk.run())
    assert outcome.status.value == "completed"
    assert calls.taken() == ALL
    return desk


@pytest.mark.covers("S4.25", "S4.90")
@on_loop
async def test_what_was_left_is_valid_and_nothing_runs_again(desk: Desk) -> None:
    assert in_folder(desk.folder) == FILES
    assert set((await desk.states()).values()) == {"valid"}
    assert set((await desk.plan()).values()) == {"done"}
    outcome = await desk.resume()
    assert (outcome.status.value, calls.taken()) == ("completed", [])
    assert json.loads(desk.file("1-research.json").read_text()) == [{"claim": "Fern grows ferns, call 1.", "weight": 2}]
    assert desk.file("4-final.md").read_text() == outcome.state.memo


@pytest.mark.covers("S4.97")
@on_loop
async def test_an_edit_with_finished_readers_is_not_taken_in_without_a_decision(desk: Desk) -> None:
    desk.edit_research()
    assert (await desk.states())["1-research.json"] == "edited"
    async with desk.engine() as engine:
        plan = await engine.session("s1").plan()
        before = (await engine.session("s1").info()).seq
        with pytest.raises(UndecidedEdits) as refused:
            await engine.session("s1").resume()
        assert (await engine.session("s1").info()).seq == before
    assert refused.value.paths == ["1-research.json"]
    assert refused.value.stale == ["draft", "finalize"]
    assert "draft (" in str(refused.value), "what redoing costs is said"
    verdicts = {each.step: each.verdict for each in plan}
    assert verdicts == {"research": "done", "draft": "next", "header": "done", "finalize": "will run"}
    assert "reused" in plan["header"].why
    assert plan.undecided == ("1-research.json",)
    assert [(each.step, each.seconds > 0) for each in plan.stale] == [("draft", True), ("finalize", True)]
    assert (calls.taken(), desk.bin()) == ([], [])


@pytest.mark.covers("S4.81", "S4.95", "S4.97", "S4.109")
@on_loop
async def test_an_accepted_edit_is_recorded_and_exactly_its_readers_run_again(desk: Desk) -> None:
    desk.edit_research()
    outcome = await desk.resume(edits="accept", by="ada")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"], "header has not read it, and comes after"
    assert "grows moss" in outcome.state.memo
    assert outcome.state.research[0].claim == "Fern was edited by hand, and grows moss."
    assert set((await desk.states()).values()) == {"valid"}
    events = await desk.events()
    assert ("artifact.edited", "edited by ada: 1-research.json") in events
    assert ("step.skipped", "header#1 skipped: reused: its inputs are unchanged") in events
    by = {each.path: each.by for each in await desk.ask(lambda engine: engine.session("s1").artifacts())}
    assert by["1-research.json"] == "ada"
    assert by["header.md"] is None
    assert (await desk.resume()).status.value == "completed"
    assert calls.taken() == []


@on_loop
async def test_a_discarded_edit_is_kept_aside_and_nothing_runs(desk: Desk) -> None:
    recorded = desk.file("1-research.json").read_bytes()
    desk.edit_research()
    edited = desk.file("1-research.json").read_bytes()
    outcome = await desk.resume(edits="discard")
    assert desk.file("1-research.json").read_bytes() == recorded
    assert desk.bin() == [edited]
    assert (outcome.status.value, calls.taken()) == ("completed", [])


@pytest.mark.covers("S4.95")
@on_loop
async def test_an_edit_that_nobody_has_read_is_taken_in_and_said(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.engine() as engine:
        session = await engine.start(
            desk.workflow, company="Fern", session_id="s1", folder=desk.folder, paused=True
        )  # fmt: skip
        await session.resume(pause_after="research")
        await session.outcome()
    assert calls.taken() == ["research"]
    desk.edit_research()
    outcome = await desk.resume(by="ada")
    assert calls.taken() == ALL[1:]
    assert "grows moss" in outcome.state.memo
    assert ("artifact.edited", "edited by ada: 1-research.json") in await desk.events()


@pytest.mark.covers("S4.75", "S4.85", "S4.96")
@on_loop
async def test_what_cannot_be_read_any_more_is_named_with_its_place_and_waits(desk: Desk) -> None:
    whole = desk.file("1-research.json").read_text()
    desk.file("1-research.json").write_text(whole[: len(whole) // 2])
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state == "invalid"
    ]
    assert (found.path, found.line, found.column > 0) == ("1-research.json", 3, True)
    for edits in (None, "accept"):
        with pytest.raises(UndecidedEdits, match=r"1-research\.json is invalid: line 3, column \d+"):
            await desk.resume(edits=edits)
    assert (calls.taken(), desk.bin()) == ([], [])
    await desk.resume(edits="discard")
    assert (desk.file("1-research.json").read_text(), calls.taken()) == (whole, [])
    assert len(desk.bin()) == 1


@on_loop
async def test_what_does_not_fit_the_model_is_named_with_its_place(desk: Desk) -> None:
    desk.file("1-research.json").write_text('[\n  {"claim": "a long enough claim",\n   "weight": "heavy"}\n]\n')
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state == "invalid"
    ]
    assert (found.line, found.column) == (3, 14)
    assert "0.weight" in found.why


@pytest.mark.covers("S4.91")
@on_loop
async def test_a_step_whose_artifact_is_broken_runs_again_on_demand_and_what_was_there_is_kept(desk: Desk) -> None:
    desk.file("1-research.json").write_text("[broken")
    outcome = await desk.resume(rerun="research")
    assert outcome.status.value == "completed"
    assert calls.taken() == ["research", "draft", *SECTIONS, "finalize"]
    assert desk.bin() == [b"[broken"]
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_a_text_that_is_cut_off_is_no_edit(desk: Desk) -> None:
    whole = desk.file("4-final.md").read_bytes()
    desk.file("4-final.md").write_bytes(whole[:40])
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state != "valid"
    ]
    assert (found.state, found.why) == ("invalid", f"line 4, column 13: cut off after 40 of {len(whole)} bytes")
    with pytest.raises(UndecidedEdits):
        await desk.resume()


@pytest.mark.covers("S4.88")
@on_loop
async def test_a_missing_file_makes_its_step_run_again_and_who_read_from_it(desk: Desk) -> None:
    desk.file("header.md").unlink()
    assert (await desk.states())["header.md"] == "missing"
    assert (await desk.states())["4-final.md"] == "stale"
    async with desk.engine() as engine:
        plan = await engine.session("s1").plan()
    assert (plan["header"].verdict, plan["header"].why) == ("next", "artifact missing: header.md")
    assert plan["finalize"].why == "upstream changed: header runs again"
    await desk.resume()
    assert calls.taken() == ["header", "finalize"]


@on_loop
async def test_only_the_missing_entries_are_made_again(desk: Desk) -> None:
    kept = desk.file("2-sections/01-intro.md").read_bytes()
    desk.file("2-sections/02-team.md").unlink()
    desk.file("2-sections/03-risks.md").unlink()
    outcome = await desk.resume()
    assert calls.taken() == ["draft", "02-team", "03-risks", "finalize"]
    assert desk.file("2-sections/01-intro.md").read_bytes() == kept
    assert in_folder(desk.folder) == FILES
    assert list(outcome.state.sections) == SECTIONS


@on_loop
async def test_entries_are_not_spared_if_their_input_has_changed(desk: Desk) -> None:
    desk.file("2-sections/02-team.md").unlink()
    desk.edit_research()
    await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]


@pytest.mark.covers("S4.74")
@on_loop
async def test_other_bytes_of_the_same_size_and_time_are_noticed(desk: Desk) -> None:
    file = desk.file("4-final.md")
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (await desk.states())["4-final.md"] == "edited"


@pytest.mark.covers("S4.86", "S4.87")
@on_loop
async def test_an_edit_below_the_least_size_is_a_remnant_but_what_the_step_left_is_not(desk: Desk) -> None:
    desk.file("4-final.md").write_text("## x")
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state != "valid"
    ]
    assert (found.state, "4 bytes" in found.why) == ("invalid", True)
    small = Desk(desk.path / "small")
    (desk.path / "small").mkdir()
    await small.run(company="F")
    assert small.file("header.md").stat().st_size < 100
    assert set((await small.states()).values()) == {"valid"}


@on_loop
async def test_an_edit_that_takes_away_what_has_to_be_there_is_invalid(desk: Desk) -> None:
    desk.file("4-final.md").write_text("no heading in here at all, only a text\n")
    [found] = [
        each for each in await desk.ask(lambda engine: engine.session("s1").artifacts()) if each.state != "valid"
    ]
    assert (found.state, found.why) == ("invalid", "its holds= check returned False")


@on_loop
async def test_an_edit_of_one_file_of_many_is_one_entry(desk: Desk) -> None:
    desk.file("2-sections/02-team.md").write_text("## 02-team\n\nAda, alone.\n")
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["finalize"]
    assert outcome.state.sections["02-team"] == "## 02-team\n\nAda, alone.\n"
    assert list(outcome.state.sections) == SECTIONS
    assert "Ada, alone." in outcome.state.memo


@on_loop
async def test_edits_of_a_step_that_runs_again_anyway_are_asked_about_and_not_lost(desk: Desk) -> None:
    desk.edit_research()
    desk.file("2-sections/02-team.md").write_text("## 02-team\n\nAda, alone.\n")
    with pytest.raises(UndecidedEdits) as refused:
        await desk.resume()
    assert refused.value.paths == ["1-research.json", "2-sections/02-team.md"]
    await desk.resume(edits="accept", by="ada")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    edits = desk.folder / ".pausepoint" / "edits"
    assert b"## 02-team\n\nAda, alone.\n" in [path.read_bytes() for path in edits.iterdir()]


@on_loop
async def test_a_second_edit_makes_stale_what_ran_after_the_first(desk: Desk) -> None:
    desk.edit_research("The first edit of this claim.")
    await desk.resume(edits="accept")
    calls.taken()
    desk.edit_research("The second edit of this claim.")
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "The second edit" in outcome.state.memo


@on_loop
async def test_an_edit_of_something_kept_stays_when_something_before_it_runs_again(desk: Desk) -> None:
    desk.file("header.md").write_text("# Fern, by Ada\n")
    await desk.resume(edits="accept")
    assert calls.taken() == ["finalize"]
    desk.edit_research()
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert outcome.state.header == "# Fern, by Ada\n"
    assert outcome.state.memo.startswith("# Fern, by Ada\n")


@on_loop
async def test_an_edit_of_the_state_stays_when_a_step_before_it_runs_again(desk: Desk) -> None:
    async with desk.engine() as engine:
        await engine.session("s1").edit(memo="## by hand, this time\n")
        await engine.session("s1").rewind("finalize")
        await engine.session("s1").edit(company="Moss")
    outcome = await desk.resume(rerun="draft")
    assert outcome.state.company == "Moss"
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]


@pytest.mark.covers("S4.43")
@on_loop
async def test_a_step_that_leaves_nothing_or_the_same_as_before_is_known_to_be_done(tmp_path: Path) -> None:
    desk = Desk(tmp_path, rated)
    await desk.run(company="Nameless")
    assert calls.taken() == ["research", "draft", *SECTIONS, "finalize", "rate"]
    assert "header.md" not in in_folder(desk.folder)
    assert set((await desk.plan()).values()) == {"done"}
    desk.file("4-final.md").unlink()
    await desk.resume()
    assert calls.taken() == ["finalize", "rate"], "a step without artifacts is stale by what it reads"


@on_loop
async def test_a_plan_and_a_resume_say_that_code_has_changed_and_keep_what_it_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pausepoint.engine.artifacts.code_of", lambda fn: f"new {fn.__name__}")
    async with desk.engine() as engine:
        plan = await engine.session("s1").plan()
    assert {each.verdict for each in plan} == {"done"}
    assert "its code has changed" in plan["draft"].why
    assert plan.changed == ("research", "draft", "header", "finalize")
    await desk.resume()
    assert "has changed since it ran; its artifacts are kept. resume(rerun=['draft'])" in caplog.text
    caplog.clear()
    monkeypatch.undo()
    await desk.resume()
    assert (calls.taken(), caplog.text) == ([], "")


@on_loop
async def test_a_rewind_makes_the_files_behind_it_ours_still_and_stale(desk: Desk) -> None:
    async with desk.engine() as engine:
        await engine.session("s1").rewind("draft")
        plan = await engine.session("s1").plan()
    assert [each.verdict for each in plan] == ["done", "next", "will run", "will run"]
    await desk.resume()
    assert calls.taken() == ["draft", *SECTIONS, "header", "finalize"]
    assert (desk.bin(), set((await desk.states()).values())) == ([], {"valid"})


@on_loop
async def test_an_edit_stays_when_the_session_is_rewound_to_a_later_step(desk: Desk) -> None:
    desk.edit_research()
    await desk.resume(edits="accept")
    edited = desk.file("1-research.json").read_bytes()
    desk.file("header.md").write_text("# Fern, by Ada\n")
    await desk.resume(edits="accept")
    calls.taken()
    async with desk.engine() as engine:
        await engine.session("s1").rewind("draft")
        outcome = await (await engine.session("s1").resume()).outcome()
    assert calls.taken() == ["draft", *SECTIONS, "header", "finalize"]
    assert "grows moss" in outcome.state.memo
    assert desk.file("1-research.json").read_bytes() == edited
    assert desk.file("header.md").read_text() == outcome.state.header == "# Fern, call 1\n", "made anew"
    async with desk.engine() as engine:
        await engine.session("s1").rewind("finalize")
        assert (await engine.session("s1").state()).model_dump()["research"][0]["claim"].endswith("grows moss.")


@on_loop
async def test_what_is_kept_and_spared_stays_so_over_an_interruption_unless_something_changes_again(desk: Desk) -> None:
    """The redoing is stopped half way, and another file is edited before it goes on."""
    desk.file("2-sections/02-team.md").unlink()
    async with desk.engine() as engine:
        await (await engine.session("s1").resume(pause_after="draft")).outcome()
        assert calls.taken() == ["draft", "02-team"]
        plan = await engine.session("s1").plan()
        assert [each.verdict for each in plan] == ["done", "done", "done", "will run"]
    desk.file("header.md").unlink()
    desk.file("1-research.json").write_text(json.dumps([{"claim": "Moss, after all of this."}]))
    async with desk.engine() as engine:
        plan = await engine.session("s1").plan()
        assert [each.verdict for each in plan] == ["done", "next", "done", "will run"]
        outcome = await (await engine.session("s1").resume(edits="accept")).outcome()
    assert calls.taken() == ["draft", *SECTIONS, "finalize"], "header is still kept"
    assert "Moss" in outcome.state.memo
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_adopt_and_restore_do_it_for_single_files_and_run_nothing(desk: Desk) -> None:
    whole = desk.file("header.md").read_bytes()
    desk.edit_research()
    desk.file("header.md").write_text("# Other\n")
    async with desk.engine() as engine:
        assert await engine.session("s1").restore(["header.md"]) == ["header.md"]
        stale = await engine.session("s1").adopt(["1-research.json"], by="ada", reason="a typo")
        with pytest.raises(VerbRefused, match=r"'header\.md' is valid"):
            await engine.session("s1").adopt(["header.md"])
        plan = await engine.session("s1").plan()
    assert desk.file("header.md").read_bytes() == whole
    assert [each.step for each in stale] == ["draft", "finalize"]
    assert [each.verdict for each in plan] == ["done", "next", "done", "will run"]
    assert (plan.undecided, calls.taken()) == ((), [])
    await desk.resume()
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]


@on_loop
async def test_what_a_resume_saved_counts_what_was_kept_behind_it(desk: Desk) -> None:
    desk.edit_research()
    outcome = await desk.resume(edits="accept")
    assert outcome.skipped_visits == 2, "research before, header behind"


@on_loop
async def test_something_else_at_the_place_of_an_artifact_is_set_aside(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.folder.mkdir()
    desk.file("1-research.json").write_text("{not ours")
    await desk.run()
    assert desk.bin() == [b"{not ours"]
    assert any(kind == "artifact.set_aside" for kind, _ in await desk.events())
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_a_fork_leaves_its_own_files_in_a_folder_of_its_own(desk: Desk) -> None:
    async with desk.engine() as engine:
        with pytest.raises(FolderRefused, match="needs a folder"):
            await engine.session("s1").fork(at_step="header", session_id="s2")
        assert (await engine.session("s1").plan_fork(at_step="header"))["header"].verdict == "next"
        session = await engine.session("s1").fork(at_step="header", session_id="s2", folder=desk.path / "other")
        outcome = await session.outcome()
        assert {each.state for each in await session.artifacts()} == {"valid"}
    assert (outcome.status.value, calls.taken()) == ("completed", ["header", "finalize"])
    assert in_folder(desk.path / "other") == ["4-final.md", "header.md"]
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_a_redacted_field_is_in_no_record_of_edits_and_kept_checkpoints(desk: Desk) -> None:
    desk.file("header.md").write_text("# Fern, a secret of Ada\n")
    await desk.resume(edits="accept")
    desk.edit_research()
    await desk.resume(edits="accept")
    async with desk.engine() as engine:
        await engine.session("s1").redact(field="header", value="")
        await engine.session("s1").redact(field="memo", value="")  # finalize has copied it
        row = await engine.store.get("s1")
        assert row is not None
        payloads = b"".join(record.payload for record in await engine.store.records(row.key, 1) if not record.redacted)
        assert (await engine.session("s1").verify()).ok
        assert (await engine.session("s1").state()).model_dump()["header"] == ""
    assert b"a secret of Ada" not in payloads


@on_loop
async def test_an_exported_session_finds_its_artifacts_in_the_folder_that_the_import_names(desk: Desk) -> None:
    desk.edit_research()
    await desk.resume(edits="accept")
    calls.taken()
    async with desk.engine() as engine, desk.engine("other.db") as other:
        await engine.session("s1").export(desk.path / "s1.jsonl")
        await other.import_session(desk.path / "s1.jsonl", folder=desk.folder)
        assert {each.state for each in await other.session("s1").artifacts()} == {"valid"}
        await (await other.session("s1").resume(rerun="header")).outcome()
        assert (await other.verify()).ok
    assert calls.taken() == ["header", "finalize"]


@on_loop
async def test_large_values_are_kept_and_redone_as_well(tmp_path: Path) -> None:
    """Above 16 KiB a value lies in the store by its hash."""
    desk = Desk(tmp_path)
    await desk.run(company="Fern" * 10_000)
    calls.taken()
    desk.edit_research("Moss " * 10_000)
    outcome = await desk.resume(edits="accept")
    assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert outcome.state.memo.startswith("# FernFern")
    assert outcome.state.memo.count("Moss ") == 30_000
    async with desk.engine() as engine:
        assert (await engine.verify()).ok
        await engine.gc(apply=True)
        assert (await engine.verify()).ok
    assert set((await desk.states()).values()) == {"valid"}


@on_loop
async def test_an_edit_that_was_taken_in_is_what_is_put_back(desk: Desk) -> None:
    desk.edit_research()
    desk.file("2-sections/02-team.md").write_text("## 02-team\n\nAda, alone.\n")
    desk.file("header.md").write_text("# Fern, by Ada\n")
    await desk.resume(edits="accept")  # draft runs again, and makes its section anew
    taken_in = {path: desk.file(path).read_bytes() for path in ("1-research.json", "header.md")}
    for path in taken_in:
        desk.file(path).write_text("[]   # broken" if path.endswith(".json") else "# something else, by Bob\n")
    await desk.resume(edits="discard")
    assert {path: desk.file(path).read_bytes() for path in taken_in} == taken_in
    shutil.rmtree(desk.folder / ".pausepoint" / "edits")
    desk.file("header.md").write_text("# something else, by Bob\n")
    await desk.resume(edits="discard")
    assert desk.file("header.md").read_bytes() == taken_in["header.md"], "the log has it too"
    desk.file("1-research.json").write_text("[]   # broken")
    with pytest.raises(FolderRefused, match=r"Artifact '1-research\.json' cannot be restored: .* resume\(rerun="):
        await desk.resume(edits="discard")
    calls.taken()
    await desk.resume(rerun=["research"])
    assert calls.taken() == ["research", "draft", *SECTIONS, "finalize"]


@on_loop
async def test_an_entry_that_was_taken_in_is_put_back_from_the_log(desk: Desk) -> None:
    desk.file("2-sections/02-team.md").write_text("## 02-team\n\nAda, alone.\n")
    await desk.resume(edits="accept")
    shutil.rmtree(desk.folder / ".pausepoint" / "edits")
    desk.file("2-sections/02-team.md").write_text("## 02-team\n\nNobody.\n")
    await desk.resume(edits="discard")
    assert desk.file("2-sections/02-team.md").read_text() == "## 02-team\n\nAda, alone.\n"


@on_loop
async def test_verbs_that_cannot_be_right_are_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="edits must be 'accept' or 'discard'"):
        await desk.resume(edits="maybe")
    with pytest.raises(DefinitionError, match="Did you mean 'draft'"):
        await desk.resume(rerun="darft")
    async with desk.engine() as engine:
        with pytest.raises(InputConflict, match="its folder is"):
            await engine.start(desk.workflow, company="Fern", session_id="s1", folder=desk.path / "other")
        with pytest.raises(FolderRefused, match=r"has no artifact 'haeder\.md'. Did you mean 'header\.md'"):
            await engine.session("s1").restore(["haeder.md"])
        with pytest.raises(DefinitionError, match="stay inside the session's folder"):
            await engine.session("s1").restore(["../secret"])


@on_loop
async def test_an_edit_before_a_migration_is_refused_and_nothing_is_changed(desk: Desk) -> None:
    @migrate(from_version=1)
    def same(state: dict[str, Any]) -> dict[str, Any]:
        return state

    newer = Workflow("memo", state=Memo, steps=[research, draft, header, finalize], version=2, migrations=[same])
    desk.file("4-final.md").write_text("## by hand, and long enough\n")
    desk.workflow = newer
    async with desk.engine() as engine:
        before = (await engine.session("s1").info()).seq
        with pytest.raises(VerbRefused, match=r"this code is version 2. Migrate it before you change its artifacts"):
            await engine.session("s1").resume()
        assert (await engine.session("s1").info()).seq == before


@on_loop
async def test_an_edit_of_the_state_stands_through_one_redo_after_another(desk: Desk) -> None:
    """The second goes back further than the first, to before the edit, which an edited file has nothing to do with."""
    async with desk.engine() as engine:
        await engine.session("s1").edit(company="Moss")
    await desk.resume(rerun="header")
    assert "Moss" in desk.file("header.md").read_text()
    calls.taken()
    for claim in ("Fern grows by itself.", "Fern grows with help."):
        desk.edit_research(claim)
        outcome = await desk.resume(edits="accept")
        assert outcome.state.company == "Moss"
        assert calls.taken() == ["draft", *SECTIONS, "finalize"]
    assert "Moss" in desk.file("4-final.md").read_text()


@on_loop
async def test_what_is_read_of_the_log_does_not_follow_the_number_of_files(tmp_path: Path) -> None:
    """Files that were cut off are compared with what was recorded, and all are restored."""
    counts: list[int] = []
    for number in (3, 30):
        desk = Desk(tmp_path / str(number))
        desk.path.mkdir()
        names = [f"{each:02}-section" for each in range(number)]
        await desk.run(outline=names)
        for name in names:
            desk.file(f"2-sections/{name}.md").write_text("## 0")
        async with desk.engine() as engine:
            store: Any = engine.store
            read = store.records
            counts.append(0)

            async def counted(*args: Any, read: Any = read) -> Any:
                counts[-1] += 1
                return await read(*args)

            store.records = counted
            assert {each.state for each in await engine.session("s1").artifacts() if "sections" in each.path} == {
                "invalid"
            }
            assert len(await engine.session("s1").restore()) == number
    assert counts[0] == counts[1]
