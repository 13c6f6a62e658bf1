"""The texts of topics, in pieces that a language model can read, and whether an answer is about such a text."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pausepoint import Context
from pausepoint.apps.planner import materials
from pausepoint.apps.planner.chapters import Topic
from pausepoint.apps.planner.materials import Bookmark
from pausepoint.apps.planner.models import PAGES_PER_CHUNK
from pausepoint.apps.planner.topics import CJK, COMMON, texts

LONGEST_EXCERPT = 40_000
STEM = 5
_TOKEN = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""Words, and runs of characters of languages without spaces. Hiragana are left out: they are endings and particles."""

_QUESTION_WORDS = """answer author briefly calculate compare compute concept define describe determine difference differ
    discuss explain happen happens idea important learn learned main mean meaning means purpose question reason role
    state text topic understand whom whose"""
ASKING = frozenset(_QUESTION_WORDS.split())
"""Words of questions about anything."""


class Texts:
    """The texts of a file's topics. The last window stays in memory: the next topic often starts in it."""

    def __init__(self, ctx: Context, file_id: str, content_type: str, bookmarks: Sequence[Bookmark]) -> None:
        self._ctx, self.file_id = ctx, file_id
        self._content_type, self._bookmarks = content_type, bookmarks
        self._last: tuple[int, list[str]] = (-1, [])

    async def of(self, topic: Topic) -> str:
        """Return all text of a topic, and nothing of its neighbours."""
        with await self._ctx.files.open(self.file_id) as stream:
            return await asyncio.to_thread(self._read, stream.name, topic)

    def _read(self, path: str, topic: Topic) -> str:
        parts = [self._window(path, int(chunk.rpartition(":")[2]))[at : at + 1] for chunk, at in topic.places]
        return "\n".join(text for part in parts for text in part)  # another version of a PDF reader may find fewer

    def _window(self, path: str, index: int) -> list[str]:
        if self._last[0] != index:
            first = index * PAGES_PER_CHUNK
            pages = materials.window(
                path, self._content_type, first, PAGES_PER_CHUNK, styled=not self._bookmarks
            )  # fmt: skip
            self._last = index, texts(pages, self._content_type, first, self._bookmarks)
        return self._last[1]


def excerpts(text: str) -> Iterator[str]:
    """Yield all of a text in pieces of about one size, cut at the end of a line where there is one.

    >>> [len(each) for each in excerpts("some words\\n" * 4_000)]
    [22000, 22000]
    """
    while text:
        size = math.ceil(len(text) / math.ceil(len(text) / LONGEST_EXCERPT))
        end = size if size == len(text) else text.rfind("\n", size // 2, size) + 1 or size
        yield text[:end]
        text = text[end:]


def is_about(claim: str, text: str) -> bool:
    """Return whether at least half of the words that matter in a claim are in a text, in any form.

    >>> is_about("Why do whales sing?", "The singing of a whale"), is_about("Explain what that is.", "Explain that")
    (True, False)
    >>> is_about("微分とは何か", "関数の微分とは"), is_about("歴史の本", "関数の微分とは")
    (True, False)
    """
    stems = [stem for word in _TOKEN.findall(claim.casefold()) for stem in _stems(word)]
    text = text.casefold()
    return bool(stems) and 2 * sum(stem in text for stem in stems) >= len(stems)


def _stems(word: str) -> list[str]:
    """Return the beginning of a word that matters. A text without spaces between its words has pairs of characters."""
    if CJK.match(word):
        return [one + two for one, two in pairwise(word)]
    return [word[:STEM]] if len(word) > 3 and word not in COMMON and word not in ASKING else []
