"""Read a plan. All mistakes are reported together, with their lines, before anything starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pausepoint.apps.devs import functions
from pausepoint.apps.devs.gated import check_hooks
from pausepoint.apps.devs.models import Head, Plan, Stops, Todo
from pausepoint.apps.devs.places import Places, in_json, in_toml, once
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import many
from pausepoint.errors import did_you_mean

MOST = 50
"""The maximum number of mistakes to list."""

_FIRST_WORD = re.compile(r"\s*([\w.+-]+)(?=[\s;&|]|$)")


class Mistakes:
    """The mistakes in a plan, each listed once, in the order of the lines."""

    def __init__(self, path: Path, places: Places, ids: Sequence[object]) -> None:
        self.path = path
        self.places = places
        self.ids = ids
        self.found: dict[str, int] = {}

    def add(self, text: str, task: int | None = None, key: str | None = None) -> None:
        """Add a mistake in the task with that number, or in the plan."""
        line = self.places.line(task, key)
        whose = "" if task is None else f"task {self._named(task)}: "
        at = "" if line is None else f"line {line}: "
        self.found.setdefault(f"{at}{whose}{text}", line or 0)

    def _named(self, task: int) -> str:
        id = self.ids[task]
        return repr(id) if isinstance(id, str) else f"number {task + 1}"

    def refuse(self) -> None:
        """Raise `BadInput` if there are mistakes."""
        if self.found:
            told = sorted(self.found, key=self.found.__getitem__)
            more = [f"… and {len(told) - MOST} more"] if len(told) > MOST else []
            lines = "\n".join(f"  {each}" for each in (*told[:MOST], *more))
            raise BadInput(f"{self.path}: The plan has {many(len(told), 'mistake')}. Nothing was started.\n{lines}")


def read(path: Path, code: bool = False) -> Plan:
    """Return the plan in a file. Raises `BadInput` with all mistakes. ``code``: also import the functions of tasks."""
    raw, text = _parsed(path)
    tasks = raw.pop("tasks", [])
    listed = tasks if isinstance(tasks, list) else []
    places = (in_json if _is_json(path) else in_toml)(text, len(listed))
    mistakes = Mistakes(path, places, [each.get("id") if isinstance(each, dict) else None for each in listed])
    if not listed:
        mistakes.add("there are no tasks; add [[tasks]] tables" if isinstance(tasks, list) else "tasks must be a list")
    head = _head(path, raw, mistakes)
    todos = [_todo(each, number, mistakes) for number, each in enumerate(listed)]
    _check_graph(listed, mistakes)
    workspace = (path.parent / (head.workspace if head else ".")).resolve()
    if head is not None and not workspace.is_dir():
        mistakes.add(f"workspace: {workspace} is not a folder", key="workspace")
    else:
        _check_commands(todos, head.env if head else {}, workspace, mistakes)
        if code:
            _check_functions(todos, workspace, mistakes)
            _check_agents(todos, workspace, mistakes)
    mistakes.refuse()
    assert head is not None
    return Plan(path=path, workspace=workspace, head=head, todos=[todo for todo in todos if todo is not None])


def _is_json(path: Path) -> bool:
    return path.suffix.lower() == ".json"


def _parsed(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text("utf-8-sig")
        raw = json.loads(text, object_pairs_hook=once) if _is_json(path) else tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the plan.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: The file is not UTF-8 text. Save it as UTF-8.") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        kind = "JSON" if _is_json(path) else "TOML"
        raise BadInput(f"{path}: The file is not valid {kind}: {error}. Nothing was started.") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: A plan must be a JSON object with the key tasks. Nothing was started.")
    return raw, text


def _head(path: Path, raw: dict[str, Any], mistakes: Mistakes) -> Head | None:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-")
    try:
        return Head.model_validate({"name": name} | raw)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["loc"] == ("name",) and "name" not in raw:
                mistakes.add(f"the file name {name!r} is not a valid name for the run; add name = …")
                continue
            known = Stops if each["loc"][0] == "safety" and len(each["loc"]) > 1 else Head
            mistakes.add(_said(each, [*known.model_fields, "tasks"]), key=str(each["loc"][0]))
        return None


def _todo(raw: Any, number: int, mistakes: Mistakes) -> Todo | None:
    try:
        return Todo.model_validate(raw)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            mistakes.add(_said(each, Todo.model_fields), number, str(each["loc"][0]) if each["loc"] else None)
        return None


def _said(error: Any, known: Sequence[str] | Mapping[str, Any]) -> str:
    """Return a validation error in words for the author of the plan."""
    place = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("str", "list[", "function-")))
    match error["type"]:
        case "extra_forbidden":
            return f"there is no key {place!r}{did_you_mean(str(error['loc'][-1]), known)}"
        case "missing":
            return f"{place} is missing"
        case "string_pattern_mismatch":
            if place == "python":
                return f"python: {error['input']!r} does not name a function; write module:function"
            more, first = (" .", "letter or digit") if place == "id" else ("", "letter")
            name = f"{place}: {error['input']!r} is not a valid name"
            return f"{name}; use letters, digits and _ -{more}, and start with a {first}"
        case "model_type":
            return "a task must be a table"
    said = error["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else str(said)


def _check_graph(tasks: Sequence[Any], mistakes: Mistakes) -> None:
    """Find duplicate ids, unknown needs, and cycles."""
    known = {id for id in mistakes.ids if isinstance(id, str)}
    graph: dict[str, list[str]] = {}
    for number, each in enumerate(tasks):
        id = mistakes.ids[number]
        if not isinstance(id, str):
            continue
        if id in graph:
            mistakes.add("the id occurs twice; give each task its own", number, "id")
            continue
        given = each.get("needs")
        named = [need for need in given if isinstance(need, str)] if isinstance(given, list) else []
        for need in named:
            if need not in known:
                mistakes.add(f"needs {need!r}, which is not a task{did_you_mean(need, known)}", number, "needs")
        graph[id] = [need for need in named if need in known]
    _check_cycles(graph, mistakes)


def _check_cycles(graph: dict[str, list[str]], mistakes: Mistakes) -> None:
    """Report every cycle. Each one is cut after its report, until there is none."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            cycle = list(reversed(error.args[1]))  # the error lists each need before its dependent task
        told = " → ".join(cycle)
        first = mistakes.ids.index(cycle[0])
        mistakes.add(f"these tasks need each other: {told}; remove one of the needs", first, "needs")
        graph[cycle[0]] = [need for need in graph[cycle[0]] if need != cycle[1]]


