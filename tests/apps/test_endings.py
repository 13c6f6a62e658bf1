"""How a call of an application ends: the exit codes, and signals before the work is done."""

from __future__ import annotations

import click
import pytest

from pausepoint.apps import endings
from pausepoint.apps.endings import FAILED, INTERRUPTED, PERSON, TERMINATED, Ending, ended
from pausepoint.cli import exits

CODES = ("DONE", "FAILED", "PERSON", "NOT_FOUND", "CONFLICT", "DECISION", "INTERRUPTED", "TERMINATED")


def early(why: str, code: int) -> Ending:
    return code, {"why": why}


def raising(error: BaseException) -> Ending:
    raise error


@pytest.mark.parametrize("name", CODES)
def test_applications_end_with_the_codes_of_the_command_line(name: str) -> None:
    assert getattr(endings, name) == getattr(exits, name)


def test_work_that_is_not_stopped_ends_as_it_says() -> None:
    assert ended(lambda: (PERSON, {"open": 1}), early) == (PERSON, {"open": 1})


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (KeyboardInterrupt(), INTERRUPTED, "Interrupted"),
        (click.Abort(), INTERRUPTED, "Interrupted"),
        (SystemExit(TERMINATED), TERMINATED, "Terminated"),
    ],
)
def test_a_signal_ends_the_work_early(error: BaseException, code: int, why: str) -> None:
    assert ended(lambda: raising(error), early) == (code, {"why": why})


@pytest.mark.parametrize("error", [SystemExit(FAILED), ValueError("no")])
def test_every_other_error_reaches_the_caller(error: BaseException) -> None:
    with pytest.raises(type(error)):
        ended(lambda: raising(error), early)
