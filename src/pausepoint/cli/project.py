"""Find the store and the code: by options, the environment, ``[tool.pausepoint]``, or defaults."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pausepoint.cli.exits import FAILED, NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import how_to_start
from pausepoint.name import DEFAULT_STORE, FOLDER, NAME, variable

VARIABLE = variable("STORE")

TARGET_VARIABLE = variable("TARGET")
"""The environment variable with the targets of a shell, separated by spaces. ``--target`` takes precedence."""


def remembered_targets() -> tuple[str, ...]:
    """Return the targets that the environment names."""
    return tuple(os.environ.get(TARGET_VARIABLE, "").split())


@dataclass(frozen=True)
class Project:
    """The project folder: it has ``[tool.pausepoint]`` in a ``pyproject.toml``, or a ``.pausepoint`` folder.

    Without either it is the current folder, and ``found`` is false. ``targets`` maps workflow names to targets.
    """

    root: Path
    store: str | None = None
    targets: dict[str, str] = field(default_factory=dict)
    found: bool = False


def find_project() -> Project:
    """Return the project of this folder or of its nearest parent."""
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        settings = _settings(folder / "pyproject.toml")
        if settings is not None:
            return _project(folder, settings)
        if os.path.isdir(folder / FOLDER):  # false for a folder that this user may not enter
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
        raise Refused(f"{path} is not valid TOML: {error}. Fix the file.", USAGE) from error
    return found


def _project(root: Path, settings: dict[str, Any]) -> Project:
    store, targets = settings.get("store"), settings.get("workflows", {})
    unknown = sorted(set(settings) - {"store", "workflows"})
    if unknown:
        raise Refused(
            f"{root / 'pyproject.toml'}: [tool.pausepoint] has an unknown setting {unknown[0]!r}. Use store or"
            " workflows.",
            USAGE,
        )
    if store is not None and not isinstance(store, str):
        raise Refused(
            f"{root / 'pyproject.toml'}: store in [tool.pausepoint] is not a string. Set it to a path or a URL.", USAGE
        )
    if not isinstance(targets, dict) or not all(isinstance(target, str) for target in targets.values()):
        raise Refused(
            f"{root / 'pyproject.toml'}: workflows in [tool.pausepoint] is not a table of names and targets. Write"
            ' entries such as brief = "brief.py:brief".',
            USAGE,
        )
    return Project(root, store, targets, found=True)


@dataclass(frozen=True)
class Place:
    """The store that a command works on. ``explicit``: an option or the environment names it, so it must exist."""

    url: str
    path: Path | None
    explicit: bool
    text: str

    @property
    def exists(self) -> bool:
        """Whether there is a store. Refuses if this user may not look for it."""
        if self.path is None:
            return _is_on_server(self.url)
        try:
            return self.path.exists()
        except PermissionError as error:
            raise Refused(
                f"The store {self.path} cannot be reached: this user may not open the folder {self.path.parent}. Run"
                f" the command as the owner of the folder, or name another store with --store or {VARIABLE}.",
                FAILED,
            ) from error

    @property
    def shown(self) -> str:
        """The path, or the URL of a server without its password."""
        return self.given if self.path is None else str(self.path)

    @property
    def given(self) -> str:
        """The store as a person named it, without a password."""
        return _without_password(self.text)


_existing: set[str] = set()
"""The URLs of stores that this process has found on a server. It does not ask again for them."""


def _is_on_server(url: str) -> bool:
    if url not in _existing:
        from pausepoint.engine.stores import has_store

        if has_store(url):
            _existing.add(url)
    return url in _existing


def _without_password(text: str) -> str:
    """Return the URL of a store without its passwords, in the login and in the options.

    >>> _without_password("postgresql://ada:secret@db/work?password=secret&schema=team")
    'postgresql://ada@db/work?schema=team'
    """
    if "://" not in text:
        return text
    head, _, query = re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1@", text).partition("?")
    kept = [each for each in query.split("&") if not unquote(each.partition("=")[0]).strip().endswith("password")]
    return f"{head}?{'&'.join(kept)}" if any(kept) else head


def find_store(option: str | None, project: Project, default: str | None = None) -> Place:
    """Return the store that ``--store``, ``PAUSEPOINT_STORE`` or ``[tool.pausepoint]`` names, in this order.

    Otherwise it is ``.pausepoint/pausepoint.db`` in the project. ``default``: a program's own store, which is used
    instead of the project's.
    """
    named = option or os.environ.get(VARIABLE)
    if named:
        return _place(named, Path.cwd(), explicit=True)
    if default is not None:
        return _place(default, Path.cwd(), explicit=False)
    return _place(project.store or DEFAULT_STORE, project.root, explicit=False)


def _place(text: str, base: Path, explicit: bool) -> Place:
    if text in (":memory:", "sqlite://", "sqlite:///:memory:"):
        raise Refused(
            f"The store {text!r} is in memory and ends with its process. Name a file, such as --store work.db.", USAGE
        )
    if text.startswith(("postgresql://", "postgres://")):
        return Place(text, None, explicit, text)
    if "://" in text and not text.startswith("sqlite:///"):
        kind = text.partition("://")[0]
        raise Refused(
            f"{_without_password(text)}: the store type {kind!r} is not known. Use a path,"
            " sqlite:///path/to/file.db, or postgresql://host/database.",
            USAGE,
        )
    path = base / os.path.expanduser(text.removeprefix("sqlite:///"))
    return Place(str(path), path, explicit, text)


def place_of(text: str) -> Place:
    """Return the store that a person names by a path or a URL."""
    return _place(text, Path.cwd(), explicit=True)


def check_exists(place: Place) -> None:
    """Refuse if the store does not exist."""
    if not place.exists:
        hint = f"Check --store and {VARIABLE}."
        if place.path is None or not place.explicit:  # a server is named by a URL also before its first session
            hint = f"The first session creates it. {how_to_start()}"
        raise Refused(f"There is no store at {place.shown}. {hint}", NOT_FOUND)
    if place.path is not None and place.path.is_dir():
        raise Refused(f"The store {place.path} is a folder. Name a file in it: {place.path / f'{NAME}.db'}", USAGE)
