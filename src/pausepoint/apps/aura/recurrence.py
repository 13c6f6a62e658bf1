"""Compute when the events of a calendar take place: rules, extra dates, exceptions, and changed occurrences.

A rule is evaluated in the event's own time zone, so a lesson at four stays at four when the clocks change. An event
without a time zone takes place in the student's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple

MOST = 100_000
"""The maximum number of occurrences. More are refused as a mistake: an hourly event has that many in eleven years."""


class Occurrence(NamedTuple):
    """One occurrence of an event, in UTC. ``event`` is the calendar entry that describes it."""

    start: datetime
    end: datetime
    event: Any


def occurrences(events: Iterable[Any], first: datetime, last: datetime, zone: tzinfo) -> Iterator[Occurrence]:
    """Yield all occurrences that overlap the time from ``first`` to ``last``, in no particular order."""
    for series, changed in _grouped(events, zone):
        known = [] if series is None else list(series.occurrences(last, changed))
        for each in [*known, *(other.first for other in changed)]:
            if each.start < last and (first < each.end or first <= each.start):
                yield each


def _grouped(events: Iterable[Any], zone: tzinfo) -> Iterator[tuple[_Series | None, list[_Series]]]:
    """Yield each event with its changed occurrences. The event is None if the calendar has only changes of it."""
    by_id: dict[str, list[_Series]] = {}
    for number, event in enumerate(events):
        by_id.setdefault(str(event.get("UID", f"number {number}")), []).append(_Series(event, zone))
    for versions in by_id.values():
        known = list(_newest(versions))
        changed = [each for each in known if each.replaces is not None]
        whole = [each for each in known if each.replaces is None]
        yield whole[0] if whole else None, changed
        yield from ((each, []) for each in whole[1:])


def _newest(versions: list[_Series]) -> Iterator[_Series]:
    """Yield the newest version of each event. A calendar may contain older versions as well."""
    last: dict[Any, int] = {}
    for each in versions:
        last[each.replaces] = max(each.revision, last.get(each.replaces, each.revision))
    yield from (each for each in versions if each.revision == last[each.replaces])


class _Series:
    """One event of the calendar with all its occurrences, or the change of a single occurrence.

    Times are local to the event's ``zone`` and stored without a zone.
    """

    def __init__(self, event: Any, zone: tzinfo) -> None:
        start, end = event.start, event.end
        self.event = event
        self.is_whole_day = not isinstance(start, datetime)
        self.zone: tzinfo = zone if self.is_whole_day or start.tzinfo is None else start.tzinfo
        self.start = self._clock(start)
        self.length: timedelta = (
            self._clock(end) - self.start if self.is_whole_day else self._utc(end) - self._utc(start)
        )
        self.revision = int(event.get("SEQUENCE", 0))
        replaces = event.get("RECURRENCE-ID")
        self.replaces: Any = None if replaces is None else replaces.dt
        self.and_later = replaces is not None and str(replaces.params.get("RANGE", "")).upper() == "THISANDFUTURE"

    @property
    def first(self) -> Occurrence:
        """The occurrence that the event itself names."""
        return self._at(self.start)

    def occurrences(self, last: datetime, changed: list[_Series]) -> Iterator[Occurrence]:
        """Yield the occurrences up to ``last``, without the removed and changed ones."""
        out = [*_listed(self.event, "EXDATE"), *(each.replaces for each in changed)]
        gone, days = {self._clock(each) for each in out}, {each for each in out if not isinstance(each, datetime)}
        later = {self._clock(each.replaces): each for each in changed if each.and_later}
        lengths = dict(self._extra())
        for start in self._starts(self._clock(last), lengths):
            if start in gone or start.date() in days:
                continue
            since = max((at for at in later if at <= start), default=None)
            if since is None:
                yield self._at(start, lengths.get(start))
            else:
                yield later[since]._at(later[since].start + (start - since))

    def _starts(self, last: datetime, extra: Iterable[datetime]) -> Iterator[datetime]:
        from dateutil.rrule import rruleset, rrulestr

        found = rruleset()
        for text in map(self._rule, _all(self.event.get("RRULE"))):
            rule: Any = rrulestr(text, dtstart=self.start)  # rrulestr returns a set only with forceset
            found.rrule(rule)
        for start in (self.start, *extra):
            found.rdate(start)
        for number, start in enumerate(found):
            if start > last:
                return
            if number == MOST:
                raise ValueError(f"The event takes place more than {MOST:,} times before {last}.")
            yield start

    def _rule(self, rule: Any) -> str:
        """Return the rule as text, with its end in the event's own time zone."""
        parts = dict(part.split("=", 1) for part in rule.to_ical().decode().split(";"))
        if int(parts.get("INTERVAL", 1)) < 1:
            raise ValueError(f"The rule has the interval {parts['INTERVAL']}, but an interval must be at least 1.")
        if until := rule.get("UNTIL"):
            end = self._clock(until[0])
            ends_with_day = not self.is_whole_day and not isinstance(until[0], datetime)
            parts["UNTIL"] = f"{datetime.combine(end, time.max) if ends_with_day else end:%Y%m%dT%H%M%S}"
        return ";".join(f"{name}={value}" for name, value in parts.items())

    def _extra(self) -> Iterator[tuple[datetime, timedelta]]:
        """Yield the extra dates that no rule gives, each with its length."""
        for each in _listed(self.event, "RDATE"):
            if isinstance(each, tuple):
                start, end = each
                yield self._clock(start), end if isinstance(end, timedelta) else self._utc(end) - self._utc(start)
            else:
                yield self._clock(each), self.length

    def _at(self, start: datetime, length: timedelta | None = None) -> Occurrence:
        length = self.length if length is None else length
        begin = self._utc(start)
        # A whole day may be 23 or 25 hours long when the clocks change; a timed event keeps its length.
        return Occurrence(begin, self._utc(start + length) if self.is_whole_day else begin + length, self.event)

    def _clock(self, moment: date | datetime) -> datetime:
        """Return a time in this event's time zone. For an all-day event only the date counts."""
        if not isinstance(moment, datetime) or self.is_whole_day:
            return datetime.combine(moment, time.min)
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0) if moment.tzinfo else moment

    def _utc(self, moment: datetime) -> datetime:
        return (moment if moment.tzinfo else moment.replace(tzinfo=self.zone)).astimezone(UTC)


def _all(found: Any) -> list[Any]:
    """Return the values of a property that may occur once or several times."""
    return [] if found is None else found if isinstance(found, list) else [found]


def _listed(event: Any, name: str) -> Iterator[Any]:
    for dates in _all(event.get(name)):
        for each in dates.dts:
            yield each.dt
