"""Turns the filters of verbs into a `Filter`. Listing sessions and bulk verbs have the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pausepoint.clock import to_micros
from pausepoint.engine.base import check_texts
from pausepoint.errors import did_you_mean
from pausepoint.model.sessions import Filter, Status

Statuses = Status | str | Iterable[Status | str] | None
"""One status, or several. None means all."""

When = datetime | timedelta
"""A time with a time zone, or how long ago it was."""


def filter_of(
    now: int, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
    status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
    text: str | None = None, queue: str | None = None,
) -> Filter:  # fmt: skip
    """Return the filter that the options of a verb describe. ``now`` is the present time."""
    return Filter(
        workflow=workflow, owner=owner, tag=tag, statuses=_statuses(status), failed=failed,
        since=_micros("since", since, now), until=_micros("until", until, now), text=_part("text", text), queue=queue,
    )  # fmt: skip


def _statuses(given: Statuses) -> tuple[Status, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in list(Status):
            raise ValueError(f"{name!r} is not a status{did_you_mean(str(name), [each.value for each in Status])}")
    return tuple(map(Status, names))


def _part(name: str, text: str | None) -> str | None:
    check_texts(**{name: text})
    return text or None


def _micros(name: str, when: When | None, now: int) -> int | None:
    if when is None:
        return None
    if isinstance(when, timedelta):
        return now - when // timedelta(microseconds=1)
    if when.tzinfo is None:
        raise ValueError(f"{name} must be a datetime with a time zone, or a timedelta for a time ago, not {when!r}.")
    return to_micros(when)
