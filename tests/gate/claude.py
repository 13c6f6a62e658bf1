"""The real Claude Code with a local stand-in for the Anthropic API, so that no request leaves the machine.

The stand-in plays a *plan*: a list of turns, each with tool calls, then a last text. A prompt names its plan as
``[plan NAME]``, also the prompt of a sub-agent. The next turn follows from the conversation alone, so a session that
is resumed by another process continues where its transcript ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import secrets
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.loop import PATIENCE
from tests.support.servers import serving as in_thread

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "peers" / "node_modules" / ".bin" / "claude"
"""Where ``make programs`` installs the command."""

HOW = (
    "Claude Code is not installed. Run `make programs`, or `npm install -g @anthropic-ai/claude-code`, "
    "or set PAUSEPOINT_CLAUDE to the path of the command."
)

EFFECTS = "effects.txt"
"""The file in the project that gets a line for each call."""

_PLAN = re.compile(r"\[plan ([\w.-]+)\]")
_USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def find() -> str | None:
    """Return the path of the ``claude`` command, or None if this machine does not have it."""
    named = os.environ.get("PAUSEPOINT_CLAUDE")
    if named:
        return named
    return shutil.which("claude") or (str(KEPT) if KEPT.exists() else None)


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: dict[str, Any]


def bash(command: str, **more: Any) -> Call:
    """Return a call that runs a shell command."""
    return Call("Bash", {"command": command, "description": "one effect", **more})


Turn = Sequence[Call]


@dataclass
class Api:
    """The stand-in: its address, the plans that it plays, and the requests it got."""

    plans: dict[str, Sequence[Turn]] = field(default_factory=dict)
    think: float = 0.0
    """Seconds before each answer."""
    text: str = "All done."
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of all requests for an answer of the model."""
    outside: list[str] = field(default_factory=list)
    """Requests for other hosts. They are refused; the list should stay empty."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the content blocks of the next answer in this conversation."""
        self.asked.append(body)
        time.sleep(self.think)
        messages = body["messages"]
        named = _PLAN.findall(json.dumps(messages[0]["content"]))
        turns = self.plans.get(named[-1], ()) if named and body.get("tools") else ()
        made = sum(_calls(message) for message in messages)
        for turn in turns:
            if made < len(turn):
                return [_block(call) for call in turn[made:]]
            made -= len(turn)
        return [{"type": "text", "text": self.text}]


