"""IngestionAgent: read every file window by window, and find the topics of each course.

Each window is a chunk of `pausepoint.Context.files`. It is kept when it is finished, retried if it fails, and never
read twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, Field, field_validator

from pausepoint import Context, Retry
from pausepoint.apps import model
from pausepoint.apps.planner import materials
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
from pausepoint.apps.planner.topics import Findings, Section, Topic, findings, merged, topics_of
from pausepoint.apps.words import many, one_line
from pausepoint.model import Chunk, Chunked

PATIENCE = Retry(attempts=5, first=1.0, longest=120)
SAID = {
    "outline": "in the outline",
    "heading": "by its heading",
    "model": "by a language model",
    "terms": "by frequent words",
    "nothing": "",
}
INSTRUCTIONS = (
    "These are pages of learning material. Name at most eight topics that a student must learn from them, in the words"
    " of the text. Do not name topics that the text does not cover."
)
LONGEST_EXCERPT = 40_000


async def ingest(payload: IngestionPayload, ctx: Context) -> IngestionState:
    """Read all files of the session and gather the topics to learn."""
    files: dict[str, FileProgress] = {}
    topics: dict[str, list[Topic]] = {}
    with_model = await ctx.do(_has_model)  # a visit that starts without a model finishes without one
    for file_id, file in payload.file_registry.items():
        read = await _read(file_id, file, with_model, ctx)
        chunking = Chunking.model_validate(read.state.chunking)
        files[file_id] = FileProgress(**read.state.model_dump(exclude={"chunking"}), chunking=chunking)
        ctx.emit("handoff", f"{read.state.processed_chunks}/{chunking.total_chunks} chunks processed for {file_id}")
        if read.failed:
            ctx.emit("warning", f"{file.filename}: {many(len(read.failed), 'chunk')} could not be read",
                     file_id=file_id, chunks=sorted(read.failed))  # fmt: skip
        topics[file_id] = topics_of({f"{file_id}:{index}": each for index, each in read.done.items()})
    evidence = gathered(payload, files, topics)
    return IngestionState(files=files, course_topic_evidence=evidence)


def _has_model() -> bool:
    return model.settings() is not None


async def _read(file_id: str, file: FileEntry, with_model: bool, ctx: Context) -> Chunked[Findings]:
    """Read all windows of a file, one at a time, or several at a time with a model.

    The use of a model is part of a chunk's identity, so the two kinds of topics never mix.
    """
    params: dict[str, Any] = {"mode": "page_window", "max_pages_per_chunk": PAGES_PER_CHUNK}
    params |= {"named_by": "model"} if with_model else {}
    with await ctx.files.open(file_id) as stream:
        pages = await ctx.do(materials.page_count, stream.name, file.content_type, key=file_id)
    return await ctx.files.chunks(
        file_id, read_chunk, math.ceil(pages / PAGES_PER_CHUNK), retry=PATIENCE,
        concurrency=4 if with_model else 1, **params,
    )  # fmt: skip


async def read_chunk(chunk: Chunk, ctx: Context) -> Findings:
    """Return the sections of one window."""
    file = await ctx.files.get(chunk.file_id)
    count = chunk.params["max_pages_per_chunk"]
    first = chunk.index * count
    with await ctx.files.open(chunk.file_id) as stream:
        pages, found = await asyncio.to_thread(_sections, stream.name, file.content_type, first, count)
    return await _named_by_model(pages, found, ctx) if "named_by" in chunk.params else found


def _sections(path: str, content_type: str, first: int, count: int) -> tuple[list[str], Findings]:
    pages = materials.window(path, content_type, first, count)
    return pages, findings(pages, content_type, first, materials.outline(path, content_type))


async def _named_by_model(pages: list[str], found: Findings, ctx: Context) -> Findings:
    """Return the window with the topics that a model names. The measures stay the same."""
    text = "\n".join(pages)
    known = {word.casefold() for word in text.split()}

    class Topics(BaseModel):
        topics: list[str] = Field(min_length=1, max_length=8)

        @field_validator("topics")
        @classmethod
        def all_are_in_the_text(cls, topics: list[str]) -> list[str]:
            for topic in topics:
                words = [word for word in topic.split() if len(word) > 3] or topic.split()
                if 2 * sum(_occurs(word, known) for word in words) < max(len(words), 1):
                    raise ValueError(f"{topic!r} is not in the text")
            return topics

    answer = await model.ask(ctx, INSTRUCTIONS, {"pages": text[:LONGEST_EXCERPT]}, Topics)
    if answer is None:
        raise model.SettingsRefused(
            "These files are being read with a language model, but no model is configured now. Set PAUSEPOINT_MODEL"
            " again, or rewind to ingest to read them without a model."
        )
    names = list(dict.fromkeys(one_line(topic)[:200] for topic in answer.topics))
    return Findings(sections=[_share(found.sections, name, len(names)) for name in names])


def _occurs(word: str, known: set[str]) -> bool:
    stem = word.casefold().strip(".,;:()")[:5]
    return any(each.lstrip("(\"'“#*").startswith(stem) for each in known)


def _share(sections: list[Section], name: str, parts: int) -> Section:
    whole = Topic(name, "model")
    for section in sections:
        whole.add(section, ())
    return Section(
        title=name, basis="model", pages=math.ceil(whole.pages / parts), words=whole.words // parts,
        signs=whole.signs // parts, tasks=whole.tasks // parts, terms=dict.fromkeys(whole.best_terms(6), 1),
    )  # fmt: skip


# evidence


def gathered(
    payload: IngestionPayload, files: dict[str, FileProgress], topics: dict[str, list[Topic]]
) -> list[Evidence]:  # fmt: skip
    """Return the topics of every course. A course without material is one topic."""
    found: list[Evidence] = []
    for course in payload.user_inputs.courses:
        mine = {file_id: file for file_id, file in payload.file_registry.items() if _belongs(file, course)}
        listed = merged(_copied(topic) for file_id in mine for topic in topics.get(file_id, []))
        found += [_evidence(course, topic, mine, files) for topic in listed]
        if not listed:
            found.append(_without_material(course, mine))
    return found


def _belongs(file: FileEntry, course: Course) -> bool:
    return file.is_shared or course.course_id in file.course_ids


def _copied(topic: Topic) -> Topic:
    """Copy a topic. The topic of a shared file belongs to several courses and grows in each separately."""
    copy = Topic(topic.title, topic.basis)
    copy.add(topic, topic.chunks)
    return copy


def _evidence(course: Course, topic: Topic, mine: dict[str, FileEntry], files: dict[str, FileProgress]) -> Evidence:
    sources = list(dict.fromkeys(chunk.rpartition(":")[0] for chunk in topic.chunks))
    names = [mine[file_id].filename for file_id in sources]
    measure = Measure(
        pages=topic.pages, words=topic.words, signs=topic.signs, tasks=topic.tasks, basis=topic.basis, filenames=names,
        missing=_missing(files[file_id] for file_id in sources),
    )  # fmt: skip
    return Evidence(
        course_id=course.course_id, topic=topic.title, evidence_summary=_summary(topic, names), source_files=sources,
        source_chunks=topic.chunks, measure=measure,
    )  # fmt: skip


def _missing(files: Iterable[FileProgress]) -> float:
    """Return the share of chunks that were not read, over some files."""
    counts = [(each.chunking.total_chunks, each.processed_chunks) for each in files]
    total = sum(count for count, _ in counts)
    return round(1 - sum(done for _, done in counts) / total, 3) if total else 0.0


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
