"""Agents of the OpenAI Agents SDK: paused, killed and asked, each call is made once. Models follow a script.

The SDK takes seconds to import, so only a fork server imports it.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.docs.pages import DOCS
from tests.docs.programs import Folder
from tests.docs.test_programs import transcript
from tests.support.forkserver import ForkServer
from tests.support.loop import on_loop

SCENES = "tests.integrations.openai_scenes"
TRAPS = "tests.integrations.openai_traps"

BEFORE_THE_QUESTION = ["judge 0", "triage 0", "handoff", "billing 1", "charge A", "clerk 0", "lookup A", "clerk 1", "billing 3"]  # fmt: skip  # noqa: E501
ALL = [*BEFORE_THE_QUESTION, "refund A", "billing 4"]
"""The calls of models, tools and callbacks of one run."""

NAMES = {
    "agent_run~…#1",
    'judge.model["….1"]',
    'triage.model["bill.1"]',
    'transfer_to_billing["bill.1"]',
    'billing.model["bill.2"]',
    'charge["bill/c1"]',
    'ask_clerk["bill/c2"]/clerk.model["bill/c2.1"]',
    'ask_clerk["bill/c2"]/lookup["bill/c2/c3"]',
    'ask_clerk["bill/c2"]/clerk.model["bill/c2.2"]',
    'ask_clerk["bill/c2"]',
    'billing.model["bill.3"]',
    'confirm["bill/c4/…"]',
    'refund["bill/c4"]/refunded["refund"]',
    'refund["bill/c4"]',
    'billing.model["bill.4"]',
}
"""The identities of the operations. Stored sessions contain them: a change here runs their calls again."""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer(SCENES) as server:
        yield server


def effects(folder: Path) -> Counter[str]:
    return Counter((folder / "effects").read_text().splitlines())


async def operations(path: Path) -> list[str]:
    """Return the identities of the operations of a session, without those inside of other operations."""
    async with Engine(path) as engine:
        events = [event async for event in engine.session("bill").events() if event.event_type == "operation.completed"]
    return [str(event.data["id"]).removeprefix("/") for event in events]


@pytest.mark.long
@on_loop
async def test_a_run_is_paused_asked_and_completed_by_different_processes(forks: ForkServer, tmp_path: Path) -> None:
    running = forks.start(f"{SCENES}:bill", folder=str(tmp_path), hold="lookup A")
    assert running.hear() == {"holds": "lookup A"}
    async with Engine(tmp_path / "p.db") as engine:
        await engine.session("bill").pause(reason="lunch", by="ann")
    (tmp_path / "go").touch()
    assert running.hear()["status"] == "paused"
    assert effects(tmp_path) == Counter(BEFORE_THE_QUESTION[:7]), "nothing began after the call in progress"

    resumed = forks.start(f"{SCENES}:bill", folder=str(tmp_path))
    assert resumed.hear()["status"] == "waiting"
    assert effects(tmp_path) == Counter(BEFORE_THE_QUESTION)
    async with Engine(tmp_path / "p.db") as engine:
        [question] = await engine.questions()
        assert question.next_question == 'Run refund(order="A")?'
        await engine.answer(question.id, True, by="ann")

    completed = forks.start(f"{SCENES}:bill", folder=str(tmp_path))
    assert completed.hear() == {"status": "completed", "failure": "None", "tokens": 7 * 15}
    assert effects(tmp_path) == Counter(ALL)
    names = await operations(tmp_path / "p.db")
    assert len(names) == len(set(names))
    assert {re.sub("[0-9a-f]{8,}", "…", name) for name in names} == NAMES


@pytest.mark.long
@pytest.mark.parametrize("held", ["judge 0", "billing 1", "lookup A"])
@on_loop
async def test_a_killed_run_repeats_the_call_in_progress_only(forks: ForkServer, tmp_path: Path, held: str) -> None:
    """Held is a model or a tool: of a guardrail, of the agent itself, or of an agent used as a tool."""
    await killed(forks, tmp_path, held)
    assert forks.start(f"{SCENES}:bill", folder=str(tmp_path)).hear()["status"] == "waiting"
    repeated = {what: count for what, count in effects(tmp_path).items() if count > 1}
    assert repeated.pop(held) == 2
    assert set(repeated) <= ({"triage 0"} if held == "judge 0" else set()), "the guardrail runs beside the agent"


@on_loop
async def test_the_same_agent_without_run_repeats_everything(forks: ForkServer, tmp_path: Path) -> None:
    """The broken twin of the test above: its count can fail."""
    await killed(forks, tmp_path, "lookup A", remembered=False)
    assert forks.start(f"{SCENES}:bill", folder=str(tmp_path), remembered=False).hear()["status"] == "completed"
    found = effects(tmp_path)
    assert all(found[what] == 2 for what in BEFORE_THE_QUESTION[:7]), found


async def killed(forks: ForkServer, folder: Path, held: str, job: str = "bill", **options: object) -> None:
    """Kill a process while it is in a call."""
    running = forks.start(f"{SCENES}:{job}", folder=str(folder), hold=held, **options)
    assert running.hear() == {"holds": held}
    running.signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize(("recognised", "items"), [(True, 2), (False, 4)], ids=["session", "broken twin"])
@on_loop
async def test_a_conversation_gets_each_item_once_if_the_process_is_killed_after_its_write(
    forks: ForkServer, tmp_path: Path, recognised: bool, items: int
) -> None:
    await killed(forks, tmp_path, "written", "converse", recognised=recognised)
    again = forks.start(f"{SCENES}:converse", folder=str(tmp_path), recognised=recognised)
    assert again.hear() == {"items": items}
    assert effects(tmp_path) == {"chat 0": 1, "written": 2}


@pytest.mark.long
@pytest.mark.parametrize(
    "scene",
    [
        "everything_once", "declined", "conversations", "tripped", "unreliable", "streamed", "mcp_server",
        "unsupported",
    ],
)  # fmt: skip
def test_a_scene_in_one_process(forks: ForkServer, tmp_path: Path, scene: str) -> None:
    assert forks.start(f"{SCENES}:alone", folder=str(tmp_path), scene=scene).wait() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "scene",
    ["answers", "failed_tool", "hooks", "transcripts", "contexts", "labels", "limits", "outside", "shapes", "versions"],
)
def test_a_run_gets_what_is_its_own(forks: ForkServer, tmp_path: Path, scene: str) -> None:
    assert forks.start(f"{TRAPS}:alone", folder=str(tmp_path), scene=scene).wait() == 0


def test_the_benchmark_runs(forks: ForkServer, tmp_path: Path) -> None:
    figures = forks.start(f"{SCENES}:benchmark", folder=str(tmp_path)).hear()
    assert figures == dict.fromkeys(["alone", "sqlite", "step", "sqlite items", "our items"], 1)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.long
def test_the_commands_of_the_page_print_what_it_shows(forks: ForkServer, tmp_path: Path) -> None:
    """As in `tests.docs.test_programs`, but forked from a process that has imported the SDK."""
    folder, typed = Folder(made(tmp_path / "folder")), 0
    printed: Iterator[str] = iter(())
    for line in transcript(DOCS / "openai-agents.md"):
        if line.startswith("$ "):
            words = shlex.split(line.removeprefix("$ pausepoint "))
            output = tmp_path / f"{typed}.txt"
            output.touch()
            options = {"words": ["-m", "pausepoint", *words], "cwd": str(folder.path), "output": str(output)}
            assert forks.start("tests.docs.programs:job", **options).wait() in (0, 3), output.read_text()
            printed, typed = iter(output.read_text().splitlines()), typed + 1
        else:
            assert any(line in each for each in printed), line
    assert typed == 9
    assert folder.orders("hotels") == ["2 nights, Hotel Astoria in Lisbon"]
