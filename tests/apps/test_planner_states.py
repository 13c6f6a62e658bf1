"""A planner's session from outside: its document, stages and guards, who may write what, and changes that come late."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, get_args

import icalendar
import pytest
from pydantic import ValidationError

from holdfast import BlockingEngine, Context, Engine, Retry, Workflow
from holdfast.apps.input import BadInput
from holdfast.apps.planner import (
    SessionDocument,
    estimation,
    ingestion,
    planner,
    planning,
    reviewing,
    sessions,
    stages,
    workflow,
)
from holdfast.apps.planner.models import (
    EstimationPayload,
    IngestionPayload,
    Payload,
    PlannerState,
    PlanningPayload,
    Stage,
    Upload,
    UserInputs,
)
from holdfast.apps.planner.sample import SAMPLE, SAMPLE_INPUTS
from holdfast.errors import DefinitionError, UnknownSession
from holdfast.steps import Scope

CALC = {"course_id": "calc2", "course_name": "Calculus II", "midterm_date": "2030-02-21"}
HIST = {"course_id": "hist", "course_name": "History", "midterm_date": "2030-02-26"}
INPUTS: dict[str, Any] = {
    "timezone": "America/Los_Angeles", "start_date": "2030-02-08", "courses": [CALC, HIST],
    "shared_constraints": {"max_minutes_per_day": 60, "preferred_rest_day": "Sunday"},
}  # fmt: skip
FILES = [
    Upload(path=SAMPLE / "calculus.md", course_ids=["calc2"]),
    Upload(path=SAMPLE / "how-to-study.md", is_shared=True),
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each chunk was read; those named in ``broken`` fail."""
    counted: Counter[str] = Counter()
    real = ingestion._sections

    def watched(path: str, kind: str, first: int, count: int) -> Any:
        name = f"{Path(path).stem}:{first // count}"
        counted[name] += 1
        if name in BROKEN:
            raise ConnectionError("429 rate limit")
        return real(path, kind, first, count)

    BROKEN.clear()
    monkeypatch.setattr(ingestion, "_sections", watched)
    monkeypatch.setattr(ingestion, "PATIENCE", Retry(attempts=2, first=0))
    return counted


BROKEN: set[str] = set()


def run(
    engine: BlockingEngine, session_id: str = "s1", uploads: list[Upload] = FILES, **inputs: Any
) -> SessionDocument:
    engine.start(planner, sessions.starting(INPUTS | inputs, uploads), session_id=session_id).outcome()
    return sessions.document(engine, session_id)


def go_on(engine: BlockingEngine, session_id: str = "s1") -> SessionDocument:
    engine.resume(session_id).outcome()
    return sessions.document(engine, session_id)


def held_by(engine: BlockingEngine, session_id: str = "s1") -> str:
    """The guard's reason, of a session that a guard holds back."""
    (pause,) = engine.pauses(session_id)
    assert pause.kind == "guard"
    return pause.reason


def long_text(path: Path, chapters: int = 6, pages: int = 20) -> Path:
    """A book of so many chunks, each one chapter."""
    line = "a line of words about the {} of {} and of what follows from it\n"
    words = ["tides", "currents", "anchors", "rudders", "sails", "charts"]
    with path.open("w") as file:
        for number in range(chapters):
            text = f"Chapter {number + 1}: The {words[number % 6]}\n\n"
            while len(text) < pages * 3_000 - 80:
                text += line.format(words[number % 6], number)
            file.write(text.ljust(pages * 3_000 - 1, "x") + "\n")
    return path


# the document


