"""Render the Markdown of a memo as HTML: citations as buttons, marked claims, tables that scroll, charts as pictures.

The text comes from documents, models and people. Nothing in it can become HTML by itself, load anything, or run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import TYPE_CHECKING, Any, NamedTuple

from pausepoint import PausepointError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_CITATION = re.compile(r"\[\^(\d{1,6})\]")
_UNSUPPORTED = re.compile(r"\*\*\[⚠ unsupported: ([^\]\n]*)\]\*\*")
_CITED = re.compile(r"([^\s<>]+(?:<sup>.*?</sup>)+[.,;:!?]?)")
"""A word with its citations. Browsers would break the line between them."""

_COMMENT = re.compile(r"<!--.*?-->[ \t]*\n?", re.DOTALL)
_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_LABELS = re.compile(r"x-axis \[(.*)\]")
_BARS = re.compile(r"bar \[([-\d., e+]*)\]")
_LABEL = re.compile(r'"([^"]*)"')
_AXIS = re.compile(r'y-axis "([^"]*)"')
_FIGURE = re.compile(r"[-–—−(]?\s?[$€£¥]?\s?[-(]?\d[\d,.]*\s?[%)x]{0,2}|[-–—−]")


class MarkupError(PausepointError):
    """The page cannot be made, because a library is missing."""

    retryable = False


class Heading(NamedTuple):
    """A heading of a section: its anchor on the page, and its text as HTML."""

    anchor: str
    html: str


def text_of_heading(heading: Heading) -> str:
    """Return the text of a heading without markup."""
    return unescape(re.sub(r"<[^>]*>", "", heading.html))


def rendered(markdown: str, cited: Mapping[int, str]) -> tuple[str, list[Heading]]:
    """Return Markdown as HTML, and its headings of the second level. ``cited`` names the source of each citation."""
    reader = _reader()
    env: dict[str, Any] = {"cited": cited}
    tokens = reader.parse(_COMMENT.sub("", markdown), env)
    headings: list[Heading] = []
    for token, content in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            anchor = f"s{len(headings) + 1}"
            token.attrSet("id", anchor)
            headings.append(Heading(anchor, reader.renderer.render([content], reader.options, env)))
    html = reader.renderer.render(tokens, reader.options, env)
    return _CITED.sub(r'<span class="whole">\1</span>', html), headings


def _reader() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MarkupError(
            "The page of the memo needs markdown-it-py. Install it: pip install 'pausepoint[apps]'"
        ) from error
    reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("reference")
    reader.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]
    reader.inline.ruler.before("emphasis", "unsupported", _take_mark)
    reader.inline.ruler.before("link", "citation", _take_citation)
    rules: dict[str, Any] = reader.renderer.rules  # type: ignore[attr-defined]
    rules |= {
        "citation": _citation, "unsupported": _unsupported, "image": _image, "fence": _fence,
        "table_open": _table, "table_close": lambda *_: "</table></div>\n", "td_open": _cell, "link_open": _link,
    }  # fmt: skip
    return reader


# what Markdown does not have


def _take_citation(state: StateInline, silent: bool) -> bool:
    return _take(state, silent, _CITATION, "citation")


def _take_mark(state: StateInline, silent: bool) -> bool:
    return _take(state, silent, _UNSUPPORTED, "unsupported")


def _take(state: StateInline, silent: bool, form: re.Pattern[str], kind: str) -> bool:
    found = form.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push(kind, "", 0).content = found[1]
    state.pos = found.end()
    return True


# rendering


def _citation(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    number = int(tokens[at].content)
    name = env["cited"].get(number)
    if name is None:
        return f'<sup class="lost" title="This citation does not exist">[{number}]</sup>'
    label = escape(f"Source {number}: {unescape(name)}", quote=True)
    return (
        f'<sup><button type="button" popovertarget="p{number}" title="{label}" aria-label="{label}">{number}'
        "</button></sup>"
    )


def _unsupported(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    return f'<mark class="unsupported">⚠ unsupported: {escape(tokens[at].content)}</mark>'


def _image(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """A picture would be loaded from elsewhere, so the page only links to it."""
    url = str(tokens[at].attrGet("src") or "")
    text = escape(f"Picture: {tokens[at].content}" if tokens[at].content else "Picture")
    return f'<a class="picture" href="{escape(url, quote=True)}" rel="noopener noreferrer">{text}</a>'


def _link(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    url = escape(str(tokens[at].attrGet("href") or ""), quote=True)
    return f'<a href="{url}" rel="noopener noreferrer">'


def _table(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    return '<div class="table" role="region" aria-label="Table" tabindex="0"><table>\n'


def _cell(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    return '<td class="figure">' if _FIGURE.fullmatch(tokens[at + 1].content.strip()) else "<td>"


def _fence(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    drawn = chart(token.content) if token.info.strip() == "mermaid" else ""
    return drawn or f"<pre><code>{escape(token.content)}</code></pre>\n"


def chart(text: str) -> str:
    """Return a bar chart in the notation of Mermaid as HTML, or an empty string if it is not one.

    The table above a chart has its figures, so the bars carry no numbers and screen readers skip them.
    """
    labels, bars = _LABELS.search(text), _BARS.search(text)
    names = _LABEL.findall(labels[1]) if labels else []
    try:
        values = [float(each) for each in bars[1].split(",")] if bars else []
    except ValueError:
        return ""
    if not names or len(names) != len(values):
        return ""
    most = max(map(abs, values)) or 1.0
    rows = "".join(_bar(name, value, 100 * abs(value) / most) for name, value in zip(names, values, strict=True))
    axis = _AXIS.search(text)
    shown = f"<em>{escape(axis[1])}</em>" if axis else ""
    return f'<div class="chart" aria-hidden="true">{shown}{rows}</div>\n'


def _bar(name: str, value: float, width: float) -> str:
    kind = ' class="minus"' if value < 0 else ""
    return f'<span>{escape(name)}</span><i><b{kind} style="width:{width:.1f}%"></b></i>'
