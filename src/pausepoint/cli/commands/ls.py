"""``ls`` and ``status``: an overview of all sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.console import ago, columns, money
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.description import Description, describe, pause_note
from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.filters import STATUSES, Filters, filter_options
from pausepoint.cli.host import command_line, how_to_start
from pausepoint.cli.options import CURSOR, TEXT, OneOf, Whole, common, not_a_cursor
from pausepoint.cli.text import (
    MANY,
    counted,
    finishing_lines,
    one_line,
    position,
    short_holder,
    shortened,
    standing_pause_line,
    turn_facts,
)
from pausepoint.clock import to_datetime
from pausepoint.errors import StoreError, UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.errors import DamagedRecord
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import SessionInfo, StandingPause

LIMIT = 20
"""The default number of sessions to list."""

CHILDREN = 10
"""The number of children of one session to list without ``--all``."""

AGENTS = 5
"""The number of agents to name in a pausing run of an orchestrator."""

LEAST_NOTE = 30
"""The least width of the NOTE column; without that room, other columns are left out."""

SORTS = ("updated", "created", "status", "workflow", "spent", "id")
SORTED_BY = f"Sort by {', '.join(SORTS[:-1])} or {SORTS[-1]}.  [default: updated]"


@click.command()
@filter_options("Only sessions")
@TEXT
@click.option("--sort", type=OneOf(SORTS), default="updated", metavar="BY", help=SORTED_BY)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=Whole(), default=LIMIT, show_default=True, metavar="N", help="List at most N.")
@CURSOR
@click.option("--all", "everything", is_flag=True, help="List all.")
@click.option(
    "--children/--no-children", default=True, show_default=True, help="Show each session's children below it."
)
@click.option("--stranded", is_flag=True, help="Only sessions that are ready, but that no running process drives.")
@common(lines=True)
def ls(cli: Cli, **how: Any) -> None:
    """List sessions, the last updated first.

    A terminal shows the shortest unique beginning of each id. Commands that only read accept such a beginning as an id.
    Commands that change a session need the whole id; at a terminal, they ask.
    """
    run_async(_ls(cli, **how))


async def _ls(cli: Cli, **how: Any) -> None:
    if not (cli.place.exists or cli.place.explicit):
        _print_list(cli, [], 0, ())
        cli.out.note(f"No sessions yet: there is no store here. {how_to_start()}")
        return
    async with cli.engine() as engine:
        await _list(cli, engine, **how)


class Wanted(NamedTuple):
    """Which sessions are listed, how many, and what comes first."""

    filters: dict[str, Any]
    sort: str
    reverse: bool
    limit: int | None
    children: bool
    after: str | None = None

    async def page(self, engine: Engine) -> tuple[list[SessionInfo], list[DamagedRecord], str | None]:
        """Return the sessions at the top level, the damaged ones, and the cursor of the next page.

        Sessions that are not shown are not read.
        """
        found: list[SessionInfo] = []
        damaged: list[DamagedRecord] = []
        next: str | None = None
        for part in self._parts():
            room = None if self.limit is None else self.limit - len(found)
            some = await engine.sessions(**part, level="top" if self.children else "root", limit=room)
            found += some
            damaged += some.damaged
            next = some.next
        return found, damaged, None if self.sort == "status" else next

    def _parts(self) -> list[dict[str, Any]]:
        """Return the queries that give the sessions in the requested order, one after the other."""
        if self.sort != "status":
            return [self.filters | {"sort": self.sort, "reverse": self.reverse, "after": self.after}]
        if self.after is not None:
            raise Refused("--after does not work with --sort status. Choose another order, or list --all.", USAGE)
        kinds = [status for status in STATUSES if status in (self.filters["status"] or STATUSES)]
        return [self.filters | {"status": each, "sort": "updated"} for each in kinds[:: -1 if self.reverse else 1]]

    async def tree(self, engine: Engine, page: list[SessionInfo]) -> list[tuple[int, SessionInfo]]:
        """Return each session with its children below it, and its depth."""
        found: dict[str, tuple[int, SessionInfo]] = {}
        for info in page:  # sorted by status, a child may come before its parent, or again after it
            for depth, each in [(0, info), *await self._below(engine, info)]:
                found.setdefault(each.session_id, (depth, each))
        return list(found.values())

    async def _below(self, engine: Engine, info: SessionInfo, depth: int = 1) -> list[tuple[int, SessionInfo]]:
        """Return the first children of a session that match as well, and their depth."""
        most = None if self.limit is None else CHILDREN
        found: list[tuple[int, SessionInfo]] = []
        if not self.children:
            return found
        for child in await engine.sessions(**self.filters, parent=info.session_id, sort="updated", limit=most):
            found += [(depth, child), *await self._below(engine, child, depth + 1)]
        return found[:most]


async def _list(
    cli: Cli, engine: Engine, *, sort: str, reverse: bool, limit: int, everything: bool, children: bool,
    text: str | None, after: str | None, stranded: bool, **given: Any,
) -> None:  # fmt: skip
    chosen = Filters.taken_from(given)
    if stranded:
        if chosen != Filters() or text or after or reverse or sort != "updated":
            raise Refused("--stranded can be combined with --limit and --all only. Leave out the other options.", USAGE)
        await _stranded(cli, engine, None if everything else limit)
        return
    filters, workflow, owner = chosen.options | {"text": text}, chosen.workflow, chosen.owner
    wanted = Wanted(filters, sort, reverse, None if everything else limit, children, after)
    try:
        page, damaged, next = await wanted.page(engine)
    except ValueError:
        if after is None:
            raise
        raise not_a_cursor() from None
    shown = await wanted.tree(engine, page)
    total = sum((await engine.tally(**filters, level="any" if children else "root")).values())
    standing = await engine.standing_pause()
    if cli.out.for_people:
        await _table(cli, engine, shown, sum((await engine.tally_questions(workflow=workflow, owner=owner)).values()))
    else:
        _print_list(cli, [info for _, info in shown], total, damaged, standing, next)
    if standing is not None:
        finishing = (await engine.tally(status="pausing")).values()
        cli.out.note(f"{standing_pause_line(standing, sum(finishing))}. Resume everything:  {cli.lift}")
    for broken in damaged:
        cli.out.note(f"! {broken}")
    if not total:
        known = await engine.tally()
        cli.out.note(_nothing(sum(known.values()), workflow, {name for name, _ in known}))
    elif len(shown) + len(damaged) < total:
        cli.out.note(f"{len(shown):,} of {total:,} sessions. --all lists all.")


async def _stranded(cli: Cli, engine: Engine, limit: int | None) -> None:
    """List the sessions that wait for a process with their code, and say how to start one."""
    found = await engine.stranded(limit=1_000_000 if limit is None else limit)
    if cli.out.for_people:
        await _table(cli, engine, [(0, info) for info in found], 0)
    else:
        _print_list(cli, found, len(found), found.damaged)
    if not found:
        cli.out.note("No session is stranded: a running process drives the workflow and queue of every ready session.")
    engines = await engine.engines() if found else []
    for info in {(info.workflow, info.queue): info for info in found}.values():
        verb, where = "worker", ""
        if any(each.picks_up(info.workflow, info.session_id) for each in engines):
            verb, where = f"worker --queue {info.queue}", f" in queue {info.queue}, which no running process drives"
        worker = cli.command(verb, workflow=info.workflow)
        cli.out.note(f"Drive the sessions of {info.workflow}{where}{cli.to_add(info)}:  {worker}")


def _print_list(
    cli: Cli, infos: Sequence[SessionInfo], total: int, broken: Any, standing: StandingPause | None = None,
    next: str | None = None,
) -> None:  # fmt: skip
    from pausepoint.engine import documents

    if cli.out.as_json:
        cli.out.document(documents.listing(infos, total, broken, standing, next))
    elif cli.out.as_lines:
        for each in infos:
            cli.out.record(documents.SessionDocument.of(each))


def _nothing(known: int, workflow: str | None, workflows: set[str]) -> str:
    if not known:
        return f"No sessions yet. {how_to_start()}"
    if workflow is not None and workflow not in workflows:
        return f"There is no session of workflow {workflow!r}{did_you_mean(workflow, workflows)}"
    return f"No session matches. The store has {counted(known, 'session')}."


async def _table(cli: Cli, engine: Engine, shown: list[tuple[int, SessionInfo]], questions: int) -> None:
    """Print the sessions. ``questions``: the number of open ones in the whole store, not only of these sessions."""
    out = cli.out
    if not shown:
        return
    short = await shortened(cli, engine, [info.session_id for _, info in shown])
    cells: dict[str, list[str]] = {
        "SESSION": [_indented(depth, short.get(info.session_id, info.session_id)) for depth, info in shown],
        "WORKFLOW": [info.workflow for _, info in shown],
        "STATUS": [out.status(info.status.value) for _, info in shown],
        "STEP": [position(info) for _, info in shown],
        "UPDATED": [ago(info.updated_at) for _, info in shown],
        "SPENT": [money(info.spent_usd) if info.spent_usd else "" for _, info in shown],
        "OWNER": [one_line(info.owner or "") for _, info in shown],
    }
    for name in ("OWNER", "SPENT"):
        if not any(cells[name]) or (out.terminal and _width(cells) > out.width - LEAST_NOTE):
            del cells[name]
    many = len(shown) > MANY
    told = [Description(info) if many else await describe(engine, info) for _, info in shown]
    cells["NOTE"] = [each.note() for each in told]
    out.table(list(cells), list(zip(*cells.values(), strict=True)))
    waiting = [info for _, info in shown if info.status.value == "waiting" and "answer" in info.waiting]
    asking = [short.get(info.session_id, info.session_id) for info in waiting]
    if asking and questions == 1:
        out.note(f"1 session waits for an answer:  {cli.command('answer', asking[0])}")
    elif questions:
        which = counted(questions, "question waits", "questions wait")
        out.note(f"{which} for an answer:  {command_line('inbox')}")


def _indented(depth: int, name: str) -> str:
    return "  " * (depth - 1) + "└ " * bool(depth) + name


def _width(cells: dict[str, list[str]]) -> int:
    return sum(max(map(columns, [name, *column])) + 2 for name, column in cells.items())


# status


class StatusEntry(NamedTuple):
    """A session, the agents in it that are still at work, by task, and what explains its status."""

    info: SessionInfo
    agents: Mapping[str, str]
    told: Description

    @property
    def pauses(self) -> Sequence[Pause]:
        return self.told.pauses

    @property
    def waits_for(self) -> Sequence[SessionInfo]:
        return self.told.children if "child" in self.info.waiting else ()


GROUPS = {
    "running": "running",
    "pausing": "pausing: still finishing a step",
    "waiting": "waiting",
    "sleeping": "sleeping",
    "ready": "ready, not running",
    "paused": "paused",
    "failed": "failed",
    "created": "created, nothing done yet",
}


@click.command()
@click.option("--limit", type=Whole(), default=10, show_default=True, metavar="N", help="List at most N per status.")
@common()
def status(cli: Cli, limit: int) -> None:
    """Show what is running, which steps are still finishing, what waits for what, and whether the store is healthy."""
    run_async(_status(cli, limit))


async def _status(cli: Cli, limit: int) -> None:
    from pausepoint.engine import store_documents

    if not (cli.place.exists or cli.place.explicit):
        if cli.out.as_json:
            cli.out.document(store_documents.store_status(cli.place.shown, None, None, {}, (), ()))
        cli.out.note(f"No sessions yet: there is no store here. {how_to_start()}")
        return
    async with cli.engine() as engine:
        counts = await _counts(engine)
        entries: list[StatusEntry] = []
        damaged: list[DamagedRecord] = []
        for name in [name for name in GROUPS if name in counts]:
            some = await engine.sessions(status=name, limit=limit)
            entries += [await _status_entry(engine, each) for each in some]
            damaged += some.damaged
        if cli.out.as_json:
            standing = await engine.standing_pause()
            sessions = [
                store_documents.busy_session(entry.info, entry.pauses, entry.waits_for, entry.agents)
                for entry in entries
            ]
            cli.out.document(
                store_documents.store_status(cli.place.shown, engine.trouble, standing, counts, sessions, damaged)
            )
        else:
            await _print_status(cli, engine, counts, entries, damaged)


async def _counts(engine: Engine) -> dict[str, int]:
    """Return the number of sessions per status, the most urgent status first."""
    found: Counter[str] = Counter()
    for (_, status), count in (await engine.tally()).items():
        found[status.value] += count
    return {name: found[name] for name in STATUSES if found[name]}


async def _status_entry(engine: Engine, info: SessionInfo) -> StatusEntry:
    agents = await _agents(engine, info) if info.status.value == "pausing" else {}
    return StatusEntry(info, agents, await describe(engine, info))


async def _agents(engine: Engine, info: SessionInfo) -> dict[str, str]:
    """Return the agents of an orchestrator's run that are still at work, by task."""
    from pausepoint.orchestrator import RunReader

    try:
        report = await RunReader(engine, info.session_id).read()
    except (StoreError, UnknownSession):
        return {}  # it is not a run, or its log is damaged, which `show` and `verify` report
    return {each.task.id: each.agent for each in report.tasks if each.begun}


