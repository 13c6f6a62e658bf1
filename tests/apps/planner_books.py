"""Show what the planner makes of real books: ``python -m tests.apps.planner_books FOLDER_OR_FILE…``

One row per file: its pages, the topics found and how, what is set aside, and the CPU seconds it took. ``--topics``
lists the topics with their pages. ``--by-looks`` ignores the outline; for a file that has one, the last column then
says how many of the starting pages of the outline's topics were found without it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from pausepoint.apps.planner import ingestion, materials
from pausepoint.apps.planner.chapters import Book, Topic, book_of
from pausepoint.apps.planner.materials import ENDINGS, PDF, Bookmark
from pausepoint.apps.planner.models import PAGES_PER_CHUNK
from pausepoint.apps.planner.topics import Findings
from pausepoint.apps.words import many

ROW = "| {:<28} | {:>5} | {:>6} | {:<14} | {:>9} | {:>7} | {}"


def windows(path: Path, bookmarks: list[Bookmark]) -> dict[str, Findings]:
    """Return what IngestionAgent finds in each window of a file."""
    kind = materials.checked(path)
    numbers = range(math.ceil(materials.page_count(str(path), kind) / PAGES_PER_CHUNK))
    return {
        f"file:{at}": ingestion._pieces(str(path), kind, at * PAGES_PER_CHUNK, PAGES_PER_CHUNK, bookmarks)
        for at in numbers
    }


def read(path: Path, bookmarks: list[Bookmark]) -> Book:
    """Read a file as IngestionAgent does, without a session."""
    return book_of(windows(path, bookmarks), path.name, paged=materials.kind_of(path) == PDF)


def start_of(topic: Topic) -> int | None:
    return topic.sections[0].first_page if topic.sections else None


def row(path: Path, by_looks: bool) -> Book:
    """Print the row of one file."""
    began = time.process_time()
    bookmarks = materials.outline(str(path), materials.checked(path))
    book = read(path, [] if by_looks else bookmarks)
    seconds = time.process_time() - began
    basis = ", ".join(sorted({topic.basis for topic in book.topics})) or "nothing"
    starts = [start_of(topic) or 0 for topic in book.topics]
    said = book.unread or ("" if starts == sorted(starts) else "not in the order of the book")
    if by_looks and bookmarks:
        wanted = {start_of(topic) for topic in read(path, bookmarks).topics}
        said = f"{len(wanted & {start_of(topic) for topic in book.topics})} of {many(len(wanted), 'start')}"
    aside = len(book.set_aside)
    print(ROW.format(path.name[:28], book.pages, len(book.topics), basis, aside, f"{seconds:.1f}", said), flush=True)
    return book


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--topics", action="store_true")
    parser.add_argument("--by-looks", action="store_true")
    given = parser.parse_args()
    folders = [sorted(path.iterdir()) if path.is_dir() else [path] for path in given.paths]
    print(ROW.format("material", "pages", "topics", "basis", "set aside", "seconds", ""))
    for path in (path for each in folders for path in each if path.suffix.lower() in ENDINGS):
        book = row(path, given.by_looks)
        if given.topics:
            for topic in book.topics:
                last = topic.sections[-1].last_page if topic.sections else None
                print(f"    pp. {start_of(topic)}-{last}, {many(topic.words, 'word')}: {topic.title}")
            for each in book.set_aside:
                print(f"    set aside, pp. {each.first_page}-{each.last_page}: {each.title} ({each.why})")


if __name__ == "__main__":
    main()
