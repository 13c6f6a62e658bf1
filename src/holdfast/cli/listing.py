"""``ls`` and ``status``: all sessions at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.common import Cli, common, run_async
from holdfast.cli.output import ago, columns, money
from holdfast.cli.words import counted, note, one_line, place, reason, short_ids
from holdfast.errors import did_you_mean

if TYPE_CHECKING:
    from holdfast.api import Engine
    from holdfast.model import Pause
    from holdfast.outcome import Listing, SessionInfo

LIMIT = 20
"""How many sessions are listed if nobody says otherwise."""

CHILDREN = 10
"""How many children of one session are listed, unless all are asked for."""

LEAST_NOTE = 30
"""How many columns are for what is notable; where there is less room, others give way."""

STATUSES = (
    "running", "pausing", "waiting", "sleeping", "ready", "paused", "failed", "created", "completed", "cancelled",
)  # fmt: skip
"""In the order in which they matter to somebody who looks; `Status` is not imported for help."""

SORTS: dict[str, Callable[[SessionInfo], Any]] = {
    "updated": lambda info: -info.updated_at.timestamp(),
    "created": lambda info: -info.created_at.timestamp(),
    "status": lambda info: (STATUSES.index(info.status.value), -info.updated_at.timestamp()),
    "workflow": lambda info: (info.workflow, -info.updated_at.timestamp()),
    "spent": lambda info: -info.spent_usd,
    "id": lambda info: info.session_id,
}
SORTED_BY = f"What comes first, by one of {', '.join(SORTS)}.  [default: updated]"


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"Only such; repeatable: {', '.join(STATUSES)}.",
)
@click.option("--workflow", metavar="NAME", help="Only sessions of this workflow.")
@click.option("--owner", metavar="NAME", help="Only sessions of this owner.")
@click.option("--tag", metavar="TAG", help="Only sessions with this tag.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="updated", metavar="BY", help=SORTED_BY)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True, metavar="N", help="At most so many."
)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option(
    "--children/--no-children", default=True, show_default=True, help="Below each the sessions that it called."
)
@common(lines=True)
def ls(cli: Cli, **how: Any) -> None:
    """List sessions, the last that moved first.

    On a terminal ids are cut to what tells them apart; any such beginning is accepted wherever an id is.
    """
    run_async(_ls(cli, **how))


async def _ls(cli: Cli, **how: Any) -> None:
    if not (cli.place.exists or cli.place.explicit):
        _print_list(cli, [], 0, ())
        cli.out.note("No sessions yet: there is no store here. `holdfast run` starts one.")
        return
    async with cli.engine(what="ls") as engine:
        await _list(cli, engine, **how)


async def _list(
    cli: Cli, engine: Engine, *, statuses: tuple[str, ...], workflow: str | None, owner: str | None, tag: str | None,
    sort: str, reverse: bool, limit: int, everything: bool, children: bool,
) -> None:  # fmt: skip
    known = await engine.sessions()
    wanted = {"workflow": workflow, "owner": owner}
    matching = [each for each in known if all(text in (None, getattr(each, name)) for name, text in wanted.items())]
    matching = [each for each in matching if tag is None or tag in each.tags]
    matching = [each for each in matching if not statuses or each.status.value in statuses]
    matching.sort(key=SORTS[sort], reverse=reverse)
    tree = _tree(matching) if children else [(0, each) for each in matching if each.parent_id is None]
    total = len(tree)
    shown = tree if everything else _cut(tree, limit)
    if cli.out.for_people:
        await _table(cli, engine, shown, [each.session_id for each in known])
    else:
        _print_list(cli, [info for _, info in shown], total, known.damaged)
    for broken in known.damaged:
        cli.out.note(f"! {broken}")
    if not total:
        cli.out.note(_nothing(len(known), workflow, {each.workflow for each in known}))
    elif len(shown) < total:
        cli.out.note(f"{len(shown):,} of {total:,} sessions; --all lists them all")


def _print_list(cli: Cli, infos: Sequence[SessionInfo], total: int, broken: Any) -> None:
    from holdfast.cli import shapes

    if cli.out.as_json:
        cli.out.document(shapes.listing(infos, total, broken))
    elif cli.out.as_lines:
        for each in infos:
            cli.out.record(shapes.session(each))


def _nothing(known: int, workflow: str | None, workflows: set[str]) -> str:
    if not known:
        return "No sessions yet. `holdfast run` starts one."
    if workflow is not None and workflow not in workflows:
        return f"No session of a workflow {workflow!r}{did_you_mean(workflow, workflows)}"
    return f"No session matches; there {'is' if known == 1 else 'are'} {counted(known, 'session')} in all"


def _tree(infos: Sequence[SessionInfo]) -> list[tuple[int, SessionInfo]]:
    """Every session below the one that called it, if that one is listed too; with how deep it is."""
    below: dict[str | None, list[SessionInfo]] = {}
    ids = {each.session_id for each in infos}
    for each in infos:
        below.setdefault(each.parent_id if each.parent_id in ids else None, []).append(each)
    found: list[tuple[int, SessionInfo]] = []
    waiting = [(0, each) for each in reversed(below.get(None, []))]
    while waiting:
        depth, info = waiting.pop()
        found.append((depth, info))
        waiting += [(depth + 1, child) for child in reversed(below.get(info.session_id, []))]
    return found


def _cut(tree: list[tuple[int, SessionInfo]], limit: int) -> list[tuple[int, SessionInfo]]:
    """The first ``limit`` sessions, of each with the first of its children."""
    shown: list[tuple[int, SessionInfo]] = []
    roots = below = 0
    for depth, info in tree:
        roots += depth == 0
        if roots > limit:
            break
        below = below + 1 if depth else 0
        if below <= CHILDREN:
            shown.append((depth, info))
    return shown


async def _table(cli: Cli, engine: Engine, shown: list[tuple[int, SessionInfo]], ids: list[str]) -> None:
    out = cli.out
    if not shown:
        return
    short = short_ids(ids) if out.terminal else {}
    cells: dict[str, list[str]] = {
        "SESSION": [_indented(depth, short.get(info.session_id, info.session_id)) for depth, info in shown],
        "WORKFLOW": [info.workflow for _, info in shown],
        "STATUS": [out.status(info.status.value) for _, info in shown],
        "STEP": [place(info) for _, info in shown],
        "MOVED": [ago(info.updated_at) for _, info in shown],
        "SPENT": [money(info.spent_usd) if info.spent_usd else "" for _, info in shown],
        "OWNER": [one_line(info.owner or "") for _, info in shown],
    }
    for name in ("OWNER", "SPENT"):
        if not any(cells[name]) or (out.terminal and _width(cells) > out.width - LEAST_NOTE):
            del cells[name]
    many = len(shown) > 200  # then the reasons would have to be read one by one
    cells["NOTE"] = [note(info, () if many else await _pauses(engine, info)) for _, info in shown]
    out.table(list(cells), list(zip(*cells.values(), strict=True)))


def _indented(depth: int, name: str) -> str:
    return "  " * (depth - 1) + "└ " * bool(depth) + name


def _width(cells: dict[str, list[str]]) -> int:
    return sum(max(map(columns, [name, *column])) + 2 for name, column in cells.items())


async def _pauses(engine: Engine, info: SessionInfo) -> Iterable[Pause]:
    return await engine.pauses(info.session_id) if info.status.value == "paused" else ()


# status


class Standing(NamedTuple):
    """A session, why it is paused or pausing, and the sessions that it waits for."""

    info: SessionInfo
    pauses: Sequence[Pause]
    waits_for: Sequence[SessionInfo]


GROUPS = {
    "running": "running",
    "pausing": "pausing: still finishing a step",
    "waiting": "waiting",
    "sleeping": "sleeping",
    "ready": "ready, and nobody drives it",
    "paused": "paused",
    "failed": "failed",
    "created": "created, never driven",
}


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=0), default=10, show_default=True, metavar="N", help="At most so many of a kind."
)
@common()
def status(cli: Cli, limit: int) -> None:
    """Who is running, who is still finishing which step, who waits for whom, and whether the store is well."""
    run_async(_status(cli, limit))


async def _status(cli: Cli, limit: int) -> None:
    from holdfast.cli import shapes

    if not (cli.place.exists or cli.place.explicit):
        if cli.out.as_json:
            cli.out.document(shapes.standing(str(cli.place.path), None, {}, (), ()))
        cli.out.note("Nothing is there yet: no store. `holdfast run` starts a session.")
        return
    async with cli.engine(what="status") as engine:
        known = await engine.sessions()
        counted_up = Counter(each.status.value for each in known)
        counts = {name: counted_up[name] for name in STATUSES if counted_up[name]}
        found = []
        for name in GROUPS:
            some = [each for each in known if each.status.value == name][:limit]
            found += [await _standing(engine, each) for each in some]
        if cli.out.as_json:
            cli.out.document(shapes.standing(str(cli.place.path), engine.trouble, counts, found, known.damaged))
        else:
            _tell_status(cli, engine, counts, found, known)


async def _standing(engine: Engine, info: SessionInfo) -> Standing:
    called = await engine.children(info.session_id) if "child" in info.waiting else []
    return Standing(
        info,
        await engine.pauses(info.session_id) if info.status.value in ("pausing", "paused") else [],
        [each for each in called if each.status.value not in ("completed", "cancelled")],
    )


def _tell_status(
    cli: Cli, engine: Engine, counts: dict[str, int], found: list[Standing], known: Listing[SessionInfo]
) -> None:
    out = cli.out
    short = short_ids(each.session_id for each in known) if out.terminal else {}
    said = [f"{count:,} {out.status(name)}" for name, count in counts.items()]
    out.line(out.fitted(f"{', '.join(said) or 'no sessions yet'}  {out.paint(f'({cli.place.path})', dim=True)}"))
    wrong = [engine.trouble] if engine.trouble else []
    for each in [*wrong, *known.damaged]:
        out.line(out.paint(f"! {each}", "red"))
    for name, title in GROUPS.items():
        some = [each for each in found if each.info.status.value == name]
        if counts.get(name):
            out.line()
            out.line(out.paint(title, bold=True))
            _group(cli, some, short)
        if len(some) < counts.get(name, 0):
            out.line(f"  … and {counts[name] - len(some):,} more: holdfast ls --status {name}")


def _group(cli: Cli, found: list[Standing], short: dict[str, str]) -> None:
    rows = [
        [short.get(each.info.session_id, each.info.session_id), each.info.workflow, place(each.info)] for each in found
    ]
    widths = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    for each, row in zip(found, rows, strict=True):
        cells = "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        cli.out.line(cli.out.fitted(f"  {cells}  {_detail(each, short)}".rstrip()))


def _detail(standing: Standing, short: dict[str, str]) -> str:
    info = standing.info
    parts = [note(info, standing.pauses)]
    if info.status.value == "pausing":
        parts += [reason(each) for each in standing.pauses]
    parts += [f"{short.get(each.session_id, each.session_id)} ({each.status.value})" for each in standing.waits_for]
    if info.holder is not None:
        parts += [f"driven by {info.holder}", money(info.spent_usd) if info.spent_usd else ""]
    else:
        parts.append(ago(info.updated_at))
    return " · ".join(filter(None, parts))
