"""Budgets on the command line, and what `show` and `plan` say about limits and operations that wait to be retried."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pausepoint.cli.commands.detach import option_words
from pausepoint.cli.options import BudgetOption
from pausepoint.model.budgets import Budget
from tests.cli.kit import run
from tests.support.loop import PATIENCE

PROGRAM = """
from pydantic import BaseModel

from pausepoint import Context, Retry, Workflow, step


class State(BaseModel):
    n: int = 0


async def one(n: int, ctx: Context) -> int:
    ctx.spend(tokens=100)
    return n


async def busy() -> int:
    raise ConnectionError("busy")


@step(writes="n")
async def count(ctx: Context) -> int:
    return sum([await ctx.do(one, n) for n in range(5)])


@step(writes="n")
async def persist(ctx: Context) -> int:
    return await ctx.do(busy, retry=Retry(attempts=3, first=3600, longest=3600, jitter=0))


counting = Workflow("counting", state=State, steps=[count])
persisting = Workflow("persisting", state=State, steps=[persist])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "limits.py").write_text(PROGRAM)
    return tmp_path


def test_limits_are_given_shown_and_raised(place: Path) -> None:
    words = ("run", "limits.py:counting", "--session-id", "s", "--budget", "usd=2.50,operations=3")
    done = run(*words, cwd=place)
    assert (done.code, "--budget operations=N" in done.stderr) == (3, True), done
    shown = run("show", "s", cwd=place).stdout
    assert "$0.00 of $2.50, 300 tokens, 3 of 3 operations" in shown
    assert "3 of the 3 operations of the budget are used" in shown
    done = run(
        "resume", "s", "--budget", "operations=9,tokens=900", "--target", "limits.py:counting", "--json", cwd=place
    )
    found = json.loads(done.stdout)
    assert (found["status"], found["spent_operations"], found["spent_tokens"]) == ("completed", 5, 500)
    assert [found[f"budget_{kind}"] for kind in ("usd", "tokens", "operations")] == [2.5, 900, 9]


@pytest.mark.long
def test_show_and_plan_say_that_an_operation_waits_to_be_retried(place: Path) -> None:
    run("run", "limits.py:persisting", "--session-id", "s", "--paused", cwd=place)
    done = run("resume", "s", "--target", "limits.py:persisting", "--detach", cwd=place)
    assert done.code == 0, done
    said = "busy waits to be retried at "
    end, shown = time.monotonic() + PATIENCE, ""
    while said not in shown and time.monotonic() < end:
        shown = run("show", "s", cwd=place).stdout
    assert said in shown
    assert "attempt 1 failed, ConnectionError: busy" in shown
    assert said in run("plan", "s", "--target", "limits.py:persisting", cwd=place).stdout
    assert run("cancel", "s", cwd=place).code == 0


@pytest.mark.parametrize(
    ("text", "budget"),
    [("2.50", "usd=2.50"), ("usd=1,tokens=2,operations=3", "usd=1,tokens=2,operations=3"), ("tokens=5", "tokens=5")],
)
def test_a_budget_is_written_as_dollars_or_as_limits_and_can_be_passed_on(text: str, budget: str) -> None:
    found = BudgetOption().convert(text, None, None)
    assert isinstance(found, Budget)
    assert str(found) == budget
    assert option_words({"budget": found}) == ["--budget", budget]


@pytest.mark.parametrize("text", ["", "usd=", "tokens=1.5", "usd=1,usd=2", "time=5", "tokens=-1", "nan", "1,2"])
def test_anything_else_is_refused(place: Path, text: str) -> None:
    done = run("run", "limits.py:counting", "--budget", text, cwd=place)
    assert (done.code, "is not a budget. Write dollars" in done.stderr) == (2, True), done
