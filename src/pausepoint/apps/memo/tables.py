"""Tables of HTML pages as Markdown, with every figure in one cell: as filings have them, with cells that span columns.

A filing sets ``$``, ``%`` and ``)`` in cells of their own, lets a heading span several columns, and uses tables for
layout as well: cover pages, check boxes, lists, signatures. Only a grid of figures becomes a table. The rest is text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

MOST_HEADERS = 5
"""The maximum number of rows that can be the header of a table."""

LONGEST = 300
"""The number of characters that a cell can have. A longer one is a paragraph, so the rows are text."""

_OPENS = re.compile(r"[$€£¥(]{1,2}|US\$")
_CLOSES = re.compile(r"\)?\s?%|\)|%\)|pts?|x|[*†]+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_FIGURE = re.compile(r"[-−(]*(?:US)?[$€£¥]?\s?[-−(]*\d[\d,]*(?:\.\d+)?\)?\s?(?:%|x|pts?)?\)?(?:\s?\w{1,8}){0,2}[*†]*")
_NONE = re.compile(r"[$€£¥(]{0,2}[—–-]\s?%?\)?")
_VALUE = re.compile(r"\d|[—–-]$")
_UNITS = r"in (?:thousands|millions|billions)\b[^()|]{0,80}"
UNITS = re.compile(rf"\([^()|]{{0,80}}\b{_UNITS}\)|(?:\b(?:amounts|dollars|all) |\$ )*\b{_UNITS}", re.IGNORECASE)
"""The units of all figures of a table."""

UNITS_OF_SENTENCE = re.compile(rf".*(\([^()|]{{0,80}}\b{_UNITS}\))[^.]{{0,80}}:", re.IGNORECASE)
"""A paragraph that leads to a table and names its units."""

_UNLIKE = re.compile(r"[%()]|\.\d\d$")
_SCALE = re.compile(r"\bin (thousand|million|billion)s\b", re.IGNORECASE)
_SCALE_OF_HEAD = re.compile(r"\|\s*\(?(?:[$€£]|USD|EUR|GBP)?\s?(thousand|million|billion)s?\b", re.IGNORECASE)
"""The units of a table in the first cell of its header, without the word “in”."""

_BRACKETS = re.compile(r"[$€£¥]?\([$€£¥]?([\d,.]+)\s?%?\)\s?%?")
_PERCENT = re.compile(r"%|\bpercent", re.IGNORECASE)
_EXCEPT = re.compile(r"\bexcept\b[^)|]*", re.IGNORECASE)
_RATIO = re.compile(r"\b(?:ratio|margin|rate|return on \w+)\b", re.IGNORECASE)
_SMALL = re.compile(r"\(?\d{1,2}(?:\.\d+)?\)?")
"""What the rows below a percentage have: the label of one, and a figure without its sign."""

_RULE = re.compile(r"\|\s*:?-")
"""The line below the header of a Markdown table."""

_BOXES = re.compile("[☐☒☑□■✓✔]")
_BULLET = re.compile(r"[•●○◦▪·*–—-]")
_PAGE = re.compile(r"page(?: no\.?| number)?", re.IGNORECASE)
_LISTING = re.compile(
    r"(?:item \d|part [iv]+\b|exhibit|/s/|signature|table of contents|\(\w\)\s|(?:10-[KQ]|8-K|S-\d|DEF)(?:/A)?$)",
    re.IGNORECASE,
)


class Cell(NamedTuple):
    """A cell of an HTML table, and how many columns and rows it spans."""

    text: str
    columns: int = 1
    rows: int = 1
    heads: bool = False


class Table(NamedTuple):
    """A table as Markdown, or the text of something that is laid out as a table."""

    markdown: str = ""
    texts: tuple[str, ...] = ()


def table(rows: list[list[Cell]], above: str = "") -> Table:
    """Return the rows of an HTML table as Markdown if they are a grid of figures, else as text.

    ``above`` are the units, if the page names them in a line above the table.
    """
    rows = [row for row in rows if any(cell.text for cell in row)]
    heads = any(cell.heads for row in rows[:1] for cell in row)
    if not _is_grid(rows, heads):
        return Table(texts=tuple(_texts(rows)))
    grid, spans = _placed(rows)
    count = _headers(grid, spans, heads)
    columns = _columns(grid[count:])
    body = [[row[column] for column in columns] for row in grid[count:]]
    if len(columns) < 2 or not body:
        return Table(texts=tuple(_texts(rows)))
    head = _heads([[row[column] for row in spans[:count]] for column in columns], above)
    head, body = _merged(head, [row for row in body if any(row)])
    return Table(markdown=markdown(_told_apart(head, body), body))


def spoken(text: str) -> str:
    """Return a text, and below it the figures of its tables with their units: “in millions” makes 5 million of 5.

    Percentages and prices such as 2.16, which are per share, have no such unit. A column of percentages has “%”. A
    figure in brackets is below zero or a cost, so it is spoken with and without a sign.

    >>> spoken("| In millions | 2025 | % change |\\n|---|---|---|\\n| Rent | (12) | (3) |").splitlines()[-4:]
    ['12 million', '-12 million', '3%', '-3%']
    """
    found, heads, rows, unit, above = list[str](), list[str](), list[list[str]](), "", ""
    for line, below in itertools.pairwise([*text.splitlines(), ""]):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        is_head = line.startswith("|") and (not above.startswith("|") or _RULE.match(below) is not None)
        above, rows = line, rows if line.startswith("|") and not is_head else []
        if is_head or not line.startswith("|"):
            heads, unit = (cells, scale(line)) if is_head else ([], "")
        elif match := _SCALE.search(line):
            unit = match[1].lower()
        else:
            rows = with_percentages([*rows[-1:], cells])
            heads += [""] * (len(cells) - len(heads))
            for cell, known, head in zip(cells, rows[-1], heads, strict=False):
                own = "%" if known != cell or _is_of_percentages(head) else scale(f"| {head}") or unit
                found += _amounts(cell, own) if _is_figure(cell) else []
    return "\n".join([text, *found])


def _is_of_percentages(head: str) -> bool:
    """Return whether a column has percentages: “% of revenue”, but not “in millions, except percentages”."""
    return bool(_PERCENT.search(_EXCEPT.sub("", head)))


def with_percentages(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of a table with ``%`` behind the figures of a ratio below percentages in the same columns.

    >>> with_percentages([["Cost ratio", "13.2%", "1.5%"], ["Operating margin", "8.1", "(0.6)"]])[1]
    ['Operating margin', '8.1%', '(0.6)%']
    >>> with_percentages([["Sales", "159"], ["Gross margin", "53"]])[1]
    ['Gross margin', '53']
    """
    found: list[list[str]] = []
    for row in rows:
        above = found[-1] if found and _RATIO.search(row[0]) else []
        pairs = zip(row, [*above, *[""] * len(row)], strict=False)
        found.append([f"{cell}%" if "%" in other and _SMALL.fullmatch(cell) else cell for cell, other in pairs])
    return found


