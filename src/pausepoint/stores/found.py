"""What a store has found: lists that also name what cannot be read, and where the next page begins."""

from __future__ import annotations

from collections.abc import Iterable

from pausepoint.errors import DamagedRecord
from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.drawers import DrawerStream
from pausepoint.model.limits import StoredLimit
from pausepoint.model.questions import QuestionRow
from pausepoint.model.schedules import Schedule
from pausepoint.model.sessions import Position, SessionRow


class Found(list[SessionRow]):
    """Sessions that match a query. ``damaged`` are the errors of matching sessions whose facts cannot be read.

    Each error names its ``session_id``. ``next`` is the position of the last session if the query's limit left out
    others; pass it as ``after`` to find those.
    """

    def __init__(
        self, rows: Iterable[SessionRow] = (), damaged: Iterable[DamagedRecord] = (), next: Position | None = None
    ) -> None:  # fmt: skip
        super().__init__(rows)
        self.damaged = tuple(damaged)
        self.next = next


class FoundQuestions(list[QuestionRow]):
    """Questions that match a query. ``damaged`` are the errors of those that cannot be read.

    ``next`` is as in `Found`.
    """

    def __init__(
        self, rows: Iterable[QuestionRow] = (), damaged: Iterable[DamagedRecord] = (), next: Position | None = None
    ) -> None:  # fmt: skip
        super().__init__(rows)
        self.damaged = tuple(damaged)
        self.next = next


class FoundDescriptions(list[StoredDescription]):
    """Descriptions of workflows. ``damaged`` are the errors of those that cannot be read."""

    def __init__(self, rows: Iterable[StoredDescription] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


class FoundLimits(list[StoredLimit]):
    """Limits. ``damaged`` are the errors of those that cannot be read."""

    def __init__(self, rows: Iterable[StoredLimit] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


class FoundSchedules(list[Schedule]):
    """Schedules. ``damaged`` are the errors of those that cannot be read; each has the ``name``."""

    def __init__(self, rows: Iterable[Schedule] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


class FoundStreams(list[DrawerStream]):
    """Streams in a drawer. ``damaged`` are the errors of those whose facts cannot be read; each has the ``stream``."""

    def __init__(self, rows: Iterable[DrawerStream] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)
