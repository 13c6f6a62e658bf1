"""A local HTTP service that speaks OpenAI's chat completions, with the faults of real services.

Each request gets the next item of a script: a status, a text or a fault. When the script is empty, the service answers
from the schema in the request, so the answer always fits the question.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from pausepoint.apps.model import answers
from tests.support.loop import PATIENCE
from tests.support.servers import serving

PROMPT_TOKENS, COMPLETION_TOKENS = 100, 20
"""The token usage of every answer."""

ONE = {"string": "some words", "integer": 7, "number": 0.5, "boolean": True, "null": None}


@dataclass(frozen=True)
class Says:
    """A completion with this text."""

    text: str
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Refuses:
    """A completion that is a refusal."""

    why: str = "I cannot help with that"


@dataclass(frozen=True)
class Status:
    """A response with a status other than 200."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "not now"}}'


@dataclass(frozen=True)
class Body:
    """A response with status 200 whose body need not be a completion."""

    text: str


@dataclass(frozen=True)
class Stalls:
    """Half of an answer, then silence until the client gives up."""


@dataclass(frozen=True)
class Cuts:
    """Half of an answer, then a connection reset."""


@dataclass(frozen=True)
class Holds:
    """A completion with this text, sent when the test sets the event."""

    text: str
    event: threading.Event


@dataclass(frozen=True)
class Calls:
    """A completion that calls tools: pairs of a name and arguments."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    event: threading.Event | None = None


Act = Says | Refuses | Status | Body | Stalls | Cuts | Holds | Calls


class ModelServer(ThreadingHTTPServer):
    """The service. ``requests`` lists the bodies it received, ``headers`` their headers.

    ``lacks`` are the types of ``response_format`` that it refuses.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.lacks: set[str] = set()
        self.script: deque[Act] = deque()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults = 0
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Return the base URL for the settings."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def will(self, *acts: Act) -> None:
        """Append to the script for the next requests."""
        self.script.extend(acts)


def model_at(url: str) -> dict[str, str]:
    """Return the environment variables that make applications use the service at a URL."""
    return {"PAUSEPOINT_MODEL": "tiny", "PAUSEPOINT_MODEL_URL": url, "NO_PROXY": "127.0.0.1"}


@contextmanager
def model_in_use(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Iterator[ModelServer]:
    """Run the service and make applications use it. ``price="1/10"`` sets PAUSEPOINT_MODEL_PRICE."""
    monkeypatch.setattr(answers, "OUTAGE", msgspec.structs.replace(answers.OUTAGE, first=0.01, longest=0.05))
    with serving(ModelServer()) as server:
        more = {f"PAUSEPOINT_MODEL_{name.upper()}": value for name, value in settings.items()}
        for name, value in (model_at(server.url) | more).items():
            monkeypatch.setenv(name, value)
        try:
            yield server
        finally:
            server.closing.set()


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.requests.append(asked)
        if self.path != "/v1/chat/completions":
            self._send(404, {}, '{"error": {"message": "no such place"}}')
            return
        format = asked.get("response_format", {}).get("type")
        if format in self.server.lacks:
            self._send(400, {}, json.dumps({"error": {"message": f"response_format {format} is unavailable"}}))
            return
        act = self.server.script.popleft() if self.server.script else Says(json.dumps(_answer(asked)))
        self._do(act, str(asked["model"]))

    def _do(self, act: Act, model: str) -> None:
        match act:
            case Says(text, reason):
                self._send(200, {}, _completion(model, {"role": "assistant", "content": text}, reason))
            case Holds(text, event):
                event.wait(PATIENCE)
                self._send(200, {}, _completion(model, {"role": "assistant", "content": text}, "stop"))
            case Calls(calls, event):
                if event is not None:
                    event.wait(PATIENCE)
                number = len(self.server.requests)
                made = [_tool_call(f"call-{number}-{n}", *call) for n, call in enumerate(calls)]
                message = {"role": "assistant", "content": None, "tool_calls": made}
                self._send(200, {}, _completion(model, message, "tool_calls"))
            case Refuses(why):
                self._send(200, {}, _completion(model, {"role": "assistant", "content": None, "refusal": why}, "stop"))
            case Status(code, headers, body):
                self._send(code, headers, body)
            case Body(text):
                self._send(200, {}, text)
            case Stalls() | Cuts():
                self._half(model)
                self.server.faults += 1
                self.server.closing.wait(30) if isinstance(act, Stalls) else self._reset()

    def _send(self, code: int, headers: Mapping[str, str], body: str) -> None:
        data = body.encode()
        self.send_response(code)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _half(self, model: str) -> None:
        data = _completion(model, {"role": "assistant", "content": "words " * 100}, "stop").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()

    def _reset(self) -> None:
        """Close the connection with a reset instead of an orderly end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def _tool_call(id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _completion(model: str, message: dict[str, Any], reason: str) -> str:
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
    usage["total_tokens"] = PROMPT_TOKENS + COMPLETION_TOKENS
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}
    )


def _answer(asked: dict[str, Any]) -> Any:
    """Return the simplest value that fits the schema in the request."""
    schema = asked["response_format"]["json_schema"]["schema"]
    return _simplest(schema, schema.get("$defs", {}))


def _simplest(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _simplest(known[schema["$ref"].rpartition("/")[2]], known)
    for choices in ("anyOf", "oneOf", "allOf"):
        if choices in schema:
            return _simplest(schema[choices][0], known)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "array":
        return [_simplest(schema.get("items", {}), known) for _ in range(max(schema.get("minItems", 1), 1))]
    if schema.get("type") == "object":
        return {name: _simplest(each, known) for name, each in schema.get("properties", {}).items()}
    return ONE[schema.get("type", "string")]
