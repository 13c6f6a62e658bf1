"""Do a task: run a command, call a function, or let a model write a file until a command accepts it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from pausepoint import Context, Engine
from pausepoint.apps import model
from pausepoint.apps.devs.commands import KEY, TASK, Commands, Ran
from pausepoint.apps.devs.functions import load
from pausepoint.apps.devs.gated import GatedAgents
from pausepoint.apps.devs.models import Plan, Todo, log_of, todo_of
from pausepoint.apps.devs.output import last_line
from pausepoint.apps.devs.toolloop import CommandRefused, ToolLoop
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import display_line
from pausepoint.errors import Declined
from pausepoint.gate import approval_of_call, restriction
from pausepoint.orchestrator import TaskAgent

DRAFTS = 3
"""How many drafts a model may write before the task fails."""

SHOWN = 20_000
"""The number of characters of a file that a model sees."""

INSTRUCTIONS = """You write one file of a project. The message names the file and describes it. It may show the current
content, and the output of a check of your last draft. Answer with the whole new content."""


class CommandFailed(Exception):
    """A command ended with an exit code other than 0."""


class CheckFailed(Exception):
    """The check accepted no draft of a model."""


class Draft(BaseModel):
    """The answer of a model."""

    content: str


def last_lines(plan: Plan) -> Callable[[str], str]:
    """Return a function that returns the last line of a task's output."""
    return lambda task: last_line(log_of(plan, task))


def shown(command: str | list[str]) -> str:
    """Return a command in one line."""
    return display_line(command if isinstance(command, str) else " ".join(command))


class Worker:
    """The worker that does the tasks of one plan in this process."""

    def __init__(self, plan: Plan, commands: Commands, engine: Engine) -> None:
        self.plan = plan
        self.commands = commands
        self.gated = GatedAgents(plan, commands, engine)

    def change(self, plan: Plan) -> None:
        """Take in the plan as it is now, while nothing runs."""
        self.plan = self.gated.plan = plan
        self.commands.env, self.commands.grace = dict(plan.head.env), plan.head.grace
        self.commands.output_limit = plan.head.output_limit

    async def work(self, agent: TaskAgent) -> Any:
        """Do a task and return its result."""
        todo = todo_of(agent.task)
        if todo.python is not None:
            return await agent.call(self.python, todo.python, todo.arguments)
        if todo.tools is not None:
            return await ToolLoop(self.plan, self._ran).work(agent, todo)
        if todo.run is None:
            return await self._written(agent, todo)
        agent.memory["command"] = shown(todo.run)
        if todo.agent is not None:
            self.gated.shows(todo.id, agent.memory)
        ran = await self._ran(agent, todo, todo.run, "run")
        if ran.code != 0:
            raise CommandFailed(ran.said)
        return {"seconds": ran.seconds, "tail": ran.tail}

    async def _ran(self, agent: TaskAgent, todo: Todo, command: str | list[str], key: str) -> Ran:
        """Run a command once, after an approval if it is restricted."""
        pattern = restriction(command, self.plan.head.restricted)
        if pattern is not None:
            what = f"{todo.id}: run {shown(command)!r}? It is restricted ({pattern})."
            folder = str(self.plan.workspace / todo.folder)
            call = approval_of_call(todo.id, folder, "command", {"command": command}, self.plan.head.restricted)
            try:
                await agent.confirm(what, key=f"{todo.id}:{key}", expires=None, payload=msgspec.to_builtins(call))
            except Declined as no:
                raise CommandRefused(f"{shown(command)!r} was refused: {no.reason or 'no reason given'}") from None
        try:
            found = await agent.call(self.command, todo.id, command)
        except asyncio.CancelledError:
            agent.pending_tool_calls += self.gated.pending(todo.id)
            raise
        return Ran(**found)

    async def command(self, task: str, command: str | list[str], ctx: Context) -> dict[str, Any]:
        """Run one command until it ends. Its idempotency key stays the same if it runs again after a kill."""
        todo = next(todo for todo in self.plan.todos if todo.id == task)
        if todo.agent is not None:
            return asdict(await self.gated.run(todo, ctx))
        env = {**todo.env, TASK: task, "DEVS_RUN": self.plan.name, KEY: ctx.idempotency_key}
        ran = await self.commands.run(
            command, self.plan.workspace / todo.folder, log_of(self.plan, task),
            todo.timeout or self.plan.head.timeout, env, safe_point=ctx.safe_point,
        )  # fmt: skip
        return asdict(ran)

    async def python(self, function: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """Call a function. A pause stops it before its next operation; after a resume it is called again."""
        return await ctx.do(partial(load(function, self.plan.workspace), **arguments))

    # by a model

    async def _written(self, agent: TaskAgent, todo: Todo) -> dict[str, Any]:
        assert todo.write is not None
        agent.memory["file"] = todo.write
        said = last = ""
        for draft in range(1, DRAFTS + 1):
            agent.memory["draft"] = draft
            await self._draft(agent, todo, said)
            if todo.check is None:
                return {"file": todo.write, "drafts": draft}
            ran = await self._ran(agent, todo, todo.check, f"check {draft}")
            if ran.code == 0:
                return {"file": todo.write, "drafts": draft, "tail": ran.tail}
            said, last = ran.tail or ran.said, ran.said
        raise CheckFailed(f"The check accepted none of {DRAFTS} drafts of {todo.write}. The last check: {last}")

    async def _draft(self, agent: TaskAgent, todo: Todo, said: str) -> None:
        """Let the model write the file, with the check's output about the last draft."""
        assert todo.write is not None
        there = await agent.call(self.read, todo.write)
        await agent.boundary()
        asked = {"file": todo.write, "what": todo.prompt, "content_now": there, "the_check_said": said}
        draft = await model.ask(agent.ctx, INSTRUCTIONS, asked, Draft)
        if draft is None:
            raise BadInput(
                f"A model must write {todo.write}, but none is configured. Set PAUSEPOINT_MODEL, then resume."
            )
        await agent.call(self.write, todo.write, draft.content)

    def read(self, path: str) -> str | None:
        """Return the current content of a file, or None if it does not exist or is not text."""
        try:
            return self._place(path).read_text("utf-8")[:SHOWN]
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def write(self, path: str, content: str) -> None:
        """Replace a file atomically."""
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        part.write_text(content, "utf-8")
        os.replace(part, place)

    def _place(self, path: str) -> Path:
        """Return the path of a file. Refuse one that leads out of the workspace through a link."""
        place = self.plan.workspace / path
        if not place.resolve().is_relative_to(self.plan.workspace):
            raise BadInput(f"{path} leads out of the workspace through a link. Use a path inside the workspace.")
        return place