def _busy(agents: Mapping[str, str]) -> str:
    found = [f"{agent} at {one_line(task)}" for task, agent in agents.items()]
    return ", ".join(found if len(found) <= AGENTS else [*found[:AGENTS], counted(len(found) - AGENTS, "more agent")])


async def _print_status(
    cli: Cli, engine: Engine, counts: dict[str, int], found: list[StatusEntry], damaged: Sequence[DamagedRecord]
) -> None:
    out = cli.out
    named = [info.session_id for each in found for info in (each.info, *each.waits_for)]
    short = await shortened(cli, engine, named)
    said = [f"{count:,} {out.status(name)}" for name, count in counts.items()]
    out.line(out.fitted(f"{', '.join(said) or 'no sessions yet'}  {out.paint(f'({cli.place.shown})', dim=True)}"))
    if (standing := await engine.standing_pause()) is not None:
        line = standing_pause_line(standing, counts.get("pausing", 0))
        out.say(out.paint(f"{line}. Resume everything:  {cli.lift}", "yellow"))
        for line in finishing_lines(standing):
            out.say(out.paint(f"  {line}", "yellow"), 4)
    if hidden := sum((await engine.tally(status=("paused", "pausing"), failed=True)).values()):
        which = counted(hidden, "paused session has failed", "paused sessions have failed")
        out.line(out.paint(f"{which}:  {command_line('ls', '--failed')}", "red"))
    wrong = [engine.trouble] if engine.trouble else []
    for each in [*wrong, *damaged]:
        out.line(out.paint(f"! {each}", "red"))
    for name, title in GROUPS.items():
        some = [each for each in found if each.info.status.value == name]
        if counts.get(name):
            out.line()
            out.line(out.paint(title, bold=True))
            _group(cli, some, short)
        if len(some) < counts.get(name, 0):
            out.line(f"  … and {counts[name] - len(some):,} more: {command_line('ls', '--status', name)}")


