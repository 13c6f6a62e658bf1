"""A planner's session as a document: its keys, its outputs, who may write what, and what is refused."""

from __future__ import annotations

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import icalendar
import pytest
from pydantic import ValidationError

from pausepoint import Context, Engine, Workflow
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import SessionDocument, estimation, ingestion, planner, sessions, workflow
from pausepoint.apps.planner import plan as planning
from pausepoint.apps.planner import review as reviewing
from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import (
    EstimationPayload,
    IngestionPayload,
    Payload,
    PlannerState,
    PlanningPayload,
    PlanRow,
    Stage,
    Upload,
    UserInputs,
)
from pausepoint.apps.planner.sample import SAMPLE_INPUTS
from pausepoint.definition.steps import Scope
from pausepoint.engine import BlockingEngine
from pausepoint.errors import DefinitionError
from pausepoint.testing import ManualClock
from tests.apps.planner_kit import CALC, FILES, HIST, INPUTS, go_on, long_text, run


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


# the document


@pytest.mark.covers("S3.4", "S3.10", "S3.18", "S3.23", "S3.28", "S3.30", "S3.31", "S3.32", "S3.33", "S3.36")
def test_the_document_has_the_keys_of_the_specification(engine: BlockingEngine) -> None:
    """Its example, key by key. What is beyond it is listed here, and in the README."""
    document = run(engine).model_dump(mode="json")
    assert set(document) == {
        "session_id", "created_at", "updated_at", "status", "user_inputs", "file_registry", "ingestion_state",
        "estimation_state", "planning_state", "artifacts", "events",
    }  # fmt: skip
    assert set(document["user_inputs"]) == {
        "timezone", "courses", "shared_constraints", "start_date", "busy", "busy_until", "busy_skipped",
        "own_estimates", "progress",
    }  # fmt: skip
    assert set(document["user_inputs"]["courses"][0]) == {"course_id", "course_name", "midterm_date", "pace", "exam"}
    assert set(document["user_inputs"]["shared_constraints"]) == {
        "max_minutes_per_day", "preferred_rest_day", "pace", "study_hours",
    }  # fmt: skip
    for file_id, file in document["file_registry"].items():
        assert set(file) == {
            "filename", "content_type", "size_bytes", "storage_uri", "sha256", "upload_status", "course_ids",
            "is_shared", "book", "title", "role", "chapter",
        }  # fmt: skip
        assert file["storage_uri"].endswith(f"sessions/s1/files/{file_id}.md")
    for progress in document["ingestion_state"]["files"].values():
        assert set(progress) == {
            "chunking", "processed_chunks", "failed_chunks", "status", "last_error", "warning",
        }  # fmt: skip
        assert progress["chunking"] == {"mode": "page_window", "max_pages_per_chunk": 20, "total_chunks": 1}
    for evidence in document["ingestion_state"]["course_topic_evidence"]:
        assert set(evidence) == {
            "course_id", "topic", "evidence_summary", "source_files", "source_chunks", "measure", "study",
        }  # fmt: skip
    for estimate in document["estimation_state"]["topic_estimates"]:
        assert set(estimate) == {
            "course_id", "topic", "estimated_minutes", "priority", "confidence", "source_files", "sections",
        }  # fmt: skip
        assert estimate["estimated_minutes"] > 0
        assert estimate["priority"] in ("high", "medium", "low")
        assert 0 <= estimate["confidence"] <= 1
    assert isinstance(document["estimation_state"]["uncertainty_flags"], list)
    planning = document["planning_state"]
    assert set(planning) == {
        "plan_version", "last_midterm_date", "plan_rows", "review", "strategy", "planned_for", "cuts", "withdrawn",
        "added", "made_at", "enough_minutes",
    }  # fmt: skip
    assert set(planning["review"]) == {"result_type", "revision_reasons", "validation_report"}
    assert set(document["artifacts"]) == {"markdown_path", "csv_path", "calendar_path", "page_path"}
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
    odd = {"course_id": "odd", "course_name": "=Odd; | names, \\new & *more* 日本", "midterm_date": "2030-02-20"}
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
    assert outputs == tmp_path / "planner" / "s1"
    assert sorted(path.suffix for path in outputs.iterdir()) == [".csv", ".html", ".ics", ".md"]
    rows = document.planning_state.plan_rows

    lines = [line for line in Path(paths.markdown_path).read_text().splitlines() if re.match(r"\| \w{3} \d+ ", line)]
    cells = [[unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert [each[:7] + each[8:] for each in cells] == [
        [said(row.date), str(row.starts_at or '')[:5], row.course, row.topic, row.task_description,
         str(row.estimated_minutes), row.priority, "planned", f"`{row.row_id}`" if row.row_id else ""]
        for row in rows
    ]  # fmt: skip
    assert [_names(each[7]) for each in cells] == [row.source_files for row in rows]

    with open(paths.csv_path, newline="", encoding="utf-8") as file:
        table = [
            {name: re.sub(r"^'(?=[=+\-@])", "", cell) for name, cell in row.items()} for row in csv.DictReader(file)
        ]
    columns = ("date", "course", "topic", "task_description", "estimated_minutes", "priority", "status", "row_id")
    assert [{name: row[name] for name in columns} for row in table] == [
        {name: str(row.model_dump(mode="json")[name]) for name in columns} for row in rows
    ]
    assert [_names(row["source_files"]) for row in table] == [row.source_files for row in rows]
    assert ",=Odd" not in Path(paths.csv_path).read_text()  # no spreadsheet takes it for a formula

    calendar = icalendar.Calendar.from_ical(Path(paths.calendar_path).read_bytes())
    events = [_row_of(event) for event in calendar.walk("VEVENT")]
    assert events == [
        (row.course, row.topic, row.estimated_minutes, row.priority, row.task_description, _start(row))
        for row in rows
        if row.course
    ]
    assert len({str(event["UID"]) for event in calendar.walk("VEVENT")}) == len(events)
    assert max(len(line) for line in Path(paths.calendar_path).read_bytes().split(b"\r\n")) <= 75

    assert paths.page_path is not None
    page = Path(paths.page_path).read_text("utf-8")
    for row in rows:
        assert html.escape(row.task_description) in page
    assert "<script" not in page
    assert not re.search(r"(?:src|href|url)\s*[=(]", page)  # nothing of another place


def _names(text: str) -> list[str]:
    """The one name that has a semicolon in it, and others."""
    return re.findall(r"odd; file, name\.md|[\w-]+\.\w+", text)


def _start(row: PlanRow) -> date:
    """When a row begins: a day, or a time in Los Angeles."""
    return datetime.combine(row.date, row.starts_at, ZoneInfo(INPUTS["timezone"])) if row.starts_at else row.date


def _row_of(event: Any) -> tuple[object, ...]:
    return (
        str(event["CATEGORIES"].cats[0]), unescaped(str(event["X-PAUSEPOINT-TOPIC"])),
        int(event["X-PAUSEPOINT-MINUTES"]), {1: "high", 5: "medium", 9: "low"}[int(event["PRIORITY"])],
        str(event["DESCRIPTION"]).partition("\n")[0], event["DTSTART"].dt,
    )  # fmt: skip


def test_the_same_plan_gives_the_same_bytes(engine: BlockingEngine) -> None:
    document = run(engine)
    before = {path.name: path.read_bytes() for path in outputs_of(document)}
    engine.session("s1").rewind("finish")
    assert {path.name: path.read_bytes() for path in outputs_of(go_on(engine))} == before


def outputs_of(document: SessionDocument) -> list[Path]:
    assert document.artifacts.markdown_path is not None
    return sorted(Path(document.artifacts.markdown_path).parent.iterdir())


# bad input


@pytest.mark.covers("S3.14", "S3.15", "S3.16")
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"timezone": "Europe/Atlantis"}, "timezone: There is no time zone 'Europe/Atlantis'"),
        ({"timezone": "../etc"}, "timezone: There is no time zone '../etc'"),
        ({"courses": [CALC, CALC]}, "courses: course_id 'calc2' occurs twice"),
        ({"courses": [CALC, HIST | {"course_name": "calculus ii"}]}, "courses: 'calculus ii' is the name of both"),
        ({"courses": [CALC, HIST | {"midterm_date": "2030-02-30"}]}, "course hist: midterm_date: '2030-02-30' is"),
        ({"courses": [CALC, HIST | {"midterm_date": "soon"}]}, "course hist: midterm_date: 'soon' is not a date"),
        ({"courses": [HIST | {"course_name": " \n"}]}, "course hist: course_name: Give a name"),
        ({"courses": [HIST | {"course_id": "../x"}]}, "course ../x: course_id: '../x' is not a valid id. Use up to"),
        ({"courses": [HIST | {"midterm_date": "1/2/2030"}]}, "course hist: midterm_date: '1/2/2030' can be"),
        ({"courses": [HIST | {"pace": 9}]}, "course hist: pace: Input should be less than or equal to 5"),
        ({"shared_constraints": {"study_hours": {"Monday": ["20:00-16:00"]}}}, "shared_constraints.study_hours.Monday"),
        ({"start_date": "yesterday"}, "start_date: 'yesterday' is not a date. Write it like"),
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
        "max_minutes_per_day": None, "preferred_rest_day": None, "pace": 1.0, "study_hours": {},
    }  # fmt: skip
    assert state.user_inputs.shared_constraints.limit == 240
    assert state.user_inputs.start_date is not None


def test_the_sample_is_valid() -> None:
    assert UserInputs.model_validate(SAMPLE_INPUTS).last_midterm == date(2030, 2, 22)


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
    refused = [event for event in engine.session("s1").events() if event.event_type == "write.refused"]
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


def test_without_a_first_day_the_plan_begins_when_the_session_was_made_where_the_student_lives(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2030, 2, 8, 20, tzinfo=UTC))
    inputs = UserInputs.model_validate(INPUTS | {"start_date": None, "timezone": "Pacific/Auckland"})
    with Engine(tmp_path / "planner.db", clock=clock) as engine:
        session = engine.start(planner, PlannerState(user_inputs=inputs), session_id="s1", paused=True)
        clock.advance(timedelta(days=3))
        session.resume()
        rows = session.outcome().state.planning_state.plan_rows
    assert rows[0].date == date(2030, 2, 9)
