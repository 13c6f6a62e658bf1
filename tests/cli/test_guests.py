"""Guest sessions on the command line: everything but running them works, and it says why not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pausepoint import Engine, Parked
from pausepoint.gate.guests import AGENTS
from tests.cli.kit import run
from tests.engine.guest import AGENT

PROGRAM = "its code runs in another program, which continues it."

CODE = """
from pydantic import BaseModel
from pausepoint import Workflow

class Talk(BaseModel):
    topic: str = ""

agent = Workflow.guest("agent", state=Talk)
"""


async def visit(path: Path, session_id: str, fails: bool = False) -> str:
    """Visit a session as its program does."""
    async with Engine(path) as engine, engine.visit(AGENT, session_id=session_id) as ctx:
        if fails:
            raise ConnectionError("no answer")
        ctx.output = {"answer": await ctx.ask("Go on?", expires=None)}
    return "done"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / ".pausepoint" / "pausepoint.db"
    path.parent.mkdir()
    with pytest.raises(Parked):
        asyncio.run(visit(path, "t"))
    return path


def said(text: str) -> str:
    return " ".join(text.split()).lower()


@pytest.mark.long
def test_show_says_where_its_code_runs_and_answer_does_not_offer_to_run_it(store: Path, tmp_path: Path) -> None:
    code, out, _ = run("show", "t", cwd=tmp_path)
    assert (code, "Answer:" in out, "--run" in out) == (0, True, False)
    code, out, err = run("answer", "t", "yes", "--run", cwd=tmp_path)
    assert (code, PROGRAM in said(out + err), "only recorded" in err) == (5, True, True)
    code, out, err = run("answer", "t", "yes", cwd=tmp_path)
    assert (code, PROGRAM in said(out + err)) == (0, True)
    code, out, err = run("show", "t", cwd=tmp_path)
    assert (code, PROGRAM in said(out), "resume t" in out) == (0, True, False)
    assert asyncio.run(visit(store, "t")) == "done"


@pytest.mark.long
def test_resume_withdraws_pauses_and_runs_nothing(store: Path, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(CODE)
    assert run("pause", "t", "--by", "ann", cwd=tmp_path).code == 0
    code, out, _ = run("resume", "t", "--by", "ann", cwd=tmp_path)
    assert (code, "t is waiting" in out, PROGRAM in said(out)) == (0, True, True)
    code, out, _ = run("resume", "t", "--json", cwd=tmp_path)
    assert (code, json.loads(out)["guest"]) == (0, True)
    code, _, err = run("resume", "t", "--steal", "--dry-run", cwd=tmp_path)
    assert (code, "--dry-run and --steal cannot be used for session 't', which is a guest" in err) == (2, True)
    code, _, err = run("run", "agents.py", cwd=tmp_path)
    assert (code, "'agent' is a guest" in err) == (2, True)
    code, out, err = run("worker", "--once", "--target", "agents.py", cwd=tmp_path)
    assert (code, "Nothing was ready" in out + err) == (0, True)


@pytest.mark.long
def test_a_failed_or_ready_guest_is_not_offered_for_a_resume(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        asyncio.run(visit(store, "broken", fails=True))
    code, out, _ = run("show", "broken", cwd=tmp_path)
    assert (code, PROGRAM in said(out), "ConnectionError" in out) == (0, True, True)
    assert run("answer", "t", "yes", cwd=tmp_path).code == 0  # it is ready
    code, _, err = run("resume", cwd=tmp_path)
    assert (code, "There is nothing to resume" in err) == (4, True)
    code, out, _ = run("ls", cwd=tmp_path)
    assert (code, "broken" in out) == (0, True)


@pytest.mark.long
def test_pause_all_and_its_lift_cover_guests(store: Path, tmp_path: Path) -> None:
    assert run("pause", "--all", "--reason", "fire", cwd=tmp_path).code == 0
    with pytest.raises(Parked, match="fire"):
        asyncio.run(visit(store, "t"))
    code, out, err = run("resume", "--all", cwd=tmp_path)
    assert code == 0
    assert "worker" not in out + err
    assert run("answer", "t", "yes", cwd=tmp_path).code == 0
    assert asyncio.run(visit(store, "t")) == "done"


async def nap(path: Path) -> str:
    async with Engine(path) as engine, engine.visit(AGENT, session_id="nap") as ctx:
        await ctx.sleep(3600)
        ctx.output = {"answer": "rested"}
    return "done"


def test_a_sleeping_guest_can_be_woken_and_the_command_is_shown(store: Path, tmp_path: Path) -> None:
    with pytest.raises(Parked, match="wake=True"):
        asyncio.run(nap(store))
    code, out, _ = run("show", "nap", cwd=tmp_path)
    assert (code, "End its timers:  pausepoint resume nap --wake" in out) == (0, True)
    code, out, _ = run("resume", "nap", "--wake", cwd=tmp_path)
    assert (code, "nap is ready" in out, PROGRAM in said(out)) == (0, True, True)
    assert asyncio.run(nap(store)) == "done"


def test_doctor_does_not_ask_for_the_code_of_a_guest(store: Path, tmp_path: Path) -> None:
    code, out, _ = run("doctor", cwd=tmp_path)
    assert (code, "all resumable sessions fit the code" in out, "not loaded" in out) == (0, True, False)


def test_an_agent_at_the_gate_makes_calls_and_no_visits(tmp_path: Path) -> None:
    path = tmp_path / ".pausepoint" / "pausepoint.db"
    path.parent.mkdir()
    texts = dict[str, str]()

    async def read(*commands: str) -> None:
        for command in commands:
            words = (command, "claude-1") if command == "show" else (command,)
            _, out, err = await asyncio.to_thread(run, *words, cwd=tmp_path)
            texts[command] = out + err

    async def work() -> None:
        async with Engine(path) as engine:

            async def call() -> None:
                await engine.session("claude-1").pause(by="ann")
                await read("ls", "show")

            state = {"kind": "claude", "session": "1"}
            async with engine.visit(AGENTS, session_id="claude-1", input=state, tags=["claude"]) as ctx:
                await ctx.do(call)
                await ctx.do(call)
            raise AssertionError("the second call must wait")

    with pytest.raises(Parked):
        asyncio.run(work())
    assert "still finishing a call" in texts["ls"]
    assert "Still finishing a call; it pauses before the next one." in texts["show"]
    code, out, err = run("resume", "claude-1", cwd=tmp_path)
    assert (code, PROGRAM in said(out + err)) == (0, True)
    for text in (*texts.values(), out, err):
        assert "finishing visit" not in text, text
        assert "next visit" not in text, text
