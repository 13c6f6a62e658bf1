"""Write the generated parts of docs/cli.md: the help text of every command, and the documents of --json.

    python -m tools.cli_reference

A test fails while the page differs from what this script would write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from pausepoint.cli.app import SECTIONS, app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
SCHEMA = Path(__file__).resolve().parents[1] / "src" / "pausepoint" / "engine" / "schema.json"
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
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    rows = ["| command | with --json | with --jsonl, a line each |", "|---|---|---|"]
    for name, forms in schema["commands"].items():
        cells = [_names(forms.get(form)) for form in ("json", "jsonl")]
        if "field" in forms:
            cells[0] += "; with --field the value itself"
        rows.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    shapes = [
        _shape(name, shape) for name, shape in schema["$defs"].items() if name not in ("moment", "status", "value")
    ]
    return "\n\n".join(["\n".join(rows), *shapes])


def _names(schema: Any) -> str:
    if schema is None:
        return ""
    return " or ".join(f"[{name}](#{name})" for name in _references(schema))


def _references(schema: Any) -> list[str]:
    parts = schema.get("anyOf", [schema])
    return [part["$ref"].rsplit("/", 1)[1] for part in parts]


def _shape(name: str, shape: dict[str, Any]) -> str:
    parts = shape.get("allOf", [shape])
    bases = [part["$ref"].rsplit("/", 1)[1] for part in parts if "$ref" in part]
    lines = [f"#### {name}", "", shape["description"]]
    lines += [f" All of [{base}](#{base}), and:" for base in bases]
    fields: dict[str, Any] = {}
    needed: set[str] = set()
    for part in parts:
        fields |= part.get("properties", {})
        needed |= set(part.get("required", ()))
    text = "\n".join(lines[:3]) + "".join(lines[3:])
    return text + "\n\n" + "\n".join(_field(each, kind, each in needed) for each, kind in fields.items())


def _field(name: str, kind: Any, needed: bool, depth: int = 0) -> str:
    line = f"{'    ' * depth}- `{name}`: {_kind(kind)}{'' if needed else ' (optional)'}"
    inner = _inner(kind)
    if inner is None:
        return line
    if "description" in inner:
        line += f". {inner['description']}"
    parts = inner.get("allOf", [inner])
    below = [
        _field(each, found, each in part.get("required", ()), depth + 1)
        for part in parts
        for each, found in part.get("properties", {}).items()
    ]
    return "\n".join([line, *below])


def _inner(kind: Any) -> dict[str, Any] | None:
    """Return the schema of an object that is described inline, or None."""
    options = [kind, kind.get("items", {}), *kind.get("anyOf", ())]
    return next((each for each in options if "properties" in each or "allOf" in each), None)


def _kind(kind: Any) -> str:
    """Return the type of a field in words."""
    if "$ref" in kind:
        return _link(kind["$ref"].rsplit("/", 1)[1])
    if "anyOf" in kind:
        return " or ".join(_kind(each) for each in kind["anyOf"])
    if "enum" in kind:
        return " or ".join("null" if each is None else f"`{each}`" for each in kind["enum"])
    if "allOf" in kind:
        bases = ", ".join(_kind(each) for each in kind["allOf"] if "$ref" in each)
        return f"an object: all of {bases} and the fields below"
    named = {"array": "a list", "object": "an object", "string": "a string", "integer": "an integer"}
    named |= {"number": "a number", "boolean": "true or false", "null": "null"}
    types = kind.get("type", "any JSON value")
    said = " or ".join(named.get(each, each) for each in ([types] if isinstance(types, str) else types))
    if "items" in kind:
        said += f" of {_many(_kind(kind['items']))}"
    if isinstance(kind.get("additionalProperties"), dict):
        said += f" that maps names to {_many(_kind(kind['additionalProperties']))}"
    return said


def _many(said: str) -> str:
    """Return the plural, if there is one."""
    plurals = {"a string": "strings", "an integer": "integers", "an object": "objects"}
    return plurals.get(said, said.replace("an object: ", "objects: "))


def _link(name: str) -> str:
    return {"moment": "a time", "status": "a [status](concepts.md)"}.get(name, f"[{name}](#{name})")


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