def _amounts(cell: str, unit: str) -> list[str]:
    """Return how a figure is spoken with the unit of its table or column, if that is not in its cell.

    >>> _amounts("(1,269)", "million"), _amounts("(3)%", "million"), _amounts("18.0", "%"), _amounts("$2.16", "million")
    (['1,269 million', '-1,269 million'], ['3%', '-3%'], ['18.0%'], [])
    """
    below_zero = below_zero_in(cell)
    unit = "%" if "%" in cell else f" {unit}" if unit not in ("", "%") else unit
    figure = below_zero or cell
    if not unit or (unit != "%" and _UNLIKE.search(figure)) or figure.endswith("%"):
        return []
    return [f"{figure}{unit}", f"-{figure}{unit}"] if below_zero else [f"{figure}{unit}"]


def below_zero_in(cell: str) -> str:
    """Return the figure that a cell has in brackets, without its percent sign; "" for any other cell.

    >>> below_zero_in("$(1,020)"), below_zero_in("(3)%"), below_zero_in("12")
    ('1,020', '3', '')
    """
    match = _BRACKETS.fullmatch(cell)
    return match[1] if match else ""


def scale(head: str) -> str:
    """Return the unit of the figures below the header of a table: “thousand”, “million”, “billion”, or "".

    >>> scale("| Millions, Except Per Share Amounts | 2025 |"), scale("| $ million | 2025 |")
    ('million', 'million')
    >>> scale("| (dollars in thousands) | 2025 |"), scale("| Year | Millions |"), scale("| Year | Paid (in millions) |")
    ('thousand', '', '')
    >>> scale("| Options in thousands, values in millions | 2025 |")
    ''
    """
    first = "|".join(head.split("|", 2)[:2])
    found = {match[1].lower() for match in _SCALE.finditer(first)}
    match = _SCALE_OF_HEAD.match(first) if not found else None
    return match[1].lower() if match else found.pop() if len(found) == 1 else ""


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Return rows as a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


