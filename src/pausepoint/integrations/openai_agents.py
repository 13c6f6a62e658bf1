"""Run agents of the OpenAI Agents SDK inside a step, and keep their conversations in the store.

`run` makes each model response and each tool result an operation, and each approval a question. `PausepointSession`
keeps the history of a conversation. Both need the extra ``openai-agents``; see docs/openai-agents.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Unpack
from urllib.parse import quote

import msgspec

from pausepoint import Context, Declined, Engine, Retry, current
from pausepoint.integrations.calls import question_about
from pausepoint.integrations.openai_sdk import check_names, explained

try:
    from agents import Agent, RunConfig, RunResult, RunResultStreaming, RunState
    from agents.exceptions import AgentsException
    from agents.items import ToolApprovalItem, TResponseInputItem
    from agents.memory import (
        OpenAIConversationsSession,
        Session,
        SessionSettings,
        is_openai_responses_compaction_aware_session,
    )
    from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
    from agents.run_config import RunOptions

    from pausepoint.integrations.openai_context import Changes
    from pausepoint.integrations.openai_copies import Options, RememberedModel, Scope, Team, here, place, scope

    check_names()
except ImportError as error:
    raise explained(error) from error

Input = str | list[TResponseInputItem]

_ORIGINAL = "_pausepoint_original"
_TEAM = "_pausepoint_team"
DRAWER = "openai-agents"
"""The drawer with the histories of `PausepointSession`."""


async def run(
    ctx: Context, agent: Agent[Any], input: Input, *, key: str | int | None = None, retry: int | Retry | None = None,
    timeout: float | timedelta | None = None, stream: bool = False, **options: Unpack[RunOptions[Any]],
) -> RunResult:  # fmt: skip
    """Run an agent inside a step, as ``Runner.run`` does, so that a pause or a crash costs the call in progress only.

    Each model response and each tool result is an operation of the step. This includes agents that are reached by a
    handoff or used as tools, and agents that guardrails and tools run with ``Runner.run``. A tool that needs approval
    asks a question, and the session waits for the answer. ``current()`` in a tool is the context of its operation.

    - ``key``: names the run, and is unique in the step. Without it, the run is known by the agent's name and its input.
    - ``retry``, ``timeout``: for each model call, as in ``ctx.do``. Tools have their own settings.
    - ``stream``: send the model's text to those who follow the session with ``session.stream()``.

    The other options are those of ``Runner.run``. ``session`` is read when the run starts, and written when the run
    ends or asks.
    """
    runner = _installed().inner
    if key is not None and ctx.nth(f"openai-agents:{key}") > 1:
        raise ValueError(f"Step {ctx.step!r} calls run() twice with key={key!r}. Give each run a key of its own.")
    own = options.get("run_config") is None
    config = _config(options.get("run_config"))
    inside = Scope(Options(retry, timeout, stream), place(ctx), Changes())
    team = Team(agent, input, config, inside, "" if key is None else str(key))
    history = _history(team, options)
    options["run_config"] = _prepared(config, team)
    token = scope.set(inside)
    try:
        return await _until_done(ctx, runner, team, history, agent, input, options)
    finally:
        scope.reset(token)
        if own:
            await config.model_provider.aclose()


async def _until_done(
    ctx: Context, runner: AgentRunner, team: Team, history: _History | None, agent: Agent[Any], input: Input,
    options: RunOptions[Any],
) -> RunResult:  # fmt: skip
    state: Any = input
    while True:
        result = await _recorded(history, runner.run(team.copy_of(agent), state, **options))
        if not result.interruptions:
            return _returned(result, team)
        state = result.to_state()
        said = await asyncio.gather(*(_decide(ctx, team, item) for item in result.interruptions))
        for item, reason in zip(result.interruptions, said, strict=True):
            if reason is None:
                state.approve(item)
            else:
                state.reject(item, rejection_message=reason or None)


async def _decide(ctx: Context, team: Team, item: ToolApprovalItem) -> str | None:
    """Ask a person for approval. Return None for a yes, or the reason for a no."""
    arguments: Any = item.arguments or ""
    with suppress(msgspec.DecodeError):
        arguments = msgspec.json.decode(arguments)
    payload = {"agent": item.agent.name, "tool": item.name, "arguments": arguments}
    if isinstance(item.agent.model, RememberedModel):
        team = item.agent.model.team  # the run that asks, which may be that of an agent used as a tool
    # An answer is about these arguments. A model may use an id again.
    call = sha256(msgspec.json.encode([item.name, arguments], order="sorted")).hexdigest()[:8]
    key = f"{await team.label()}/{_call_id(item)}/{call}"
    try:
        await ctx.confirm(question_about(item.name or "a tool", arguments), key=key, payload=payload)
    except Declined as no:
        return no.reason
    return None


def _call_id(item: ToolApprovalItem) -> str:
    raw: Any = item.raw_item
    found = [raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None) for name in ("call_id", "id")]
    return str(found[0] or found[1] or item.name)


def _returned(result: RunResult, team: Team) -> RunResult:
    """Let a result name the user's own agents instead of their copies."""
    result._last_agent = team.original(result._last_agent)
    for item in result.new_items:
        for name in ("agent", "source_agent", "target_agent"):
            if hasattr(item, name):
                setattr(item, name, team.original(getattr(item, name)))
    return result


