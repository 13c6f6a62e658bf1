"""`limit`: list, set and remove limits of the sessions that may be at work at once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, NOT_FOUND, Refused
from pausepoint.cli.options import OneOf, Whole, common
from pausepoint.cli.text import one_line

if TYPE_CHECKING:
    from pausepoint.model.views import LimitInfo, Listing

ACTIONS = ("ls", "set", "rm")


@click.command()
@click.argument("action", metavar="ls|set|rm", type=OneOf(ACTIONS))
@click.option("--queue", metavar="NAME", help="With set and rm: the limit of a queue.")
@click.option("--workflow", metavar="NAME", help="With set and rm: the limit of a workflow.")
@click.option("--lane", metavar="NAME", help="With set and rm: the limit of a lane.")
@click.option("--most", type=Whole(), metavar="N", help="With set: how many sessions; 0 lets none get to work.")
@click.option("--none", "lifted", is_flag=True, help="With set: lift the limit that the code of the workflow has.")
@click.option("--per", type=Whole(1), metavar="SECONDS",
              help="With set: how many may get to work in this time, not how many are at work at once.")  # fmt: skip
@click.option("--by", type=OneOf(("owner", "lane")), metavar="owner|lane",
              help="With set: each owner or each lane has this limit.")  # fmt: skip
@common()
def limit(cli: Cli, action: str, **given: Any) -> int:
    """Limit the sessions that may be at work, in all processes of the store.

    \b
    ls   list the limits, and how many sessions are at work
    set  set or replace a limit: set --queue gpu --most 4
    rm   remove the limits of a queue, a workflow or a lane

    Sessions without a free slot wait, and run when there is one. Those that are at work already stay at work.
    """
    _check(action, given)
    code: int = run_async(_limit(cli, action, given))
    return code


def _check(action: str, given: dict[str, Any]) -> None:
    options = {name for name, value in given.items() if value is not None and value is not False}
    named = options & {"queue", "workflow", "lane"}
    if action == "ls":
        if options:
            raise click.UsageError("ls takes no options of a limit.")
        return
    if len(named) != 1:
        raise click.UsageError(f"{action} needs one of --queue, --workflow and --lane.")
    if action == "rm" and options != named:
        raise click.UsageError("rm removes all limits of its --queue, --workflow or --lane, and takes no other option.")
    if action == "set" and (given["most"] is None) is not given["lifted"]:
        raise click.UsageError("set needs --most N, or --none.")


async def _limit(cli: Cli, action: str, options: dict[str, Any]) -> int:
    from pausepoint.engine.store_documents import LimitChanged, LimitsRemoved, limit

    target = {name: options[name] for name in ("queue", "workflow", "lane")}
    async with cli.engine(create=action == "set" and not cli.place.explicit, quiet=action == "ls") as engine:
        if action == "ls":
            return _list(cli, await engine.limits.list())
        if action == "set":
            try:
                per = None if options["per"] is None else timedelta(seconds=options["per"])
                info = await engine.limit(**target, most=options["most"], per=per, by=options["by"])
            except OverflowError:
                raise click.UsageError("--per may be 366 days at most, in seconds.") from None
            except ValueError as exc:
                raise click.UsageError(str(exc)) from exc
            cli.out.line(f"Set the limit of {info.scope} {info.name}: {_most(info)}.")
            document: Any = LimitChanged(limit(info))
        else:
            removed = await engine.limits.remove(**target)
            ((scope, name),) = [(scope, name) for scope, name in target.items() if name is not None]
            if not removed:
                raise Refused(f"There is no limit of {scope} {name!r} to remove.", NOT_FOUND)
            cli.out.line(f"Removed the limit of {scope} {name}.")
            document = LimitsRemoved(removed)
    if cli.out.as_json:
        cli.out.document(document)
    return DONE


def _most(each: LimitInfo) -> str:
    """Return what a limit allows, for people."""
    if each.most is None:
        return "no limit"
    if each.most == 0:
        return "closed" + (f" for each {each.by}" if each.by else "")
    what = f"{each.most} at once" if each.per is None else f"{each.most} in {each.per.total_seconds():g} s"
    return what + (f" per {each.by}" if each.by else "")


def _list(cli: Cli, infos: Listing[LimitInfo]) -> int:
    from pausepoint.engine.store_documents import limits

    rows = [
        [each.scope, each.name, _most(each), f"{each.at_work}", "code" if each.declared else "operator",
         "" if each.counts else "overridden"]
        for each in infos
    ]  # fmt: skip
    if rows:
        cli.out.table(["OF", "NAME", "LIMIT", "AT WORK", "SET BY", ""], rows)
    elif not infos.damaged:
        cli.out.line("There are no limits in this store.")
    for error in infos.damaged:
        cli.out.line(one_line(str(error)))
    if cli.out.as_json:
        cli.out.document(limits(infos))
    return CONFLICT if infos.damaged else DONE
