"""Every command that the command line prints, found in its source, and recorded while a command runs.

A printed command is made by one of the `DOORS`. A *site* is a place in the source that uses one: the module, the
function, and the verb of the command.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

import pausepoint.cli
from pausepoint.cli.app import COMMANDS, app
from pausepoint.name import NAME

ROOT = Path(pausepoint.cli.__file__).parent

METHODS = {"command": "", "resume": "resume", "resume_line": "resume", "lift": "resume"}
"""What of `Cli` returns a command, and its verb; empty if the verb is the first argument."""

FUNCTIONS = {"command_line": "", "how_to_start": "run"}
"""The functions of `pausepoint.cli.host` that return a command, or a sentence with one."""

DOORS = {*(f"Cli.{name}" for name in METHODS), *FUNCTIONS, "Start.command"}

RECORD = "WAYS_OUT"
"""The variable that names the file in which a process records the commands that it makes."""


class Site(NamedTuple):
    """A place in the source that makes a command."""

    module: str
    function: str
    verb: str


class Made(NamedTuple):
    """A command that was made, and where."""

    site: Site
    command: str


# in the source


def sites() -> set[Site]:
    """Return all places in the source of the command line that make a command."""
    return {site for path in sorted(ROOT.rglob("*.py")) if "templates" not in path.parts for site in _sites_of(path)}


def _sites_of(path: Path) -> Iterator[Site]:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for function, node in _nodes(ast.parse(path.read_text(encoding="utf-8")), ()):
        verb = _verb(node, owner="self" if module == "context" else "cli")
        if verb is not None and function not in DOORS:
            yield Site(module, function, verb)


def _nodes(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inside = (*names, child.name) if named else names  # type: ignore[attr-defined]  # what is named has a name
        yield ".".join(inside), child
        yield from _nodes(child, inside)


def _verb(node: ast.AST, owner: str) -> str | None:
    """Return the verb of the command that an expression makes; ``*`` if it varies; None if it makes none."""
    if isinstance(node, ast.Attribute) and node.attr == "lift" and _is_cli(node.value, owner):
        return "resume"
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Name(id=name) if name in FUNCTIONS:
            fixed = FUNCTIONS[name]
        case ast.Attribute(value=value, attr=name) if name in METHODS and _is_cli(value, owner):
            fixed = METHODS[name]
        case _:
            return None
    if fixed:
        return fixed
    match node.args:
        case [ast.Constant(value=str(verb)), *_]:
            return verb.partition(" ")[0]
    return "*"


def _is_cli(node: ast.AST, owner: str) -> bool:
    return ast.unparse(node) in (owner, f"self.{owner}")


# at run time


def record(file: Path) -> Callable[[], None]:
    """Record in this process, from now on, each command that a door makes. Return the function that ends this."""
    real = shlex.join

    def join(words: list[str]) -> str:
        command = real(words)
        site = _site(command)
        if site is not None:
            with file.open("a") as out:
                out.write(json.dumps([*site, command]) + "\n")
        return command

    shlex.join = join  # type: ignore[assignment]  # it takes what the real one takes
    return lambda: setattr(shlex, "join", real)


def _site(command: str) -> Site | None:
    """Return where in the source of the command line a command is made, if a door makes it."""
    frame, through_door = sys._getframe(2), False
    while frame.f_code.co_filename.startswith(str(ROOT)):
        function = re.sub(r"(\.<locals>)?\.<\w+>", "", frame.f_code.co_qualname)
        if function not in DOORS:
            path = Path(frame.f_code.co_filename).relative_to(ROOT).with_suffix("")
            words = shlex.split(command)
            verb = words[3 if words[:2] == ["python", "-m"] else 1]
            return Site(".".join(path.parts), function, verb) if through_door else None
        through_door = True
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame is not one of the command line
    return None


def made(file: Path) -> list[Made]:
    """Return the commands that were recorded, and forget them."""
    if not file.exists():
        return []
    found = [json.loads(line) for line in file.read_text().splitlines()]
    os.unlink(file)
    return [Made(Site(*site), command) for *site, command in found]


def printed(text: str, command: str) -> list[str]:
    """Return the command as it is printed: with what follows it, up to the end of the line or of the quotation."""
    found = re.findall(re.escape(command) + r"(?=[\s`\"]|$)[^`\"\n]*", text)
    return list(dict.fromkeys(each.rstrip(" .") for each in found))


# outside the doors


def written() -> Iterator[str]:
    """Yield texts in the source that contain a command which no door made. Help texts and docstrings do not count."""
    for path, text in texts():
        if re.search(rf"(?:\b{NAME}|\{{NAME\}}) (?:{'|'.join(COMMANDS)})\b", text):
            yield f"{path.name}: {text}"


KNOWN_ELSEWHERE = {"--help", "--store", "--version", "--verbose", "--topic"}
"""Options of all commands, of programs, and a field of the example."""


def wrong_options() -> Iterator[str]:
    """Yield texts that name an option which no command has."""
    commands = [found for name in COMMANDS if (found := app.get_command(click.Context(app), name)) is not None]
    commands += [below for each in commands if isinstance(each, click.Group) for below in each.commands.values()]
    params = [param for each in commands for param in each.params]
    known = {option for param in params for option in (*param.opts, *param.secondary_opts)}
    for path, text in texts():
        named = re.findall(r"(?<![\w-])--[a-z][a-z-]*\b(?![-{])", text)
        if unknown := {*named} - known - KNOWN_ELSEWHERE:
            yield f"{path.name}: {', '.join(sorted(unknown))}: {text}"


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts in the source that may be printed, with their files."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        allowed = {id(each) for node in ast.walk(tree) for each in _not_printed(node)}
        for node in ast.walk(tree):
            if id(node) not in allowed and "templates" not in path.parts and (text := _text(node)):
                yield path, text


def _text(node: ast.AST) -> str:
    """Return a text with its placeholders; empty if the expression is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else ast.unparse(part) for part in parts)
    return ""


def _not_printed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the texts inside an expression that are no ways out: documentation, help, and shell completion."""
    match node:
        case ast.Expr(value=ast.Constant() as text):
            yield text
        case ast.keyword(arg="help" | "epilog" | "message", value=value):
            yield from ast.walk(value)
        case ast.Assign(targets=[ast.Name(id="_SHELLS")], value=value):
            yield from ast.walk(value)
