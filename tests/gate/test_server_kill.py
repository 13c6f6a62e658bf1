"""The end of `gate serve`: stopped agents stay stopped through a kill, and a signal does not wait for their calls."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import pausepoint.integrations.gate as hook
from tests.cli.kit import Process, run
from tests.gate.kit import COMMAND, Project, ended, said_to
from tests.support.loop import excused, on_loop
from tests.support.waits import async_until

SIX = [f"agent{n}" for n in range(6)]


class Course(NamedTuple):
    """What happened: the effects of calls that began between the pause and the resume, and all effects at the end."""

    late: Counter[str]
    done: Counter[str]


async def killed_while_paused(
    project: Project, names: Sequence[str], calls: int, until_a_call: bool = False
) -> Course:  # fmt: skip
    """Pause agents from the command line, kill the server, start it again, and resume.

    ``until_a_call`` starts it only after a call of a hook that does not wait: a busy machine starts a hook slowly.
    """
    with excused(), ExitStack() as servers:
        server = servers.enter_context(_served(project))
        running = [await project.agent(name, "--calls", str(calls), "--hold", "go") for name in names]
        await async_until(lambda: len(project.done) == len(names))
        assert run("pause", "--all", cwd=project.folder).code == 0
        (project.folder / "go").touch()  # the first calls end now, so the pause is in time
        assert run("pause", "--all", "--wait", cwd=project.folder).code == 0
        made = project.done
        await async_until(lambda: all(_waits(server, name) for name in names))
        server.signal(signal.SIGKILL)
        assert server.wait().code == -9
        assert made == {f"{name}-1": 1 for name in names}
        if until_a_call:
            await async_until(lambda: project.done != made)
        second = servers.enter_context(_served(project))
        await async_until(lambda: project.done != made or all(_waits(second, name) for name in names))
        late = project.done - made
        assert run("resume", "--all", cwd=project.folder).code == 0
        await ended(running)
        return Course(late, project.done)


def _served(project: Project) -> Process:
    server = Process("gate", "serve", cwd=project.folder)
    server.until("stop here when they are paused")
    return server


def _waits(server: Process, name: str) -> bool:
    return f"claude-{name}  waits to run" in server.said()


@pytest.mark.long
@on_loop
async def test_six_agents_stay_stopped_through_a_kill_and_make_each_call_once(project: Project) -> None:
    seen = await killed_while_paused(project, SIX, 4)
    assert not seen.late, "no call began after the pause had returned"
    assert seen.done == {f"{name}-{n}": 1 for name in SIX for n in range(1, 5)}


@pytest.mark.long
@on_loop
async def test_a_hook_that_fails_open_at_once_is_caught(tmp_path: Path) -> None:
    text = Path(hook.__file__).read_text()
    for good, bad in {
        "\nPATIENCE = 30.0\n": "\nPATIENCE = 0.0\n",
        "if not flag or ": "if True or ",
    }.items():
        assert text.count(good) == 1, "the fault is real"
        text = text.replace(good, bad)
    (tmp_path / "broken.py").write_text(text)
    project = Project(tmp_path / "p", command=COMMAND.replace(hook.__file__, str(tmp_path / "broken.py")))
    try:
        seen = await killed_while_paused(project, SIX[:2], 6, until_a_call=True)
    finally:
        project.close()
    assert seen.late


@pytest.mark.long
@on_loop
async def test_a_signal_ends_the_server_although_a_call_is_in_flight(project: Project) -> None:
    with excused(), _served(project) as server:
        message = {"v": 1, "event": "before", "agent": {"kind": "claude", "session": "ada"}, "call": {"name": "Bash"}}
        assert await said_to(project.socket, message) == {"do": "run"}
        server.signal(signal.SIGTERM)
        assert server.wait().code == 143


@on_loop
async def test_a_signal_ends_the_server_while_it_waits_for_the_transcript_of_an_agent(project: Project) -> None:
    """The session stays open for the next server, and its visit is not begun again and again."""
    path = project.folder / "transcript.jsonl"
    path.write_text('{"type": "user", "message": {"content": "Go."}}\n')
    ends = {"UserPromptSubmit": {"prompt": "Go."}, "Stop": {"last_assistant_message": "Done."}, "SessionEnd": {}}
    with excused(), _served(project) as server:
        for event, more in ends.items():
            await project.call_hook(event, "ada", transcript_path=str(path), **more)
        await async_until(lambda: "running" in run("ls", cwd=project.folder).stdout)
        server.signal(signal.SIGTERM)
        assert server.wait().code == 143
    told = run("events", "claude-ada", "--json", cwd=project.folder).stdout
    assert told.count('"session.resumed"') <= 3, "one visit for each thing that the agent reported"
