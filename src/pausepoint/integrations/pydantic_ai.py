"""Agents of pydantic-ai whose model requests and tool calls are operations of the current step.

`PausepointDurability` is a capability of an agent. Inside a step, each model request, tool call, MCP call and call of
the event handler is an operation. Outside of all steps it changes nothing.

**The name of an operation** is that of pydantic-ai's journal, such as ``biller__model.request``. Stored sessions
contain these names, so they must not change.

**The key of an operation** says which call it is. The calls of one response run in parallel, and end in any order, so
their order does not identify them. The key consists of the run's number among the agent's runs in this step, the number
of the request in the run, and the id of the tool call. A run with its own ``run_id=`` is known by that id instead.

**The input of an operation** is a digest of what the run was given: the prompt, the earlier messages, and ``deps`` if
they are plain data. If runs of an agent start in another order when the step runs again, the engine finds another
input, and pauses the session instead of giving one run the results of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from pausepoint import BlockingContext, Context, Declined, DefinitionError, Retry, current, durable
from pausepoint.errors import StepExited
from pausepoint.name import NAME

try:
    from pydantic_ai import ToolsetTool
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.capabilities.abstract import WrapRunHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        BoundDurableOperation,
        CacheIdentity,
        CallableOperationBackend,
        DurabilityEngineSpec,
        DurableOperation,
        DurableOperationId,
        EventStreamHandlerParams,
        JournalOperationNamer,
        ModelCompactMessagesId,
        ModelRequestId,
        RoleBasedOperationConfig,
        ToolsetCallToolId,
        WorkspaceCallParams,
        conversation_id_from_run_id,
    )
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models import Model
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import (
        AgentDepsT,
        DeferredToolRequests,
        DeferredToolResults,
        RunContext,
        ToolApproved,
        ToolDenied,
    )
    from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ExternalToolset, FunctionToolset, WrapperToolset
except ImportError as error:
    raise ImportError(
        f"The capability PausepointDurability needs pydantic-ai 2.66 or newer ({error}). Install it:"
        " pip install 'pausepoint[pydantic-ai]'"
    ) from error

T = TypeVar("T")
P = TypeVar("P")
W = TypeVar("W")

logger = logging.getLogger(f"{NAME}.pydantic_ai")

LONGEST = 300
"""The number of characters of a tool call that a question shows. Its payload contains all arguments."""

_RESERVED = str.maketrans("/~[]", "____")
"""Characters that separate the parts of an operation's identity. A model's name can contain them."""

Body = Callable[[], Awaitable[object]]
Unit = Callable[[str, str], Awaitable[object]]
Price = Callable[[ModelResponse], float | Decimal]

_body: ContextVar[Body] = ContextVar(f"{NAME}_pydantic_ai_body")
"""The work of the operation that is about to run. It is no argument, because it cannot be stored."""

_given: ContextVar[Mapping[tuple[str | None, ...], str]] = ContextVar(
    f"{NAME}_pydantic_ai_given", default=MappingProxyType({})
)
"""The digests of what the surrounding runs were given when they started. Tools may change ``deps`` later."""


class OperationOptions(TypedDict, total=False):
    """How operations run: ``retry`` and ``timeout`` of ``ctx.do``."""

    retry: int | Retry
    timeout: float | timedelta


class PausepointDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability that makes the runs of an agent durable.

    >>> from pydantic_ai import Agent
    >>> from pydantic_ai.models.test import TestModel
    >>> agent = Agent(TestModel(), name="biller", capabilities=[PausepointDurability()])

    The agent needs a name. Call ``agent.run`` inside a step that takes a `Context`: a pause stops the run before its
    next operation.

    ``model`` and ``tool`` are the options of all model requests and of all tool calls. A tool has its own in its
    metadata: ``metadata={"pausepoint": {"retry": 3}}``. With ``{"pausepoint": False}`` it is no operation: it runs
    again whenever the step does.

    ``questions`` asks a person about each tool call that requires approval or that is deferred, with the run and the id
    of the call as the key of the question. With False, the run ends with ``DeferredToolRequests``, as it does outside
    of a step.

    ``price`` returns what a response costs in dollars. By default it is the price that pydantic-ai knows, or 0.

    ``models``, ``event_stream_handler`` and ``name`` are those of pydantic-ai's own durability capabilities.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Pausepoint",
        durable_unit_noun="operation",
        durable_container_noun="step",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=NAME,
        cancellation_error_types=(StepExited,),
    )

    def __init__(
        self, *, models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None, name: str | None = None,
        model: OperationOptions | None = None, tool: OperationOptions | None = None, questions: bool = True,
        price: Price | None = None,
    ) -> None:  # fmt: skip
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_options = _checked(model or {}, "PausepointDurability: model")
        self._tool_options = _checked(tool or {}, "PausepointDurability: tool")
        self._questions = questions
        self._price = price or known_price
        self._backend: Operations | None = None

    @property
    def in_durable_context(self) -> bool:
        """Whether the calling code runs inside a step."""
        return current(None) is not None

    def get_durable_operation_backend(self) -> Operations:
        """Return what runs the operations of this capability. pydantic-ai calls this."""
        if self._backend is None:
            config = RoleBasedOperationConfig[OperationOptions](
                model=self._model_options, event={}, capability={}, tool=self._tool_options,
                resolve_tool=partial(_options_of_tool, self._tool_options),
            )  # fmt: skip
            self._backend = Operations(self.name, self.default_model_id, config, self._price)
        return self._backend

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Return the toolset with its calls as operations. pydantic-ai calls this in each run."""
        if self.in_durable_context:
            toolset.apply(_check_toolset)
        return super().get_wrapper_toolset(toolset)

    # a run

    def get_default_run_id(self) -> str | None:
        """Return an id that is the same when the step runs again, and different for each run."""
        ctx = current(None)
        return None if ctx is None else f"{ctx.idempotency_key}.{ctx.nth(f'{self.name} run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id that is the same when the step runs again."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return when the run started for the first time. Its ``timeout=`` counts from there."""
        ctx = current(None)
        if ctx is None:
            return None

        async def now() -> object:
            return datetime.now(UTC).isoformat()

        name = f"{self.name}__run_start_time"
        found = await run_unit(unit(name), _numbered(ctx, name, _key_of_run(ctx, run_id)), "", now)
        return datetime.fromisoformat(cast(str, found))

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Note what the run was given. pydantic-ai calls this around each run, and passes the note on to its tasks."""
        if self.in_durable_context:
            _given.set({**_given.get(), _place(ctx): _input_of(ctx)})
        return await super().wrap_run(ctx, handler=handler)

    # questions

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about tool calls that require approval, and for the results of deferred ones."""
        if not self._questions or not self.in_durable_context:
            return None
        run = f"{self.name}.{_key_of_run(current(), ctx.run_id)}"
        about = requests.metadata
        approvals = [_approval(run, call, about.get(call.tool_call_id)) for call in requests.approvals]
        calls = [_result(run, call, about.get(call.tool_call_id)) for call in requests.calls]
        # All of them are open at once. One that gets no answer must not leave the others behind.
        found = await asyncio.gather(*approvals, *calls, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        answers = iter(found)
        return requests.build_results(
            approvals={call.tool_call_id: cast(Any, next(answers)) for call in requests.approvals},
            calls={call.tool_call_id: next(answers) for call in requests.calls},
        )


async def _approval(run: str, call: ToolCallPart, about: Any) -> ToolApproved | ToolDenied:
    try:
        await _ask("confirm", f"Run {_words(call)}?", run, call, about)
    except Declined as no:
        return ToolDenied(no.reason) if no.reason else ToolDenied()
    return ToolApproved()


async def _result(run: str, call: ToolCallPart, about: Any) -> Any:
    return await _ask("ask", f"What is the result of {_words(call)}?", run, call, about, Any)


async def _ask(verb: Literal["ask", "confirm"], text: str, run: str, call: ToolCallPart, about: Any, *kind: Any) -> Any:
    """Ask a question about a run's tool call. In a thread of a blocking step, another thread waits for the answer."""
    ctx: Context | BlockingContext = current()
    payload = {"tool": call.tool_name, "arguments": call.args_as_dict()} | ({"metadata": about} if about else {})
    key = _numbered(ctx, "question", f"{run}/{call.tool_call_id}")  # some models use the ids of their calls again
    asking = partial(getattr(ctx, verb), text, *kind, key=key, payload=payload)
    return await (asyncio.to_thread(asking) if isinstance(ctx, BlockingContext) else asking())


