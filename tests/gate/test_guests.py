"""Agents started by hand, as guest sessions: pause, resume, questions, cancellation, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from typing import Any

import pytest

from pausepoint import Context, Engine, Status
from pausepoint.gate import guests
from pausepoint.model.views import SessionInfo
from pausepoint.runtime.visit import Visit
from tests.gate.kit import COMMAND, Project, ended, said_to
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import async_until

SIX = [f"agent{n}" for n in range(6)]


async def by_name(engine: Engine) -> dict[str, SessionInfo]:
    return {info.session_id.removeprefix("claude-"): info for info in await engine.sessions()}


async def statuses(engine: Engine) -> dict[str, str]:
    return {name: info.status.value for name, info in (await by_name(engine)).items()}


async def refused(project: Project, session: str, **arguments: str) -> str:
    """Let the hook ask about a call, and return why it is refused."""
    code, said = await project.call_hook("PreToolUse", session, tool_name="Bash", tool_use_id="t", tool_input=arguments)
    found = said["hookSpecificOutput"]
    assert (code, found["permissionDecision"]) == (0, "deny")
    return str(found["permissionDecisionReason"])


def all_once(names: list[str], calls: int) -> dict[str, int]:
    return {f"{name}-{n}": 1 for name in names for n in range(1, calls + 1)}


@on_loop
async def test_an_agent_whose_model_has_reached_its_limit_is_at_rest(project: Project) -> None:
    async with project.served() as (engine, agents):
        await project.call_hook("UserPromptSubmit", "ada", prompt="Go.")
        (gate,) = agents
        lines: list[str] = []
        gate.say = lines.append
        await project.call_hook("StopFailure", "ada", error="rate_limit")
        assert lines == ["was stopped by its model: rate_limit", "rests"]
        async with asyncio.timeout(PATIENCE):
            await engine.pause_all(wait=True)


@pytest.mark.long
@on_loop
async def test_six_agents_stop_at_one_pause_and_each_call_is_made_once(project: Project) -> None:
    async with project.served() as (engine, agents):
        running = [await project.agent(name, "--calls", "5", "--hold", "go") for name in SIX]
        await project.paused_in_flight(engine.pause_all, len(SIX), reason="lunch", by="ann")
        made = project.done
        assert set((await statuses(engine)).values()) <= {"paused", "completed"}
        await async_until(lambda: all(gate.waiting for gate in agents))
        assert project.done == made, "no call began after the pause had returned"
        assert all(gate.why == "paused: lunch (by ann)" for gate in agents)
        await engine.lift_pause(by="ann")
        await ended(running)
        assert project.done == all_once(SIX, 5)
        await async_until(lambda: not list(agents))
        assert await statuses(engine) == dict.fromkeys(SIX, "completed")


@pytest.mark.long
@on_loop
async def test_a_paused_session_shows_the_call_that_waits(project: Project) -> None:
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "3", "--hold", "go")
        await project.paused_in_flight(engine.session("claude-ada").pause)
        await async_until(lambda: any(gate.waiting for gate in agents))
        [gate] = agents
        assert [(call.name, call.arguments["description"]) for call in gate.pending] == [
            ("Bash", gate.waiting[0].said[6:])
        ]
        calls = [event async for event in engine.session("claude-ada").events() if event.event_type == "agent.call"]
        assert calls[-1].data["id"] == gate.waiting[0].id
        await engine.session("claude-ada").resume()
        await ended([running])
        assert project.done == all_once(["ada"], 3)


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [["--parallel"], ["--sub"], ["--sub", "--parallel"], ["--forbid", "2"]], ids=" ".join
)
@on_loop
async def test_a_pause_stops_any_kind_of_agent(project: Project, options: list[str]) -> None:
    """Calls at once, sub-agents, and a call that the agent's own rules refuse, whose end is not reported."""
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "6", "--turn", "3", "--hold", "go", *options)
        await project.paused_in_flight(engine.pause_all)
        made = project.done
        await async_until(lambda: all(gate.waiting for gate in agents))
        assert project.done == made
        await engine.lift_pause()
        await ended([running])
        forbidden = {"ada-2"} if "--forbid" in options else set()
        assert project.done == {name: 1 for name in all_once(["ada"], 6) if name not in forbidden}


@pytest.mark.long
@on_loop
async def test_a_restricted_call_waits_for_a_person_and_the_other_agent_goes_on(project: Project) -> None:
    async with project.served("git push") as (engine, _):
        asks = await project.agent("ada", "--calls", "1", "--command", ": git push {name}")
        bob = asyncio.create_task(refused(project, "bob", command="git push -f"))
        free = await project.agent("eve", "--calls", "2")
        await ended([free])
        await async_until(lambda: _count(engine, 2))
        ada, no = sorted(await engine.questions(), key=lambda each: each.session_id)
        assert "git push ada-1" in ada.next_question
        assert "restricted (git push)" in ada.next_question
        await async_until(lambda: _is(engine, "ada", "waiting"))
        await engine.answer(ada.id, {"approved": True}, by="ann")
        await engine.answer(no.id, {"approved": False, "reason": "not on a Friday"}, by="ann")
        await ended([asks])
        assert project.done == {"ada-1": 1, "eve-1": 1, "eve-2": 1}
        assert "not on a Friday" in await bob


