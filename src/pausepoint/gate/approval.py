"""Find the commands and tool calls that need a person's approval. This guards against accidents and is not a sandbox.

A command is parsed into words, as a shell does: quotes, backslashes, operators and substitutions. In doubt, a command
counts as restricted: quoted text may be a command for another shell, so ``echo "git push"`` matches ``git push``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

_SPECIAL = re.compile(r"[\s;&|()`$<>'\"\\]")
_QUOTED = {sign: re.compile(rf"((?:[^{sign}\\]|\\.)*){sign}", re.DOTALL) for sign in '"`'}
_QUOTED["'"] = re.compile(r"([^']*)'")
_REDIRECTION = re.compile(r"[<>&|-]*[ \t]*")
_WILD = re.compile(r"[*?\[]")
_ESCAPE = re.compile(r'\\[\\"$`]')

_SHELL_ARGUMENTS = ("command", "cmd")
"""The arguments of a tool call that hold a command for a shell."""

_DEEPEST = 20
"""Text that is quoted or substituted deeper than this is only split into words."""

_MOST_MATCHES = 100
"""The most places at which the words of one pattern are highlighted in a simple command."""

_FARTHEST = 100
"""The maximum number of words between two words of a pattern. It bounds the time for hostile commands."""


class Match(NamedTuple):
    """A pattern that a command or a tool call meets, and where its words are. The name of a tool has no place."""

    pattern: str
    spans: tuple[tuple[int, int], ...] = ()


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
    return next((match.pattern for match in matches(command, patterns)), None)


def restriction_of_call(name: str, arguments: Mapping[str, Any], patterns: Sequence[str]) -> str | None:
    """Return the first pattern that matches a tool call of an agent, or None.

    A pattern matches the tool's name, or the command if the tool is a shell (its argument ``command`` or ``cmd``).

    >>> restriction_of_call("Bash", {"command": "git -C x push"}, ["Write", "git push"])
    'git push'
    >>> restriction_of_call("mcp__mail__send", {}, ["mcp__*"]), restriction_of_call("Read", {}, ["Write"])
    ('mcp__*', None)
    """
    commands = list(commands_of(arguments).values())
    for pattern in patterns:
        if fnmatchcase(name, pattern) or any(restriction(command, [pattern]) for command in commands):
            return pattern
    return None


def matches(command: str | Sequence[str], patterns: Sequence[str]) -> Iterator[Match]:
    """Yield each pattern that matches a command, with the places of its words in `shell_text`.

    >>> [text] = [match.spans for match in matches("cd x && sh -c 'git -C y push'", ["rm", "git push"])]
    >>> ["cd x && sh -c 'git -C y push'"[begin:end] for begin, end in text]
    ['git', 'push']
    """
    simple = [words for words in _commands(command) if words]
    for pattern in patterns:
        words = [word for command in simple for word in _meets(command, pattern)]
        if words:
            yield Match(pattern, tuple(sorted({word.span for word in words})))


def commands_of(arguments: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Return the arguments of a tool call that hold a command for a shell. An agent may pass anything."""
    return {
        name: value if isinstance(value, str) else [word for word in value if isinstance(word, str)]
        for name in _SHELL_ARGUMENTS
        if isinstance(value := arguments.get(name), str | list)
    }


def shell_text(command: str | Sequence[str]) -> str:
    """Return a command as a person would type it.

    >>> shell_text(["sh", "-c", "git push"])
    "sh -c 'git push'"
    """
    return command if isinstance(command, str) else shlex.join(command)


# matching


class _Word(str):
    """A word without its quotes, and where it is in the whole command."""

    span: tuple[int, int]

    @classmethod
    def at(cls, text: str, places: Sequence[int]) -> _Word:
        word = cls(text)
        word.span = (places[0], places[-1] + 1) if places else (0, 0)
        return word


