"""Let a model do a task with tools: it names a call, sees the result, and so on until it says that the task is done.

Each exchange with the model is one operation, and each tool call is another. So a pause takes effect before the next
one, and a resume repeats none that has finished.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, model_validator

from pausepoint.apps import model
from pausepoint.apps.devs.commands import Ran
from pausepoint.apps.devs.models import STATE, Plan, Todo, Tool, inside
from pausepoint.apps.input import BadInput
from pausepoint.orchestrator import TaskAgent

SHOWN = 20_000
"""The number of characters of a file or an output that a model sees."""

REMEMBERED = 100_000
"""The number of characters of results that a model sees at a time. The oldest results are left out first."""

FILES = 500
"""The maximum number of files in a list."""

INSTRUCTIONS = """You do a task in a folder with tools. The message has the task, the tools, and your calls so far with
their results. Answer with "call" to call one tool, or with "say" when the task is done or cannot be done. Paths are
relative to the folder. A call that is refused or fails has an "error": try another way, or say why you stop."""

TOOLS: dict[Tool, str] = {
    "read": "read a text file: path",
    "write": "replace a text file: path, content",
    "list": "list the files below a folder: path",
    "run": "run a shell command in the folder: command",
}

Command = str | list[str]
RunCommand = Callable[[TaskAgent, Todo, Command, str], Awaitable[Ran]]


class CallOfTool(BaseModel):
    """A tool call that a model wants."""

    tool: Literal["read", "write", "list", "run"]
    path: str = "."
    content: str = ""
    command: str = ""


class Turn(BaseModel):
    """The answer of a model: its last words, or a call."""

    say: str | None = None
    call: CallOfTool | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Turn:
        if (self.say is None) == (self.call is None):
            raise ValueError("set either say or call")
        return self


class CommandRefused(Exception):
    """A person rejected a restricted command."""


class TurnsUsed(Exception):
    """A model has not finished its task within its turns."""


class ToolLoop:
    """The tools of one plan. ``run`` runs a command, after an approval if it is restricted."""

    def __init__(self, plan: Plan, run: RunCommand) -> None:
        self.plan = plan
        self.run = run

    async def work(self, agent: TaskAgent, todo: Todo) -> dict[str, Any]:
        """Do a task, and return the model's last words."""
        so_far: list[dict[str, Any]] = []
        for turn in range(1, todo.turns + 1):
            agent.memory["turn"] = turn
            await agent.boundary()
            said = await model.ask(agent.ctx, INSTRUCTIONS, self._asked(todo, turn, so_far), Turn)
            if said is None:
                raise BadInput(f"A model must do {todo.id}, but none is configured. Set PAUSEPOINT_MODEL, then resume.")
            if said.call is None:
                return {"said": said.say, "turns": turn}
            result = await self._called(agent, todo, said.call, turn)
            so_far.append({"call": said.call.model_dump(exclude_defaults=True), "result": result})
        raise TurnsUsed(
            f"The model has not finished {todo.id} within {todo.turns} turns. Give it more turns, or a smaller task."
        )

    def _asked(self, todo: Todo, turn: int, so_far: list[dict[str, Any]]) -> dict[str, Any]:
        tools = {tool: TOOLS[tool] for tool in todo.tools or ()}
        left = todo.turns - turn + 1
        return {"task": todo.prompt, "tools": tools, "turns_left": left, "so_far": remembered(so_far, REMEMBERED)}

    async def _called(self, agent: TaskAgent, todo: Todo, call: CallOfTool, turn: int) -> dict[str, Any]:
        """Call a tool. Its errors are for the model, which may try another way."""
        if call.tool not in (todo.tools or ()):
            return {"error": f"there is no tool {call.tool!r}; the tools are {', '.join(todo.tools or ())}"}
        match call.tool:
            case "read":
                return await agent.call(self.read, call.path)
            case "write":
                return await agent.call(self.write, call.path, call.content)
            case "list":
                return await agent.call(self.list_files, call.path)
            case "run":
                return await self._ran(agent, todo, call.command, turn)

    async def _ran(self, agent: TaskAgent, todo: Todo, command: str, turn: int) -> dict[str, Any]:
        if not command.strip():
            return {"error": "the command is empty"}
        try:
            ran = await self.run(agent, todo, command, f"turn {turn}")
        except CommandRefused as refused:
            return {"error": str(refused)}
        return {"exit_code": ran.code, "output": ran.tail} if ran.code is not None else {"error": ran.said}

    # the tools; they return errors instead of raising them, so that an error is remembered like any other result

    def read(self, path: str) -> dict[str, Any]:
        """Return the content of a file."""
        try:
            text = self._place(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            return _error(path, error)
        return {"content": text[:SHOWN]} | ({"characters": len(text)} if len(text) > SHOWN else {})

    def write(self, path: str, content: str) -> dict[str, Any]:
        """Replace a file atomically."""
        try:
            place = self._place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_name(f".{place.name}.{os.getpid()}.part")
            part.write_text(content, "utf-8")
            os.replace(part, place)
        except (OSError, ValueError) as error:
            return _error(path, error)
        return {"written": len(content)}

    def list_files(self, path: str) -> dict[str, Any]:
        """Return the files below a folder."""
        try:
            place = self._place(path)
            found = sorted(_below(place, self.plan.workspace)) if place.is_dir() else None
        except (OSError, ValueError) as error:
            return _error(path, error)
        if found is None:
            return {"error": f"{path} is not a folder"}
        return {"files": found[:FILES]} | ({"all": len(found)} if len(found) > FILES else {})

    def _place(self, path: str) -> Path:
        """Return the path of a file. Refuse one outside the workspace, and the run's own files."""
        place = self.plan.workspace / inside(path)
        if not place.resolve().is_relative_to(self.plan.workspace):
            raise ValueError(f"{path} leads out of the workspace through a link")
        if STATE in PurePosixPath(path).parts[:1]:
            raise ValueError(f"{path} is in the folder of the run's own files")
        return place


def _below(place: Path, workspace: Path) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name not in (STATE, ".git", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), workspace) for name in files]
    return [os.fsencode(name).decode("utf-8", "replace") for name in found]


def _error(path: str, error: OSError | ValueError) -> dict[str, Any]:
    if isinstance(error, UnicodeDecodeError):
        return {"error": f"{path} is not text"}
    return {"error": f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)}


def remembered(so_far: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the calls and results that fit into a number of characters. The oldest results are left out first.

    >>> remembered([{"call": {"tool": "read"}, "result": "x" * 9}, {"call": {}, "result": "y"}], 40)
    [{'call': {'tool': 'read'}, 'result': 'left out'}, {'call': {}, 'result': 'y'}]
    """
    shown: list[dict[str, Any]] = []
    for each in reversed(so_far):
        most -= len(str(each))
        call = {name: value[:SHOWN] if most >= 0 else value[:200] for name, value in each["call"].items()}
        shown.append({"call": call, "result": each["result"] if most >= 0 else "left out"})
    return shown[::-1]
