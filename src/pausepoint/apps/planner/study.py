"""Let a language model read the topics: how hard they are, what comes first, and questions to test oneself.

The model sees all of a topic's text, window by window. An answer that does not fit the text is asked for again. A topic
without a usable answer has none of this. What the model says is shown in the plan, and changes no time in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, Field, field_validator

from pausepoint.apps.planner.chapters import Topic
from pausepoint.apps.planner.excerpts import Texts, excerpts, is_about
from pausepoint.apps.planner.headings import key_of
from pausepoint.apps.planner.models import QUESTIONS, Difficulty, Study
from pausepoint.apps.planner.reader import Reader
from pausepoint.apps.words import many, one_line

INSTRUCTIONS = (
    "These are pages of learning material about one topic. Say how hard they are, compared with the usual material for"
    " students of the subject. Name the earlier topics that a student must know first, exactly as they are listed; most"
    " topics need none or one. Write 3 questions with which a student can test what was learned. The text must"
    " contain the answers. Use the language and the words of the text."
)
MOST_TOPICS, MOST_WINDOWS = 200, 5
"""The limits of what is asked: topics of a file, and windows of a topic. What is left out is said."""

_LINK = re.compile(r"(?i)://|\bwww\.")
LONGEST_QUESTION, MOST_PREREQUISITES = 300, 5


async def study_topics(topics: Sequence[Topic], texts: Texts, reader: Reader) -> None:
    """Ask the model about each topic. A topic without a usable answer stays as it is."""
    for at, topic in enumerate(topics[:MOST_TOPICS]):
        if topic.words and not reader.has_given_up:
            topic.study = await _study(topic, topics[:at], await texts.of(topic), reader)
            reader.progress(at + 1, min(len(topics), MOST_TOPICS))
    if len(topics) > MOST_TOPICS:
        reader.notes.append(
            f"A language model read the first {MOST_TOPICS} of {many(len(topics), 'topic')}. The others have no"
            " questions."
        )


async def _study(topic: Topic, earlier: Sequence[Topic], text: str, reader: Reader) -> Study | None:
    windows = list(excerpts(text))
    if len(windows) > MOST_WINDOWS:
        seen = sum(map(len, windows[:MOST_WINDOWS]))
        reader.notes.append(
            f"A language model read the first {seen:,} of {many(len(text), 'character')} of “{topic.title}”."
        )
    titles = [each.title for each in earlier]
    found: list[Study] = []
    for window in windows[:MOST_WINDOWS]:
        data = {"topic": topic.title, "earlier_topics": titles, "pages": window}
        answer = await reader.ask(INSTRUCTIONS, data, _answer(window))
        if answer is None:
            return None
        found.append(Study(
            difficulty=answer.difficulty, prerequisites=known(answer.prerequisites, titles),
            questions=answer.questions,
        ))  # fmt: skip
    return Study.joined(found) if found else None


def known(names: Sequence[str], titles: Sequence[str]) -> list[str]:
    """Return the titles that some names mean. Names of other topics are dropped.

    >>> known(["limits", "Witchcraft"], ["Limits", "Series"])
    ['Limits']
    """
    by_key = {key: title for title in titles if (key := key_of(title))}
    found = dict.fromkeys(by_key[key] for key in map(key_of, names) if key in by_key)
    return list(found)[:MOST_PREREQUISITES]


def _is_usable(question: str, text: str) -> bool:
    """Return whether a question is short, is about the text, and leads nowhere else."""
    return len(question) <= LONGEST_QUESTION and not _LINK.search(question) and is_about(question, text)


class _Read(BaseModel):
    difficulty: Difficulty
    prerequisites: list[str]
    questions: list[str] = Field(min_length=QUESTIONS)


def _answer(text: str) -> type[_Read]:
    """Return the type of an answer about a text. It keeps the questions that use the words of the text."""

    class Read(_Read):
        @field_validator("questions")
        @classmethod
        def are_about_the_text(cls, questions: list[str]) -> list[str]:
            shown = dict.fromkeys(one_line(each) for each in questions)
            kept = [each for each in shown if _is_usable(each, text)]
            if len(kept) < QUESTIONS:
                raise ValueError(f"fewer than {QUESTIONS} different questions use the words of the text")
            return kept[:QUESTIONS]

    return Read
