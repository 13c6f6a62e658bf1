"""The outline of a memo: which sections it has, and what belongs into each. A TOML file; ten sections by default."""

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
    """The outline that comes with the memo, for a company or for a fund."""
    return OUTLINES / f"{kind}.toml"


def read(path: Path) -> list[Section]:
    """The sections of an outline file, in their order. `BadInput` names what is wrong in it."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    try:
        found = _Outline.model_validate(given).section
    except ValidationError as error:
        raise BadInput(f"{path}: {refusal(error)}; an outline is a list of [[section]] tables") from None
    for key in ("name", "title"):
        _check_distinct(path, key, [getattr(section, key) for section in found])
    return found


def _check_distinct(path: Path, key: str, given: list[str]) -> None:
    """Names are files, also on disks that do not tell small letters from capitals; titles tell sections apart."""
    seen: set[str] = set()
    for each in given:
        if each.casefold() in seen:
            raise BadInput(f"{path}: section.{key}: {each!r} is there twice; give each section its own")
        seen.add(each.casefold())


def team(outline: list[Section]) -> str | None:
    """The section about the people, if there is one: the one that says so, else the one that is named so."""
    marked = [section.name for section in outline if section.team]
    return next(iter(marked or [section.name for section in outline if "team" in section.name]), None)