def _group(cli: Cli, found: list[StatusEntry], short: dict[str, str]) -> None:
    rows = [[short.get(info.session_id, info.session_id), info.workflow, position(info)] for info, *_ in found]
    widths = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    for each, row in zip(found, rows, strict=True):
        cells = "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        if each.info.status.value == "pausing":
            cli.out.line(cli.out.fitted(f"  {cells}  {_pause_details(each)}"))
            cli.out.say(f"      {_finishing_details(each)}", 6)
        else:
            cli.out.line(cli.out.fitted(f"  {cells}  {_details(each, short)}".rstrip()))


def _pause_details(entry: StatusEntry) -> str:
    """Return who paused a session, why, and since when."""
    since = min((pause.created_at for pause in entry.pauses), default=None)
    return " · ".join([*map(pause_note, entry.pauses), *([] if since is None else [ago(to_datetime(since))])])


def _finishing_details(entry: StatusEntry) -> str:
    """Return what is still finishing, and where. It gets its own line, which is never cut."""
    holder = short_holder(entry.info.holder or "no process")
    return ": ".join(filter(None, (f"running in {holder}", _busy(entry.agents))))


def _details(entry: StatusEntry, short: dict[str, str]) -> str:
    info = entry.info
    in_heading = info.status.value == "ready" and not info.waits_for_slot
    parts = [] if in_heading else [entry.told.note()]
    parts += [f"{short.get(each.session_id, each.session_id)} ({each.status.value})" for each in entry.waits_for]
    parts += [f"{name} {value}" for name, value in turn_facts(info).items()]
    if info.holder is not None:
        parts += [f"running in {info.holder}", money(info.spent_usd) if info.spent_usd else ""]
    else:
        parts.append(ago(info.updated_at))
    return " · ".join(filter(None, parts))
