"""cite: assemble the memo as one text, with numbered citations and a list of them at the end.

A sentence that names its passages cites them. A sentence without a passage, written by a person, gets the first passage
that supports it. If there is none, it stays uncited and the validators report it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from pausepoint.apps.memo.claims import doubt
from pausepoint.apps.memo.draft import JUDGEMENT, OWN_SENTENCES
from pausepoint.apps.memo.enrichment import LINKEDIN, VIZ
from pausepoint.apps.memo.facts import Known, facts, plain
from pausepoint.apps.memo.models import Passage, Section, Source
from pausepoint.apps.memo.prose import FOOTNOTE, KEY, bare, sentences, stems, unlinked
from pausepoint.apps.memo.research import by_key
from pausepoint.apps.words import one_line

HEADING = "## Citations"
QUOTED = 200
"""The number of characters of a passage that a citation shows."""

SAYING = 3
"""A sentence of a section with at least this many significant words says something that needs a source."""

_OWN = [re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(each))) for each in OWN_SENTENCES]
_DEFINITION = re.compile(r"^\[\^(\d+)\]: (.*) \(([A-Za-z0-9._-]+)\)$", re.MULTILINE)
_LIST = re.compile(rf"^{HEADING}[ \t]*$", re.MULTILINE)
_PROFILE = re.compile(rf"[-*] \[[^\]]+\]\([^)]*{re.escape(LINKEDIN)}[^)]*\)")
_TITLE = re.compile(rf"^{re.escape(VIZ)}[^\n]*-->\n\*\*[^\n]*?\*\*", re.MULTILINE)
_SKIPPED = re.compile(r"```mermaid.*?```|<!--.*?-->|!\[[^\]\n]*\]\([^)\n]*\)", re.DOTALL)
"""Parts without claims of their own: charts (which repeat the table above them), comments, pictures."""


_MARK = re.compile(r" ?\*\*\[⚠ unsupported: [^\]\n]*\]\*\*")
"""What the memo shows behind a claim that no source supports."""


class Claim(NamedTuple):
    """A sentence, or a row of a table that no source has, and its citations."""

    section: str
    text: str
    cited: tuple[int, ...]


def assembled(header: str, sections: dict[str, str], outline: list[Section], sources: list[Source]) -> str:
    """Return the whole memo."""
    known = by_key(sources)
    numbers: dict[str, int] = {}
    company = " ".join(about(header))
    parts = [_cited(sections[section.name], known, numbers, company) for section in outline if section.name in sections]
    listed = [_definition(number, key, known) for key, number in numbers.items()]
    body = "\n\n".join([header.strip(), *(part.strip() for part in parts)])
    none = "No source was cited, because no source contains anything about the subject of this memo."
    ending = "\n".join(listed) if listed else none
    return f"{body}\n\n{HEADING}\n\n{ending}\n"


def _cited(text: str, known: dict[str, tuple[Source, Passage]], numbers: dict[str, int], company: str) -> str:
    return "\n".join(_cited_line(line, known, numbers) for line in _with_sources(text, known, company).splitlines())


def _cited_line(line: str, known: dict[str, tuple[Source, Passage]], numbers: dict[str, int]) -> str:
    def number(match: re.Match[str]) -> str:
        key = match[1]
        if key not in known:
            return ""  # the passage does not exist; the validators report the claim as uncited
        return f"[^{numbers.setdefault(key, len(numbers) + 1)}]"

    return KEY.sub(number, line)


def _with_sources(text: str, known: dict[str, tuple[Source, Passage]], company: str) -> str:
    """Return a section in which sentences added by people name the passage that contains their facts."""
    lines = []
    quiet = False
    for line in text.splitlines():
        quiet = quiet != line.startswith("```")
        is_prose = not quiet and line.strip() and not line.startswith(("#", "|", "<!--", "```", "**"))
        lines.append(" ".join(_sourced(each, known, company) for each in sentences(line)) if is_prose else line)
    return "\n".join(lines)


def _sourced(sentence: str, known: dict[str, tuple[Source, Passage]], company: str) -> str:
    claim = bare(sentence)
    if KEY.search(sentence) or FOOTNOTE.search(sentence) or not facts(claim):
        return sentence
    key = supporting(claim, known, company)
    if key is None:
        return sentence
    return f"{sentence[:-1]} [@{key}]{sentence[-1]}" if sentence[-1] in ".!?" else f"{sentence} [@{key}]"


def supporting(claim: str, known: dict[str, tuple[Source, Passage]], company: str) -> str | None:
    """Return the first passage that supports a claim, or None. A claim with nothing but names gets none."""
    wanted = facts(claim)
    if all(fact.kind == "name" for fact in wanted):
        return None
    having = (each for each in known.values() if not _read(each[1].text).lacks(claim))
    return next(
        (passage.key for _, passage in having if not doubt(claim, passage.text, passage.heading, company)), None
    )


@lru_cache(maxsize=2**14)
def _read(text: str) -> Known:
    return Known(text)


def _definition(number: int, key: str, known: dict[str, tuple[Source, Passage]]) -> str:
    source, passage = known[key]
    page = f", page {passage.page}" if passage.page else ""
    quoted = one_line(re.sub(r"\|[-:| ]*", " ", passage.text))
    quoted = quoted if len(quoted) <= QUOTED else f"{quoted[:QUOTED].rsplit(' ', 1)[0]} …"
    return f"[^{number}]: {source.title}{page}, {source.where}: “{quoted}” ({key})"


# reading the memo


def definitions(memo: str) -> dict[int, str]:
    """Return the passage keys by citation number, from the list at the end."""
    listed = memo[len(body_of(memo)) :]
    return {int(match[1]): match[3] for match in _DEFINITION.finditer(listed)}


def references(memo: str) -> list[int]:
    """Return the numbers that the text cites, each once, in order."""
    return list(dict.fromkeys(int(match[1]) for match in FOOTNOTE.finditer(body_of(memo))))


def body_of(memo: str) -> str:
    """Return the memo without the list at its end."""
    return memo[: max((match.start() for match in _LIST.finditer(memo)), default=len(memo))]


def about(memo: str, company: str = "") -> list[str]:
    """Return the names of the memo's subject: the company's name, and the name in the title."""
    title = re.search(r"^# (.+)$", memo, re.MULTILINE)
    return [name for name in (company, title[1] if title else "") if name]


def claims(
    memo: str, company: str = "", names: Collection[str] = (), copied: Collection[str] = ()
) -> Iterator[Claim]:  # fmt: skip
    """Yield the claims of the memo: sentences that contain a number, a date or a name, are cited, or say something.

    The name of the subject is not a claim, and neither are the program's own sentences. ``names`` are words that are
    names even at the start of a sentence. ``copied`` are the rows of tables in the sources: a table is not a claim, but
    a row that differs from its source is.
    """
    names_of_it = {(plain(name),) for name in about(memo, company)}
    section, of_table = "", tuple[int, ...]()
    for line in _SKIPPED.sub("", _TITLE.sub("", unmarked(body_of(memo)))).splitlines():
        if line.startswith(("# ", "## ")):
            section = line[3:].strip() if line.startswith("## ") else ""
        elif line.startswith("|"):
            yield from _rows(section, line, of_table) if _row(line) not in copied else ()
        elif not _PROFILE.fullmatch(line.strip()):
            for sentence in sentences(unlinked(line)):
                cited, text = tuple(int(match[1]) for match in FOOTNOTE.finditer(sentence)), bare(sentence)
                of_table = cited or of_table
                if text and (cited or _says_something(text, section, names, names_of_it)):
                    yield Claim(section, text, cited)


def _says_something(text: str, section: str, names: Collection[str], its: Collection[object]) -> bool:
    if any(fact.value not in its for fact in facts(text, names)):
        return True
    if text.startswith(JUDGEMENT):
        return False
    is_sentence = bool(section) and text[-1] in ".!" and len(stems(text)) >= SAYING
    return is_sentence and not any(form.fullmatch(text) for form in _OWN)


def copied_rows(sources: Iterable[Source]) -> set[str]:
    """Return the rows of all tables in the sources, for `claims`."""
    tables = (passage.text for source in sources for passage in source.passages if passage.table)
    return {row for table in tables for row in rows_of(table)}


def rows_of(text: str) -> set[str]:
    """Return the rows of all tables in a text, for `claims`."""
    return {_row(line) for line in text.splitlines() if line.startswith("|")}


def _row(line: str) -> str:
    return " ".join(line.replace("|", " | ").split())


def unmarked(memo: str) -> str:
    """Return a memo without the marks of `marked`."""
    return _MARK.sub("", memo)


def marked(memo: str, problems: dict[str, str]) -> str:
    """Mark the claims that no source supports. ``problems`` has the reason for each claim, by its text."""
    body = unmarked(body_of(memo))
    lines = [_marked_line(line, problems) if problems else line for line in body.split("\n")]
    return "\n".join(lines) + memo[len(body_of(memo)) :]


def _marked_line(line: str, problems: dict[str, str]) -> str:
    if line.startswith("|"):
        why = problems.get(_row_text(line))
        return f"{line.rstrip()[:-1].rstrip()} {_mark(why)} |" if why else line
    for sentence in sentences(line):
        why = problems.get(bare(unlinked(sentence)))
        if why:
            line = line.replace(sentence, f"{sentence} {_mark(why)}", 1)
    return line


def _mark(why: str) -> str:
    return f"**[⚠ unsupported: {re.sub(r'[*`|<>]|[][]', '', one_line(why))}]**"


def _rows(section: str, line: str, cited: tuple[int, ...]) -> Iterable[Claim]:
    text = _row_text(line)
    return [Claim(section, text, cited)] if re.search(r"\w", text) and facts(text) else []


def _row_text(line: str) -> str:
    return bare(line.strip("| ").replace("|", ";"))
