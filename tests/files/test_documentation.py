"""The page about files says what there is, and that a file is uploaded once and chunks are done once."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from pausepoint import File
from pausepoint.model import ChunkState
from tests.docs.pages import DOCS, section

PAGE = DOCS / "files.md"


def keys(heading: str) -> dict[str, str]:
    """The first column of a section's table, with the second."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section(PAGE, heading), re.MULTILINE)
    return {key: kind.strip() for key, kind in rows}


@pytest.mark.parametrize(("heading", "model"), [("Attributes of a file", File), ("Progress", ChunkState)])
def test_the_tables_have_every_key_with_its_type(heading: str, model: type[BaseModel]) -> None:
    table = keys(heading)
    assert table.keys() == model.model_fields.keys()
    assert all(table.values())


@pytest.mark.covers("S3.98")
def test_the_page_states_the_one_upload_and_its_reuse() -> None:
    text = section(PAGE, "Adding files")
    assert "The same content is one file." in text
    assert "assert not file.reused and again.reused and again.file_id == file.file_id" in text, "executed with the page"


@pytest.mark.covers("S3.101")
def test_the_page_states_resume_and_identity_for_large_documents() -> None:
    text = section(PAGE, "Chunk by chunk")
    assert "A chunk is identified by file, number and parameters." in text
    assert "Every chunk is kept when it is done." in text
    assert "resumes with chunk 12" in text
