"""Compute when the events of a calendar take place: rules, extra dates, exceptions, and changed occurrences.

A rule is evaluated in the event's own time zone, so a lesson at four stays at four when the clocks change. An event
without a time zone takes place in the student's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple

from pausepoint.apps.calendars.events import ODD, Skipped
from pausepoint.apps.words import one_line

MOST = 20_000
"""The most occurrences of an event. An event with more is left out as a mistake: a week has 10,080 minutes.
Occurrences before the wanted time do not count if the rule allows to leap over them."""

LEAPS = {"SECONDLY": timedelta(seconds=1), "MINUTELY": timedelta(minutes=1), "HOURLY": timedelta(hours=1),
         "DAILY": timedelta(days=1), "WEEKLY": timedelta(weeks=1)}  # fmt: skip
"""The units of rules that can be continued from a later start."""


class TooOften(ValueError):
    """An event takes place more than `MOST` times."""


class Occurrence(NamedTuple):
    """One occurrence of an event, in UTC. ``event`` is the calendar entry that describes it."""

    start: datetime
    end: datetime
    event: Any


def occurrences(
    events: Iterable[Any], first: datetime, last: datetime, zone: tzinfo
) -> tuple[list[Occurrence], list[Skipped]]:
    """Return all occurrences that overlap the time from ``first`` to ``last``, and the events that cannot be placed."""
    found: list[Occurrence] = []
    skipped: list[Skipped] = []
    for series, changed in _grouped(events, zone, skipped):
        known = [] if series is None else _placed(series, first, last, changed, skipped)
        found += [
            each
            for each in [*known, *(other.first for other in changed)]
            if each.start < last and (first < each.end or first <= each.start)
        ]
    return found, skipped


def _placed(
    series: _Series, first: datetime, last: datetime, changed: list[_Series], skipped: list[Skipped]
) -> list[Occurrence]:
    """Return the occurrences of an event. One with an odd rule takes place once."""
    try:
        return list(series.occurrences(first, last, changed))
    except TooOften:
        skipped.append(_skipped("skipped_too_often", series.event))
        return []
    except ODD:
        skipped.append(_skipped("first_only", series.event))
        return [series.first]


def _skipped(reason: str, event: Any) -> Skipped:
    start = _all(event["DTSTART"])[0].dt
    day = date(start.year, start.month, start.day) if isinstance(start, date) else None  # it may be a duration
    return Skipped(reason, one_line(str(event.get("SUMMARY", "")))[:60], day)


def _grouped(
    events: Iterable[Any], zone: tzinfo, skipped: list[Skipped]
) -> Iterator[tuple[_Series | None, list[_Series]]]:
    """Yield each event with its changed occurrences. The event is None if the calendar has only changes of it."""
    by_id: dict[str, list[_Series]] = {}
    for number, event in enumerate(events):
        try:
            by_id.setdefault(str(event.get("UID", f"number {number}")), []).append(_Series(event, zone))
        except ODD:
            skipped.append(_skipped("skipped_odd", event))
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
        start, end = _times(event)
        self.event = event
        self.is_whole_day = not isinstance(start, datetime)
        self.zone: tzinfo = zone if not isinstance(start, datetime) or start.tzinfo is None else start.tzinfo
        self.start = self._clock(start)
        self.length: timedelta = (
            self._utc(end) - self._utc(start)
            if isinstance(start, datetime) and isinstance(end, datetime)
            else self._clock(end) - self.start
        )
        if self.length < timedelta(0):
            raise ValueError("The event ends before it starts.")
        self.first = self._at(self.start)  # computed here, so that an impossible time shows at once
        self.revision = int(event.get("SEQUENCE", 0))
        replaces = event.get("RECURRENCE-ID")
        self.replaces: Any = None if replaces is None else replaces.dt
        self.and_later = replaces is not None and str(replaces.params.get("RANGE", "")).upper() == "THISANDFUTURE"

    def occurrences(self, first: datetime, last: datetime, changed: list[_Series]) -> Iterator[Occurrence]:
        """Yield the occurrences up to ``last``, without the removed and changed ones.

        Those that are over before ``first`` may be missing.
        """
        out = [*_listed(self.event, "EXDATE"), *(each.replaces for each in changed)]
        gone, days = {self._clock(each) for each in out}, {each for each in out if not isinstance(each, datetime)}
        later = {self._clock(each.replaces): each for each in changed if each.and_later}
        lengths = dict(self._extra())
        moves = any(each.and_later for each in changed)
        since = None if moves else self._clock(first - max([self.length, *lengths.values()])) - timedelta(days=1)
        for start in self._starts(since, self._clock(last), lengths):
            if start in gone or start.date() in days:
                continue
            moved = max((at for at in later if at <= start), default=None)
            if moved is None:
                yield self._at(start, lengths.get(start))
            else:
                yield later[moved]._at(later[moved].start + (start - moved))

    def _starts(self, since: datetime | None, last: datetime, extra: Iterable[datetime]) -> Iterator[datetime]:
        from dateutil.rrule import rruleset, rrulestr

        found = rruleset()
        for parts in map(self._rule, _all(self.event.get("RRULE"))):
            text = ";".join(f"{name}={value}" for name, value in parts.items())
            rule: Any = rrulestr(text, dtstart=self._leap(parts, since))  # rrulestr returns a set only with forceset
            found.rrule(rule)
        for start in (self.start, *extra):
            found.rdate(start)
        for number, start in enumerate(found):
            if start > last:
                return
            if number == MOST:
                raise TooOften(f"The event takes place more than {MOST:,} times before {last}.")
            yield start

    def _leap(self, parts: dict[str, str], since: datetime | None) -> datetime:
        """Return a start from which the rule gives the same occurrences after ``since``, so that old ones cost nothing.

        The start is moved by whole intervals of the rule. A rule that counts its occurrences has to be followed from
        its beginning.
        """
        if since is None or since <= self.start or "COUNT" in parts:
            return self.start
        interval = int(parts.get("INTERVAL", 1))
        if parts["FREQ"] == "YEARLY" and (self.start.month, self.start.day) != (2, 29):
            years = max(since.year - 1 - self.start.year, 0)  # the rule may name days earlier in the year
            return self.start.replace(year=self.start.year + years // interval * interval)
        unit = LEAPS.get(parts["FREQ"])
        return self.start if unit is None else self.start + (since - self.start) // (unit * interval) * unit * interval

    def _rule(self, rule: Any) -> dict[str, str]:
        """Return the parts of the rule, with its end in the event's own time zone."""
        parts = dict(part.split("=", 1) for part in rule.to_ical().decode().upper().split(";"))
        if int(parts.get("INTERVAL", 1)) < 1:
            raise ValueError(f"The rule has the interval {parts['INTERVAL']}, but an interval must be at least 1.")
        if until := rule.get("UNTIL"):
            end = self._clock(until[0])
            ends_with_day = not self.is_whole_day and not isinstance(until[0], datetime)
            parts["UNTIL"] = f"{datetime.combine(end, time.max) if ends_with_day else end:%Y%m%dT%H%M%S}"
        return parts

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


def _times(event: Any) -> tuple[date | datetime, date | datetime]:
    """Return the start and the end of an event. If one is a day and the other a time, the day means its midnight."""
    start = _all(event["DTSTART"])[0].dt
    ends, lengths = _all(event.get("DTEND")), _all(event.get("DURATION"))
    timed = isinstance(start, datetime)
    if ends:
        end = ends[0].dt
    elif lengths:
        length = lengths[0].dt
        start = start if timed or not length.seconds else datetime.combine(start, time.min)
        end = start + length
    else:
        end = start if timed else start + timedelta(days=1)
    if isinstance(start, datetime) != isinstance(end, datetime):
        start, end = (each if isinstance(each, datetime) else datetime.combine(each, time.min) for each in (start, end))
    if not isinstance(start, datetime) and end == start:  # some programs write one day like this
        end = start + timedelta(days=1)
    return start, end


def _all(found: Any) -> list[Any]:
    """Return the values of a property that may occur once or several times."""
    return [] if found is None else found if isinstance(found, list) else [found]


def _listed(event: Any, name: str) -> Iterator[Any]:
    for dates in _all(event.get(name)):
        for each in dates.dts:
            yield each.dt
