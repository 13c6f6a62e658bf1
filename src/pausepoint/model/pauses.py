"""The exception that pauses a session."""

from __future__ import annotations

from pausepoint.model.sessions import PauseKind


class Paused(Exception):
    """Raised to pause the session, for ``reason``. Problems that a person can solve pause a session, not fail it."""

    def __init__(self, kind: PauseKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
