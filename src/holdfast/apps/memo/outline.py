"""The outline of a memo: which sections it has, and what belongs into each. A TOML file; ten sections by default."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.apps.input import BadInput, refusal
from holdfast.apps.memo.models import InvestmentType, Section

OUTLINES = Path(__file__).parent / "outlines"
_SECTIONS = TypeAdapter(list[Section])


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
    if set(given) != {"section"}:
        raise BadInput(f"{path}: an outline has [[section]] tables and nothing else")
    try:
        found = _SECTIONS.validate_python(given["section"])
    except ValidationError as error:
        raise BadInput(f"{path}: section.{refusal(error)}") from None
    names = [section.name for section in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{path}: section {twice!r} is there twice")
    return found


def team(outline: list[Section]) -> str | None:
    """The section about the people, if there is one: the one that says so, else the one that is named so."""
    marked = [section.name for section in outline if section.team]
    return next(iter(marked or [section.name for section in outline if "team" in section.name]), None)
