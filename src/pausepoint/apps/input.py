"""Input that the applications share: refusals that name the field, texts of files, a yes or no, and time zones."""

from __future__ import annotations

import os
from pathlib import Path
from zoneinfo import ZoneInfo

import click
from pydantic import ValidationError


class BadInput(ValueError):
    """Input that cannot be used. The message names the field, or the file and the place in the file."""


def refusal(error: ValidationError) -> BadInput:
    """Return the first validation error as a `BadInput` that starts with the name of the field."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return BadInput(f"{place}: {said}" if place else said)


def decoded(content: bytes) -> str:
    """Return the text of a file as other programs write it: UTF-8, UTF-16, or the old encoding of Windows.

    >>> decoded("Käse".encode("utf-16")), decoded(b"K\\xe4se")
    ('Käse', 'Käse')
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def confirmed(question: str, default: bool) -> bool:
    """Ask yes or no at a terminal. An empty line means ``default``."""
    while True:
        said = click.prompt(f"{question} [{'Y/n' if default else 'y/N'}]", default="", show_default=False).casefold()
        if said in ("", "y", "yes", "n", "no"):
            return default if not said else said in ("y", "yes")
        click.echo("Type y or n.")


def local_zone() -> str:
    """Return the name of this machine's time zone, or ``UTC`` if it cannot be found."""
    named = os.environ.get("TZ", "").removeprefix(":")
    linked = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    return next((name for name in (named, linked) if name and is_zone(name)), "UTC")


def is_zone(name: str) -> bool:
    """Return whether this machine knows a time zone of this name.

    >>> is_zone("Europe/Lisbon"), is_zone("Europe/Atlantis"), is_zone("../x")
    (True, False, False)
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name is that of a folder
        return False
    return True


def known_zone(name: str) -> str:
    """Return the name, or raise `ValueError` if it is not a time zone."""
    if not is_zone("UTC"):
        raise ValueError("This machine has no time zone data. Install it: pip install tzdata")
    if not is_zone(name):
        raise ValueError(f"There is no time zone {name!r}. Use a name such as Europe/Lisbon or UTC.")
    return name
