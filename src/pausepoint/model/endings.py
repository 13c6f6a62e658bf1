"""How a store ends a session that was cancelled and that no engine drives."""

from __future__ import annotations

import msgspec

from pausepoint.model.commits import ChildReport, Commit, Report
from pausepoint.model.records import seal
from pausepoint.model.sessions import SessionRow

EVENT, SUMMARY = "session.cancelled", "cancelled"


def is_over(row: SessionRow) -> bool:
    """Return whether a session has ended for good. A failed session is still open: it can be resumed."""
    return row.ended in ("completed", "cancelled")


def can_end(row: SessionRow) -> bool:
    """Return whether a store must end a session itself: it was cancelled, is still open, and no engine drives it."""
    return row.cancel_requested and not row.live and not is_over(row)


def cancelled(row: SessionRow, at: int) -> Commit:
    """Return the commit that ends a cancelled session: one event, and the report to its parent.

    The commit has the fence of ``row``, so a store applies it as `Store.revise` does.
    """
    step = row.step or ""
    event = {"type": EVENT, "summary": SUMMARY} | ({"agent": step} if step else {})
    record = seal(row.digest, row.seq + 1, row.seq, "event", step, row.visit, at, msgspec.json.encode(event))
    report = Report("cancelled", msgspec.json.encode(ChildReport(row.session_id, "cancelled")), True)
    return Commit(
        row.key, row.fence, row.seq, (record,), max(at, row.updated_at), row.key_frame, row.step, row.visit,
        row.held_by_guard, ended="cancelled", release=True, parent=row.parent, report=report,
    )  # fmt: skip
