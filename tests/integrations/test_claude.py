"""The Claude Agent SDK: transcripts in the store, and tool calls that people approve."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pausepoint import Engine, Question
from tests.docs.pages import EXAMPLES
from tests.gate.claude import HOW as HOW_CLAUDE
from tests.gate.claude import effect, environment, find, serving
from tests.integrations.claude_scenes import HOW, is_installed
from tests.support.forkserver import Child, ForkServer
from tests.support.loop import PATIENCE, excused, on_loop

SCENES = "tests.integrations.claude_scenes"

pytestmark = pytest.mark.skipif(not is_installed(), reason=HOW)


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer(SCENES) as server:
        yield server


async def asked(engine: Engine) -> Question:
    """Wait until a request is in the inbox."""
    with excused():
        async with asyncio.timeout(PATIENCE):
            while not (found := await engine.questions()):
                await asyncio.sleep(0.02)
    [question] = found
    return question


@pytest.mark.long
def test_the_store_keeps_all_contracts_of_the_sdk(forks: ForkServer, tmp_path: Path) -> None:
    """The suite takes a new store for each of its 14 contracts, and one to see which methods there are."""
    running = forks.start(f"{SCENES}:conformance", folder=str(tmp_path))
    assert running.hear() == {"stores": 15}
    assert running.wait() == 0


def test_entries_that_are_sent_twice_are_loaded_once(forks: ForkServer, tmp_path: Path) -> None:
    assert forks.start(f"{SCENES}:sent_twice", folder=str(tmp_path)).hear() == {
        "types": ["user", "title", "title", "last"]
    }


@on_loop
async def test_a_person_decides_about_each_request(forks: ForkServer, tmp_path: Path) -> None:
    """An equal request is another question. A pause of everything holds a request that is answered."""
    running = forks.start(f"{SCENES}:request", folder=str(tmp_path), times=3)
    async with Engine(tmp_path / "p.db") as engine:
        first = await asked(engine)
        assert (first.next_question, first.payload) == (
            'Run Bash(command="make release")?',
            {"command": "make release"},
        )
        await engine.answer(first.id, True, by="ann")
        assert running.hear() == {"behavior": "allow", "message": ""}

        second = await asked(engine)
        await engine.answer(second.id, {"approved": False, "reason": "not on a Friday"}, by="ann")
        assert running.hear() == {"behavior": "deny", "message": "not on a Friday"}

        third = await asked(engine)
        await engine.pause_all(by="ann")
        await engine.answer(third.id, True, by="ann")
        assert (await engine.session(third.session_id).info()).status == "paused"
        await engine.lift_pause(by="ann")
        assert running.hear()["behavior"] == "allow"
        assert running.wait() == 0
        assert {info.status.value for info in await engine.sessions()} == {"completed"}


@on_loop
async def test_a_request_whose_process_was_killed_gets_the_answer_that_came_meanwhile(
    forks: ForkServer, tmp_path: Path
) -> None:
    killed = forks.start(f"{SCENES}:request", folder=str(tmp_path), agent="one")
    async with Engine(tmp_path / "p.db") as engine:
        question = await asked(engine)
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        await engine.answer(question.id, True, by="ann")
        again = forks.start(f"{SCENES}:request", folder=str(tmp_path), times=2, agent="two")
        assert again.hear()["behavior"] == "allow", "the answer is not lost, and nobody is asked twice"
        other = await asked(engine)
        assert other.session_id != question.session_id, "an answer counts for one call"
        await engine.session(other.session_id).cancel()
        assert again.hear() == {"behavior": "deny", "message": "The request was cancelled."}


@on_loop
async def test_one_answer_is_for_one_of_two_programs_with_the_same_name(forks: ForkServer, tmp_path: Path) -> None:
    running = [forks.start(f"{SCENES}:request", folder=str(tmp_path)) for _ in range(2)]
    async with Engine(tmp_path / "p.db") as engine:
        answered: list[str] = []
        with excused():
            async with asyncio.timeout(PATIENCE):
                while len(answered) < 2:  # they may ask at the same time, or one after the other
                    for question in await engine.questions():
                        await engine.answer(question.id, not answered, by="ann")
                        answered.append(question.session_id)
                    await asyncio.sleep(0.02)
    assert len(set(answered)) == 2, "the other program asks for itself"
    assert sorted(each.hear()["behavior"] for each in running) == ["allow", "deny"]


def test_an_interrupted_request_leaves_no_question(forks: ForkServer, tmp_path: Path) -> None:
    """A later call would get its answer. A conversation may have any name."""
    running = forks.start(f"{SCENES}:interrupt", folder=str(tmp_path))
    assert [running.hear() for _ in range(2)] == [{"cancelled": True, "questions": 0}] * 2
    assert running.wait() == 0


@on_loop
async def test_without_a_name_the_answer_is_not_found_again(forks: ForkServer, tmp_path: Path) -> None:
    """The broken twin of the test above."""
    killed = forks.start(f"{SCENES}:request", folder=str(tmp_path), name=None)
    async with Engine(tmp_path / "p.db") as engine:
        question = await asked(engine)
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        await engine.answer(question.id, True, by="ann")
        again = forks.start(f"{SCENES}:request", folder=str(tmp_path), name=None)
        assert (await asked(engine)).session_id != question.session_id
        assert again.is_alive()


@pytest.mark.long
def test_a_request_that_nobody_answers_in_time_is_denied(forks: ForkServer, tmp_path: Path) -> None:
    running = forks.start(f"{SCENES}:request", folder=str(tmp_path), expires=0.1)
    assert running.hear() == {"behavior": "deny", "message": "No person answered in time."}


def test_the_benchmark_runs(forks: ForkServer, tmp_path: Path) -> None:
    figures = forks.start(f"{SCENES}:benchmark", folder=str(tmp_path)).hear()
    assert figures == {"store": 2, "file": 2, "load": 5, "read": 5}


@pytest.mark.long
@on_loop
async def test_claude_code_is_paused_cancelled_and_continues_from_the_store_on_another_machine(
    forks: ForkServer, tmp_path: Path
) -> None:
    """The program of docs/claude.md. Its second process has an empty home, so the transcript comes from the store."""
    command = find()
    if command is None:
        pytest.skip(HOW_CLAUDE)
    shutil.copy(EXAMPLES / "assistant.py", tmp_path)
    effects, turn = tmp_path / "effects.txt", "claude-website-turn-1"
    with serving(prices=[[effect("one")], [effect("two")]]) as api:

        def started(home: str, *words: str) -> tuple[Child, Path]:
            environ = environment(api, tmp_path / home)
            environ["PATH"] = f"{Path(command).parent}{os.pathsep}{environ['PATH']}"
            output = tmp_path / f"{home}.txt"
            output.touch()
            options = {"cwd": str(tmp_path), "output": str(output), "environ": environ}
            return forks.start(f"{SCENES}:program", words=["assistant.py", *words], **options), output

        first, printed = started("first", "[plan prices] Go.")
        async with Engine(tmp_path / ".pausepoint" / "pausepoint.db") as engine:
            question = await asked(engine)
            await engine.session(turn).pause(reason="lunch", by="ann")
            assert (await engine.session(turn).info()).status == "pausing", "a tool call is open"
            await engine.answer(question.id, True, by="ann")
            async with aclosing(engine.session(turn).watch()) as changes:
                await anext(info async for info in changes if info.status == "paused")
            assert (effects.read_text(), await engine.questions()) == ("one\n", [])
            await engine.session(turn).resume()
            await engine.answer((await asked(engine)).id, True, by="ann")
            assert first.wait() == 0, printed.read_text()
            said, _, conversation = printed.read_text().strip().partition(" Conversation: ")
            assert (said, effects.read_text()) == ("All done.", "one\ntwo\n")
            assert (await engine.session(turn).stored()).values == {"conversation": conversation, "result": "All done."}
        messages = str(api.asked[-1]["messages"])
        assert "Request interrupted by user" in messages, "Claude was interrupted, not only held"
        assert "Continue." in messages

        second, printed = started("second", "And now?", conversation)
        assert second.wait() == 0, printed.read_text()
        assert printed.read_text().strip() == f"All done. Conversation: {conversation}"
        assert "[plan prices] Go." in str(api.asked[-1]["messages"]), "the model sees the first conversation"

        third, printed = started("third", "[plan prices] Go.")
        async with Engine(tmp_path / ".pausepoint" / "pausepoint.db") as engine:
            question = await asked(engine)
            await engine.session("claude-website-turn-3").cancel(by="ann")
            await engine.answer(question.id, True, by="ann")
        assert third.wait() == 1
        assert "SessionEnded: Session 'claude-website-turn-3' is cancelled" in printed.read_text()
        assert effects.read_text() == "one\ntwo\none\n", "Claude was interrupted"
        assert api.outside == [], "nothing may leave the machine"
