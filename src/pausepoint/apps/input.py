"""What people hand to an application, and how it says no: refusals that name the field, and time zones by name."""

from __future__ import annotations

import os
from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import ValidationError


class BadInput(ValueError):
    """Something that was given cannot be used. The message names the field, or the file and the place in it."""


def refusal(error: ValidationError) -> BadInput:
    """The first thing that is wrong with some values, by the name of its field."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return BadInput(f"{place}: {said}" if place else said)


def local_zone() -> str:
    """The time zone of this machine, by its name; UTC where it has none."""
    named = os.environ.get("TZ", "").removeprefix(":")
    linked = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    return next((name for name in (named, linked) if name and is_zone(name)), "UTC")


def is_zone(name: str) -> bool:
    """Whether a time zone of this name is known.

    >>> is_zone("Europe/Lisbon"), is_zone("Europe/Atlantis"), is_zone("../x")
    (True, False, False)
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder
        return False
    return True


def known_zone(name: str) -> str:
    """The name, if a time zone has it."""
    if not is_zone("UTC"):
        raise ValueError("this machine knows no time zones: pip install tzdata")
    if not is_zone(name):
        raise ValueError(f"there is no time zone {name!r}; use a name such as Europe/Lisbon or UTC")
    return name