def _words(call: ToolCallPart) -> str:
    """Return a tool call as text for a person.

    >>> _words(ToolCallPart("charge", {"order": "A-1", "cents": 500}))
    'charge(order="A-1", cents=500)'
    """
    given = ", ".join(f"{name}={to_json(value).decode()}" for name, value in call.args_as_dict().items())
    return f"{call.tool_name}({given if len(given) <= LONGEST else given[:LONGEST] + '…'})"


# operations


class Operations(CallableOperationBackend[OperationOptions]):
    """Runs the durable units of an agent as operations of the current step."""

    def __init__(
        self, agent: str, model_id: str | None, config: RoleBasedOperationConfig[OperationOptions], price: Price
    ) -> None:
        super().__init__(namer=Names(agent, default_model_id=model_id or "default"), config=config)
        self._price = price

    def bind(self, operation: DurableOperation[P, W, T]) -> BoundDurableOperation[P, W, T]:
        """Return a callable that runs ``operation``. `execute` gets all of its parameters."""
        return super().bind(replace(operation, cache_identity=Parameters()))

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Body,
        cache_key: tuple[object, ...],
        config: OperationOptions,
    ) -> object:
        """Run ``body`` as an operation, or return its remembered result. pydantic-ai calls this."""
        if isinstance(operation_id, ModelRequestId | ModelCompactMessagesId):
            body = partial(_paid, body, self._price)
        [params] = cache_key
        ctx = _context_of(params, name)
        step = current()
        key = _numbered(step, name, f"{_key_of_run(step, ctx.run_id)}/{_call(ctx, params)}")
        said = _given.get().get(_place(ctx)) or _input_of(ctx)
        if isinstance(params, WorkspaceCallParams) and params.call.command:
            said = _digest(said, params.call.command)
        return await run_unit(unit(name, **config), key, said, body)