@pytest.mark.covers("S3.4", "S3.10", "S3.18", "S3.23", "S3.28", "S3.30", "S3.31", "S3.32", "S3.33", "S3.36")
def test_the_document_has_the_keys_of_the_specification(engine: BlockingEngine) -> None:
    """Its example, key by key. What is beyond it is listed here, and in the README."""
    document = run(engine).model_dump(mode="json")
    assert set(document) == {
        "session_id", "created_at", "updated_at", "status", "user_inputs", "file_registry", "ingestion_state",
        "estimation_state", "planning_state", "artifacts", "events",
    }  # fmt: skip
    assert set(document["user_inputs"]) == {"timezone", "courses", "shared_constraints", "start_date"}
    assert set(document["user_inputs"]["courses"][0]) == {"course_id", "course_name", "midterm_date"}
    assert set(document["user_inputs"]["shared_constraints"]) == {"max_minutes_per_day", "preferred_rest_day"}
    for file_id, file in document["file_registry"].items():
        assert set(file) == {
            "filename", "content_type", "size_bytes", "storage_uri", "sha256", "upload_status", "course_ids",
            "is_shared",
        }  # fmt: skip
        assert file["storage_uri"].endswith(f"sessions/s1/files/{file_id}.md")
    for progress in document["ingestion_state"]["files"].values():
        assert set(progress) == {
            "chunking", "processed_chunks", "failed_chunks", "status", "last_error", "warning",
        }  # fmt: skip
        assert progress["chunking"] == {"mode": "page_window", "max_pages_per_chunk": 20, "total_chunks": 1}
    for evidence in document["ingestion_state"]["course_topic_evidence"]:
        assert set(evidence) == {
            "course_id", "topic", "evidence_summary", "source_files", "source_chunks", "measure",
        }  # fmt: skip
    for estimate in document["estimation_state"]["topic_estimates"]:
        assert set(estimate) == {
            "course_id", "topic", "estimated_minutes", "priority", "confidence", "source_files",
        }  # fmt: skip
        assert estimate["estimated_minutes"] > 0
        assert estimate["priority"] in ("high", "medium", "low")
        assert 0 <= estimate["confidence"] <= 1
    assert isinstance(document["estimation_state"]["uncertainty_flags"], list)
    planning = document["planning_state"]
    assert set(planning) == {
        "plan_version", "last_midterm_date", "plan_rows", "review", "strategy", "planned_for",
    }  # fmt: skip
    assert set(planning["review"]) == {"result_type", "revision_reasons", "validation_report"}
    assert set(document["artifacts"]) == {"markdown_path", "csv_path", "calendar_path"}
    assert all(set(event) == {"timestamp", "agent_name", "event_type", "summary"} for event in document["events"])
    assert SessionDocument.model_validate(document).model_dump(mode="json") == document
    assert set(get_args(Stage)) == {
        "created", "collecting_inputs", "ingesting", "estimating", "planning", "reviewing", "completed", "failed",
    }  # fmt: skip


def test_the_history_tells_who_did_what(engine: BlockingEngine) -> None:
    document = run(engine)
    told = [(event.agent_name, event.event_type) for event in document.events]
    assert told == [
        ("CoordinatorAgent", "invoke"), ("IngestionAgent", "handoff"), ("IngestionAgent", "handoff"),
        ("CoordinatorAgent", "invoke"), ("EstimationAgent", "handoff"),
        ("CoordinatorAgent", "invoke"), ("PlanningReviewerAgent", "handoff"),
        ("CoordinatorAgent", "invoke"), ("PlanningReviewerAgent", "review"), ("CoordinatorAgent", "complete"),
    ]  # fmt: skip
    (first, _) = document.file_registry
    assert document.events[1].summary == f"1/1 chunks processed for {first}"
    assert [event.timestamp for event in document.events] == sorted(event.timestamp for event in document.events)


@pytest.mark.covers("S3.29")
def test_every_source_of_a_topic_exists(engine: BlockingEngine, tmp_path: Path) -> None:
    book = long_text(tmp_path / "book.txt", chapters=3)
    document = run(engine, uploads=[*FILES, Upload(path=book, course_ids=["hist"])])
    evidence = document.ingestion_state.course_topic_evidence
    assert {each.course_id for each in evidence} == {"calc2", "hist"}
    for each in evidence:
        assert each.source_files
        assert set(each.source_files) <= set(document.file_registry)
        for chunk in each.source_chunks:
            file_id, _, index = chunk.rpartition(":")
            assert file_id in each.source_files
            assert 0 <= int(index) < document.ingestion_state.files[file_id].chunking.total_chunks


@pytest.mark.covers("S3.22")
def test_a_shared_file_counts_for_all_courses_and_another_for_its_own(engine: BlockingEngine) -> None:
    found = run(engine).ingestion_state.course_topic_evidence
    topics = {course: {each.topic for each in found if each.course_id == course} for course in ("calc2", "hist")}
    assert topics["hist"] == {"Practice Exams"}
    assert topics["calc2"] > {"Practice Exams", "Power Series"}


