"""cite: the memo as one text, with numbered citations that lead to a list at its end.

A sentence that names its passages cites them. One that does not, as somebody has written it, gets the first passage
that bears it out; if there is none it stays uncited, for the validators to say so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from pausepoint.apps.memo.claims import doubt
from pausepoint.apps.memo.enrichment import LINKEDIN, VIZ
from pausepoint.apps.memo.facts import Known, facts, plain
from pausepoint.apps.memo.models import Passage, Section, Source
from pausepoint.apps.memo.prose import FOOTNOTE, KEY, bare, sentences, unlinked
from pausepoint.apps.memo.research import by_key
from pausepoint.apps.words import one_line

HEADING = "## Citations"
QUOTED = 200
"""Characters of a passage that its citation shows."""

_DEFINITION = re.compile(r"^\[\^(\d+)\]: (.*) \(([A-Za-z0-9._-]+)\)$", re.MULTILINE)
_LIST = re.compile(rf"^{HEADING}[ \t]*$", re.MULTILINE)
_PROFILE = re.compile(rf"[-*] \[[^\]]+\]\([^)]*{re.escape(LINKEDIN)}[^)]*\)")
_TITLE = re.compile(rf"^{re.escape(VIZ)}[^\n]*-->\n\*\*[^\n]*?\*\*", re.MULTILINE)
_SKIPPED = re.compile(r"```mermaid.*?```|<!--.*?-->|!\[[^\]\n]*\]\([^)\n]*\)", re.DOTALL)
"""What says nothing by itself: charts, which are made of the table above them, comments, pictures."""


class Claim(NamedTuple):
    """A sentence, or a row of a table, and the citations behind it."""

    section: str
    text: str
    cited: tuple[int, ...]


def assembled(header: str, sections: dict[str, str], outline: list[Section], sources: list[Source]) -> str:
    """The whole memo."""
    known = by_key(sources)
    numbers: dict[str, int] = {}
    company = " ".join(about(header))
    parts = [_cited(sections[section.name], known, numbers, company) for section in outline if section.name in sections]
    listed = [_definition(number, key, known) for key, number in numbers.items()]
    body = "\n\n".join([header.strip(), *(part.strip() for part in parts)])
    none = "No source was cited: there was none that says anything about what the memo is about."
    ending = "\n".join(listed) if listed else none
    return f"{body}\n\n{HEADING}\n\n{ending}\n"


def _cited(text: str, known: dict[str, tuple[Source, Passage]], numbers: dict[str, int], company: str) -> str:
    return "\n".join(_cited_line(line, known, numbers) for line in _with_sources(text, known, company).splitlines())


def _cited_line(line: str, known: dict[str, tuple[Source, Passage]], numbers: dict[str, int]) -> str:
    def number(match: re.Match[str]) -> str:
        key = match[1]
        if key not in known:
            return ""  # whoever wrote it meant a passage that there is not: the validators find it uncited
        return f"[^{numbers.setdefault(key, len(numbers) + 1)}]"

    return KEY.sub(number, line)


def _with_sources(text: str, known: dict[str, tuple[Source, Passage]], company: str) -> str:
    """A section in which sentences that somebody has put in name the passage that has their facts."""
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
    """The first passage that bears a claim out; for one that has names alone none is looked for."""
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


# reading it again


def definitions(memo: str) -> dict[int, str]:
    """Number → key of a passage, as the list at the end has it."""
    listed = memo[len(body_of(memo)) :]
    return {int(match[1]): match[3] for match in _DEFINITION.finditer(listed)}


def references(memo: str) -> list[int]:
    """The numbers that are cited in the text, each once, in order."""
    return list(dict.fromkeys(int(match[1]) for match in FOOTNOTE.finditer(body_of(memo))))


def body_of(memo: str) -> str:
    """The memo without the list at its end."""
    return memo[: max((match.start() for match in _LIST.finditer(memo)), default=len(memo))]


def about(memo: str, company: str = "") -> list[str]:
    """What the memo, or its header, is about: the company, as it is named and as it writes its name."""
    title = re.search(r"^# (.+)$", memo, re.MULTILINE)
    return [name for name in (company, title[1] if title else "") if name]


def claims(memo: str, company: str = "", names: Collection[str] = ()) -> Iterator[Claim]:
    """What the memo says, sentence by sentence: all that has a number, a date or a name in it, or is cited.

    The name of what it is about is no claim. ``names`` are words that are names also where a sentence begins.
    """
    names_of_it = {(plain(name),) for name in about(memo, company)}
    section, of_table = "", tuple[int, ...]()
    for line in _SKIPPED.sub("", _TITLE.sub("", body_of(memo))).splitlines():
        if line.startswith(("# ", "## ")):
            section = line[3:].strip() if line.startswith("## ") else ""
        elif line.startswith("|"):
            yield from _rows(section, line, of_table)
        elif not _PROFILE.fullmatch(line.strip()):
            for sentence in sentences(unlinked(line)):
                cited, text = tuple(int(match[1]) for match in FOOTNOTE.finditer(sentence)), bare(sentence)
                of_table = cited or of_table
                if text and (cited or any(fact.value not in names_of_it for fact in facts(text, names))):
                    yield Claim(section, text, cited)


def _rows(section: str, line: str, cited: tuple[int, ...]) -> Iterable[Claim]:
    text = bare(line.strip("| ").replace("|", ";"))
    return [Claim(section, text, cited)] if re.search(r"\w", text) and facts(text) else []