def _check_commands(todos: Sequence[Todo | None], env: dict[str, str], workspace: Path, mistakes: Mistakes) -> None:
    """Find commands that the shell cannot parse, and missing programs and folders.

    Programs and folders are checked only for tasks without needs: another task may create them first.
    """
    for number, todo in enumerate(todos):
        if todo is None:
            continue
        for key, command in todo.commands.items():
            if isinstance(command, str) and (wrong := _syntax(command)):
                mistakes.add(f"{key}: the shell cannot parse it: {wrong}", number, key)
        if todo.needs:
            continue
        folder = workspace / todo.folder
        if not folder.is_dir():
            mistakes.add(f"folder: {folder} is not a folder", number, "folder")
        elif todo.run is not None and (missing := _missing(todo.run, folder, {**os.environ, **env, **todo.env})):
            mistakes.add(f"run: there is no program {missing!r}", number, "run")


def _check_functions(todos: Sequence[Todo | None], workspace: Path, mistakes: Mistakes) -> None:
    """Find missing modules and functions, and wrong arguments. Another task may create the module of one with needs."""
    for number, todo in enumerate(todos):
        if todo is not None and todo.python is not None:
            for key, text in functions.mistakes(todo, workspace):
                mistakes.add(text, number, key)


def _check_agents(todos: Sequence[Todo | None], workspace: Path, mistakes: Mistakes) -> None:
    """Find agents whose hooks are not installed. The folder of a task with needs may not exist yet."""
    for number, todo in enumerate(todos):
        if todo is not None and todo.agent is not None and (not todo.needs or (workspace / todo.folder).is_dir()):
            try:
                check_hooks(todo, workspace)
            except BadInput as error:
                mistakes.add(f"agent: {error}", number, "agent")


def _syntax(command: str) -> str:
    """Return the shell's error for a command that it only parses."""
    done = subprocess.run(["/bin/sh", "-n", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not done.returncode:
        return ""
    return done.stderr.strip().rpartition("error: ")[2].splitlines()[0]


def _missing(command: str | list[str], folder: Path, env: dict[str, str]) -> str:
    """Return the first word of a command if it names a program that does not exist."""
    if isinstance(command, list):
        program = str(folder / command[0]) if "/" in command[0] else command[0]
        return "" if shutil.which(program, path=env.get("PATH")) else command[0]
    first = _FIRST_WORD.match(command)
    if first is None or shutil.which(first[1], path=env.get("PATH")):
        return ""
    asked = subprocess.run(["/bin/sh", "-c", 'command -v -- "$1"', "sh", first[1]], capture_output=True, env=env)
    return first[1] if asked.returncode else ""  # it may be a shell builtin
