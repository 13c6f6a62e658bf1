"""`mcp`: let a language model look at the sessions and pause them, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, USAGE, Refused
from pausepoint.cli.options import OneOf, by_option, common

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.integrations.mcp_desk import Settings
    from pausepoint.integrations.mcp_tools import Allow

GRACE = 2.0
"""Seconds after a signal or the end of stdin in which the server must have ended. Then the process exits."""


@click.command()
@click.option("--allow", type=OneOf(["look", "act"]), default="look", show_default=True,
              help="look: read and pause. act: also answer (the person gets a form), resume and send.")  # fmt: skip
@click.option("--tools", is_flag=True, help="Print the tools that a client gets, and exit.")
@by_option
@common(target=True)
def mcp(cli: Cli, allow: Allow, tools: bool, by: str | None) -> int:
    """Serve this store to a language model over MCP, on stdin and stdout.

    A client such as Claude Code starts this command and ends it. Add it with

        claude mcp add pausepoint -- pausepoint mcp --store PATH

    By default a model may look at everything in the store, and pause. It cannot resume, answer or send: those tools are
    not even listed. With --allow act, a question is answered by the person in front of the client, never by the model.

    The store is opened for each call, and may be created later. --target names the code of workflows, for plans.
    """
    if tools:
        return _print_tools(cli, allow)
    if find_spec("mcp") is None or find_spec("mcp_types") is None:  # version 1 has no mcp_types
        from pausepoint.integrations.mcp import MISSING

        raise Refused(MISSING, USAGE)
    if cli.out.as_json:
        raise Refused("--json prints the list of tools. Add --tools, or leave it out: stdout is for the client.", USAGE)
    _name_from_anywhere(cli)
    if sys.stdin.isatty():
        words = shlex.join(["claude", "mcp", "add", "pausepoint", "--", *cli.host.words, "mcp", *cli.store_words()])
        cli.out.note(f"This server waits for a client on stdin; Ctrl+C ends it. Add it to Claude Code:  {words}")
    code: int = run_async(_served(_settings(cli, allow, by)))
    return code


def _print_tools(cli: Cli, allow: Allow) -> int:
    from pausepoint.integrations.mcp_tools import listed

    models = list(listed(allow))
    if cli.out.as_json:
        from pausepoint.cli.documents import ModelTool, ModelTools

        tools = [ModelTool(each.name, not each.is_look, each.text, each.schema) for each in models]
        cli.out.document(ModelTools(allow, tools))
    width = max(len(each.name) for each in models)
    for each in models:
        cli.out.say(f"{each.name.ljust(width)}  {each.text}", width + 2)
    return DONE


def _name_from_anywhere(cli: Cli) -> None:
    """Make commands name files by absolute paths: the person may be in another folder than the server."""
    if cli.place.path is not None:
        cli.place = replace(cli.place, text=str(cli.place.path))
    cli.targets = tuple(_absolute(each) for each in cli.targets)


def _absolute(target: str) -> str:
    """Return a target with the absolute path of its file. That of a module stays as it is."""
    place, colon, name = target.partition(":")
    path = Path(place).expanduser()
    return f"{path.absolute()}{colon}{name}" if path.is_file() else target


def _settings(cli: Cli, allow: Allow, by: str | None) -> Settings:
    from pausepoint.engine.engine import Engine
    from pausepoint.integrations.mcp_desk import CallRefused, Settings

    cli.may_import = False  # broken code must not fail a call that has stored a pause
    importing = Lock()

    def workflows() -> Iterable[Workflow[Any]]:
        try:
            with importing:  # a second thread would find half a module
                return [workflow for _, workflow in cli.known().values()]
        except Refused as error:
            raise CallRefused(error.message) from None

    def command(verb: str, name: str | None) -> str:
        return cli.lift if verb == "resume --all" else cli.command(verb, name)

    return Settings(
        engine=lambda: Engine(cli.place.url, create=False, drives="none", signals=False), workflows=workflows,
        command=command, resume=lambda info: f"`{cli.resume(info)}`{cli.to_add(info)}", allow=allow, by=by,
    )  # fmt: skip


async def _served(settings: Settings) -> int:
    """Serve until the client closes stdin, or until a signal."""
    from pausepoint.integrations.mcp_server import serve

    loop, stopped = asyncio.get_running_loop(), list[int]()
    work = asyncio.ensure_future(serve(settings, on_end=lambda: _exit_after_grace(DONE)))

    def stop(number: int, frame: object) -> None:
        if stopped:
            os._exit(128 + number)
        stopped.append(number)
        _exit_after_grace(128 + number)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(work.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not stopped:
            raise
    return 128 + stopped[0] if stopped else DONE


def _exit_after_grace(code: int) -> None:
    """End the process after the grace, unless it ends by itself. A stuck event loop does not delay the timer."""
    timer = Timer(GRACE, os._exit, [code])
    timer.daemon = True
    timer.start()
