"""Which commands wait for a person's yes. A guard against accidents, not a sandbox: who asks too often is forgiven."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath


def restriction(command: str | Sequence[str], patterns: Sequence[str]) -> str | None:
    """The first pattern that a command meets, if one is. It may begin at any word of the command.

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
    """All words, also those within quotes, which may be a command for another shell; operators are no words."""
    given = [command] if isinstance(command, str) else command
    found: list[str] = []
    for text in given:
        try:
            parts = shlex.split(re.sub(r"[;&|()`$<>\n]+", " ", text)) if isinstance(command, str) else [text]
        except ValueError:  # a quote within a here-document, say
            parts = text.split()
        for part in parts:
            found += re.sub(r"[;&|()`$<>\n'\"]+", " ", part).split() or [part]
    return found
