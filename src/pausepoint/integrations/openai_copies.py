"""Copies of agents of the OpenAI Agents SDK, whose models, tools and handoffs are operations of the running step.

The SDK has no hook around a model call or a tool call, so a run works on copies. The user's own agents stay as they
are, because other runs may use them at the same time.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from agents import (
    Agent,
    CustomTool,
    FunctionTool,
    Handoff,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Tool,
    Usage,
    handoff,
)
from agents.exceptions import ToolTimeoutError
from agents.items import TResponseStreamEvent
from agents.models import get_default_model_settings
from agents.tool import (
    ApplyPatchTool,
    ComputerTool,
    LocalShellTool,
    ShellTool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    _FailureHandlingFunctionToolInvoker,
    default_tool_timeout_error_message,
    invoke_function_tool,
)
from agents.tool_context import ToolContext
from agents.usage import deserialize_usage, serialize_usage
from pydantic import TypeAdapter

from pausepoint import Context, OperationTimeout, Retry, current
from pausepoint.errors import ContextClosed
from pausepoint.integrations.openai_context import Changes, fields, is_plain
from pausepoint.integrations.openai_responses import as_event, restored, stored, streamed

F = TypeVar("F", bound=Callable[..., Any])
Invoke = Callable[[Any, str], Awaitable[Any]]

_RICH: TypeAdapter[Any] = TypeAdapter(ToolOutputText | ToolOutputImage | ToolOutputFileContent)
_RICH_TYPES = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_ORIGINAL = "_pausepoint_original"
_RESERVED = str.maketrans(dict.fromkeys("/~[]", "_"))  # they separate the parts of an operation's identity


class Options(NamedTuple):
    """How model calls are made: how often, how long at most, and whether their text is streamed."""

    retry: int | Retry | None = None
    timeout: Any = None
    stream: bool = False


@dataclass
class Scope:
    """The run that code belongs to.

    - ``where``: the visit of the step, and the event loop. Work that leaves them, such as a task that goes on after the
      step or another session, does not belong to the run.
    - ``only``: the label of the first run that an agent used as a tool makes. ``results`` are its runs.
    - ``spent``: the usage of agents used as tools, which is added to that of the run around them.
    """

    options: Options
    where: tuple[Any, ...]
    changes: Changes
    only: str = ""
    spent: tuple[Usage, ...] = ()
    results: list[tuple[Agent[Any], Any]] = field(default_factory=list)

    def inside(self, only: str = "", spent: tuple[Usage, ...] = ()) -> Scope:
        """Return the scope of the code that a run calls."""
        return Scope(self.options, self.where, self.changes, only, spent)


scope: ContextVar[Scope | None] = ContextVar("pausepoint_openai_agents", default=None)


def place(ctx: Context) -> tuple[Any, ...]:
    """Return the visit and the loop that a run belongs to."""
    return (ctx.session_id, ctx.step, ctx.visit, asyncio.get_running_loop())


def here() -> Scope | None:
    """Return the scope of the running code; None if the code has left the step, its thread or its session."""
    found = scope.get()
    if found is None:
        return None
    try:
        if asyncio.get_running_loop() is not found.where[-1]:
            return None
        ctx = current(None)
        if ctx is None or place(ctx) != found.where:
            return None
        ctx.nth("openai-agents")  # raises an error if the step has ended
    except (RuntimeError, ContextClosed):
        return None
    return found


async def agent_run(agent: str, input: Any, ctx: Context) -> str:
    """Return the label of a run: the same whenever the step runs again, and different for each run."""
    return ctx.idempotency_key[:8]


class Team:
    """The copies of the agents that take part in one run. The run's label distinguishes its operations from others'."""

    def __init__(self, agent: Agent[Any], input: Any, config: RunConfig, inside: Scope, label: str = "") -> None:
        _check_reachable(agent)
        self.config = config
        self.options = inside.options
        self.scope = inside
        self.history: Any = None
        self.turns = 0
        self.handoffs = 0
        self._label = label
        self._known_by = (agent.name, input)
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        self._originals: dict[int, Agent[Any]] = {}
        self._tools: dict[int, tuple[Tool, Tool]] = {}

    async def label(self) -> str:
        """Return the label of the run. Without a key, the engine knows it by its agent, its input and its number."""
        if not self._label:
            self._label = await current().do(agent_run, *self._known_by)
        return self._label

    def copy_of(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the copy of an agent that belongs to this run."""
        if id(agent) in self._originals:
            return agent
        if id(agent) not in self._copies:
            twin = copy.copy(agent)  # not `clone`, which derives other settings for another model
            self._copies[id(agent)], self._originals[id(twin)] = (agent, twin), agent
            self._equip(agent, twin)
        return self._copies[id(agent)][1]

    def original(self, agent: Any) -> Any:
        """Return the user's agent for a copy."""
        return self._originals.get(id(agent), agent)

    def owns(self, agent: Agent[Any]) -> bool:
        """Return whether an agent is a copy of this run."""
        return id(agent) in self._originals

    def _equip(self, agent: Agent[Any], twin: Agent[Any]) -> None:
        own = agent.model if isinstance(agent.model, RememberedModel) else None  # a hook runs the copy that it gets
        settings = agent.model_settings if own else _settings(agent, self.config)
        limit = own.limit if own and settings.timeout is None else _limit(settings, self.config)
        twin.model = RememberedModel(agent.name, own.source if own else agent.model, self, limit)
        twin.model_settings = dataclasses.replace(settings, timeout=None)  # the time of a pause must not count
        twin.tools = [self._tool(agent, tool) for tool in agent.tools]
        twin.handoffs = [self._transfer(target) for target in agent.handoffs]
        seen = list(map(id, agent.tools))

        async def get_all_tools(run_context: Any) -> list[Tool]:
            # Tools may be added while the run goes on: to the agent, to its copy, or by a subclass.
            nonlocal seen
            given = twin.tools if list(map(id, agent.tools)) == seen else agent.tools
            seen = list(map(id, agent.tools))
            object.__setattr__(twin, "tools", [self._tool(agent, tool) for tool in given])
            return [self._tool(agent, tool) for tool in await type(agent).get_all_tools(twin, run_context)]

        twin.__dict__["get_all_tools"] = get_all_tools

    def _tool(self, agent: Agent[Any], tool: Tool) -> Tool:
        tool = getattr(tool, _ORIGINAL, tool)
        if id(tool) not in self._tools:
            twin = self._copy_of_tool(agent, tool)
            if twin is not tool:
                twin.__dict__[_ORIGINAL] = tool
            self._tools[id(tool)] = (tool, twin)
        return self._tools[id(tool)][1]

    def _copy_of_tool(self, agent: Agent[Any], tool: Tool) -> Tool:
        _check_tool(agent, tool)
        if isinstance(tool, FunctionTool):
            return _agent_tool(self, tool) if tool._is_agent_tool else _function_tool(self, tool)
        if isinstance(tool, CustomTool):
            twin = copy.copy(tool)
            twin.on_invoke_tool = _remembered(self, tool.name, cast(Invoke, tool.on_invoke_tool))
            return twin
        return tool  # the server runs it

    def _transfer(self, target: Agent[Any] | Handoff[Any, Any]) -> Handoff[Any, Any]:
        if isinstance(target, Agent):
            target = handoff(target)
        return _handoff(self, getattr(target, _ORIGINAL, target))


