"""`worker`: drive the sessions that are ready: interrupted ones, due timers, and messages that have arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, USAGE, Refused, stopped_by
from pausepoint.cli.health import Health, served
from pausepoint.cli.options import WORKFLOWS, Whole, by_option, common
from pausepoint.cli.project import check_exists
from pausepoint.errors import StoreUnavailable
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.engine.engine import Engine

LOOK_EVERY = 0.5
"""Seconds between two searches for ready sessions."""

LONGEST_REST = 10.0
"""The most seconds between two searches. The health of a worker that does not search is bad after 30."""

DRIVING = "Driving"
"""The first word of the line that says that the worker runs."""

STOPPED = "Stopped. Unfinished sessions are ready for the next worker."

SHARE = 20
"""After a search in vain, the worker rests this many times as long, so that searching never becomes the main load."""


@click.command()
@click.option("--workflow", "only", multiple=True, metavar="NAME", shell_complete=WORKFLOWS,
              help="Only sessions of this workflow; repeatable.")  # fmt: skip
@click.option("--queue", "queues", metavar="NAMES", help="Only sessions of these queues, separated by commas.")
@click.option(
    "--once", is_flag=True, help="Exit when nothing more can be picked up. What waits for a slot stays ready."
)
@click.option("--concurrency", type=Whole(1), default=100, show_default=True, metavar="N",
              help="Drive no more sessions at a time.")  # fmt: skip
@click.option("--drain", type=Whole(), metavar="SECONDS",
              help="After Ctrl+C or SIGTERM, abort operations that take longer. Default: wait for them.")  # fmt: skip
@click.option("--health", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics over HTTP there.")
@by_option
@common(lines=True, target=True)
def worker(
    cli: Cli, only: tuple[str, ...], queues: str | None, once: bool, concurrency: int, drain: int | None,
    health: str | None, by: str | None,
) -> int:  # fmt: skip
    """Drive all sessions of this store that are ready or due, with the workflows of this project and of --target.

    A session is ready if it was interrupted, its timer is due, or its message has arrived. Paused, failed and waiting
    sessions stay as they are. Ctrl+C and SIGTERM finish the current operations and leave the sessions ready.
    """
    if cli.out.as_json and not once:
        raise Refused("--json prints one document at the end, but a worker does not end. Add --once, or use --jsonl.",
                      USAGE)  # fmt: skip
    job = Job(cli, only, concurrency, by, drain, health, _named(queues))
    try:
        code: int = run_async(job.work(once))
    except (KeyboardInterrupt, SystemExit) as end:
        code = stopped_by(end)
        cli.out.note(STOPPED)
    return code


def _named(queues: str | None) -> tuple[str, ...] | None:
    """Return the queues of --queue, or None for all of them."""
    if queues is None:
        return None
    from pausepoint.model.queues import check_queue

    try:
        return tuple(check_queue(each.strip()) for each in queues.split(","))
    except ValueError as exc:
        raise Refused(f"--queue: {exc}", USAGE) from exc


class Job:
    """One worker."""

    def __init__(
        self, cli: Cli, only: tuple[str, ...], concurrency: int, by: str | None, drain: int | None = None,
        address: str | None = None, queues: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.cli = cli
        self.queues = queues
        self.out = cli.out
        self.only = only
        self.concurrency = concurrency
        self.by = by
        self.drain = None if drain is None else timedelta(seconds=drain)
        self.address = address
        self.health = Health(concurrency)
        self.driven: dict[str, None] = {}

    async def work(self, once: bool) -> int:
        """Drive sessions until nothing is ready (``once``), or until the process is stopped."""
        workflows = self._workflows()
        if once and not self.cli.place.exists and not self.cli.place.explicit:
            return await self._report(None)
        from pausepoint.engine.engine import Engine

        if self.cli.place.explicit and self.cli.place.path is not None:  # on a server, the first worker makes the store
            check_exists(self.cli.place)
        async with AsyncExitStack() as stack:
            if self.address is not None:  # it answers until the engine has closed
                self.out.note(f"Health: {await stack.enter_async_context(served(self.health, self.address))}/healthz")
            opened = Engine(
                self.cli.place.url, workflows=workflows, drain=self.drain, queues=self.queues,
                concurrency=self.concurrency,
            )  # fmt: skip
            engine = self.health.engine = await stack.enter_async_context(opened)
            names = ", ".join(engine.workflows) + (f" of {', '.join(self.queues)}" if self.queues else "")
            self.out.note(
                f"{DRIVING} {names} in {self.cli.place.shown}" + ("" if once else "; Ctrl+C stops the worker")
            )
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
            taken = await _taken(engine, self.concurrency, self.by, once)
            self.health.look(len(taken))
            if once and not taken and not engine.running:
                return
            # The time to begin to drive sessions says nothing about the cost of a search.
            searched = 0.0 if taken else time.monotonic() - began
            await asyncio.sleep(max(0.05 if once else LOOK_EVERY, min(SHARE * searched, LONGEST_REST)))

    async def _report(self, engine: Engine | None) -> int:
        from pausepoint.engine import documents

        ended = [] if engine is None else [await engine.session(each).info() for each in self.driven]
        if self.out.as_json:
            self.out.document(documents.Worked([documents.SessionDocument.of(info) for info in ended]))
        if not self.driven:
            self.out.note("Nothing was ready or due.")
        return DONE


async def _taken(engine: Engine, most: int, by: str | None, once: bool) -> Sequence[Any]:
    """Begin to drive sessions that are ready. A store that cannot be reached is tried again, unless ``once``."""
    try:
        return await engine.take_ready(most, by=by)
    except StoreUnavailable as error:
        if once:
            raise
        logging.getLogger(NAME).warning("cannot look for sessions, retrying: %s", error)
        return []


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
            from pausepoint.cli.documents import LogLine

            step = getattr(record, "step", "")
            self.out.record(LogLine(at.isoformat(), record.levelname.lower(), session_id, step, text))
            return
        who = f"{session_id}  " if session_id else ""
        self.out.line(f"{at.astimezone():%H:%M:%S}  {who}{one_line(text)}")
