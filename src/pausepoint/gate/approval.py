"""Find the commands and tool calls that need a person's approval. This guards against accidents and is not a sandbox.

A command is parsed into words, as a shell does: quotes, backslashes, operators and substitutions. In doubt, a command
counts as restricted: quoted text may be a command for another shell, so ``echo "git push"`` matches ``git push``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

_SPECIAL = re.compile(r"[\s;&|()`$<>'\"\\]")
_QUOTED = {sign: re.compile(rf"((?:[^{sign}\\]|\\.)*){sign}", re.DOTALL) for sign in '"`'}
_QUOTED["'"] = re.compile(r"([^']*)'")
_REDIRECTION = re.compile(r"[<>&|-]*[ \t]*")
_WILD = re.compile(r"[*?\[]")

_SHELL_ARGUMENTS = ("command", "cmd")
"""The arguments of a tool call that hold a command for a shell."""

_DEEPEST = 20
"""Text that is quoted or substituted deeper than this is only split into words."""

_FARTHEST = 100
"""The maximum number of words between two words of a pattern. It bounds the time for hostile commands."""


def restriction(command: str | Sequence[str], patterns: Sequence[str]) -> str | None:
    """Return the first pattern that matches a command, or None.

    A match may start at any word of the command, for example after ``sudo`` or ``xargs``. Options between the words of
    a pattern do not matter, and an option in a pattern may come anywhere after its first word.

    >>> restriction("cd docs && sudo /usr/bin/git -C sub --no-pager push origin", ["rm", "git push"])
    'git push'
    >>> restriction(["sh", "-c", "rm -rf build"], ["rm"]), restriction("echo firm", ["rm"])
    ('rm', None)
    >>> restriction("git push origin --force", ["git push --force"]), restriction("git commit -m push", ["git push"])
    ('git push --force', None)
    """
    found = [words for words in _commands(command) if words]
    return next((pattern for pattern in patterns if any(_meets(words, pattern) for words in found)), None)


def restriction_of_call(name: str, arguments: Mapping[str, Any], patterns: Sequence[str]) -> str | None:
    """Return the first pattern that matches a tool call of an agent, or None.

    A pattern matches the tool's name, or the command if the tool is a shell (its argument ``command`` or ``cmd``).

    >>> restriction_of_call("Bash", {"command": "git -C x push"}, ["Write", "git push"])
    'git push'
    >>> restriction_of_call("mcp__mail__send", {}, ["mcp__*"]), restriction_of_call("Read", {}, ["Write"])
    ('mcp__*', None)
    """
    given = [command for key in _SHELL_ARGUMENTS if (command := _command(arguments.get(key))) is not None]
    for pattern in patterns:
        if fnmatchcase(name, pattern) or any(restriction(each, [pattern]) for each in given):
            return pattern
    return None


def _command(given: Any) -> str | list[str] | None:
    """Return an argument of a tool call as a command. An agent may pass anything."""
    if isinstance(given, list):
        return [word for word in given if isinstance(word, str)]
    return given if isinstance(given, str) else None


# matching


def _meets(words: Sequence[str], pattern: str) -> bool:
    """Return whether a simple command has a place at which the pattern matches."""
    wanted = [each for each in pattern.split() if not each.startswith("-")]
    options = [each for each in pattern.split() if each.startswith("-")]
    last = min((_last(words, option) for option in options), default=len(words))
    return any(at < last and _follow(words, at, wanted) for at in range(len(words))) or _meets_wild(words, pattern)


def _last(words: Sequence[str], option: str) -> int:
    return max((at for at, word in enumerate(words) if fnmatchcase(word, option)), default=-1)


def _follow(words: Sequence[str], at: int, wanted: Sequence[str]) -> bool:
    """Return whether the wanted words start here, with nothing but options between them."""
    if not wanted or not fnmatchcase(_program(words[at]), wanted[0]):
        return False
    if len(wanted) == 1:
        return True
    after_option = False
    for place in range(at + 1, min(at + _FARTHEST, len(words))):
        if _follow(words, place, wanted[1:]):
            return True
        # An option may take the next word as its value; a variable may be an option, or nothing.
        is_option = words[place].startswith("-") or "$" in words[place]
        if not is_option and not after_option:
            return False
        after_option = is_option
    return False


def _meets_wild(words: Sequence[str], pattern: str) -> bool:
    """Return whether a pattern with a wildcard, which may stand for several words, matches from any word on."""
    wild = _WILD.search(pattern)
    if wild is None:
        return False
    literal = pattern[: wild.start()]
    for at, word in enumerate(words):
        near = words[at + 1 : at + 2 + literal.count(" ")]
        if not " ".join([_program(word), *near, ""]).startswith(literal):
            continue
        tail = " ".join([_program(word), *words[at + 1 :]])
        if fnmatchcase(tail, pattern) or fnmatchcase(tail, f"{pattern} *"):
            return True
        if wild[0] == "*":
            return False  # a match from a later word would be one from here, too
    return False


def _program(word: str) -> str:
    return PurePosixPath(word).name or word


# parsing


def _commands(command: str | Sequence[str]) -> Iterator[list[str]]:
    """Yield the simple commands in a command, each as its words without quotes."""
    if isinstance(command, str):
        yield from _Shell(command).commands
        return
    yield list(command)
    for word in command:
        if _SPECIAL.search(word):
            yield from _Shell(word).commands


class _Shell:
    """Parses the text of a shell command. It knows less than a shell, and takes every text as a command."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text.replace("\\\n", "")
        self.depth = depth
        self.commands: list[list[str]] = [[]]
        self._at = 0
        self._word: str | None = None
        self._quoted = False
        self._aside = False  # whether the word is the file of a redirection
        if depth > _DEEPEST:
            self.commands = [_SPECIAL.sub(" ", text).split()]
            return
        while self._at < len(self.text):
            self._step()
        self._end_word()

    def _step(self) -> None:
        sign = self.text[self._at]
        self._at += 1
        following = self.text[self._at : self._at + 1]
        if sign in " \t\r":
            self._end_word()
        elif sign in "<>" or (sign == "&" and following == ">"):
            self._redirect()
        elif sign in ";&|()\n":
            self._end_command()
        elif sign in "'\"":
            self._add(self._until(sign), quoted=True)
        elif sign == "\\":
            self._add(following, quoted=True)
            self._at += 1
        elif sign == "`":
            self._substitute(self._until(sign))
        elif sign == "$" and following == "(":
            self._substitute(self._parenthesis())
        elif sign != "$" or following not in ("'", '"'):  # $'text' is quoted text
            self._add(sign)

    def _add(self, text: str, quoted: bool = False) -> None:
        self._word = (self._word or "") + text
        self._quoted = self._quoted or quoted

    def _end_word(self) -> None:
        word, quoted, aside = self._word, self._quoted, self._aside
        if word is None:
            return
        self._word, self._quoted, self._aside = None, False, False
        if aside:
            self.commands.insert(-1, [word])  # not a word of this command; it is checked on its own
        else:
            self.commands[-1].append(word)
        if quoted and _SPECIAL.search(word):
            self._parse_inside(word)

    def _end_command(self) -> None:
        self._end_word()
        self._aside = False
        self.commands.append([])

    def _redirect(self) -> None:
        if self._word is not None and self._word.isdigit():
            self._word = None  # the number of the file, as in 2>
        self._end_word()
        rest = _REDIRECTION.match(self.text, self._at)
        self._at = self._at if rest is None else rest.end()
        self._aside = True
        if self.text.startswith("(", self._at):
            self._substitute(self._parenthesis())

    def _substitute(self, text: str) -> None:
        self._add("$")
        self._parse_inside(text)

    def _parse_inside(self, text: str) -> None:
        self.commands[-1:-1] = _Shell(text, self.depth + 1).commands

    def _until(self, quote: str) -> str:
        """Return the text up to the closing quote. Without one, for example in a here-document, it quotes nothing."""
        found = _QUOTED[quote].match(self.text, self._at)
        if found is None:
            self._end_word()
            return ""
        self._at = found.end()
        return found[1] if quote == "'" else re.sub(r'\\([\\"$`])', r"\1", found[1])

    def _parenthesis(self) -> str:
        """Return the text between parentheses. Without the closing one, it is the rest of the text."""
        depth, begin = 0, self._at + 1
        for at in range(self._at, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            if not depth:
                self._at = at + 1
                return self.text[begin:at]
        self._at = len(self.text)
        return self.text[begin:]
