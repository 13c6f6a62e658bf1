"""Reading a plan: all that is wrong with it is told together, with the line, before anything starts."""

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

from pausepoint.apps.devs.models import Head, Plan, Stops, Todo
from pausepoint.apps.devs.places import Places, in_json, in_toml, once
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import many
from pausepoint.errors import did_you_mean

MOST = 50
"""How many mistakes are told."""

_FIRST_WORD = re.compile(r"\s*([\w.+-]+)(?=[\s;&|]|$)")


class Mistakes:
    """What is wrong with a plan. Each is told once, in the order of the lines."""

    def __init__(self, path: Path, places: Places, ids: Sequence[object]) -> None:
        self.path = path
        self.places = places
        self.ids = ids
        self.found: dict[str, int] = {}

    def add(self, text: str, task: int | None = None, key: str | None = None) -> None:
        """One mistake: of the task of that number, or of the plan."""
        line = self.places.line(task, key)
        whose = "" if task is None else f"task {self._named(task)}: "
        at = "" if line is None else f"line {line}: "
        self.found.setdefault(f"{at}{whose}{text}", line or 0)

    def _named(self, task: int) -> str:
        id = self.ids[task]
        return repr(id) if isinstance(id, str) else f"number {task + 1}"

    def refuse(self) -> None:
        """Raise what was found, if anything was."""
        if self.found:
            told = sorted(self.found, key=self.found.__getitem__)
            more = [f"… and {len(told) - MOST} more"] if len(told) > MOST else []
            lines = "\n".join(f"  {each}" for each in (*told[:MOST], *more))
            raise BadInput(f"{self.path}: {many(len(told), 'mistake')}; nothing was started\n{lines}")


def read(path: Path) -> Plan:
    """The plan in a file; `BadInput` with all that is wrong with it."""
    raw, text = _parsed(path)
    tasks = raw.pop("tasks", [])
    listed = tasks if isinstance(tasks, list) else []
    places = (in_json if _is_json(path) else in_toml)(text, len(listed))
    mistakes = Mistakes(path, places, [each.get("id") if isinstance(each, dict) else None for each in listed])
    if not listed:
        mistakes.add("there are no tasks; each is a [[tasks]] table" if isinstance(tasks, list) else "tasks: no list")
    head = _head(path, raw, mistakes)
    todos = [_todo(each, number, mistakes) for number, each in enumerate(listed)]
    _check_graph(listed, mistakes)
    workspace = (path.parent / (head.workspace if head else ".")).resolve()
    if head is not None and not workspace.is_dir():
        mistakes.add(f"workspace: {workspace} is no folder", key="workspace")
    else:
        _check_commands(todos, head.env if head else {}, workspace, mistakes)
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
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is no text in UTF-8") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        kind = "JSON" if _is_json(path) else "TOML"
        raise BadInput(f"{path}: is no {kind}: {error}; nothing was started") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: a plan is an object with tasks; nothing was started")
    return raw, text


def _head(path: Path, raw: dict[str, Any], mistakes: Mistakes) -> Head | None:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-")
    try:
        return Head.model_validate({"name": name} | raw)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["loc"] == ("name",) and "name" not in raw:
                mistakes.add(f"the run cannot be called {name!r} like this file; add name = …")
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
    """One complaint of Pydantic's, in words for who has written the plan."""
    place = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("str", "list[", "function-")))
    match error["type"]:
        case "extra_forbidden":
            return f"there is no key {place!r}{did_you_mean(str(error['loc'][-1]), known)}"
        case "missing":
            return f"{place} is missing"
        case "string_pattern_mismatch":
            more, first = (" .", "letter or digit") if place == "id" else ("", "letter")
            return f"{place}: {error['input']!r} cannot be a name; use letters, digits and _ -{more}, first a {first}"
        case "model_type":
            return "a task is a table"
    said = error["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else str(said)


def _check_graph(tasks: Sequence[Any], mistakes: Mistakes) -> None:
    """Ids that are there twice, needs that are not there, and needs that lead back."""
    known = {id for id in mistakes.ids if isinstance(id, str)}
    graph: dict[str, list[str]] = {}
    for number, each in enumerate(tasks):
        id = mistakes.ids[number]
        if not isinstance(id, str):
            continue
        if id in graph:
            mistakes.add("its id is there twice; give each task its own", number, "id")
            continue
        given = each.get("needs")
        named = [need for need in given if isinstance(need, str)] if isinstance(given, list) else []
        for need in named:
            if need not in known:
                mistakes.add(f"needs {need!r}, which is no task{did_you_mean(need, known)}", number, "needs")
        graph[id] = [need for need in named if need in known]
    _check_cycles(graph, mistakes)


def _check_cycles(graph: dict[str, list[str]], mistakes: Mistakes) -> None:
    """Every cycle: each is told, then cut, until there is none."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            cycle = list(reversed(error.args[1]))  # it is told from what is needed to who needs it
        told = " → ".join(cycle)
        first = mistakes.ids.index(cycle[0])
        mistakes.add(f"these need each other: {told}; take one of the needs away", first, "needs")
        graph[cycle[0]] = [need for need in graph[cycle[0]] if need != cycle[1]]


def _check_commands(todos: Sequence[Todo | None], env: dict[str, str], workspace: Path, mistakes: Mistakes) -> None:
    """What the shell cannot read; and, of tasks that need no other, programs and folders that are not there.

    What another task makes or installs cannot be there yet, so that is not looked for.
    """
    for number, todo in enumerate(todos):
        if todo is None:
            continue
        for key, command in todo.commands.items():
            if isinstance(command, str) and (wrong := _syntax(command)):
                mistakes.add(f"{key}: the shell cannot read it: {wrong}", number, key)
        if todo.needs:
            continue
        folder = workspace / todo.folder
        if not folder.is_dir():
            mistakes.add(f"folder: {folder} is no folder", number, "folder")
        elif todo.run is not None and (missing := _missing(todo.run, folder, {**os.environ, **env, **todo.env})):
            mistakes.add(f"run: there is no program {missing!r}", number, "run")


def _syntax(command: str) -> str:
    """What a shell says about a command that it only reads."""
    done = subprocess.run(["/bin/sh", "-n", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not done.returncode:
        return ""
    return done.stderr.strip().rpartition("error: ")[2].splitlines()[0]


def _missing(command: str | list[str], folder: Path, env: dict[str, str]) -> str:
    """The program that a command begins with, if it is told plainly and is not there."""
    if isinstance(command, list):
        program = str(folder / command[0]) if "/" in command[0] else command[0]
        return "" if shutil.which(program, path=env.get("PATH")) else command[0]
    first = _FIRST_WORD.match(command)
    if first is None or shutil.which(first[1], path=env.get("PATH")):
        return ""
    asked = subprocess.run(["/bin/sh", "-c", 'command -v -- "$1"', "sh", first[1]], capture_output=True, env=env)
    return first[1] if asked.returncode else ""  # it may be a word of the shell's own
