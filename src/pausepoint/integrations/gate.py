"""The hook that an agent calls before and after each tool call. It asks the gate, and waits there while paused.

It starts for every tool call, so it uses only the standard library and is run as a file:
``python -I -S gate.py claude``, with the hook's JSON as its input. The other side is `pausepoint.gate.gates`. Where a C
compiler was at hand, ``gate.c`` starts instead. It handles the plain case, and becomes this program for all others.

The socket of the gate is in the environment of the agent, or in the nearest ``.pausepoint/gate.json``. Without a server
there, the hook looks at the flag file that exists while everything is paused.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module `typing` alone would cost a tenth of the hook's time
    from collections.abc import Callable, Mapping
    from typing import Any

EVENTS = {
    "PreToolUse": "before",
    "PostToolUse": "after",
    "PostToolUseFailure": "after",
    "PostToolBatch": "batch",
    "PermissionRequest": "asks",
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "Notification": "idle",
    "SubagentStop": "substop",
    "Stop": "stop",
    "StopFailure": "stop",
    "SessionEnd": "end",
}
"""The names of an agent's hooks, and what they mean here."""

LIMIT = 1_000_000
"""The most bytes of one message."""

SHOWN = 16 * 1024
"""The most characters of one argument of a call that is too large for one message. Longer ones keep their beginning and
end, and their hash."""

COMMAND = 512 * 1024
"""The most characters of a shell command, which is searched for restricted words."""

DEADLINE = 86_400 - 60
"""Seconds until a call that still waits is refused. The agent would run the tool when the hook's time is over."""

PATIENCE = 30.0
"""Seconds until a server that went away, or has not started yet, counts as lost."""

ANSWERS_WITHIN = 5.0
"""Seconds that a server gets to say something, even if the time for its last word is shorter."""

SHELLS = ("sh", "dash", "bash", "zsh", "ash", "busybox")
"""The names of processes that only start the hook for the agent."""

LOOK_EVERY = 0.5
"""Seconds between two looks at the flag file, the parent process and the clock."""

HELD_LONG = 10.0
"""Seconds of waiting after which the agent's window says what a call has waited for."""

NOT_SERVED = "Pausepoint's gate has no server"
START = "Start it:  pausepoint gate serve"


class Lost(Exception):
    """The server of the gate cannot be reached."""


class TooLate(Exception):
    """The time for an answer is over. The argument is what the gate waits for."""


class Orphaned(Exception):
    """The agent has ended, so nobody reads the answer."""


class GatePlace:
    """Where the gate is, and what happens without a server (``on_loss``).

    ``flag`` is the file that exists while everything is paused, or empty. ``own`` means that the program that started
    the agent serves the gate. Then its absence is a loss.
    """

    def __init__(
        self, socket: str, flag: str = "", on_loss: str = "open", token: str | None = None, own: bool = False
    ) -> None:
        self.socket = socket
        self.flag = flag
        self.on_loss = on_loss
        self.token = token
        self.own = own