def _config(given: RunConfig | dict[str, Any] | None) -> RunConfig:
    config = RunConfig() if given is None else RunConfig(**given) if isinstance(given, dict) else given
    config = getattr(config, _ORIGINAL, config)
    if config.sandbox is not None:
        raise TypeError(
            "run() cannot remember the commands of a sandbox, so that a resume would run them again. Leave sandbox= of"
            " RunConfig out, and offer the work as function tools."
        )
    return config


def _prepared(config: RunConfig, team: Team) -> RunConfig:
    """Return the configuration for the copies, which have their models already. Nested runs need the original."""
    prepared = dataclasses.replace(config, model=None)
    if config.model_settings is not None:
        prepared.model_settings = dataclasses.replace(config.model_settings, timeout=None)
    setattr(prepared, _ORIGINAL, config)
    setattr(prepared, _TEAM, team)
    return prepared


# runs inside a run


class _Runner(AgentRunner):
    """The runner behind ``Runner.run``. In code that `run` calls, it makes the calls of models and tools operations."""

    def __init__(self, inner: AgentRunner) -> None:
        self.inner = inner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Unpack[RunOptions[Any]]) -> RunResult:
        around = here()
        if around is None or _is_prepared(starting_agent, options):
            return await self.inner.run(starting_agent, input, **options)
        team, history = self._nested(around, starting_agent, input, options)
        token = scope.set(around.inside())
        try:
            running = self.inner.run(team.copy_of(starting_agent), input, **options)
            result = await _recorded(history, running)
        finally:
            scope.reset(token)
        around.results.append((starting_agent, result))
        return result if result.interruptions else _returned(result, team)

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, **options: Unpack[RunOptions[Any]]
    ) -> RunResultStreaming:
        around = here()
        if around is None or _is_prepared(starting_agent, options):
            return self.inner.run_streamed(starting_agent, input, **options)
        if options.get("session") is not None:
            raise TypeError("Inside of run(), a streamed run cannot have a session. Use Runner.run instead.")
        team, _ = self._nested(around, starting_agent, input, options)
        token = scope.set(around.inside())
        try:
            result = self.inner.run_streamed(team.copy_of(starting_agent), input, **options)
        finally:
            scope.reset(token)
        around.results.append((starting_agent, result))
        return result

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Unpack[RunOptions[Any]]) -> RunResult:
        token = scope.set(None)  # it has a loop of its own, in the thread of a tool, which is an operation itself
        try:
            return self.inner.run_sync(starting_agent, input, **options)
        finally:
            scope.reset(token)

    def _nested(
        self, around: Scope, agent: Agent[Any], input: Any, options: RunOptions[Any]
    ) -> tuple[Team, _History | None]:
        config = _config(options.get("run_config"))
        found = _resumed(input)
        if found is None:
            label, around.only = around.only, ""  # a second run of the same agent tool has a label of its own
            spent = around.spent if label else ()
            found = Team(agent, None if isinstance(input, RunState) else input, config, around.inside("", spent), label)
        history = _history(found, options)
        options["run_config"] = _prepared(config, found)
        return found, history


