"""Let a model do a task with tools: it calls one, sees the result, and so on until it says that the task is done.

Each request to the model is one operation, and each tool call is another. So a pause takes effect before the next one,
and a resume repeats none that has finished.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from pausepoint.apps import model
from pausepoint.apps.devs.commands import Ran
from pausepoint.apps.devs.models import STATE, Plan, Todo, Tool, inside
from pausepoint.apps.input import BadInput
from pausepoint.orchestrator import TaskAgent

SHOWN = 20_000
"""The number of characters of a file or an output that a model sees."""

FILES = 500
"""The maximum number of files in a list."""

INSTRUCTIONS = """You do a task in a folder with tools. The message has the task and the number of turns that you have.
Call tools until the task is done or cannot be done, then say in a few words what you did. Paths are relative to the
folder. A call that is refused or fails has an "error": try another way, or say why you stop."""

Command = str | list[str]
RunCommand = Callable[[TaskAgent, Todo, Command, str], Awaitable[Ran]]


class CommandRefused(Exception):
    """A person rejected a restricted command."""


class ToolLoop:
    """The tools of one plan. ``run`` runs a command, after an approval if it is restricted."""

    def __init__(self, plan: Plan, run: RunCommand) -> None:
        self.plan = plan
        self.run = run

    async def work(self, agent: TaskAgent, todo: Todo) -> dict[str, Any]:
        """Do a task, and return the model's last words."""

        async def begin_turn(turn: int) -> None:
            agent.memory["turn"] = turn
            await agent.boundary()

        task = {"task": todo.prompt, "turns": todo.turns}
        said = await model.ask(
            agent.ctx, INSTRUCTIONS, task, str, tools=self._tools(agent, todo), turns=todo.turns, before=begin_turn
        )
        if said is None:
            raise BadInput(f"A model must do {todo.id}, but none is configured. Set PAUSEPOINT_MODEL, then resume.")
        return {"said": said, "turns": agent.memory["turn"]}

    def _tools(self, agent: TaskAgent, todo: Todo) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return the tools that the plan gives. Their errors are for the model, which may try another way."""
        numbers = count(1)

        async def read(path: str) -> Any:
            """Read a text file."""
            return await agent.call(self.read, path)

        async def write(path: str, content: str) -> Any:
            """Replace a text file."""
            return await agent.call(self.write, path, content)

        async def list_files(path: str = ".") -> Any:
            """List the files below a folder."""
            return await agent.call(self.list_files, path)

        async def run(command: str) -> Any:
            """Run a shell command in the folder."""
            return await self._ran(agent, todo, command, f"command {next(numbers)}")

        tools: dict[Tool, Callable[..., Awaitable[Any]]]
        tools = {"read": read, "write": write, "list": list_files, "run": run}
        return {name: tools[name] for name in todo.tools or ()}

    async def _ran(self, agent: TaskAgent, todo: Todo, command: str, key: str) -> dict[str, Any]:
        if not command.strip():
            return {"error": "the command is empty"}
        try:
            ran = await self.run(agent, todo, command, key)
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