def find(environ: Mapping[str, str], folder: str) -> GatePlace | None:
    """Return the place of the gate, or None if there is none. Raises `ValueError` if its file is not valid."""
    if environ.get("PAUSEPOINT_GATE"):
        on_loss = "open" if environ.get("PAUSEPOINT_GATE_ON_LOSS") == "open" else "closed"
        return GatePlace(environ["PAUSEPOINT_GATE"], "", on_loss, environ.get("PAUSEPOINT_GATE_TOKEN"), own=True)
    while True:
        path = os.path.join(folder, ".pausepoint", "gate.json")
        try:
            with open(path, encoding="utf-8") as file:
                given = json.load(file)
            return GatePlace(str(given["socket"]), str(given.get("flag", "")), given.get("on_loss", "open"))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not valid: {type(error).__name__}: {error}") from None
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def report(given: dict[str, Any], kind: str, token: str | None, pid: int) -> dict[str, Any] | None:
    """Return the message for the gate, from the JSON of a hook. None for a hook that the gate does not need.

    ``pid`` is the process of the agent.
    """
    event = EVENTS.get(str(given.get("hook_event_name")))
    if event is None or (event == "idle" and given.get("notification_type", "idle_prompt") != "idle_prompt"):
        return None
    agent = {
        "kind": kind,
        "session": str(given.get("session_id") or "")[:200],
        "sub": str(given.get("agent_id") or "")[:200] or None,
        "folder": str(given.get("cwd") or os.getcwd())[:4096],
        "pid": pid,
    }
    found: dict[str, Any] = {"v": 1, "token": token, "event": event, "agent": agent}
    if event in ("before", "after", "asks"):
        name = str(given.get("tool_name") or "")[:200]
        found["call"] = {"id": str(given.get("tool_use_id") or "")[:200], "name": name}
        if event == "before":
            found["call"]["arguments"], missing = fitted(given.get("tool_input"))
            found["call"]["missing"] = missing
            found["call"]["cut"] = "command" in missing or "cut" in missing  # it may hide a restricted word
        elif event == "after":
            found["ok"] = given.get("hook_event_name") != "PostToolUseFailure"
    if event == "prompt":
        found["prompt"] = str(given.get("prompt") or "")[:SHOWN]
    if event in ("stop", "substop"):
        found["background"] = background(given.get("background_tasks"))
    if event == "stop" and given.get("last_assistant_message"):
        found["closing"] = str(given["last_assistant_message"])[:SHOWN]
    if event == "stop" and given.get("error"):
        found["failure"] = str(given["error"])[:200]
    if given.get("transcript_path"):
        found["transcript"] = str(given["transcript_path"])[:4096]
    return found


def background(tasks: Any) -> list[dict[str, str]]:
    """Return what the agent has left running: its sub-agents and commands."""
    running = [each for each in tasks or () if isinstance(each, dict) and each.get("status") == "running"]
    return [
        {"kind": str(each.get("type"))[:40], "what": str(each.get("command") or each.get("description") or "")[:1_000]}
        for each in running[:100]
    ]


def fitted(arguments: Any) -> tuple[dict[str, Any], dict[str, tuple[int, str]]]:
    """Return the arguments of a call in the size of a message, and which of them lack how many bytes."""
    if not isinstance(arguments, dict):
        arguments = {"value": arguments}
    missing: dict[str, tuple[int, str]] = {}
    is_large = len(json.dumps(arguments)) > LIMIT - 10_000
    if not is_large and len(str(arguments.get("command", ""))) <= COMMAND:
        return arguments, missing
    fits: dict[str, Any] = {}
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        most = COMMAND if name == "command" else SHOWN if is_large else LIMIT
        fits[name] = value
        if len(text) > most:
            fits[name], missing[str(name)] = cut(text, most)
    whole = json.dumps(fits)
    if len(whole) <= LIMIT - 10_000:
        return fits, missing
    text, lacks = cut(json.dumps(arguments), SHOWN)
    return {"cut": text}, {"cut": lacks}


