"""Decide which lines of a book without an outline are its headings, and of which level.

Headings stand out: they are larger than the text, or bold. Their numbers say their level; without numbers the larger
style is above the smaller. Lines that do not stand out count only if their numbers follow one another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from itertools import pairwise

from pausepoint.apps.pdf import Style
from pausepoint.apps.planner.headings import Label, aside, is_generic, key_of, label
from pausepoint.apps.planner.topics import Entry, Piece, stands_out, usual_style

ENOUGH = 2
"""The fewest headings that divide a book."""

A_FEW = 6
"""So many lines of a style with next to no text below most of them are captions or terms."""

BETWEEN = 12
"""The fewest words between two numbered lines. Less is a list."""

A_LIST = 3
"""The fewest items of a list whose lines stand out. Two may be a chapter of one sentence, and the next one."""

AN_ENTRY, ENTRIES = 60, 3
"""A line of the contents has fewer words before the next line, and contents have at least so many lines."""

MISSING = 0.1
"""The share of the lines of the contents that may be missing among the headings, as they do not stand out."""

FREQUENT = 2.5
"""More lines of a style per page are not headings: they are terms, names of functions or table cells."""

TITLE_PAGES = 2
"""On so many pages, lines without a number that stand out before the first numbered heading are not headings."""

A_GAP = 10
"""The most chapters that may be missing between two, for example because their pages are pictures."""

_HAN_DIGITS = "〇一二三四五六七八九"


def levels(
    pieces: Sequence[Piece], styles: Counter[str], pages: int, front: int,
    listed: Container[int] = (), entries: Sequence[Entry] = (),
) -> list[int | None]:  # fmt: skip
    """Return the level of each piece's heading, or None for text that continues the piece before it.

    ``front`` is the first page after the table of contents. What stands out before it is the title and the author.
    ``listed`` are lines of contents of a text, ``entries`` the lines on the pages of contents of a PDF.
    """
    labels = [label(piece.title) for piece in pieces]
    marked = [piece for piece in pieces if piece.sure and piece.title]
    possible = {
        at for at, piece in enumerate(pieces)
        if piece.title and at not in listed and (piece.page >= front or (piece.page == front - 1 and labels[at].number))
    }  # fmt: skip
    if marked and not (len(marked) < ENOUGH and marked[0].rule and len(_by_number(pieces, labels, possible)) >= ENOUGH):
        return _by_marks(pieces, labels, listed)  # a single underlined title does not hide numbered chapters
    found: dict[int, int] = {}
    if any(piece.size for piece in pieces):
        usual = usual_style(styles)
        heads = {at: pieces[at] for at in possible - _lists(pieces, labels, A_LIST)}
        found = _by_style(heads, labels, usual, pages)
        chapters = _in_contents(pieces, entries, front, usual)
        if chapters:
            above = _by_style({at: pieces[at] for at in chapters}, labels, usual, pages, are_listed=True)
            found = _below_chapters(above, found, labels)
    if len(found) < ENOUGH:
        found = _by_number(pieces, labels, possible)
    return [found.get(at) if len(found) >= ENOUGH else None for at in range(len(pieces))]


# contents of a text


def contents_of(pieces: Sequence[Piece]) -> set[int]:
    """Return the lines of contents: numbers and titles close to each other, of which most are further on once more.

    The contents of a PDF are pages, and are found when the pages are read.
    """
    heads = [] if any(piece.size for piece in pieces) else [
        at for at, piece in enumerate(pieces) if piece.title and not piece.sure
    ]  # fmt: skip
    entries = {at: _entry(pieces[at].title) for at in heads}
    last = {entry: at for at, entry in entries.items()}
    found: set[int] = set()
    for lines in _close(pieces, entries):
        again = [at for at in lines if last[entries[at]] > lines[-1]]
        between = [at for at in lines if again and again[0] <= at <= again[-1]]
        if len(again) >= ENTRIES and len(again) * 2 >= len(between):
            found.update(between)
    return found


def _entry(title: str) -> tuple[str, str]:
    """Return what a line of the contents has in common with the title of the chapter.

    >>> _entry("1. On eels   17") == _entry("Chapter 1: On Eels")
    True
    """
    return label(title).number, re.sub(r" \d+$", "", key_of(title))


def _close(pieces: Sequence[Piece], entries: dict[int, tuple[str, str]]) -> list[list[int]]:
    """Group the lines that have few words between them. A group has each line once."""
    groups: list[list[int]] = []
    for at, entry in entries.items():
        group = groups[-1] if groups else []
        is_close = bool(group) and sum(piece.words for piece in pieces[group[-1] : at]) < AN_ENTRY
        if is_close and entry not in [entries[member] for member in group]:
            group.append(at)
        else:
            groups.append([at])
    return groups


# by marks


def _by_marks(pieces: Sequence[Piece], labels: Sequence[Label], listed: Container[int]) -> list[int | None]:
    """Return the levels that hashes, underlines or an outline say, below chapters that only their names tell.

    The first style of underlines is above the second, and so on.

    A single underlined line does not mean that a text underlines its chapters.
    """
    rules = list(dict.fromkeys(piece.rule for piece in pieces if piece.rule))
    marked = {
        at: rules.index(piece.rule) if piece.rule else piece.level
        for at, piece in enumerate(pieces) if piece.sure and piece.title
    }  # fmt: skip
    chapters = set() if any(labels[at].kind in ("chapter", "part") for at in marked) else _named(pieces, labels, listed)
    below = {at: level + bool(chapters) for at, level in marked.items()}
    return [0 if at in chapters else below.get(at) for at in range(len(pieces))]


def _named(pieces: Sequence[Piece], labels: Sequence[Label], listed: Container[int]) -> set[int]:
    """Return the lines that name chapters, if they have text below them and their numbers rise; otherwise none."""
    named = [
        at for at, piece in enumerate(pieces)
        if not piece.sure and at not in listed and labels[at].kind in ("chapter", "part")
    ]  # fmt: skip
    chapters = [
        at for at, end in pairwise([*named, len(pieces)])
        if labels[at].kind == "part" or sum(piece.words for piece in pieces[at:end]) >= BETWEEN
    ]  # fmt: skip
    numbers = [_value(labels[at]) or 0 for at in chapters if labels[at].kind == "chapter"]
    rises = all(number == 1 or number > before for before, number in pairwise(numbers))
    return set(chapters) if len(numbers) >= ENOUGH and rises else set()


# by style


def _by_style(
    pieces: dict[int, Piece], labels: Sequence[Label], usual: Style, pages: int, are_listed: bool = False
) -> dict[int, int]:  # fmt: skip
    """Return the levels of headings by their styles and numbers.

    ``are_listed``: the contents list all of them, so none is a fragment, the book's title or its author.
    """
    kinds: dict[Style, list[int]] = {}
    for at, piece in pieces.items():
        style = Style(piece.size, piece.bold)
        if stands_out(style, usual):
            kinds.setdefault(style, []).append(at)
    if not kinds:
        return {}
    if not are_listed:
        kinds = {style: _kept(members, labels, pages) for style, members in kinds.items()}
        kinds = _without_fragments(kinds, labels, pieces)
    ranked = sorted((style for style in kinds if kinds[style]), reverse=True)
    if not are_listed and len(ranked) > 1 and _is_title(kinds[ranked[0]], labels, pieces):
        ranked = ranked[1:]
    shift = above = numbered_above = _unnumbered_above(ranked, kinds, labels, pieces)
    found: dict[int, int] = {}
    for style in ranked:
        said = _level(kinds[style], labels)
        named = sum(labels[at].kind == "chapter" for at in kinds[style]) * 2 > len(kinds[style])
        level = above if said is None else max(said, shift if named else numbered_above)
        for at in kinds[style]:
            least = said or 0 if numbered_above else 0  # below numbered chapters, a `1` does not start the next one
            deeper = max(labels[at].depth, least) - (said or 0) if labels[at].number and said is not None else 0
            found[at] = level + deeper
        above = level + 1
        numbered_above = above if said is not None else numbered_above
    return _in_sequence(found, labels, pieces, are_listed)


def _in_contents(pieces: Sequence[Piece], entries: Sequence[Entry], front: int, usual: Style) -> list[int]:
    """Return the headings that the contents list, if they stand out on the pages that the contents say.

    Nothing if a chapter with a number is missing, or more than a few of the others.
    """
    wanted = {(key, entry.page): label(entry.title) for entry in entries if (key := key_of(entry.title))}
    by_key: dict[str, list[int]] = {}
    for key, page in wanted:
        by_key.setdefault(key, []).append(page)
    heads = {
        at: key_of(piece.title) for at, piece in enumerate(pieces)
        if piece.title and piece.page >= front - 1 and stands_out(Style(piece.size, piece.bold), usual)
    }  # fmt: skip
    shifts = Counter(pieces[at].page - page for at, key in heads.items() for page in by_key.get(key, ()))
    shift = shifts.most_common(1)[0][0] if shifts else 0
    first: dict[tuple[str, int], int] = {}
    for at, key in heads.items():
        first.setdefault((key, pieces[at].page - shift), at)
    missing = [entry for place, entry in wanted.items() if place not in first and not aside(entry.title, 1.0)]
    is_complete = not any(entry.number and not entry.depth for entry in missing)
    if len(wanted) < ENTRIES or not is_complete or len(missing) > MISSING * len(wanted):
        return []
    return sorted(first[place] for place in wanted if place in first)


def _below_chapters(chapters: dict[int, int], found: dict[int, int], labels: Sequence[Label]) -> dict[int, int]:
    """Return the levels of the headings that the contents list, and those of the others, which are below them.

    `Appendix A` is no section, even if its page number is `A-1`, which the contents' entries do not have.
    """
    levels = dict(chapters)
    above = -1
    for at in sorted({*chapters, *found}):
        above = chapters.get(at, above)
        if at not in chapters:
            levels[at] = found[at] if labels[at].kind in ("chapter", "part") else max(found[at], above + 1)
    return levels


def _is_title(members: Sequence[int], labels: Sequence[Label], pieces: dict[int, Piece]) -> bool:
    """Return whether the largest line is the title of the book: alone, on the first page, without a number."""
    return len(members) == 1 and pieces[members[0]].page == 0 and not labels[members[0]].number


def _kept(members: list[int], labels: Sequence[Label], pages: int) -> list[int]:
    """Return the headings among the lines of one style: all, the numbered ones, or none."""
    if len(members) <= FREQUENT * pages and len(members) < 1_000:
        return members
    numbered = [at for at in members if labels[at].number]
    return numbered if len(numbered) >= ENOUGH and len(numbered) <= FREQUENT * pages else []


def _without_fragments(
    kinds: dict[Style, list[int]], labels: Sequence[Label], pieces: dict[int, Piece]
) -> dict[Style, list[int]]:  # fmt: skip
    """Drop lines without a number that stand out and are no headings: the first words of a paragraph, terms, captions.

    A book that numbers its sections numbers all of them, so other lines count only if they look like a chapter, or name
    matter that is set aside. Otherwise the lines of a style count if there is text below most of them.
    """
    sections = max(
        (style for style in kinds if sum(labels[at].depth > 0 for at in kinds[style]) >= ENOUGH), default=None
    )
    chapters = max((style for style in kinds if _level(kinds[style], labels) == 0), default=Style())
    found: dict[Style, list[int]] = {}
    for style, members in kinds.items():
        plain = [at for at in members if not labels[at].number]
        texts = sorted(_below_line(at, kinds, style, pieces) for at in plain)
        labels_of_pictures = len(plain) >= A_FEW and texts[len(texts) // 2] < BETWEEN
        fragments = labels_of_pictures or (sections is not None and (style <= sections or style < chapters))
        found[style] = [at for at in members if labels[at].number or not fragments or aside(pieces[at].title, 1.0)]
    return found


def _below_line(at: int, kinds: dict[Style, list[int]], style: Style, pieces: dict[int, Piece]) -> int:
    """Return the words from a line to the next line of its style or a larger one."""
    ends = (min((each for each in members if each > at), default=len(pieces) + at)
            for other, members in kinds.items() if other >= style)  # fmt: skip
    end = min(ends)
    return sum(piece.words for number, piece in pieces.items() if at <= number < end)


def _level(members: Sequence[int], labels: Sequence[Label]) -> int | None:
    """Return the level that most numbers of a style say, or None if few are numbered."""
    depths = Counter(labels[at].depth for at in members if labels[at].number)
    if not depths or sum(depths.values()) < 0.3 * len(members):
        return None
    return depths.most_common(1)[0][0]


def _unnumbered_above(
    ranked: Sequence[Style], kinds: dict[Style, list[int]], labels: Sequence[Label], pieces: dict[int, Piece]
) -> int:
    """Return 1 if chapters without numbers stand above numbered sections, else 0."""
    top = next((style for style in ranked if _level(kinds[style], labels) == 0), None)
    if top is None:
        return 0
    larger = [at for style in ranked if style > top for at in kinds[style]]
    chapters = [at for at in larger if pieces[at].page > 1 and not aside(pieces[at].title, 1.0)]
    return int(len(chapters) > 1 and all(_level(kinds[style], labels) is None for style in ranked if style > top))


def _in_sequence(
    found: dict[int, int], labels: Sequence[Label], pieces: dict[int, Piece], are_listed: bool
) -> dict[int, int]:  # fmt: skip
    """Drop numbered lines whose number is not above the one before: steps of a list, lines of a table.

    On the first pages, smaller lines before the first chapter are the author and the date, unless contents list them.
    """
    last, kept = 0, {}
    chapters = [labels[at].kind for at, level in found.items() if level == 0 and labels[at].number]
    counted = chapters.count("numbered") * 2 > len(chapters)
    first = min((at for at in found if labels[at].number), default=0)
    start = _first_chapter(found, pieces)
    for at, level in sorted(found.items()):
        precedes = (at < first and not is_generic(pieces[at].title)) or (at < start and not labels[at].number)
        if precedes and not are_listed and pieces[at].page < TITLE_PAGES:
            continue
        number = _value(labels[at])
        if level > 0 and counted and labels[at].kind == "numbered" and labels[at].depth == 0:
            continue  # below chapters that are counted, a single number is that of a list
        if level == 0 and number is not None:
            if labels[at].kind == "part" or number == 1 or last < number <= last + A_GAP or not last:
                last = number if labels[at].kind != "part" else 0
            else:
                continue
        kept[at] = level
    return kept


def _first_chapter(found: dict[int, int], pieces: dict[int, Piece]) -> int:
    """Return the first heading of the highest level that the first pages and the heading after them have."""
    heads = sorted(found)
    end = next((number for number, at in enumerate(heads, 1) if pieces[at].page >= TITLE_PAGES), len(heads))
    return min(heads[:end], key=lambda at: (found[at], at), default=0)


def _value(found: Label) -> int | None:
    """Return the number of a chapter, or None if it has no number that can be counted.

    >>> _value(label("Chapter 12: Eels")), _value(label("第十二章 鰻")), _value(label("3.1 Long eels")), _value(label("Eels"))
    (12, 12, 3, None)
    """  # noqa: E501
    head = found.number.partition(".")[0]
    if head.isdecimal():
        return int(head)
    if head and all(digit in f"{_HAN_DIGITS}零十" for digit in head):
        tens, ten, ones = head.rpartition("十")
        digits = {digit: at for at, digit in enumerate(_HAN_DIGITS)} | {"零": 0}
        return (digits.get(tens, 1) * 10 if ten else 0) + digits.get(ones[-1:], 0)
    return None


# by number alone


def _by_number(pieces: Sequence[Piece], labels: Sequence[Label], possible: set[int]) -> dict[int, int]:
    """Return the headings whose numbers follow one another, each with some text below it."""
    named = [at for at in sorted(possible) if labels[at].kind in ("chapter", "part")]
    listed = _lists(pieces, labels)
    found: dict[int, int] = {}
    path: tuple[int, ...] = ()
    for at in sorted(possible - listed):
        if len(named) >= ENOUGH and labels[at].kind in ("chapter", "part"):
            found[at] = 0
            path = (_value(labels[at]) or 0,)
        elif (number := _numbers(labels[at])) and _follows(path, number):
            found[at] = len(number) - 1 if not _below(named, labels[at]) else 1
            path = number
    return found


def _below(named: Sequence[int], found: Label) -> bool:
    """Return whether a section numbered `1` stands below chapters that are named."""
    return len(named) >= ENOUGH and found.depth == 0


def _numbers(found: Label) -> tuple[int, ...]:
    parts = found.number.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _follows(path: tuple[int, ...], number: tuple[int, ...]) -> bool:
    """Return whether a number comes next: `3` or `2.4` or `2.3.1` after `2.3`.

    >>> [_follows((2, 3), each) for each in ((3,), (2, 4), (2, 3, 1), (2, 2), (4,), (1,))]
    [True, True, True, False, False, False]
    """
    if not path:
        return number in ((1,), (0,), (1, 1))
    if len(number) > len(path):
        return number == (*path, 1) or number == (*path, 0)
    return number[:-1] == path[: len(number) - 1] and number[-1] == path[len(number) - 1] + 1


def _lists(pieces: Sequence[Piece], labels: Sequence[Label], least: int = 2) -> set[int]:
    """Return the items of lists: at least so many numbered lines of one style with next to no text between them."""
    items: set[int] = set()
    start = 0
    looks = [(said.kind, said.depth, piece.size, piece.bold) for said, piece in zip(labels, pieces, strict=True)]
    for at, (look, piece) in enumerate(zip(looks, pieces, strict=True)):
        if look[0] == "numbered" and piece.words < BETWEEN and looks[at + 1 : at + 2] == [look]:
            continue
        items |= set(range(start, at + 1)) if at + 1 - start >= least else set()
        start = at + 1
    return items
