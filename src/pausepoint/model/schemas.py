"""The Pydantic models that Pausepoint returns and reads. You can use them as fields of your own state model.

This module is imported only when one of the models is needed. Commands that only list sessions, such as
``pausepoint ls``, do not need them and so avoid the time it takes to load Pydantic.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

ChunkStatus = Literal["pending", "partial", "complete", "failed"]


class File(BaseModel):
    """One file of a session.

    ``metadata`` is what the uploader passed along. ``reused`` is true if the session already had a file with this
    content; that file keeps its first name. ``storage_uri`` is the file's path, relative to the store's folder.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    file_id: str
    filename: str
    content_type: str
    size_bytes: int
    storage_uri: str
    sha256: str
    upload_status: Literal["uploading", "uploaded"]
    created_at: datetime
    metadata: dict[str, Any] = {}
    reused: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the file as a registry entry: plain values, with the metadata merged in."""
        plain = self.model_dump(mode="json", exclude={"file_id", "metadata", "reused", "created_at"})
        return plain | self.metadata


class ChunkState(BaseModel):
    """The progress of the work on a file. ``chunking`` holds the chunking parameters and ``total_chunks``."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    chunking: dict[str, Any]
    processed_chunks: int
    failed_chunks: list[int]
    status: ChunkStatus
    last_error: str | None = None


class Decision(BaseModel):
    """The answer to `Context.confirm`: yes or no, with an optional reason."""

    approved: bool
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, value: Any) -> Any:
        return value if isinstance(value, dict | Decision) else {"approved": value}
