"""Aura's calls: start, look, save, pause, resume, through the documents that they give."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
from pydantic import ValidationError

from pausepoint import Engine
from pausepoint.apps.aura import (
    aura,
    classroom_sync,
    daily_planner,
    free_time,
    get_workflow_state,
    parent_insight,
    request_pause,
    run_aura_orchestrator,
    save_workflow_state,
    skill_mastery,
    workflow,
)
from pausepoint.apps.aura.models import (
    Assignment,
    CurrentStep,
    DailyPlanItem,
    ParentReport,
    SkillProfile,
    WorkflowState,
)
from pausepoint.apps.aura.settings import SAMPLE, starting
from pausepoint.apps.aura.sources import open_source
from pausepoint.apps.calendars import events
from pausepoint.apps.input import BadInput
from pausepoint.errors import InvalidSessionId, UnknownSession, VerbRefused, WrongOwner
from pausepoint.testing import ManualClock
from tests.apps.classroom import NOW, STUDENT, handed_in, put, small_class
from tests.support.children import outside_sql
from tests.support.loop import PATIENCE
from tools.aura_load import measure

STUDENT_MAIL = "student@example.com"
STEPS = ("sync", "analyze", "plan", "report")
FIELDS = {"sync": "assignments", "analyze": "skill_profile", "plan": "daily_plan", "report": "report"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "aura.db"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each agent was called."""
    counted: Counter[str] = Counter()

    def watch(module: Any, name: str, agent: str) -> None:
        real = getattr(module, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            counted[agent] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, called)

    watch(classroom_sync, "gather", "sync")
    watch(skill_mastery, "analyze", "analyze")
    watch(daily_planner, "plan", "plan")
    watch(parent_insight, "write", "report")
    return counted


def up_to(store: Path, last: str | None, session_id: str = "s1") -> WorkflowState:
    """A session on the sample, paused after a step; None: before the first one."""
    with Engine(store, workflows=[aura]) as engine:
        state = starting(STUDENT_MAIL, reports=store.parent / "reports")
        engine.start(aura, state, session_id=session_id, owner=STUDENT_MAIL, paused=True)
        if last is not None:
            engine.session(session_id).resume(pause_after=last).outcome()
    found = get_workflow_state(session_id, store=store)
    assert found is not None
    return found


def data_of(state: WorkflowState) -> dict[str, Any]:
    """Everything but who and where it is."""
    return state.model_dump(exclude={"session_id": True, "report": {"markdown", "html", "mail"}, "reports": True})


# start


@pytest.mark.covers("S1.24")
def test_a_start_with_a_student_alone_completes_and_returns_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_aura_orchestrator(STUDENT_MAIL)
    session_id = result["session_id"]
    assert (result["status"], result["current_step"]) == ("completed", CurrentStep.COMPLETED)
    assert result == get_workflow_state(session_id)
    assert (tmp_path / ".pausepoint" / "aura" / f"aura-{session_id}.html").is_file()
    with pytest.raises(KeyError):
        result["sesion_id"]


