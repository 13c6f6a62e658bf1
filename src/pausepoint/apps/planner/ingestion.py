"""IngestionAgent: read every file window by window, and find the topics of each course.

Each window is a chunk of `pausepoint.Context.files`. It is kept when it is finished, retried if it fails, and never
read twice. The outline of a file is read once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pausepoint import Context, Retry
from pausepoint.apps import model
from pausepoint.apps.planner import materials, names, study
from pausepoint.apps.planner.chapters import Book, Topic, book_of, merged, put_stubs_aside
from pausepoint.apps.planner.excerpts import Texts
from pausepoint.apps.planner.headings import is_generic
from pausepoint.apps.planner.materials import MARKDOWN, PDF, RST, Bookmark
from pausepoint.apps.planner.models import (
    PAGES_PER_CHUNK,
    Chunking,
    Course,
    Evidence,
    FileEntry,
    FileProgress,
    IngestionPayload,
    IngestionState,
    Measure,
)
from pausepoint.apps.planner.reader import Reader
from pausepoint.apps.planner.roles import Sheet, sheet_of, with_sheets
from pausepoint.apps.planner.titles import names_of, short, title_of_name
from pausepoint.apps.planner.topics import Findings, findings
from pausepoint.apps.words import many
from pausepoint.model import Chunk, Chunked

PATIENCE = Retry(attempts=5, first=1.0, longest=120)
READING = 5
"""The version of `Findings`. Chunks that an earlier version read are read again."""

A_SET = 3
"""So many files of a course in one markup are the chapters of a book. Fewer are a book each."""

MARKUPS = (MARKDOWN, RST)

SAID = {
    "outline": "in the outline",
    "heading": "by its heading",
    "model": "by a language model",
    "terms": "by frequent words",
    "nothing": "",
}


async def ingest(payload: IngestionPayload, ctx: Context) -> IngestionState:
    """Read all files of the session and gather the topics to learn."""
    found = IngestionState()
    books: dict[str, Book] = {}
    sheets: dict[str, Sheet] = {}
    outlines: dict[str, list[Bookmark]] = {}
    for file_id, file in payload.file_registry.items():
        read, outlines[file_id] = await _read(file_id, file, ctx)
        pieces = {f"{file_id}:{index}": each for index, each in read.done.items()}
        books[file_id] = book_of(pieces, file.filename, file.content_type == PDF, **_place(file, payload.file_registry))
        found.files[file_id] = _progress(read, books[file_id])
        _report(file_id, file, found.files[file_id], ctx)
        if file.role != "book":
            sheets[file_id] = await sheet_of(file_id, file, pieces, ctx)
    studied = {file_id: file for file_id, file in payload.file_registry.items() if file_id not in sheets}
    for name in {file.book: None for file in studied.values() if file.book}:
        put_stubs_aside({file.filename: books[file_id] for file_id, file in studied.items() if file.book == name})
    for file_id, file in studied.items():
        found.set_aside += books[file_id].set_aside
        texts = Texts(ctx, file_id, file.content_type, outlines[file_id])
        found.warnings += await _ask(file, books[file_id].topics, texts, ctx)
    found.course_topic_evidence, notes = gathered(payload, found.files, books, sheets)
    for note in notes:
        ctx.emit("warning", note)
    found.warnings += notes
    return found


def _place(file: FileEntry, registry: Mapping[str, FileEntry]) -> dict[str, Any]:
    """Return the place of a file in a book of several files."""
    if file.book:
        others = [each.filename for each in registry.values() if each.book == file.book]
        return {"chapter": title_of_name(file.filename, file.book), "is_last": others[-1] == file.filename}
    if file.filename.lower().endswith(".pptx"):  # slides are the sections of one talk
        return {"chapter": title_of_name(file.filename, "")}
    return {"is_chapter": _is_chapter(file, [each for each in registry.values() if not each.book])}


def _is_chapter(file: FileEntry, files: Iterable[FileEntry]) -> bool:
    """Return whether a file is one of several of one markup and the same courses: each has a chapter of one book."""
    courses = (file.is_shared, sorted(file.course_ids))
    alike = [each for each in files if each.content_type == file.content_type and each.role == file.role == "book"
             and (each.is_shared, sorted(each.course_ids)) == courses]  # fmt: skip
    is_book = file.filename.lower().endswith(".epub")
    return file.content_type in MARKUPS and len(alike) >= A_SET and not is_book


async def _ask(file: FileEntry, topics: Sequence[Topic], texts: Texts, ctx: Context) -> list[str]:
    """Let a language model work on the topics of a file, if there is one. Return what it has not done."""
    if not await ctx.do(_has_model, key=texts.file_id):  # a visit that starts without a model ends without
        return []
    reader = Reader(ctx)
    await names.name_topics(topics, texts, reader)
    await study.study_topics(topics, texts, reader)
    for note in reader.notes:
        ctx.emit("warning", f"{file.filename}: {note}", file_id=texts.file_id)
    if reader.problem:
        asked = [topic for topic in topics[: study.MOST_TOPICS] if topic.words]
        lacking = sum(topic.study is None or topic.basis == "terms" for topic in asked)
        reader.notes.append(f"A language model gave no usable answer about {many(lacking, 'topic')}.")
        ctx.emit("warning", f"{file.filename}: {reader.notes[-1]} {reader.problem}", file_id=texts.file_id)
    return [f"{file.filename}: {note}" for note in reader.notes]


def _has_model() -> bool:
    try:
        return model.settings() is not None
    except model.SettingsRefused:
        return True  # the first question says what is wrong with them


async def _read(file_id: str, file: FileEntry, ctx: Context) -> tuple[Chunked[Findings], list[Bookmark]]:
    """Read all windows of a file, one at a time. Return what they contain, and the outline."""
    with await ctx.files.open(file_id) as stream:
        pages = await ctx.do(materials.page_count, stream.name, file.content_type, key=file_id)
        bookmarks = await ctx.do(materials.outline, stream.name, file.content_type, key=file_id)

    async def read_chunk(chunk: Chunk, ctx: Context) -> Findings:
        count = chunk.params["max_pages_per_chunk"]
        with await ctx.files.open(chunk.file_id) as stream:
            return await asyncio.to_thread(
                _pieces, stream.name, file.content_type, chunk.index * count, count, bookmarks
            )

    read = await ctx.files.chunks(
        file_id, read_chunk, math.ceil(pages / PAGES_PER_CHUNK), retry=PATIENCE, concurrency=1, mode="page_window",
        max_pages_per_chunk=PAGES_PER_CHUNK, reading=READING,
    )  # fmt: skip
    return read, bookmarks


def _pieces(path: str, content_type: str, first: int, count: int, bookmarks: list[Bookmark]) -> Findings:
    pages = materials.window(path, content_type, first, count, styled=not bookmarks)
    return findings(pages, content_type, first, bookmarks)


def _progress(read: Chunked[Findings], book: Book) -> FileProgress:
    """Return how far a file was read. Pages that are pictures count as not read: a person has to decide about them."""
    chunking = Chunking.model_validate(read.state.chunking)
    progress = FileProgress(**read.state.model_dump(exclude={"chunking"}), chunking=chunking)
    if book.unread is None:
        return progress
    told = f"{book.unread}; {progress.last_error}" if progress.last_error else book.unread
    return progress.model_copy(update={"status": "failed" if book.is_all_scan else "partial", "last_error": told})


def _report(file_id: str, file: FileEntry, progress: FileProgress, ctx: Context) -> None:
    total = progress.chunking.total_chunks
    ctx.emit("handoff", f"{progress.processed_chunks}/{total} chunks processed for {file_id}")
    if progress.failed_chunks:
        lost = many(len(progress.failed_chunks), "chunk")
        ctx.emit("warning", f"{file.filename}: {lost} could not be read", file_id=file_id,
                 chunks=progress.failed_chunks)  # fmt: skip
    elif progress.status != "complete":
        ctx.emit("warning", f"{file.filename}: {progress.last_error}", file_id=file_id)


# evidence


def gathered(
    payload: IngestionPayload, files: dict[str, FileProgress], books: dict[str, Book], sheets: Mapping[str, Sheet] = {}
) -> tuple[list[Evidence], list[str]]:  # fmt: skip
    """Return the topics of every course, in the order of its files, and what has to be said about them.

    A course without material is one topic. Exercises are beside their chapters.
    """
    found: list[Evidence] = []
    notes: list[str] = []
    for course in payload.user_inputs.courses:
        mine = {file_id: file for file_id, file in payload.file_registry.items() if _belongs(file, course)}
        copies: dict[tuple[str, str], list[Topic]] = {}
        for file_id, file in mine.items():
            # the chapters of a folder are together, although files may have come between them
            if file_id in books and file_id not in sheets:
                place = ("book", file.book) if file.book else (file_id, file.filename)
                copies.setdefault(place, []).extend(_copied(topic) for topic in books[file_id].topics)
        _tell_apart(copies)
        listed = merged(copies.values())
        _check_prerequisites(listed)
        listed, said = with_sheets(listed, [sheet for file_id, sheet in sheets.items() if file_id in mine])
        notes += [note for note in said if note not in notes]
        titles = names_of(mine.values(), [topic.title for topic in listed])
        found += [_evidence(course, topic, mine, files, books, titles) for topic in listed]
        if not listed:
            found.append(_without_material(course, mine))
    return found, notes


def _tell_apart(books: Mapping[tuple[str, str], list[Topic]]) -> None:
    """Add the name of the file or the book to titles such as `Introduction`, which every book has."""
    if len(books) > 1:
        for (_, book), listed in books.items():
            renamed = {topic.title: f"{topic.title} ({book})" for topic in listed if is_generic(topic.title)}
            for topic in listed:
                topic.title = renamed.get(topic.title, topic.title)
                if topic.study:
                    topic.study.prerequisites = [renamed.get(name, name) for name in topic.study.prerequisites]


def _check_prerequisites(topics: list[Topic]) -> None:
    """Keep the prerequisites that come earlier in the course. Topics of several files may have been merged."""
    for at, topic in enumerate(topics):
        if topic.study:
            topic.study.prerequisites = study.known(topic.study.prerequisites, [each.title for each in topics[:at]])


def _belongs(file: FileEntry, course: Course) -> bool:
    return file.is_shared or course.course_id in file.course_ids


def _copied(topic: Topic) -> Topic:
    """Copy a topic. The topic of a shared file belongs to several courses and grows in each separately."""
    copy = Topic(topic.title, topic.basis)
    copy.add(topic)
    return copy


def _evidence(
    course: Course, topic: Topic, mine: dict[str, FileEntry], files: dict[str, FileProgress], books: dict[str, Book],
    titles: dict[str, str],
) -> Evidence:  # fmt: skip
    sources = list(dict.fromkeys(chunk.rpartition(":")[0] for chunk in topic.chunks))
    names = [mine[file_id].filename for file_id in sources]
    chapters = {mine[each].filename: short(topic.title) for each in sources if mine[each].book
                and mine[each].role == "book"}  # fmt: skip
    measure = Measure(
        pages=topic.pages, words=topic.words, signs=topic.signs, tasks=topic.tasks, basis=topic.basis, filenames=names,
        exams=topic.exams, asked=topic.asked,
        missing=_missing((files[file_id], books[file_id]) for file_id in sources), sections=topic.sections,
        titles={name: titles[name] for name in names if name in titles} | chapters,
    )  # fmt: skip
    return Evidence(
        course_id=course.course_id, topic=topic.title, evidence_summary=_summary(topic, names), source_files=sources,
        source_chunks=topic.chunks, measure=measure, study=topic.study,
    )  # fmt: skip


def _missing(files: Iterable[tuple[FileProgress, Book]]) -> float:
    """Return the share of some files that was not read: chunks that failed, and pages that are pictures."""
    total = read = 0.0
    for progress, book in files:
        scanned = len(book.scanned) / book.pages if book.unread else 0
        total += progress.chunking.total_chunks
        read += progress.processed_chunks * (1 - scanned)
    return round(1 - read / total, 3) if total else 0.0


def _summary(topic: Topic, names: list[str]) -> str:
    about = topic.best_terms(5)
    told = f"{', '.join(names)}, found {SAID[topic.basis]}: {many(topic.pages, 'page')}, {many(topic.words, 'word')}"
    return f"{told}; about {', '.join(about)}" if about else told


def _without_material(course: Course, mine: dict[str, FileEntry]) -> Evidence:
    names = [file.filename for file in mine.values()]
    why = f"no topics were found in {', '.join(names)}" if names else "no material was given"
    return Evidence(
        course_id=course.course_id, topic=course.course_name, evidence_summary=why, source_files=list(mine),
        measure=Measure(filenames=names),
    )  # fmt: skip
