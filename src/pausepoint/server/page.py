"""The web page: a few files in memory, so that no request can name a file on the disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pausepoint.server.calls import Receive, Scope, Send, start
from pausepoint.server.problems import Problem

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}

BASE = "{base}"
"""What the page says where the folder of its files belongs. Its name changes with their content."""


_COMMENT = re.compile(rb"^//.*|^/\*.*\*/$|  // .*")
_AIR = re.compile(rb" ?([{}:;,]) | ([{}])(?=$)")
"""Spaces beside punctuation, which mean nothing in a style sheet."""


class Page:
    """The files of the page, and the addresses they have. The name of their folder is a hash of all of them."""

    def __init__(self) -> None:
        found = dict(_read(files("pausepoint.server").joinpath("page"), ""))
        self.folder = sha256(b"".join(name.encode() + found[name] for name in sorted(found))).hexdigest()[:16]
        self.index = found.get("index.html", b"").replace(BASE.encode(), f"static/{self.folder}".encode())
        self.files = found

    def routes(self) -> Iterator[tuple[str, _Static]]:
        """Yield the addresses of the page, and what answers to them."""
        yield "/", _Static(lambda scope: (self.index, "html", False))
        yield "/static/{folder}/{name:path}", _Static(self._found)

    def _found(self, scope: Scope) -> tuple[bytes, str, bool]:
        name = scope["path_params"]["name"]
        ending = name.rpartition(".")[2]
        if scope["path_params"]["folder"] != self.folder or name not in self.files or ending not in TYPES:
            raise Problem(404, "The page has no such file. Load the page again.", "unknown-address")
        return self.files[name], ending, True


class _Static:
    """Answers with a file of the page."""

    methods = ("GET",)

    def __init__(self, find: Any) -> None:
        self._find = find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        data, ending, immutable = self._find(scope)
        headers = {"content-type": TYPES[ending], "content-length": str(len(data))}
        if immutable:
            headers["cache-control"] = "public, max-age=31536000, immutable"
        await start(send, 200, headers)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else data})


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{prefix}{each.name}/")
        else:
            yield f"{prefix}{each.name}", _lean(each.name, each.read_bytes())


def _lean(name: str, data: bytes) -> bytes:
    """Return a file without comments, indentation and other air: they are for the people who write the page.

    >>> _lean("a.js", b"// Why.\\nif (a)\\n  b();  // at last\\n")
    b'if (a)\\nb();\\n'
    >>> _lean("a.css", b"/* Why. */\\n.a, .b > p { color: red; &:hover { margin: 0 1px } }\\n")
    b'.a,.b > p{color:red;&:hover{margin:0 1px}}\\n'
    """
    if not name.endswith((".js", ".css")):
        return data
    lines = (_COMMENT.sub(b"", line.strip()) for line in data.splitlines())
    if name.endswith(".css"):
        lines = (_AIR.sub(rb"\1\2", line) for line in lines)
    return b"".join(line + b"\n" for line in lines if line)