@pytest.mark.covers("S1.27")
def test_without_a_student_nothing_is_stored(store: Path) -> None:
    with pytest.raises(BadInput, match=r"^student_id: "):
        run_aura_orchestrator("", store=store)
    with pytest.raises(TypeError):
        run_aura_orchestrator(store=store)  # type: ignore[call-arg]
    assert not store.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"time_zone": "Europe/Atlantis"}, "time_zone: There is no time zone 'Europe/Atlantis'. Use a name such as"),
        ({"now": "9999-12-30"}, "now: The year must be from 2 to 9998"),
        ({"now": "0001-01-01", "time_zone": "Asia/Tokyo"}, "now: The year must be"),
        ({"day_start": "15:00+02:00"}, "day_start: The time of day has a UTC offset. Write a local time such as 15:00"),
        ({"reports": SAMPLE / "calendar.ics" / "x"}, f"reports: {SAMPLE / 'calendar.ics'} is not a folder"),
        ({"now": "soon"}, "now: 'soon' is not a date or time. Write 2030-03-04 or"),
        ({"day_start": "20:00", "day_end": "8:00"}, "day_end: "),
        ({"day_start": "20:00", "day_end": "08:00"}, "day_end: The day ends at 08:00 but starts at 20:00"),
        ({"days": 0}, "days: Input should be greater than or equal to 1"),
        ({"data": []}, "data: List should have at least 1 item"),
        ({"calender": "x"}, "calender: There is no such setting. Settings: student_id, data"),
        ({"calendar": SAMPLE / "school" / "courses.json"}, "calendar: "),
    ],
)
def test_a_bad_setting_is_refused_by_name_and_nothing_is_stored(store: Path, settings: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        run_aura_orchestrator(STUDENT_MAIL, store=store, **settings)
    assert str(refused.value).startswith(said)
    assert not store.exists()


def test_an_unknown_student_and_broken_data_are_refused_and_nothing_is_stored(store: Path, tmp_path: Path) -> None:
    folder = small_class(tmp_path / "school")
    with pytest.raises(BadInput, match=r"^student_id: 'student-9' has no course"):
        run_aura_orchestrator("student-9", store=store, data=folder)
    with pytest.raises(BadInput, match=r"^calendar: .*c\.ics is not an iCalendar file"):
        run_aura_orchestrator(STUDENT, store=store, data=folder, now=NOW, calendar=put(tmp_path / "c.ics", "hello"))
    put(folder / "courseWork.json", "{")
    with pytest.raises(BadInput, match=r"courseWork\.json, line 1, column 1: This is not valid JSON"):
        run_aura_orchestrator(STUDENT, store=store, data=folder)
    assert not store.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_for_reports_that_is_not_writable_is_refused_and_nothing_is_stored(
    store: Path, tmp_path: Path
) -> None:
    (tmp_path / "shut").mkdir(0o500)
    with pytest.raises(BadInput, match=f"^reports: The folder {tmp_path}/shut is not writable"):
        run_aura_orchestrator(STUDENT_MAIL, store=store, reports=tmp_path / "shut" / "x")
    assert not store.exists()


def test_a_machine_without_time_zones_says_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pausepoint.apps.input.is_zone", lambda name: False)
    without: list[dict[str, Any]] = [{}, {"data": SAMPLE}]
    for settings in without:
        with pytest.raises(BadInput, match=r"^time_zone: This machine has no time zone data\. Install it: pip"):
            run_aura_orchestrator(STUDENT_MAIL, store=store, **settings)
    assert not store.exists()


def test_a_calendar_is_read_beside_the_loop_so_that_a_large_one_holds_nothing_up(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, on_the_loop = free_time.free_week, []

    def free_week(*args: Any) -> free_time.FreeWeek:
        on_the_loop.append(asyncio._get_running_loop() is not None)
        return real(*args)

    state = starting(STUDENT_MAIL, reports=store.parent / "reports")
    monkeypatch.setattr(workflow, "free_week", free_week)
    with Engine(store, workflows=[aura]) as engine:
        assert engine.start(aura, state).outcome().status == "completed"
    assert on_the_loop == [False]


def test_dates_come_from_the_start_of_the_session_and_not_from_a_later_step(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    folder = small_class(tmp_path / "school")
    with Engine(store, workflows=[aura], clock=ManualClock(NOW)) as engine:
        state = starting(STUDENT, data=folder, reports=tmp_path / "reports")
        session_id = engine.start(aura, state, paused=True, owner=STUDENT).id
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    done = run_aura_orchestrator(STUDENT, session_id, store=store)  # by the clock of today
    assert (done.status, done.now, done.time_zone) == ("completed", None, "Asia/Tokyo")
    assert done.load[0].start == datetime(2030, 3, 3, 15, tzinfo=UTC)  # midnight in Tokyo, on the day it was started
    assert done.daily_plan[0].start >= NOW
    assert done.report is not None
    assert "as of Mon 4 Mar 2030, 17:00 (Asia/Tokyo)." in done.report.markdown.read_text()
    explicit = run_aura_orchestrator(
        STUDENT, store=store, data=folder, now=NOW, time_zone="Asia/Tokyo", reports=tmp_path / "reports"
    )
    same = ("skill_profile", "daily_plan", "unplanned", "load", "advice")
    assert [done[name] for name in same] == [explicit[name] for name in same]


def test_a_second_start_with_the_same_input_is_the_same_session(store: Path, tmp_path: Path) -> None:
    folder = small_class(tmp_path / "school")
    with Engine(store, workflows=[aura]) as engine:
        for _ in range(2):
            engine.start(aura, starting(STUDENT, data=folder, time_zone="UTC"), session_id="s1", paused=True)
        assert len(engine.sessions()) == 1


def test_a_day_given_for_now_begins_where_the_student_lives(tmp_path: Path) -> None:
    state = starting(STUDENT, data=small_class(tmp_path), now="2030-03-05", time_zone="Asia/Tokyo")
    assert state.now == datetime(2030, 3, 4, 15, 0, tzinfo=UTC)


# steps


@pytest.mark.covers("S1.3", "S1.7", "S1.8", "S1.9", "S1.10", "S1.32", "S1.33", "S1.34", "S1.35")
@pytest.mark.parametrize("done", range(5), ids=["none", *STEPS])
def test_each_step_fills_its_field_is_kept_and_is_not_run_again(
    store: Path, done: int, calls: Counter[str], tmp_path: Path
) -> None:
    state = up_to(store, STEPS[done - 1] if done else None)
    assert state.current_step is list(CurrentStep)[done]
    assert state.status == ("completed" if done == 4 else "paused")
    for number, step in enumerate(STEPS):
        found = state[FIELDS[step]]
        assert bool(found.subjects if isinstance(found, SkillProfile) else found) == (number < done), step
    assert calls == Counter(STEPS[:done])
    with Engine(store, workflows=[aura]) as engine:
        assert [each.step for each in engine.session("s1").checkpoints()] == list(STEPS[:done])
    finished = run_aura_orchestrator(STUDENT_MAIL, "s1", store=store)
    assert calls == Counter(STEPS)  # what was done is not done again
    assert (finished.status, finished.current_step) == ("completed", CurrentStep.COMPLETED)
    undisturbed = run_aura_orchestrator(STUDENT_MAIL, store=tmp_path / "other.db", reports=tmp_path / "other")
    assert data_of(finished) == data_of(undisturbed)


@pytest.mark.covers("S1.8")
def test_the_skill_profile_is_empty_before_analyze_and_has_every_subject_of_the_assignments_after_it(
    store: Path,
) -> None:
    before, after = up_to(store, "sync"), up_to(store, "analyze", "s2")
    assert before.skill_profile is None
    assert type(after.skill_profile) is SkillProfile
    assert (
        {each.subject for each in after.skill_profile.subjects} == {each.course for each in after.assignments} != set()
    )
    graded = Counter(each.course for each in after.assignments if each.score is not None)
    assert {each.subject: each.graded for each in after.skill_profile.subjects if each.graded} == graded
    assert all((each.mastery is not None) == (each.graded > 0) for each in after.skill_profile.subjects)


@pytest.mark.covers("S1.40")
def test_agents_exchange_typed_models(store: Path) -> None:
    done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    assert {type(each) for each in done.assignments} == {Assignment}
    assert {type(each) for each in done.daily_plan} == {DailyPlanItem}
    assert (type(done.skill_profile), type(done.report)) == (SkillProfile, ParentReport)
    for agent in (classroom_sync.gather, skill_mastery.analyze, daily_planner.plan, parent_insight.write):
        given = get_type_hints(agent)
        assert not [kind for kind in given.values() if kind is dict or get_origin(kind) is dict], agent
        assert given["return"] in (classroom_sync.Gathered, SkillProfile, daily_planner.Plan, ParentReport)


@pytest.mark.covers("S1.3")
@pytest.mark.parametrize("wrong", ["PAUSED", "syncing", "DONE", "", None])
def test_a_position_that_is_none_of_the_five_is_refused(store: Path, wrong: Any) -> None:
    assert [each.value for each in CurrentStep] == ["SYNCING", "ANALYZING", "PLANNING", "REPORTING", "COMPLETED"]
    known = {"session_id": "s1", "student_id": STUDENT, "data": ["x"]}
    with pytest.raises(ValidationError, match="current_step"):
        WorkflowState.model_validate(known | {"current_step": wrong})
    with pytest.raises(BadInput, match=r"^current_step: "):
        save_workflow_state("s1", known | {"current_step": wrong}, store=store)
    assert get_workflow_state("s1", store=store) is None


# looking and saving


@pytest.mark.long
@pytest.mark.covers("S1.16", "S1.29")
def test_an_unknown_id_is_none_when_looked_for_and_refused_when_run(store: Path) -> None:
    assert get_workflow_state("nobody", store=store) is None
    with pytest.raises(UnknownSession, match=f"no session 'nobody'\\. [Tt]here is no store at {store}"):
        request_pause("nobody", store=store)
    with pytest.raises(UnknownSession, match=f"no session 'nobody'\\. [Tt]here is no store at {store}"):
        run_aura_orchestrator(STUDENT_MAIL, "nobody", store=store)
    assert list(store.parent.iterdir()) == []  # looking and asking make no store
    run_aura_orchestrator(STUDENT_MAIL, store=store)
    assert get_workflow_state("nobody", store=store) is None
    with pytest.raises(UnknownSession, match="nobody"):
        run_aura_orchestrator(STUDENT_MAIL, "nobody", store=store)
    with pytest.raises(UnknownSession, match="nobody"):
        request_pause("nobody", store=store)
    with Engine(store) as engine:
        assert len(engine.sessions()) == 1


@pytest.mark.covers("S1.15", "S1.16")
def test_saving_creates_once_and_then_replaces(store: Path, calls: Counter[str]) -> None:
    settings = {"data": [str(SAMPLE)], "time_zone": "UTC", "now": NOW, "reports": store.parent / "r"}
    first = save_workflow_state("s1", {"student_id": STUDENT_MAIL, **settings}, store=store)
    assert (first.current_step, first.status, first.assignments) == (CurrentStep.SYNCING, "paused", [])
    assert get_workflow_state("s1", store=store) == first
    work = [Assignment(id="a", account="x", course="Botany", title="Leaves")]
    second = save_workflow_state("s1", first.model_copy(update={"assignments": work, "days": 3}), store=store)
    assert (second.assignments, second.days) == (work, 3)
    assert get_workflow_state("s1", store=store) == second
    assert save_workflow_state("s1", second, store=store) == second
    with Engine(store) as engine:
        assert [info.session_id for info in engine.sessions()] == ["s1"]
    assert calls == Counter()


@pytest.mark.long
def test_a_saved_document_goes_on_from_its_position(store: Path, tmp_path: Path, calls: Counter[str]) -> None:
    halfway = up_to(store, "analyze")
    calls.clear()
    copy = save_workflow_state("copy", halfway, store=tmp_path / "elsewhere.db")
    assert (copy.current_step, copy.status) == (CurrentStep.PLANNING, "paused")
    done = run_aura_orchestrator(STUDENT_MAIL, "copy", store=tmp_path / "elsewhere.db")
    assert calls == Counter(["plan", "report"])
    assert data_of(done) == data_of(run_aura_orchestrator(STUDENT_MAIL, "s1", store=store))


@pytest.mark.long
def test_a_document_may_go_back_but_not_ahead_of_its_session(store: Path, calls: Counter[str]) -> None:
    done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    back = save_workflow_state(
        done.session_id, done.model_copy(update={"current_step": CurrentStep.PLANNING, "days": 2}), store=store
    )
    assert (back.current_step, back.status, back.days) == (CurrentStep.PLANNING, "ready", 2)
    with pytest.raises(BadInput, match=r"^current_step: Session .* is at PLANNING and cannot be moved .* to COMPL"):
        save_workflow_state(done.session_id, done, store=store)
    again = run_aura_orchestrator(STUDENT_MAIL, done.session_id, store=store)
    assert (len(again.load), calls["sync"], calls["plan"]) == (2, 1, 2)
    with pytest.raises(BadInput, match=r"^current_step: Session 'new' is new and cannot be COMPLETED"):
        save_workflow_state("new", done, store=store)


def test_what_cannot_be_saved_is_refused_and_changes_nothing(store: Path) -> None:
    state = up_to(store, "sync")
    for wrong, field in (({"days": 99}, "days"), ({"student_id": "student-2"}, "student_id"), ({"load": [1]}, "load")):
        with pytest.raises(BadInput, match=rf"^{field}"):
            save_workflow_state("s1", state.model_dump() | wrong, store=store)
    with pytest.raises(InvalidSessionId):
        save_workflow_state("../x", state, store=store)
    assert get_workflow_state("s1", store=store) == state


def test_a_saved_pause_request_is_one_and_its_absence_takes_none_back(store: Path) -> None:
    done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    back = save_workflow_state(
        done.session_id, done.model_copy(update={"current_step": CurrentStep.PLANNING}), store=store
    )
    assert (back.status, back.pause_requested) == ("ready", False)
    paused = save_workflow_state(back.session_id, back.model_copy(update={"pause_requested": True}), store=store)
    assert (paused.status, paused.current_step) == ("paused", CurrentStep.PLANNING)
    saved = save_workflow_state(back.session_id, back.model_copy(update={"days": 5}), store=store)
    assert (saved.status, saved.days) == ("paused", 5)


@pytest.mark.covers("S1.17")
def test_sessions_are_rows_of_workflow_states_by_their_id(store: Path) -> None:
    done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    up_to(store, "analyze", "halfway")
    look = "SELECT session_id, current_step, status, owner FROM workflow_states ORDER BY created_at"
    assert outside_sql(store, look) == [
        {"session_id": done.session_id, "current_step": None, "status": "completed", "owner": STUDENT_MAIL},
        {"session_id": "halfway", "current_step": "plan", "status": "paused", "owner": STUDENT_MAIL},
    ]


def test_a_session_of_somebody_else_is_refused(store: Path) -> None:
    up_to(store, "sync")
    with pytest.raises(WrongOwner, match=r"belongs to 'student@example\.com', not to 'student-2'"):
        run_aura_orchestrator("student-2", "s1", store=store)
    with Engine(store, workflows=[aura]) as engine:
        engine.start(aura, starting(STUDENT_MAIL), session_id="nobodys", paused=True)
    with pytest.raises(
        BadInput, match=r"^student_id: Session 'nobodys' belongs to 'student@example\.com', not to 'student-2'"
    ):
        run_aura_orchestrator("student-2", "nobodys", store=store)
    with pytest.raises(BadInput, match=r"^days: Session .* already has its settings"):
        run_aura_orchestrator(STUDENT_MAIL, "s1", store=store, days=3)


def test_pausing_a_completed_session_says_that_it_is_completed(store: Path) -> None:
    done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    assert request_pause(done.session_id, store=store, reason="lunch", by="ann") == done


def test_a_failed_step_is_told_and_goes_on_once_its_cause_is_gone(store: Path, tmp_path: Path) -> None:
    folder = small_class(tmp_path / "school")
    with Engine(store, workflows=[aura]) as engine:
        state = starting(STUDENT, data=folder, now=NOW, time_zone="UTC", reports=tmp_path / "reports")
        engine.start(aura, state, session_id="s1", owner=STUDENT, paused=True)
    whole = (folder / "courses.json").read_text()
    put(folder / "courses.json", "{")
    failed = run_aura_orchestrator(STUDENT, "s1", store=store)
    assert (failed.status, failed.current_step) == ("failed", CurrentStep.SYNCING)
    assert failed.error is not None
    assert "courses.json, line 1, column 1" in failed.error
    put(folder / "courses.json", whole)
    assert run_aura_orchestrator(STUDENT, "s1", store=store).status == "completed"


def test_a_session_that_runs_cannot_be_saved_over(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = skill_mastery.analyze

    def slow(*args: Any) -> SkillProfile:
        begun.set()
        assert go_on.wait(PATIENCE)
        return real(*args)

    monkeypatch.setattr(skill_mastery, "analyze", slow)
    with Engine(store, workflows=[aura]) as engine:
        session = engine.start(aura, starting(STUDENT_MAIL, reports=store.parent / "r"), session_id="s1")
        assert begun.wait(PATIENCE)
        document = get_workflow_state("s1", store=store)
        assert document is not None
        assert (document.current_step, document.status, len(document.assignments)) == ("ANALYZING", "running", 20)
        with pytest.raises(VerbRefused, match="Pause it"):
            save_workflow_state("s1", document.model_copy(update={"days": 3}), store=store)
        go_on.set()
        assert session.outcome().status == "completed"


# odd calendars, and the memory of the last report


@pytest.mark.long
def test_an_odd_event_is_said_in_the_report_and_in_the_log_and_the_calendar_is_used(
    store: Path, tmp_path: Path
) -> None:
    lines = [
        "BEGIN:VCALENDAR", "BEGIN:VEVENT", "SUMMARY:Swim", "DTSTART:20300304T160000Z", "RRULE:FREQ=SECONDLY",
        "END:VEVENT", "BEGIN:VEVENT", "DTSTART:20300304T150000Z", "DTEND:20300304T200000Z", "END:VEVENT",
        "END:VCALENDAR", "",
    ]  # fmt: skip
    calendar = put(tmp_path / "c.ics", "\n".join(lines))
    folder = small_class(tmp_path / "school")
    done = run_aura_orchestrator(STUDENT, store=store, data=folder, now=NOW, calendar=calendar, time_zone="UTC")
    (note,) = done.notes
    assert note == "Calendar: The event “Swim” (Mon 4 Mar) was left out: it takes place more than 20,000 times."
    assert done.load[0].free == 0  # the other event counts
    assert done.report is not None
    assert note in done.report.markdown.read_text("utf-8")
    with Engine(store, workflows=[aura]) as engine:
        said = [
            event.summary
            for event in engine.session(done.session_id).events()
            if event.event_type == workflow.ODD_EVENT
        ]
    assert said == [note]


@pytest.mark.long
def test_the_next_weeks_session_knows_the_last(store: Path, tmp_path: Path) -> None:
    folder = small_class(tmp_path / "school")
    settings: dict[str, Any] = {"store": store, "data": folder, "time_zone": "UTC"}
    first = run_aura_orchestrator(STUDENT, now=NOW - timedelta(days=7), **settings)
    assert first.previous is None
    other = run_aura_orchestrator("student@example.com", store=store, now=NOW - timedelta(days=1))
    assert other.previous is None  # it is another student's
    done = [handed_in("w1", NOW - timedelta(days=8), 8), handed_in("w2", NOW - timedelta(days=1), 9)]
    put(folder / "studentSubmissions.json", {"studentSubmissions": done})
    second = run_aura_orchestrator(STUDENT, now=NOW, **settings)
    again = run_aura_orchestrator(STUDENT, now=NOW + timedelta(hours=1), **settings)  # on the same day
    for report in (second, again):
        assert report.previous is not None
        assert report.previous.session_id == first.session_id
        assert report.report is not None
        text = report.report.markdown.read_text("utf-8")
        assert "Compared with the report of Mon 25 Feb." in text
        assert "**New grades**\n\n- **Work w2**: Botany · 9 of 10" in text


# load


@pytest.mark.long
@pytest.mark.parametrize(("students", "own"), [(1, 2400), (40, 60)])
def test_a_large_class_is_planned_within_seconds(tmp_path: Path, students: int, own: int) -> None:
    said = measure(tmp_path, 2400, students)
    assert said.startswith(f"completed: 2,400 submissions, {own:,} of the student;")
    match = re.search(r"([\d.]+) s of CPU time", said)
    assert match is not None
    assert float(match[1]) < 15  # 60,000 take that long, see the README; the machine of a test run is slower
    (report,) = (tmp_path / "aura").glob("*.md")
    assert f"Made from {own} assignments in 60 courses" in report.read_text("utf-8")


def test_the_sample_without_its_calendar_is_not_run_without_a_word(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="The sample runs without its calendar.*pausepoint\\[apps\\]") as told:
        done = run_aura_orchestrator(STUDENT_MAIL, store=store)
    assert [each.filename for each in told] == [__file__]
    assert (done.status, done.calendar) == ("completed", None)
    run_aura_orchestrator(STUDENT_MAIL, store=store, data=SAMPLE, now=NOW)  # nobody has spoken of a calendar: no word


@pytest.mark.long
def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    heavy = ("icalendar", "dateutil", "googleapiclient", "google.oauth2", "httpx2", "openai", "pydantic_ai")
    apps = ", ".join(f"pausepoint.apps.{name}" for name in ("aura", "devs", "helpdesk", "memo", "planner", "model"))
    code = f"import sys, {apps}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_sample_is_small_and_invented() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 40_000
    people = open_source(str(SAMPLE), "UTC").students()
    assert people == ["student-2@example.com", "student@example.com"]
