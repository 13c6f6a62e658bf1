"""The hook: what it does without a server, when the server goes away, when the agent goes away, and with bad input."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pausepoint.integrations.gate as hook
from pausepoint import Engine
from pausepoint.errors import GateRefused
from pausepoint.gate.gates import Gate
from pausepoint.gate.reports import Report
from pausepoint.gate.sockets import GateSocket
from tests.gate.kit import HOOKS, Project, called, said_to
from tests.stores.kit import LOCKER, process
from tests.support.loop import on_loop
from tests.support.waits import async_until

CALL: dict[str, Any] = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "make"}}


def denied(said: Any) -> str:
    found = said["hookSpecificOutput"]
    assert found["permissionDecision"] == "deny"
    return str(found["permissionDecisionReason"])


@pytest.mark.long
@on_loop
async def test_without_a_server_calls_run_until_everything_is_paused(project: Project) -> None:
    assert await project.call_hook("PreToolUse", **CALL) == (0, None)
    async with Engine(project.store) as engine:
        await engine.pause_all(reason="lunch", by="ann")
        waits = asyncio.create_task(project.call_hook("PreToolUse", **CALL))
        flag = Path(f"{project.store}-paused")
        assert json.loads(flag.read_text())["reason"] == "lunch"
        assert await project.call_hook("Stop") == (0, None), "what needs no answer does not wait"
        await asyncio.sleep(1)
        assert not waits.done()
        await engine.lift_pause()
        assert await waits == (0, None)
        assert not flag.exists()


@on_loop
async def test_a_flag_that_a_killed_process_left_is_removed_when_the_store_is_opened(project: Project) -> None:
    flag = Path(f"{project.store}-paused")
    async with Engine(project.store) as engine:
        await engine.pause_all()
    async with Engine(project.store) as engine:
        assert flag.exists()
        await engine.lift_pause()
    flag.write_text("{}")
    async with Engine(project.store):
        assert not flag.exists()


@pytest.mark.long
@on_loop
async def test_a_served_gate_holds_calls_before_the_pause_can_be_stored(project: Project) -> None:
    async with project.served() as (engine, agents):
        await project.call_hook("SessionStart")
        await async_until(lambda: _exists(engine, "claude-s"))
        async with Engine(project.store, drives="none") as other:
            with process(LOCKER, project.store) as locker:
                pausing = asyncio.create_task(other.pause_all())
                await async_until(Path(f"{project.store}-paused").exists)
                waits = asyncio.create_task(project.call_hook("PreToolUse", **CALL))
                await async_until(lambda: any(gate.waiting for gate in agents))
                assert not pausing.done()
                locker.send()
                await pausing
            assert not waits.done()
            await other.lift_pause()
            assert await waits == (0, None)


@on_loop
async def test_the_start_of_a_session_says_once_that_no_server_runs(project: Project, closed: Project) -> None:
    _, said = await project.call_hook("SessionStart")
    assert "calls run unless everything is paused. Start it:  pausepoint gate serve" in said["systemMessage"]
    _, said = await closed.call_hook("SessionStart")
    assert "tool calls are refused" in said["systemMessage"]


@pytest.mark.long
@on_loop
async def test_a_closed_gate_refuses_calls_without_a_server(closed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "PATIENCE", 0.1)
    place = hook.find({}, str(closed.folder))
    assert place is not None
    found = await asyncio.to_thread(hook.before, place, {"event": "before"})
    assert "has no server" in denied(hook.decision(found, "claude"))


@pytest.mark.long
@on_loop
async def test_a_call_that_waits_finds_the_next_server(project: Project) -> None:
    async with project.served() as (engine, agents):
        await project.call_hook("SessionStart")
        await async_until(lambda: _exists(engine, "claude-s"))
        await engine.session("claude-s").pause()
        waits = asyncio.create_task(project.call_hook("PreToolUse", **CALL))
        await async_until(lambda: any(gate.waiting for gate in agents))
    async with project.served() as (engine, agents):
        await async_until(lambda: any(gate.waiting for gate in agents))
        assert not waits.done()
        await engine.session("claude-s").resume()
        assert await waits == (0, None)


async def _exists(engine: Engine, session_id: str) -> bool:
    return session_id in {info.session_id for info in await engine.sessions()}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@on_loop
async def test_a_hook_ends_with_its_agent(project: Project, number: signal.Signals) -> None:
    async with project.served() as (engine, agents):
        await engine.pause_all()
        agent = await project.agent("ada", "--calls", "1")
        await async_until(lambda: any(gate.waiting for gate in agents))
        hooks = _processes(str(project.folder), hook.__file__)
        assert hooks
        agent.send_signal(number)
        await async_until(lambda: not any(Path(f"/proc/{pid}").exists() and _is_alive(pid) for pid in hooks))
        await agent.wait()
        await async_until(lambda: not any(gate.waiting for gate in agents))


def _processes(folder: str, word: str) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and os.readlink(each / "cwd") == folder and word in (each / "cmdline").read_text():
                found.append(int(each.name))
        except OSError:
            continue
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_call_is_refused_before_the_agent_would_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "flag"
    flag.write_text(json.dumps({"reason": "lunch", "by": "ann", "at": 0}))
    monkeypatch.setattr(hook, "DEADLINE", 0.1)
    monkeypatch.setattr(hook, "LOOK_EVERY", 0.02)
    found = hook.before(hook.GatePlace(str(tmp_path / "none.sock"), str(flag)), {"event": "before"})
    assert found["do"] == "refuse"
    assert "everything is paused: lunch (ann)" in found["reason"]


# bad input

BAD = [b"", b"{", b"[]", b"null", b'{"hook_event_name": 7}', b"\xff\xfe", b'{"a": ' + b"[" * 100_000]


@pytest.mark.parametrize("given", BAD, ids=range(len(BAD)))
@on_loop
async def test_a_hook_with_unreadable_input_fails_and_says_so(given: bytes) -> None:
    code, said = await called(given)
    assert (code, said) == ((0, None) if given == BAD[4] else (1, None))


@pytest.mark.long
@on_loop
async def test_a_failed_hook_refuses_the_call_where_the_gate_is_closed(closed: Project) -> None:
    """The settings end with exit code 2 there, which is what agents understand."""
    (closed.folder / ".pausepoint" / "gate.json").write_text("{broken")
    agent = await closed.agent("ada", "--calls", "2")
    await agent.communicate()
    assert not closed.done


HOSTILE = {
    "no JSON": b"hello\n",
    "another version": b'{"v": 2, "event": "before", "agent": {"kind": "claude", "session": "a"}}\n',
    "no agent": b'{"v": 1, "event": "before"}\n',
    "a path as session": b'{"v": 1, "event": "before", "agent": {"kind": "claude", "session": "../../etc"}}\n',
    "an empty session": b'{"v": 1, "event": "before", "agent": {"kind": "claude", "session": ""}}\n',
    "an odd kind": b'{"v": 1, "event": "before", "agent": {"kind": "Claude Code", "session": "a"}}\n',
    "a negative cost": b'{"v": 1, "event": "spend", "agent": {"kind": "claude", "session": "a"}, "usd": -1}\n',
    "infinity": b'{"v": 1, "event": "spend", "agent": {"kind": "claude", "session": "a"}, "usd": 1e999}\n',
    "another event": b'{"v": 1, "event": "pwn", "agent": {"kind": "claude", "session": "a"}}\n',
    "a deep value": b'{"v": 1, "event": "before", "agent": {"kind": "claude", "session": "a"}, "call": {"arguments": '
    + b'{"a": ' * 5000 + b"1" + b"}" * 5002 + b"\n",
}  # fmt: skip


@on_loop
async def test_hostile_reports_are_refused_and_leave_nothing_behind(project: Project) -> None:
    async with project.served() as (engine, agents):
        for what, line in HOSTILE.items():
            found = await said_to(project.socket, line)
            assert found["do"] == "refuse", what
            assert found["reason"].startswith("The gate refuses this report: "), what
        with suppress(ConnectionError):  # the server stops reading such a line early
            assert (await said_to(project.socket, b"a" * (1 << 22)))["do"] == "refuse"
        _, writer = await asyncio.open_unix_connection(str(project.socket))  # says nothing, and goes
        writer.close()
        assert not list(agents)
        assert not await engine.sessions()
        assert await project.call_hook("SessionStart") == (0, None)
        assert project.socket.stat().st_mode & 0o777 == 0o600


@on_loop
async def test_long_arguments_are_cut_and_named_by_their_hash(project: Project) -> None:
    async with project.served() as (engine, agents):
        content = "x" * 3_000_000
        given = {"file_path": "a.txt", "content": content}
        await project.call_hook("PreToolUse", tool_name="Write", tool_use_id="t", tool_input=given)
        [gate] = agents
        [call] = gate.in_flight
        assert "bytes are missing here. SHA-256 of all 3,000,000 bytes: " in call.arguments["content"]
        assert call.missing["content"] == (3_000_000 - 16_384, hashlib.sha256(content.encode()).hexdigest())
        assert len(call.arguments["content"]) < 17_000
        assert call.said == "Write: a.txt"
        [event] = [each async for each in engine.session("claude-s").events() if each.event_type == "agent.call"]
        assert len(event.data["arguments"]["content"]) < 2_100


@on_loop
async def test_an_agent_that_has_the_hook_twice_or_repeats_an_id_gets_every_answer(project: Project) -> None:
    given = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "make"}}
    async with project.served() as (engine, agents):
        await engine.pause_all()
        both = [asyncio.create_task(project.call_hook("PreToolUse", "ada", **given)) for _ in range(2)]
        await async_until(lambda: [len(gate.waiting) for gate in agents] == [1])
        await engine.lift_pause()
        assert await asyncio.gather(*both) == [(0, None)] * 2
        for _ in range(2):
            await project.call_hook("PostToolUse", "ada", **given)
            await async_until(lambda: not any(gate.calls for gate in agents))
            assert await project.call_hook("PreToolUse", "ada", **given) == (0, None)


@on_loop
async def test_a_second_server_at_the_same_gate_is_refused(project: Project) -> None:
    async with project.served():
        with pytest.raises(GateRefused, match="Another process serves the gate"):
            async with project.served():
                pass
    assert not project.socket.exists()
    project.socket.write_text("")
    with pytest.raises(GateRefused, match="is not a socket"):
        async with project.served():
            pass


@pytest.mark.parametrize(("kind", "stops"), [("claude", True), ("codex", False)])
def test_an_agent_that_would_be_refused_every_call_is_stopped_if_it_can_be(kind: str, stops: bool) -> None:
    refusal = {"do": "refuse", "reason": "It was cancelled."}
    assert hook.decision(refusal, kind) == hook.decision(refusal | {"stop": False}, kind)
    said = hook.decision(refusal | {"stop": True}, kind)
    assert denied(said) == "It was cancelled."
    assert said is not None
    assert (said.get("continue"), said.get("stopReason")) == ((False, "It was cancelled.") if stops else (None, None))


# what the agent's window says


def held_call(project: Project) -> dict[str, Any]:
    return {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": str(project.folder), **CALL}


@on_loop
async def test_the_window_says_what_a_call_has_waited_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "HELD_LONG", 0.0)
    place, message = hook.find({}, str(project.folder)), hook.report(held_call(project), "claude", None, 1)
    assert place is not None
    assert message is not None
    async with project.served() as (engine, agents):
        await engine.pause_all(reason="lunch", by="ann")
        waits = asyncio.create_task(asyncio.to_thread(hook.before, place, message))
        await async_until(lambda: any(gate.why and gate.waiting for gate in agents))
        await engine.lift_pause()
        answer = await waits
    told = r'{"systemMessage": "Pausepoint\'s gate held this call for \d+ s: paused: lunch \(by ann\)"}'
    assert re.fullmatch(told, hook.printed(answer, "claude"))
    assert hook.printed(answer, "codex") == ""
    approved = json.loads(hook.printed({**answer, "approved": True}, "claude"))
    assert approved.keys() == {"hookSpecificOutput", "systemMessage"}


@pytest.mark.parametrize("kind", HOOKS)
@on_loop
async def test_a_prompt_that_would_only_wait_is_answered_with_how_to_continue(project: Project, kind: str) -> None:
    """While a call waits, Claude Code draws nothing that a hook says."""

    async def prompted() -> str:
        prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": str(project.folder), "prompt": "Go."}
        code, said = await called(prompt, words=HOOKS[kind])
        assert code == 0
        return "" if said is None else str(said["systemMessage"])

    everything = (
        "Pausepoint's gate: everything is paused: lunch (ann). The agent waits before its next tool call."
        " Continue it:  pausepoint resume --all"
    )
    async with Engine(project.store) as engine:
        assert await prompted() == ""
        await engine.pause_all()
        assert await prompted() == everything.replace(": lunch (ann)", "")
        await engine.lift_pause()
        await engine.pause_all(reason="lunch", by="ann")
        assert await prompted() == everything
    async with project.served() as (engine, agents):
        assert await prompted() == everything
        await async_until(lambda: any(gate.why for gate in agents))  # its session has tried to run
        await engine.lift_pause()
        await async_until(lambda: not any(gate.why for gate in agents))
        assert await prompted() == ""
        await engine.session("claude-s").pause(reason="look", by="ann")
        waits = asyncio.create_task(called(held_call(project), words=HOOKS[kind]))
        await async_until(lambda: any(gate.why for gate in agents))
        own = everything.replace("everything is paused: lunch (ann)", "paused: look (by ann)")
        assert await prompted() == own.replace("--all", "claude-s")
        await engine.session("claude-s").resume()
        assert (await waits)[0] == 0


# the hook in C does what the one in Python does

needs_c = pytest.mark.skipif("c" not in HOOKS, reason="no C compiler was at hand when Pausepoint was installed")
TASK = {"type": "shell", "status": "running", "command": "make"}
REPORTED: list[dict[str, Any]] = [
    {"hook_event_name": "PreToolUse", **CALL},
    {"hook_event_name": "PreToolUse", "tool_name": "Ünï\n\"'", "tool_input": ["\ud83d\ude00", {"cwd": "/else"}]},
    {"hook_event_name": "PreToolUse", "tool_input": {"command": "x" * 600_000}, "agent_id": "sub"},
    {"hook_event_name": "PostToolUse", **CALL},
    {"hook_event_name": "PostToolUseFailure", **CALL},
    {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "transcript_path": "/t.jsonl"},
    {"hook_event_name": "StopFailure", "error": "rate_limit", "background_tasks": [TASK, TASK | {"status": "done"}]},
    {"hook_event_name": "Notification", "notification_type": "auth_success"},
    {"hook_event_name": "Notification", "notification_type": "idle_prompt"},
    {"hook_event_name": "SessionEnd", "nested": [{"cwd": "/else"}, [[]], "cwd", {"": "}{[]"}]},
    {"hook_event_name": "Unheard"},
]


@pytest.mark.long
@needs_c
@on_loop
async def test_both_hooks_report_the_same(project: Project) -> None:
    reports: list[Report] = []

    def find(heard: Report) -> Gate:
        reports.append(heard)
        raise GateRefused("no")

    async with GateSocket(project.socket, find):
        for shape in REPORTED:
            fields = {"session_id": "s", "cwd": str(project.folder), **shape}
            text = json.dumps(fields, indent=2, ensure_ascii="tool_name" not in fields)
            before = len(reports)
            python, c = [await called(text.encode("utf-8", "surrogatepass"), words=words) for words in HOOKS.values()]
            assert python == c, shape
            assert len({*map(repr, reports[before:])}) * 2 == len(reports[before:]), shape
    assert {report.event for report in reports} == {"before", "after", "asks", "stop", "idle", "end"}


@pytest.mark.long
@needs_c
@on_loop
async def test_both_hooks_do_the_same_where_one_leaves_it_to_the_other(project: Project, tmp_path: Path) -> None:
    call = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": str(project.folder), **CALL}
    broken = tmp_path / "broken"
    (broken / ".pausepoint").mkdir(parents=True)
    (broken / ".pausepoint" / "gate.json").write_text("{")
    texts = [
        *BAD,
        json.dumps(call | {"cwd": str(tmp_path / "nowhere" / "in" / "it")}).encode(),
        json.dumps(call | {"cwd": str(broken)}).encode(),
        json.dumps(call | {"cwd": ""}).encode(),
        json.dumps(call | {"cwd": 7}).encode(),
        json.dumps(call).replace('"cwd"', '"\\u0063wd"').encode(),
        json.dumps(call).encode() + b"\0",
        json.dumps(call | {"hook_event_name": "Stop", "background_tasks": 7}).encode(),
        json.dumps(call | {"tool_input": {"content": "x" * 1_200_000}}).encode(),
    ]
    async with project.served() as (_, agents):
        codes = []
        for text in texts:
            python, c = [await called(text, words=words) for words in HOOKS.values()]
            assert python == c, text[:200]
            codes.append(c[0])
        assert set(codes) == {0, 1}
        assert len(list(agents)) == 1


@needs_c
@on_loop
async def test_the_hook_in_c_says_what_a_call_has_waited_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "HELD_LONG", 0.0)
    async with project.served() as (engine, agents):
        await engine.pause_all(reason="lunch", by="ann")
        waits = asyncio.create_task(called(held_call(project), words=HOOKS["c"]))
        await async_until(lambda: any(gate.why and gate.waiting for gate in agents))
        await engine.lift_pause()
        code, said = await waits
    assert (code, list(said)) == (0, ["systemMessage"])
    assert re.search(r"held this call for \d+ s: paused: lunch", said["systemMessage"])


@needs_c
@on_loop
async def test_the_hook_in_c_obeys_a_server_of_a_former_version(project: Project) -> None:
    """That one cannot read it, and says so in the form for the hook in Python."""

    async def former(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        reason = "raw" if "raw" in asked else asked["event"]
        writer.write(json.dumps({"do": "refuse", "reason": reason}).encode() + b"\n")
        writer.close()

    async with await asyncio.start_unix_server(former, str(project.socket)):
        code, said = await called(
            {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": str(project.folder), **CALL}
        )
    assert (code, denied(said)) == (0, "before")
