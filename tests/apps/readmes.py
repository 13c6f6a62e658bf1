"""What the README of every application has to keep to."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import code, rows, section
from tests.support.children import ROOT


def check_components(readme: Path, *folders: str) -> None:
    """The table below "Where things are" names every module beside it, these folders, and nothing that is not there."""
    named = [path for row in rows(section(readme, "Where things are")) for path in code(row[1])]
    assert [path for path in named if not (ROOT / path).exists()] == []
    files = {path.name for path in readme.parent.iterdir() if path.suffix == ".py"} - {"__init__.py"}
    assert {Path(path).name for path in named} == files | {*folders}