def _is_prepared(agent: Agent[Any], options: RunOptions[Any]) -> bool:
    """Return whether a run is prepared already: a runner of the user, which is installed around ours, passes it on."""
    team = getattr(options.get("run_config"), _TEAM, None)
    return isinstance(team, Team) and team.owns(agent)


def _resumed(input: Any) -> Team | None:
    """Return the agents of an interrupted run that goes on. They count its model calls."""
    agent = input._current_agent if isinstance(input, RunState) else None
    return agent.model.team if agent is not None and isinstance(agent.model, RememberedModel) else None


def _installed() -> _Runner:
    runner = get_default_agent_runner()
    if not isinstance(runner, _Runner):
        runner = _Runner(runner)
        set_default_agent_runner(runner)
    return runner


# conversations


async def _recorded(history: _History | None, running: Awaitable[RunResult]) -> RunResult:
    """Await a run, and write what it adds to its conversation, even if a guardrail or the limit of turns ends it."""
    try:
        result = await running
    except AgentsException:
        if history is not None:
            await history.write()
        raise
    if history is not None:
        await history.write()
    return result


def _history(team: Team, options: RunOptions[Any]) -> _History | None:
    session = options.get("session")
    if session is None:
        return None
    if is_openai_responses_compaction_aware_session(session) or isinstance(session, OpenAIConversationsSession):
        raise TypeError(
            f"run() cannot use a {type(session).__name__}: a service changes its history, and a resume would do so"
            " again. Use PausepointSession, or another session that only keeps what it is given."
        )
    if team.history is None:
        team.history = _History(session, team)
    history: _History = team.history
    options["session"] = history
    return history


class _History:
    """The conversation of a run: read by an operation, changed in memory, and written by operations between turns.

    The SDK writes while it handles an interruption, when no operation may start.
    """

    def __init__(self, session: Session, team: Team) -> None:
        self.session_id = session.session_id
        self.session_settings = session.session_settings
        self._session = session
        self._team = team
        self._reads = 0
        self._writes = 0
        self._stored: list[str] = []  # by an earlier attempt at this run, which has ended with an error
        self._cleared = False
        self._popped = 0
        self._added: list[TResponseInputItem] = []

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        stored = [] if self._cleared else await self._read(None if limit is None else limit + self._popped)
        items = [*stored[: len(stored) - self._popped], *self._added]
        return items if limit is None else items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self._added += items

    async def pop_item(self) -> TResponseInputItem | None:
        if self._added:
            return self._added.pop()
        stored = await self.get_items(1)
        self._popped += len(stored)
        return stored[0] if stored else None

    async def clear_session(self) -> None:
        self._cleared, self._popped, self._added = True, 0, []

    async def write(self) -> None:
        """Store the changes since the last call.

        If the run ended with an error and is tried again, the operation of that time is remembered, and it may have
        stored less. The rest is stored by another one.
        """
        while self._cleared or self._popped or self._is_new():
            self._writes += 1
            write = partial(_write, self._session, self._cleared, self._popped, self._added)
            done = await current().do(write, key=f"{await self._team.label()}.{self._writes}")
            self._cleared = self._cleared and not done["cleared"]
            self._popped = max(0, self._popped - done["popped"])
            self._stored += done["added"]

    def _is_new(self) -> bool:
        """Forget the items that are stored, and return whether others are left."""
        left = []
        for item in self._added:
            digest = _digest(item)
            if digest in self._stored:
                self._stored.remove(digest)
            else:
                left.append(item)
        self._added = left
        return bool(left)

    async def _read(self, limit: int | None) -> Any:
        self._reads += 1
        key = f"{await self._team.label()}.{self._reads}"
        return await current().do(partial(_read, self._session), limit, key=key)


