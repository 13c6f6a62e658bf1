"""``redact``: content is taken out of a session for good. That it was there, and who took it away, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.options import SESSIONS, common, reason_and_by
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import counted
from pausepoint.engine import documents
from pausepoint.errors import PausepointError

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.retention import Redaction


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--field", metavar="NAME", help="A field of the state, now and in every record that carries it.")
@click.option("--value", metavar="TEXT", help="With --field: what takes its place; else its default.")
@click.option("--file", metavar="ID", help="A file: its bytes, its name and what came with it.")
@click.option("--seq", type=int, metavar="NUMBER", help="The content of one record, by its number.")
@click.option("--event", metavar="CURSOR", help="What is behind an event, by its cursor (`events --json`).")
@reason_and_by
@common(target=True)
def redact(
    cli: Cli, session: str, field: str | None, value: str | None, file: str | None, seq: int | None,
    event: str | None, reason: str, by: str | None,
) -> None:  # fmt: skip
    """Take content out of a parked SESSION for good: one field, file, record or event.

    That there was something, when, and who took it away stays, and the log can still be proved. Copies elsewhere (other
    fields, forks, backups) are not reached. A field needs the workflow's code, for its default.
    """
    given = {"field": field, "file": file, "seq": seq, "event": event}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise Refused("name one thing to take away: --field, --file, --seq or --event", USAGE)
    if value is not None and field is None:
        raise Refused("--value is what takes the place of a field: it needs --field", USAGE)
    session_id, found = run_async(_redact(cli, session, value, named | {"by": by, "reason": reason}))
    if cli.out.as_json:
        cli.out.document(documents.redaction(session_id, found))
    taken = counted(len(found.records), "record") if found.records else counted(len(found.signals), "signal")
    cli.out.line(f"{session_id}: {next(iter(named))} {next(iter(named.values()))} is taken away, from {taken}.")
    if not found.erased:
        cli.out.note("Another process was reading, so old bytes may still be in the write-ahead log; gc --apply erases"
                     " them.")  # fmt: skip


async def _redact(cli: Cli, session: str, value: str | None, given: dict[str, Any]) -> tuple[str, Redaction]:
    async with cli.engine(code="field" in given, quiet=True) as engine:
        info = await find_session(engine, session)
        if "field" in given:
            cli.check_code(engine, info)
        if value is not None:
            given["value"] = _typed(engine.workflows[info.workflow], given["field"], value)
        try:
            return str(info.session_id), await engine.redact(info.session_id, **given)
        except PausepointError:
            raise
        except ValueError as error:  # such as a cursor that is none
            raise Refused(str(error), USAGE) from error


def _typed(workflow: Workflow[Any], field: str, value: str) -> Any:
    from pausepoint.cli.fields import assigned, typed

    return typed(workflow, assigned(workflow, (f"{field}={value}",)))[field]
