"""Let a language model name the topics of material that has no headings.

Topics that the book itself names are left alone. If the model gives no usable answer, the computed names stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, Field, field_validator

from pausepoint.apps.planner.chapters import Topic
from pausepoint.apps.planner.excerpts import Texts, excerpts, is_about
from pausepoint.apps.planner.headings import key_of
from pausepoint.apps.planner.reader import Reader
from pausepoint.apps.words import one_line

INSTRUCTIONS = (
    "These are pages of learning material. Name the topic that a student learns from them, in at most ten words of the"
    " text. Do not name a topic that the text does not cover."
)
LONGEST_NAME, LONGEST_TITLE = 90, 190


async def name_topics(topics: Sequence[Topic], texts: Texts, reader: Reader) -> None:
    """Ask the model for names of the topics that were named by frequent words."""
    counted = Counter(key_of(topic.title) for topic in topics if topic.basis != "terms")
    for topic in topics:
        if topic.basis == "terms" and not reader.has_given_up:
            name = await _name(await texts.of(topic), reader)
            counted[key_of(name)] += 1
            if name:
                _rename(topic, name, counted[key_of(name)])


async def _name(text: str, reader: Reader) -> str:
    """Return a name for all of a text, one excerpt at a time, or nothing."""
    names: list[str] = []
    for excerpt in excerpts(text):
        answer = await reader.ask(INSTRUCTIONS, {"pages": excerpt}, _answer(excerpt))
        if answer is None:
            return ""
        names.append(one_line(answer.topic))
    return ", ".join(dict.fromkeys(names))[:LONGEST_TITLE]


def _rename(topic: Topic, name: str, number: int) -> None:
    """Name a topic. Topics of one name would become one, so later ones have a number."""
    topic.title, topic.basis = f"{name} ({number})" if number > 1 else name, "model"
    for section in topic.sections:
        section.title = topic.title


class _Named(BaseModel):
    topic: str = Field(min_length=1, max_length=LONGEST_NAME)


def _answer(text: str) -> type[_Named]:
    """Return the type of an answer about a text. It refuses a topic that the text does not contain."""

    class Named(_Named):
        @field_validator("topic")
        @classmethod
        def is_in_the_text(cls, topic: str) -> str:
            if not is_about(topic, text):
                raise ValueError(f"{topic!r} is not in the text")
            return topic

    return Named