@pytest.mark.long
@on_loop
async def test_a_command_that_is_too_long_to_be_checked_needs_an_approval(project: Project) -> None:
    """Its end is cut off, and could be restricted."""
    long = "true " * 110_000 + "&& git push"
    async with project.served("git push") as (engine, _):
        said = asyncio.create_task(refused(project, "ada", command=long))
        await async_until(lambda: _count(engine, 1))
        [question] = await engine.questions()
        assert "it is too long to be checked" in question.next_question
        await engine.answer(question.id, {"approved": False, "reason": "no"}, by="ann")
        assert "A person refused it: no" in await said
    async with project.served() as (_, _agents):
        given = {"tool_name": "Bash", "tool_use_id": "u", "tool_input": {"command": long}}
        assert await project.call_hook("PreToolUse", "bob", **given) == (0, None)


async def _count(engine: Engine, count: int) -> bool:
    return len(await engine.questions()) == count


@pytest.mark.long
@on_loop
async def test_a_cancelled_agent_is_refused_every_further_call(project: Project) -> None:
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "12", "--hold", "go")
        await async_until(lambda: len(project.done) == 1)
        await engine.session("claude-ada").cancel(by="ann")
        (project.folder / "go").touch()
        await async_until(lambda: all(gate.is_closed for gate in agents))
        made = project.done
        await ended([running])
        assert project.done == made
        assert "was cancelled by a person" in await refused(project, "ada")
        call = {"tool_name": "Bash", "tool_use_id": "t2", "tool_input": {"command": "make"}}
        _, said = await project.call_hook("PreToolUse", "ada", **call)
        assert said["continue"] is False, "it does not try one call after the other"
        assert "was cancelled by a person" in said["stopReason"]


@pytest.mark.long
@on_loop
async def test_an_agent_that_is_killed_has_failed_and_can_continue(project: Project) -> None:
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "4", "--hold", "go")
        await project.paused_in_flight(engine.session("claude-ada").pause)
        await async_until(lambda: any(gate.waiting for gate in agents))
        running.send_signal(signal.SIGKILL)
        await running.wait()
        await async_until(lambda: not any(gate.waiting for gate in agents))  # its hook has gone with it
        await engine.session("claude-ada").resume()
        await async_until(lambda: not list(agents))
        info = await engine.session("claude-ada").info()
        assert (info.status, info.failure and info.failure.type) == (Status.FAILED, "AgentGone")
        await ended([await project.agent("ada", "--calls", "4", "--resume", "ada")])
        assert project.done == all_once(["ada"], 4)
        await async_until(lambda: not list(agents))
        assert await statuses(engine) == {"ada": "completed"}


@pytest.mark.long
@on_loop
async def test_an_agent_that_begins_again_after_its_end_gets_another_session(project: Project) -> None:
    async with project.served() as (engine, agents):
        for _ in range(2):
            await ended([await project.agent("ada", "--calls", "1")])
            await async_until(lambda: not list(agents))
        assert await statuses(engine) == {"ada": "completed", "ada-2": "completed"}


@pytest.mark.long
@on_loop
async def test_tokens_of_the_transcript_are_counted_once(project: Project) -> None:
    async with project.served() as (engine, agents):
        await ended([await project.agent("ada", "--calls", "3", "--turn", "1")])
        await async_until(lambda: not list(agents))
        spent = (await engine.session("claude-ada").info()).spent_tokens
        assert spent > 0
        assert spent % 110 == 0


@on_loop
async def test_a_spent_budget_holds_the_next_call(project: Project) -> None:
    async with project.served() as (engine, _):
        await project.call_hook("SessionStart", "ada")
        await async_until(lambda: _is(engine, "ada", "ready"))
        await engine.session("claude-ada").pause()
        await engine.session("claude-ada").resume(budget=0.5)
        message = {"v": 1, "event": "spend", "agent": {"kind": "claude", "session": "ada"}, "usd": 0.75, "tokens": 9}
        assert await said_to(project.socket, message) == {"do": "ok"}
        await async_until(lambda: _spent(engine, "claude-ada", 9))
        asks = asyncio.create_task(
            project.call_hook("PreToolUse", "ada", tool_name="Bash", tool_use_id="t", tool_input={"command": "make"})
        )
        await async_until(lambda: _is(engine, "ada", "paused"))
        [pause] = await engine.session("claude-ada").pauses()
        assert pause.kind == "budget"
        await engine.session("claude-ada").resume(budget=2)
        assert await asks == (0, None)


