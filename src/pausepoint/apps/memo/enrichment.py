"""The four enrichments: trademark, socials, links, visualisations. They use only the data and the sources.

Each enrichment is idempotent. If it finds nothing to add, it writes a comment into the Markdown, so that the files
alone show that it is done.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from pausepoint.apps.memo import tables
from pausepoint.apps.memo.facts import facts
from pausepoint.apps.memo.models import CompanyData, Finding, InvestmentType, Link, MemoMode, Passage, Section, Source
from pausepoint.apps.memo.outline import team
from pausepoint.apps.memo.prose import stem, stems
from pausepoint.apps.words import one_line

LINKEDIN = "linkedin.com/in/"
NO_SOCIALS = "<!-- socials: no LinkedIn page to link to -->"
NO_LINKS = "<!-- links: no address is in the sources -->"
NO_VIZ = "<!-- viz: no table is in the sources -->"
VIZ = "<!-- viz:"
TABLES = 2
"""The maximum number of tables in a section."""

BARS = 12
"""The maximum number of bars in a chart."""

FITTING = 1.5
"""How well a table has to fit a section, so that it is shown."""

READABLE = 10
"""The number of rows of a table that is easy to read. A longer one is chosen only if it fits much better."""

KINDS = {"direct": "direct investment", "fund": "fund commitment"}
MODES = {"consider": "for consideration", "justify": "in support of a decision"}

NOTE = 2
PROFIT = "(?:income|loss|profit|earnings)"
MAIN = {
    "revenue": "(?:total )?(?:net )?(?:operating )?(?:revenue|sales(?! and))",
    "operating profit": f"(?:total )?operating {PROFIT}|income from operations|ebitda",
    "net profit": f"(?:consolidated )?net {PROFIT}",
    "per share": "diluted",
}
"""The main figures of a business, and how the labels of their rows begin. Most tables of results have `MOST_MAIN`."""

MOST_MAIN = 3
FIGURES = 5
"""The maximum number of key figures in a recommendation."""

KEY_BONUS = 6.0
"""What the key figures of a business count more than words that a table shares with a section."""

_KEY = re.compile(
    r"(?:total |consolidated )?(?:net )?((?:operating )?revenue|sales(?! and)|gross (?:profit|margin)"
    r"|operating (?:income|loss|margin|profit|earnings)|income from operations|(?<=net )(?:income|loss|earnings)"
    r"|diluted|free cash flow|ebitda)s?\b",
    re.IGNORECASE,
)
_BOOKS = re.compile(
    r"\b(?:tax(?:es)? (?:rates?|benefits?|expenses?|provision|credits?)|(?:income|deferred|effective) tax(?:es)?"
    r"|pension|plan assets|benefit obligations?|discount rates?|(?:stock|share)-based|stock (?:options?|plans?)"
    r"|incentive plans?|(?:share|stock) repurchases?|(?:re)?purchases? of (?:shares|stock|equity)"
    r"|weighted[- ]average (?:common )?shares|unregistered securities|(?:other )?comprehensive (?:income|loss)"
    r"|reclassif(?:ied|ications?)|derivatives?|hedging)\b",
    re.IGNORECASE,
)
"""What a table is about that no section of a memo needs."""

_NO_AMOUNT = re.compile(r"%|\.\d\d\)?$|\bper (?:\w+ )?(?:share|unit)\b", re.IGNORECASE)
"""The figures of a table, and the labels of its rows, that do not have the unit of the table."""

_SERIES = re.compile(r"(?:\w+ )?(?:\w+ \d{1,2}, )?(?:19|20)\d\d|Q[1-4]\b.*|\w+ quarter", re.IGNORECASE)
"""The label of a row that is a point in time."""

_PROTECTED = re.compile(
    r"```.*?```|<!--.*?-->|!?\[[^\]]*\]\([^)]*\)|\[[@^][^\]]*\]|^[#|][^\n]*$", re.DOTALL | re.MULTILINE
)
"""The parts that get no links: code, comments, links, citations, headings, tables."""


# header.md


def header(company: str, data: CompanyData, kind: InvestmentType, mode: MemoMode) -> str:
    """Return the header of the memo: the company's name in its own spelling, its logo, and the type of memo."""
    logo = f"![{one_line(company)}]({data.trademark.logo})\n\n" if data.trademark.logo else ""
    name = one_line(data.trademark.mark or company)
    return f"{logo}# {name}\n\n*Investment memo: {KINDS[kind]}, {MODES[mode]}.*\n"


# socials

_NO_NAME = {"linkedin", "profile", "page", "view", "see", "connect", "follow", "contact", "here"}
"""Words that show that a link text is not a person's name."""


