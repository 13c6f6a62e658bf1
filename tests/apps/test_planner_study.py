"""What a language model says about the topics of a book: how hard they are, what comes first, and questions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from threading import Event

import pytest

from pausepoint import Engine, Retry
from pausepoint.apps.input import BadInput
from pausepoint.apps.model import ModelUnavailable
from pausepoint.apps.planner import SessionDocument, excerpts, planner, reader, sessions, study
from pausepoint.apps.planner.models import (
    Course,
    Cut,
    Evidence,
    IngestionState,
    PlannerState,
    PlanningState,
    PlanRow,
    RowPart,
    Study,
    Upload,
    UserInputs,
)
from pausepoint.apps.planner.rows import REVIEW
from pausepoint.apps.planner.selftests import SelfTests
from pausepoint.apps.planner.shown import Shown
from tests.apps.pdfs import make_pdf
from tests.apps.planner_kit import CALC, INPUTS, go_on
from tests.support.forkserver import Forks
from tests.support.held import Driven
from tests.support.modelserver import Act, Holds, ModelServer, Refuses, Says, Status, model_at
from tests.support.servers import serving
from tests.support.waits import until

TOPICS = ("Anchors", "Currents", "Rudders")


def book(folder: Path) -> Path:
    """A text of three chapters that share a page."""
    path = folder / "boats.md"
    text = "# {}\n\n" + "Sailors trust their {} at sea. " * 200 + "\n\n"
    path.write_text("".join(text.replace("{}", each) for each in TOPICS))
    return path


def reply(topic: str, difficulty: str = "normal", first: Sequence[str] = (), *more: str) -> str:
    questions = [f"Why do sailors trust {topic}?", f"When do {topic} fail at sea?", f"Which sailors trust {topic}?"]
    return json.dumps({"difficulty": difficulty, "prerequisites": first, "questions": [*questions, *more]})


GOOD = [reply("anchors", "easy", ["Rudders"]), reply("currents"), reply("rudders", "hard", ["anchors", "Witchcraft"])]


def planned(folder: Path, path: Path) -> tuple[SessionDocument, dict[str, str]]:
    """Plan a file, and return the session with its outputs, whichever folder its store is in."""
    inputs = INPUTS | {"courses": [CALC]}
    folder.mkdir(exist_ok=True)
    with Engine(folder / "p.db", workflows=[planner]) as engine:
        engine.start(planner, sessions.starting(inputs, [Upload(path=path, is_shared=True)]), session_id="s1").outcome()
        document = sessions.document(engine, "s1")
    return document, outputs_of(document)


def outputs_of(document: SessionDocument) -> dict[str, str]:
    found = document.artifacts
    paths = {"md": found.markdown_path, "csv": found.csv_path, "html": found.page_path}
    texts = {name: Path(path or "").read_text("utf-8") for name, path in paths.items()}
    return {name: re.sub(r"--store [^\s<]+", "--store PATH", text) for name, text in texts.items()}


def studies(document: SessionDocument) -> list[Study | None]:
    return [each.study for each in document.ingestion_state.course_topic_evidence]


def warnings(document: SessionDocument) -> list[str]:
    return [event.summary for event in document.events if event.event_type == "warning"]


def test_a_model_says_how_hard_a_topic_is_what_comes_first_and_what_to_ask(tmp_path: Path, server: ModelServer) -> None:
    nonsense = reply("quantum gravity").replace("sailors", "physicists").replace("at sea", "there")
    bad = ["Which wizards wrote spells?", "Why do sailors trust https://anchors.example?", "Explain " * 50]
    server.will(Says(nonsense), Says(reply("anchors", "easy", ["Rudders"], *bad)), Says(GOOD[1]), Says(GOOD[2]))
    document, outputs = planned(tmp_path, book(tmp_path))
    anchors, _, rudders = studies(document)
    assert anchors == Study(
        difficulty="easy",
        questions=["Why do sailors trust anchors?", "When do anchors fail at sea?", "Which sailors trust anchors?"],
    )
    assert rudders is not None
    assert (rudders.difficulty, rudders.prerequisites) == ("hard", ["Anchors"])
    assert "fewer than 3 different questions use the words of the text" in json.dumps(server.requests[1])
    asked = [json.dumps(request["messages"][1]) for request in server.requests[1:]]
    for at, words in enumerate(asked):  # each topic is asked about with its own text alone
        assert [f"trust their {each}" in words for each in TOPICS] == [each == TOPICS[at] for each in TOPICS]
    for text in (outputs["md"], outputs["html"]):
        told = text.rpartition("Test yourself")[2]
        assert "Calculus II: Rudders" in told
        assert "Hard, according to a language model. Know this first: Anchors." in told
        assert "Why do sailors trust rudders?" in told
        assert not re.search("wizards|https:|Explain Explain", text)
    week = outputs["md"].partition("## Midterms")[0]
    assert "min (`calc2-" in week
    assert "  - Easy, according to a language model.\n  - Test yourself: Why do sailors trust anchors?" in week
    assert re.search(
        "<summary>Test yourself: 3 questions</summary><ul[^>]*><li>Why do sailors trust anch", outputs["html"]
    )
    assert (warnings(document), document.ingestion_state.warnings) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "requests", "why"),
    [
        (Refuses(), 3, "declines to answer"),
        (Status(401), 1, "does not accept the request"),
        (Status(503), 2, "cannot be reached"),
        (Says(reply("x").replace("sailors", "y").replace("sea", "z")), 9, "Its answers do not fit the text"),
        (Says('{"difficulty": "extreme", "prerequisites": [], "questions": []}'), 9, "Its answers do not fit"),
        (None, 0, "PAUSEPOINT_MODEL_URL is 'nowhere'"),
    ],
    ids=["refusal", "key", "outage", "other questions", "nonsense", "settings"],
)
def test_a_model_that_fails_leaves_the_computed_plan(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, answer: Act | None, requests: int, why: str
) -> None:
    monkeypatch.setattr(reader, "OUTAGE", Retry(attempts=2, first=0, on=(ModelUnavailable,)))
    with pytest.MonkeyPatch.context() as without:
        without.delenv("PAUSEPOINT_MODEL")
        without.delenv("PAUSEPOINT_MODEL_URL")
        computed, outputs = planned(tmp_path / "computed", book(tmp_path))
    assert server.requests == []
    assert "Test yourself" not in "".join(outputs.values())
    if answer is None:
        monkeypatch.setenv("PAUSEPOINT_MODEL_URL", "nowhere")
    else:
        server.will(*[answer] * 9)
    document, found = planned(tmp_path / "asked", book(tmp_path))
    (told,) = document.ingestion_state.warnings
    assert told.startswith("boats.md: A language model gave no usable answer about 3 topics.")
    without_it = {
        "md": found["md"].replace(f"\n## Warnings\n\n- {told}\n", ""),
        "html": re.sub(f"<h2>Warnings</h2><ul[^>]*><li>{re.escape(told)}</li></ul>\n", "", found["html"]),
        "csv": found["csv"],
    }
    assert without_it == outputs
    assert document.estimation_state == computed.estimation_state
    assert studies(document) == [None] * 3
    assert len(server.requests) == requests
    (warning,) = warnings(document)
    assert warning.startswith(f"{told} ")
    assert why in warning


@pytest.mark.long
def test_a_model_that_is_wrong_makes_no_plan_worse(tmp_path: Path, server: ModelServer) -> None:
    """It calls everything hard, names nonsense as what comes first, and names texts as the old exam names a chapter.

    The time is too short, so there are cuts. Rows, minutes, priorities and cuts are those of a plan without a model.
    """
    notes, exam = tmp_path / "notes.txt", tmp_path / "exam.txt"
    lines = "whale {} sings in deep currents to krill, far from rudders\n", "squid {} hides from seals below dark ice\n"
    notes.write_text("".join(line.format(number) for line in lines for number in range(1_100)))
    exam.write_text("Explain currents and rudders. Time: 90 minutes")
    inputs = INPUTS | {"courses": [CALC], "shared_constraints": {"max_minutes_per_day": 15}}
    uploads = [
        Upload(path=book(tmp_path), is_shared=True), Upload(path=notes, is_shared=True),
        Upload(path=exam, is_shared=True, role="old_exam"),
    ]  # fmt: skip

    def plan(store: str) -> SessionDocument:
        with Engine(tmp_path / store, workflows=[planner]) as engine:
            engine.start(planner, sessions.starting(inputs, uploads), session_id="s1").outcome()
            return sessions.document(engine, "s1")

    with pytest.MonkeyPatch.context() as without:
        without.delenv("PAUSEPOINT_MODEL")
        computed = plan("computed.db")
    names = [Says(json.dumps({"topic": name})) for name in ("Rudders", "Rudders", "Dark ice", "Dark ice")]
    of_whales = [reply("krill", "hard", ["Rudders"]).replace("sailors", "whales").replace("sea", "deep")] * 2
    of_squid = [reply("ice", "hard", ["Rudders"]).replace("sailors", "squid").replace("sea", "seals")] * 2
    of_boats = [reply(topic.lower(), "hard", ["Anchors", "Witchcraft"]) for topic in TOPICS]
    server.will(*map(Says, of_boats), *names, *map(Says, [*of_whales, *of_squid]))
    asked = plan("asked.db")
    assert (len(server.requests), len(server.script)) == (11, 0)
    assert [study.difficulty for study in studies(asked) if study] == ["hard"] * 5
    assert [study.prerequisites for study in studies(asked) if study][1:3] == [["Anchors"], ["Anchors"]]
    names_of = [[each.topic for each in found.estimation_state.topic_estimates] for found in (computed, asked)]
    assert [names[:3] for names in names_of] == [list(TOPICS)] * 2
    assert names_of[1][3:5] == ["Rudders (2)", "Dark ice"] != names_of[0][3:5]
    assert essence(asked) == essence(computed)
    assert {each.planned_minutes for each in asked.planning_state.cuts} > {0}


def essence(document: SessionDocument) -> object:
    """A plan without the names of its topics: what is done when, what matters, and what is cut."""
    planning = document.planning_state
    parts = [[(part.first, part.last, part.minutes) for part in row.parts] for row in planning.plan_rows]
    rows = [(row.date, row.starts_at, row.estimated_minutes, row.priority, row.status) for row in planning.plan_rows]
    estimates = [(each.estimated_minutes, each.priority, each.confidence)
                 for each in document.estimation_state.topic_estimates]  # fmt: skip
    cuts = [(cut.needed_minutes, cut.planned_minutes) for cut in planning.cuts]
    return estimates, rows, parts, cuts, planning.enough_minutes, planning.review and planning.review.result_type


def test_the_limits_of_what_a_model_is_asked_are_said(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "MOST_TOPICS", 2)
    monkeypatch.setattr(study, "MOST_WINDOWS", 2)
    monkeypatch.setattr(excerpts, "LONGEST_EXCERPT", 300)
    lines = [f"Sailors trust their anchors and currents at sea, says captain {number}" for number in range(10)]
    path = make_pdf(tmp_path / "boats.pdf", [lines] * 6, [(title, at * 2) for at, title in enumerate(TOPICS)])
    server.will(*[Says(answer) for answer in (reply("anchors"), reply("currents", "hard"), GOOD[1], GOOD[1])])
    document, _ = planned(tmp_path, path)
    first, second, third = studies(document)
    assert first is not None
    assert second is not None
    assert third is None
    assert (first.difficulty, len(first.questions), len(second.questions)) == ("hard", 3, 3)
    assert first.questions[:2] == ["Why do sailors trust anchors?", "Why do sailors trust currents?"]
    said = warnings(document)
    assert said == document.ingestion_state.warnings
    assert said[0].startswith("boats.pdf: A language model read the first ")
    assert said[0].endswith(" characters of “Anchors”.")
    assert said[2].startswith("boats.pdf: A language model read the first 2 of 3 topics. The others have no questions.")


def test_a_file_that_is_added_later_is_read_and_the_others_are_not_read_again(
    tmp_path: Path, server: ModelServer
) -> None:
    server.will(*[Says(each) for each in GOOD], Says(reply("kites")))
    later = tmp_path / "kites.md"
    later.write_text("# Kites\n\n" + "Sailors trust their kites at sea. " * 100)
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        inputs = INPUTS | {"courses": [CALC]}
        uploads = [Upload(path=book(tmp_path), is_shared=True)]
        engine.start(planner, sessions.starting(inputs, uploads), session_id="s1").outcome()
        sessions.add_file(engine, "s1", Upload(path=later, is_shared=True))
        found = studies(go_on(engine))
    assert [each.difficulty for each in found if each] == ["easy", "normal", "hard", "normal"]
    assert len(server.requests) == 4


def test_a_model_that_failed_is_asked_again_by_retry(tmp_path: Path, server: ModelServer) -> None:
    server.will(Status(401), *[Says(each) for each in GOOD])
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        inputs = INPUTS | {"courses": [CALC]}
        uploads = [Upload(path=book(tmp_path), is_shared=True)]
        engine.start(planner, sessions.starting(inputs, uploads), session_id="s1").outcome()
        sessions.mark(engine, "s1", ["Anchors"], "done", date(2030, 2, 8), "")
        go_on(engine)
        assert sessions.retry(engine, "s1") == []
        document = go_on(engine)
        with pytest.raises(BadInput, match="There is nothing to retry"):
            sessions.retry(engine, "s1")
    assert [each.difficulty for each in studies(document) if each] == ["easy", "normal", "hard"]
    assert document.ingestion_state.warnings == []
    assert {each.topic for each in document.user_inputs.progress} == {"Anchors"}


# where the questions are


def row(day: int, topic: str, minutes: int = 30, course: str = "Boats") -> PlanRow:
    return PlanRow(
        date=date(2030, 2, day), course=course, topic=topic, task_description="Study", estimated_minutes=minutes,
        priority="high", row_id=f"r{day}", parts=[RowPart(topic=topic)] if topic != REVIEW else [],
    )  # fmt: skip


def test_a_review_asks_about_the_topics_that_are_finished_and_the_next_one_asks_other_questions() -> None:
    inputs = UserInputs(courses=[Course(course_id="b", course_name="Boats", midterm_date=date(2030, 2, 21))])
    evidence = [
        Evidence(course_id="b", topic=each, evidence_summary="", study=Study(questions=[f"{each} 1", f"{each} 2"]))
        for each in (*TOPICS, "Left out")
    ]
    rows = [row(1, "Anchors"), row(2, "Currents"), row(3, REVIEW), row(4, "Currents"), row(5, REVIEW, 8),
            row(6, "Rudders"), row(7, REVIEW)]  # fmt: skip
    tests = SelfTests(inputs, evidence, rows)
    assert [tests.questions(each) for each in rows] == [
        ["Anchors 1", "Anchors 2"], [], ["Anchors 1"], ["Currents 1", "Currents 2"], ["Anchors 2", "Currents 2"],
        ["Rudders 1", "Rudders 2"], ["Anchors 1", "Currents 1", "Rudders 1"],
    ]  # fmt: skip
    assert [each.topic for each in tests.all()] == list(TOPICS)


def test_a_topic_whose_prerequisite_is_left_out_is_named_among_the_cuts() -> None:
    inputs = UserInputs(courses=[Course(course_id="b", course_name="Boats")])
    evidence = [
        Evidence(course_id="b", topic="Anchors", evidence_summary="", study=Study()),
        Evidence(course_id="b", topic="Rudders", evidence_summary="", study=Study(prerequisites=["Anchors"])),
    ]
    state = PlannerState(user_inputs=inputs, ingestion_state=IngestionState(course_topic_evidence=evidence))
    cuts = [Cut(course_id="b", topic="Anchors", needed_minutes=30, planned_minutes=0)]
    assert Shown(state, PlanningState(cuts=cuts), inputs).cuts == [
        "Boats: 1 topic left out: Anchors.",
        "Boats: Rudders needs Anchors, which is left out.",
    ]


def test_every_topic_that_is_cut_is_named() -> None:
    inputs = UserInputs(courses=[Course(course_id="b", course_name="Boats")])
    cuts = [Cut(course_id="b", topic=f"Knot {at}, the {word} one", needed_minutes=30, planned_minutes=minutes)
            for at in range(9) for word, minutes in (("long", 0), ("short", 15))]  # fmt: skip
    gone, less = Shown(PlannerState(user_inputs=inputs), PlanningState(cuts=cuts), inputs).cuts
    assert gone == f"Boats: 9 topics left out: {'; '.join(f'Knot {at}, the long one' for at in range(9))}."
    assert less.endswith(f"needed: {'; '.join(f'Knot {at}, the short one' for at in range(9))}.")


# kills


class Process(Driven):
    """The planner's program with a model."""

    job = "tests.apps.planner_watched:job"

    def plan(self) -> dict[str, str]:
        with Engine(self.store, workflows=[planner], create=False) as engine:
            return outputs_of(sessions.document(engine, "s1"))


