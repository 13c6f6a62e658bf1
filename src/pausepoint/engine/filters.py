"""Turns the filters of verbs into a `Filter`. Listing sessions and bulk verbs have the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from pausepoint.clock import to_micros
from pausepoint.errors import did_you_mean
from pausepoint.model.ids import check_texts, shortened
from pausepoint.model.sessions import Filter, QuestionStatus, Status

Statuses = Status | str | Iterable[Status | str] | None
"""One status, or several. None means all."""

QuestionStatuses = QuestionStatus | str | Iterable[QuestionStatus | str] | None

K = TypeVar("K", Status, QuestionStatus)

ENDLESS = 2**63
"""No store keeps a number as large as this."""

When = datetime | timedelta
"""A time with a time zone, or how long ago it was."""


def filter_of(
    now: int, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
    status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
    text: str | None = None, queue: str | None = None,
) -> Filter:  # fmt: skip
    """Return the filter that the options of a verb describe. ``now`` is the present time."""
    check_texts(workflow=workflow, owner=owner, tag=tag, queue=queue, text=text)
    return Filter(
        workflow=workflow, owner=owner, tag=tag, statuses=statuses_of(Status, status, "a status"), failed=failed,
        since=_micros("since", since, now), until=_micros("until", until, now), text=text or None, queue=queue,
    )  # fmt: skip


def statuses_of(kind: type[K], status: K | str | Iterable[K | str] | None, noun: str) -> tuple[K, ...]:
    """Return the statuses that a caller names. Raises `ValueError` for an unknown one."""
    names = () if status is None else (status,) if isinstance(status, str) else tuple(status)
    known = [member.value for member in kind]
    for name in names:
        if name not in known:
            raise ValueError(f"{shortened(name)} is not {noun}{did_you_mean(str(name), known)}")
    return tuple(map(kind, names))


def _micros(name: str, when: object, now: int) -> int | None:
    if when is None:
        return None
    if isinstance(when, timedelta):
        at = now - when // timedelta(microseconds=1)
        if not abs(at) < ENDLESS:
            raise ValueError(f"{name} is too far away: {when!r}. Leave {name} out to have no such limit.")
        return at
    if not isinstance(when, datetime) or when.tzinfo is None:
        wrong = ValueError if isinstance(when, datetime) else TypeError
        raise wrong(
            f"{name} must be a datetime with a time zone, or a timedelta for a time ago, not {shortened(when)}. Pass"
            f" {name}=timedelta(days=1), for example."
        )
    return to_micros(when)


def check_limit(limit: object, things: str) -> None:
    """Check the length of a list. Raises `ValueError`."""
    if limit is not None and not (isinstance(limit, int) and 0 <= limit < ENDLESS):
        raise ValueError(f"limit must be a number of {things}, 0 or more, or None for all, not {shortened(limit)}.")
