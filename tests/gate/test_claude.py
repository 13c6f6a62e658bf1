"""Claude Code itself: what the gate relies on, and that the fake agent behaves like it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gate.claude import Agents, Api, Call, bash, effect, result
from tests.support.loop import PATIENCE
from tests.support.waits import until

HERE = Path(__file__).parent
EVENTS = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "SessionEnd",
]

Record = dict[str, Any]


@pytest.fixture
def agents(agents: Agents, tmp_path: Path) -> Agents:
    """Agents whose hooks are written down."""
    agents.hooks(f'"{sys.executable}" -I -S "{HERE / "recorder.py"}" "{tmp_path / "log"}"', *EVENTS)
    return agents


def records(agents: Agents) -> list[Record]:
    log = agents.folder.parent / "log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


def fake(agents: Agents, *options: str) -> list[Record]:
    """Run the fake agent in the same project and return what its hooks got, without the beginning and the end."""
    before = len(records(agents))
    command = [sys.executable, "-I", str(HERE / "fake_agent.py"), *options]
    subprocess.run(command, cwd=agents.folder, check=True, capture_output=True, timeout=PATIENCE)
    return records(agents)[before:]


def shape(found: list[Record]) -> list[tuple[str, str, bool]]:
    """Return the events with their tool, and whether a sub-agent caused them."""
    return [(each["hook_event_name"], each.get("tool_name", ""), "agent_id" in each) for each in found]


@pytest.mark.long
def test_the_fake_agent_fires_the_hooks_that_claude_code_fires(api: Api, agents: Agents) -> None:
    api.plans["all"] = [
        [effect("plain")],
        [bash("exit 3")],
        [effect("refuse-me")],
        [Call("Write", {"file_path": "not-allowed", "content": "x"})],
        [effect("first"), effect("second")],
        [Call("Agent", {"description": "part", "prompt": "[plan part]", "subagent_type": "general-purpose"})],
    ]
    api.plans["part"] = [[effect("inner")]]
    answer = result(agents.start("[plan all] Go."))
    real = records(agents)
    assert agents.effects() == ["plain", "first", "second", "inner"]
    assert [each["tool_name"] for each in answer["permission_denials"]] == ["Bash", "Write"]
    assert answer["total_cost_usd"] > 0

    parts = [
        fake(agents, "--calls", "1"),
        fake(agents, "--calls", "1", "--command", "exit 3"),
        fake(agents, "--calls", "1", "--command", "refuse-me"),
        fake(agents, "--calls", "1", "--tool", "Write", "--forbid", "1"),
        fake(agents, "--calls", "2", "--turn", "2"),
        fake(agents, "--calls", "1", "--sub"),
    ]
    first, last = shape(parts[0])[:2], shape(parts[0])[-2:]
    assert shape(real) == first + [each for part in parts for each in shape(part)[2:-2]] + last

    # The fake one knows no key that the real one has not.
    for event in EVENTS:
        real_keys = {key for each in real if each["hook_event_name"] == event for key in each}
        fake_keys = {key for part in parts for each in part if each["hook_event_name"] == event for key in each}
        assert fake_keys <= real_keys, event
    needed = {"session_id", "transcript_path", "cwd", "tool_name", "tool_input", "tool_use_id"}
    assert all(needed <= each.keys() for each in real if each["hook_event_name"] == "PreToolUse")


@pytest.mark.long
def test_calls_that_only_read_and_sub_agents_come_to_their_hooks_at_the_same_time(api: Api, agents: Agents) -> None:
    sub = {"description": "part", "prompt": "[plan part]", "subagent_type": "general-purpose"}
    api.plans["all"] = [[Call("Read", {"file_path": "a"}), bash("ls"), Call("Agent", sub), Call("Agent", sub)]]
    api.plans["part"] = [[effect("inner")]]
    hold = agents.folder.parent / "log.hold"
    hold.touch()
    agent = agents.start("[plan all] Go.")
    until(lambda: len(waiting(agents)) == 4)
    assert agents.effects() == []
    assert len({each["sid"] for each in waiting(agents)}) == 4, "each hook has a session of its own"
    hold.unlink()
    result(agent)
    assert agents.effects() == ["inner", "inner"]


def waiting(agents: Agents) -> list[Record]:
    return [each for each in records(agents) if each["hook_event_name"] == "PreToolUse"]


@pytest.mark.long
def test_a_killed_session_is_resumed_with_the_call_that_waited(api: Api, agents: Agents) -> None:
    api.plans["all"] = [[effect("one")], [effect("two")], [effect("three")]]
    hold = agents.folder.parent / "log.hold"
    hold.write_text("echo two")
    agent = agents.start("[plan all] Go.")
    until(lambda: len(waiting(agents)) == 2)
    # Claude Code writes its transcript with a delay. Killed before that, it makes the first call again.
    transcript = Path(waiting(agents)[1]["transcript_path"])
    until(lambda: '"tool_result"' in transcript.read_text())
    agent.kill()
    agent.wait(PATIENCE)
    session = waiting(agents)[0]["session_id"]
    orphan = waiting(agents)[1]["hook"]
    os.kill(orphan, 0)  # Claude Code leaves its hooks behind: they have to notice it themselves
    hold.unlink()

    answer = result(agents.start("Continue.", "--resume", session))
    assert answer["session_id"] == session
    assert agents.effects() == ["one", "two", "three"]
    again = waiting(agents)[2]
    assert again["session_id"] == session
    assert again["tool_input"] == waiting(agents)[1]["tool_input"]
    assert again["tool_use_id"] != waiting(agents)[1]["tool_use_id"]