def _calls(message: dict[str, Any]) -> int:
    """Count the tool calls in a message."""
    content = message["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == "tool_use" for part in content)


def _block(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": call.name, "input": call.arguments}


@contextmanager
def serving(**plans: Sequence[Turn]) -> Iterator[Api]:
    """Serve the stand-in on a free port of the loopback interface."""
    api = Api(plans=dict(plans))
    with in_thread(_Server(("127.0.0.1", 0), _handler(api))) as server:
        api.port = server.server_address[1]
        yield api


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: agents are killed here while they wait for an answer."""


def environment(api: Api, home: Path) -> dict[str, str]:
    """Return the environment in which Claude Code talks to the stand-in only and keeps its files in ``home``."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "CLAUDE"))}
    return kept | {
        "ANTHROPIC_BASE_URL": api.address,
        "ANTHROPIC_API_KEY": "sk-ant-not-a-key",
        "CLAUDE_CONFIG_DIR": str(home),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        # Whatever is meant for another host comes here too, and is refused.
        "HTTP_PROXY": api.address,
        "HTTPS_PROXY": api.address,
        "NO_PROXY": "127.0.0.1,localhost",
    }


class Window:
    """A terminal with an agent in it. What it shows is thrown away."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with suppress(OSError):  # the agent has ended
            while os.read(self._terminal, 65_536):
                pass

    def press(self, keys: str) -> None:
        """Type into the window."""
        os.write(self._terminal, keys.encode())

    def close(self) -> None:
        """End the agent, as closing its window does."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGHUP)
        self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        os.close(self._terminal)


class Agents:
    """Agents in a project folder. ``home`` is for the files that they keep."""

    def __init__(self, api: Api, folder: Path, home: Path) -> None:
        command = find()
        assert command is not None, HOW
        self.command = command
        self.folder = folder
        self.environ = environment(api, home)
        self.started: list[subprocess.Popen[str]] = []

    def hooks(self, command: str, *events: str) -> None:
        """Let a command be called for these events, and no other one."""
        hook = {"type": "command", "command": command, "timeout": 86_400}
        settings = {"hooks": {event: [{"matcher": "*", "hooks": [hook]}] for event in events}}
        (self.folder / ".claude" / "settings.json").write_text(json.dumps(settings))

    def transcript(self, session: str) -> str:
        """Return what Claude Code has written down about a session so far."""
        files = (Path(self.environ["CLAUDE_CONFIG_DIR"]) / "projects").rglob(f"{session}.jsonl")
        return "".join(file.read_text() for file in files)

    def start(self, prompt: str, *options: str, tools: str = "Bash Agent Read") -> subprocess.Popen[str]:
        """Start an agent that works on a prompt and prints its result as JSON."""
        words = [self.command, "-p", prompt, "--output-format", "json", "--allowedTools", tools, *options]
        process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def open_window(self, *options: str, tools: str = "Bash Agent Read") -> Window:
        """Start an agent in a terminal, as a person does. It does not ask the questions of a first start."""
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [self.environ["ANTHROPIC_API_KEY"][-20:]], "rejected": []},
            "projects": {str(self.folder.resolve()): {"hasTrustDialogAccepted": True}},
        }
        (Path(self.environ["CLAUDE_CONFIG_DIR"]) / ".claude.json").write_text(json.dumps(known))
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        process = subprocess.Popen(
            [self.command, "--allowedTools", tools, *options],
            cwd=self.folder,
            env=self.environ | {"TERM": "xterm-256color"},
            stdin=end,
            stdout=end,
            stderr=end,
            text=True,
            start_new_session=True,
        )
        os.close(end)
        self.started.append(process)
        return Window(process, terminal)

    def effects(self) -> list[str]:
        """Return the lines that the calls have appended."""
        file = self.folder / EFFECTS
        return file.read_text().splitlines() if file.exists() else []

    def end(self) -> None:
        """Kill all agents that still run."""
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate(timeout=PATIENCE)


def result(agent: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait until an agent ends and return what it printed."""
    output, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, f"claude ended with {agent.returncode}: {output}{errors}"
    found: dict[str, Any] = json.loads(output)
    return found


def effect(name: str) -> Call:
    """Return a call that appends its name to the file of effects."""
    return bash(f"echo {name} >> {EFFECTS}")


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            if not self.path.startswith("/v1/messages"):
                return self._refuse()
            if "count_tokens" in self.path:
                return self._send({"input_tokens": 100})
            blocks = api.answer(body)
            if body.get("stream"):
                return self._stream(body, blocks)
            return self._send(_message(body, blocks) | {"usage": _usage(blocks)})

        def do_GET(self) -> None:
            self._refuse()

        do_CONNECT = do_HEAD = do_PUT = do_DELETE = do_GET

        def _refuse(self) -> None:
            if self.command == "CONNECT" or self.path.startswith("http"):
                api.outside.append(f"{self.command} {self.path}")
            self._send({"type": "error", "error": {"type": "not_found_error", "message": self.path}}, status=404)

        def _send(self, document: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _stream(self, body: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in _events(body, blocks):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _usage(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_USAGE, "output_tokens": 10 * len(blocks)}


def _reason(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _message(body: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": _reason(blocks),
        "stop_sequence": None,
    }


def _events(body: dict[str, Any], blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed answer."""
    opening = _message(body, []) | {"stop_reason": None, "usage": {**_USAGE, "output_tokens": 1}}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": _reason(blocks), "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": _usage(blocks)}
    yield {"type": "message_stop"}