def _check_reachable(agent: Agent[Any]) -> None:
    """Raise `TypeError` if an agent, or one that it can reach, has a tool whose results cannot be remembered.

    So a run is refused before its first model call. Handoffs and tools that are chosen during the run are checked when
    they are used.
    """
    left, seen = [agent], dict[int, Agent[Any]]()
    while left:
        agent = left.pop()
        if id(agent) in seen:
            continue
        seen[id(agent)] = agent
        for tool in agent.tools:
            _check_tool(agent, tool)
        left += [each for each in map(_target, (*agent.tools, *agent.handoffs)) if isinstance(each, Agent)]


def _target(way: Any) -> Any:
    """Return the agent that a handoff or a tool leads to, if that is known and does not depend on the run."""
    if isinstance(way, Handoff):
        return way._agent_ref() if way.is_enabled is True and way._agent_ref is not None else None
    if isinstance(way, FunctionTool):
        return way._agent_instance if way.is_enabled is True and way._is_agent_tool else None
    return way


def _check_tool(agent: Agent[Any], tool: Tool) -> None:
    if isinstance(tool, ComputerTool | ApplyPatchTool | LocalShellTool) or (
        isinstance(tool, ShellTool) and tool.executor is not None
    ):
        raise TypeError(
            f"Agent {agent.name!r}: {type(tool).__name__} runs on this machine, and its results cannot be"
            " remembered, so that a resume would run it again. Offer the same work as a function tool."
        )
    if isinstance(tool, FunctionTool) and tool._is_agent_tool and tool.timeout_seconds is not None:
        raise TypeError(
            f"Tool {tool.name!r} is an agent, and its timeout would count the time of a pause. Leave timeout_seconds"
            " out, and limit its model calls and tools instead."
        )


