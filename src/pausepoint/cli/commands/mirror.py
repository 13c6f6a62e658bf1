"""`mirror`: let documents of another database follow the sessions of this store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, FAILED, USAGE, Refused, stopped_by
from pausepoint.cli.options import common
from pausepoint.cli.project import check_exists
from pausepoint.cli.text import counted, one_line

if TYPE_CHECKING:
    from google.cloud.firestore import Client

    from pausepoint.cli.documents import MirroredDocument
    from pausepoint.integrations.firestore import Mirrored

STOPPED = "Stopped. The next call continues here."

SAID = {
    "written": "wrote {}", "deleted": "deleted {}, as the session was removed",
    "paused": "paused {}, as its document asked", "refused": "did not pause {}, although its document asked: ",
    "failed": "{} failed: ",
}  # fmt: skip


@click.command()
@click.argument("kind", type=click.Choice(["firestore"]))
@click.option("--project", metavar="ID", help="The project of Google Cloud. By default that of your credentials.")
@click.option("--database", metavar="ID", help="The database of the project.  [default: (default)]")
@click.option("--collection", metavar="NAME", default="workflow_states", show_default=True,
              help="The collection of the documents.")  # fmt: skip
@click.option("--once", is_flag=True, help="Write what has changed, try each document once, and exit.")
@click.option("--all", "everything", is_flag=True, help="First write all documents again.")
@common(lines=True)
def mirror(
    cli: Cli, kind: str, project: str | None, database: str | None, collection: str, once: bool, everything: bool
) -> int:  # fmt: skip
    """Write each session to a document of Firestore, and pause a session if its document asks for it.

    The document workflow_states/SESSION-ID follows its session, at most once per second. A client that sets its field
    pause_requested to true pauses the session. The store remembers what was written, so a restart continues.
    Credentials are found as by all programs of Google Cloud; FIRESTORE_EMULATOR_HOST names an emulator.
    """
    if cli.out.as_json and not once:
        raise Refused("--json prints one document at the end, but mirror does not end. Add --once, or use --jsonl.",
                      USAGE)  # fmt: skip
    parts = collection.split("/")
    if len(parts) % 2 == 0 or not all(parts):
        raise Refused(f"{collection!r} does not name a collection. Pass one name, or a path such as a/b/c.", USAGE)
    check_exists(cli.place)
    job = _Job(cli, _client(project, database), collection, once, everything)
    try:
        code: int = run_async(job.work())
    except (KeyboardInterrupt, SystemExit) as end:
        code = stopped_by(end)
        cli.out.note(STOPPED)
    return code


def _client(project: str | None, database: str | None) -> Client:
    from pausepoint.integrations.firestore import MISSING

    if find_spec("google") is None or find_spec("google.cloud") is None or find_spec("google.cloud.firestore") is None:
        raise Refused(MISSING, USAGE)
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud.firestore import Client

    try:
        return Client(project=project, database=database)
    except (DefaultCredentialsError, OSError) as error:
        raise Refused(
            f"Firestore cannot be opened: {one_line(str(error))} Pass --project, and sign in with"
            " `gcloud auth application-default login`.",
            USAGE,
        ) from None


class _Job:
    """One call of ``mirror``."""

    def __init__(self, cli: Cli, client: Client, collection: str, once: bool, everything: bool) -> None:
        self.cli = cli
        self.client = client
        self.collection = collection
        self.once = once
        self.everything = everything
        self.seen: list[MirroredDocument] = []

    async def work(self) -> int:
        """Mirror sessions until the process is stopped, or what has changed (``--once``)."""
        from pausepoint.engine.engine import Engine
        from pausepoint.integrations.firestore import mirror_sessions

        async with Engine(self.cli.place.url, create=False, drives="none") as engine:
            if not self.once:
                where = f"{self.collection} of project {self.client.project}"
                self.cli.out.note(f"Mirroring {self.cli.place.shown} to {where}; Ctrl+C stops this")
            failed = await mirror_sessions(
                engine, self.client, collection=self.collection, follow=not self.once, everything=self.everything,
                report=self._show,
            )  # fmt: skip
        return self._end(failed)

    def _show(self, mirrored: Mirrored) -> None:
        from pausepoint.cli.documents import MirroredDocument  # the help of the command does not need it

        at = datetime.now(UTC)
        record = MirroredDocument.of(mirrored, mirrored_at=at)
        if self.once:
            self.seen.append(record)
        if self.cli.out.as_lines:
            self.cli.out.record(record)
        self.cli.out.say(f"{at.astimezone():%H:%M:%S}  {_sentence(mirrored)}", indent=10)

    def _end(self, failed: int) -> int:
        if self.cli.out.as_json:
            from pausepoint.cli.documents import MirrorDocument

            self.cli.out.document(MirrorDocument(self.seen, failed))
        written = sum(each.status == "written" for each in self.seen)
        documents = sum(each.status == "failed" and each.session_id != "" for each in self.seen)
        refused = sum(each.status == "refused" for each in self.seen)
        later = f" {counted(refused, 'request')} to pause refused." if refused else ""
        if documents:
            later += f" {counted(documents, 'document')} failed; the next call tries again."
        if failed > documents:
            later += " The documents could not be read; the next call tries again."
        self.cli.out.note(f"{counted(written, 'document')} written.{later}")
        return FAILED if failed else DONE


def _sentence(mirrored: Mirrored) -> str:
    said = SAID[mirrored.status].format(mirrored.session_id or "reading the documents") + one_line(mirrored.reason)
    if mirrored.retry_in is None:
        return said
    return f"{said}; next attempt in {span(timedelta(seconds=mirrored.retry_in))}"
