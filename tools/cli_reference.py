"""Write the generated parts of docs/cli.md: the help text of every command, and the documents of --json.

    python -m tools.cli_reference

A test fails while the page differs from what this script would write.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from pausepoint.cli.app import SECTIONS, app
from pausepoint.cli.schema import schema

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
WIDTH = 100


def render(page: str) -> str:
    """Return the page with up-to-date generated parts."""
    for name, part in (("commands", commands()), ("documents", documents())):
        begin, end = f"<!-- {name}: written by tools/cli_reference.py -->", f"<!-- end of {name} -->"
        found = re.search(rf"{re.escape(begin)}\n.*?{re.escape(end)}", page, re.DOTALL)
        if found is None:
            raise ValueError(f"docs/cli.md has no place for the {name}. Add the markers {begin} … {end}.")
        page = page[: found.start()] + f"{begin}\n\n{part}\n\n{end}" + page[found.end() :]
    return page


def commands() -> str:
    """Return a heading and the help text of every command, in the order of `pausepoint --help`."""
    parts = [_block(_help(app, "pausepoint"))]
    for section, table in SECTIONS.items():
        parts.append(f"### {section}")
        for name in table:
            command = app.get_command(click.Context(app), name)
            assert command is not None, name
            parts += _with_subcommands(command, f"pausepoint {name}")
    return "\n\n".join(parts)


def _with_subcommands(command: click.Command, name: str) -> list[str]:
    parts = [f"#### {name}\n\n{_block(_help(command, name))}"]
    below = command.commands if isinstance(command, click.Group) else {}
    return parts + [part for each in below for part in _with_subcommands(below[each], f"{name} {each}")]


def _help(command: click.Command, name: str) -> str:
    settings = dict(app.context_settings) | {"terminal_width": WIDTH}
    with click.Context(command, info_name=name, **settings) as context:
        return command.get_help(context)


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def documents() -> str:
    """Return a table of what each command prints, then every document with its fields."""
    described = schema()
    rows = ["| command | with --json | with --jsonl, a line each |", "|---|---|---|"]
    for name, forms in described["commands"].items():
        cells = [_names(forms.get(form)) for form in ("json", "jsonl")]
        if "field" in forms:
            cells[0] += "; with --field the value itself"
        rows.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    shapes = [_shape(name, shape) for name, shape in described["$defs"].items() if name not in ("moment", "status")]
    return "\n\n".join(["\n".join(rows), *shapes])


def _names(form: Any) -> str:
    if form is None:
        return ""
    return " or ".join(f"[{name}](#{name})" for name in _references(form))


def _references(form: Any) -> list[str]:
    parts = form.get("anyOf", [form])
    return [part["$ref"].rsplit("/", 1)[1] for part in parts]


def _shape(name: str, shape: dict[str, Any]) -> str:
    bases = [part["$ref"].rsplit("/", 1)[1] for part in shape.get("allOf", ()) if "$ref" in part]
    text = shape["description"] + "".join(f" All of [{base}](#{base}), and:" for base in bases)
    return "\n".join([f"#### {name}", "", text, "", *_fields(shape)])


def _fields(shape: dict[str, Any]) -> list[str]:
    """Return a line with all fields of an object, then an item for each field that is described."""
    names: list[str] = []
    items: list[str] = []
    for part in shape.get("allOf", [shape]):
        for name, kind in part.get("properties", {}).items():
            missing = "" if name in part.get("required", ()) else " (optional)"
            names.append(f"`{name}` {_kind(kind)}{missing}")
            items += [f"- `{name}`: {kind['description']}"] if "description" in kind else []
    return [", ".join(names) + ".", *(["", *items] if items else [])]


def _kind(kind: Any) -> str:
    """Return the type of a field in words."""
    if "$ref" in kind:
        return _link(kind["$ref"].rsplit("/", 1)[1])
    if "anyOf" in kind:
        return _either([_kind(each) for each in kind["anyOf"]])
    if "enum" in kind:
        return _either(["null" if each is None else f"`{each}`" for each in kind["enum"]])
    types = kind.get("type", "any")
    text = _either([types] if isinstance(types, str) else types)
    if "items" in kind:
        text += f" of {_many(_kind(kind['items']))}"
    if isinstance(kind.get("additionalProperties"), dict):
        text += f" of {_many(_kind(kind['additionalProperties']))} by name"
    return text


def _either(kinds: list[str]) -> str:
    """Return the kinds that a value may have; a question mark stands for null."""
    named = [kind.replace("array", "list") for kind in kinds if kind not in ("null", "?")]
    return " or ".join(named) + ("?" if len(named) < len(kinds) else "")


def _many(kind: str) -> str:
    """Return the plural, if there is one."""
    return f"{kind}s" if kind in ("string", "integer", "object") else kind


def _link(name: str) -> str:
    return {"moment": "time", "status": "[status](concepts.md)"}.get(name, f"[{name}](#{name})")


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