def _is_grid(rows: list[list[Cell]], heads: bool) -> bool:
    """Return whether rows are a table of figures, or one with a header of its own."""
    texts = [cell.text for row in rows for cell in row if cell.text]
    if len(rows) < 2 or any(_BOXES.search(text) or _PAGE.fullmatch(text) or len(text) > LONGEST for text in texts):
        return False
    if sum(map(_is_listing, texts)) > len(rows) // 3:
        return False
    if heads and max(len([cell for cell in row if cell.text]) for row in rows) > 1:
        return True
    if not heads and _are_contents(rows):
        return False
    figures = [sum(1 for cell in row[1:] if _is_figure(cell.text)) for row in rows]
    return sum(1 for count in figures if count) >= 2 and sum(figures) >= max(2, len(rows) // 3)


def _are_contents(rows: list[list[Cell]]) -> bool:
    """Return whether rows are a table of contents: titles, and the numbers of pages that only rise."""
    texts = [[cell.text for cell in row if cell.text] for row in rows]
    pages = [int(row[1]) for row in texts if len(row) == 2 and re.fullmatch(r"\d{1,3}", row[1])]
    return len(pages) == len(rows) > 2 and all(one <= other for one, other in itertools.pairwise(pages))


def _is_listing(text: str) -> bool:
    return _LISTING.match(text) is not None


def _is_figure(text: str) -> bool:
    """Return whether a cell has a figure, which a year is not.

    >>> [_is_figure(text) for text in ("12,422,309", "(4.2)", "44 %", "2029", "Total", "$", "—")]
    [True, True, True, False, False, False, False]
    """
    return bool(_FIGURE.fullmatch(text)) and any(letter.isdigit() for letter in text) and not _YEAR.fullmatch(text)


def _placed(rows: list[list[Cell]]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows on one grid of columns, twice: each text at the last column of its cell, and in its whole span.

    Figures end at the same column in every row, wherever their cells begin. A heading belongs to all of its columns.
    """
    taken: dict[tuple[int, int], str] = {}
    ends: list[dict[int, str]] = []
    for number, row in enumerate(rows):
        ends.append({})
        column = 0
        for cell in _joined(row):
            while (number, column) in taken:
                column += 1
            for down in range(cell.rows):
                taken.update({(number + down, column + right): cell.text for right in range(cell.columns)})
            column += cell.columns
            if cell.text:
                ends[-1][column - 1] = cell.text
    width = max((column for _, column in taken), default=-1) + 1
    grid = [[each.get(column, "") for column in range(width)] for each in ends]
    spans = [[taken.get((number, column), "") for column in range(width)] for number in range(len(rows))]
    return grid, spans


def _joined(row: list[Cell]) -> list[Cell]:
    """Join signs in cells of their own with their figure: ``$`` with the next cell, ``%`` and ``)`` with the last.

    A row without figures is a heading, whose signs are units of columns.
    """
    if not any(_is_figure(cell.text) or _NONE.fullmatch(cell.text) for cell in row):
        return row
    found: list[Cell] = []
    opened, columns = "", 0
    for cell in row:
        text, last = cell.text, _last(found)
        if _OPENS.fullmatch(text):
            opened, columns = opened + text, columns + cell.columns
        elif text and _CLOSES.fullmatch(text) and last is not None and _VALUE.search(found[last].text):
            found[last] = found[last]._replace(text=f"{found[last].text}{text}")
            found.append(Cell("", cell.columns))
        else:
            found.append(cell._replace(text=opened + text if text else "", columns=cell.columns + columns))
            opened, columns = "" if text else opened, 0
    return found if not opened else [*found, Cell(opened, columns or 1)]


def _last(found: list[Cell]) -> int | None:
    return next((at for at in reversed(range(len(found))) if found[at].text), None)


def _headers(grid: list[list[str]], spans: list[list[str]], heads: bool) -> int:
    """Return how many rows are the header: those before the first figure. A row with a label alone ends it."""
    if heads:
        return 1
    for number, row in enumerate(grid[: MOST_HEADERS + 1]):
        label, values = _label(row)
        values = values[1:] if not (number or label) and len(values) > 1 and any(row[:4]) else values  # a stray mark
        below = [_label(other) for other in grid[number + 1 : MOST_HEADERS + 1]]
        if any(UNITS.match(text) and not any(map(_is_figure, others)) for text, others in below):
            continue
        only_units = bool(UNITS.fullmatch(label)) and not values
        has_value = any(_is_figure(value) or _NONE.fullmatch(value) for value in values)
        is_group = spans[number][0] and spans[number][0] == "".join(row) and not row[-1]  # a label over some columns
        if has_value or ((label or is_group) and not (label and values) and not only_units and number):
            return max(number, 1)
    return 1


def _label(row: list[str]) -> tuple[str, list[str]]:
    filled = [text for text in row if text]
    has_label = bool(filled) and not _is_figure(filled[0]) and row.index(filled[0]) < 4
    return (filled[0], filled[1:]) if has_label else ("", filled)


def _columns(body: list[list[str]]) -> list[int]:
    return [column for column in range(len(body[0])) if any(row[column] for row in body)] if body else []


def _heads(columns: list[list[str]], above: str) -> list[str]:
    """Return the headings of columns. Units of the first column, or of all others, stand in the first one.

    ``above`` are units in a line above the table. Units of a single column stay in its heading.

    >>> _heads([["Year"], ["(in millions)", "2029"], ["(in millions)", "2028"]], "")
    ['Year (in millions)', '2029', '2028']
    >>> _heads([["Paid on"], ["Per share"], ["Paid (in millions)"]], "")
    ['Paid on', 'Per share', 'Paid (in millions)']
    """
    first, *others = [list(dict.fromkeys(text for text in texts if text)) for texts in columns]
    shared = [
        text for text in (others[0] if others else ())
        if UNITS.search(text) and all(text in texts for texts in others) and (len(others) > 1 or not first)
    ]  # fmt: skip
    units = [match[0].strip(" ()") for text in (*first, *shared) for match in UNITS.finditer(text)]
    label = _joined_texts(UNITS.sub("", text).strip() for text in first)
    told = ", ".join(dict.fromkeys(units or [above.strip(" ()")]))
    told_once = {*first, *shared}
    heads = [
        _joined_texts(UNITS.sub("", text).strip() if text in told_once else text for text in texts) for texts in others
    ]
    return [f"{label} ({told})" if label and told else label or told, *heads]


def _joined_texts(texts: Iterable[str]) -> str:
    return " ".join(text for text in texts if text)


def _merged(head: list[str], body: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Merge neighbours that are one column: no row has a text in both, and their headings do not differ."""
    column = 0
    while column + 1 < len(head):
        same = head[column] == head[column + 1] or not (head[column] and head[column + 1])
        if same and not any(row[column] and row[column + 1] for row in body):
            head = [*head[:column], head[column] or head[column + 1], *head[column + 2 :]]
            body = [[*row[:column], row[column] or row[column + 1], *row[column + 2 :]] for row in body]
        else:
            column += 1
    return head, body


def _told_apart(head: list[str], body: list[list[str]]) -> list[str]:
    """Return the headings, and mark a column of percentages if another one has the same heading."""
    figures = [[row[at] for row in body if _is_figure(row[at])] for at in range(len(head))]
    shares = [bool(cells) and all(cell.endswith("%") for cell in cells) for cells in figures]
    return [f"{name} (%)" if name and shares[at] and head.count(name) > 1 else name for at, name in enumerate(head)]


def _texts(rows: list[list[Cell]]) -> list[str]:
    """Return the text of each row, without bullets."""
    found = [" ".join(cell.text for cell in row if cell.text and not _BULLET.fullmatch(cell.text)) for row in rows]
    return [text for text in found if text and not _BOXES.search(text)]