@pytest.mark.long
def test_a_killed_planner_asks_nothing_twice_and_writes_the_same_plan(tmp_path: Path, forks: Forks) -> None:
    """The answer in flight is asked for again. Answers and refusals that came before the kill are not."""
    killed, whole = Process(tmp_path / "killed", forks), Process(tmp_path / "whole", forks)
    never = Event()
    course = ["--course", "boats:Boats:2030-02-21", "--file", f"boats:{book(tmp_path)}", "--start", "2030-02-08"]
    begun = "--session-id", "s1", *course, "--time-zone", "UTC"
    with serving(ModelServer()) as server:
        killed.folder.mkdir()
        whole.folder.mkdir()
        killed.variables = whole.variables = model_at(server.url) | {"PAUSEPOINT_MODEL_PRICE": "1/10"}
        server.will(Says(GOOD[0]), Refuses(), Holds(GOOD[2], never), Says(GOOD[2]))
        child = killed.begin(*begun)
        until(lambda: len(server.requests) == 3)
        killed.kill(child)
        killed.run("resume", "s1")
        never.set()
        asked = [json.dumps(request["messages"]) for request in server.requests]
        assert [asked.index(each) for each in asked] == [0, 1, 2, 2]
        server.will(Says(GOOD[0]), Refuses(), Says(GOOD[2]))
        whole.run(*begun)
    found = killed.plan()
    assert "Why do sailors trust rudders?" in found["md"]
    assert "no usable answer about 1 topic." in found["md"]
    assert found == whole.plan()
