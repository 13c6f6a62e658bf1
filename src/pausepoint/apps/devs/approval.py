"""Find the commands that need a person's approval. This guards against accidents and is not a sandbox."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath


def restriction(command: str | Sequence[str], patterns: Sequence[str]) -> str | None:
    """Return the first pattern that matches a command, or None. A match may start at any word of the command.

    >>> restriction("cd docs && sudo /usr/bin/git push origin", ["rm", "git push"])
    'git push'
    >>> restriction(["sh", "-c", "rm -rf build"], ["rm"]), restriction("echo firm", ["rm"])
    ('rm', None)
    """
    words = _words(command)
    tails = [" ".join([PurePosixPath(words[at]).name or words[at], *words[at + 1 :]]) for at in range(len(words))]
    return next((pattern for pattern in patterns if any(_meets(tail, pattern) for tail in tails)), None)


def _meets(tail: str, pattern: str) -> bool:
    return fnmatchcase(tail, pattern) or fnmatchcase(tail, f"{pattern} *")


def _words(command: str | Sequence[str]) -> list[str]:
    """Return all words without operators. Quoted text is split as well: it may be a command for another shell."""
    given = [command] if isinstance(command, str) else command
    found: list[str] = []
    for text in given:
        try:
            parts = shlex.split(re.sub(r"[;&|()`$<>\n]+", " ", text)) if isinstance(command, str) else [text]
        except ValueError:  # for example, a quote within a here-document
            parts = text.split()
        for part in parts:
            found += re.sub(r"[;&|()`$<>\n'\"]+", " ", part).split() or [part]
    return found
