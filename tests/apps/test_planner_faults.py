"""The planner as real processes: what another process shows after a kill, and a book that is larger than memory.

`tests.apps.test_faults` kills and interrupts it at every chunk and in every stage.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.apps.pdfs import textbook
from tests.apps.programs import CHUNKS, READS, Planner
from tests.support.forkserver import Forks


def test_progress_is_told_by_another_process_after_a_kill(tmp_path: Path, forks: Forks) -> None:
    with Planner(tmp_path, forks) as session:
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
    with Planner(tmp_path, forks) as session:
        session.start(at="chunk .pdf:13")
        assert session.calls == Counter(["pages .pdf", "outline .pdf", *(f"chunk .pdf:{index}" for index in range(14))])
        session.resume(at="chunk .pdf:30")
        session.resume()
        document = session.document()
    again = Counter(["chunk .pdf:13", "chunk .pdf:30"])
    chunks = Counter(f"chunk .pdf:{index}" for index in range(42))
    assert session.calls - again == chunks + session.once - Counter(READS)
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
