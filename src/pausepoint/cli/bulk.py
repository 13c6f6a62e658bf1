"""Bulk verbs: run one with progress, report what became of each session, and say how to continue."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, FAILED, INTERRUPTED, PERSON, stopped_by
from pausepoint.cli.filters import Filters
from pausepoint.cli.host import command_line
from pausepoint.cli.prompts import at_terminal, confirmed
from pausepoint.cli.text import counted, one_line

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.bulk import BulkItem, BulkProgress, BulkReport

Call = Callable[..., Awaitable["BulkReport"]]

LISTED = 20
"""The most sessions to list per result. A dry run lists all."""

EXAMPLES = 3
"""The number of sessions to name for each reason to skip some."""

LEFT = ("ready", "created")
"""The statuses of sessions whose process was interrupted: after their first record, and before it."""

DONE_WORDS = {"resume": "resumed", "pause": "paused", "cancel": "cancelled"}


class Ticker:
    """A progress line on a terminal. It disappears at the end."""

    def __init__(self, cli: Cli) -> None:
        self.out = cli.out
        self.shows = cli.out.for_people and sys.stderr.isatty()
        self.next = 0.0

    def __call__(self, text: str, quick: bool) -> None:
        """Show the progress. ``quick``: another one follows at once, so that this one may be left out."""
        if self.shows and (not quick or time.monotonic() >= self.next):
            self.next = time.monotonic() + 0.1
            sys.stderr.write(f"\r\x1b[K{self.out.fitted(text)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class BulkCommand:
    """One bulk verb of the command line. ``options`` are those of the engine's verb; ``words`` those to type again."""

    def __init__(
        self, cli: Cli, verb: str, filters: Filters, options: dict[str, Any], *, dry_run: bool = False,
        drives: bool = False, asks: bool = False, words: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.cli = cli
        self.out = cli.out
        self.verb = verb
        self.filters = filters
        self.options = options
        self.dry_run = dry_run
        self.drives = drives and not dry_run
        self.asks = asks and not dry_run
        self.words = words
        self.waits: Callable[[Engine, Sequence[str]], Awaitable[None]] | None = None
        self.ticker = Ticker(cli)
        self.items: dict[str, list[BulkItem]] = {"done": [], "skipped": [], "failed": []}
        self.last: BulkProgress | None = None
        self.began = time.monotonic()

    def run(self) -> int:
        """Run the verb, and return the exit code."""
        if not self.cli.place.exists and not self.cli.place.explicit:
            return self._nothing(f"There is no store here, so there is nothing to {self.verb}.")
        try:
            return int(run_async(self._work()))
        except (KeyboardInterrupt, SystemExit) as end:
            code = stopped_by(end)
            self.ticker.clear()
            run_async(self._interrupted())
            return code

    async def _work(self) -> int:
        async with self._engine() as engine:
            if self.asks and at_terminal(self.out) and not await self._agreed(engine):
                return self._nothing(f"Nothing was {DONE_WORDS[self.verb]}.")
            self.began = time.monotonic()
            report = await self._call(engine, on_progress=self._note, **self.options)
            self.ticker.clear()
            if engine.ending:
                return INTERRUPTED  # not used: the end of the engine's block raises KeyboardInterrupt or SystemExit
            if not report.total:
                return await self._no_match(engine)
            if self.waits is not None and not self.dry_run:
                await self.waits(engine, [item.session_id for item in report.done])
            self._report(engine, report)
            await self._hints(engine, report)
            return self._exit_code(report)

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[Engine]:
        """Open the store. Only a resume drives sessions, and only those that match."""
        if not self.drives:
            async with self.cli.engine() as engine:
                yield engine
            return
        from pausepoint.cli.project import check_exists
        from pausepoint.engine.engine import Engine

        check_exists(self.cli.place)
        workflows = [workflow for _, workflow in self.cli.known().values()]
        async with Engine(
            self.cli.place.url, workflows=workflows, create=False, drives="asked", hold=timedelta(0)
        ) as engine:
            yield engine

    async def _call(self, engine: Engine, filters: Filters | None = None, **options: Any) -> BulkReport:
        verb: Call = getattr(engine.select(**(filters or self.filters).options), self.verb)
        return await verb(**({"dry_run": self.dry_run} | options))

    async def _agreed(self, engine: Engine) -> bool:
        """Show what the verb would do, and ask. Nothing to do needs no answer."""
        planned = await self._call(engine, dry_run=True)
        if not planned.done:
            return True
        self._list([("done", item) for item in planned.done], LISTED)
        many = counted(len(planned.done), "session")
        return confirmed(f"{self.verb.capitalize()} {many} permanently?", default=False)

    # while it runs

    def _note(self, progress: BulkProgress) -> None:
        self.last = progress
        if progress.item is not None and progress.result is not None:
            self.items[progress.result].append(progress.item)
            if self.out.as_lines:
                from pausepoint.engine import store_documents

                self.out.record(store_documents.BulkItemDocument.of(progress.item, result=progress.result))
        parts = [f"{progress.running} running" if progress.running else ""]
        parts += [f"{progress.failed:,} failed" if progress.failed else ""]
        parts += [f"{progress.skipped:,} skipped" if progress.skipped else ""]
        said = ", ".join(filter(None, parts))
        at = f"{progress.total - progress.left:,} of {counted(progress.total, 'session')}"
        self.ticker(f"{self.verb}: {at}{f' ({said})' if said else ''}", quick=not progress.running)

    async def _interrupted(self) -> None:
        """Say how many sessions are left as they were, and how to continue."""
        if self.last is None:
            return
        filters = self.filters
        async with self.cli.engine() as engine:
            if self.last.running and await self._interrupted_before(engine):
                filters = filters._replace(statuses=(*filters.statuses, *LEFT))
            rest = len((await self._call(engine, filters, dry_run=True)).done)
        again = self._command(filters)
        past = DONE_WORDS[self.verb]
        if not self.out.for_people:
            if self.out.as_json:
                from pausepoint.engine import store_documents

                self.out.document(store_documents.bulk(self._so_far(), rest, again))
            return
        count = len(self.items["done"]) + len(self.items["failed"])
        self.out.note(f"Interrupted: {counted(count, 'session was', 'sessions were')} {past}, {rest:,} remain.")
        if rest:
            self.out.note(f"Continue:  {again}")

    def _so_far(self) -> BulkReport:
        from pausepoint.model.bulk import BulkReport

        done, skipped, failed = map(tuple, self.items.values())
        verb: Any = self.verb
        return BulkReport(verb, self.dry_run, done, skipped, failed)

    # afterwards

    def _report(self, engine: Engine, report: BulkReport) -> None:
        if self.out.as_json:
            from pausepoint.engine import store_documents

            self.out.document(store_documents.bulk(report, report.left, None))
        if not self.out.for_people:
            return
        if self.dry_run:
            found = [("done", item) for item in report.done] + [("failed", item) for item in report.failed]
            self._list([*found, *[("skipped", item) for item in report.skipped]], None)
        elif self.verb != "resume":
            self._list([("done", item) for item in report.done], LISTED)
        if not self.dry_run:
            self._list([("failed", item) for item in report.failed], LISTED)
            self._list_skipped(report.skipped)
        self.out.say(self._summary(report))

    def _list(self, found: Sequence[tuple[str, BulkItem]], most: int | None) -> None:
        """Print an aligned line for each session, with what is wrong with it."""
        some = found[:most]
        wide = [max((len(getattr(item, name)) for _, item in some), default=0) for name in ("session_id", "workflow")]
        for result, item in some:
            status = "damaged" if item.status is None else item.status.value
            shown = self.out.status(status) + " " * (9 - len(status))
            why = f"{'skipped: ' if result == 'skipped' else ''}{self._reason(item)}"
            head = f"{item.session_id:{wide[0]}}  {item.workflow:{wide[1]}}  {shown}"
            self.out.say(f"{head}  {one_line(why)}".rstrip(), 4)
        if most is not None and len(found) > most:
            self.out.line(f"… and {len(found) - most:,} more. --json lists all.")

    def _list_skipped(self, items: Sequence[BulkItem]) -> None:
        """Print why sessions were skipped, with a few examples for each reason."""
        groups: dict[str, list[str]] = {}
        for item in items:
            groups.setdefault(item.reason, []).append(item.session_id)
        for reason, ids in list(groups.items())[:LISTED]:
            more = ", …" if len(ids) > EXAMPLES else ""
            self.out.say(one_line(f"Skipped {len(ids):,}: {reason} ({', '.join(ids[:EXAMPLES])}{more})"), 4)
        if len(groups) > LISTED:
            self.out.line(f"… and {len(groups) - LISTED:,} more reasons. --json lists all.")

    def _reason(self, item: BulkItem) -> str:
        needs_code = self.drives and item.reason and item.workflow and not self.cli.has_code(item.workflow)
        return f"needs the code of workflow {item.workflow!r}, which is not loaded" if needs_code else item.reason

    def _summary(self, report: BulkReport) -> str:
        skipped = f" {len(report.skipped):,} skipped." if report.skipped else ""
        failed = f" {len(report.failed):,} failed." if report.failed else ""
        if self.dry_run:
            many = counted(len(report.done), "session")
            return f"{many} would be {DONE_WORDS[self.verb]}.{skipped}{failed} This is a dry run: nothing has changed."
        if self.verb == "resume":
            counts = Counter(item.status.value for item in report.done if item.status is not None)
            parts = [f"{count:,} {self.out.status(name)}" for name, count in counts.most_common()]
            parts += [f"{len(report.failed):,} {self.out.status('failed')}"] if report.failed else []
            many = counted(len(report.done) + len(report.failed), "session")
            return f"{many} {'resumed' if self.drives else 'handed over'}: {', '.join(parts) or 'none'}.{skipped}"
        driven = sum(item.status is not None and item.status.value in ("running", "pausing") for item in report.done)
        still = f", {driven:,} of them after the current step" if driven else ""
        return f"{counted(len(report.done), 'session')} {DONE_WORDS[self.verb]}{still}.{failed}{skipped}"

    async def _hints(self, engine: Engine, report: BulkReport) -> None:
        """Print what to do next."""
        if self.verb == "resume" and not self.dry_run:
            await self._hint_resume(engine, report)
        elif self.verb == "pause" and report.done and not self.dry_run:
            if self.options.get("wait"):
                took = timedelta(seconds=time.monotonic() - self.began)
                self.out.note(f"All have stopped, {span(took)} after the request.")
            filters = self.filters._replace(statuses=("paused", "pausing"), failed=False, since=None, until=None)
            if filters.workflow or filters.tag or filters.owner or filters.queue:
                self.out.note(f"Resume them:  {command_line('resume', *filters.words)}")

    async def _hint_resume(self, engine: Engine, report: BulkReport) -> None:
        missing = sorted({item.workflow for item in report.failed if item.workflow} - set(engine.workflows))
        if self.drives and missing:
            self.out.note(f"To load the code of {' and '.join(missing)}, add --target file.py:name.")
        for workflow in report.unattended:
            self.out.note(
                f"No open process has the workflow {workflow!r}. Its sessions are ready. Start a worker"
                f"{'' if self.cli.has_code(workflow) else ' (add --target file.py:name)'}:"
                f"  {self.cli.command('worker', workflow=workflow)}"
            )
        if count := await self._interrupted_before(engine):
            which = counted(count, "other session was interrupted", "other sessions were interrupted")
            again = self._command(self.filters._replace(statuses=LEFT))
            self.out.note(f"{which} before. Resume {'it' if count == 1 else 'them'}:  {again}")

    async def _interrupted_before(self, engine: Engine) -> int:
        """Return how many sessions do not match only because a process was interrupted that drove them."""
        if not self.drives or not self.filters.statuses or set(LEFT) & {*self.filters.statuses}:
            return 0
        return sum((await engine.tally(**self.filters._replace(statuses=LEFT).options)).values())

    def _exit_code(self, report: BulkReport) -> int:
        if report.failed:
            return FAILED if self.verb == "resume" else CONFLICT
        if self.verb != "resume" or self.dry_run:
            return DONE
        if self.drives:
            return DONE if all(item.status == "completed" for item in report.done) else PERSON
        return PERSON if report.unattended else DONE

    async def _no_match(self, engine: Engine) -> int:
        """Report that nothing matches, and why."""
        count = sum((await engine.tally(**self.filters.options)).values())
        if count:
            some = "the matching session has" if count == 1 else f"all {count:,} matching sessions have"
            return self._nothing(f"There is nothing to {self.verb}: {some} ended.")
        await self.filters.check_names(self.cli, engine)
        return self._nothing(f"There is nothing to {self.verb}: no session matches.")

    def _nothing(self, why: str) -> int:
        self.out.line(why)
        if self.out.as_json:
            from pausepoint.engine import store_documents

            self.out.document(store_documents.bulk(self._so_far(), 0, None))
        return DONE

    def _command(self, filters: Filters) -> str:
        targets = [word for target in self.cli.targets for word in ("--target", target)]
        return command_line(self.verb, *filters.words, *self.words, *targets)
