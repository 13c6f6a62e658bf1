"""Agents that their person interrupts with the Esc key: no hook reports that, but the transcript tells."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from pausepoint.gate.offspring import offspring
from pausepoint.gate.transcripts import TAIL, interrupted_since, transcript_of
from tests.gate.kit import Project
from tests.support.loop import on_loop
from tests.support.waits import async_until

ESC = "[Request interrupted by user for tool use]"


def line(text: str, at: datetime, kind: str = "user") -> str:
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": kind, "timestamp": at.isoformat(), "message": {"role": kind, "content": content}})


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def said(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_only_a_last_message_after_the_moment_is_an_interruption(tmp_path: Path, now: datetime) -> None:
    before, moment = now - timedelta(seconds=1), now.timestamp()
    after = now + timedelta(seconds=1)
    other = json.dumps({"type": "last-prompt", "sessionId": "s"})
    assert interrupted_since(said(tmp_path, line(ESC, after)), moment)
    assert interrupted_since(said(tmp_path, "x" * TAIL, line(ESC, after), other, '{"type": "us'), moment)
    assert not interrupted_since(said(tmp_path, line(ESC, before)), moment)
    assert not interrupted_since(said(tmp_path, line(ESC, after), line("next", after)), moment)
    assert not interrupted_since(said(tmp_path, line("done", after, "assistant")), moment)
    assert not interrupted_since(said(tmp_path, "null", "[]", "{", "x" * 2 * TAIL), moment)
    assert not interrupted_since(tmp_path / "none", moment)
    assert not interrupted_since(tmp_path, moment)


def test_the_transcript_of_a_sub_agent_is_next_to_that_of_its_agent() -> None:
    path = Path("home", "s.jsonl")
    assert transcript_of(path, None) == path
    assert transcript_of(path, "a1") == Path("home", "s", "subagents", "agent-a1.jsonl")
    assert transcript_of(path, "../../x").parent == Path("home", "s", "subagents")


async def is_(engine: Engine, status: Status) -> bool:
    return {info.status for info in await engine.sessions()} == {status}


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--sub"]], ids=["agent", "sub-agent"])
@on_loop
async def test_a_pause_does_not_wait_for_a_call_that_was_interrupted(project: Project, options: list[str]) -> None:
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "2", "--command", "exec sleep 21", *options)
        await async_until(lambda: any(call.name == "Bash" for gate in agents for call in gate.in_flight))
        await async_until(lambda: len(project.done) == 1)
        await async_until(lambda: any("sleep 21" in each for each in offspring(running.pid)))
        running.send_signal(signal.SIGUSR1)
        await engine.pause_all(wait=True)
        assert await is_(engine, Status.PAUSED)
        running.terminate()
        await running.wait()
        assert len(project.done) == 1


@pytest.mark.long
@on_loop
async def test_an_agent_that_was_interrupted_at_its_gate_rests(project: Project) -> None:
    async with project.served() as (engine, agents):
        running = await project.agent("ada", "--calls", "3")
        await async_until(lambda: len(project.done) == 1)
        await engine.pause_all(wait=True)
        await async_until(lambda: any(gate.waiting for gate in agents))
        made = project.done
        running.send_signal(signal.SIGUSR1)
        await async_until(lambda: not any(gate.waiting for gate in agents))
        await engine.lift_pause()
        await async_until(lambda: all(gate.at_rest.is_set() for gate in agents))
        await async_until(lambda: is_(engine, Status.READY))
        assert project.done == made
        running.terminate()
        await running.wait()
        await async_until(lambda: is_(engine, Status.COMPLETED))
