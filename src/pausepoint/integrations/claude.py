"""Keep the transcripts of the Claude Agent SDK in the store, and let people approve its tool calls and pause it.

`PausepointSessionStore` implements the SDK's ``SessionStore``, `approve` returns a ``can_use_tool`` callback, and
`converse` lets a pause interrupt Claude. They need the extra ``claude-agent``; see docs/claude.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
from pydantic import BaseModel

from pausepoint import (
    AlreadyRunning,
    Context,
    Declined,
    Engine,
    Parked,
    PausepointError,
    QuestionExpired,
    SessionEnded,
    Status,
    UnknownSession,
    Workflow,
)
from pausepoint.integrations.calls import question_about

if TYPE_CHECKING:
    from claude_agent_sdk import (
        ClaudeSDKClient,
        Message,
        PermissionResultAllow,
        PermissionResultDeny,
        ResultMessage,
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        ToolPermissionContext,
    )

MISSING = "The Claude Agent SDK is not installed. Install it with: pip install 'pausepoint[claude-agent]'"
DRAWER = "claude"
"""The drawer with the transcripts of `PausepointSessionStore`."""

NO = "A person declined this call."
NOT_IN_TIME = "No person answered in time."
CANCELLED = "The request was cancelled."

LOOK_EVERY = 0.05
"""Seconds between two looks at a pause that this engine has not heard of yet."""


def _sdk() -> Any:
    try:
        return import_module("claude_agent_sdk")
    except ImportError as error:
        raise ImportError(MISSING) from error


class PausepointSessionStore:
    """The transcripts of Claude's sessions, in the engine's store. Pass it as ``session_store`` to the SDK's options.

    - ``keep_for``: how long a transcript that does not change is kept by `Engine.gc`. The default is for ever.
    """

    def __init__(self, engine: Engine, *, keep_for: timedelta | None = None) -> None:
        self._fold: Callable[..., Any] = _sdk().fold_session_summary
        self._drawer = engine.drawer(DRAWER, keep_for=keep_for)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript, all of them or none, and update the summary of the session."""
        if not entries:
            return
        data = [msgspec.json.encode(entry) for entry in entries]
        if key.get("subpath"):
            await self._drawer.append(_stream(key), data)
            return

        def summary(old: bytes | None, now: int) -> bytes:
            before = None if old is None else msgspec.json.decode(old)
            return msgspec.json.encode(self._fold(before, key, entries))

        await self._drawer.append(_stream(key), data, note=summary)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript; None if there is no such transcript.

        An entry that the SDK has sent twice, because it did not hear of the success, is returned once.
        """
        found = await self._drawer.read(_stream(key))
        if found is None:
            return None
        entries: dict[object, Any] = {}
        for number, data in enumerate(found):
            entry = msgspec.json.decode(data)
            entries.setdefault(entry.get("uuid") or number, entry)
        return list(entries.values())

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, with the times of their last changes."""
        return [
            {"session_id": summary["session_id"], "mtime": summary["mtime"]}
            for summary in await self.list_session_summaries(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of the sessions of a project."""
        return [
            {**msgspec.json.decode(found.note), "mtime": found.changed}
            for found in await self._drawer.streams(f"{_quoted(project_key)}/")
            if found.note is not None  # subagents have none
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript. That of a session is deleted together with those of its subagents."""
        streams = [_stream(key)]
        if not key.get("subpath"):
            streams += [found.stream for found in await self._drawer.streams(f"{_stream(key)}/")]
        await self._drawer.drop(*streams)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the paths of the transcripts of a session's subagents."""
        prefix = f"{_quoted(key['project_key'])}/{_quoted(key['session_id'])}/"
        return [found.stream.removeprefix(prefix) for found in await self._drawer.streams(prefix)]


def _stream(key: SessionKey) -> str:
    names = [_quoted(key["project_key"]), _quoted(key["session_id"])]
    subpath = key.get("subpath")
    return "/".join([*names, subpath] if subpath else names)


def _quoted(name: str) -> str:
    return quote(name, safe="")  # so that no name contains the separator


# approvals


class ToolRequest(BaseModel):
    """The state of a guest session: a tool call that a person approves."""

    tool: str
    input: dict[str, Any] = {}
    agent: str = ""
    allowed: bool = False
    reason: str = ""


requests = Workflow.guest("claude-tool", state=ToolRequest)
"""The guest sessions of `approve`."""


def approve(
    engine: Engine, session_id: str | None = None, *, expires: timedelta | None = None, owner: str | None = None,
    tags: str | Sequence[str] = (), keep_for: timedelta | None = None,
) -> Callable[
    [str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResultAllow | PermissionResultDeny]
]:  # fmt: skip
    """Return a ``can_use_tool`` callback that puts each request of the agent into the inbox, and waits for the answer.

    Each request is a guest session with one question. A pause of the session, or of everything, holds the request. If
    the process ends, the question stays. A request for the same call then gets the answer that was given meanwhile.

    A request that the agent takes back, because it was interrupted, is cancelled.

    - ``session_id``: names the agent's conversation. Pass it to find questions and answers again after a restart. Two
      programs that run at the same time need different names.
    - ``expires``: how long a question waits. Then the call is denied. The default is for ever.
    - ``owner``, ``tags``, ``keep_for``: of the guest sessions, as in `Engine.start`.
    """
    sdk = _sdk()
    options: dict[str, Any] = {"owner": owner, "tags": tags, "keep_for": keep_for}
    inbox = _Inbox(engine, _plain(session_id) if session_id else uuid4().hex[:8], expires, options)

    async def can_use_tool(
        tool: str, input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        found = await inbox.decided(tool, input, context)
        if found.allowed:
            allow: PermissionResultAllow = sdk.PermissionResultAllow()
            return allow
        deny: PermissionResultDeny = sdk.PermissionResultDeny(message=found.reason)
        return deny

    return can_use_tool


def _plain(name: str) -> str:
    """Return a name that can be part of a session id. Different names stay different."""
    if len(name) <= _LONGEST and re.fullmatch("[A-Za-z0-9_-]+", name):
        return name
    return f"{re.sub('[^A-Za-z0-9]+', '-', name[:_LONGEST]).strip('-')}-{sha256(name.encode()).hexdigest()[:12]}"


_LONGEST = 60


class _Inbox:
    """The requests of one conversation. Equal calls are numbered: each of them needs an answer of its own."""

    def __init__(self, engine: Engine, name: str, expires: timedelta | None, options: dict[str, Any]) -> None:
        self._engine = engine
        self._name = name
        self._expires = expires
        self._options = options
        self._numbers: dict[str, int] = {}

    async def decided(self, tool: str, input: dict[str, Any], context: ToolPermissionContext) -> ToolRequest:
        """Return the decision of a person, and wait for it if necessary."""
        request = ToolRequest(tool=tool, input=input)  # without the subagent, whose id is another one after a restart
        text = context.title or question_about(tool, input)
        call = sha256(msgspec.json.encode([tool, input], order="sorted")).hexdigest()[:12]
        while True:
            number = self._numbers.get(call, 0) + 1
            self._numbers[call] = number  # before the first await: an equal call at the same time is another one
            id = f"claude-{self._name}-{call}-{number}"
            if await _is_over(self._engine, id):
                continue
            found = await self._asked(id, text, request, context.agent_id or "")
            if found is not None:
                return found

    async def _asked(self, id: str, text: str, request: ToolRequest, agent: str) -> ToolRequest | None:
        """Return the decision; None if another program has taken it, because it uses the same name."""
        try:
            while True:
                try:
                    # In a task of its own, because a visit that must stop cancels its task.
                    return await asyncio.create_task(self._visit(id, text, request, agent))
                except Parked:
                    await _until_ready(self._engine, id)
        except AlreadyRunning:
            return None
        except SessionEnded as ended:
            if ended.status == Status.COMPLETED:
                return None
            return request.model_copy(update={"reason": CANCELLED})
        except asyncio.CancelledError:
            # The agent was interrupted. A later call must not find the answer to this one.
            with suppress(PausepointError):
                await self._engine.session(id).cancel(reason=CANCELLED)
            raise

    async def _visit(self, id: str, text: str, request: ToolRequest, agent: str) -> ToolRequest:
        async with self._engine.visit(requests, session_id=id, input=request, **self._options) as ctx:
            ctx.output = {"agent": agent}
            try:
                await ctx.confirm(text, expires=self._expires, payload=request.input)
                ctx.output["allowed"] = True
            except Declined as no:
                ctx.output["reason"] = no.reason or NO
            except QuestionExpired:
                ctx.output["reason"] = NOT_IN_TIME
        return request.model_copy(update=ctx.output)


async def _is_over(engine: Engine, id: str) -> bool:
    """Return whether a session has ended, in this process or an earlier one."""
    try:
        return (await engine.session(id).info()).status in (Status.COMPLETED, Status.CANCELLED)
    except UnknownSession:
        return False


async def _until_ready(engine: Engine, id: str) -> None:
    async with aclosing(engine.session(id).watch()) as changes:
        async for info in changes:
            if info.status not in (Status.WAITING, Status.PAUSED, Status.PAUSING, Status.SLEEPING):
                return


# pauses


class Turn(BaseModel):
    """The state of a guest session: Claude works on one prompt. ``conversation`` is Claude's own session id."""

    conversation: str = ""
    result: str = ""


turns = Workflow.guest("claude-turn", state=Turn)
"""The guest sessions of `converse`."""


async def converse(
    engine: Engine, client: ClaudeSDKClient, prompt: str, session_id: str | None = None, *, then: str = "Continue.",
    owner: str | None = None, tags: str | Sequence[str] = (), keep_for: timedelta | None = None,
) -> AsyncGenerator[Message, None]:  # fmt: skip
    """Send a prompt to Claude, and yield the messages until and including the result. A pause interrupts Claude.

    This takes the place of ``client.query`` and ``client.receive_response``. The work on one prompt is a guest session.
    When it is paused, or everything is, Claude finishes its tool calls and is interrupted. After a resume it gets
    ``then`` as the next prompt, and the messages continue. If the loop over the messages is left, Claude is
    interrupted, too. If the session is cancelled, this raises `SessionEnded`.

    - ``session_id``: names the conversation, as in `approve`. Its turns are numbered.
    - ``owner``, ``tags``, ``keep_for``: of the guest sessions, as in `Engine.start`.
    """
    options: dict[str, Any] = {"owner": owner, "tags": tags, "keep_for": keep_for}
    turn = _Turn(engine, client, [prompt, then], options)
    working = asyncio.create_task(turn.work(_plain(session_id) if session_id else uuid4().hex[:8]))
    working.add_done_callback(lambda _: turn.messages.put_nowait(None))
    try:
        while (message := await turn.messages.get()) is not None:
            yield message
        await working
    finally:
        working.cancel()
        await asyncio.wait([working])


class _Turn:
    """The work of Claude on one prompt. ``prompts`` are the next one, and the one for all later visits."""

    def __init__(self, engine: Engine, client: ClaudeSDKClient, prompts: list[str], options: dict[str, Any]) -> None:
        self.messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._sdk = _sdk()
        self._engine = engine
        self._client = client
        self._prompts = prompts
        self._options = options
        self._calls: set[str] = set()  # the tool calls that Claude is making

    async def work(self, name: str) -> None:
        number = 1
        while await _is_over(self._engine, f"claude-{name}-turn-{number}"):
            number += 1
        while True:
            try:
                # In a task of its own, because a visit that must stop cancels its task.
                return await asyncio.create_task(self._visit(f"claude-{name}-turn-{number}"))
            except Parked as parked:
                await _until_ready(self._engine, parked.session_id)

    async def _visit(self, id: str) -> None:
        async with self._engine.visit(turns, session_id=id, **self._options) as ctx:
            while True:
                result = await self._answered(ctx)
                if result is not None:
                    break
                while (await self._engine.session(ctx.session_id).info()).pause_requested:
                    await ctx.safe_point()  # leaves the block, as soon as this engine has heard of the pause
                    await asyncio.sleep(LOOK_EVERY)
            ctx.output = {"conversation": result.session_id, "result": result.result or ""}
        self.messages.put_nowait(result)

    async def _answered(self, ctx: Context) -> ResultMessage | None:
        """Return the result of Claude; None if a pause interrupted it. Interrupt it also if the block exits."""
        await self._client.query(self._prompts[0])
        self._prompts = self._prompts[-1:]
        try:
            async with aclosing(self._client.receive_response()) as received:
                async for message in received:
                    if isinstance(message, self._sdk.ResultMessage):
                        return message
                    self.messages.put_nowait(message)
                    if self._is_between(message):
                        if (await self._engine.session(ctx.session_id).info()).pause_requested:
                            return await self._interrupted()
                        await ctx.safe_point()  # leaves the block if the session was cancelled
        except BaseException:
            with suppress(Exception):
                await self._interrupted()
            raise
        raise _ended()

    def _is_between(self, message: Message) -> bool:
        """Return whether Claude has finished its tool calls with this message, and is about to ask its model."""
        content = getattr(message, "content", None)
        blocks = content if isinstance(content, list) else []
        self._calls |= {block.id for block in blocks if isinstance(block, self._sdk.ToolUseBlock)}
        ended = {block.tool_use_id for block in blocks if isinstance(block, self._sdk.ToolResultBlock)}
        self._calls -= ended
        return bool(ended) and not self._calls

    async def _interrupted(self) -> ResultMessage | None:
        """Interrupt Claude, and wait until it has stopped. Return the result if it has ended by itself meanwhile."""
        interrupting = asyncio.ensure_future(self._client.interrupt())
        self._calls.clear()
        try:
            async with aclosing(self._client.receive_response()) as received:
                async for message in received:
                    if isinstance(message, self._sdk.ResultMessage):
                        why = message.terminal_reason or message.subtype
                        return None if why.startswith(("aborted", "error_during")) else message
                    self.messages.put_nowait(message)
            raise _ended()
        finally:
            await interrupting


def _ended() -> RuntimeError:
    return RuntimeError("Claude Code has ended without a result. Connect again, and continue with resume=.")