def cut(text: str, most: int) -> tuple[str, tuple[int, str]]:
    """Return the beginning and the end of a text, how many bytes are missing, and the hash of the whole."""
    from hashlib import sha256  # seldom needed, and slow to import

    data = text.encode("utf-8", "replace")
    head, tail = text[: most // 2], text[-(most // 2) :]
    missing = len(data) - len(head.encode("utf-8", "replace")) - len(tail.encode("utf-8", "replace"))
    digest = sha256(data).hexdigest()
    told = f"{missing:,} bytes are missing here. SHA-256 of all {len(data):,} bytes: {digest}"
    return f"{head}\n‹{told}›\n{tail}", (missing, digest)


def lineage() -> list[int]:
    """Return the processes from the hook's parent up to the agent. Shells in between only started the hook."""
    found = [os.getppid()]
    try:
        while True:
            with open(f"/proc/{found[-1]}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().rpartition(")")
            if name.partition("(")[2] not in SHELLS:
                return found
            found.append(int(rest.split()[1]))
    except OSError:  # no such file system, or the process has just ended
        return found


def flagged(flag: str) -> str:
    """Return why everything is paused, as the flag file says; empty if there is none."""
    if not flag or not os.path.exists(flag):
        return ""
    why = "everything is paused"
    try:
        with open(flag, encoding="utf-8") as file:
            pause = json.load(file)
        reason, by = pause["reason"], pause["by"]
        return f"{why}{f': {reason}' if reason else ''}{f' ({by})' if by else ''}"
    except (OSError, ValueError, KeyError, TypeError):  # it was just removed
        return why


class Wait:
    """How long a call waits, and for what. ``began`` is when it came, in the seconds of `time.monotonic`."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.why = ""

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the last word of the gate, with what the call has waited for if that was long."""
        seconds = time.monotonic() - self.began
        if not self.why or seconds < HELD_LONG:
            return answer
        return {**answer, "waited": f"{lasted(seconds)}: {self.why}"}


def lasted(seconds: float) -> str:
    """Return a duration as text.

    >>> lasted(45.2), lasted(190), lasted(7_500)
    ('45 s', '3 min', '2 h 5 min')
    """
    minutes = int(seconds) // 60
    if not minutes:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Talk:
    """One report to the gate, and the answer.

    ``limit`` are the seconds until it is too late for an answer. ``waits`` is called with each new reason to wait.
    ``agent`` are the processes from the hook's parent up to the agent: the talk ends if they do. None means that
    nothing but the limit ends it. ``heard`` are the seconds for which a server was heard before; None if none was.
    """

    def __init__(
        self, place: GatePlace, message: dict[str, Any], limit: float, waits: Callable[[str], None] | None = None,
        agent: list[int] | None = None, heard: float | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.flag = place.flag if message["event"] == "before" else ""  # nothing else has to wait
        self.line = json.dumps(message).encode("utf-8", "replace") + b"\n"
        self.limit = limit
        self.waits = waits
        self.agent = agent
        self.began = time.monotonic() - (heard or 0)
        self.wait = Wait(self.began)
        self.why = ""
        self.reached = heard is not None

    def answer(self, patience: float) -> dict[str, Any]:
        """Return the last word of the gate. Raises `Lost` if no server answers for ``patience`` seconds.

        A server that has answered before may only be restarting, so it always gets some time.
        """
        lost_at: float | None = None
        while True:
            try:
                return self.wait.told(self._asked())
            except (OSError, ValueError) as error:
                lost_at = lost_at or time.monotonic()
                allowed = PATIENCE if self.reached else patience
                if time.monotonic() - lost_at >= allowed and not self._flagged():
                    raise Lost(error) from None
            self._check()
            time.sleep(LOOK_EVERY)

    def _asked(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(LOOK_EVERY)
            line.connect(self.place.socket)
            line.settimeout(10.0)
            line.sendall(self.line)
            self.reached, rest = True, b""
            while True:
                self._await(line)
                data = line.recv(65_536)
                if not data or len(rest) > LIMIT:
                    raise ConnectionError("the gate's server has gone")
                *lines, rest = (rest + data).split(b"\n")
                for each in lines:
                    said = json.loads(each)
                    if not isinstance(said, dict):
                        raise ValueError("the answer is not an object")
                    if said.get("do") != "wait":
                        return said
                    self._wait(str(said.get("why") or "the gate is closed"))

    def _await(self, line: socket.socket) -> None:
        """Wait until the gate says something, or the agent has ended: that closes our standard output."""
        poll = select.poll()
        poll.register(line, select.POLLIN)
        if self.agent is not None:
            poll.register(1, 0)
        while not (found := dict(poll.poll(LOOK_EVERY * 1000))):
            self._check()
        if 1 in found and self.agent is not None:
            raise Orphaned

    def _wait(self, why: str) -> None:
        if self.waits is not None and why != self.why:
            self.waits(why)
        self.why = self.wait.why = why

    def _flagged(self) -> bool:
        if why := flagged(self.flag):
            self._wait(why)
        return bool(why)

    def _check(self) -> None:
        """Stop waiting if the agent is gone, or the time is over."""
        if self.agent is not None and lineage() != self.agent:
            raise Orphaned
        if time.monotonic() - self.began > (self.limit if self.why else max(self.limit, ANSWERS_WITHIN)):
            raise TooLate(self.why or "the gate does not answer")


def before(place: GatePlace, message: dict[str, Any], heard: float | None = None) -> dict[str, Any]:
    """Return what to do with a tool call, as the gate or, without one, the place says."""
    patience = PATIENCE if place.own or place.on_loss == "closed" else 0.0
    try:
        return Talk(place, message, DEADLINE, agent=lineage(), heard=heard).answer(patience)
    except TooLate as late:  # the agent's own time-out comes soon, and would run the tool
        return {"do": "refuse", "reason": f"This call has waited for a day: {late}. Stop here."}
    except Lost:
        if place.on_loss == "closed":
            way = "Resume the run." if place.own else START
            return {"do": "refuse", "reason": f"{NOT_SERVED}, and this project asks to stop then. {way}"}
        return {"do": "run"}


def tell(place: GatePlace, message: dict[str, Any]) -> None:
    """Report something that needs no answer. Without a server, it is lost; the start of a session says so once."""
    said: dict[str, Any] = {}
    try:
        said = Talk(place, message, DEADLINE, agent=lineage()).answer(0.0)
    except Lost:
        if message["event"] == "start" and not place.own:
            then = "tool calls are refused" if place.on_loss == "closed" else "calls run unless everything is paused"
            print(json.dumps({"systemMessage": f"{NOT_SERVED}: {then}. {START}"}))
    except TooLate:
        pass
    if line := announced(said, message, place.flag):
        print(line)


def announced(said: dict[str, Any], message: dict[str, Any], flag: str) -> str:
    """Return the line that the hook prints when a person submits a prompt; empty unless the agent would only wait.

    While a call waits, the agent draws nothing that a hook says. So this is the moment to say why, and how to continue.
    """
    agent = message["agent"]
    if message["event"] != "prompt" or agent["kind"] != "claude":
        return ""
    if why := flagged(flag):
        way = "pausepoint resume --all"
    elif why := str(said.get("why") or ""):
        way = f"pausepoint resume {said.get('id')}"
    else:
        return ""
    text = f"Pausepoint's gate: {why}. The agent waits before its next tool call. Continue it:  {way}"
    return json.dumps({"systemMessage": text})


def printed(said: dict[str, Any], kind: str) -> str:
    """Return the line that the hook prints before a tool call; empty if the agent needs none."""
    found = decision(said, kind)
    if kind != "claude":  # others read refusals only
        denies = found is not None and found["hookSpecificOutput"]["permissionDecision"] == "deny"
        return json.dumps(found) if denies else ""
    told = {"systemMessage": f"Pausepoint's gate held this call for {said['waited']}"} if said.get("waited") else {}
    return json.dumps({**(found or {}), **told}) if found or told else ""


def decision(said: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return what the agent reads: nothing if its own rules apply, otherwise a permission or a refusal.

    Claude Code can be stopped. After a mere refusal it would try further calls, and each costs tokens.
    """
    if said.get("do") == "run" and not said.get("approved"):
        return None
    verdict, reason = ("allow", "approved by a person") if said.get("do") == "run" else ("deny", said.get("reason"))
    found = {"hookEventName": "PreToolUse", "permissionDecision": verdict, "permissionDecisionReason": str(reason)}
    stops = said.get("stop") is True and kind == "claude"
    return {"hookSpecificOutput": found} | ({"continue": False, "stopReason": str(reason)} if stops else {})


def main(kind: str, text: bytes, environ: Mapping[str, str], heard: float | None = None) -> int:
    """Handle one call of the hook and return its exit code."""
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("the hook's input is not an object")
    folder = str(given.get("cwd") or environ.get("CLAUDE_PROJECT_DIR") or os.getcwd())
    place = find(environ, folder)
    message = None if place is None else report(given, kind, place.token, lineage()[-1])
    if place is None or message is None:
        return 0
    if message["event"] != "before":
        tell(place, message)
    elif line := printed(before(place, message, heard), kind):
        print(line)
    return 0


def run() -> int:
    """Handle one call of the hook. A failure ends with 1; the settings turn that into 2 where a failure must refuse."""
    try:
        heard = float(sys.argv[2]) if len(sys.argv) > 2 else None
        code = main(sys.argv[1], sys.stdin.buffer.read(), os.environ, heard)
        sys.stdout.flush()
    except Orphaned:
        return 1
    except BaseException as error:  # an interrupt, too: the agent reads the last line
        print(f"Pausepoint's gate: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return code


if __name__ == "__main__":
    os._exit(run())  # nothing is left to clean up, and the agent waits
