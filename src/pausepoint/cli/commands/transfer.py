"""``export`` and ``import``: write a session to one file, and read it back."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, USAGE, Refused
from pausepoint.cli.options import SESSIONS, common
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import counted, size
from pausepoint.errors import FolderRefused, InputConflict
from pausepoint.name import NAME

SUFFIX = f".{NAME}.jsonl"


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@common()
def export(cli: Cli, session: str, file: Path | None, force: bool) -> None:
    """Write a SESSION and its children to one FILE.

    The file contains JSON lines, with a digest for every record and one for the whole file, which `import` checks.
    FILE is by default the session id plus .pausepoint.jsonl, in this folder; - is stdout. Works in any status and
    changes nothing.
    """
    run_async(_export(cli, session, file, force))


async def _export(cli: Cli, session: str, file: Path | None, force: bool) -> None:
    if str(file) == "-" and cli.out.as_json:
        raise Refused("With FILE -, the session itself is written to stdout. Remove --json, or name a file.", USAGE)
    async with cli.engine() as engine:
        info = await find_session(engine, session)
        if str(file) == "-":
            click.echo((await engine.session(info.session_id).export()).to_bytes(), nl=False)
            return
        path = file or Path(f"{info.session_id}{SUFFIX}")
        if path.exists() and not force:
            raise Refused(f"The file {path} already exists. Name another file, or overwrite it with --force.", CONFLICT)
        try:
            bundle = await engine.session(info.session_id).export(path)
        except OSError as error:
            raise Refused(
                f"The file {path} cannot be written: {error.strerror}. Name another file, or fix its folder.", USAGE
            ) from error
    count = path.stat().st_size
    if cli.out.as_json:
        from pausepoint.engine.store_documents import exported

        cli.out.document(exported(bundle, str(path), count))
    called = f" and {counted(len(bundle.called), 'child session')}" if bundle.called else ""
    records = counted(sum(len(each.records) for each in bundle.sessions), "record")
    cli.out.line(f"Exported {info.session_id}{called} to {path}: {records}, {size(count)}")
    cli.out.note(f"Import it elsewhere:  {shlex.join([NAME, 'import', str(path)])}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--session-id", metavar="ID", help="Import the session under another id.")
@click.option(
    "--folder", metavar="PATH", type=click.Path(file_okay=False, path_type=Path),
    help="The folder for its artifacts on this machine, if it publishes any.",
)  # fmt: skip
@common()
def import_command(cli: Cli, file: Path, session_id: str | None, folder: Path | None) -> None:
    """Read a session from a FILE that `export` wrote.

    Everything in it is checked first; a changed or incomplete file is refused, and so is a name that could lead out of
    the store. The session then has the status that it had when it was exported, but does not run: resume it to
    continue. If the id exists, the command exits with 5.
    """
    run_async(_import(cli, file, session_id, folder))


async def _import(cli: Cli, file: Path, session_id: str | None, folder: Path | None) -> None:
    async with cli.engine(create=True) as engine:
        try:
            info = await engine.import_session(file, session_id=session_id, folder=folder)
        except FolderRefused as error:
            if error.path:
                raise Refused(str(error).replace("folder=", "--folder"), CONFLICT) from error
            restore = cli.command("artifacts restore", str(session_id or error.session_id))
            raise Refused(
                f"Session {error.session_id!r} publishes artifacts and needs a folder on this machine; the folder of"
                f" its sender is not used. Nothing was imported. Pass --folder. If you have the artifact files, copy"
                f" them there first; otherwise write them again after the import with `{restore}`.",
                USAGE,
            ) from error
        except InputConflict as error:
            raise Refused(
                f"Session {error.session_id!r}, or one of its children, already exists in this store. Import it under"
                " another id with --session-id.",
                CONFLICT,
            ) from error
    if cli.out.as_json:
        from pausepoint.engine.documents import Imported, SessionDocument

        cli.out.document(Imported(str(file), SessionDocument.of(info)))
    cli.out.line(f"Imported {info.session_id}: {cli.out.status(info.status.value)}, workflow {info.workflow}")
    if info.status.value not in ("completed", "cancelled"):
        cli.out.note(cli.resume_line(info))
