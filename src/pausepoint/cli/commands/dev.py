"""`dev`: Postgres, one worker and the server in one terminal, for development."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from pausepoint.cli.commands.worker import DRIVING
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, USAGE, Refused, discard_stdout
from pausepoint.cli.host import STORE, command_line
from pausepoint.cli.options import PORT, TARGETS, Whole
from pausepoint.cli.parts import Part, Parts, died
from pausepoint.cli.postgres import Postgres, check_installed
from pausepoint.cli.project import VARIABLE
from pausepoint.name import FOLDER

T = TypeVar("T")

LOOK_EVERY = 0.05
"""Seconds between two attempts to reach the new server."""


class _Asked(Exception):
    """A signal asks the command to stop."""


@click.command()
@click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=TARGETS)
@click.option("--folder", metavar="PATH", type=click.Path(file_okay=False, path_type=Path),
              help=f"Where the data is kept. Default: {FOLDER}/dev in the project.")  # fmt: skip
@click.option("--port", type=Whole(), default=PORT, show_default=True, help="The port of the page; 0 for any free one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when everything runs.")
def dev(targets: tuple[str, ...], folder: Path | None, port: int, opens: bool, as_json: bool) -> int:
    """Start Postgres, one worker and the server with its page, and stop them with Ctrl+C.

    The worker drives the workflows of this project and of each TARGET (file.py, file.py:name or module:name). The data
    stays in a folder and is there again with the next start. The printed lines say how to use the store elsewhere.

    The first Ctrl+C lets running operations finish, the second ends everything at once. If a part dies, the command
    shows its last lines, stops the others and exits with 1.
    """
    if click.get_current_context().meta.get(STORE):
        raise Refused("dev has a store of its own. Remove --store, or name another folder with --folder.", USAGE)
    check_installed()
    cli = Cli(None, targets, as_json, False)
    if not cli.known():
        raise Refused(
            "The worker has no workflow to run. Name a TARGET, such as file.py:name, or name workflows in"
            f" {cli.project.root / 'pyproject.toml'} under [tool.pausepoint.workflows].",
            USAGE,
        )
    place = (folder or cli.project.root / FOLDER / "dev").absolute()
    code: int
    with _alone(place):
        _check_port(port)
        code = run_async(_Dev(cli, place, port, opens).run())
    return code


def _check_port(port: int) -> None:
    """Refuse a port that is in use before anything is started."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise Refused(
            f"The page cannot use port {port}: {why}. Choose another with --port, or --port 0 for any free one.", USAGE
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second call with the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "dev.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise Refused(
            f"Another dev runs with {folder}. Stop it with Ctrl+C, or name another folder with --folder.", CONFLICT
        ) from None
    try:
        yield
    finally:
        os.close(file)


