"""Let a language model name the topics of material that has no headings.

Topics that the book itself names are left alone. If the model gives no usable answer, the computed names stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, Field, field_validator

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.planner import materials
from pausepoint.apps.planner.chapters import Topic
from pausepoint.apps.planner.models import PAGES_PER_CHUNK, FileEntry
from pausepoint.apps.words import one_line

INSTRUCTIONS = (
    "These are pages of learning material. Name the topic that a student learns from them, in at most ten words of the"
    " text. Do not name a topic that the text does not cover."
)
LONGEST_EXCERPT = 40_000


async def name_topics(file_id: str, file: FileEntry, topics: Sequence[Topic], ctx: Context) -> None:
    """Ask the model for names of the topics that were named by frequent words. Without a model they stay."""
    unnamed = [topic for topic in topics if topic.basis == "terms"]
    if not unnamed or not await ctx.do(_has_model, key=file_id):  # a visit that starts without a model ends without
        return
    try:
        for topic in unnamed:
            await _name(file_id, file, topic, ctx)
    except model.ModelError as error:
        ctx.emit("warning", f"{file.filename}: a language model could not name the topics, so their most frequent words"
                            f" name them: {one_line(str(error))[:300]}", file_id=file_id)  # fmt: skip


def _has_model() -> bool:
    return model.settings() is not None


async def _name(file_id: str, file: FileEntry, topic: Topic, ctx: Context) -> None:
    """Name a topic after all of its text, one excerpt at a time."""
    with await ctx.files.open(file_id) as stream:
        text = await asyncio.to_thread(_text, stream.name, file.content_type, topic.chunks)
    names: list[str] = []
    for excerpt in _excerpts(text):
        answer = await model.ask(ctx, INSTRUCTIONS, {"pages": excerpt}, _answer(excerpt))
        if answer is None:
            return
        names.append(one_line(answer.topic)[:90])
    topic.title, topic.basis = ", ".join(dict.fromkeys(names))[:200], "model"
    for section in topic.sections:
        section.title = topic.title


def _text(path: str, content_type: str, chunks: Iterable[str]) -> str:
    windows = [int(chunk.rpartition(":")[2]) for chunk in chunks]
    pages = [materials.window(path, content_type, at * PAGES_PER_CHUNK, PAGES_PER_CHUNK) for at in windows]
    return "\n".join(page.text for window in pages for page in window)


def _excerpts(text: str) -> Iterator[str]:
    """Yield all of a text in pieces that a model can read, cut at the end of a line where there is one."""
    while text:
        end = len(text) if len(text) <= LONGEST_EXCERPT else text.rfind("\n", 0, LONGEST_EXCERPT) + 1
        yield text[: end or LONGEST_EXCERPT]
        text = text[end or LONGEST_EXCERPT :]


class _Named(BaseModel):
    topic: str = Field(min_length=1)


def _answer(text: str) -> type[_Named]:
    """Return the type of an answer about a text. It refuses a topic that the text does not contain."""
    known = {word.casefold() for word in text.split()}

    class Named(_Named):
        @field_validator("topic")
        @classmethod
        def is_in_the_text(cls, topic: str) -> str:
            words = [word for word in topic.split() if len(word) > 3] or topic.split()
            if 2 * sum(_occurs(word, known) for word in words) < max(len(words), 1):
                raise ValueError(f"{topic!r} is not in the text")
            return topic

    return Named


def _occurs(word: str, known: set[str]) -> bool:
    stem = word.casefold().strip(".,;:()")[:5]
    return any(stem in each for each in known)
