"""Load the `.sql` files of this folder. The named queries are read once, when this module is imported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent


class Migration(NamedTuple):
    """One file of `migrations/`, which upgrades the schema from version ``number - 1`` to ``number``."""

    number: int
    name: str
    text: str


def named(text: str) -> dict[str, str]:
    """Return the queries of a file, without comments, by the names in its ``-- name:`` lines.

    A query may contain the name of a part in braces; the text of the part replaces it.

    >>> named("-- part: three\\n1 + 2\\n\\n-- name: one\\n-- Why.\\nSELECT 1\\n\\n-- name: two\\nSELECT {three}")
    {'one': 'SELECT 1', 'two': 'SELECT 1 + 2', '{three}': '1 + 2'}
    """
    found = re.split(r"^-- (name|part): (\w+)$", text, flags=re.MULTILINE)[1:]
    parts: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, body in zip(found[::3], found[1::3], found[2::3], strict=True):
        whole = re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], _plain(body))
        (parts if kind == "part" else queries)[name] = whole
    return queries | {f"{{{name}}}": text for name, text in parts.items()}


def _plain(body: str) -> str:
    # On one line, because apsw looks up each executed statement by its full text.
    return " ".join(line.strip() for line in body.splitlines() if line and not line.startswith("--"))


def schema() -> str:
    """Return the current schema."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def migrations() -> tuple[Migration, ...]:
    """Return the migrations from an empty database to the current schema, in order."""
    files = sorted((_FOLDER / "migrations").glob("[0-9]*.sql"))
    return tuple(Migration(int(file.name[:3]), file.stem, file.read_text(encoding="utf-8")) for file in files)


_FOUND = named((_FOLDER / "queries.sql").read_text(encoding="utf-8"))
QUERIES = {name: text for name, text in _FOUND.items() if name[0] != "{"}
PARTS = {name.strip("{}"): text for name, text in _FOUND.items() if name[0] == "{"}
