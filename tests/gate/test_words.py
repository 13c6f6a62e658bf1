"""What a person tells an agent, and what its model says, is in the history of its session."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.engine.conversation import conversation
from pausepoint.gate import AgentNote, agent_note, guests, transcripts
from pausepoint.gate.transcripts import words_in
from pausepoint.gate.where import branch_of, terminal_of
from tests.gate.kit import Project
from tests.support.loop import on_loop
from tests.support.waits import async_until

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def line(kind: str, content: Any, at: datetime = NOW, **more: Any) -> str:
    return json.dumps({"type": kind, "timestamp": at.isoformat(), "message": {"content": content}, **more}) + "\n"


def said(text: str) -> list[dict[str, str]]:
    return [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}]


def result(id: str, content: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id, "content": content}]


def test_words_of_a_transcript_are_read_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        line("assistant", said("before"), NOW - timedelta(days=1)) + line("user", "Fix it.") + "no JSON\n"
        + line("assistant", said("I look.")) + line("assistant", said("inside"), isSidechain=True)
        + line("user", result("t1", [{"type": "text", "text": "a.py"}, {"type": "image"}]))
    )  # fmt: skip
    since = NOW.timestamp()
    words, end = words_in(path, 0, since)
    assert [(each.text, each.id) for each in words] == [("I look.", ""), ("a.py\n‹image›", "t1")]
    assert end == path.stat().st_size
    with path.open("a") as file:
        file.write(line("assistant", "Done.")[:-1])
    assert words_in(path, end, since) == ([], end)
    with path.open("a") as file:
        file.write("\n")
    assert [each.text for each in words_in(path, end, since)[0]] == ["Done."]
    assert words_in(tmp_path / "none.jsonl", 0, since) == ([], 0)


def test_the_branch_of_a_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git" / "worktrees" / "w").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/fix/build\n")
    (tmp_path / ".git" / "worktrees" / "w" / "HEAD").write_text("0123456789abcdef0123\n")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path}/.git/worktrees/w\n")
    assert branch_of(str(tmp_path / "src" / "deep")) == "fix/build"
    assert branch_of(str(tmp_path / "tree")) == "0123456789ab"
    assert branch_of("") == ""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_terminal_of_a_process_is_found() -> None:
    assert terminal_of(2**30) == ""
    main, side = os.openpty()
    process = subprocess.Popen(["sleep", "60"], stdin=side)
    try:
        assert terminal_of(process.pid) == os.ttyname(side).removeprefix("/dev/")
    finally:
        process.kill()
        process.wait()
        os.close(main)
        os.close(side)


async def turns(engine: Engine) -> list[tuple[str, str, Any]]:
    return [(each.role, each.text or each.name, each.result) for each in await conversation(engine, "claude-ada")]


@on_loop
async def test_a_session_of_an_agent_is_a_conversation(project: Project) -> None:
    path = project.folder / "transcript.jsonl"

    def add(kind: str, content: Any) -> None:
        one = json.loads(line(kind, content))
        one["message"] |= {"id": str(path.stat().st_size if path.exists() else 0), "usage": {"output_tokens": 5}}
        with path.open("a") as file:
            file.write(json.dumps(one) + "\n")

    async def hook(event: str, **more: Any) -> None:
        await project.call_hook(event, "ada", transcript_path=str(path), **more)

    (project.folder / ".git").mkdir(exist_ok=True)
    (project.folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    call = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}}
    async with project.served() as (engine, _):
        await hook("UserPromptSubmit", prompt="Fix the \x1b[2J build.")
        add("assistant", said("I look."))
        await hook("PreToolUse", **call)
        add("user", result("t1", "Makefile"))
        await hook("PostToolUse", **call)
        await hook("Stop", last_assistant_message="It is fixed.")
        whole = [
            ("user", "Fix the \x1b[2J build.", None), ("assistant", "I look.", None), ("tool", "Bash", "Makefile"),
            ("assistant", "It is fixed.", None),
        ]  # fmt: skip

        async def is_whole() -> bool:
            return await turns(engine) == whole

        await async_until(is_whole)
        note = await agent_note(engine, await engine.session("claude-ada").info())
        assert note == AgentNote("", "", "Fix the ␛[2J build.", str(project.folder), "main", "")
        add("assistant", said("It is fixed."))  # the transcript has it later
    async with project.served() as (engine, _):  # another server continues where the first one ended
        await hook("UserPromptSubmit", prompt="Thanks.")
        add("assistant", said("Welcome."))
        await hook("Stop", last_assistant_message="Welcome.")

        async def is_longer() -> bool:
            return (await turns(engine))[-1:] == [("assistant", "Welcome.", None)]

        await async_until(is_longer)
        assert [each for each in await turns(engine) if each[:2] != ("assistant", "It is fixed.")] == [
            *whole[:3], ("user", "Thanks.", None), ("assistant", "Welcome.", None),
        ]  # fmt: skip


@on_loop
async def test_the_tokens_of_an_answer_count_that_is_in_the_transcript_after_the_end_of_its_agent(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.folder / "transcript.jsonl"

    def add(text: str) -> None:
        one = json.loads(line("assistant", said(text), datetime.now(UTC)))
        one["message"] |= {"id": text, "usage": {"output_tokens": 5}}
        with path.open("a") as file:
            file.write(json.dumps(one) + "\n")

    looks: list[str] = []

    def lacks(transcript: Path, text: str) -> bool:
        looks.append(text)
        if len(looks) == 2:
            add(text)
        return transcripts.lacks(transcript, text)

    monkeypatch.setattr(guests, "lacks", lacks)
    async with project.served() as (engine, _):
        await project.call_hook("UserPromptSubmit", "ada", transcript_path=str(path), prompt="Fix it.")
        add("I look.")
        last = {"last_assistant_message": "It is fixed."}
        await project.call_hook("Stop", "ada", transcript_path=str(path), **last)
        await project.call_hook("SessionEnd", "ada", transcript_path=str(path), reason="other")
        await async_until(lambda: looks)
        outcome = await engine.session("claude-ada").outcome()
        assert (outcome.status, outcome.spent_tokens) == ("completed", 10)
        assert looks == ["It is fixed."] * 2


@on_loop
async def test_words_of_agents_can_be_left_out(project: Project) -> None:
    path = project.folder / "transcript.jsonl"
    path.write_text(line("assistant", said("I look."), datetime.now(UTC)))
    call = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}}
    async with project.served(words=False) as (engine, agents):
        for event, more in (
            ("UserPromptSubmit", {"prompt": "Fix it."}), ("PreToolUse", call), ("PostToolUse", call),
            ("Stop", {"last_assistant_message": "Done."}),
        ):  # fmt: skip
            await project.call_hook(event, "ada", transcript_path=str(path), **more)

        async def is_recorded() -> bool:
            return await turns(engine) == [("tool", "Bash", "done")] and all(gate.at_rest.is_set() for gate in agents)

        await async_until(is_recorded)
        note = await agent_note(engine, await engine.session("claude-ada").info())
        assert (note.prompt, note.folder) == ("", "")