def test_a_course_without_material_is_planned_and_flagged(engine: BlockingEngine) -> None:
    document = run(engine, uploads=[FILES[0]])
    (flag,) = document.estimation_state.uncertainty_flags
    assert flag == "hist, History: confidence 0.05, no material was given"
    assert {row.course for row in document.planning_state.plan_rows} == {"Calculus II", "History", ""}


# the outputs


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


@pytest.mark.covers("S3.40", "S3.41")
def test_markdown_csv_and_calendar_have_the_same_rows(engine: BlockingEngine, tmp_path: Path) -> None:
    odd = {"course_id": "odd", "course_name": "=Odd; | names, \\ & *more* 日本", "midterm_date": "2030-02-20"}
    text = tmp_path / "odd; file, name.md"
    text.write_text(
        "".join(f"## -Topic {n} | of; many, {'x' * 70}\n\n{'some words about it ' * 30}\n" for n in range(4))
    )
    document = run(engine, uploads=[*FILES, Upload(path=text, course_ids=["odd"])], courses=[CALC, HIST, odd])
    paths = document.artifacts
    assert paths.markdown_path is not None
    assert paths.csv_path is not None
    assert paths.calendar_path is not None
    outputs = Path(paths.markdown_path).parent
    assert outputs == tmp_path / "planner.db.sessions" / "s1" / "outputs"
    assert sorted(path.name for path in outputs.iterdir()) == ["study_plan.csv", "study_plan.ics", "study_plan.md"]
    rows = [row.model_dump(mode="json") for row in document.planning_state.plan_rows]

    lines = [line for line in Path(paths.markdown_path).read_text().splitlines() if line.startswith("| 2030-")]
    cells = [[unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    names = list(rows[0])
    assert [_typed(dict(zip(names, each, strict=True))) for each in cells] == rows

    with open(paths.csv_path, newline="", encoding="utf-8") as file:
        table = [
            {name: re.sub(r"^'(?=[=+\-@])", "", cell) for name, cell in row.items()} for row in csv.DictReader(file)
        ]
    assert [_typed(row) for row in table] == rows
    assert ",=Odd" not in Path(paths.csv_path).read_text()  # no spreadsheet takes it for a formula

    calendar = icalendar.Calendar.from_ical(Path(paths.calendar_path).read_bytes())
    events = [_row_of(event) for event in calendar.walk("VEVENT")]
    assert events == [
        {name: row[name] for name in ("date", "course", "topic", "estimated_minutes", "priority")}
        | {"told": row["task_description"]}
        for row in rows
    ]
    assert len({str(event["UID"]) for event in calendar.walk("VEVENT")}) == len(rows)
    assert max(len(line) for line in Path(paths.calendar_path).read_bytes().split(b"\r\n")) <= 75


def _typed(row: dict[str, str]) -> dict[str, Any]:
    files = row["source_files"]
    return row | {"estimated_minutes": int(row["estimated_minutes"]), "source_files": _names(files)}


def _names(text: str) -> list[str]:
    """The one name that has a semicolon in it, and others."""
    return re.findall(r"odd; file, name\.md|[\w-]+\.\w+", text)


def _row_of(event: Any) -> dict[str, Any]:
    return {
        "date": event["DTSTART"].dt.isoformat(),
        "course": str(event["CATEGORIES"].cats[0]) if "CATEGORIES" in event else "",
        "topic": unescaped(str(event["X-HOLDFAST-TOPIC"])),
        "estimated_minutes": int(event["X-HOLDFAST-MINUTES"]),
        "priority": {1: "high", 5: "medium", 9: "low"}[int(event["PRIORITY"])],
        "told": str(event["DESCRIPTION"]).partition("\n")[0],
    }


def test_the_same_plan_gives_the_same_bytes(engine: BlockingEngine) -> None:
    document = run(engine)
    before = {path.name: path.read_bytes() for path in outputs_of(document)}
    engine.rewind("s1", "finish")
    assert {path.name: path.read_bytes() for path in outputs_of(go_on(engine))} == before


def outputs_of(document: SessionDocument) -> list[Path]:
    assert document.artifacts.markdown_path is not None
    return sorted(Path(document.artifacts.markdown_path).parent.iterdir())


# bad input


@pytest.mark.covers("S3.14", "S3.15", "S3.16")
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"timezone": "Europe/Atlantis"}, "timezone: there is no time zone 'Europe/Atlantis'"),
        ({"timezone": "../etc"}, "timezone: there is no time zone '../etc'"),
        ({"courses": [CALC, CALC]}, "courses: course_id 'calc2' is there twice"),
        ({"courses": [CALC, HIST | {"course_name": "calculus ii"}]}, "courses: 'calculus ii' is the name of 'calc2'"),
        ({"courses": [CALC, HIST | {"midterm_date": "2030-02-30"}]}, "course hist: midterm_date: Input should be"),
        ({"courses": [CALC, HIST | {"midterm_date": "soon"}]}, "course hist: midterm_date: Input should be a"),
        ({"courses": [HIST | {"course_name": " \n"}]}, "course hist: course_name: a name is needed"),
        ({"courses": [HIST | {"course_id": "../x"}]}, "course ../x: course_id: String should match pattern"),
        ({"start_date": "yesterday"}, "start_date: Input should be a valid date"),
        ({"shared_constraints": {"max_minutes_per_day": 0}}, "shared_constraints.max_minutes_per_day: Input should be"),
        ({"shared_constraints": {"preferred_rest_day": "Sun"}}, "shared_constraints.preferred_rest_day: Input"),
    ],
)  # fmt: skip
def test_bad_inputs_are_refused_by_name(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        sessions.starting(INPUTS | inputs)
    assert str(refused.value).startswith(said)


def test_a_zone_and_both_limits_may_be_left_out() -> None:
    state = sessions.starting({"courses": [CALC]})
    assert state.user_inputs.shared_constraints.model_dump() == {
        "max_minutes_per_day": None,
        "preferred_rest_day": None,
    }
    assert state.user_inputs.shared_constraints.limit == 480
    assert state.user_inputs.start_date is not None


def test_the_sample_is_valid() -> None:
    assert UserInputs.model_validate(SAMPLE_INPUTS).last_midterm == date(2030, 2, 22)


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


@pytest.mark.covers("S3.51", "S3.52", "S3.53", "S3.54", "S3.55", "S3.56", "S3.57")
def test_a_session_goes_through_all_stages_in_their_order(engine: BlockingEngine, tmp_path: Path) -> None:
    """With a plan that is revised once."""
    book = long_text(tmp_path / "book.txt", chapters=2)
    run(engine, uploads=[Upload(path=book, course_ids=["calc2"])], shared_constraints={"max_minutes_per_day": 20})
    seen: list[str] = ["created"]
    for checkpoint in engine.checkpoints("s1", limit=None):
        stage = sessions.state_of(engine, "s1", checkpoint.seq).status
        seen += [stage] if stage != seen[-1] else []
    assert seen == [
        "created", "collecting_inputs", "ingesting", "estimating", "planning", "reviewing", "planning", "reviewing",
        "completed",
    ]  # fmt: skip
    assert sessions.document(engine, "s1").planning_state.plan_version == 2


def test_a_session_in_the_wrong_stage_goes_nowhere_and_keeps_its_state(engine: BlockingEngine) -> None:
    session = engine.start(planner, sessions.starting(INPUTS), session_id="s1", paused=True)
    session.resume(until="collect")
    session.outcome()
    engine.edit("s1", {"status": "planning"})
    before = sessions.state_of(engine, "s1")
    outcome = engine.resume("s1").outcome()
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert "a session does not go from 'planning' to 'ingesting'" in outcome.failure.message
    assert sessions.state_of(engine, "s1") == before
    document = sessions.document(engine, "s1")
    assert (document.status, document.events[-1].event_type) == ("failed", "error")
    engine.edit("s1", {"status": "collecting_inputs"})
    assert go_on(engine).status == "completed"


@pytest.mark.covers("S3.61", "S3.62")
def test_collecting_is_not_left_without_courses_or_dates(engine: BlockingEngine) -> None:
    session = engine.start(planner, sessions.starting({"start_date": "2030-02-08"}), session_id="s1", paused=True)
    assert sessions.document(engine, "s1").status == "created"
    assert session.resume().outcome().status == "paused"
    assert held_by(engine) == "there is no course yet; add one"
    sessions.add_course(engine, "s1", {"course_id": "hist", "course_name": "History"})
    assert go_on(engine).status == "collecting_inputs"
    assert held_by(engine) == "course hist (History) has no midterm date yet"
    sessions.add_course(engine, "s1", {"course_id": "hist", "midterm_date": "2030-02-07"})
    assert go_on(engine).status == "collecting_inputs"
    assert "its midterm on 2030-02-07 lies before the first day, 2030-02-08" in held_by(engine)
    sessions.add_course(engine, "s1", {"course_id": "hist", "midterm_date": "2030-02-12"})
    assert go_on(engine).status == "completed"


def test_a_file_of_a_course_that_there_is_not_keeps_the_session_collecting(engine: BlockingEngine) -> None:
    engine.start(planner, PlannerState(user_inputs=UserInputs(**INPUTS), uploads=[
        Upload(path=SAMPLE / "calculus.md", course_ids=["phys"])]), session_id="s1").outcome()  # fmt: skip
    assert held_by(engine) == "file calculus.md belongs to course 'phys', which there is not; add that course"


@pytest.mark.covers("S3.63", "S3.64")
def test_ingesting_is_not_left_with_a_file_that_is_partial_unless_it_is_marked_so_with_a_warning(
    engine: BlockingEngine, tmp_path: Path, chunks: Counter[str]
) -> None:
    book = long_text(tmp_path / "book.txt", chapters=4)
    state = sessions.starting(INPUTS, [Upload(path=book, course_ids=["hist"]), *FILES])
    session = engine.start(planner, state, session_id="s1", paused=True)
    session.resume(until="collect")
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
        f"file {file_id} (book.txt) is partial, 3 of 4 chunks were read: 429 rate limit; try the rest again with"
        " `retry`, or let a part do with `partial`"
    )
    with pytest.raises(BadInput, match="a warning is needed"):
        sessions.mark_partial(engine, "s1", "book.txt", " ")
    with pytest.raises(BadInput, match=r"there is no such file; did you mean 'book.txt'"):
        sessions.mark_partial(engine, "s1", "bok.txt", "x")
    with pytest.raises(BadInput, match="it is complete; only one that could not be read"):
        sessions.mark_partial(engine, "s1", "calculus.md", "x")
    assert sessions.mark_partial(engine, "s1", "book.txt", "chapter 2 is missing") == file_id
    document = go_on(engine)
    assert document.status == "completed"
    assert document.ingestion_state.files[file_id].warning == "chapter 2 is missing"
    warnings = [event.summary for event in document.events if event.event_type == "warning"]
    assert warnings == ["book.txt: 1 chunk could not be read", "book.txt is partial: chapter 2 is missing"]
    marked = "edited by somebody: ingestion_state.files (chapter 2 is missing)"
    assert ("user", "change", marked) in [(each.agent_name, each.event_type, each.summary) for each in document.events]
    assert document.artifacts.markdown_path is not None
    assert (
        "is partial (3 of 4 chunks were read): chapter 2 is missing"
        in Path(document.artifacts.markdown_path).read_text()
    )
    assert any("25% of its files could not be read" in flag for flag in document.estimation_state.uncertainty_flags)
    assert chunks[f"{file_id}:1"] == 2  # its two attempts


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
    assert document.planning_state == undisturbed.planning_state
    assert [chunks[f"{file_id}:{index}"] for index in range(4)] == [1, 2 + 1, 2 + 2 + 1, 1]
    with pytest.raises(BadInput, match="no file of it lacks a chunk"):
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
        "the plan says nothing about 2030-02-08 and 2 more; it has to cover every day up to 2030-02-26"
    )
    monkeypatch.setattr(planning, "plan", real)
    engine.rewind("s1", "plan")
    assert go_on(engine).status == "completed"


