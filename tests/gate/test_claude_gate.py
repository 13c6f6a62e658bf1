"""Claude Code at the gate: pause, resume, restricted commands, a kill, and what its person does in the window."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pausepoint import Engine
from tests.gate.claude import Agents, Api, Call, Window, bash, effect, result
from tests.gate.kit import Project
from tests.support.loop import PATIENCE, excused, on_loop
from tests.support.waits import async_until

CALLS = 4
ESC, ENTER, EMPTY = "\x1b", "\r", "\x15"


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait for a condition. The agents are heavy programs, so each wait has a limit of its own."""
    with excused():
        await async_until(condition)


async def finished(*running: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for agents and return their results."""
    with excused():
        return list(await asyncio.gather(*(asyncio.to_thread(result, each) for each in running)))


async def is_completed(engine: Engine) -> bool:
    return {info.status.value for info in await engine.sessions()} == {"completed"}


@pytest.mark.long
@on_loop
async def test_three_agents_stop_at_one_pause_and_each_call_is_made_once(
    api: Api, agents: Agents, project: Project
) -> None:
    names = ["ada", "bob", "eve"]
    for name in names:
        api.plans[name] = [[effect(f"{name}-{n}")] for n in range(CALLS)]
    async with project.served() as (engine, gates):
        running = [agents.start(f"[plan {name}] Go.") for name in names]
        await until(lambda: len(project.done) >= 3)
        pressed = project.done.total()
        await engine.pause_all(reason="lunch", by="ann", wait=True)
        made = project.done
        assert made.total() <= pressed + len(names), "only calls in flight were completed"
        await until(lambda: len(list(gates)) == 3 and all(gate.waiting for gate in gates))
        assert project.done == made, "no call began after the pause had returned"
        assert made.total() < len(names) * CALLS, "the pause came too late to prove anything"
        assert all(each.poll() is None for each in running)

        await engine.lift_pause(by="ann")
        results = await finished(*running)
        assert project.done == Counter(f"{name}-{n}" for name in names for n in range(CALLS))
        await until(lambda: is_completed(engine))
        spent = {info.session_id: info.spent_tokens for info in await engine.sessions()}
        assert spent == {f"claude-{str(each['session_id'])[:8]}": 110 * (CALLS + 1) for each in results}


@pytest.mark.long
@on_loop
async def test_a_restricted_command_needs_a_yes_and_needs_no_other_permission(
    api: Api, agents: Agents, project: Project, tmp_path: Path
) -> None:
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\n[ "$1" = push ] && echo "pushed-$2" >> effects.txt\n')
    stub.chmod(0o755)
    agents.environ["PATH"] = f"{stub.parent}:{agents.environ['PATH']}"
    api.plans["push"] = [[bash("git push home")], [bash("git push away")], [Call("Read", {"file_path": "effects.txt"})]]
    async with project.served("git push") as (engine, _):
        running = agents.start("[plan push] Go.", tools="Read")
        await engine.answer(await question(engine, "git push home"), {"approved": True}, by="ann")
        no = {"approved": False, "reason": "not on a Friday"}
        await engine.answer(await question(engine, "git push away"), no, by="ann")
        [found] = await finished(running)
        assert project.done == {"pushed-home": 1}
        assert "not on a Friday" in str(api.asked[-1]["messages"])
        assert [each["tool_input"]["command"] for each in found["permission_denials"]] == ["git push away"]


async def question(engine: Engine, command: str) -> str:
    """Wait for the question about a command and return its id."""
    found: list[str] = []

    async def is_asked() -> bool:
        found[:] = [each.id for each in await engine.questions() if command in (each.next_question or "")]
        return bool(found)

    await until(is_asked)
    return found[0]


@pytest.mark.long
@on_loop
async def test_a_killed_agent_continues_in_its_session_without_repeating_a_call(
    api: Api, agents: Agents, project: Project
) -> None:
    api.plans["ada"] = [[effect(f"ada-{n}")] for n in range(4)]
    session = str(uuid4())
    async with project.served() as (engine, gates):
        first = agents.start("[plan ada] Go.", "--session-id", session)
        await until(lambda: len(project.done) >= 1)
        await engine.pause_all(wait=True)
        await until(lambda: any(gate.waiting for gate in gates))
        # Claude Code writes its transcript with a delay. Killed before that, it makes the first call again.
        await until(lambda: agents.transcript(session).count('"tool_result"') == project.done.total())
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        await until(lambda: not any(gate.waiting for gate in gates))  # its hook has ended, too
        made = project.done
        await engine.lift_pause()
        await until(lambda: not list(gates))
        assert project.done == made, "the call that waited was not made"
        assert (await engine.session(f"claude-{session[:8]}").info()).status.value == "failed"

        [found] = await finished(agents.start("Continue.", "--resume", session))
        assert found["session_id"] == session
        assert project.done == Counter(f"ada-{n}" for n in range(4))
        await until(lambda: is_completed(engine))
        assert [info.session_id for info in await engine.sessions()] == [f"claude-{session[:8]}"]


@pytest.mark.long
@on_loop
async def test_a_call_that_a_person_interrupts_in_the_window_is_over(
    api: Api, agents: Agents, project: Project
) -> None:
    api.plans["ada"] = [[bash("echo begun >> effects.txt; sleep 100; echo ended >> effects.txt")], [effect("next")]]
    async with project.served() as (engine, gates):
        window = agents.open_window()
        await until(lambda: bool(list(gates)))  # its session has begun
        await typed(window, "[plan ada] Go.", lambda: has_begun(engine))
        await until(lambda: "begun" in project.done)
        window.press(ESC)
        with excused():
            await engine.pause_all(wait=True)
        await typed(window, "Next.", lambda: any(gate.waiting for gate in gates))
        assert project.done == {"begun": 1}
        await engine.lift_pause()
        await until(lambda: "next" in project.done)
        with excused():
            await asyncio.to_thread(window.close)
        await until(lambda: is_over(engine))
        assert project.done == {"begun": 1, "next": 1}


async def is_over(engine: Engine) -> bool:
    """A window that is closed gives its last hook little time. Without it, the agent counts as killed."""
    return {info.status.value for info in await engine.sessions()} <= {"completed", "failed"}


async def typed(window: Window, text: str, has_effect: Callable[[], Awaitable[bool] | bool]) -> None:
    """Type a prompt until it has an effect: a window that has just opened, or was interrupted, swallows keys."""
    limit = asyncio.get_running_loop().time() + PATIENCE
    while True:
        window.press(EMPTY + text)
        await asyncio.sleep(0.5)  # text and Enter in one go would be taken for something pasted
        window.press(ENTER)
        with suppress(TimeoutError), excused():
            await asyncio.wait_for(async_until(has_effect), PATIENCE / 48)
            return
        assert asyncio.get_running_loop().time() < limit, "the window took no prompt"


async def has_begun(engine: Engine) -> bool:
    return "running" in {info.status.value for info in await engine.sessions()}