class _Dev:
    """One call of ``dev``."""

    def __init__(self, cli: Cli, folder: Path, port: int, opens: bool) -> None:
        self.cli = cli
        self.out = cli.out
        self.folder = folder
        self.port = port
        self.opens = opens
        self.postgres = Postgres(folder)
        self.running: list[Part] = []
        self.signals: list[int] = []
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()

    async def run(self) -> int:
        """Run the parts until a signal asks to stop, or one of them dies."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ask, number)
        self.postgres.prepare()
        async with Parts(self.folder / "lock") as parts:
            try:
                await self._begin(parts)
                await self._until(asyncio.Event().wait())
            except _Asked:
                self.out.note("Stopping. Running operations finish first; Ctrl+C again ends them at once.")
            finally:
                await self._stop()
        self.out.note(f"Stopped. The data stays in {self.folder} for the next start.")
        return 128 + self.signals[0]

    def _ask(self, number: int) -> None:
        (self.hurry if self.signals else self.asked).set()
        self.signals.append(number)

    async def _until(self, work: Awaitable[T]) -> T:
        """Wait for something, unless a part dies or a signal comes first."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        ends = {part.over: part for part in self.running}
        try:
            await asyncio.wait([task, asked, *ends], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                raise _Asked
            for over, part in ends.items():
                if over.done():
                    raise died(part, over.result())
            return await task
        finally:
            for each in (task, asked):
                each.cancel()

    # starting

    async def _begin(self, parts: Parts) -> None:
        if not self.postgres.exists:
            self.out.note(f"Creating the database in {self.folder} …")
            await self._create(parts)
        server = await parts.start(
            "Postgres", self.postgres.serve(), _nothing, stop=signal.SIGINT, end=signal.SIGQUIT,
            account=self.postgres.account,
        )  # fmt: skip
        self.running.append(server)
        await self._until(self._answers())
        words = ["--store", self.postgres.url, *(word for target in self.cli.targets for word in ("--target", target))]
        await self._start(parts, "The worker", ["worker", *words], lambda line: line.startswith(DRIVING))
        words += ["--observe", "--json", "--port", str(self.port), *(["--open"] if self.opens else [])]
        self._announce(json.loads(await self._start(parts, "The server", ["serve", *words], _is_address)))

    async def _create(self, parts: Parts) -> None:
        """Write an empty database. If this is interrupted, the next call begins again."""
        part = await parts.start("initdb", self.postgres.create(), _nothing, account=self.postgres.account)
        try:
            code = await self._until(part.over)
        except _Asked:
            part.send(part.end)
            raise
        if code:
            raise died(part, code)
        self.postgres.created()

    async def _answers(self) -> None:
        """Wait until the database accepts connections. After a crash, it reads its log first."""
        import psycopg

        def connect() -> None:
            where = str(self.postgres.socket.parent)
            psycopg.connect(host=where, user=self.postgres.user, dbname="postgres", connect_timeout=2).close()

        while True:
            try:
                await asyncio.to_thread(connect)
            except psycopg.OperationalError:
                await asyncio.sleep(LOOK_EVERY)
            else:
                return

    async def _start(self, parts: Parts, name: str, words: list[str], begins: Callable[[str], bool]) -> str:
        """Start a part of this program. Return the line that says that it runs, and show the lines after it."""
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def show(line: str) -> None:
            if begun.done():
                self._line(line)
            elif begins(line):
                begun.set_result(line)

        self.running.append(await parts.start(name, [*self.cli.host.launch, *words], show))
        return await self._until(begun)

    def _announce(self, serving: dict[str, Any]) -> None:
        url = self.postgres.url
        if self.out.as_json:
            from pausepoint.cli.documents import Development, DevelopmentProcesses

            pids = {part.name.rpartition(" ")[2].lower(): part.process.pid for part in self.running}
            with _if_read():
                processes = DevelopmentProcesses(**pids)
                self.out.record(Development(serving["address"], url, str(self.folder), processes, serving["workflows"]))
        drives = ", ".join(str(name) for name in self.cli.known())
        self._line(f"Page:    {serving['address']}")
        self._line(f"Worker:  drives {drives}")
        self._line(f"Data:    {self.folder}")
        self._line("Store:   use it in another terminal with")
        self._line(f"  export {VARIABLE}={shlex.quote(url)}")
        self._line(f"  {command_line('ls')}")
        self._line("Ctrl+C stops everything.")

    def _line(self, text: str) -> None:
        with _if_read():
            self.out.line(text)

    # stopping

    async def _stop(self) -> None:
        """Stop the worker and the server, then Postgres, which they need to store what they have done."""
        if not self.running:
            return
        postgres, *others = self.running
        for part in others:
            part.send(part.stop if postgres.runs else part.end)
        await self._gone(others)
        postgres.send(postgres.stop)
        await self._gone([postgres])

    async def _gone(self, parts: list[Part]) -> None:
        """Wait until parts have ended. With another signal, end them at once."""
        hurry = asyncio.create_task(self.hurry.wait())
        left = {part.over for part in parts}
        while left and not self.hurry.is_set():
            _, left = await asyncio.wait([hurry, *left], return_when=asyncio.FIRST_COMPLETED)
            left -= {hurry}
        hurry.cancel()
        for part in parts:
            if not part.over.done():
                part.send(part.end)
                await part.over


@contextmanager
def _if_read() -> Iterator[None]:
    """Print something, or nothing more if the reader of the output has gone. The parts run on."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()


def _nothing(line: str) -> None:
    """Show no line."""


def _is_address(line: str) -> bool:
    return line.startswith('{"address"')