def test_progress_is_true_while_files_are_being_read(
    engine: BlockingEngine, tmp_path: Path, chunks: Counter[str]
) -> None:
    book = long_text(tmp_path / "book.txt", chapters=4)
    seen: list[SessionDocument] = []
    real: Callable[..., Any] = ingestion._sections

    def looking(path: str, kind: str, first: int, count: int) -> Any:
        seen.append(sessions.document(engine, "s1"))
        return real(path, kind, first, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "_sections", looking)
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
        and "the midterm of Calculus II is on 2030-02-23, not on 2030-02-21" in event.summary
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
        engine.resume("s1", until=stands_at).outcome()
    sessions.replan(engine, "s1", midterms={"hist": date(2030, 3, 2)})
    document = go_on(engine)
    assert (document.status, document.planning_state.last_midterm_date) == ("completed", date(2030, 3, 2))
    assert document.planning_state.plan_version == (2 if stands_at in ("plan", "review") else 1)


def test_a_replan_without_a_change_or_with_a_wrong_one_is_refused_and_changes_nothing(engine: BlockingEngine) -> None:
    before = run(engine)
    for wrong, said in [
        ({}, "nothing is other than it was"),
        ({"midterms": {"calc": date(2030, 2, 22)}}, "there is no course 'calc'; did you mean 'calc2'"),
        ({"midterms": {"hist": date(2030, 1, 1)}}, "its midterm on 2030-01-01 lies before the first day"),
        ({"max_minutes": -5}, "shared_constraints.max_minutes_per_day"),
    ]:
        with pytest.raises(BadInput, match=said):
            sessions.replan(engine, "s1", **wrong)  # type: ignore[arg-type]
    assert sessions.document(engine, "s1") == before


