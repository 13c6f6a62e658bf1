"""The location of a store in Postgres, as its URL names it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pausepoint.errors import StoreError
from pausepoint.stores.bucket import Bucket
from pausepoint.stores.folders import SessionFolders

SCHEMA = "pausepoint"
"""The schema of the tables, unless the URL names another one."""


_MALFORMED = re.compile(r"%(?![0-9a-fA-F]{2})|@")


class Place(NamedTuple):
    """``url`` is for the driver, ``shown`` for people: it has no password. ``files`` is the folder or URL for files.

    ``given`` are the driver's options in the URL, which win over ours; ``options`` are those for the server.
    """

    url: str
    shown: str
    schema: str = SCHEMA
    files: str | None = None
    prepare: bool = True
    create: bool = True
    given: frozenset[str] = frozenset()
    options: str = ""


def place_of(url: str, create: bool = True) -> Place:
    """Return the place that a URL names.

    >>> place_of("postgresql://ada:secret@db/work?schema=team&files=/srv/files")._replace(url="").shown
    'postgresql://ada@db/work?schema=team'
    """
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    pieces = [piece for piece in parts.query.split("&") if piece]
    if (
        "@" in parts.path
        or "@" in parts.fragment
        or not all("=" in piece for piece in pieces)
        or _MALFORMED.search(login)
    ):
        raise StoreError(
            "The URL of the store cannot be read. If its password has one of the characters / ? # @ %, write them in"
            " percent-encoding, such as %3F for ?, or pass the password with PGPASSWORD."
        )
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
    schema, files = options.pop("schema", SCHEMA), options.pop("files", None)
    prepare = options.pop("prepare", "on")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", schema):
        raise StoreError(
            f"The schema {schema!r:.60} in the URL of the store is not valid. Use small letters, digits and"
            " underscores."
        )
    if prepare not in ("on", "off"):
        raise StoreError(
            f"prepare={prepare!r:.20} in the URL of the store is not valid. Use prepare=on or prepare=off."
        )
    host = parts.netloc.rpartition("@")
    user = host[0].partition(":")[0]
    shown = f"{parts.scheme}://{f'{user}@' if user else ''}{host[2]}{parts.path}?schema={schema}"
    given = urlencode(options, quote_via=quote)
    plain = f"{parts.scheme}://{parts.netloc}{parts.path}{f'?{given}' if given else ''}"
    files = files and files.removeprefix("file://")
    return Place(
        plain, shown, schema, files if files is None or "://" in files else os.path.abspath(files), prepare == "on",
        create, frozenset(options), options.get("options", ""),
    )  # fmt: skip


def files_in(place: Place, uuid: str) -> SessionFolders | Bucket | None:
    """Return where the files of a store's sessions are; None if its URL names no place. ``uuid`` is the store's."""
    if place.files is None:
        return None
    name = f"{place.schema}-{uuid[:8]}"
    if "://" in place.files:
        return Bucket(place.files, name)
    return SessionFolders(Path(place.files, f"{name}.sessions"))
