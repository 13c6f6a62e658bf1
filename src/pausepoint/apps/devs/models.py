"""A plan as written in its file, and its conversion into tasks of an orchestrator."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from pausepoint.apps.devs.output import LEAST, LIMIT, size_of
from pausepoint.orchestrator import Safety, Task

STATE = ".devs"
"""The folder in the workspace for the run's own files."""

LOGS = "output"
"""The folder with the outputs of tasks, in the folder of the run's own files."""

TURNS = 30
"""How many answers a model with tools may give."""

KINDS = {
    "run": "a command", "write": "a file for a model", "python": "a function", "tools": "a model with tools",
}  # fmt: skip
"""The keys that say what a task does. Each task has exactly one."""

SESSION = "{session}"
"""Stands for the agent's own session in the key again."""

GRACE = 5.0
"""The seconds that a command has to end on its own after SIGTERM."""


def _command(given: Any) -> Any:
    words = [given] if isinstance(given, str) else given
    if given is None or (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        if words is not None and not words[0].strip():
            raise ValueError("the command is empty")
        return given
    raise ValueError("a command is a string for the shell, or a list of words")


def inside(given: str) -> str:
    """Return a path, or refuse one that leads out of the workspace."""
    path = PurePosixPath(given)
    if not given or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{given!r} is not inside the workspace; use a relative path without ..")
    return given


def _texts(given: Any) -> Any:
    """Refuse NUL and surrogate characters, which no program and no store accepts, at any depth."""
    if isinstance(given, str) and re.search("[\0\ud800-\udfff]", given):
        raise ValueError("it contains NUL or surrogate characters; remove them")
    for each in [*given, *given.values()] if isinstance(given, dict) else given if isinstance(given, list) else ():
        _texts(each)
    return given


def _variables(given: dict[str, str]) -> dict[str, str]:
    for name in given:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not a valid name for a variable; use a name without =")
    return given


def _size(given: Any) -> Any:
    return size_of(given) if isinstance(given, str) else given


Command = Annotated[str | list[str], BeforeValidator(_command)]
Variables = Annotated[dict[str, str], AfterValidator(_variables)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Size = Annotated[int, BeforeValidator(_size), Field(ge=LEAST)]
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
Tool = Literal["read", "write", "list", "run"]
Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]


class Written(BaseModel):
    """A part of a plan's file. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    _valid_text = field_validator("*", mode="before")(_texts)


class Todo(Written):
    """A task: a command, a Python function, a file for a model to write, or a prompt for a model with tools."""

    id: Id
    needs: list[str] = []
    priority: int = 0
    run: Command | None = None
    agent: Literal["claude", "codex"] | None = None
    again: str | None = None
    write: str | None = None
    prompt: str | None = None
    check: Command | None = None
    tools: Annotated[list[Tool], Field(min_length=1)] | None = None
    turns: Annotated[int, Field(ge=1, le=1000)] = TURNS
    python: Function | None = None
    arguments: dict[str, Any] = {}
    folder: str = "."
    env: Variables = {}
    timeout: Seconds | None = None

    _below = field_validator("write", "folder")(lambda given: given if given is None else inside(given))

    @model_validator(mode="after")
    def _one_kind(self) -> Todo:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            known = [f"{kind} ({what})" for kind, what in KINDS.items()]
            raise ValueError(f"set exactly one of {', '.join(known[:-1])} and {known[-1]}")
        given = self.model_fields_set
        if self.write is None and self.check is not None:
            raise ValueError("the key check is only for tasks with write")
        if self.needs_model != bool((self.prompt or "").strip()):
            raise ValueError("the key prompt belongs to write and tools, which need one")
        if self.run is None and self.agent is not None:
            raise ValueError("the key agent is only for tasks with run")
        if self.again is not None and (self.agent is None or SESSION not in self.again):
            raise ValueError(f"the key again is only for tasks with agent, and must contain {SESSION}")
        if self.tools is None and "turns" in given:
            raise ValueError("the key turns is only for tasks with tools")
        if self.python is None and "arguments" in given:
            raise ValueError("the key arguments is only for tasks with python")
        if self.python is not None and (wrong := given & {"folder", "env", "timeout"}):
            raise ValueError(f"a task with python runs no commands; remove {' and '.join(sorted(wrong))}")
        if self.write is not None and PurePosixPath(self.write).parts[0] == STATE:
            raise ValueError(f"write: {self.write} is in the folder of the run's own files; use another path")
        return self

    @property
    def needs_model(self) -> bool:
        """Whether a model does the task."""
        return self.write is not None or self.tools is not None

    @property
    def commands(self) -> dict[str, str | list[str]]:
        """The commands of the task, by key."""
        return {key: given for key in ("run", "again", "check") if (given := getattr(self, key)) is not None}

    def as_task(self) -> Task:
        """Return the task for an orchestrator. Defaults are omitted, so a new default does not change old tasks."""
        data = self.model_dump(mode="json", exclude={"id", "needs", "priority"}, exclude_defaults=True)
        return Task(id=self.id, needs=self.needs, priority=self.priority, data=data)


def log_of(plan: Plan, task: str) -> Path:
    """Return the file with the output of a task."""
    return plan.state / LOGS / f"{task}.txt"


def todo_of(task: Task) -> Todo:
    """Return the plan's task for an orchestrator's task."""
    return Todo(id=task.id, needs=task.needs, priority=task.priority, **task.data)


class Stops(Written):
    """When a run stops itself; see `pausepoint.orchestrator.Safety`. 0 switches a stop off."""

    budget_share: Annotated[float, Field(ge=0, le=1)] = 0.8
    failures_in_a_row: Annotated[int, Field(ge=0)] = 5
    same_error: Annotated[int, Field(ge=0)] = 3

    def as_safety(self) -> Safety:
        """Return the limits for an orchestrator."""
        return Safety(self.budget_share or None, self.failures_in_a_row or None, self.same_error or None)


class Head(Written):
    """A plan without its tasks."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    workspace: str = "."
    agents: Annotated[int, Field(ge=1, le=1000)] = 4
    restricted: list[Annotated[str, Field(min_length=1)]] = []
    ignore: list[str] = []
    env: Variables = {}
    timeout: Seconds | None = None
    grace: Seconds = GRACE
    output_limit: Size = LIMIT
    on_loss: Literal["open", "closed"] = "closed"
    safety: Stops = Stops()


class Plan(BaseModel):
    """A valid plan. ``path`` is its file, and ``workspace`` is the folder in which its tasks run."""

    model_config = ConfigDict(frozen=True)

    path: Path
    workspace: Path
    head: Head
    todos: list[Todo]

    @property
    def name(self) -> str:
        """The name of the plan and its run."""
        return self.head.name

    @property
    def state(self) -> Path:
        """The folder of the run's own files."""
        return self.workspace / STATE

    @property
    def tasks(self) -> list[Task]:
        """The tasks for an orchestrator."""
        return [todo.as_task() for todo in self.todos]
