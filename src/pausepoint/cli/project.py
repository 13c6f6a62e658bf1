"""Where the store is and where the code is: options, environment, ``[tool.pausepoint]``, or the defaults."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pausepoint.cli.exits import NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import spoken
from pausepoint.name import DEFAULT_STORE, FOLDER, NAME, variable

VARIABLE = variable("STORE")


@dataclass(frozen=True)
class Project:
    """A folder with a ``pyproject.toml`` that has ``[tool.pausepoint]``, or with a ``.pausepoint``; else the current one.

    ``targets`` are the places of its workflows, by workflow name.
    """

    root: Path
    store: str | None = None
    targets: dict[str, str] = field(default_factory=dict)
    found: bool = False


def find_project(start: Path | None = None) -> Project:
    """The nearest project, from here upwards."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        settings = _settings(folder / "pyproject.toml")
        if settings is not None:
            return _project(folder, settings)
        if (folder / FOLDER).is_dir():
            return Project(folder, found=True)
    return Project(here)


def _settings(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    if NAME not in text:
        return None
    try:
        found: dict[str, Any] | None = tomllib.loads(text).get("tool", {}).get(NAME)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path} cannot be read: {error}", USAGE) from error
    return found


def _project(root: Path, settings: dict[str, Any]) -> Project:
    store, targets = settings.get("store"), settings.get("workflows", {})
    unknown = sorted(set(settings) - {"store", "workflows"})
    if unknown:
        raise Refused(
            f"{root / 'pyproject.toml'}: [tool.pausepoint] knows store and workflows, not {unknown[0]!r}", USAGE
        )
    if store is not None and not isinstance(store, str):
        raise Refused(f"{root / 'pyproject.toml'}: store in [tool.pausepoint] must be a text, a path or a URL", USAGE)
    if not isinstance(targets, dict) or not all(isinstance(target, str) for target in targets.values()):
        raise Refused(
            f"{root / 'pyproject.toml'}: workflows in [tool.pausepoint] must be a table of names and targets,"
            ' such as brief = "brief.py:brief"',
            USAGE,
        )
    return Project(root, store, targets, found=True)


@dataclass(frozen=True)
class Place:
    """The store that a command works on. ``explicit``: somebody named it, so it must exist."""

    url: str
    path: Path | None
    explicit: bool

    @property
    def exists(self) -> bool:
        return self.path is None or self.path.exists()


def find_store(option: str | None, project: Project, default: str | None = None) -> Place:
    """``--store``, else ``PAUSEPOINT_STORE``, else ``[tool.pausepoint]``, else ``.pausepoint/pausepoint.db`` of the project.

    ``default``: what a program has instead of its project's.
    """
    named = option or os.environ.get(VARIABLE)
    if named:
        return _place(named, Path.cwd(), explicit=True)
    if default is not None:
        return _place(default, Path.cwd(), explicit=False)
    return _place(project.store or DEFAULT_STORE, project.root, explicit=False)


def _place(text: str, base: Path, explicit: bool) -> Place:
    if text in (":memory:", "sqlite://", "sqlite:///:memory:"):
        raise Refused("a store in memory ends with its process: a command line needs a file; name one", USAGE)
    if "://" in text and not text.startswith("sqlite:///"):
        kind = text.partition("://")[0]
        hint = (
            "is not installed here" if kind in ("postgres", "postgresql", "firestore") else "is no kind that is known"
        )
        raise Refused(f"{text}: the store {kind!r} {hint}; use sqlite:///path/to/file.db, or a path", USAGE)
    path = base / os.path.expanduser(text.removeprefix("sqlite:///"))
    return Place(str(path), path, explicit)


def check_exists(place: Place, what: str) -> None:
    """For a command that needs something in the store."""
    if place.path is not None and place.path.is_dir():
        raise Refused(f"{place.path} is a folder; name a file in it, such as {place.path / f'{NAME}.db'}", USAGE)
    if not place.exists:
        hint = f"look at --store and {VARIABLE}" if place.explicit else f"`{spoken('run')}` makes one"
        raise Refused(f"{what}: there is no store at {place.path}; {hint}", NOT_FOUND)
