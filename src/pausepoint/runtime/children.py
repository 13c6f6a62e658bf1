"""The children of a session, as its visits see them."""

from __future__ import annotations

from typing import Any, Protocol

from pausepoint.definition.workflow import Workflow
from pausepoint.model.ids import SessionId
from pausepoint.model.sessions import SessionRow


class Children(Protocol):
    """What a visit needs for the children of its session.

    It is a protocol because starting and resuming sessions is the engine's work, and the layers let nothing in
    ``runtime`` import ``engine``. `pausepoint.engine.children` has the class that does it.
    """

    async def child(self, child_id: str) -> SessionRow | None:
        """Return a child's row; None if the child was never started."""

    async def child_state(self, workflow: Workflow[Any], row: SessionRow) -> Any:
        """Return the state of a child."""

    async def begin_child(self, workflow: Workflow[Any], child_id: SessionId, given: Any) -> None:
        """Start a child with this id in this engine."""

    async def resume_child(self, workflow: Workflow[Any], row: SessionRow) -> None:
        """Resume a child that no engine drives, in this engine."""

    async def cancel_child(self, child_id: str, reason: str) -> None:
        """Cancel a child and its children."""
