"""The sample: a small plan that makes a little book out of chapters, in a folder of its own beside the store."""

from __future__ import annotations

import shutil
from pathlib import Path

SAMPLE = Path(__file__).parent / "sample_data"


def sample_plan(folder: Path) -> Path:
    """The sample's plan, laid out in a folder where it can be worked on. What is there already stays."""
    place = folder / "devs-sample"
    if not (place / "book.toml").exists():
        shutil.copytree(SAMPLE, place, dirs_exist_ok=True)
    return place / "book.toml"
