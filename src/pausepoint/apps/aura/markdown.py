"""The report as Markdown, and as plain text for the e-mail."""

from __future__ import annotations

from collections.abc import Iterator

from pausepoint.apps.aura.contents import Contents, Item, Section
from pausepoint.apps.words import plain


def as_markdown(found: Contents) -> str:
    """Return the whole report."""
    lines = [
        f"# {plain(found.title)}",
        "",
        plain(found.day),
        "",
        f"**{plain(found.stress)}** {plain(found.stress_because)}",
        "",
        plain(" ".join(found.summary)),
    ]
    for section in (*found.sections, found.small_print):
        lines += _section(section)
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {plain(section.title)}")
    for line in section.intro:
        yield from ("", plain(line))
    for group in section.groups:
        if group.title:
            yield from ("", f"**{plain(group.title)}**")
        yield ""
        yield from (f"- {_item(each)}" for each in group.items)


def _item(item: Item) -> str:
    head = f"**{plain(item.head)}**" if item.head else ""
    return ": ".join(filter(None, (head, plain("; ".join(item.lines)))))


def as_text(found: Contents) -> str:
    """Return the whole report without any markup."""
    lines = [found.title, found.day, "", f"{found.stress} {found.stress_because}", "", *found.summary]
    for section in (*found.sections, found.small_print):
        lines += ["", section.title.upper(), *section.intro]
        for group in section.groups:
            lines += [group.title] if group.title else []
            lines += [f"- {': '.join(filter(None, (item.head, '; '.join(item.lines))))}" for item in group.items]
    return "\n".join(lines) + "\n"