def test_a_file_that_comes_late_is_read_and_no_other_and_the_version_goes_on(
    engine: BlockingEngine, chunks: Counter[str]
) -> None:
    run(engine)
    added = sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["hist"]))
    assert not added.reused
    document = go_on(engine)
    assert (document.status, document.planning_state.plan_version) == ("completed", 2)
    assert "Longitude" in {row.topic for row in document.planning_state.plan_rows}
    assert set(chunks.values()) == {1}
    again = sessions.add_file(engine, "s1", Upload(path=SAMPLE / "navigation.txt", course_ids=["calc2"]))
    assert again.reused
    assert again.entry.course_ids == ["hist", "calc2"]
    document = go_on(engine)
    assert (document.planning_state.plan_version, len(document.file_registry)) == (3, 3)
    assert set(chunks.values()) == {1}


def test_a_course_that_comes_late_is_planned_too(engine: BlockingEngine, chunks: Counter[str]) -> None:
    run(engine)
    with pytest.raises(BadInput, match=r"course bio: there is none yet; give its name"):
        sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": None})
    with pytest.raises(BadInput, match=r"course bio \(Biology\) has no midterm date yet"):
        sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": "Biology"})
    sessions.add_course(engine, "s1", {"course_id": "bio", "course_name": "Biology", "midterm_date": "2030-02-28"})
    document = go_on(engine)
    assert document.planning_state.plan_version == 2
    assert document.planning_state.last_midterm_date == date(2030, 2, 28)
    assert set(chunks.values()) == {1}


