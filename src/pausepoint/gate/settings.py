"""The files that `pausepoint gate install` writes: where the gate of a project is, and how files are changed safely."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pausepoint.errors import GateRefused
from pausepoint.name import FOLDER, NAME

GATE_FILE = "gate.json"
VERSION = 1

OnLoss = Literal["open", "closed"]
"""What happens to a tool call while no server answers: it runs, or it is refused."""

LONGEST_SOCKET = 100
"""The most bytes in the path of a socket. Linux takes 107, macOS 103."""

LARGEST = 4 * 2**20
"""The most bytes of a settings file."""


class SettingsRefused(GateRefused):
    """A file of settings cannot be read or changed. The message names the file. Nothing was changed."""


@dataclass(frozen=True)
class GateSettings:
    """The content of ``.pausepoint/gate.json``: where the hooks of a project's agents find the gate.

    - ``socket``: the socket of the gate's server; ``flag``: a file that exists while everything is paused.
    - ``store``: the URL of the store; ``on_loss``: what happens without a server.
    - ``restricted``: commands and tools that a person must approve.
    - ``created``: settings files that did not exist before.

    >>> GateSettings("/run/x.sock", "/p/x.db-paused", "sqlite:////p/x.db").to_json()["on_loss"]
    'open'
    """

    socket: str
    flag: str
    store: str
    on_loss: OnLoss = "open"
    restricted: tuple[str, ...] = ()
    created: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "v": VERSION,
            "socket": self.socket,
            "flag": self.flag,
            "store": self.store,
            "on_loss": self.on_loss,
            "restricted": list(self.restricted),
            "created": list(self.created),
        }

    def to_bytes(self) -> bytes:
        """Return the file."""
        return (json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n").encode()


def gate_file(root: Path) -> Path:
    """Return the place of ``gate.json`` in a project."""
    return root / FOLDER / GATE_FILE


def find_gate(folder: Path) -> Path | None:
    """Return the nearest ``gate.json``, in this folder or above it, as the hook finds it."""
    here = folder.absolute()
    return next((found for each in (here, *here.parents) if (found := gate_file(each)).is_file()), None)


def read_gate(path: Path) -> GateSettings | None:
    """Return what a ``gate.json`` says; None if there is none. Raises `SettingsRefused` if it is not valid."""
    data = read_file(path)
    if data is None:
        return None
    try:
        return _settings(json.loads(data))
    except ValueError as error:
        raise SettingsRefused(f"{path} is not valid: {error}. Delete the file, then install the gate again.") from None


def _settings(given: Any) -> GateSettings:
    if not isinstance(given, dict) or given.get("v") != VERSION:
        raise ValueError(f"it is not an object with v = {VERSION}")
    if given.get("on_loss") not in get_args(OnLoss):
        raise ValueError("on_loss is neither open nor closed")
    return GateSettings(
        _text(given, "socket"), _text(given, "flag"), _text(given, "store"), given["on_loss"],
        _texts(given, "restricted"), _texts(given, "created"),
    )  # fmt: skip


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a text")
    return value


def _texts(given: dict[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} is not a list of texts")
    return tuple(value)


# the socket


def socket_path(root: Path) -> Path:
    """Return the path of the socket of a project's gate: in a folder of this user's own, named after the project."""
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    path = runtime_folder() / f"{digest}.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise SettingsRefused(
            f"The path {path} is too long for a socket: at most {LONGEST_SOCKET} bytes are possible. Set"
            " XDG_RUNTIME_DIR to a folder with a shorter path, or unset it to use /tmp."
        )
    return path


def runtime_folder() -> Path:
    """Return the folder for sockets, which only this user can enter."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(given) / NAME if given.startswith("/") else Path(f"/tmp/{NAME}-{os.getuid()}")


def make_private(folder: Path) -> None:
    """Create the folder for sockets. Raises `SettingsRefused` if another user owns it or can enter it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsRefused(f"The folder {folder} cannot be created: {error.strerror}. Check its parent.") from error
    if problem := not_private(folder):
        raise SettingsRefused(f"The folder {folder} is not safe: {problem}. Remove it, then try again.")


def not_private(folder: Path) -> str | None:
    """Return why others could reach a socket in this folder; None if only this user can.

    >>> not_private(Path("/"))
    'other users can enter it'
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return "other users can enter it"
    return None if found.st_uid == os.getuid() else "another user owns it"


# files


@dataclass(frozen=True)
class Change:
    """A change of a file: what it contains now, and what it will contain. None: there is no such file."""

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int | None = None

    @property
    def is_one(self) -> bool:
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the lines of a unified diff."""
        before, after = (_lines(data) for data in (self.before, self.after))
        former, new = ("/dev/null" if data is None else str(self.path) for data in (self.before, self.after))
        return [line.rstrip("\r\n") for line in difflib.unified_diff(before, after, former, new)]


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)


def read_file(path: Path) -> bytes | None:
    """Return the content of a file of settings; None if there is none. Anything but an ordinary file is refused."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise SettingsRefused(
                f"{path} is a symbolic link to {os.readlink(path)}. Replace the link with a file, or add the hooks to"
                " the other file by hand. Nothing was changed."
            )
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise SettingsRefused(f"{path} is not an ordinary file of settings. Move it away. Nothing was changed.")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsRefused(
            f"{path} cannot be read: {error.strerror}. Check its permissions. Nothing was changed."
        ) from error


def apply(changes: Iterable[Change]) -> None:
    """Write all changes, or none. Raises `SettingsRefused` if a file was changed meanwhile, or cannot be written."""
    wanted = [each for each in changes if each.is_one]
    for each in wanted:
        if read_file(each.path) != each.before:
            raise SettingsRefused(f"{each.path} was changed meanwhile. Nothing was changed. Try again.")
    staged: list[Path | None] = []
    made: list[Path] = []
    done: list[Change] = []
    try:
        for each in wanted:
            made += _make_parents(each.path)
            staged.append(None if each.after is None else _stage(each))
        for each, new in zip(wanted, staged, strict=True):
            each.path.unlink() if new is None else os.replace(new, each.path)
            done.append(each)
    except OSError as error:
        _undo(done, [new for new in staged if new is not None], made)
        failed = wanted[len(done) if len(staged) == len(wanted) else len(staged)]
        raise SettingsRefused(
            f"{failed.path} cannot be written: {error.strerror}. Check the permissions of its folder. Nothing was"
            " changed."
        ) from error


def _undo(done: Sequence[Change], staged: Iterable[Path], made: Sequence[Path]) -> None:
    for new in staged:
        new.unlink(missing_ok=True)
    with suppress(OSError):  # what made the change fail may also make this fail
        for each in done:
            each.path.unlink(missing_ok=True) if each.before is None else each.path.write_bytes(each.before)
        for folder in reversed(made):
            folder.rmdir()


def _make_parents(path: Path) -> list[Path]:
    """Create the folders above a file, and return those that did not exist."""
    missing = [each for each in path.parents if not each.exists()][::-1]
    for each in missing:
        each.mkdir(mode=0o700 if each.name == FOLDER else 0o777)
    return missing


def _stage(change: Change) -> Path:
    """Write the new content next to the file, with the permissions that the file has."""
    assert change.after is not None
    mode = change.mode
    if mode is None and change.before is not None:
        mode = stat.S_IMODE(change.path.stat().st_mode)
    new = change.path.with_name(f".{change.path.name}.{secrets.token_hex(4)}")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(change.after)
            out.flush()
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new
