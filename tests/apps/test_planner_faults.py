"""The planner as real processes, killed at every chunk and in every stage, then resumed by another process.

The result is that of an undisturbed session, and every call is counted.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.apps.pdfs import make_pdf, textbook
from tests.support.forkserver import Child, Forks
from tests.support.held import Driven

CHUNKS = 5
COURSES = ["--course", "calc2:Calculus II:2030-02-21", "--course", "hist:History:2030-02-26"]
LIMITS = ["--start", "2030-02-08", "--time-zone", "UTC", "--max-minutes", "15", "--rest-day", "Sunday"]
ONCE = Counter(
    [f"{what} {kind}" for what in ("pages", "outline") for kind in (".pdf", ".md")]
    + [*(f"chunk .pdf:{index}" for index in range(CHUNKS)), "chunk .md:0", "estimate"]
    + ["plan", "review"] * 2
    + ["finish"]
)
"""With a plan that is revised once."""


class Planner(Driven):
    """One session in a folder of its own."""

    job = "tests.apps.planner_watched:job"

    def __init__(self, folder: Path, forks: Forks, material: Path) -> None:
        super().__init__(folder, forks)
        self.files = ["--file", f"calc2:{material / 'book.pdf'}", "--file", f"hist:{material / 'notes.md'}"]
        self.peak = 0

    def start(self, at: str = "", by: signal.Signals = signal.SIGKILL) -> None:
        self.run("--session-id", "s1", *COURSES, *self.files, *LIMITS, at=at, by=by)

    def resume(self, at: str = "") -> None:
        self.run("resume", "s1", at=at)

    def ends(self, child: Child, *codes: int) -> str:
        found = super().ends(child, *codes)
        if child.code != -signal.SIGKILL:
            self.peak = child.hear()["peak"]
        return found

    def document(self) -> dict[str, Any]:
        to = self.folder / "document.json"
        child = self.server.start("tests.apps.planner_watched:look", store=str(self.store), session_id="s1", to=str(to))
        assert child.wait() == 0
        found: dict[str, Any] = json.loads(to.read_text())
        return found

    def result(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """All that a session leaves, apart from where it lies and when it was made."""
        found = self.document()
        for name in ("created_at", "updated_at", "artifacts"):
            del found[name]
        del found["planning_state"]["made_at"]
        found["events"] = [(event["agent_name"], event["event_type"], event["summary"]) for event in found["events"]]
        outputs = self.folder / "store.db.sessions" / "s1" / "outputs"
        files = {path.name: path.read_bytes() for path in sorted(outputs.iterdir())}
        files["study_plan.ics"], count = re.subn(rb"DTSTAMP:\d{8}T\d{6}Z", b"", files["study_plan.ics"])
        assert count == files["study_plan.ics"].count(b"BEGIN:VEVENT") > 0
        return found, files


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    lines = [f"a line of words about series number {number} and its limit" for number in range(25)]
    titles = [(f"Chapter {number + 1}", number * 20) for number in range(CHUNKS)]
    make_pdf(folder / "book.pdf", [[f"Page {number}", *lines] for number in range(20 * CHUNKS - 7)], titles)
    notes = "".join(f"## Topic {name}\n\n{'some words about the matter ' * 60}\n\n" for name in "ABC")
    (folder / "notes.md").write_text(notes)
    return folder


@pytest.fixture
def session(tmp_path: Path, forks: Forks, material: Path) -> Planner:
    return Planner(tmp_path, forks, material)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, forks: Forks, material: Path
) -> tuple[dict[str, Any], dict[str, bytes]]:
    found = Planner(tmp_path_factory.mktemp("undisturbed"), forks, material)
    found.start()
    assert found.calls == ONCE
    document, files = found.result()
    assert (document["status"], document["planning_state"]["plan_version"]) == ("completed", 2)
    assert set(files) == {"study_plan.md", "study_plan.csv", "study_plan.html", "study_plan.ics"}
    return document, files


@pytest.mark.long
@pytest.mark.parametrize("where", [each for each in ONCE if not each.startswith("pages ")])
def test_a_kill_at_any_chunk_and_in_any_stage_costs_that_call_alone(
    session: Planner, where: str, undisturbed: object
) -> None:
    session.start(at=where)
    session.resume()
    assert session.calls - ONCE == Counter([where])
    assert session.result() == undisturbed


@pytest.mark.long
def test_a_session_that_is_killed_at_every_call_in_turn_still_gets_to_the_same_end(
    session: Planner, undisturbed: object
) -> None:
    """Each process gets one call further and is killed in the next."""
    calls = [f"chunk .pdf:{index}" for index in range(CHUNKS)] + ["estimate", "plan", "review", "finish"]
    session.start(at=calls[0])
    for where in calls[1:]:
        session.resume(at=where)
    session.resume()
    assert session.calls == ONCE + Counter(calls)
    assert session.result() == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["chunk .pdf:0", "chunk .pdf:3", "plan"])
def test_an_interrupt_costs_nothing_at_all(
    session: Planner, where: str, by: signal.Signals, undisturbed: object
) -> None:
    """What is being done is finished; the step's own code, outside of operations, may be done again."""
    session.start(at=where, by=by)
    session.resume()
    assert session.calls - ONCE <= Counter(["plan"] if where == "plan" else [])
    assert session.result() == undisturbed


@pytest.mark.long
def test_progress_is_told_by_another_process_after_a_kill(session: Planner, undisturbed: object) -> None:
    session.start(at="chunk .pdf:3")
    document = session.document()
    progress = {each["chunking"]["total_chunks"]: each for each in document["ingestion_state"]["files"].values()}
    assert document["status"] == "ingesting"
    assert (progress[CHUNKS]["processed_chunks"], progress[CHUNKS]["status"]) == (3, "partial")


@pytest.mark.covers("S3.102")
def test_a_book_of_840_pages_and_52_mb_goes_on_with_the_next_chunk_and_is_never_in_memory(
    tmp_path: Path, forks: Forks
) -> None:
    textbook(tmp_path / "book.pdf")
    (tmp_path / "notes.md").write_text("## Only topic\n\nwith a few words to say about it, and some more words\n")
    assert 51e6 < (tmp_path / "book.pdf").stat().st_size < 54e6
    session = Planner(tmp_path, forks, tmp_path)
    session.start(at="chunk .pdf:13")
    assert session.calls == Counter(["pages .pdf", "outline .pdf", *(f"chunk .pdf:{index}" for index in range(14))])
    session.resume(at="chunk .pdf:30")
    session.resume()
    again = Counter(["chunk .pdf:13", "chunk .pdf:30"])
    assert session.calls - again == Counter([f"chunk .pdf:{index}" for index in range(42)]) + ONCE - Counter(
        f"chunk .pdf:{index}" for index in range(CHUNKS)
    )
    document = session.document()
    (book,) = (each for each in document["ingestion_state"]["files"].values() if each["chunking"]["total_chunks"] > 1)
    assert book == {
        "chunking": {"mode": "page_window", "max_pages_per_chunk": 20, "total_chunks": 42}, "processed_chunks": 42,
        "failed_chunks": [], "status": "complete", "last_error": None, "warning": None,
    }  # fmt: skip
    chapters = [each for each in document["ingestion_state"]["course_topic_evidence"] if each["course_id"] == "calc2"]
    assert len(chapters) == 12
    assert (
        840 <= sum(each["measure"]["pages"] for each in chapters) < 840 + 12
    )  # one on which two of them meet is of both
    assert session.peak < 300e6