def _digest(item: Any) -> str:
    return sha256(msgspec.json.encode(item, order="sorted")).hexdigest()[:16]


async def _read(session: Session, limit: int | None) -> list[Any]:
    return list(await session.get_items(limit))


async def _write(session: Session, cleared: bool, popped: int, added: list[Any], ctx: Context) -> dict[str, Any]:
    if isinstance(session, PausepointSession):
        await session._change(cleared, popped, added, ctx.idempotency_key)
    else:
        if cleared:
            await session.clear_session()
        for _ in range(popped):
            await session.pop_item()
        await session.add_items(added)
    return {"cleared": cleared, "popped": popped, "added": [_digest(item) for item in added]}


_read.__qualname__, _write.__qualname__ = "session.read", "session.write"


class PausepointSession:
    """The history of a conversation, in the engine's store. Implements the ``Session`` protocol of the SDK.

    Pass it to `run` or to ``Runner.run``. `run` adds each item once, also if its process is killed while it writes.

    - ``session_id``: names the conversation.
    - ``keep_for``: how long a conversation that does not change is kept by `Engine.gc`. The default is for ever.
    """

    def __init__(
        self, engine: Engine, session_id: str, *, session_settings: SessionSettings | dict[str, Any] | None = None,
        keep_for: timedelta | None = None,
    ) -> None:  # fmt: skip
        self.session_id = session_id
        self.session_settings: SessionSettings | None = SessionSettings().resolve(session_settings)
        self._drawer = engine.drawer(DRAWER, keep_for=keep_for)
        self._stream = quote(session_id, safe="") + "/"  # so that no name begins with another

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the conversation, or the last ``limit`` of them, oldest first."""
        settings = self.session_settings
        last = settings.limit if limit is None and settings is not None else limit
        if last is not None and last <= 0:
            return []
        return [msgspec.json.decode(each) for each in await self._drawer.read(self._stream, last=last) or []]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the conversation, all of them or none."""
        if items:
            await self._drawer.append(self._stream, _entries(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None if there is none."""
        found = await self._drawer.pop(self._stream)
        return None if found is None else msgspec.json.decode(found)

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._drawer.drop(self._stream)

    async def _change(self, cleared: bool, popped: int, added: list[Any], token: str) -> None:
        """Change the conversation, unless a run that was killed has done so. The stream's note names what was done.

        A kill between the removal of items, which the SDK does after some errors, and the end removes them again.
        """
        first = 0
        for found in await self._drawer.streams(self._stream):
            for done in _read_note(found.note):
                if done.token == token and done.items == _digest(added[: done.count]):
                    first, cleared, popped = done.count, False, 0
        if first and first == len(added):
            return
        if cleared:
            await self.clear_session()
        for _ in range(popped):
            await self.pop_item()
        done = _Done(token, len(added), _digest(added))
        await self._drawer.append(self._stream, _entries(added[first:]), note=lambda old, now: _noted(old, done))


class _Done(msgspec.Struct, array_like=True):
    """A write of a run: how many items it has added, and which."""

    token: str
    count: int
    items: str


_REMEMBERED_WRITES = 32


def _noted(note: bytes | None, done: _Done) -> bytes:
    return msgspec.json.encode([*_read_note(note), done][-_REMEMBERED_WRITES:])


def _read_note(note: bytes | None) -> list[_Done]:
    return [] if note is None else msgspec.json.decode(note, type=list[_Done])


def _entries(items: list[Any]) -> list[bytes]:
    return [msgspec.json.encode(item) for item in items]
