"""``export`` and ``import``: a session as one file."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, USAGE, Refused
from pausepoint.cli.options import SESSIONS, common
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import counted, size
from pausepoint.engine import documents
from pausepoint.name import NAME

SUFFIX = f".{NAME}.jsonl"


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@common()
def export(cli: Cli, session: str, file: Path | None, force: bool) -> None:
    """Write a SESSION, and those that it called, to one FILE.

    The file is JSON lines with a digest for every record and one for the whole; `import` proves them. By default it is
    the session's id with .pausepoint.jsonl behind it, in this folder; - is stdout. Works in any status and changes
    nothing.
    """
    run_async(_export(cli, session, file, force))


async def _export(cli: Cli, session: str, file: Path | None, force: bool) -> None:
    if str(file) == "-" and cli.out.as_json:
        raise Refused("the session itself goes to stdout with -, so there is no room for --json", USAGE)
    async with cli.engine() as engine:
        info = await find_session(engine, session)
        if str(file) == "-":
            click.echo((await engine.export_session(info.session_id)).to_bytes(), nl=False)
            return
        path = file or Path(f"{info.session_id}{SUFFIX}")
        if path.exists() and not force:
            raise Refused(f"{path} is there already; name another file, or replace it with --force", CONFLICT)
        try:
            found = await engine.export_session(info.session_id, path)
        except OSError as error:
            raise Refused(f"{path} cannot be written: {error.strerror}", USAGE) from error
    count = path.stat().st_size
    if cli.out.as_json:
        cli.out.document(documents.exported(found, str(path), count))
    called = f", with {counted(len(found.called), 'session')} that it called" if found.called else ""
    records = counted(sum(len(each.records) for each in found.sessions), "record")
    cli.out.line(f"{info.session_id}{called}: {records}, {size(count)}, written to {path}")
    cli.out.note(f"Take it in elsewhere: {shlex.join([NAME, 'import', str(path)])}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--session-id", metavar="ID", help="Take it in under another id than its own.")
@common()
def import_command(cli: Cli, file: Path, session_id: str | None) -> None:
    """Read a session from a FILE that `export` wrote.

    Everything in it is proved first; a file that was changed or cut off is refused. The session is then as it was
    when it was written, and nobody drives it: resume it, if it is to go on. An id that is taken is a conflict (5).
    """
    run_async(_import(cli, file, session_id))


async def _import(cli: Cli, file: Path, session_id: str | None) -> None:
    async with cli.engine(create=True) as engine:
        info = await engine.import_session(file, session_id=session_id)
    if cli.out.as_json:
        cli.out.document(documents.imported(info, str(file)))
    cli.out.line(f"{info.session_id} is here: {cli.out.status(info.status.value)}, workflow {info.workflow}")
    if info.status.value not in ("completed", "cancelled"):
        cli.out.note(f"Go on:  {cli.resume(info)}")
