"""`worker`: drive the sessions that are ready: interrupted ones, due timers, and messages that have arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, INTERRUPTED, TERMINATED, USAGE, Refused
from pausepoint.cli.options import WORKFLOWS, Whole, by_option, common
from pausepoint.cli.project import check_exists
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.engine.engine import Engine

LOOK_EVERY = 0.5
"""Seconds between two searches for ready sessions."""

STOPPED = "Stopped. Unfinished sessions are ready for the next worker."

SHARE = 20
"""After a search in vain, the worker rests this many times as long, so that searching never becomes the main load."""


@click.command()
@click.option("--workflow", "only", multiple=True, metavar="NAME", shell_complete=WORKFLOWS,
              help="Only sessions of this workflow; repeatable.")  # fmt: skip
@click.option("--once", is_flag=True, help="Exit when nothing is ready or due any more.")
@click.option("--concurrency", type=Whole(1), default=100, show_default=True, metavar="N",
              help="The number of sessions to drive at the same time.")  # fmt: skip
@by_option
@common(lines=True, target=True)
def worker(cli: Cli, only: tuple[str, ...], once: bool, concurrency: int, by: str | None) -> int:
    """Drive all sessions of this store that are ready or due, with the workflows of this project and of --target.

    A session is ready if it was interrupted, its timer is due, or its message has arrived. Paused, failed and waiting
    sessions stay as they are. Ctrl+C and SIGTERM finish the current operations and leave the sessions ready.
    """
    if cli.out.as_json and not once:
        raise Refused("--json prints one document at the end, but a worker does not end. Add --once, or use --jsonl.",
                      USAGE)  # fmt: skip
    job = Job(cli, only, concurrency, by)
    try:
        code: int = run_async(job.work(once))
    except KeyboardInterrupt:
        return job.stopped(INTERRUPTED)
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        return job.stopped(TERMINATED)
    return code


class Job:
    """One worker."""

    def __init__(self, cli: Cli, only: tuple[str, ...], concurrency: int, by: str | None) -> None:
        self.cli = cli
        self.out = cli.out
        self.only = only
        self.concurrency = concurrency
        self.by = by
        self.driven: dict[str, None] = {}

    async def work(self, once: bool) -> int:
        """Drive sessions until nothing is ready (``once``), or until the process is stopped."""
        workflows = self._workflows()
        if once and not self.cli.place.exists and not self.cli.place.explicit:
            return await self._report(None)
        from pausepoint.engine.engine import Engine

        if self.cli.place.explicit:
            check_exists(self.cli.place)
        async with Engine(self.cli.place.url, workflows=workflows) as engine:
            names = ", ".join(engine.workflows)
            self.out.note(f"Driving {names} in {self.cli.place.path}" + ("" if once else "; Ctrl+C stops the worker"))
            with shown_log(self.out, self.driven):
                await self._loop(engine, once)
            return await self._report(engine)

    def _workflows(self) -> list[Any]:
        known = self.cli.known()
        if not known:
            raise Refused(
                "The worker has no workflow to run. Add --target file.py:name, or name workflows in"
                f" {self.cli.project.root / 'pyproject.toml'} under [tool.pausepoint.workflows].",
                USAGE,
            )
        for name in self.only:
            if name not in known:
                from pausepoint.errors import did_you_mean

                raise Refused(f"The worker has no workflow {name!r}{did_you_mean(name, known)}", USAGE)
        return [workflow for name, (_, workflow) in known.items() if not self.only or name in self.only]

    async def _loop(self, engine: Engine, once: bool) -> None:
        while True:
            began = time.monotonic()
            room = max(self.concurrency - len(engine.running), 0)
            taken = await engine.take_ready(room, by=self.by) if room else []
            if once and not taken and not engine.running:
                return
            # The time to begin to drive sessions says nothing about the cost of a search.
            searched = 0.0 if taken else time.monotonic() - began
            await asyncio.sleep(max(0.05 if once else LOOK_EVERY, SHARE * searched))

    async def _report(self, engine: Engine | None) -> int:
        from pausepoint.engine import documents

        ended = [] if engine is None else [await engine.info(each) for each in self.driven]
        if self.out.as_json:
            self.out.document(documents.worked(ended))
        if not self.driven:
            self.out.note("Nothing was ready or due.")
        return DONE

    def stopped(self, code: int) -> int:
        """Report that a signal stopped the worker."""
        self.out.note(STOPPED)
        return code


@contextmanager
def shown_log(out: Output, driven: dict[str, None]) -> Iterator[None]:
    """Show what the engine logs about its sessions, and add their ids to ``driven``."""
    logger = logging.getLogger(NAME)
    handler = Handler(out, driven)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Handler(logging.Handler):
    """Prints a log record as a line for a person, or of JSON."""

    def __init__(self, out: Output, driven: dict[str, None]) -> None:
        super().__init__(logging.INFO)
        self.out = out
        self.driven = driven

    def emit(self, record: logging.LogRecord) -> None:
        from pausepoint.cli.text import one_line

        session_id = getattr(record, "session_id", "")
        at = datetime.fromtimestamp(record.created, UTC)
        if session_id:
            self.driven[session_id] = None
        text = record.getMessage().removeprefix(f"session {session_id}: ")
        if self.out.as_lines:
            from pausepoint.engine import documents

            step = getattr(record, "step", "")
            self.out.record(documents.log_line(at, record.levelname.lower(), session_id, step, text))
            return
        who = f"{session_id}  " if session_id else ""
        self.out.line(f"{at.astimezone():%H:%M:%S}  {who}{one_line(text)}")
