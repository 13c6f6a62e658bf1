"""The report as one self-contained HTML page for phone, screen and printer. It loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pausepoint.apps.aura.contents import Contents, Item, Section
from pausepoint.apps.aura.models import Result, SubjectMastery

WIDTH, HEIGHT, MARGIN = 160, 40, 4

STYLE = """
:root { color-scheme: light dark; --text: #1d2733; --soft: #5a6675; --line: #d9dfe6; --card: #f6f8fa; --blue: #1565c0;
  --green: #2e7d32; --amber: #b26a00; --red: #b71c1c; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ed; --soft: #a3afbd; --line: #3a4450; --card: #232a32;
  --blue: #7fb4ee; --green: #7cc47f; --amber: #e3a84a; --red: #f0938d; } body { background: #171c21; } }
* { box-sizing: border-box; }
body { font: 17px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--text); max-width: 52rem;
  margin: 0 auto; padding: 1.25rem 1rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; color: var(--blue); }
p { margin: .4rem 0; }
.day, .detail, footer { color: var(--soft); }
.stress { margin: 1rem 0; padding: .7rem 1rem; border-left: .4rem solid; border-radius: .3rem;
  background: var(--card); }
.low { border-color: var(--green); } .moderate { border-color: var(--amber); } .high { border-color: var(--red); }
ul { list-style: none; margin: 0; padding: 0; }
li { padding: .45rem 0; border-bottom: 1px solid var(--line); }
li:last-child { border-bottom: 0; }
.bad h2 { color: var(--red); }
.bad li { border-left: .25rem solid var(--red); padding-left: .75rem; margin: .35rem 0; border-bottom: 0; }
.bad .detail { display: block; }
.subject { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: .25rem 1rem; }
.subject div { flex: 1 1 16rem; }
.subject .detail::first-letter { text-transform: uppercase; }
svg { flex: 0 0 auto; }
svg line { stroke: var(--line); } svg polyline { fill: none; stroke: var(--blue); stroke-width: 2; }
svg circle { fill: var(--blue); }
footer { font-size: .85rem; }
@media print { body { font-size: 11pt; max-width: none; padding: 0; } li, .stress, h2, h3 { break-inside: avoid; }
  h2, h3 { break-after: avoid; } }
"""


def as_html(found: Contents) -> str:
    """Return the whole page."""
    title = escape(found.title)
    body = "\n".join(
        [
            f'<h1>{title}</h1>\n<p class="day">{escape(found.day)}</p>',
            f'<p class="stress {found.level}">'
            f"<strong>{escape(found.stress)}</strong> {escape(found.stress_because)}</p>",
            f"<p>{escape(' '.join(found.summary))}</p>",
            *map(_section, found.sections),
            f"<footer>\n{_inner(found.small_print)}\n</footer>",
        ]
    )
    phone = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">\n{phone}\n<title>{title}</title>\n<style>{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="{found.language}">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'
    )


def _section(section: Section) -> str:
    return f"<section{_class(section.tone)}>\n{_inner(section)}\n</section>"


def _inner(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>", *(f"<p>{escape(line)}</p>" for line in section.intro)]
    for group in section.groups:
        parts += [f"<h3>{escape(group.title)}</h3>"] if group.title else []
        parts.append("<ul>\n" + "\n".join(map(_item, group.items)) + "\n</ul>")
    return "\n".join(parts)


def _item(item: Item) -> str:
    if not item.head:
        return f"<li>{escape('; '.join(item.lines))}</li>"
    head = f"<strong>{escape(item.head)}</strong>"
    if item.subject is None:
        return f'<li>{head} <span class="detail">{escape("; ".join(item.lines))}</span></li>'
    text = head + "".join(f'<p class="detail">{escape(line)}</p>' for line in item.lines)
    return f'<li class="subject"><div>{text}</div>{chart(item.subject)}</li>'


def _class(tone: str) -> str:
    return f' class="{tone}"' if tone else ""


def chart(subject: SubjectMastery) -> str:
    """Return an SVG chart of a subject's results over time, from 0 at the bottom to full marks at the top."""
    if not subject.history:
        return ""
    label = escape(f"{subject.subject}: {', '.join(f'{each.score:.0%}' for each in subject.history)}", quote=True)
    places = _places(subject.history)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<line x1="{MARGIN}" y1="{HEIGHT - MARGIN}" x2="{WIDTH - MARGIN}" y2="{HEIGHT - MARGIN}"/>'
        f'<polyline points="{line}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3"/></svg>'
    )


def _places(history: Sequence[Result]) -> list[tuple[float, float]]:
    """Return the coordinates of the results, left to right by time. A single result is in the middle."""
    times = [each.at.timestamp() for each in history]
    span = times[-1] - times[0]
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    return [
        (MARGIN + width * ((at - times[0]) / span if span else 0.5), MARGIN + height * (1 - each.score))
        for at, each in zip(times, history, strict=True)
    ]
