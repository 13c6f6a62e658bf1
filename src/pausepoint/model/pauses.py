"""Pauses: why a session does not run."""

from __future__ import annotations

from pausepoint.model.sessions import PauseKind


class Paused(Exception):
    """The session has to pause, and why: trouble pauses, it does not destroy."""

    def __init__(self, kind: PauseKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
