"""What the commands print beside their results: counts, targets, folded values, and what to do next."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.cli.context import command_of
from pausepoint.log.diff import compare
from pausepoint.orchestrator import RunReport, Task, TaskStatus
from tests.cli.kit import run
from tests.cli.samples import letters, project, within
from tests.support.loop import on_loop


class Talk(BaseModel):
    tone: str = ""


@step(writes="tone")
async def tell(ctx: Context) -> str:
    return str(await ctx.ask("Which tone?", str))


talk = Workflow("talk", state=Talk, steps=[tell])


def test_the_footer_of_ls_counts_the_store_and_not_the_page(tmp_path: Path) -> None:
    async def ask(engine: Engine) -> None:
        for number in range(4):
            await (await engine.start(talk, session_id=f"t{number}")).outcome()

    within(tmp_path / ".pausepoint" / "pausepoint.db", ask, talk)
    assert "4 questions wait for an answer:  pausepoint inbox" in run("ls", "--limit", "2", cwd=tmp_path).stderr


def test_why_without_a_step_says_why_the_session_does_not_run(tmp_path: Path) -> None:
    letters(project(tmp_path), ada="Ada")
    done = run("why", "ada", cwd=tmp_path)
    assert (done.code, done.stdout.splitlines()[0]) == (0, "ada is waiting at post.")
    assert "Waiting for a message." in done.stdout
    assert "Send:  pausepoint send ada MESSAGE" in done.stdout
    assert run("why", "ada", "--json", cwd=tmp_path).code == 0


LISTS = """
from pydantic import BaseModel
from pausepoint import Workflow, step

class Survey(BaseModel):
    angles: list[str] = []
    sizes: list[int] = []
    pairs: list[list[int]] = []

@step
async def look(angles: list[str]) -> None: ...

survey = Workflow("survey", state=Survey, steps=[look])
"""


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        (["--angles", '["a", "b"]'], "angles", ["a", "b"]),
        (["--angles", "a", "--angles", "[b"], "angles", ["a", "[b"]),
        (["--sizes", "[1, 2]", "--sizes", "3"], "sizes", [1, 2, 3]),
        (["--field", 'angles=["a", "b"]'], "angles", ["a", "b"]),
        (["--pairs", "[1, 2]"], "pairs", [[1, 2]]),
    ],
)
def test_a_list_is_given_as_json_or_item_by_item(
    tmp_path: Path, given: list[str], field: str, expected: list[object]
) -> None:
    (tmp_path / "survey.py").write_text(LISTS)
    assert run("run", "survey.py", "--session-id", "s1", *given, cwd=tmp_path).code == 0

    async def stored(engine: Engine) -> object:
        return (await engine.session("s1").stored()).values[field]

    assert within(tmp_path / ".pausepoint" / "pausepoint.db", stored) == expected


@pytest.mark.long
def test_a_file_that_imports_a_workflow_means_its_own(tmp_path: Path) -> None:
    project(tmp_path)
    own = LISTS.replace("from pydantic", "from letter import letter\nfrom pydantic")
    (tmp_path / "survey.py").write_text(own)
    assert "of survey" in run("run", "survey.py", cwd=tmp_path).stdout
    (tmp_path / "only.py").write_text("from letter import letter\n")
    assert "of letter" in run("run", "only.py", "--name", "Ada", cwd=tmp_path).stdout


@pytest.mark.long
def test_long_values_are_cut_folded_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "survey.py").write_text(LISTS)
    angles = [f"angle number {number}" for number in range(100)]
    words = [word for each in angles for word in ("--angles", each)]
    assert run("run", "survey.py", "--session-id", "s1", *words, cwd=tmp_path).code == 0
    assert max(map(len, run("show", "s1", cwd=tmp_path).stdout.splitlines())) < 500
    full = run("show", "s1", "--full", cwd=tmp_path).stdout.splitlines()
    assert max(map(len, full)) < 120
    assert sum("angle number" in line for line in full) == 100
    assert "angle number" not in run("show", "s1", "--no-state", cwd=tmp_path).stdout


def test_a_diff_names_the_items_of_a_list_that_differ() -> None:
    old = [{"n": number, "text": "x"} for number in range(20)]
    new = [*old[:3], {"n": 3, "text": "y"}, *old[4:9], *old[10:], {"n": 20, "text": "x"}]
    found = [(each.path, each.kind) for each in compare("rows", old, new)]
    assert found == [("rows.3.text", "changed"), ("rows.9", "removed"), ("rows.19", "added")]
    (whole,) = compare("rows", [1, 2, 3], [4, 5, 6])
    assert (whole.path, whole.kind) == ("rows", "changed")


@on_loop
async def test_an_outcome_and_a_report_are_short_in_print() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(talk, session_id="t1")
        outcome, info = await session.outcome(), await session.info()
    assert repr(outcome) == "Outcome('t1', 'waiting', questions=1)"
    tasks = tuple(TaskStatus(Task(id=f"t{number}", data={"text": "work " * 20}), "done") for number in range(50))
    assert repr(RunReport(info, tasks)) == "RunReport('waiting', {'done': 50})"


@on_loop
async def test_a_resume_within_the_first_step_counts_the_operations_that_it_skips() -> None:
    broken = [True]

    @step
    async def work(ctx: Context) -> None:
        for number in range(3):
            await ctx.do(lambda: None, key=f"part {number}")
        if broken:
            raise OSError("no ink")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("job", state=Talk, steps=[work]))
        await session.outcome()
        broken.clear()
        await session.resume()
        await session.outcome()
        (event,) = [each async for each in engine.session(session.id).events() if each.event_type == "session.resumed"]
        assert event.summary == "resumed at work#1, 3 operations skipped"


@on_loop
async def test_the_plan_of_a_running_session_says_that_it_runs() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def work(ctx: Context) -> None:
        await ctx.do(lambda: None, key="part")
        begun.set()
        await end.wait()

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("job", state=Talk, steps=[work]))
        await begun.wait()
        assert (await session.plan())["work"].why == "running"
        end.set()
        await session.outcome()


def test_the_process_that_drives_a_session_is_named_by_its_command_line() -> None:
    words = command_of(f"process {os.getpid()} on {os.uname().nodename}, since 2026-01-01T00:00:00+00:00")
    assert os.path.basename(sys.executable) in words or "python" in words
    assert command_of("process 1 on elsewhere, since 2026-01-01T00:00:00+00:00") == ""
    assert command_of("engine 4") == ""


def test_init_beside_a_file_of_ones_own_promises_no_example(tmp_path: Path) -> None:
    (tmp_path / "brief.py").write_text(LISTS)
    done = run("init", cwd=tmp_path)
    assert "Try it" not in done.stderr
    assert "brief.py is your own file. If it has a workflow, run it:  pausepoint run brief.py\n" in done.stderr
    assert run("run", "brief.py", cwd=tmp_path).code == 0