def socials(
    sections: dict[str, str], outline: list[Section], data: CompanyData, sources: list[Source]
) -> dict[str, str]:
    """Link people in the team section to the LinkedIn pages that the data or a source gives."""
    name = team(outline)
    if name is None:
        first = next(iter(sections))
        return sections | {first: _noted(_without(sections[first], NO_SOCIALS), NO_SOCIALS)}
    text = _without(sections[name], NO_SOCIALS)
    pages = profiles(data, sources)
    for person, url in pages.items():
        text = _linked(text, person, url)
    if LINKEDIN not in text:
        others = [f"- [{person}]({url})" for person, url in pages.items()]
        listed = "\n".join(others)
        text = f"{text.rstrip()}\n\n{listed}\n" if others else _noted(text, NO_SOCIALS)
    return sections | {name: text}


def profiles(data: CompanyData, sources: Iterable[Source]) -> dict[str, str]:
    """Return LinkedIn addresses by person. A bare address belongs to the person whose name it contains."""
    found = {person.name: person.linkedin for person in data.people if LINKEDIN in person.linkedin}
    for source in sources:
        for link in source.links:
            if LINKEDIN in link.url.lower() and (person := _person(link, source)):
                found.setdefault(person, link.url)
    return found


def _person(link: Link, source: Source) -> str:
    """Return the person whose page a link leads to, by its text or its address. Empty if in doubt."""
    words = link.text.split()
    if len(words) > 1 and all(word[:1].isupper() for word in words) and not _NO_NAME & {*link.text.casefold().split()}:
        return link.text
    page = re.findall(r"[a-z]+", link.url.lower().partition(LINKEDIN)[2])
    known = [fact.text for passage in source.passages for fact in facts(passage.text) if fact.kind == "name"]
    people = [name for name in dict.fromkeys(known) if len(name.split()) > 1 and _is_named_in(name, page)]
    return people[0] if len(people) == 1 else ""


def _is_named_in(name: str, page: list[str]) -> bool:
    parts = name.lower().split()
    return all(part in page for part in parts) or "".join(parts) in page


# links


def links(sections: dict[str, str], data: CompanyData, sources: list[Source]) -> dict[str, str]:
    """Link the first mention of everything that has an address, in each section."""
    known = addresses(data, sources)
    found = {name: _without(text, NO_LINKS) for name, text in sections.items()}
    for name, text in found.items():
        for words, url in known.items():
            text = _linked(text, words, url)
        found[name] = text
    if not has_links(found) and found:
        first = next(iter(found))
        found[first] = _noted(found[first], NO_LINKS)
    return found


def addresses(data: CompanyData, sources: Iterable[Source]) -> dict[str, str]:
    """Return addresses by name, longest names first, so that a whole name is linked before its parts."""
    known = dict(data.links)
    if data.website.startswith(("http://", "https://")):
        known.setdefault(data.name, data.website)
    for source in sources:
        for link in source.links:
            if link.text[:1].isupper() and len(link.text) < 80 and LINKEDIN not in link.url.lower():
                known.setdefault(link.text, link.url)
    return dict(sorted(known.items(), key=lambda each: (-len(each[0]), each[0])))


def has_links(sections: dict[str, str]) -> bool:
    """Return whether a section has a link that is not a person's page."""
    urls = [url for text in sections.values() for url in re.findall(r"(?<!!)\[[^\]]+\]\((https?://[^)]+)\)", text)]
    return any(LINKEDIN not in url.lower() for url in urls)


def _linked(text: str, words: str, url: str) -> str:
    """Turn the first mention of some words into a link, unless the text already has that link."""
    if f"]({url})" in text:
        return text
    taken_by = [(match.start(), match.end()) for match in _PROTECTED.finditer(text)]
    for match in re.finditer(rf"(?<![\w@/.-]){re.escape(words)}(?![\w@/-])", text):
        taken = any(start <= match.start() < end for start, end in taken_by)
        if not taken and not _is_part_of_a_name(text, match):
            return f"{text[: match.start()]}[{words}]({url}){text[match.end() :]}"
    return text


