"""The Pydantic models that Pausepoint itself hands out and reads: made so that they can be parts of a user's state.

They are imported when the first of them is needed. Who only looks at sessions, such as ``pausepoint ls``, needs none, and
does without the time that Pydantic takes to load.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

ChunkStatus = Literal["pending", "partial", "complete", "failed"]


class File(BaseModel):
    """One file of a session. ``metadata`` is what came with it; ``reused``: it was there before, under its first name.

    ``storage_uri`` is where it lies, relative to the folder of the store.
    """

    model_config = ConfigDict(frozen=True)

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
        """The file as one entry of a registry: plain values, what came with it beside the rest."""
        plain = self.model_dump(mode="json", exclude={"file_id", "metadata", "reused", "created_at"})
        return plain | self.metadata


class ChunkState(BaseModel):
    """How far the work on a file has come. ``chunking`` has its parameters and ``total_chunks``."""

    model_config = ConfigDict(frozen=True)

    chunking: dict[str, Any]
    processed_chunks: int
    failed_chunks: list[int]
    status: ChunkStatus
    last_error: str | None = None


class Decision(BaseModel):
    """The answer to `Context.confirm`: a plain yes or no, or with a reason."""

    approved: bool
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, value: Any) -> Any:
        return value if isinstance(value, dict | Decision) else {"approved": value}