def test_an_ended_session_takes_its_files_and_plans_along_and_says_so_last(
    engine: BlockingEngine, tmp_path: Path
) -> None:
    run(engine)
    folder = tmp_path / "planner.db.sessions" / "s1"
    assert (folder / "outputs").is_dir()
    engine.remove("s1", by="ann", reason="the term is over")
    assert not folder.exists()
    with pytest.raises(UnknownSession):
        sessions.document(engine, "s1")
    assert [event.summary for event in engine.events("s1")] == ["removed by ann: the term is over"]


# ownership

OWNERS: dict[str, tuple[Scope, set[str], set[str]]] = {
    "CoordinatorAgent": (workflow.coordinator, {"*"}, {"status", "artifacts"}),
    "IngestionAgent": (workflow.ingestion_agent, {"user_inputs", "file_registry"}, {"ingestion_state"}),
    "EstimationAgent": (
        workflow.estimation_agent, {"ingestion_state.course_topic_evidence"}, {"estimation_state"},
    ),
    "PlanningReviewerAgent": (workflow.planning_agent, {"user_inputs", "estimation_state"}, {"planning_state"}),
}  # fmt: skip


@pytest.mark.covers("S3.68", "S3.69", "S3.70", "S3.71")
def test_every_agent_owns_what_the_table_says_and_every_step_belongs_to_one() -> None:
    for name, (scope, reads, writes) in OWNERS.items():
        assert (scope.name, set(scope.reads), set(scope.writes)) == (name, reads, writes)
    agents = {step.name: step.agent for step in planner.steps}
    assert agents == {
        "open_session": "CoordinatorAgent", "collect": "Intake", "begin_ingesting": "CoordinatorAgent",
        "ingest": "IngestionAgent", "begin_estimating": "CoordinatorAgent", "estimate": "EstimationAgent",
        "begin_planning": "CoordinatorAgent", "plan": "PlanningReviewerAgent", "begin_reviewing": "CoordinatorAgent",
        "review": "PlanningReviewerAgent", "finish": "CoordinatorAgent",
    }  # fmt: skip


