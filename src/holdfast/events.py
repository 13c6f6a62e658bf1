"""The types of the events that the engine itself writes. A workflow declares its own beside them."""

from __future__ import annotations

ENGINE_EVENTS: frozenset[str] = frozenset(
    {
        "session.created",
        "session.resumed",
        "session.paused",
        "session.stopped",
        "session.completed",
        "session.failed",
        "session.cancelled",
        "session.migrated",
        "definition.changed",
        "session.waiting",
        "message.received",
        "message.refused",
        "timer.set",
        "child.called",
        "child.noticed",
        "child.completed",
        "child.failed",
        "child.cancelled",
        "child.paused",
        "pause.requested",
        "resume.requested",
        "cancel.requested",
        "step.completed",
        "step.skipped",
        "step.retried",
        "operation.completed",
        "operation.missed",
        "map.started",
        "item.failed",
        "write.refused",
        "guard.passed",
        "guard.refused",
        "spent",
        "progress",
        "redacted",
    }
)