async def _is(engine: Engine, name: str, status: str) -> bool:
    return (await statuses(engine)).get(name) == status


async def _spent(engine: Engine, session_id: str, tokens: int) -> bool:
    return (await engine.session(session_id).info()).spent_tokens == tokens


@pytest.mark.long
@on_loop
async def test_agents_whose_sessions_begin_alike_get_sessions_of_their_own(project: Project) -> None:
    names = [f"019a8f3c-{number}" for number in range(4)]
    async with project.served() as (engine, _):
        await ended([await project.agent(name, "--calls", "1") for name in names])
        await async_until(lambda: all_completed(engine, len(names)))
    assert project.done == {f"{name}-1": 1 for name in names}


async def all_completed(engine: Engine, number: int) -> bool:
    found = await engine.sessions()
    return len(found) == number and {info.status.value for info in found} == {"completed"}


@on_loop
async def test_a_question_about_a_call_that_was_withdrawn_does_not_hold_the_agent(project: Project) -> None:
    async with project.served("git push") as (engine, _):
        facts = {"kind": "claude", "session": "s"}
        call = {"id": "one", "name": "Bash", "arguments": {"command": "git push"}}
        reader, writer = await asyncio.open_unix_connection(str(project.socket))
        writer.write(json.dumps({"v": 1, "event": "before", "agent": facts, "call": call}).encode() + b"\n")
        await async_until(lambda: is_asking(engine))
        assert b"approval" in await reader.readline()
        writer.close()  # the hook was killed
        other = {"id": "two", "name": "Read", "arguments": {}}
        said = await said_to(project.socket, {"v": 1, "event": "before", "agent": facts, "call": other})
        assert said == {"do": "run"}
        assert not await is_asking(engine)


@pytest.mark.parametrize(("place", "method"), [(Context, "commit"), (Visit, "admit")], ids=["noted", "admitted"])
@on_loop
async def test_a_call_whose_hook_goes_at_the_last_moment_does_not_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, place: type, method: str
) -> None:
    wait, said = getattr(place, method), list[str]()

    async def waits_until_the_hook_has_gone(*args: Any) -> None:
        await wait(*args)
        [gate] = agents
        gate.say = said.append
        writer.close()
        await async_until(lambda: not gate.calls)

    async with project.served() as (engine, agents):
        call = {"id": "one", "name": "Bash", "arguments": {"command": "make"}}
        _, writer = await asyncio.open_unix_connection(str(project.socket))
        monkeypatch.setattr(place, method, waits_until_the_hook_has_gone)
        writer.write(json.dumps({"v": 1, "event": "before", "agent": facts(1), "call": call}).encode() + b"\n")
        await async_until(writer.is_closing)
        for event in ("stop", "end"):
            await said_to(project.socket, {"v": 1, "event": event, "agent": facts(1)})
        await async_until(lambda: have_statuses(engine, {"s": "completed"}))
        assert not [line for line in said if line.startswith("runs")]
        assert (await engine.session("claude-s").info()).spent_operations == (0 if place is Context else 1)


async def is_asking(engine: Engine) -> bool:
    return bool(await engine.questions())


@on_loop
async def test_a_hook_with_another_parent_does_not_hide_that_the_agent_has_gone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "LOOK_EVERY", 0.01)
    agent = subprocess.Popen(["sleep", "1000"])
    async with project.served() as (engine, _):
        for event in ("start", "prompt"):
            await said_to(project.socket, {"v": 1, "event": event, "agent": facts(agent.pid)})
        report = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "Bash", "cwd": str(project.folder)}
        (project.folder / "report.json").write_text(json.dumps(report))
        orphan = f"(while kill -0 $$ 2> {os.devnull}; do sleep 0.01; done; {COMMAND} < report.json; touch told) &"
        subprocess.run(["sh", "-c", orphan], cwd=project.folder, check=True)
        await async_until((project.folder / "told").exists)
        await async_until(lambda: have_statuses(engine, {"s": "running"}))
        agent.kill()
        agent.wait()
        await async_until(lambda: have_statuses(engine, {"s": "failed"}))


@pytest.mark.parametrize("event", ["after", "stop", "end"])
@on_loop
async def test_a_hook_that_reports_after_the_end_begins_no_session(project: Project, event: str) -> None:
    async with project.served() as (engine, agents):
        await said_to(project.socket, {"v": 1, "event": "start", "agent": facts(1)})
        for report in ("end", event):
            await said_to(project.socket, {"v": 1, "event": report, "agent": facts(1)})
            await async_until(lambda: not list(agents))
        assert await statuses(engine) == {"s": "completed"}


def facts(pid: int) -> dict[str, object]:
    return {"kind": "claude", "session": "s", "pid": pid}


async def have_statuses(engine: Engine, expected: dict[str, str]) -> bool:
    return await statuses(engine) == expected
