"""Commands that an agent has left running, and calls that wait at its own prompt."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from pausepoint.gate.guests import agent_note
from tests.gate.kit import Project, said_to
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import async_until


@pytest.mark.long
@on_loop
async def test_a_command_in_the_background_is_listed_as_still_running(project: Project) -> None:
    async with project.served() as (engine, agents):
        options = ["--calls", "30", "--background", "--command", "sleep 61.7", "--linger", "0", "--think", "0.3"]
        agent = await project.agent("ada", *options)
        try:
            await async_until(lambda: any(_runs(pid, b"sleep\x0061.7") for pid in _processes()))
            await engine.session("claude-ada").pause(wait=True)
            await async_until(lambda: any(gate.waiting for gate in agents))
            async with asyncio.timeout(PATIENCE):
                while not (found := await agent_note(engine, await engine.session("claude-ada").info())).background:
                    await asyncio.sleep(0.01)
            assert "sleep 61.7 (process " in found.background
            assert found.call == "Bash: sleep 61.7", "the next call waits"
        finally:
            agent.kill()
            for pid in _processes():
                if _runs(pid, b"sleep\x0061.7"):
                    os.kill(pid, signal.SIGKILL)
            await agent.wait()


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _runs(pid: int, command: bytes) -> bool:
    try:
        return command in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.long
@on_loop
async def test_a_call_at_the_agent_s_own_prompt_counts_as_in_flight(project: Project) -> None:
    """Its person may say yes at any time, so a pause must not say that everything has stopped."""
    agent = {"kind": "claude", "session": "ada", "pid": os.getppid()}
    call = {"id": "t", "name": "Edit", "arguments": {"file_path": "a.txt"}}
    async with project.served() as (engine, agents):
        await said_to(project.socket, {"v": 1, "event": "before", "agent": agent, "call": call})
        await said_to(project.socket, {"v": 1, "event": "asks", "agent": agent, "call": {"name": "Edit"}})
        found = await engine.session("claude-ada").pause(wait=True, timeout=0.5)
        assert [each.operations for each in found.working] == [("Edit",)]
        [gate] = agents
        assert [call.asks for call in gate.in_flight] == [True]
        await said_to(project.socket, {"v": 1, "event": "stop", "agent": agent})
        await engine.session("claude-ada").pause(wait=True)
