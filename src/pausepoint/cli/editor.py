"""Edit a state in the person's editor: write it to a JSON file, and find out what was changed."""

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
    """Write the state to a file that only its owner can read."""
    number, name = tempfile.mkstemp(prefix=f"{NAME}-{session_id[:40]}-", suffix=".json")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(json.dumps(state, indent=2, ensure_ascii=False) + "\n")
    return Path(name)


def read_back(path: Path) -> str:
    """Return the edited text. Raises `ValueError` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"The edited file {path} cannot be read: {error.strerror}. Nothing was changed; edit the session again.",
            FAILED,
        ) from None


def changes(before: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the changed fields. Raises `ValueError` if the text is not an edited state."""
    try:
        after = json.loads(text)
    except ValueError as error:
        raise ValueError(f"The edited file is not valid JSON: {error}.") from None
    if not isinstance(after, dict):
        raise ValueError("The edited file is not a JSON object. Keep the braces and the field names.")
    for name in after:
        if name not in before:
            raise ValueError(f"The state has no field {name!r}{did_you_mean(name, before)}")
    missing = [name for name in before if name not in after]
    if missing:
        raise ValueError(f"The field {missing[0]!r} is missing. Keep the fields that you do not change.")
    return {name: after[name] for name in before if json.dumps(after[name]) != json.dumps(before[name])}


def at_terminal() -> bool:
    """Return whether a person is at a terminal and can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def open_editor(command: list[str], path: Path) -> None:
    """Open the editor, and wait until it is closed."""
    # Ctrl+C reaches the editor, too, which handles it itself. Not SIG_IGN, because the editor would inherit it.
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        path.unlink()
        raise Refused(
            f"The editor {command[0]!r} cannot be started: {error.strerror}. Check $VISUAL and $EDITOR.", USAGE
        ) from None
    finally:
        signal.signal(signal.SIGINT, former)
    if code:
        raise Refused(
            f"The editor {command[0]!r} exited with code {code}. Nothing was changed. Edit the session again; your"
            f" text is in {path}",
            FAILED,
        )


def editor() -> list[str]:
    """Return the command that opens a file in the person's editor."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    usual = next((name for name in USUAL if shutil.which(name)), None)
    if usual is None or not at_terminal():
        raise Refused("No editor was found. Set $EDITOR, or use --set FIELD=VALUE.", USAGE)
    return [usual]
