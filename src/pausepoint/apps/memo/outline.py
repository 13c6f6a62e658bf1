"""The outline of a memo: a TOML file with its sections. The default outlines have ten sections."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from pausepoint.apps.input import BadInput, refusal
from pausepoint.apps.memo.models import InvestmentType, Part, Section

OUTLINES = Path(__file__).parent / "outlines"


class _Outline(Part):
    section: list[Section] = Field(min_length=1)


def default(kind: InvestmentType) -> Path:
    """Return the default outline for a company or a fund."""
    return OUTLINES / f"{kind}.toml"


def read(path: Path) -> list[Section]:
    """Return the sections of an outline file, in order. Raises `BadInput` if it is invalid."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the outline.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: The outline is not valid TOML: {error}. Correct it.") from None
    try:
        found = _Outline.model_validate(given).section
    except ValidationError as error:
        raise BadInput(f"{path}: {refusal(error)}. An outline is a list of [[section]] tables.") from None
    for key in ("name", "title"):
        _check_distinct(path, key, [getattr(section, key) for section in found])
    return found


def _check_distinct(path: Path, key: str, given: list[str]) -> None:
    """Refuse duplicates, ignoring case: names are files on disks that may ignore case, and titles identify sections."""
    seen: set[str] = set()
    for each in given:
        if each.casefold() in seen:
            raise BadInput(f"{path}: section.{key}: {each!r} occurs twice. Give each section its own {key}.")
        seen.add(each.casefold())


def team(outline: list[Section]) -> str | None:
    """Return the section marked as team, else the first with “team” in its name, else None."""
    marked = [section.name for section in outline if section.team]
    return next(iter(marked or [section.name for section in outline if "team" in section.name]), None)