def _meets(words: Sequence[_Word], pattern: str) -> list[_Word]:
    """Return the words of a simple command that match the pattern, at the first place and up to 100 others."""
    wanted = [part for part in pattern.split() if not part.startswith("-")]
    options = [part for part in pattern.split() if part.startswith("-")]
    last = min((_last(words, option) for option in options), default=len(words))
    starts = (_follow(words, at, wanted) for at in range(min(last, len(words))))
    met = list(islice((start for start in starts if start), _MOST_MATCHES))
    if not met:
        return _meets_wild(words, pattern)
    return [*(word for start in met for word in start), *(words[_last(words, option)] for option in options)]


def _last(words: Sequence[_Word], option: str) -> int:
    return max((at for at, word in enumerate(words) if fnmatchcase(word, option)), default=-1)


def _follow(words: Sequence[_Word], at: int, wanted: Sequence[str]) -> list[_Word]:
    """Return the wanted words if they start here, with nothing but options between them; otherwise nothing."""
    if not wanted or not fnmatchcase(_program(words[at]), wanted[0]):
        return []
    if len(wanted) == 1:
        return [words[at]]
    after_option = False
    for place in range(at + 1, min(at + _FARTHEST, len(words))):
        if rest := _follow(words, place, wanted[1:]):
            return [words[at], *rest]
        # An option may take the next word as its value; a variable may be an option, or nothing.
        is_option = words[place].startswith("-") or "$" in words[place]
        if not is_option and not after_option:
            return []
        after_option = is_option
    return []


def _meets_wild(words: Sequence[_Word], pattern: str) -> list[_Word]:
    """Return the words from the first one on at which a pattern with a wildcard matches; it may stand for several."""
    wild = _WILD.search(pattern)
    if wild is None:
        return []
    literal = pattern[: wild.start()]
    for at, word in enumerate(words):
        near = words[at + 1 : at + 2 + literal.count(" ")]
        if not " ".join([_program(word), *near, ""]).startswith(literal):
            continue
        tail = " ".join([_program(word), *words[at + 1 :]])
        if fnmatchcase(tail, pattern) or fnmatchcase(tail, f"{pattern} *"):
            return list(words[at:])
        if wild[0] == "*":
            return []  # a match from a later word would be one from here, too
    return []


def _program(word: str) -> str:
    return PurePosixPath(word).name or word


# parsing


def _commands(command: str | Sequence[str]) -> Iterator[list[_Word]]:
    """Yield the simple commands in a command, each as its words without quotes."""
    if isinstance(command, str):
        yield from _Shell(command, range(len(command))).commands
        return
    words, begin = [], 0
    for text in command:
        quoted = shlex.quote(text)
        words.append((text, _inside(text, quoted, begin)))
        begin += len(quoted) + 1
    yield [_Word.at(text, places) for text, places in words]
    for text, places in words:
        if _SPECIAL.search(text):
            yield from _Shell(text, places).commands


def _inside(text: str, quoted: str, begin: int) -> Sequence[int]:
    """Return where the characters of a word are that `shlex.join` has quoted."""
    if quoted == text:
        return range(begin, begin + len(text))
    places, at = [], begin + 1
    for char in text:
        places.append(at if char != "'" else at + 2)
        at += 1 if char != "'" else 5  # a quote is written as '"'"'
    return places