class Parameters(CacheIdentity[Any]):
    """Passes the parameters of an operation on as they are: they contain the run."""

    def project(self, params: Any) -> tuple[object, ...]:
        return (params,)


def _context_of(params: object, name: str) -> RunContext[Any]:
    """Return the context of the run that an operation belongs to."""
    found = getattr(params, "run_context", None) or getattr(params, "ctx", None)
    if not isinstance(found, RunContext):
        raise DefinitionError(
            f"Operation {name!r} of pydantic-ai belongs to no run, so it cannot be remembered."
            " Call it inside a run of an agent."
        )
    return found


def _call(ctx: RunContext[Any], params: object) -> str:
    """Return which call of a run an operation is."""
    if isinstance(params, EventStreamHandlerParams):  # the results of parallel calls arrive in any order
        event: Any = params.event
        call = getattr(getattr(event, "part", None), "tool_call_id", "") or _digest(event)
        return f"{ctx.run_step}/{event.event_kind}/{call}"
    call = f"{ctx.run_step}/{ctx.tool_call_id or ''}"
    if isinstance(params, WorkspaceCallParams):
        call = f"{call}/{params.call.method} {params.call.path}".rstrip()
    return call


class Names(JournalOperationNamer):
    """Names operations as pydantic-ai's journal does, with the tool's name in those of MCP calls, too.

    Requests have one name for all models, streamed or not: a new release may change that while sessions are open.
    """

    def invocation_name(self, operation_id: DurableOperationId, *, label: str | None) -> Any:
        if isinstance(operation_id, ModelRequestId):
            operation_id = replace(operation_id, model_id=None, streaming=False)
        elif isinstance(operation_id, ModelCompactMessagesId):
            operation_id = replace(operation_id, model_id=None)
        found = super().invocation_name(operation_id, label=label)
        name = found.operation_name
        if isinstance(operation_id, ToolsetCallToolId) and operation_id.toolset_kind == "mcp" and label:
            name = f"{name}:{label}"
        return replace(found, operation_name=name.translate(_RESERVED))


def _numbered(ctx: Context | BlockingContext, name: str, key: str) -> str:
    """Return the key of an operation. A call that runs again, such as one that is approved now, has another."""
    count = ctx.nth(f"{name} {key}")
    return key if count == 1 else f"{key}#{count}"


def _place(ctx: RunContext[Any]) -> tuple[str | None, ...]:
    """Return the step, the agent and the id of a run. Two sessions may pass the same id."""
    return current().idempotency_key, ctx.agent.name if ctx.agent else None, ctx.run_id


def _key_of_run(ctx: Context | BlockingContext, run_id: str | None) -> str:
    """Return the number of a run whose id is a default one. An id that was passed to the run is its key."""
    number = (run_id or "").removeprefix(f"{ctx.idempotency_key}.")
    return f"id:{run_id}" if number == run_id else number


# the input of a run


def _input_of(ctx: RunContext[Any]) -> str:
    """Return a digest of what a run was given."""
    try:
        deps = _data(ctx.deps)
    except (TypeError, RecursionError):  # a connection, for example
        deps = None
    return _digest(_content(ctx.prompt), _said(ctx.messages), deps)


def _said(messages: Sequence[ModelMessage]) -> list[object]:
    """Return what users and models said. Times and instructions may differ when the step runs again."""
    found: list[object] = []
    for part in (part for message in messages for part in message.parts):
        if part.part_kind == "user-prompt":
            found.append(_content(part.content))
        elif part.part_kind == "text":
            found.append(part.content)
        elif part.part_kind == "tool-call":
            found.append([part.tool_name, part.args])
    return found


