"""The exception that pauses a session."""

from __future__ import annotations

from pausepoint.model.sessions import PauseKind


class Paused(Exception):
    """The session must pause, for ``reason``. A problem pauses a session instead of failing it."""

    def __init__(self, kind: PauseKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