@pytest.mark.covers("S3.68", "S3.69", "S3.70", "S3.71")
@pytest.mark.parametrize("name", OWNERS)
def test_an_agent_cannot_be_given_a_step_that_reads_or_writes_beyond_its_own(name: str) -> None:
    scope, reads, writes = OWNERS[name]
    fields = PlannerState.model_fields
    for field in sorted(fields.keys() - writes):

        @scope.step(writes=field)
        async def trespass(ctx: Context) -> Any:
            return None

        with pytest.raises(DefinitionError, match=f"{name}.*{field}|{field}.*{name}"):
            Workflow("w", state=PlannerState, steps=[trespass])
    if "*" not in reads:

        @scope.step()
        async def peep(artifacts: Any) -> None:
            pass

        with pytest.raises(DefinitionError, match="artifacts"):
            Workflow("w", state=PlannerState, steps=[peep])


PARTS = {
    "CoordinatorAgent": ["status", "artifacts"],
    "IngestionAgent": ["ingestion_state.files", "ingestion_state.course_topic_evidence"],
    "EstimationAgent": ["estimation_state.topic_estimates", "estimation_state.uncertainty_flags"],
    "PlanningReviewerAgent": ["planning_state.review", "planning_state.plan_rows"],
}


@pytest.mark.covers("S3.68", "S3.69", "S3.70", "S3.71")
@pytest.mark.parametrize("name", OWNERS)
def test_a_write_beyond_its_own_at_run_time_is_refused_and_logged(engine: BlockingEngine, name: str) -> None:
    scope = OWNERS[name][0]
    other = "planning_state" if name != "PlanningReviewerAgent" else "status"
    state = sessions.starting(INPUTS)

    @scope.step(writes=PARTS[name])
    async def trespass(ctx: Context) -> dict[str, Any]:
        return {other: "mine"}

    odd = Workflow("odd", state=PlannerState, steps=[trespass])
    outcome = engine.start(odd, state, session_id="s1").outcome()
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.type == "WriteRefused"
    assert outcome.state == state
    refused = [event for event in engine.events("s1") if event.event_type == "write.refused"]
    assert [(event.agent_name, event.data["field"]) for event in refused] == [(name, other)]


@pytest.mark.parametrize("payload", [Payload, IngestionPayload, EstimationPayload, PlanningPayload])
def test_a_payload_without_the_session_is_refused(payload: type[Payload]) -> None:
    for given in ({}, {"session_id": ""}):
        with pytest.raises(ValidationError) as refused:
            payload.model_validate(given)
        assert ("session_id",) in [each["loc"] for each in refused.value.errors()]


def test_every_agent_is_told_the_session(engine: BlockingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    told: Counter[str] = Counter()

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def called(payload: Payload, *rest: Any) -> Any:
            told[f"{name} {payload.session_id}"] += 1
            return real(payload, *rest)

        monkeypatch.setattr(module, name, called)

    for module, name in [
        (ingestion, "ingest"), (estimation, "estimate"), (planning, "plan"),
        (reviewing, "review"),
    ]:  # fmt: skip
        watch(module, name)
    run(engine)
    assert told == Counter(["ingest s1", "estimate s1", "plan s1", "review s1"])


def test_a_csv_is_read_by_the_usual_reader(engine: BlockingEngine) -> None:
    document = run(engine)
    assert document.artifacts.csv_path is not None
    rows = list(csv.DictReader(io.StringIO(Path(document.artifacts.csv_path).read_text("utf-8"))))
    assert sum(int(row["estimated_minutes"]) for row in rows) == sum(
        row.estimated_minutes for row in document.planning_state.plan_rows
    )
