"""A session as a conversation: what models were told and answered, what tools did, and what people said.

It is read from the log. A call of a model is an operation that returned a model's message, in the form of Anthropic,
OpenAI, LangChain or pydantic-ai, or that got messages and returned text. Every other operation is a tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.codec.arguments import arguments_of, value_of
from pausepoint.codec.values import as_plain, decode
from pausepoint.log.events import result_of
from pausepoint.log.replay import Effect, EventBody, OperationBody, WaitBody, body_of
from pausepoint.log.state import Inline
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.views import Role, ToolUse, Turn

LONGEST = 8_000
"""How many characters of a text are shown, unless everything is asked for."""

AGENT = ("agent.call", "agent.prompt", "agent.said")
"""The events of an agent of another program: a call, whose end is the operation with its id as the key; what a person
tells it; and what its model says, or a call has returned."""

COST = "charge"
"""The operation that records what such an agent has spent."""

_NOTHING = {
    "expired": "nobody answered in time", "rounds": "there was no valid answer", "timeout": "nothing arrived in time",
}  # fmt: skip


class Message(msgspec.Struct, frozen=True):
    """A message as a model gets or returns it: what it says, what it thinks, and the tools that it wants to call."""

    role: Role
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolUse, ...] = ()


class _Sent(msgspec.Struct, frozen=True):
    """The part of a signal that says what was sent."""

    value: msgspec.Raw


_decode = msgspec.json.Decoder(_Sent).decode


class Conversation:
    """Turns of records and signals, in order. ``whole``: nothing is cut."""

    def __init__(self, whole: bool = False) -> None:
        self.turns: list[Turn] = []
        self._whole = whole
        self._calls: dict[str, int] = {}  # by id: the turn of an agent's call

    def signal(self, signal: SignalRecord) -> None:
        """Add what a person or a program has sent."""
        if signal.redacted or signal.kind not in ("answer", "early", "message"):
            return
        role: Role = "message" if signal.kind == "message" else "answer"
        value = as_plain(decode(bytes(_decode(signal.payload).value)))
        self._add(signal.after, signal.at, Message(role, _answer(value)), signal.by or "")

    def record(self, record: Record, data: Mapping[str, bytes]) -> None:
        """Add what a record tells. ``data`` has the values of results that are not in the record, by hash."""
        body = body_of(record)
        for effect in getattr(body, "effects", ()):
            if effect.type in AGENT:
                self._agent(record, effect)
        if isinstance(body, OperationBody):
            self._operation(record, body, data)
        elif isinstance(body, WaitBody) and body.ask is not None:
            self._add(record.seq, record.at, Message("question", body.ask.text), body.agent or record.step)
        elif isinstance(body, WaitBody) and body.error:
            self._add(record.seq, record.at, Message("error", f"attempt {body.attempt}: {body.error}"), body.name)
        elif isinstance(body, EventBody) and body.type == "session.failed":
            self._add(record.seq, record.at, Message("error", body.summary), record.step)

    def _agent(self, record: Record, effect: Effect) -> None:
        match effect.type, msgspec.json.decode(effect.data):
            case "agent.call", {"id": str() as id, "name": str() as name, "arguments": dict() as arguments}:
                self._calls[id] = len(self.turns)
                self._add(record.seq, effect.at, Message("tool"), name, arguments=arguments)
            case "agent.prompt", {"text": str() as text}:
                self._add(record.seq, effect.at, Message("user", text), effect.agent)
            case "agent.said", {"text": str() as text, "id": ""}:
                self._add(record.seq, effect.at, Message("assistant", text), effect.agent)
            case "agent.said", {"text": str() as text, "id": str() as id} if id in self._calls:
                self.turns[self._calls[id]] = replace(self.turns[self._calls[id]], result=text)

    def _operation(self, record: Record, body: OperationBody, data: Mapping[str, bytes]) -> None:
        if body.total:
            return
        if not body.input:  # the end of a wait; what arrived is a signal
            if body.outcome in _NOTHING:
                self._add(record.seq, record.at, Message("error", _NOTHING[body.outcome]), body.name)
            return
        arguments = arguments_of(body.arguments)
        slot = body.value
        value = bytes(slot.data) if isinstance(slot, Inline) else data.get(slot.hash)
        result = as_plain(decode(value)) if value is not None else None
        if body.name == COST and result is None and set(arguments or ()) == {"usd", "tokens"}:
            return
        spent = [each for each in body.effects if each.type == "spent"]
        facts: dict[str, Any] = {
            "operation": body.id, "took": body.took / 1e6, "tokens": sum(each.tokens for each in spent),
            "usd": sum(each.usd for each in spent) / 1e6,
        }  # fmt: skip
        reply = reply_of(result)
        if reply is None and type(result) is str and has_messages(arguments):
            reply = Message("assistant", result)
        if reply is not None:
            for each in messages_in(arguments or {}, is_first=body.nth == 1):
                self._add(record.seq, record.at - body.took, each, body.name)
            self._add(record.seq, record.at, reply, body.name, **facts)
            return
        shown = result if self._whole else value_of(value) if value is not None else result_of(body)
        known = self._calls.get(_key(body))
        if known is not None:
            before = self.turns[known].result
            self.turns[known] = replace(self.turns[known], result=shown if before is None else before, **facts)
        else:
            self._add(record.seq, record.at, Message("tool"), body.name, arguments=arguments, result=shown, **facts)

    def _add(self, seq: int, at: int, message: Message, name: str, **facts: Any) -> None:
        text, thinking = (each if self._whole else shortened(each) for each in (message.text, message.thinking))
        self.turns.append(Turn(seq, to_datetime(at), message.role, name, text, thinking, message.calls, **facts))


def shortened(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ‹{len(text):,} characters›"


def _answer(value: Any) -> str:
    match value:
        case {"approved": bool() as approved, **rest}:
            reason = rest.get("reason")
            return ("yes" if approved else "no") + (f": {reason}" if reason else "")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _key(body: OperationBody) -> str:
    _, mark, key = body.id.rpartition(f"/{body.name}[")
    return str(msgspec.json.decode(key[:-1])) if mark else ""


_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant",
}  # fmt: skip
_BLOCKS = (
    "text", "output_text", "tool_use", "function_call", "thinking", "redacted_thinking", "reasoning", "message",
)  # fmt: skip
_PARTS = {"system-prompt": "system", "user-prompt": "user"}


def reply_of(value: Any) -> Message | None:
    """Return what a model has answered; None if a value is not the answer of a model.

    >>> reply_of([{"type": "text", "text": "Hi"}, {"type": "tool_use", "name": "find", "input": {"city": "Oslo"}}])
    Message(role='assistant', text='Hi', thinking='', calls=(ToolUse(name='find', arguments={'city': 'Oslo'}),))
    >>> reply_of({"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}).text, reply_of({"text": "Hi"})
    ('Hi', None)
    """
    if isinstance(value, Mapping):
        match value:
            case {"choices": [{"message": Mapping() as message}, *_]}:
                return _message(message)
            case {"output": [{"type": str()}, *_] as items} if "role" not in value:
                return _gathered(items)
            case {"role": str()} | {"type": "ai"} | {"kind": "response", "parts": [*_]}:
                reply = _message(value)
                return reply if reply is not None and reply.role == "assistant" else None
    if isinstance(value, list) and value and all(_is_block(each) for each in value):
        return _gathered(value)
    return None


def messages_in(arguments: Mapping[str, Any], is_first: bool = True) -> list[Message]:
    """Return the messages after the last one of the model: it has not answered them yet.

    Long messages are cut when they are recorded. Their beginning is shown as it is, for the first call.

    >>> history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    >>> messages_in({"messages": [*history, {"role": "user", "content": "Book"}]})
    [Message(role='user', text='Book', thinking='', calls=())]
    """
    for value in arguments.values():
        if _are_messages(value):
            if isinstance(value, str):
                return [Message("user", value)] if is_first else []
            new: list[Message] = []
            for each in value:
                for one in _messages(each):
                    new = [] if one.role == "assistant" else [*new, one]
            return new
    return []


def has_messages(arguments: Mapping[str, Any] | None) -> bool:
    """Return whether some arguments are messages to a model."""
    return any(_are_messages(value) for value in (arguments or {}).values())


def _are_messages(value: Any) -> bool:
    if isinstance(value, str):  # which were cut
        return value.startswith(('[{"role":', '[{"content":', '[{"kind":"request"')) and value.endswith(" bytes›")
    return isinstance(value, list) and value != [] and all(_is_message(each) for each in value)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and (
        value.get("role") in (*_ROLES, "tool", "function") or value.get("kind") in ("request", "response")
        or (value.get("type") in ("human", "ai", "system", "tool") and "content" in value)
        or value.get("type") in ("function_call", "function_call_output", "reasoning")
    )  # fmt: skip


def _is_block(value: Any) -> bool:
    kinds = (
        "text",
        "output_text",
        "tool_use",
        "function_call",
        "thinking",
        "redacted_thinking",
        "reasoning",
        "message",
    )
    return isinstance(value, Mapping) and value.get("type") in kinds


def _messages(message: Mapping[str, Any]) -> Iterator[Message]:
    if message.get("kind") == "request":  # of pydantic-ai: its parts have roles of their own
        for part in message.get("parts", ()):
            if isinstance(part, Mapping) and part.get("part_kind") in _PARTS:
                yield Message(_ROLES[_PARTS[part["part_kind"]]], _text(part.get("content")))
    elif (one := _message(message)) is not None:
        yield one


def _message(message: Mapping[str, Any]) -> Message | None:
    """Return one message; None for the result of a tool, and for one without content."""
    name = message.get("role") or message.get("type") or ("assistant" if message.get("kind") == "response" else "")
    if name in ("function_call", "reasoning"):
        return _gathered([message])
    role = _ROLES.get(str(name))
    if role is None:
        return None
    content = message.get("content") if "content" in message else message.get("parts")
    inner = _gathered(content) if isinstance(content, list) else Message(role, _text(content))
    calls = inner.calls + tuple(_call(each) for each in message.get("tool_calls") or () if isinstance(each, Mapping))
    thinking = inner.thinking or _text(message.get("reasoning_content"))
    return Message(role, inner.text, thinking, calls) if inner.text or thinking or calls else None


def _gathered(blocks: list[Any]) -> Message:
    texts, thoughts, calls = list[str](), list[str](), list[ToolUse]()
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        if not isinstance(block, Mapping):
            continue
        match block.get("type") or block.get("part_kind"):
            case "text" | "output_text" | "input_text":
                texts.append(_text(block.get("text") or block.get("content")))
            case "thinking":
                thoughts.append(_text(block.get("thinking") or block.get("content")))
            case "reasoning":
                thoughts += [
                    _text(each.get("text")) for each in block.get("summary") or () if isinstance(each, Mapping)
                ]
            case "tool_use" | "function_call" | "tool-call":
                calls.append(_call(block))
            case "message":
                texts.append(_text(block.get("content")))
            case "image" | "image_url" | "input_image" | "document" | "file":
                texts.append(f"‹{block.get('type')}›")
    return Message("assistant", "\n\n".join(filter(None, texts)), "\n\n".join(filter(None, thoughts)), tuple(calls))


def _call(block: Mapping[str, Any]) -> ToolUse:
    inner = block["function"] if isinstance(block.get("function"), Mapping) else block
    name = inner.get("name") or inner.get("tool_name") or "?"
    arguments: Any = next((inner[each] for each in ("input", "args", "arguments") if inner.get(each) is not None), {})
    if isinstance(arguments, str):
        with suppress(msgspec.MsgspecError):  # a model may write anything
            arguments = msgspec.json.decode(arguments)
    return ToolUse(str(name), arguments)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return _gathered(content).text
    return content if isinstance(content, str) else "" if content is None else msgspec.json.encode(content).decode()
