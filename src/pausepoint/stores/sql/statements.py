"""Load the statements and the schema of a database from the `.sql` files in its folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Statements(NamedTuple):
    """The statements of a database, and the parts of statements, by name."""

    queries: dict[str, str]
    parts: dict[str, str]


class Migration(NamedTuple):
    """One file of `migrations/`, which upgrades the schema from version ``number - 1`` to ``number``."""

    number: int
    name: str
    text: str


def load(folder: Path) -> Statements:
    """Return the statements in `queries.sql`."""
    return named((folder / "queries.sql").read_text(encoding="utf-8"))


def migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations from an empty database to the current schema, in order."""
    files = sorted((folder / "migrations").glob("[0-9]*.sql"))
    return tuple(Migration(int(file.name[:3]), file.stem, file.read_text(encoding="utf-8")) for file in files)


def named(text: str) -> Statements:
    """Return the queries and parts of a file, without comments, by the names in ``-- name:`` and ``-- part:`` lines.

    A query may contain the name of a part in braces; the text of the part replaces it.

    >>> named("-- part: three\\n1 + 2\\n\\n-- name: one\\n-- Why.\\nSELECT 1\\n\\n-- name: two\\nSELECT {three}")
    Statements(queries={'one': 'SELECT 1', 'two': 'SELECT 1 + 2'}, parts={'three': '1 + 2'})
    """
    found = re.split(r"^-- (name|part): (\w+)$", text, flags=re.MULTILINE)[1:]
    made = Statements({}, {})
    for kind, name, body in zip(found[::3], found[1::3], found[2::3], strict=True):
        whole = re.sub(r"\{(\w+)\}", lambda match: made.parts[match[1]], _plain(body))
        (made.parts if kind == "part" else made.queries)[name] = whole
    return made


def _plain(body: str) -> str:
    # On one line, because apsw looks up each executed statement by its full text.
    return " ".join(line.strip() for line in body.splitlines() if line and not line.startswith("--"))
