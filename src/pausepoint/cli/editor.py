"""A state in somebody's editor: a file of JSON, and what was changed in it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pausepoint.cli.exits import FAILED, USAGE, Refused
from pausepoint.errors import did_you_mean
from pausepoint.name import NAME

USUAL = ("sensible-editor", "editor", "nano", "vim", "vi")


def write_state(state: dict[str, Any], session_id: str) -> Path:
    """The state as a file that only its owner can read."""
    number, name = tempfile.mkstemp(prefix=f"{NAME}-{session_id[:40]}-", suffix=".json")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(json.dumps(state, indent=2, ensure_ascii=False) + "\n")
    return Path(name)


def read_back(path: Path) -> str:
    """What the editor left; `ValueError` if it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path} cannot be read any more: {error.strerror}; nothing was changed", FAILED) from None


def changes(before: dict[str, Any], text: str) -> dict[str, Any]:
    """The fields that differ. `ValueError` for what cannot be meant."""
    try:
        after = json.loads(text)
    except ValueError as error:
        raise ValueError(f"that is no JSON: {error}") from None
    if not isinstance(after, dict):
        raise ValueError("the state is one JSON object, with the name of each field")
    for name in after:
        if name not in before:
            raise ValueError(f"the state has no field {name!r}{did_you_mean(name, before)}")
    missing = [name for name in before if name not in after]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing: a field that is to stay as it is, is left as it is")
    return {name: after[name] for name in before if json.dumps(after[name]) != json.dumps(before[name])}


def at_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def open_editor(command: list[str], path: Path) -> None:
    """Wait until the editor is closed."""
    # An editor has its own use for Ctrl+C, which reaches all of a terminal's foreground. Not SIG_IGN: it would inherit.
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        path.unlink()
        raise Refused(
            f"the editor {command[0]!r} cannot be started: {error.strerror}; look at $EDITOR", USAGE
        ) from None
    finally:
        signal.signal(signal.SIGINT, former)
    if code:
        raise Refused(f"{command[0]} ended with {code}; nothing was changed, and your text is kept in {path}", FAILED)


def editor() -> list[str]:
    """The command that opens a file for somebody to edit."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    usual = next((name for name in USUAL if shutil.which(name)), None)
    if usual is None or not at_terminal():
        raise Refused("there is no editor here: set $EDITOR, or use --set FIELD=VALUE", USAGE)
    return [usual]
