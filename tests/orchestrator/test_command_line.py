"""A run from the command line of another process: stopped, watched while it stops, and listed."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from pausepoint.orchestrator import OrchestratorState, Task
from tests.cli.kit import Process, plain
from tests.cli.kit import run as run_command
from tests.orchestrator.shop import Shop
from tests.support.loop import on_loop


@pytest.mark.long
@pytest.mark.covers("S5.59", "S5.4")
@on_loop
async def test_everything_is_paused_from_elsewhere_and_status_says_who_is_still_at_which_task(tmp_path: Path) -> None:
    def command(*words: str) -> str:
        done = run_command(*words, "--store", tmp_path / "hold.db", cwd=tmp_path)
        assert done.code == 0, done
        return done.stdout

    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, "release", agents=8)
        names = [f"t{n}" for n in range(9)]
        shop.hold(*[f"{name}/first" for name in names])
        await shop.run.start([Task(id=name) for name in names])
        await shop.reached(*[f"{name}/first" for name in names[:8]])
        said = await asyncio.to_thread(command, "pause", "--all", "--reason", "fire drill")
        assert "release  release  pausing    still finishing work" in said
        told = await asyncio.to_thread(command, "status")
        assert "pausing: still finishing a step" in told
        assert "fire drill" in told
        assert ", ".join(f"agent-{n + 1} at t{n}" for n in range(5)) + ", 3 more agents" in told
        [stopping] = json.loads(await asyncio.to_thread(command, "status", "--json"))["sessions"]
        assert stopping["finishing"] == [{"agent": f"agent-{n + 1}", "task": f"t{n}"} for n in range(8)]
        shown = await asyncio.to_thread(at_80_columns, tmp_path)
        assert max(map(len, shown.splitlines())) <= 80
        assert "Everything in this store has been pausing since" in shown, "nothing claims that it does"
        for told in (
            "fire drill",
            "1 session still finishing",
            f"running in process {os.getpid()} on",
            "agent-5 at t4",
        ):
            assert told in " ".join(shown.split()), "of what counts nothing is cut"
        shop.open()
        report = await shop.run.outcome()
        assert (report.status, shop.run.get_state()) == (Status.PAUSED, OrchestratorState.PAUSED)
        assert report.counts == {"begun": 8, "pending": 1}, "what had not begun waits, and is seen to"
        assert "has been paused since" in await asyncio.to_thread(command, "status")
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 9}


def at_80_columns(folder: Path) -> str:
    with Process("status", cwd=folder, env={"PAUSEPOINT_STORE": "hold.db"}, tty=True, size=(80, 24)) as process:
        return plain(process.wait().stdout)


@pytest.mark.parametrize("session_id", [None, "release-7"])
@on_loop
async def test_who_knows_the_name_of_an_orchestrator_pauses_its_runs_by_that(
    tmp_path: Path, session_id: str | None
) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        shop, other = Shop(engine, "release", session_id=session_id), Shop(engine, "other")
        for each in (shop, other):
            each.hold("a/first")
            await each.run.start([Task(id="a")])
            await each.reached("a/first")
        words = ("pause", "--workflow", "release", "--store", tmp_path / "hold.db")
        done = await asyncio.to_thread(run_command, *words, cwd=tmp_path)
        assert (done.code, "pausing" in done.stdout, "other" in done.stdout) == (0, True, False)
        for each in (shop, other):
            each.open()
        assert [(await each.run.outcome()).status for each in (shop, other)] == [Status.PAUSED, Status.COMPLETED]
