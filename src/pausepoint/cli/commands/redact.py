"""``redact``: remove content from a session permanently. The log still shows that it existed, and who removed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import SESSIONS, Whole, common, reason_and_by
from pausepoint.cli.sessions import session_to_change
from pausepoint.cli.text import counted
from pausepoint.errors import PausepointError

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.redaction import Redaction


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--field", metavar="NAME", help="A field of the state, now and in every record that contains it.")
@click.option("--value", metavar="TEXT", help="With --field: the new value. Default: the field's default.")
@click.option("--file", metavar="ID", help="A file: its bytes, its name and its metadata.")
@click.option("--drawer", metavar="NAME", help="One of the session's drawers, with everything in it.")
@click.option("--seq", type=Whole(1), metavar="NUMBER", help="The content of the record with this number.")
@click.option("--event", metavar="CURSOR", help="The content of an event, by its cursor (see `events --json`).")
@reason_and_by
@common(target=True)
def redact(
    cli: Cli, session: str, field: str | None, value: str | None, file: str | None, drawer: str | None,
    seq: int | None, event: str | None, reason: str, by: str | None,
) -> None:  # fmt: skip
    """Remove content from a SESSION permanently: one field, file, drawer, record or event.

    The session must not be running. The log still shows that there was content, when, and who removed it, and `verify`
    still works. Copies in other fields, forks and backups are not removed. --field needs the workflow's code.
    """
    targets = {"field": field, "file": file, "drawer": drawer, "seq": seq, "event": event}
    named = {name: value for name, value in targets.items() if value is not None}
    if len(named) != 1:
        raise Refused("Name exactly one thing to redact: --field, --file, --drawer, --seq or --event.", USAGE)
    if value is not None and field is None:
        raise Refused("--value sets a field, but no field is named. Add --field.", USAGE)
    session_id, report = run_async(_redact(cli, session, value, named | {"by": by, "reason": reason}))
    if cli.out.as_json:
        from pausepoint.engine.store_documents import redaction

        cli.out.document(redaction(session_id, report))
    taken = counted(len(report.records), "record") if report.records else counted(len(report.signals), "signal")
    where = "" if drawer is not None else f" in {taken}"
    cli.out.line(f"{session_id}: redacted {next(iter(named))} {next(iter(named.values()))}{where}.")
    if not report.erased:
        cli.out.note("Another process was reading, so old bytes may still be in the write-ahead log. Erase them:"
                     f"  {command_line('gc', '--apply')}")  # fmt: skip


async def _redact(cli: Cli, session: str, value: str | None, given: dict[str, Any]) -> tuple[str, Redaction]:
    async with cli.engine(code="field" in given, quiet=True) as engine:
        info = await session_to_change(engine, session)
        if "field" in given:
            cli.check_code(engine, info)
        if value is not None:
            given["value"] = _typed(engine.workflows[info.workflow], given["field"], value)
        try:
            return str(info.session_id), await engine.session(info.session_id).redact(**given)
        except PausepointError:
            raise
        except ValueError as error:  # such as an invalid cursor
            raise Refused(str(error), USAGE) from error


def _typed(workflow: Workflow[Any], field: str, value: str) -> Any:
    from pausepoint.cli.fields import assigned, typed

    return typed(workflow, assigned(workflow, (f"{field}={value}",)))[field]
