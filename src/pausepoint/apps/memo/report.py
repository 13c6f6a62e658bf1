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
from pausepoint.apps.endings import DONE, FAILED, PERSON, Ending
from pausepoint.apps.memo.folders import memo_file, page_file
from pausepoint.apps.memo.models import MemoDocument, MemoState, Review
from pausepoint.apps.words import many
from pausepoint.cli import Start
from pausepoint.engine import Plan


@dataclass(frozen=True)
class Stand:
    """The result of a call. ``code`` is set if nothing was driven, ``undecided`` if a decision is needed.

    ``merged`` are files whose edits the agents merge. ``rejected`` is the verdict if a reviewer has ended the memo.
    """

    folder: Path | None = None
    outcome: Outcome[MemoState] | None = None
    code: int = DONE
    undecided: Plan | None = None
    merged: tuple[str, ...] = ()
    rejected: Review | None = None

    @property
    def question(self) -> Question | None:
        """The open question to a person, if there is one."""
        return next(iter(self.outcome.questions), None) if self.outcome is not None else None

    @property
    def sent_back(self) -> bool:
        """Whether a reviewer has sent the memo back to an agent that has not run yet."""
        found = rejection(self.outcome.state.final) if self.outcome is not None else None
        return found is not None and bool(found.agent)


def rejection(final: MemoDocument) -> Review | None:
    """Return the verdict on a rejected memo; None if it was not rejected."""
    found = final.review
    return found if found is not None and found.verdict == "rejected" else None


def reported(stand: Stand, start: Start, onward: str) -> Ending:
    """Print the result of a call. ``onward`` is the command that resumes the memo."""
    outcome = stand.outcome
    if outcome is None or stand.folder is None:
        return _told_without_a_drive(stand)
    _tell_result(stand.folder, outcome)
    rejected = rejection(outcome.state.final)
    if stand.question is not None:
        click.echo(shown(stand.question.next_question))
        answer = "approve" if stand.question.key == "review" else "ANSWER"
        click.echo(f"Answer: {start.command('answer', stand.question.id, answer)}", err=True)
    elif rejected is not None:
        click.echo(f"✗ Memo rejected: {rejected.reason}")
    elif outcome.failure is not None:
        failure = outcome.failure
        click.echo(f"{failure.step} failed: {failure.type}: {failure.message}", err=True)
    elif outcome.pauses:
        why = "; ".join(pause.reason or f"by {pause.by or 'someone'}" for pause in outcome.pauses)
        click.echo(f"Paused: {why}", err=True)
        onward += " --budget USD" if any(pause.kind == "budget" for pause in outcome.pauses) else ""
    if outcome.status is not Status.COMPLETED:
        how = f"Send it back to {rejected.agent}" if rejected is not None and rejected.agent else "Resume"
        click.echo(f"{how}: {onward}", err=True)
    code = {Status.COMPLETED: DONE, Status.FAILED: FAILED, Status.CANCELLED: FAILED}.get(outcome.status, PERSON)
    code = FAILED if rejected is not None and not rejected.agent else code
    return code, _document(stand.folder, outcome, onward, code)


def _told_without_a_drive(stand: Stand) -> Ending:
    if stand.rejected is not None:
        click.echo(f"✗ Memo rejected: {stand.rejected.reason}")
        click.echo("Redo an agent and all after it with --from AGENT.", err=True)
    status = Status.COMPLETED.value if stand.code == DONE else "rejected" if stand.rejected is not None else None
    return stand.code, {"status": status, "exit_code": stand.code, **_places(stand.folder)}


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
    if (page := page_file(folder, outcome.state)) is not None:
        click.echo(f"Page: {page}")


def _document(folder: Path, outcome: Outcome[MemoState], onward: str, code: int) -> dict[str, Any]:
    failure = outcome.failure
    return {
        "session_id": outcome.session_id, "status": outcome.status.value, **_places(folder),
        "overall_score": outcome.state.validation.overall_score,
        "review": outcome.state.final.review and outcome.state.final.review.model_dump(mode="json"),
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


def shown(text: str) -> str:
    """Wrap a long line for a terminal, without breaking words."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    return text.replace("\xa0", " ")
