"""Removes comments, indentation and spaces from the page's files. They are for the people who write the page."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"^//.*|^/\*.*\*/$|  // .*")
_AIR = re.compile(r" ?([{}:;,]) | ([{}])(?=$)")
"""Spaces beside punctuation, which mean nothing in a style sheet."""

_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^\\`$])*", re.DOTALL)
_CODE = re.compile(
    r"(?P<space>\s+)|(?P<text>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")|(?P<code>[^\s'\"`{}/]+)|(?P<mark>.)", re.DOTALL
)
_PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n])+/\w*")
_BEFORE_PATTERN = frozenset("=(,:!&|?{;[>")
_OPEN, _FOLLOWS = frozenset("=(,:&|?{;[>"), frozenset(")]},;:?.&|=")
"""Where a line goes on: no statement ends after the first, or before the second."""


def lean_style(text: str) -> str:
    r"""Return a style sheet without comments and needless spaces.

    >>> lean_style("/* Why. */\n.a, .b > p { color: red; &:hover { margin: 0 1px } }\n")
    '.a,.b > p{color:red;&:hover{margin:0 1px}}\n'
    """
    return "".join(_AIR.sub(r"\1\2", line) + "\n" for line in _lines(text))


def lean_script(text: str) -> str:
    r"""Return a script without comments and needless spaces. Texts, patterns and templates stay as they are.

    >>> lean_script("// Why.\nif (a in b)\n  c(x => `${ x + 'a, b' }, d`, / , /g);  // at last\n")
    "if(a in b)\nc(x=>`${x+'a, b'}, d`,/ , /g);"
    """
    return _Script("".join(f"{line}\n" for line in _lines(text))).lean()


def _lines(text: str) -> list[str]:
    found = (_COMMENT.sub("", line.strip()) for line in text.splitlines())
    return [line for line in found if line]


class _Script:
    """A script that is read from its beginning. ``braces`` counts those that are open in each template around."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.last, self.braces = text, 0, "", [0]
        self.out: list[str] = []

    def lean(self) -> str:
        while self.at < len(self.text):
            found = _CODE.match(self.text, self.at)
            assert found is not None
            if found.lastgroup == "mark":
                self._mark(found[0])
            elif found.lastgroup == "space":
                self.at = found.end()
                self.out.append(self._space(found[0]))
            else:
                self._keep(found.end())
        return "".join(self.out)

    def _space(self, space: str) -> str:
        before, after = self.last, self.text[self.at : self.at + 1]
        if "\n" in space:
            return "" if before in _OPEN or after in _FOLLOWS or not after else "\n"
        isolated = _is_word(before) and _is_word(after)
        return " " if isolated or (before == after and after in "+-") else ""

    def _mark(self, mark: str) -> None:
        if mark == "/" and self.last in _BEFORE_PATTERN and (found := _PATTERN.match(self.text, self.at)):
            self._keep(found.end())
        elif mark == "`" or (mark == "}" and len(self.braces) > 1 and self.braces[-1] == 0):
            if mark == "}":
                self.braces.pop()
            self._template()
        else:
            self.braces[-1] += {"{": 1, "}": -1}.get(mark, 0)
            self._keep(self.at + 1)

    def _template(self) -> None:
        """Keep the text of a template as it is, until the template ends or code in it begins."""
        found = _TEMPLATE.match(self.text, self.at + 1)
        assert found is not None
        if self.text.startswith("${", found.end()):
            self.braces.append(0)
            self._keep(found.end() + 2)
        else:
            self._keep(found.end() + 1)

    def _keep(self, end: int) -> None:
        self.out.append(self.text[self.at : end])
        self.at, self.last = end, self.text[end - 1]


def _is_word(mark: str) -> bool:
    return mark.isalnum() or mark in ("_", "$", "#")
