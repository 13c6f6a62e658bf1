"""The sample: a small plan that builds a book from chapters, in its own folder next to the store."""

from __future__ import annotations

import shutil
from pathlib import Path

SAMPLE = Path(__file__).parent / "sample_data"


def sample_plan(folder: Path) -> Path:
    """Copy the sample into a folder, unless it is there already, and return its plan."""
    place = folder / "devs-sample"
    if not (place / "book.toml").exists():
        shutil.copytree(SAMPLE, place, dirs_exist_ok=True)
    return place / "book.toml"
