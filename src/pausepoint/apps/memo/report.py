"""Report how a call of the memo ended: the printed lines, the exit code, and the JSON document."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pausepoint import Outcome, Question, Status
from pausepoint.apps.memo.folders import memo_file
from pausepoint.apps.memo.models import MemoState
from pausepoint.apps.words import many
from pausepoint.cli import Start
from pausepoint.engine import Plan

DONE, FAILED, PERSON, NOT_FOUND, CONFLICT, DECISION, INTERRUPTED, TERMINATED = 0, 1, 3, 4, 5, 6, 130, 143

Ending = tuple[int, dict[str, Any] | None]
"""The exit code, and the document for ``--json``."""


@dataclass(frozen=True)
class Stand:
    """The result of a call. ``code`` is set if nothing was driven, ``undecided`` if a decision is needed."""

    folder: Path | None = None
    outcome: Outcome[MemoState] | None = None
    code: int = DONE
    undecided: Plan | None = None

    @property
    def question(self) -> Question | None:
        """The open question to a person, if there is one."""
        return next(iter(self.outcome.questions), None) if self.outcome is not None else None


def reported(stand: Stand, start: Start, onward: str) -> Ending:
    """Print the result of a call. ``onward`` is the command that resumes the memo."""
    outcome = stand.outcome
    if outcome is None or stand.folder is None:
        status = Status.COMPLETED.value if stand.code == DONE else None
        return stand.code, {"status": status, "exit_code": stand.code, **_places(stand.folder)}
    _tell_result(stand.folder, outcome)
    if stand.question is not None:
        click.echo(shown(stand.question.next_question))
        click.echo(f"Answer: {start.command('answer', stand.question.id, 'approve')}", err=True)
    elif outcome.failure is not None:
        failure = outcome.failure
        click.echo(f"{failure.step} failed: {failure.type}: {failure.message}", err=True)
    elif outcome.pauses:
        why = "; ".join(pause.reason or f"by {pause.by or 'someone'}" for pause in outcome.pauses)
        click.echo(f"Paused: {why}", err=True)
    if outcome.status is not Status.COMPLETED:
        click.echo(f"Resume: {onward}", err=True)
    code = {Status.COMPLETED: DONE, Status.FAILED: FAILED, Status.CANCELLED: FAILED}.get(outcome.status, PERSON)
    return code, _document(stand.folder, outcome, onward, code)


def _tell_result(folder: Path, outcome: Outcome[MemoState]) -> None:
    score = outcome.state.validation.overall_score
    if outcome.status is Status.COMPLETED:
        click.echo(f"✓ Memo complete: {memo_file(folder)}")
    if score is not None:
        click.echo(f"Score: {score}")
    if outcome.skipped_visits or outcome.saved_usd:
        saved = f"{outcome.saved_time.total_seconds():.2f} s"
        cost = f" and ${outcome.saved_usd:.4g}" if outcome.saved_usd else ""
        click.echo(f"Saved by resuming: {saved}{cost} ({many(outcome.skipped_visits, 'agent')} skipped)")
    if outcome.spent_usd:
        click.echo(f"Spent: ${outcome.spent_usd:.4g}")


def _document(folder: Path, outcome: Outcome[MemoState], onward: str, code: int) -> dict[str, Any]:
    failure = outcome.failure
    return {
        "session_id": outcome.session_id, "status": outcome.status.value, **_places(folder),
        "overall_score": outcome.state.validation.overall_score,
        "skipped_agents": outcome.skipped_visits, "saved_seconds": outcome.saved_time.total_seconds(),
        "saved_usd": outcome.saved_usd, "spent_usd": outcome.spent_usd,
        "questions": [question.record() for question in outcome.questions], "command": onward,
        "failure": failure and {"agent": failure.step, "type": failure.type, "message": failure.message},
        "exit_code": code,
    }  # fmt: skip


def _places(folder: Path | None) -> dict[str, str | None]:
    """Return the paths of the folder and the memo, if they exist."""
    if folder is None:
        return {"folder": None, "memo": None}
    written = memo_file(folder)
    return {"folder": str(folder), "memo": str(written) if written.exists() else None}


def at_terminal() -> bool:
    """Return whether input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def shown(text: str) -> str:
    """Wrap a long line for a terminal, without breaking words."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    return text.replace("\xa0", " ")
