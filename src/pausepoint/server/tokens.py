"""The tokens of a store: the server's own, and those that people create for programs.

They are kept in two files next to the store, readable by the user alone. Created tokens are stored as hashes, so the
file does not help a thief to sign in.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pausepoint.cli.documents import AccessTokenDocument, CreatedTokenDocument
from pausepoint.server.people import Person
from pausepoint.server.roles import Role

FILE, LIST = "serve-token", "serve-tokens.json"

BYTES = 24
"""The length of a token: 192 bits."""

T = TypeVar("T")


class CreatedToken(msgspec.Struct, frozen=True):
    """A created token: who may use it, and until when. Times are seconds since 1970."""

    id: str
    name: str
    role: Role
    owner: str | None
    hash: str
    created_at: int
    expires_at: int | None = None

    @property
    def person(self) -> Person:
        return Person(self.name, self.role, self.owner)

    def is_valid(self, now: float) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or now < self.expires_at

    def document(self) -> AccessTokenDocument:
        """Return the token as JSON shows it, without its secret, of which only the hash is known."""
        return AccessTokenDocument.of(self, **self._times())

    def created(self, secret: str) -> CreatedTokenDocument:
        """Return the token with its secret, right after it was created."""
        return CreatedTokenDocument.of(self, token=secret, **self._times())

    def _times(self) -> dict[str, Any]:
        until = None if self.expires_at is None else datetime.fromtimestamp(self.expires_at, UTC)
        now = time.time()
        return {
            "created_at": datetime.fromtimestamp(self.created_at, UTC), "expires_at": until,
            "expired": not self.is_valid(now),
        }  # fmt: skip


class Tokens:
    """The tokens of the store in this folder. Both files are read again when they change, so rotation works live."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / FILE
        self._own = Cached(folder / FILE, lambda data: data.decode().strip())
        self._list = Cached(folder / LIST, msgspec.json.Decoder(tuple[CreatedToken, ...]).decode)

    @property
    def own(self) -> str:
        """The server's own token; empty if there is none."""
        return self._own.value() or ""

    @property
    def kept(self) -> tuple[CreatedToken, ...]:
        """The created tokens, oldest first."""
        return self._list.value() or ()

    def make(self, new: bool = False) -> str:
        """Return the server's own token, and create it if there is none. ``new`` replaces it and signs everyone out."""
        for name in (FILE, LIST):
            _restrict(self.folder / name)
        if new or not self.own:
            with self.locked():
                if new or not self.own:  # another server may have created it meanwhile
                    write_private(self.folder / FILE, f"{secrets.token_urlsafe(BYTES)}\n".encode())
        return self.own

    def create(
        self, name: str, role: Role, owner: str | None, now: float, seconds: float | None
    ) -> tuple[CreatedToken, str]:
        """Create a token, and return it with its secret, which is not stored."""
        secret = secrets.token_urlsafe(BYTES)
        until = None if seconds is None else int(now + seconds)
        with self.locked():
            taken = {each.id for each in self.kept}
            id = next(each for each in iter(lambda: secrets.token_hex(4), "") if each not in taken)
            token = f"pp_{id}_{secret}"
            kept = CreatedToken(id, name, role, owner, _hash(token), int(now), until)
            self._store((*self.kept, kept))
        return kept, token

    def revoke(self, id: str) -> bool:
        """Delete a token by its id, and return whether there was one. People who signed in with it are signed out."""
        with self.locked():
            left = tuple(each for each in self.kept if each.id != id)
            found = len(left) < len(self.kept)
            if found:
                self._store(left)
        return found

    def find(self, token: str, now: float) -> CreatedToken | None:
        """Return the created token with this secret, unless it has expired."""
        wanted = _hash(token)
        found = [each for each in self.kept if compare_digest(each.hash, wanted)]
        return found[0] if found and found[0].is_valid(now) else None

    def by_id(self, id: str, now: float) -> CreatedToken | None:
        """Return a created token by its id, unless it has expired."""
        return next((each for each in self.kept if each.id == id and each.is_valid(now)), None)

    def _store(self, kept: tuple[CreatedToken, ...]) -> None:
        write_private(self.folder / LIST, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the tokens at the same time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class Cached(Generic[T]):
    """The content of a small file, read again when the file has changed. Several threads may ask for it."""

    def __init__(self, path: Path, decode: Callable[[bytes], T]) -> None:
        self._path = path
        self._decode = decode
        self._known: tuple[tuple[int, ...], T | None] = (), None  # one object: no thread sees half of a change

    def value(self) -> T | None:
        seen, value = self._known
        try:
            found = self._path.stat()
            now = found.st_ino, found.st_mtime_ns, found.st_size
            if now != seen:
                value = self._decode(self._path.read_bytes())
                self._known = now, value
        except OSError:
            self._known = (), None
            return None
        return value


def _restrict(path: Path) -> None:
    """Take the rights of other users from a file that a copy or a backup has given them."""
    with suppress(OSError):
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole, readable by the user alone from the first moment on."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()
