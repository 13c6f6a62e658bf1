"""The web page: a few files in memory, so that no request can name a file on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pausepoint.server.calls import Receive, Scope, Send, start
from pausepoint.server.problems import Problem
from pausepoint.server.whitespace import lean_script, lean_style

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}

BASE = "{base}"
"""What the page says where the folder of its files belongs. Its name changes with their content."""


VISITOR = "visitor.js"
"""The script that the page of a site imports to sign in and to send requests."""


class Page:
    """The files of the page, and the addresses they have. The name of their folder is a hash of all of them.

    ``folder``: the files of a site, which also has `VISITOR`.
    """

    def __init__(self, folder: Traversable | None = None) -> None:
        found = dict(_read(folder or files("pausepoint.server").joinpath("page")))
        if folder is None:
            found = {name: _lean(name, data) for name, data in found.items()}
        else:
            found.setdefault(VISITOR, files("pausepoint.server").joinpath(VISITOR).read_bytes())
        self.folder = sha256(b"".join(name.encode() + found[name] for name in sorted(found))).hexdigest()[:16]
        self.index = found.get("index.html", b"").replace(BASE.encode(), f"static/{self.folder}".encode())
        self.files = found

    def routes(self, prefix: str = "") -> Iterator[tuple[str, _Static]]:
        """Yield the addresses of the page, and what answers to them."""
        yield f"{prefix}/", _Static(lambda scope: (self.index, "html", False))
        yield f"{prefix}/static/{{folder}}/{{name:path}}", _Static(self._found)

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


def _read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{prefix}{each.name}/")
        else:
            yield f"{prefix}{each.name}", each.read_bytes()


def _lean(name: str, data: bytes) -> bytes:
    """Return a file of our page without comments and air. What others wrote, such as lit-html, stays as it is."""
    if "/" in name:
        return data
    if name.endswith(".css"):
        return lean_style(data.decode()).encode()
    return lean_script(data.decode()).encode() if name.endswith(".js") else data