def _settings(agent: Agent[Any], config: RunConfig) -> ModelSettings:
    """Return the settings that the SDK would use: defaults follow the model that the configuration names."""
    if config.model is None or agent.model_settings != _defaults(agent.model):
        return agent.model_settings
    return _defaults(config.model)


def _defaults(model: str | Model | None) -> ModelSettings:
    if isinstance(model, Model):
        return ModelSettings()
    return get_default_model_settings(model) if isinstance(model, str) else get_default_model_settings()


def _limit(settings: ModelSettings, config: RunConfig) -> float | None:
    over = config.model_settings
    return over.timeout if over is not None and over.timeout is not None else settings.timeout


# models


class RememberedModel(Model):
    """The model of an agent. Each response is an operation, known by its run and its number in it."""

    def __init__(self, name: str, source: str | Model | None, team: Team, limit: float | None) -> None:
        chosen = source if team.config.model is None else team.config.model
        self.team = team
        self.source, self.limit = source, limit
        self._chosen = chosen
        self._model: Model | None = chosen if isinstance(chosen, Model) else None
        self._timeout = limit if team.options.timeout is None else team.options.timeout
        self._call = _named(self._operation(), f"{name}.model")
        self._requests: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        """Return what the SDK asks a model beyond its interface, such as whether its prompts are cached by a key."""
        if name.startswith("__") or "_chosen" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._own, name)

    @property
    def _own(self) -> Model:
        if self._model is None:
            self._model = self.team.config.model_provider.get_model(cast("str | None", self._chosen))
        return self._model

    def _operation(self) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
        async def call(number: int, ctx: Context) -> dict[str, Any]:
            args, named = self._requests[number]
            if self.team.options.stream:
                response = await streamed(self._own, ctx, args, named)
            else:
                response = await self._own.get_response(*args, **named)
            usage = response.usage
            if usage.input_tokens or usage.output_tokens:
                name = self._chosen if isinstance(self._chosen, str) else getattr(self._own, "model", None)
                ctx.spend(
                    model=name if isinstance(name, str) else None,
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                )
            return stored(response)

        return call

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        # Counted when it has succeeded: a request that the SDK repeats has the same number.
        options, label = self.team.options, await self.team.label()
        number = self.team.turns + 1
        self._requests[number] = (args, named)
        try:
            key = f"{label}.{number}"
            kept = await current().do(self._call, number, key=key, retry=options.retry, timeout=self._timeout)
        finally:
            del self._requests[number]
        self.team.turns = number
        response = restored(kept)
        for usage in self.team.scope.spent:
            usage.add(response.usage)
        return response

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the whole response as one event: a remembered response has no parts."""
        yield as_event(await self.get_response(*args, **named))

    def get_retry_advice(self, request: Any) -> Any:
        return self._own.get_retry_advice(request)

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._model is not None:
            await self._model._cleanup_on_run_end(owner)


# tools


class _RememberedInvoker(_FailureHandlingFunctionToolInvoker):
    """The invoker of a decorated function. The SDK inspects arguments for approvals by this class."""

    def __init__(self, invoker: _FailureHandlingFunctionToolInvoker, tool: FunctionTool, invoke: Invoke) -> None:
        super().__init__(invoker._invoke_tool_impl, invoker._on_handled_error, function_tool=tool)
        self._invoke = invoke

    def __agents_bind_function_tool__(self, function_tool: FunctionTool) -> _RememberedInvoker:
        return self  # a copy of the tool must not lose the operation

    async def __call__(self, ctx: ToolContext[Any], input: str) -> Any:
        return await self._invoke(ctx, input)


def _function_tool(team: Team, tool: FunctionTool) -> FunctionTool:
    unlimited = copy.copy(tool)  # the SDK's own limit would count the time of a pause
    unlimited.timeout_seconds = None

    async def original(context: ToolContext[Any], arguments: str) -> Any:
        return await invoke_function_tool(function_tool=unlimited, context=context, arguments=arguments)

    async def limited(context: ToolContext[Any], arguments: str) -> Any:
        raised: list[Exception] = []  # by the tool itself

        async def call() -> Any:
            try:
                return _stored_output(await original(context, arguments))
            except OperationTimeout as error:
                raised.append(error)
                raise

        try:
            return _output(await current().do(call, key="call", timeout=tool.timeout_seconds))
        except OperationTimeout as error:
            if error in raised:
                raise
            return await _timed_out(tool, context, error)

    twin = _without_failures(unlimited)
    invoke = _remembered(team, tool.qualified_name, original if tool.timeout_seconds is None else limited)
    own = tool.on_invoke_tool
    twin.on_invoke_tool = (
        _RememberedInvoker(own, twin, invoke) if isinstance(own, _FailureHandlingFunctionToolInvoker) else invoke
    )
    return twin


async def _timed_out(tool: FunctionTool, context: ToolContext[Any], error: OperationTimeout) -> Any:
    """Return the text for the model about a call that took too long, or raise the error, as the SDK does."""
    limit = cast(float, tool.timeout_seconds)
    reason = ToolTimeoutError(tool_name=tool.name, timeout_seconds=limit)
    if tool.timeout_behavior == "raise_exception":
        raise reason from error
    if tool.timeout_error_function is None:
        return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=limit)
    said = tool.timeout_error_function(context, reason)
    return await said if inspect.isawaitable(said) else said


def _without_failures(tool: FunctionTool) -> FunctionTool:
    """Copy a tool whose failures become results inside the operation.

    Outside of it, only the end of the step interrupts a call. The SDK would tell the model, and the hooks, that the
    tool has failed.
    """
    twin = copy.copy(tool)
    twin._failure_error_function, twin._use_default_failure_error_function = None, False
    return twin


class _Unfinished(Exception):
    """An agent used as a tool needs an approval, so that its operation has no result yet."""

    def __init__(self, output: Any) -> None:
        self.output = output


def _agent_tool(team: Team, tool: FunctionTool) -> FunctionTool:
    """Copy an agent that is used as a tool. Its model calls and tool calls are operations inside that of the tool."""
    spent: dict[str, Usage] = {}

    async def original(context: ToolContext[Any], arguments: str) -> Any:
        usage = spent.setdefault(context.tool_call_id, Usage())
        inside = team.scope.inside(f"{await team.label()}/{context.tool_call_id}", (usage, *team.scope.spent))
        token = scope.set(inside)
        try:
            output = await tool.on_invoke_tool(context, arguments)
        finally:
            scope.reset(token)
        runs = [result for agent, result in inside.results if agent is tool._agent_instance]
        if runs and runs[-1].interruptions:
            raise _Unfinished(output)
        return output

    twin = _without_failures(tool)
    twin.on_invoke_tool = _remembered(team, tool.qualified_name, original, spent)
    return twin


def _remembered(team: Team, name: str, invoke: Invoke, spent: dict[str, Usage] | None = None) -> Invoke:
    """Return an invoker that makes each call an operation, known by its run and the id that the model gave it."""
    calls: dict[str, ToolContext[Any]] = {}

    async def call(call_id: str, arguments: str) -> dict[str, Any]:
        context = calls.pop(call_id)
        before = fields(context.context)
        output = await invoke(context, arguments)
        kept = {"output": _stored_output(output), "context": team.scope.changes.since(context.context, before)}
        if spent is not None:
            kept["usage"] = serialize_usage(spent.pop(call_id))
        return kept

    operation = _named(call, name)

    async def remembered(context: ToolContext[Any], arguments: str) -> Any:
        call_id = context.tool_call_id
        key = f"{await team.label()}/{call_id}"
        calls[call_id] = context
        try:
            kept = await current().do(operation, call_id, arguments, key=key)
        except _Unfinished as unfinished:
            return unfinished.output
        finally:
            is_remembered = calls.pop(call_id, None) is not None
        if is_remembered:
            team.scope.changes.restore(context.context, kept["context"])
            if "usage" in kept:
                for usage in (context.usage, *team.scope.spent):
                    usage.add(deserialize_usage(kept["usage"]))
        return _output(kept["output"])

    return remembered


def _stored_output(output: Any) -> Any:
    if isinstance(output, _RICH_TYPES):
        return {"rich": output.model_dump(mode="json")}
    if isinstance(output, list | tuple) and output and all(isinstance(each, _RICH_TYPES) for each in output):
        return {"rich": [each.model_dump(mode="json") for each in output]}
    return {"plain": output if is_plain(output) else str(output)}


def _output(kept: dict[str, Any]) -> Any:
    if "plain" in kept:
        return kept["plain"]
    rich = kept["rich"]
    return [_RICH.validate_python(each) for each in rich] if isinstance(rich, list) else _RICH.validate_python(rich)


# handoffs


def _handoff(team: Team, target: Handoff[Any, Any]) -> Handoff[Any, Any]:
    """Copy a handoff. It leads to the copy of its agent, and its ``on_handoff`` runs once."""
    known = target._agent_ref() if target._agent_ref is not None else None
    contexts: list[Any] = []

    async def call(arguments: str) -> dict[str, Any]:
        context = contexts.pop()
        before = fields(context.context)
        await target.on_invoke_handoff(context, arguments)
        return team.scope.changes.since(context.context, before)

    operation = _named(call, target.tool_name)

    async def invoke(context: Any, arguments: str) -> Agent[Any]:
        if known is None:  # made by hand: only a call tells the agent
            return team.copy_of(await target.on_invoke_handoff(context, arguments))
        key = f"{await team.label()}.{team.handoffs + 1}"
        contexts[:] = [context]
        changes = await current().do(operation, arguments, key=key)
        team.handoffs += 1
        if contexts:
            team.scope.changes.restore(context.context, changes)
        return team.copy_of(cast("Agent[Any]", known))

    twin = copy.copy(target)
    twin.on_invoke_handoff = invoke
    twin.__dict__[_ORIGINAL] = target
    return twin


def _named(fn: F, name: str) -> F:
    """Give an operation its name, which is part of its identity."""
    fn.__name__ = fn.__qualname__ = name.translate(_RESERVED)
    return fn
