"""What a shell is told when somebody presses Tab: ids, workflows, targets, steps.

Whatever goes wrong, a shell that asks gets an empty answer: a person in the middle of a line has no use for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from pausepoint.cli.console import ago
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.host import STORE, TARGET
from pausepoint.cli.text import one_line, position_phrase

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo

Items = list[CompletionItem[str]]

MOST = 50
"""How many sessions are offered: the last that moved."""

PARKED = ("ready", "created", "failed", "paused", "waiting", "sleeping")
SENSIBLE: dict[str, tuple[str, ...]] = {
    "resume": PARKED,
    "plan": PARKED,
    "pause": ("running", *PARKED),
    "cancel": ("running", "pausing", *PARKED),
    "send": ("running", "pausing", *PARKED),
    "watch": ("running", "pausing", "sleeping", "waiting", "ready", "created"),
}
"""Command → the statuses in which it has something to do; others take every session."""


def complete(kind: str, ctx: click.Context, incomplete: str) -> Items:
    """What could be meant by the beginning of a word; ``kind`` is the name of a function below."""
    try:
        found: Items = KINDS[kind](ctx, incomplete)
    except Exception:
        return []
    return found


def sessions(ctx: click.Context, incomplete: str) -> Items:
    """The ids of sessions with which the command could do something."""
    statuses = SENSIBLE.get(ctx.info_name or "")

    async def look(engine: Engine) -> Items:
        found = await engine.sessions(prefix=incomplete, status=statuses, sort="updated", limit=MOST)
        return [CompletionItem(str(info.session_id), help=_said(info)) for info in found]

    return _looked(ctx, look)


def _said(info: SessionInfo) -> str:
    return f"{info.workflow} {info.status.value}{position_phrase(info)} {ago(info.updated_at)}"


def questions(ctx: click.Context, incomplete: str) -> Items:
    """The ids of questions that wait, and those of their sessions."""

    async def look(engine: Engine) -> Items:
        found = await engine.questions()
        named = {each.id: each for each in found} | {each.session_id: each for each in found}
        some = [(name, each) for name, each in named.items() if name.startswith(incomplete)][:MOST]
        return [CompletionItem(name, help=one_line(f"{each.workflow_id}: {each.next_question}")) for name, each in some]

    return _looked(ctx, look)


def workflows(ctx: click.Context, incomplete: str) -> Items:
    """The names of workflows, of the project and of the sessions that are stored."""

    async def look(engine: Engine) -> Items:
        return [CompletionItem(name) for name, _ in await engine.tally()]

    cli = _cli(ctx)
    names = {*cli.project.targets, *cli.host.workflows_by_name, *(item.value for item in _looked(ctx, look))}
    return _beginning(names, incomplete)


def targets(ctx: click.Context, incomplete: str) -> Items:
    """The workflows that the project names; else files."""
    cli = _cli(ctx)
    known = {*cli.project.targets, *cli.host.workflows_by_name}
    return _beginning(known, incomplete) or [CompletionItem(incomplete, type="file")]


def steps(ctx: click.Context, incomplete: str) -> Items:
    """The steps of the session, or of the workflow, that stands before it on the line."""

    async def look(engine: Engine) -> Items:
        # With an option whose value is still to come, what stands before it is not taken for a parameter.
        info = await engine.find(ctx.params.get("session") or ctx.args[0])
        return [CompletionItem(name) for name in await engine.outline(info.session_id)]

    if TARGET in ctx.meta:
        return _beginning({step.name: None for step in ctx.meta[TARGET][0].workflow.steps}, incomplete)
    return _beginning({item.value: None for item in _looked(ctx, look)}, incomplete)


KINDS: dict[str, Callable[[click.Context, str], Items]] = {
    "sessions": sessions,
    "workflows": workflows,
    "targets": targets,
    "steps": steps,
    "questions": questions,
}


def _beginning(names: dict[str, None] | set[str], incomplete: str) -> Items:
    ordered = sorted(names) if isinstance(names, set) else names
    return [CompletionItem(name) for name in ordered if name.startswith(incomplete)]


def _cli(ctx: click.Context) -> Cli:
    return Cli(ctx.params.get("store") or ctx.meta.get(STORE), (), False, False)


def _looked(ctx: click.Context, look: Callable[[Engine], Coroutine[Any, Any, Items]]) -> Items:
    """What is found in the store; nothing if there is none."""
    cli = _cli(ctx)

    async def main() -> Items:
        async with cli.engine() as engine:
            return await look(engine)

    found: Items = run_async(main()) if cli.place.exists else []
    return found
