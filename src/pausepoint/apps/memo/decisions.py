"""Decide about edited or damaged files: ask at a terminal, otherwise report them and change nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import click

from pausepoint import Session
from pausepoint.apps.endings import at_terminal
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo.models import MemoState
from pausepoint.apps.memo.workflow import AGENTS
from pausepoint.engine import Plan
from pausepoint.errors import FolderRefused

Edits = Literal["accept", "discard"]


def decision(plan: Plan, onward: str, merged: Collection[str] = ()) -> Edits | None:
    """Return the user's decision, or None if there is none yet. ``onward`` is the command to repeat with an option.

    ``merged`` are the files whose edits are merged into what the agents write.
    """
    for each in plan.artifacts:
        if each.path in plan.undecided:
            click.echo(f"{each.path} is {each.state}: {each.why}", err=True)
    for cost in plan.stale:
        click.echo(f"  {cost} would run again", err=True)
    for edit in plan.replaces:
        what = f"{edit.step} writes {edit.path} again; your paragraphs stay (kept as {edit.kept}, too)"
        click.echo(f"  {what if edit.path in merged else edit}", err=True)
    broken = any(each.state == "invalid" for each in plan.artifacts if each.path in plan.undecided)
    if at_terminal():
        ways: dict[str, Edits | None] = {"accept": "accept", "discard": "discard", "stop": None}
        offered = [way for way in ways if not (broken and way == "accept")]
        if not plan.undecided:
            offered.remove("discard")
        return ways[click.prompt("Accept or discard the changes?", type=click.Choice(offered), default="stop")]
    what = "Repair the file, or repeat" if broken else "Repeat"
    options = "--edits discard" if broken else "--edits accept or --edits discard"
    if not plan.undecided:
        options = "--edits accept"
    click.echo(f"Nothing was changed. {what} the command with {options}: {onward}", err=True)
    return None


async def put_back(session: Session[MemoState], plan: Plan) -> None:
    """Discard edits. If the store does not have the recorded content of a file, an agent must write the file again."""
    try:
        await session.restore(plan.undecided)
    except FolderRefused as error:
        agents = [each.step for each in plan.artifacts if each.path in plan.undecided]
        first = earliest(min(agents, key=AGENTS.index))
        raise BadInput(f"{error} On the command line, that is --edits accept, or --from {first}.") from None


def earliest(agent: str) -> str:
    """Return the agent to start with if only files remain: one that does not overwrite its own input."""
    if agent.startswith("enrich"):
        return "draft"
    return "validate_citations" if agent in ("fact_check", "validate") else agent
