"""Shell completion of session ids, workflows, targets and steps.

If anything goes wrong, the shell gets an empty list: an error in the middle of a command line would not help.
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
"""The number of sessions to offer, the last updated ones."""

PARKED = ("ready", "created", "failed", "paused", "waiting", "sleeping")
SENSIBLE: dict[str, tuple[str, ...]] = {
    "resume": PARKED,
    "plan": PARKED,
    "pause": ("running", *PARKED),
    "cancel": ("running", "pausing", *PARKED),
    "send": ("running", "pausing", *PARKED),
    "watch": ("running", "pausing", "sleeping", "waiting", "ready", "created"),
}
"""Command → the statuses that it can act on. Other commands accept every session."""


def complete(kind: str, ctx: click.Context, incomplete: str) -> Items:
    """Return the completions of a word. ``kind`` is the name of a function below."""
    try:
        found: Items = KINDS[kind](ctx, incomplete)
    except Exception:
        return []
    return found


def sessions(ctx: click.Context, incomplete: str) -> Items:
    """Return the ids of sessions that the command can act on."""
    statuses = SENSIBLE.get(ctx.info_name or "")

    async def look(engine: Engine) -> Items:
        found = await engine.sessions(prefix=incomplete, status=statuses, sort="updated", limit=MOST)
        return [CompletionItem(str(info.session_id), help=_session_help(info)) for info in found]

    return _from_store(ctx, look)


def _session_help(info: SessionInfo) -> str:
    return f"{info.workflow} {info.status.value}{position_phrase(info)} {ago(info.updated_at)}"


def questions(ctx: click.Context, incomplete: str) -> Items:
    """Return the ids of waiting questions and of their sessions."""

    async def look(engine: Engine) -> Items:
        found = await engine.questions()
        named = {each.id: each for each in found} | {each.session_id: each for each in found}
        some = [(name, each) for name, each in named.items() if name.startswith(incomplete)][:MOST]
        return [CompletionItem(name, help=one_line(f"{each.workflow_id}: {each.next_question}")) for name, each in some]

    return _from_store(ctx, look)


def workflows(ctx: click.Context, incomplete: str) -> Items:
    """Return the names of the workflows of the project and of the stored sessions."""

    async def look(engine: Engine) -> Items:
        return [CompletionItem(name) for name, _ in await engine.tally()]

    cli = _cli(ctx)
    names = {*cli.project.targets, *cli.host.workflows_by_name, *(item.value for item in _from_store(ctx, look))}
    return _starting_with(names, incomplete)


def targets(ctx: click.Context, incomplete: str) -> Items:
    """Return the workflows that the project names, or file completion."""
    cli = _cli(ctx)
    known = {*cli.project.targets, *cli.host.workflows_by_name}
    return _starting_with(known, incomplete) or [CompletionItem(incomplete, type="file")]


def steps(ctx: click.Context, incomplete: str) -> Items:
    """Return the steps of the session or workflow that the command line names."""

    async def look(engine: Engine) -> Items:
        # While an option still lacks its value, click has not parsed the arguments before it.
        info = await engine.find(ctx.params.get("session") or ctx.args[0])
        return [CompletionItem(name) for name in await engine.session(info.session_id).outline()]

    if TARGET in ctx.meta:
        return _starting_with({step.name: None for step in ctx.meta[TARGET][0].workflow.steps}, incomplete)
    return _starting_with({item.value: None for item in _from_store(ctx, look)}, incomplete)


KINDS: dict[str, Callable[[click.Context, str], Items]] = {
    "sessions": sessions,
    "workflows": workflows,
    "targets": targets,
    "steps": steps,
    "questions": questions,
}


def _starting_with(names: dict[str, None] | set[str], incomplete: str) -> Items:
    ordered = sorted(names) if isinstance(names, set) else names
    return [CompletionItem(name) for name in ordered if name.startswith(incomplete)]


def _cli(ctx: click.Context) -> Cli:
    return Cli(ctx.params.get("store") or ctx.meta.get(STORE), (), False, False)


def _from_store(ctx: click.Context, look: Callable[[Engine], Coroutine[Any, Any, Items]]) -> Items:
    """Return what is found in the store; nothing if there is no store."""
    cli = _cli(ctx)

    async def main() -> Items:
        async with cli.engine() as engine:
            return await look(engine)

    found: Items = run_async(main()) if cli.place.exists else []
    return found