class _Shell:
    """Parses the text of a shell command. It knows less than a shell, and takes every text as a command.

    ``places`` are where the characters of the text are in the whole command.
    """

    def __init__(self, text: str, places: Sequence[int], depth: int = 0) -> None:
        self.text, self.places = _joined_lines(text, places)
        self.depth = depth
        self.commands: list[list[_Word]] = [[]]
        self._at = 0
        self._word: str | None = None
        self._word_places: list[int] = []
        self._quoted = False
        self._aside = False  # whether the word is the file of a redirection
        if depth > _DEEPEST:
            plain = re.compile(rf"(?:(?!{_SPECIAL.pattern}).)+", re.DOTALL).finditer(self.text)
            self.commands = [[_Word.at(word[0], self.places[word.start() : word.end()]) for word in plain]]
            return
        while self._at < len(self.text):
            self._step()
        self._end_word()

    def _step(self) -> None:
        begin = self._at
        sign = self.text[begin]
        self._at += 1
        following = self.text[self._at : self._at + 1]
        if sign in " \t\r":
            self._end_word()
        elif sign in "<>" or (sign == "&" and following == ">"):
            self._redirect()
        elif sign in ";&|()\n":
            self._end_command()
        elif sign in "'\"":
            self._add(*self._until(sign), quoted=True)
        elif sign == "\\":
            self._add(following, self.places[self._at : self._at + 1], quoted=True)
            self._at += 1
        elif sign == "`":
            self._substitute(begin, *self._until(sign))
        elif sign == "$" and following == "(":
            self._substitute(begin, *self._parenthesis())
        elif sign != "$" or following not in ("'", '"'):  # $'text' is quoted text
            self._add(sign, self.places[begin : begin + 1])

    def _add(self, text: str, places: Sequence[int], quoted: bool = False) -> None:
        self._word = (self._word or "") + text
        self._word_places.extend(places)
        self._quoted = self._quoted or quoted

    def _end_word(self) -> None:
        word, places, quoted, aside = self._word, self._word_places, self._quoted, self._aside
        if word is None:
            return
        self._word, self._word_places, self._quoted, self._aside = None, [], False, False
        if aside:
            self.commands.insert(-1, [_Word.at(word, places)])  # not a word of this command; it is checked on its own
        else:
            self.commands[-1].append(_Word.at(word, places))
        if quoted and _SPECIAL.search(word):
            self._parse_inside(word, places)

    def _end_command(self) -> None:
        self._end_word()
        self._aside = False
        self.commands.append([])

    def _redirect(self) -> None:
        if self._word is not None and self._word.isdigit():
            self._word, self._word_places = None, []  # the number of the file, as in 2>
        self._end_word()
        rest = _REDIRECTION.match(self.text, self._at)
        self._at = self._at if rest is None else rest.end()
        self._aside = True
        if self.text.startswith("(", self._at):
            self._substitute(self._at, *self._parenthesis())

    def _substitute(self, begin: int, text: str, places: Sequence[int]) -> None:
        self._add("$", self.places[begin : begin + 1])
        self._parse_inside(text, places)

    def _parse_inside(self, text: str, places: Sequence[int]) -> None:
        self.commands[-1:-1] = _Shell(text, places, self.depth + 1).commands

    def _until(self, quote: str) -> tuple[str, Sequence[int]]:
        """Return the text up to the closing quote. Without one, for example in a here-document, it quotes nothing."""
        closed = _QUOTED[quote].match(self.text, self._at)
        if closed is None:
            self._end_word()
            return "", ()
        begin, self._at = self._at, closed.end()
        text, places = closed[1], self.places[begin : begin + len(closed[1])]
        if quote == "'" or "\\" not in text:
            return text, places
        escapes = {escape.start() for escape in _ESCAPE.finditer(text)}
        kept = [at for at in range(len(text)) if at not in escapes]
        return "".join(text[at] for at in kept), [places[at] for at in kept]

    def _parenthesis(self) -> tuple[str, Sequence[int]]:
        """Return the text between parentheses. Without the closing one, it is the rest of the text."""
        depth, begin = 0, self._at + 1
        for at in range(self._at, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            if not depth:
                self._at = at + 1
                return self.text[begin:at], self.places[begin:at]
        self._at = len(self.text)
        return self.text[begin:], self.places[begin:]


def _joined_lines(text: str, places: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Remove the ends of lines that a backslash continues."""
    if "\\\n" not in text:
        return text, places
    kept: list[int] = []
    begin = 0
    for part in text.split("\\\n"):
        kept.extend(places[begin : begin + len(part)])
        begin += len(part) + 2
    return text.replace("\\\n", ""), kept
