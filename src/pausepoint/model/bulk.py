"""The report of a bulk verb: a resume, pause or cancel of all sessions that match a filter."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec

from pausepoint.errors import PausepointError
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import facts, table
from pausepoint.model.sessions import Status
from pausepoint.model.views import Working

BulkVerb = Literal["resume", "pause", "cancel"]
BulkResult = Literal["done", "skipped", "failed"]


class BulkItem(msgspec.Struct, frozen=True):
    """One session of a bulk verb, with its status afterwards.

    ``reason`` says why the session was skipped, or what failed; ``error`` is what the verb raised, if it did.
    ``status`` is None if the session's facts could not be read.
    """

    session_id: SessionId
    workflow: str
    status: Status | None
    reason: str = ""
    error: PausepointError | None = None


class BulkProgress(msgspec.Struct, frozen=True):
    """How far a bulk verb is: the number of matching sessions, and what has become of them so far.

    ``running`` is the number of sessions that are being treated now. ``item`` is the session that has just been
    finished, and ``result`` is its result. Both are None if none was.
    """

    total: int
    done: int = 0
    skipped: int = 0
    failed: int = 0
    running: int = 0
    item: BulkItem | None = None
    result: BulkResult | None = None

    @property
    def left(self) -> int:
        """The number of sessions that have no result yet."""
        return self.total - self.done - self.skipped - self.failed


class BulkReport(msgspec.Struct, frozen=True):
    """What a bulk verb did. With ``dry_run``, what it would do.

    - ``done``: the sessions that the verb was applied to.
    - ``skipped``: matching sessions that it does not concern, each with the reason.
    - ``failed``: sessions for which the verb raised an error, and resumed sessions that failed again.
    - ``left``: the number of sessions that were not reached, because the engine was closed. They are as before.
    - ``working``: what ``pause(wait=True, timeout=…)`` found still at work when its time was over.
    - ``unattended``: with ``resume(here=False)``, the workflows whose sessions no open engine took up. The sessions are
      ready; start a worker that has the workflow.
    """

    verb: BulkVerb
    dry_run: bool
    done: tuple[BulkItem, ...] = ()
    skipped: tuple[BulkItem, ...] = ()
    failed: tuple[BulkItem, ...] = ()
    left: int = 0
    working: tuple[Working, ...] = ()
    unattended: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number of sessions that matched. Children that were treated with their parent do not count."""
        return len(self.done) + len(self.skipped) + len(self.failed) + self.left

    @property
    def statuses(self) -> dict[Status, int]:
        """The number of sessions in ``done`` and ``failed``, by their status afterwards."""
        items = (*self.done, *self.failed)
        return dict(Counter(item.status for item in items if item.status is not None))

    def __repr__(self) -> str:
        counts = f"done={len(self.done)}, skipped={len(self.skipped)}, failed={len(self.failed)}, left={self.left}"
        return f"BulkReport({self.verb!r}, {'dry_run, ' if self.dry_run else ''}{counts})"

    def _repr_html_(self) -> str:
        counts = {name: len(items) for name, items in self._items()}
        rows: list[tuple[Any, ...]] = [
            (each.session_id, each.workflow, each.status and each.status.value, each.reason)
            for name, items in self._items()
            for each in (items if name != "done" else ())
        ]
        found = facts(counts | {"left": self.left}, f"{self.verb}{', dry run' if self.dry_run else ''}")
        return found + (table(["session", "workflow", "status", "reason"], rows, "Not done") if rows else "")

    def _items(self) -> tuple[tuple[str, tuple[BulkItem, ...]], ...]:
        return ("done", self.done), ("skipped", self.skipped), ("failed", self.failed)
