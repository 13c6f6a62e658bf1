"""Three-way merges of sections: a person's changes go into the text that the agents write when they run again.

A section is merged paragraph by paragraph. Links and citations do not count in comparisons, because agents add them
later. Where a person and the agents have changed the same paragraph, the person's text stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from pausepoint.apps.memo.models import HandEdit
from pausepoint.apps.memo.prose import bare


def with_edits(sections: dict[str, str], edits: Iterable[HandEdit]) -> tuple[dict[str, str], list[str]]:
    """Return the sections with a person's edits, and the names of those in which both changed the same paragraph."""
    found, both = dict(sections), list[str]()
    for edit in edits:
        if edit.section in found:
            found[edit.section], clash = merged(edit.base, edit.text, found[edit.section])
            both += [edit.section] if clash else []
    return found, list(dict.fromkeys(both))


def merged(base: str, mine: str, new: str) -> tuple[str, bool]:
    """Put the changes from ``base`` to ``mine`` into ``new``. Return the text, and whether both changed a paragraph.

    >>> merged("A.\\n\\nB.\\n", "A.\\n\\nMine.\\n\\nB.\\n", "New A.\\n\\nB.\\n")
    ('New A.\\n\\nMine.\\n\\nB.\\n', False)
    >>> merged("A.\\n\\nB.\\n", "A.\\n\\nMine.\\n", "A.\\n\\nTheirs.\\n")
    ('A.\\n\\nMine.\\n', True)
    """
    old, own, now = (_paragraphs(text) for text in (base, mine, new))
    in_own, in_now = dict(_same(old, own)), dict(_same(old, now))
    anchors = [(at, in_own[at], in_now[at]) for at in range(len(old)) if at in in_own and at in in_now]
    text, clash, (first, second, third) = list[str](), False, (0, 0, 0)
    for at, mine_at, now_at in [*anchors, (len(old), len(own), len(now))]:
        part, both = _between(old[first:at], own[second:mine_at], now[third:now_at])
        text += [*part, *now[now_at : now_at + 1]]
        clash = clash or both
        first, second, third = at + 1, mine_at + 1, now_at + 1
    return "\n\n".join(text) + "\n", clash


def _between(old: list[str], own: list[str], now: list[str]) -> tuple[list[str], bool]:
    """Merge the paragraphs between two that are the same in all texts. Return whether both sides changed them."""
    before, mine, theirs = ([bare(each) for each in those] for those in (old, own, now))
    if not own or mine in (before, theirs):
        return [each for each in now if own or bare(each) not in before], False
    if theirs == before:
        return own, False
    if _is_within(before, mine):
        return [*now, *(each for each in own if bare(each) not in (*before, *theirs))], False
    if _is_within(before, theirs):
        return [*own, *(each for each in now if bare(each) not in (*before, *mine))], False
    return own, True


def _is_within(some: list[str], all_of_them: list[str]) -> bool:
    """Return whether a list can be had from another one by leaving things out: the other has only insertions."""
    rest = iter(all_of_them)
    return all(each in rest for each in some)


def _paragraphs(text: str) -> list[str]:
    parts = [part.strip("\n") for part in text.replace("\r\n", "\n").split("\n\n")]
    return [part for part in parts if part.strip()]


def _matcher(one: Sequence[str], other: Sequence[str]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, [bare(each) for each in one], [bare(each) for each in other], autojunk=False)


def _same(one: Sequence[str], other: Sequence[str]) -> Iterator[tuple[int, int]]:
    for block in _matcher(one, other).get_matching_blocks():
        yield from ((block.a + step, block.b + step) for step in range(block.size))
