"""Record the files of a workspace when a run stops, to detect changes before it resumes.

The record is one file per run in ``.devs/workspace``. It does not exist while a process drives the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import NamedTuple

from pausepoint.apps.devs.models import STATE, Plan
from pausepoint.apps.input import BadInput

FOLDER = "workspace"
UNWATCHED = (STATE, ".pausepoint", ".git", "__pycache__")
"""Names that are never compared: the files of the run and the store, and files that change when they are read."""

LARGE = 16 << 20
"""Larger files are compared only by size and time."""


class Entry(NamedTuple):
    """One file. ``sha256`` is the hash of its content or of a link's target; empty for a large file."""

    size: int
    mtime_ns: int
    sha256: str


OUTPUT = Entry(-2, 0, "")
"""The entry of a file that this process prints to. The next process may print to another one."""

Seen = dict[str, Entry]


def look(plan: Plan) -> Seen:
    """Return the current files of the workspace, without the plan's file: its changes are reported task by task."""
    own = plan.path.resolve()
    places = {path: plan.workspace / path for path in _files(plan.workspace, plan.head.ignore)}
    return {path: _entry(place) for path, place in places.items() if place != own}


def _files(workspace: Path, ignored: Sequence[str]) -> Iterator[str]:
    def watched(path: str) -> bool:
        name = os.path.basename(path)
        return name not in UNWATCHED and not any(fnmatch(name, each) or fnmatch(path, each) for each in ignored)

    for folder, folders, files in os.walk(workspace):
        here = os.path.relpath(folder, workspace)
        within = "" if here == "." else f"{here}/"
        linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if watched(within + name) and name not in linked)
        yield from (within + name for name in sorted([*files, *linked]) if watched(within + name))


def _entry(path: Path) -> Entry:
    """Return the entry of a file. A missing or unreadable file gets an entry that no real file has."""
    try:
        found = path.lstat()
        if S_ISREG(found.st_mode) and any(os.path.samestat(found, output) for output in _outputs()):
            return OUTPUT
        if S_ISLNK(found.st_mode):
            return Entry(0, 0, sha256(os.fsencode(os.readlink(path))).hexdigest())
        if not S_ISREG(found.st_mode) or found.st_size > LARGE:
            return Entry(found.st_size, found.st_mtime_ns, "")
        return Entry(found.st_size, found.st_mtime_ns, sha256(path.read_bytes()).hexdigest())
    except OSError:
        return Entry(-1, 0, "")


def _outputs() -> list[os.stat_result]:
    """Return what standard output and standard error of this process are."""
    found = []
    for number in (1, 2):
        with suppress(OSError):
            found.append(os.fstat(number))
    return found


def _file(plan: Plan) -> Path:
    return plan.state / FOLDER / f"{plan.name}.json"


def keep(plan: Plan) -> None:
    """Record the current workspace. Call this when no process drives the run."""
    file = _file(plan)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(look(plan)), "utf-8", errors="surrogateescape")
    os.replace(part, file)


def kept(plan: Plan) -> Seen | None:
    """Return the record, or None if there is none."""
    try:
        data = json.loads(_file(plan).read_text("utf-8", errors="surrogateescape"))
        return {path: Entry(*entry) for path, entry in data.items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{_file(plan)} is damaged ({error}). Delete it to resume without a comparison.") from None


def forget(plan: Plan) -> None:
    """Delete the record when a process starts to work."""
    _file(plan).unlink(missing_ok=True)


def changes(plan: Plan) -> list[str]:
    """Return the changes in the workspace since the run stopped, file by file."""
    before = kept(plan)
    return [] if before is None else differences(before, look(plan))


def differences(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> list[str]:
    """Return the differences between two records, by content, or by size and time if there is no hash.

    A file that one of the two processes prints to is left out.

    >>> differences({"a": Entry(1, 5, "x"), "b": Entry(1, 5, "y")}, {"a": Entry(1, 6, "x"), "c": Entry(2, 6, "z")})
    ['gone: b', 'new: c']
    """
    outputs = {path for seen in (before, now) for path, entry in seen.items() if entry == OUTPUT}
    found = {path: f"gone: {path}" for path in before.keys() - now.keys()}
    found |= {path: f"new: {path}" for path in now.keys() - before.keys()}
    for path in before.keys() & now.keys():
        old, new = before[path], now[path]
        same = old.sha256 == new.sha256 if old.sha256 and new.sha256 else old == new
        if not same:
            found[path] = f"changed: {path}"
    return [found[path] for path in sorted(found.keys() - outputs)]
