"""Tables for notebooks: plain HTML that is readable on light and dark pages. All content is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

LONGEST = 500
"""The most characters in one cell. A notebook is saved as a file, and a state may take megabytes."""
MOST_ROWS = 200

# Only the page's own colours, because a notebook may be light or dark.
_TABLE = "border-collapse:collapse;text-align:left"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:0.3em 0"
_CELL = "text-align:left;vertical-align:top;padding:0.2em 0.8em 0.2em 0;white-space:pre-wrap"
_HEAD = f"{_CELL};border-bottom:1px solid currentColor"


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table. Every cell is escaped and cut to a readable length; ``None`` is shown as a dash.

    >>> "&lt;b&gt;" in table(["step"], [["<b>"]])
    True
    """
    shown = list(islice(rows, MOST_ROWS + 1))
    parts = [f'<table style="{_TABLE}">']
    if caption:
        parts.append(f'<caption style="{_CAPTION}">{text(caption)}</caption>')
    if head:
        parts.append(f"<thead>{_row('th', _HEAD, head)}</thead>")
    parts += ["<tbody>", *(_row("td", _CELL, row) for row in shown[:MOST_ROWS])]
    if len(shown) > MOST_ROWS:
        parts.append(_row("td", _CELL, [f"… only the first {MOST_ROWS} rows are shown"]))
    return "".join([*parts, "</tbody></table>"])


def facts(known: Mapping[str, object], caption: str = "") -> str:
    """Return an HTML table with one row per fact. Empty values are left out.

    >>> "owner" in facts({"owner": None, "step": "write"})
    False
    """
    return table([], [(name, value) for name, value in known.items() if value not in (None, "", ())], caption)


def text(value: object) -> str:
    """Return one value as escaped text.

    >>> text(None), text("a & b"), text(True)
    ('–', 'a &amp; b', 'True')
    """
    if value is None:
        return "–"
    from html import escape  # imported here because it loads a table of all entities that few programs need

    try:
        words = str(value)
    except Exception as error:  # a value of the user's own type; the rest of the table is still useful
        words = f"({type(value).__name__} cannot be shown: {type(error).__name__})"
    cut = f"{words[:LONGEST]}…" if len(words) > LONGEST else words
    # A lone surrogate cannot be encoded when the page is sent.
    return escape(cut.encode("utf-8", "backslashreplace").decode())


def _row(cell: str, style: str, values: Sequence[object]) -> str:
    return "<tr>" + "".join(f'<{cell} style="{style}">{text(value)}</{cell}>' for value in values) + "</tr>"
