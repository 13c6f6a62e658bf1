"""The planner as real processes: what another process shows after a kill, and a book that is larger than memory.

`tests.apps.test_faults` kills and interrupts it at every chunk and in every stage.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.apps.pdfs import textbook
from tests.apps.programs import READS, Planner
from tests.support.forkserver import Forks


@pytest.mark.covers("S3.102")
def test_a_book_of_840_pages_and_52_mb_is_resumed_at_the_next_chunk_another_process_tells_its_progress(
    tmp_path: Path, forks: Forks
) -> None:
    textbook(tmp_path / "book.pdf")
    (tmp_path / "notes.md").write_text("## Only topic\n\nwith a few words to say about it, and some more words\n")
    assert 51e6 < (tmp_path / "book.pdf").stat().st_size < 54e6
    with Planner(tmp_path, forks) as session:
        session.start(at="chunk .pdf:13")
        assert session.calls == Counter(["pages .pdf", "outline .pdf", *(f"chunk .pdf:{index}" for index in range(14))])
        killed = session.document()
        session.resume(at="chunk .pdf:30")
        session.resume()
        document = session.document()
    progress = {each["chunking"]["total_chunks"]: each for each in killed["ingestion_state"]["files"].values()}
    assert killed["status"] == "ingesting"
    assert (progress[42]["processed_chunks"], progress[42]["status"]) == (13, "partial")
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
