"""A fake command-line agent that calls the hooks of its project as Claude Code does. Standard library only.

    python fake_agent.py --calls 8 --effects effects.txt

It reads ``.claude/settings.json`` of its folder. For each tool call it runs the PreToolUse hooks, then the tool, which
appends one line to the effects file, then the PostToolUse hooks, and after each turn the PostToolBatch hooks. The
behaviour was copied from Claude Code 2.1.197:

- A hook is a child of ``/bin/sh -c COMMAND`` in a session of its own, with the JSON on stdin.
- The tool does not run after ``permissionDecision: "deny"`` or exit code 2, and then no PostToolUse follows. Any
  other failure of the hook, or its timeout, lets the tool run.
- A call that the agent's own permissions refuse (``--forbid N``) has a PreToolUse and no PostToolUse.
- Calls of one turn run one after the other, unless they only read (``--parallel``: all calls of a turn at once).
- A sub-agent has the session of its parent and an ``agent_id``. The outer call named Agent lasts as long as it.
- SIGTERM and SIGHUP end the agent after SessionEnd, but no hook and no tool that runs; SIGINT ends these too.
- SIGUSR1 is the Esc key: hooks and tools end, the transcripts say so and no hook does; the agent waits at its prompt.
- A call in flight when the agent is killed is forgotten: after ``--resume`` the agent makes it again.

The conversation is kept in ``.claude/fake/SESSION.jsonl`` of the folder, with the usage of each answer of the model:
one line per call, with the same message id for the calls of one turn.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 10}
"""The usage of each answer of the model."""


class Agent:
    """One run of the fake agent: its hooks, its calls and what it remembers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = Path.cwd()
        self.session = options.resume or options.session or str(uuid.uuid4())
        self.memory = self.folder / ".claude" / "fake" / f"{self.session}.jsonl"
        self.hooks = _hooks(self.folder)
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        """Hooks and tools; a list for SIGINT, which ends them."""
        self.background: list[tuple[str, str, subprocess.Popen[bytes]]] = []
        self.denied: list[dict[str, Any]] = []
        self.turns = 0
        self.working: list[dict[str, str]] = [{}]
        """The agent and its sub-agents that work now."""
        self.is_interrupted = False

    # -- the conversation

    def run(self) -> int:
        """Make all calls that have no result yet; return the exit code."""
        self.fire("SessionStart", source="resume" if self.options.resume else "startup")
        self.fire("UserPromptSubmit", prompt=self.options.prompt)
        done = self.remembered()
        todo = [name for name in self.names() if name not in done]
        if self.options.sub and todo:
            self.delegates([[name] for name in todo] if self.options.parallel else [todo])
        else:
            for turn in _turns(todo, self.options.turn or (len(todo) if self.options.parallel else 1)):
                self.turn(turn)
        self.conclude("All done.", self.tasks())
        self.linger()
        self.fire("SessionEnd", reason="other")
        return 0

    def conclude(self, text: str, tasks: list[dict[str, str]]) -> None:
        """End the turn with an answer, which the transcript has, too."""
        now = datetime.now(UTC).isoformat()
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        self.note({"type": "assistant", "timestamp": now, "message": message})
        self.fire("Stop", stop_hook_active=False, last_assistant_message=text, background_tasks=tasks)

    def names(self) -> list[str]:
        """Return the name of each call, which is also the line that it appends."""
        return [f"{self.options.name}-{number}" for number in range(1, self.options.calls + 1)]

    def delegates(self, parts: list[list[str]]) -> None:
        """Let a sub-agent make the calls of each part, all at once."""
        arguments = {"description": "sub work", "prompt": "Go.", "subagent_type": "general-purpose"}
        calls = [{"tool_name": "Agent", "tool_input": arguments, "tool_use_id": _id()} for _ in parts]
        self.answered(calls, {})
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(self.delegate, parts, calls))
        self.batch(calls, {})

    def delegate(self, todo: list[str], call: dict[str, Any]) -> None:
        """Make calls as a sub-agent, as the tool Agent does."""
        if not self.allowed(call, {}):
            return
        sub = {"agent_id": f"a{secrets.token_hex(8)}", "agent_type": "general-purpose"}
        self.working.append(sub)
        self.fire("SubagentStart", **sub)
        for name in todo:
            self.turn([name], sub)
        self.working.remove(sub)
        self.fire("SubagentStop", **sub, stop_hook_active=False, background_tasks=self.tasks())
        answer = {"status": "completed", "agentId": sub["agent_id"]}
        self.fire("PostToolUse", **call, tool_response=answer, duration_ms=1)

    def turn(self, names: list[str], sub: dict[str, str] | None = None) -> None:
        """Think, then make the calls of one turn."""
        time.sleep(self.options.think)
        who = sub or {}
        calls = [self.call(name) for name in names]
        self.answered(calls, who)
        with ThreadPoolExecutor(len(calls) if self.options.parallel else 1) as pool:
            list(pool.map(self.make, names, calls, [who] * len(calls)))
        self.batch(calls, who)

    def call(self, name: str) -> dict[str, Any]:
        """Return what the hooks see of a call."""
        command = self.options.command.replace("{name}", name)
        arguments: dict[str, Any] = {"command": command, "description": name}
        if self.options.background:
            arguments["run_in_background"] = True
        return {"tool_name": self.options.tool, "tool_input": arguments, "tool_use_id": _id()}

    def make(self, name: str, call: dict[str, Any], sub: dict[str, str]) -> None:
        """Ask the hooks, run the tool, tell the hooks."""
        if self.allowed(call, sub) and name != f"{self.options.name}-{self.options.forbid}":
            began = time.monotonic()
            code, answer = self.tool(name, call)
            spent = {"duration_ms": round((time.monotonic() - began) * 1000)}
            if code:
                self.fire("PostToolUseFailure", **call, **sub, **spent, error=f"Exit code {code}", is_interrupt=False)
            else:
                self.fire("PostToolUse", **call, **sub, **spent, tool_response=answer)
        self.note({"type": "user", "sessionId": self.session, "result": name})

    def batch(self, calls: list[dict[str, Any]], sub: dict[str, str]) -> None:
        self.fire("PostToolBatch", **sub, tool_calls=[{**call, "tool_response": ""} for call in calls])

    # -- the tool

    def tool(self, name: str, call: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Append the effect and run the command of the call; return its exit code and the answer."""
        self.rest_if_interrupted()
        with self.options.effects.open("a") as effects:
            effects.write(f"{name}\n")
        while self.options.hold is not None and not self.options.hold.exists():
            time.sleep(0.01)
        answer = {"stdout": "", "stderr": "", "interrupted": False}
        if not call["tool_input"]["command"]:
            time.sleep(self.options.work)
            return 0, answer
        command = ["/bin/sh", "-c", call["tool_input"]["command"]]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=self.options.own_session,
            process_group=None if self.options.own_session else 0,
        )
        if self.options.background:
            task = f"b{secrets.token_hex(4)}"
            self.background.append((task, call["tool_input"]["command"], process))
            return 0, {**answer, "backgroundTaskId": task}
        with self.tracked(process):
            return process.wait(), answer

    def tasks(self) -> list[dict[str, str]]:
        """Return the background tasks that still run, as Stop reports them."""
        return [
            {"id": task, "type": "shell", "status": "running", "command": command}
            for task, command, process in self.background
            if process.poll() is None
        ]

    def linger(self) -> None:
        """Wait a moment for background tasks, then end them."""
        until = time.monotonic() + self.options.linger
        for _, _, process in self.background:
            try:
                process.wait(max(until - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.terminate()

    # -- what is remembered

    def remembered(self) -> set[str]:
        """Return the calls that have a result."""
        lines = self.memory.read_text().splitlines() if self.memory.exists() else []
        return {line["result"] for line in map(json.loads, lines) if "result" in line}

    def answered(self, calls: list[dict[str, Any]], sub: dict[str, str]) -> None:
        """Note an answer of the model, with its usage: one line per call."""
        message = {"id": f"msg_{secrets.token_hex(12)}", "model": "fake", "usage": USAGE}
        for call in calls:
            content = [{"type": "tool_use", "id": call["tool_use_id"], "name": call["tool_name"]}]
            self.note({"type": "assistant", "isSidechain": bool(sub), "message": {**message, "content": content}}, sub)
        with self.lock:
            self.turns += 1

    def note(self, line: dict[str, Any], sub: dict[str, str] | None = None) -> None:
        """Append a line to the transcript of the session, or to that of a sub-agent."""
        file = self.memory
        if sub:
            file = self.memory.with_suffix("") / "subagents" / f"agent-{sub['agent_id']}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with self.lock, file.open("a") as transcript:
            transcript.write(json.dumps(line) + "\n")

    # -- the hooks

    def allowed(self, call: dict[str, Any], sub: dict[str, str]) -> bool:
        """Ask the PreToolUse hooks; refuse the call if one of them denies it."""
        for code, output in self.fire("PreToolUse", **call, **sub):
            if code == 2 or _decision(code, output) in ("deny", "ask"):
                self.denied.append(call)
                return False
        return True

    def fire(self, event: str, **more: Any) -> list[tuple[int | None, bytes]]:
        """Run all hooks of an event at once; return the exit code and output of each."""
        if event != "SessionEnd":
            self.rest_if_interrupted()
        known = {
            "session_id": self.session,
            "transcript_path": str(self.memory),
            "cwd": str(self.folder),
            "hook_event_name": event,
        }
        if event != "SessionStart":
            known["prompt_id"] = self.session
        if event not in ("SessionStart", "SubagentStart", "SessionEnd"):
            known["permission_mode"] = "default"
        data = json.dumps(known | more).encode()
        hooks = [hook for matcher, hook in self.hooks.get(event, []) if _fits(matcher, more.get("tool_name"))]
        with ThreadPoolExecutor(max(len(hooks), 1)) as pool:
            return list(pool.map(lambda hook: self.hook(hook, data), hooks))

    def hook(self, hook: dict[str, Any], data: bytes) -> tuple[int | None, bytes]:
        """Run one hook; the code is None if it did not end in time."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", hook["command"]],
            cwd=self.folder,
            env=os.environ | {"CLAUDECODE": "1", "CLAUDE_PROJECT_DIR": str(self.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with self.tracked(process):
            try:
                output, errors = process.communicate(data, timeout=hook.get("timeout", 600))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                process.communicate()
                return None, b""
        if process.returncode:
            sys.stderr.write(f"hook: exit code {process.returncode}: {errors.decode(errors='replace')}\n")
        return process.returncode, output

    def tracked(self, process: subprocess.Popen[bytes]) -> _Tracked:
        return _Tracked(self.running, process)

    # -- signals

    def interrupt(self, _number: int, _frame: object) -> None:
        """Do what the Esc key does, then wait for the end."""
        self.is_interrupted = True
        for process in list(self.running):
            os.killpg(process.pid, signal.SIGKILL)
        now = datetime.now(UTC).isoformat()
        content = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
        for sub in self.working:
            self.note({"type": "user", "timestamp": now, "message": {"role": "user", "content": content}}, sub)
        self.rest_if_interrupted()

    def rest_if_interrupted(self) -> None:
        """Let nothing more happen after an interruption."""
        while self.is_interrupted:
            time.sleep(60)

    def stop(self, number: int, _frame: object) -> None:
        """End as Claude Code does: after SessionEnd, without ending hooks and tools, except for SIGINT."""
        signal.signal(number, signal.SIG_IGN)
        if number == signal.SIGINT:
            for process in list(self.running):
                process.kill()
        self.fire("SessionEnd", reason="other")
        os._exit(0 if number == signal.SIGINT else 128 + number)


class _Tracked:
    """Keeps a process in the set of running ones while the block lasts."""

    def __init__(self, running: set[subprocess.Popen[bytes]], process: subprocess.Popen[bytes]) -> None:
        self.running, self.process = running, process

    def __enter__(self) -> None:
        self.running.add(self.process)

    def __exit__(self, *_: object) -> None:
        self.running.discard(self.process)


def _hooks(folder: Path) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return the hooks of each event, with their matchers."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for name in ("settings.json", "settings.local.json"):
        path = folder / ".claude" / name
        groups = json.loads(path.read_text()).get("hooks", {}) if path.exists() else {}
        for event, entries in groups.items():
            for entry in entries:
                found.setdefault(event, []).extend((entry.get("matcher", "*"), hook) for hook in entry["hooks"])
    return found


def _fits(matcher: str, tool: str | None) -> bool:
    return matcher in ("", "*") or tool is None or tool in matcher.split("|")


def _decision(code: int | None, output: bytes) -> str | None:
    """Return what a hook decided; a hook that failed or wrote no JSON decided nothing."""
    try:
        said = json.loads(output) if code == 0 and output.strip() else {}
        decision = said["hookSpecificOutput"]["permissionDecision"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(decision)


def _turns(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), max(size, 1))]


def _id() -> str:
    return f"toolu_{secrets.token_hex(12)}"


def options(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line; by default, of that of this process."""
    parser = argparse.ArgumentParser(description="A fake agent that calls the hooks of .claude/settings.json.")
    parser.add_argument("--calls", type=int, default=3, help="tool calls to make")
    parser.add_argument("--effects", type=Path, default=Path("effects.txt"), help="the file that gets a line per call")
    parser.add_argument("--name", default="call", help="the start of each line")
    parser.add_argument("--session", help="the session id (default: a new one)")
    parser.add_argument("--resume", help="the id of a session to continue")
    parser.add_argument("--prompt", default="Do the calls.")
    parser.add_argument("--think", type=float, default=0.0, help="seconds before each turn")
    parser.add_argument("--work", type=float, default=0.0, help="seconds that each call takes after its effect")
    parser.add_argument("--hold", type=Path, help="a file; each call lasts until it exists")
    parser.add_argument("--tool", default="Bash", help="the tool's name")
    parser.add_argument("--command", default="", help="a shell command for each call; {name} is its line")
    parser.add_argument("--turn", type=int, help="calls per turn (default: 1, with --parallel all)")
    parser.add_argument("--parallel", action="store_true", help="make all calls of a turn at once")
    parser.add_argument("--sub", action="store_true", help="a sub-agent makes the calls; with --parallel, one each")
    parser.add_argument("--background", action="store_true", help="run the commands in the background")
    parser.add_argument("--linger", type=float, default=5.0, help="seconds to wait for background commands at the end")
    parser.add_argument("--own-session", action="store_true", help="run the commands in sessions of their own")
    parser.add_argument("--forbid", type=int, default=0, help="the call that the agent's own permissions refuse")
    return parser.parse_args(words)


def main() -> int:
    agent = Agent(options())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, agent.stop)
    signal.signal(signal.SIGUSR1, agent.interrupt)
    code = agent.run()
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": agent.turns,
        "result": "All done.",
        "session_id": agent.session,
        "total_cost_usd": round(0.00075 * agent.turns, 6),
        "usage": {key: value * agent.turns for key, value in USAGE.items()},
        "permission_denials": agent.denied,
    }
    print(json.dumps(result))
    return code


if __name__ == "__main__":
    sys.exit(main())