def _is_part_of_a_name(text: str, match: re.Match[str]) -> bool:
    """Return whether a match is part of a longer name, such as Porto in University of Porto."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : text.find("\n", match.end())]
    names = [fact.text for fact in facts(line) if fact.kind == "name" and match[0] in fact.text]
    at = match.start() - text.rfind("\n", 0, match.start()) - 1
    spans = [(line.find(name), line.find(name) + len(name)) for name in names if name != match[0]]
    return any(start <= at < end for start, end in spans)


# visualisations


def visualizations(sections: dict[str, str], outline: list[Section], sources: list[Source]) -> dict[str, str]:
    """Add the tables of the sources to the sections that they fit best, at most `TABLES` each, some with a chart.

    The first section that gathers from others, which is the summary, gets one with the key figures of the business.
    """
    found = {name: _without(text, NO_VIZ) for name, text in sections.items()}
    fitting: dict[str, list[tuple[float, Passage]]] = {}
    summary = next((section.name for section in outline if section.gathers), "")
    if summary in found and (key := _key_table(sources)) is not None:
        fitting[summary] = [(0.0, key)]
    shown = {passage.key for _, passage in fitting.get(summary, [])}
    for passage in (each for each in _tables(sources) if each.key not in shown):
        section, fit = _home(passage, outline)
        if fit >= FITTING:
            fitting.setdefault(section, []).append((fit, passage))
    for section, those in fitting.items():
        best = sorted(those, key=lambda each: -each[0])[:TABLES]
        room = TABLES - found[section].count(VIZ)
        new = [passage for _, passage in best if f"[@{passage.key}]" not in found[section]][: max(room, 0)]
        for passage in new:
            found[section] = f"{found[section].rstrip()}\n\n{drawn(passage)}"
    if not has_visualizations(found) and found:
        first = next(iter(found))
        found[first] = _noted(found[first], NO_VIZ)
    return found


def has_visualizations(sections: dict[str, str]) -> bool:
    """Return whether a section has a visualisation marker."""
    return any(VIZ in text for text in sections.values())


def _home(passage: Passage, outline: list[Section]) -> tuple[str, float]:
    """Return the section that shares the most words with a table, and how well it fits; "" if no section needs it.

    The heading and the columns tell more than the rows, and a short table tells a reader more than a long one.
    """
    first, _, rest = passage.text.partition("\n")
    heading = passage.heading if passage.heading != passage.part else ""  # “Market for Equity” is about no market
    if _is_bookkeeping(f"{heading} {first}", rest):
        return "", 0.0
    headed, words = {*stems(f"{heading} {first}")}, {*stems(rest)}
    scores: dict[str, float] = {
        section.name: sum(3 * (word in headed) + (word in words) for word in {stem(each) for each in section.about})
        for section in outline
        if not section.gathers
    }
    best = max(scores, key=lambda name: scores[name], default="")
    if not best or not scores[best]:
        return "", 0.0
    if _is_key(passage) and _aside(passage) < NOTE:
        best = next((section.name for section in outline if "revenue" in section.about), best)
        scores[best] += KEY_BONUS
    return best, scores[best] * (0.4 if _aside(passage) else 1.0) / math.sqrt(1 + passage.text.count("\n") / READABLE)


def _is_bookkeeping(headings: str, rows: str) -> bool:
    """Return whether a table is about taxes, pensions or shares, by its headings or most of its rows."""
    labels = [line.split("|")[1] for line in rows.splitlines()[1:] if line.count("|") > 1]
    return bool(_BOOKS.search(headings)) or 2 * sum(1 for label in labels if _BOOKS.search(label)) > len(labels)


def _aside(passage: Passage) -> int:
    """Return how far a table is from the business: `NOTE` in the notes of financial statements, 1 beside them, else 0.

    The items about shares and formalities, and the financial statements themselves, stand beside the business.
    """
    if re.match(r"notes? (?:\d|to )|\d{1,2}\.\s?[A-Z]", passage.heading, re.IGNORECASE):
        return NOTE
    return int(re.match(r"item\s+(?:5|8|9|1\d)", passage.part, re.IGNORECASE) is not None)


def _tables(sources: Iterable[Source]) -> list[Passage]:
    return [
        passage for source in sources for passage in source.passages if passage.table and not _on_cover(passage, source)
    ]


def _key_table(sources: Iterable[Source]) -> Passage | None:
    """Return the table with the key figures of the business; None without one.

    It is the shortest that is not in a note, if possible one that has most of the main figures.
    """
    keys = [each for each in _tables(sources) if _is_key(each) and _aside(each) < NOTE]
    return min(keys, key=lambda each: (_main(each) < MOST_MAIN, _aside(each), each.text.count("\n")), default=None)


def _main(passage: Passage) -> int:
    """Return how many of the main figures of a business the rows of a table have."""
    text = passage.text.casefold()
    return sum(re.search(rf"^\| (?:{label})", text, re.MULTILINE) is not None for label in MAIN.values())


def developments(
    sources: Iterable[Source], form: str = "{label}: {one} in {new}, {other} in {old}."
) -> list[Finding]:  # fmt: skip
    """Return how the key figures of the business have developed in the last two years, at most `FIGURES` of them."""
    table = _key_table(sources)
    if table is None:
        return []
    head, _, *lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.text.splitlines()
    ]
    rows = tables.with_percentages(lines)
    by_year = _years(head) or _years(lines[0])
    scale = tables.scale(table.text.partition("\n")[0]) or tables.scale(f"| {head[min(by_year.values(), default=0)]} |")
    unit = f" (in {scale}s)" if scale else ""
    found: dict[str, Finding] = {}
    for row in rows if len(by_year) > 1 else ():
        measure = _KEY.match(row[0])
        (new, one), (old, other) = sorted(by_year.items(), reverse=True)[:2]
        if measure is None or measure[1].casefold() in found or len(row) <= max(one, other):
            continue
        values = [_number(row[one]), _number(row[other])]
        if values[0] is None or values[1] is None or values[0][1] != values[1][1]:
            continue
        has_unit = not (_NO_AMOUNT.search(row[one]) or _NO_AMOUNT.search(row[0]))
        label = f"{row[0]}{unit * has_unit}"
        sentence = form.format(label=label, one=row[one], new=new, other=row[other], old=old)
        against = float(str(values[0][0])) < float(str(values[1][0]))
        found[measure[1].casefold()] = Finding(sentence=sentence, source=table.key, score=0.0, against=against)
    return list(found.values())[:FIGURES]


def _years(head: list[str]) -> dict[int, int]:
    """Return the years that the columns of a table are about, with the first column of each.

    >>> _years(["(in millions)", "2025", "% of Revenues", "2024"])
    {2025: 1, 2024: 3}
    """
    found: dict[int, int] = {}
    for at, name in enumerate(head):
        if at and (named := re.findall(r"\b20\d\d\b", name)):
            found.setdefault(int(named[-1]), at)
    return found


def _on_cover(passage: Passage, source: Source) -> bool:
    """Return whether a table is before the first item of an annual report."""
    return not passage.part and any(each.part for each in source.passages)


def _is_key(passage: Passage) -> bool:
    """Return whether a table has the key figures of a business: at least three of its rows, in several columns."""
    labels = [line.split("|")[1].strip() for line in passage.text.splitlines() if line.count("|") > 2]
    return len({match[1].casefold() for label in labels if (match := _KEY.match(label))}) >= 3


def drawn(passage: Passage) -> str:
    """Return a table as in its source, with its chart."""
    title = one_line(passage.heading) or "Table"
    chart = _chart(passage.text, title)
    return f"{VIZ} {title} -->\n**{title}** [@{passage.key}]\n\n{passage.text}\n{chart}"


def _chart(table: str, title: str) -> str:
    """Return a bar chart of the first column of numbers, or an empty string."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
    head, body = rows[0], [row for row in rows[2:] if len(row) == len(rows[0])]
    if len(body) > BARS:
        return ""
    for column in (each for each in range(1, len(head)) if head[each].casefold() not in ("age", "page")):
        found = [_number(row[column]) for row in body]
        values = [each[0] for each in found if each is not None]
        units = {each[1] for each in found if each is not None}
        shown = 1 < len(values) == len(found) and len(units) == 1
        if shown and ("%" not in body[0][column] or _is_comparable([(row[0], row[column]) for row in body])):
            labels = ", ".join(f'"{row[0].replace(chr(34), "")}"' for row in body)
            bars = ", ".join(f"{value:.12g}" for value in values)
            return (f'\n```mermaid\nxychart-beta\n    title "{title.replace(chr(34), "")}"\n    x-axis [{labels}]\n'
                    f'    y-axis "{head[column].replace(chr(34), "")}"\n    bar [{bars}]\n```\n')  # fmt: skip
    return ""


def _is_comparable(rows: list[tuple[str, str]]) -> bool:
    """Return whether percentages are the parts of a whole, or one measure at several times."""
    if all(_SERIES.fullmatch(label) for label, _ in rows):
        return True
    parts = [float(re.sub(r"[^\d.]", "", cell)) for label, cell in rows if not label.casefold().startswith("total")]
    return not any("(" in cell or "-" in cell for _, cell in rows) and abs(sum(parts) - 100) <= 1


def _number(cell: str) -> tuple[object, ...] | None:
    """Return the value and unit of a cell that contains only a number, or None."""
    plain = re.sub(r"\(([^()]*)\)", r"-\1", cell).replace("$-", "-$")  # filings write a loss in brackets
    found = [fact for fact in facts(f"x {plain}") if fact.kind in ("number", "date")]
    return found[0].value if len(found) == 1 and found[0].kind == "number" else None


def _without(text: str, note: str) -> str:
    return f"{text.replace(note, '').rstrip()}\n" if note in text else text


def _noted(text: str, note: str) -> str:
    return f"{text.rstrip()}\n\n{note}\n"
