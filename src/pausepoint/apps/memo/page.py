"""The memo as one self-contained HTML page. It loads nothing and runs no script.

Every citation is a button that opens its passage, with the sentence that the claim is based on highlighted. In print,
the passages are a list at the end. Claims that no source supports are marked, and the top of the page counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from pathlib import Path

from pausepoint.apps.memo.checks import ENOUGH, problems
from pausepoint.apps.memo.citations import Claim, body_of, claims, definitions, rows_of
from pausepoint.apps.memo.markup import Heading, rendered, text_of_heading
from pausepoint.apps.memo.models import Passage, Review, Section, Source, Validation
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.research import by_key
from pausepoint.apps.words import many

STYLE = Path(__file__).with_name("page.css").read_text("utf-8")

MEANT = "how well the text is supported, not a rating of the investment."
"""What the score says, on every page."""

NEAR = 0.5
"""The share of a claim's words that a sentence of its passage must have to be highlighted."""

VERDICTS = {"approved": "Approved by a reviewer.", "rejected": "Rejected by a reviewer.", "not needed": "Final."}


def as_html(
    company: str, memo: str, outline: Sequence[Section], sources: Iterable[Source], found: Validation,
    review: Review | None = None,
) -> str:  # fmt: skip
    """Return the page of a memo. Without a ``review`` it is the page of a draft."""
    keys, known = definitions(memo), by_key(sources)
    cited = {number: known[key] for number, key in keys.items() if key in known}
    text, headings = rendered(body_of(memo), {number: _named(*each) for number, each in cited.items()})
    by_number = _claims_by_number(memo, company)
    notes = "\n".join(_note(number, *each, by_number.get(number, [])) for number, each in cited.items())
    listed = f'<section id="citations">\n<h2>Citations</h2>\n{notes or _NONE}\n</section>'
    title = escape(company)
    first, _, rest = text.partition("\n<h2 ")
    body = f"{first}\n{_status(found, review)}\n{_contents(headings, outline, found)}\n<h2 {rest}" if rest else text
    phone = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">\n{phone}\n<title>{title}: investment memo</title>\n<style>\n{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n<main>\n{body}\n{listed}\n</main>\n'
        "</body>\n</html>\n"
    )


_NONE = "<p>No source was cited, because no source contains anything about the subject of this memo.</p>"


# the top of the page


def _status(found: Validation, review: Review | None) -> str:
    """Return the verdict, the score and the number of unsupported claims."""
    score = found.overall_score or 0.0
    wrong = len(problems(found))
    kind = "bad" if wrong or (review and review.verdict == "rejected") else "good" if score >= ENOUGH else "fair"
    first = VERDICTS[review.verdict] if review else "Draft."
    parts = [f"<strong>{first}</strong> {_supported(found)}Score {score:.1f} of 10: {MEANT}"]
    if review and review.reason:
        parts.append(f"Reason: {escape(review.reason)}")
    if wrong:
        verb = "is" if wrong == 1 else "are"
        parts.append(f"{many(wrong, 'claim')} without support in the sources {verb} marked in the text.")
    elif review is None and score < ENOUGH:
        parts.append("A person has to review it.")
    return f'<p class="status {kind}">{" ".join(parts)}</p>'


def _supported(found: Validation) -> str:
    """Return how many statements their sources support."""
    citations = found.citation_validation
    if citations is None or not citations.claims:
        return ""
    return f"{citations.supported} of {many(citations.claims, 'statement')} are supported by their sources. "


def _contents(headings: list[Heading], outline: Sequence[Section], found: Validation) -> str:
    """Return the list of sections, with the score of each."""
    scores = found.validation_results.sections if found.validation_results else {}
    by_title = {section.title: scores.get(section.name) for section in outline}
    rows = []
    for heading in headings:
        score = by_title.get(text_of_heading(heading))
        shown = f' <span class="score">{score:.1f}</span>' if score is not None else ""
        rows.append(f'<li><a href="#{heading.anchor}">{heading.html}</a>{shown}</li>')
    small = "The numbers are the share of claims that their sources support, from 0.0 to 10.0."
    listed = "\n".join(rows)
    return f'<nav aria-label="Sections"><ol>\n{listed}\n</ol>\n<p class="small">{small}</p></nav>'


# passages


def _named(source: Source, passage: Passage) -> str:
    page = f", page {passage.page}" if passage.page else ""
    return f"{source.title}{page}"


def _note(number: int, source: Source, passage: Passage, based_on_it: list[Claim]) -> str:
    """Return one entry of the list: the source, and the passage that opens."""
    title = escape(unescape(_named(source, passage)))
    places = [escape(unescape(each)) for each in dict.fromkeys((passage.part, passage.heading)) if each]
    heading = f'<p class="heading">{" › ".join(places)}</p>' if places else ""
    label = f"[{number}] {title}"
    return (
        f'<article id="c{number}"><p><button type="button" popovertarget="p{number}">{number}</button> {title},'
        f" {_place(source)}</p>\n"
        f'<div popover id="p{number}" role="dialog" aria-label="Source {number}"><p class="source"><strong>{label}'
        f"</strong> {_place(source)}</p>{heading}\n{_passage(passage, based_on_it)}\n"
        f'<button type="button" class="close" popovertarget="p{number}" popovertargetaction="hide">Close</button>'
        "</div></article>"
    )


def _place(source: Source) -> str:
    where = escape(source.where, quote=True)
    if re.match(r"https?://", source.where):
        return f'<a href="{where}" rel="noopener noreferrer">{where}</a>'
    return f"<code>{where}</code>"


def _passage(passage: Passage, based_on_it: list[Claim]) -> str:
    if passage.table:
        return rendered(passage.text, {})[0]
    near = {_nearest(claim.text, passage.text) for claim in based_on_it}
    parts = [(escape(unescape(each)), each in near) for each in sentences(passage.text)]
    shown = " ".join(f"<mark>{text}</mark>" if marked else text for text, marked in parts)
    return f"<blockquote>{shown}</blockquote>"


def _nearest(claim: str, passage: str) -> str:
    """Return the sentence of a passage that a claim is based on, or an empty string if none is close."""
    own = set(stems(claim))
    best = max(sentences(passage), key=lambda each: len(own & set(stems(each))), default="")
    return best if len(own & set(stems(best))) >= NEAR * len(own) else ""


def _claims_by_number(memo: str, company: str) -> dict[int, list[Claim]]:
    found: dict[int, list[Claim]] = {}
    for claim in claims(memo, company, copied=rows_of(memo)):
        for number in claim.cited:
            found.setdefault(number, []).append(claim)
    return found
