"""A planner's session on its way: stages and their guards, and changes that come late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from pausepoint import Engine
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import SessionDocument, ingestion, planner, sessions, stages
from pausepoint.apps.planner import plan as planning
from pausepoint.apps.planner.models import PlannerState, PlanningPayload, Stage, Upload, UserInputs
from pausepoint.apps.planner.sample import SAMPLE
from pausepoint.engine import BlockingEngine
from pausepoint.errors import UnknownSession, VerbRefused
from tests.apps.planner_kit import BROKEN, FILES, INPUTS, go_on, held_by, long_text, run, watched_chunks


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    return watched_chunks(monkeypatch)


# stages


@pytest.mark.covers("S3.51", "S3.52", "S3.53", "S3.54", "S3.55", "S3.56", "S3.57")
def test_only_the_listed_transitions_are_allowed() -> None:
    allowed = {
        ("created", "collecting_inputs"), ("collecting_inputs", "ingesting"), ("ingesting", "estimating"),
        ("estimating", "planning"), ("planning", "reviewing"), ("reviewing", "planning"), ("reviewing", "completed"),
    }  # fmt: skip
    every: tuple[Stage, ...] = get_args(Stage)
    for one, other in product(every, every):
        if (one, other) in allowed:
            assert stages.moved(one, other) == other
        else:
            with pytest.raises(stages.TransitionRefused, match=f"from '{one}' to '{other}'"):
                stages.moved(one, other)


@pytest.mark.long
@pytest.mark.covers("S3.51", "S3.52", "S3.53", "S3.54", "S3.55", "S3.56", "S3.57")
def test_a_session_goes_through_all_stages_in_their_order(engine: BlockingEngine, tmp_path: Path) -> None:
    """With a plan that is revised once."""
    book = long_text(tmp_path / "book.txt", chapters=2)
    run(engine, uploads=[Upload(path=book, course_ids=["calc2"])], shared_constraints={"max_minutes_per_day": 20})
    seen: list[str] = ["created"]
    for checkpoint in engine.session("s1").checkpoints(limit=None):
        stage = sessions.state_of(engine, "s1", checkpoint.seq).status
        seen += [stage] if stage != seen[-1] else []
    assert seen == [
        "created", "collecting_inputs", "ingesting", "estimating", "planning", "reviewing", "planning", "reviewing",
        "completed",
    ]  # fmt: skip
    assert sessions.document(engine, "s1").planning_state.plan_version == 2


def test_a_session_in_the_wrong_stage_goes_nowhere_and_keeps_its_state(engine: BlockingEngine) -> None:
    session = engine.start(planner, sessions.starting(INPUTS), session_id="s1", paused=True)
    session.resume(pause_after="collect")
    session.outcome()
    engine.session("s1").edit({"status": "planning"})
    before = sessions.state_of(engine, "s1")
    outcome = engine.session("s1").resume().outcome()
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert "A session cannot go from 'planning' to 'ingesting'" in outcome.failure.message
    assert sessions.state_of(engine, "s1") == before
    document = sessions.document(engine, "s1")
    assert (document.status, document.events[-1].event_type) == ("failed", "error")
    engine.session("s1").edit({"status": "collecting_inputs"})
    assert go_on(engine).status == "completed"


@pytest.mark.covers("S3.61", "S3.62")
def test_collecting_is_not_left_without_courses_or_dates(engine: BlockingEngine) -> None:
    session = engine.start(planner, sessions.starting({"start_date": "2030-02-08"}), session_id="s1", paused=True)
    assert sessions.document(engine, "s1").status == "created"
    assert session.resume().outcome().status == "paused"
    assert held_by(engine) == "there is no course yet; add one with `course ID NAME --midterm DAY`"
    sessions.add_course(engine, "s1", {"course_id": "hist", "course_name": "History"})
    assert go_on(engine).status == "collecting_inputs"
    assert held_by(engine) == "course hist (History) has no midterm date yet; set it with `course hist --midterm DAY`"
    sessions.add_course(engine, "s1", {"course_id": "hist", "midterm_date": "2030-02-07"})
    assert go_on(engine).status == "collecting_inputs"
    assert "its midterm on Thu 7 Feb 2030 is before the first day, Fri 8 Feb 2030" in held_by(engine)
    sessions.add_course(engine, "s1", {"course_id": "hist", "midterm_date": "2030-02-12"})
    assert go_on(engine).status == "completed"


def test_a_file_of_a_course_that_there_is_not_keeps_the_session_collecting(engine: BlockingEngine) -> None:
    engine.start(planner, PlannerState(user_inputs=UserInputs(**INPUTS), uploads=[
        Upload(path=SAMPLE / "calculus.md", course_ids=["phys"])]), session_id="s1").outcome()  # fmt: skip
    assert held_by(engine) == (
        "file calculus.md belongs to course 'phys', which does not exist; add it with `course phys NAME --midterm DAY`"
    )


@pytest.mark.covers("S3.63", "S3.64")
def test_ingesting_is_not_left_with_a_file_that_is_partial_unless_it_is_marked_so_with_a_warning(
    engine: BlockingEngine, tmp_path: Path, chunks: Counter[str]
) -> None:
    book = long_text(tmp_path / "book.txt", chapters=4)
    state = sessions.starting(INPUTS, [Upload(path=book, course_ids=["hist"]), *FILES])
    session = engine.start(planner, state, session_id="s1", paused=True)
    session.resume(pause_after="collect")
    session.outcome()
    (file_id,) = (
        each for each, file in sessions.state_of(engine, "s1").file_registry.items() if file.filename == "book.txt"
    )
    BROKEN.add(f"{file_id}:1")
    document = go_on(engine)
    progress = document.ingestion_state.files[file_id]
    assert (document.status, progress.status, progress.failed_chunks) == ("ingesting", "partial", [1])
    assert (progress.processed_chunks, progress.last_error) == (3, "429 rate limit")
    assert held_by(engine) == (
        f"file {file_id} (book.txt) is partial, 3 of 4 chunks were read: 429 rate limit; read the rest again with"
        f" `retry`, or accept the file with `partial {file_id} --warning TEXT`"
    )
    with pytest.raises(BadInput, match="A warning is required"):
        sessions.mark_partial(engine, "s1", "book.txt", " ")
    with pytest.raises(BadInput, match=r"There is no such file. Did you mean 'book.txt'"):
        sessions.mark_partial(engine, "s1", "bok.txt", "x")
    with pytest.raises(BadInput, match=r"The file is complete\. Only a file with unread chunks"):
        sessions.mark_partial(engine, "s1", "calculus.md", "x")
    assert sessions.mark_partial(engine, "s1", "book.txt", "chapter 2 is missing") == file_id
    document = go_on(engine)
    assert document.status == "completed"
    assert document.ingestion_state.files[file_id].warning == "chapter 2 is missing"
    warnings = [event.summary for event in document.events if event.event_type == "warning"]
    assert warnings == ["book.txt: 1 chunk could not be read", "book.txt is partial: chapter 2 is missing"]
    marked = "edited by someone: ingestion_state.files (chapter 2 is missing)"
    assert ("user", "change", marked) in [(each.agent_name, each.event_type, each.summary) for each in document.events]
    assert document.artifacts.markdown_path is not None
    assert (
        "is partial (3 of 4 chunks were read): chapter 2 is missing"
        in Path(document.artifacts.markdown_path).read_text()
    )
    assert any("25% of its files could not be read" in flag for flag in document.estimation_state.uncertainty_flags)
    assert chunks[f"{file_id}:1"] == 2  # its two attempts


@pytest.mark.long
def test_a_retry_reads_only_what_is_missing(engine: BlockingEngine, tmp_path: Path, chunks: Counter[str]) -> None:
    book = long_text(tmp_path / "book.txt", chapters=4)
    undisturbed = run(engine, "s0", uploads=[Upload(path=book, course_ids=["hist"])])
    (file_id,) = undisturbed.file_registry
    chunks.clear()
    BROKEN.update({f"{file_id}:1", f"{file_id}:2"})
    assert run(engine, uploads=[Upload(path=book, course_ids=["hist"])]).status == "ingesting"
    BROKEN.remove(f"{file_id}:1")
    assert sessions.retry(engine, "s1") == [file_id]
    assert go_on(engine).ingestion_state.files[file_id].failed_chunks == [2]
    BROKEN.clear()
    sessions.retry(engine, "s1")
    document = go_on(engine)
    assert (document.status, document.ingestion_state.files[file_id].status) == ("completed", "complete")
    assert document.ingestion_state.course_topic_evidence == undisturbed.ingestion_state.course_topic_evidence
    made = {"made_at": undisturbed.planning_state.made_at}
    assert document.planning_state.model_copy(update=made) == undisturbed.planning_state
    assert [chunks[f"{file_id}:{index}"] for index in range(4)] == [1, 2 + 1, 2 + 2 + 1, 1]
    with pytest.raises(BadInput, match="All files are complete"):
        sessions.retry(engine, "s1")


def test_a_file_of_which_nothing_could_be_read_can_be_given_up_with_a_warning(
    engine: BlockingEngine, chunks: Counter[str]
) -> None:
    (file_id,) = run(engine, "s0", uploads=FILES[:1]).file_registry
    BROKEN.add(f"{file_id}:0")
    document = run(engine, uploads=FILES[:1])
    assert document.ingestion_state.files[file_id].status == "failed"
    sessions.mark_partial(engine, "s1", file_id, "nothing of it could be read")
    document = go_on(engine)
    assert (document.status, document.ingestion_state.files[file_id].status) == ("completed", "partial")


@pytest.mark.covers("S3.65")
def test_planning_is_not_left_while_a_day_is_missing(engine: BlockingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = planning.plan

    def forgetful(payload: PlanningPayload) -> Any:
        found = real(payload)
        rows = [
            row for row in found.plan_rows if row.date not in (date(2030, 2, 8), date(2030, 2, 11), date(2030, 2, 12))
        ]
        return found.model_copy(update={"plan_rows": rows})

    monkeypatch.setattr(planning, "plan", forgetful)
    document = run(engine)
    assert document.status == "planning"
    assert held_by(engine) == (
        "the plan has no entry for Fri 8 Feb 2030 and 2 more; it must cover every day up to Tue 26 Feb 2030"
    )
    monkeypatch.setattr(planning, "plan", real)
    engine.session("s1").rewind("plan")
    assert go_on(engine).status == "completed"


@pytest.mark.long
def test_progress_is_true_while_files_are_being_read(
    engine: BlockingEngine, tmp_path: Path, chunks: Counter[str]
) -> None:
    book = long_text(tmp_path / "book.txt", chapters=4)
    seen: list[SessionDocument] = []
    real: Callable[..., Any] = ingestion._pieces

    def looking(path: str, kind: str, first: int, count: int, marks: list[Any]) -> Any:
        seen.append(sessions.document(engine, "s1"))
        return real(path, kind, first, count, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "_pieces", looking)
        run(engine, uploads=[Upload(path=book, course_ids=["hist"])])
    progress = [next(iter(each.ingestion_state.files.values())) for each in seen]
    assert [each.processed_chunks for each in progress] == [0, 1, 2, 3]
    assert [each.status for each in progress] == ["pending", "partial", "partial", "partial"]
    assert {each.chunking.total_chunks for each in progress} == {4}
    assert {each.status for each in seen} == {"ingesting"}


# changes that come late


@pytest.mark.covers("S3.48", "S3.49")
def test_a_moved_date_makes_one_more_plan_and_the_others_stay_readable(
    engine: BlockingEngine, chunks: Counter[str]
) -> None:
    before = run(engine)
    read = chunks.total()
    sessions.replan(engine, "s1", midterms={"calc2": date(2030, 2, 23)})
    after = go_on(engine)
    assert (before.planning_state.plan_version, after.planning_state.plan_version) == (1, 2)
    assert (after.status, chunks.total()) == ("completed", read)
    midterms = {row.course: row.date for row in after.planning_state.plan_rows if row.topic == "Midterm"}
    assert midterms["Calculus II"] == date(2030, 2, 23)
    known = sessions.plans(engine, "s1")
    assert list(known) == [1, 2]
    assert known[1] == before.planning_state
    assert known[2] == after.planning_state
    assert ("PlanningReviewerAgent", "revision") in [(event.agent_name, event.event_type) for event in after.events]
    assert any(
        event.event_type == "review"
        and "the midterm of Calculus II is on Sat 23 Feb 2030, not on Thu 21 Feb 2030" in event.summary
        for event in after.events
    )
    sessions.replan(engine, "s1", max_minutes=30, rest_day="none", start=date(2030, 2, 10))
    third = go_on(engine)
    assert third.planning_state.plan_version == 3
    assert third.planning_state.plan_rows[0].date == date(2030, 2, 10)
    assert "Rest" not in {row.topic for row in third.planning_state.plan_rows}
    assert list(sessions.plans(engine, "s1")) == [1, 2, 3]


@pytest.mark.parametrize("stands_at", ["nowhere", "open_session", "collect", "ingest", "estimate", "plan", "review"])
def test_a_date_can_be_moved_wherever_the_session_stands(engine: BlockingEngine, stands_at: str) -> None:
    engine.start(planner, sessions.starting(INPUTS, FILES), session_id="s1", paused=True)
    if stands_at != "nowhere":
        engine.session("s1").resume(pause_after=stands_at).outcome()
    sessions.replan(engine, "s1", midterms={"hist": date(2030, 3, 2)})
    document = go_on(engine)
    assert (document.status, document.planning_state.last_midterm_date) == ("completed", date(2030, 3, 2))
    assert document.planning_state.plan_version == (2 if stands_at in ("plan", "review") else 1)


def test_a_replan_without_a_change_or_with_a_wrong_one_is_refused_and_changes_nothing(engine: BlockingEngine) -> None:
    before = run(engine)
    for wrong, said in [
        ({}, "Nothing changes"),
        ({"midterms": {"calc": date(2030, 2, 22)}}, "There is no course 'calc'. Did you mean 'calc2'"),
        ({"midterms": {"hist": date(2030, 1, 1)}}, "its midterm on Tue 1 Jan 2030 is before the first day"),
        (
            {"midterms": {"hist": date(2300, 2, 7)}},
            "its midterm on Wed 7 Feb 2300 is more than five years after the first",
        ),
        ({"max_minutes": -5}, "shared_constraints.max_minutes_per_day"),
    ]:
        with pytest.raises(BadInput, match=said):
            sessions.replan(engine, "s1", **wrong)  # type: ignore[arg-type]
    assert sessions.document(engine, "s1") == before


@pytest.mark.long
def test_a_file_that_comes_late_is_read_and_no_other_and_the_version_goes_on(
    engine: BlockingEngine, chunks: Counter[str]
) -> None:
    run(engine)
    added = sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["hist"]))
    assert not added.reused
    document = go_on(engine)
    assert (document.status, document.planning_state.plan_version) == ("completed", 2)
    assert "Longitude" in {part.topic for row in document.planning_state.plan_rows for part in row.parts}
    assert set(chunks.values()) == {1}
    again = sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["calc2"]))
    assert again.reused
    assert again.entry.course_ids == ["hist", "calc2"]
    document = go_on(engine)
    assert (document.planning_state.plan_version, len(document.file_registry)) == (3, 3)
    assert set(chunks.values()) == {1}


@pytest.mark.long
def test_a_course_that_comes_late_is_planned_too(engine: BlockingEngine, chunks: Counter[str]) -> None:
    run(engine)
    with pytest.raises(BadInput, match=r"course bio: There is no such course yet"):
        sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": None})
    with pytest.raises(BadInput, match=r"course bio \(Biology\) has no midterm date yet"):
        sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": "Biology"})
    sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": "Biology", "midterm_date": "2030-02-28"})
    document = go_on(engine)
    assert document.planning_state.plan_version == 2
    assert document.planning_state.last_midterm_date == date(2030, 2, 28)
    assert set(chunks.values()) == {1}


@pytest.mark.long
def test_an_ended_session_takes_its_files_and_plans_along_and_says_so_last(
    engine: BlockingEngine, tmp_path: Path
) -> None:
    run(engine)
    folder = tmp_path / "planner.db.sessions" / "s1"
    assert (folder / "outputs").is_dir()
    engine.session("s1").remove(by="ann", reason="the term is over")
    assert not folder.exists()
    with pytest.raises(UnknownSession):
        sessions.document(engine, "s1")
    assert [event.summary for event in engine.session("s1").events()] == ["removed by ann: the term is over"]


@pytest.mark.long
def test_a_file_that_comes_while_another_holds_the_session_back_is_read_too(
    engine: BlockingEngine, chunks: Counter[str]
) -> None:
    (file_id,) = run(engine, "s0", uploads=FILES[:1]).file_registry
    BROKEN.add(f"{file_id}:0")
    assert run(engine, uploads=FILES[:1]).status == "ingesting"
    added = sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["hist"]))
    document = go_on(engine)
    assert (document.status, document.ingestion_state.files[added.file_id].status) == ("ingesting", "complete")
    sessions.mark_partial(engine, "s1", file_id, "nothing of it could be read")
    assert go_on(engine).status == "completed"
    assert chunks[f"{added.file_id}:0"] == 1


def test_a_running_session_takes_no_file_and_nothing_is_stored(engine: BlockingEngine, tmp_path: Path) -> None:
    refused: list[str] = []
    real = ingestion._pieces

    def adding(path: str, kind: str, first: int, count: int, marks: list[Any]) -> Any:
        with pytest.raises(VerbRefused) as error:
            sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["hist"]))
        refused.append(str(error.value))
        return real(path, kind, first, count, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "_pieces", adding)
        assert run(engine, uploads=FILES[:1]).status == "completed"
    assert [text.partition(", driven by")[0] for text in refused] == ["Session 's1' is running"]
    assert len(engine.session("s1").files.list()) == 1