def _content(prompt: Any) -> object:
    """Return the texts, addresses and bytes of a prompt, without settings of the provider."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence):
        return [_content(part) for part in prompt]
    return [getattr(prompt, name, None) for name in ("content", "url", "file_id", "data")]


_PLAIN = str, bytes, bool, int, float, Decimal, date, time, timedelta, UUID, Enum, PurePath, type(None)


def _data(value: Any) -> object:
    """Return plain data as JSON can have it, with sets in order. Raises `TypeError` for other objects.

    >>> _data({"user": "ann", "roles": {"b", "a"}})
    [['user', "'ann'"], ['roles', ["'a'", "'b'"]]]
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, BaseModel):
        return _data(dict(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _data({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return [[str(name), _data(each)] for name, each in value.items()]
    if isinstance(value, set | frozenset):
        return sorted((_data(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_data(each) for each in value]
    raise TypeError(f"not plain data: {type(value).__name__}")


def _digest(*given: Any) -> str:
    try:
        text = to_json(given, bytes_mode="base64", fallback=lambda value: type(value).__name__)
    except (PydanticSerializationError, ValueError):
        return ""
    return sha256(text).hexdigest()[:24]


# functions of operations


async def run_unit(runs: Unit, key: str, said: str, body: Body) -> object:
    """Run an operation with a body."""
    token = _body.set(body)
    try:
        return await runs(key, said)
    finally:
        _body.reset(token)


@lru_cache(maxsize=4096)
def unit(name: str, retry: int | Retry | None = None, timeout: float | timedelta | None = None) -> Unit:
    """Return the function of an operation. It is made once, because the engine inspects each new function."""

    async def run(key: str, said: str) -> Any:
        return await _body.get()()

    run.__qualname__ = name
    return durable(key=_first, retry=retry, timeout=timeout)(run)


def _first(key: str, said: str) -> str:
    return key


def _check_toolset(toolset: AbstractToolset[Any]) -> None:
    """Raise `DefinitionError` if the calls of a toolset would be no operations, so that they would run again."""
    known = FunctionToolset | DynamicToolset | ExternalToolset | WrapperToolset
    if isinstance(toolset, known) or any(each.__module__ == "pydantic_ai.mcp" for each in type(toolset).__mro__):
        return
    raise DefinitionError(
        f"The calls of toolset {type(toolset).__name__} would be no operations, so they would run again with the step."
        f" Pass DynamicToolset(lambda ctx: {type(toolset).__name__}(…), id=…) to the agent instead."
    )


def _options_of_tool(
    usual: OperationOptions, operation_id: DurableOperationId, tool: object | None, name: str
) -> OperationOptions | Literal[False]:
    """Return the options of a tool call; False if it is no operation."""
    metadata = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
    own: Any = (metadata or {}).get(NAME, {})
    return False if own is False else {**usual, **_checked(own, f"Tool {name!r}: metadata[{NAME!r}]")}


def _checked(given: Any, where: str) -> OperationOptions:
    """Return options as they are. Raises `DefinitionError` if they are something else."""
    known = OperationOptions.__optional_keys__
    if not isinstance(given, dict) or given.keys() - known:
        raise DefinitionError(f"{where} must be a dict with the keys {' and '.join(sorted(known))}, not {given!r}.")
    return cast(OperationOptions, given)


# costs


async def _paid(body: Body, price: Price) -> object:
    """Run a model request and record its cost with the operation."""
    found = await body()
    response = JSON_CODEC.load(ModelResponse, found)
    used = response.usage
    if used.input_tokens or used.output_tokens:
        current().spend(
            usd=_dollars(response, price), model=response.model_name, input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
        )  # fmt: skip
    return found


def _dollars(response: ModelResponse, price: Price) -> Decimal:
    """Return the price of a response; 0 if it has none. The response is paid, so an error must not lose it."""
    try:
        usd = Decimal(str(price(response)))
        if not 0 <= usd < Decimal("Infinity"):
            raise ValueError(f"{usd} is no price")
    except Exception:
        logger.warning(
            "The price of a response of %s is unknown. It counts as 0 dollars.", response.model_name, exc_info=True
        )
        return Decimal(0)
    return usd


def known_price(response: ModelResponse) -> Decimal:
    """Return the price of a response in dollars according to genai-prices; 0 if the model is not listed there."""
    if not response.model_name:
        return Decimal(0)
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return Decimal(0)
