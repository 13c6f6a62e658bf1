"""The texts of a report in English and German, and times, shares and durations as people write them there.

A text with two forms is written ``one | many``. ``count`` chooses the form.

>>> from datetime import UTC
>>> german = Speech("de", ZoneInfo("Europe/Berlin"), datetime(2030, 3, 4, tzinfo=UTC))
>>> german.say("overdue_count", 1), german.say("overdue_count", 3)
('1 Aufgabe ist überfällig.', '3 Aufgaben sind überfällig.')
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Doubt
from pausepoint.apps.aura.texts import TEXTS

Code = Literal["en", "de"]

MOST_DOUBTS = 10
"""How many doubts about the data a report names. The rest is counted."""

MONTHS = {
    "en": ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
    "de": [
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ],
}
DAYS = {"en": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "de": ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"]}


class Speech:
    """A language, a time zone, and the day of the report. The year is written only if it is another one."""

    def __init__(self, code: Code, zone: ZoneInfo, now: datetime) -> None:
        self.code = code
        self.zone = zone
        self.now = now

    def say(self, key: str, count: int | None = None, **values: Any) -> str:
        """Return a text with its values filled in."""
        text = TEXTS[key][self.code]
        if count is not None:
            one, _, several = text.partition(" | ")
            text = one if count == 1 else several or one
        return text.format(count=count, **values)

    def day(self, moment: datetime) -> str:
        """Return the day.

        >>> from datetime import UTC
        >>> now = datetime(2030, 3, 4, tzinfo=UTC)
        >>> Speech("en", ZoneInfo("Asia/Tokyo"), now).day(datetime(2030, 3, 4, 23, 30, tzinfo=UTC))
        'Tue 5 Mar'
        >>> Speech("de", ZoneInfo("UTC"), now).day(datetime(2031, 3, 4, tzinfo=UTC))
        'Di., 4. März 2031'
        """
        local = moment.astimezone(self.zone)
        year = "" if local.year == self.now.astimezone(self.zone).year else f" {local.year}"
        return f"{self._date(local)}{year}"

    def date(self, moment: datetime) -> str:
        """Return the day with its year."""
        local = moment.astimezone(self.zone)
        return f"{self._date(local)} {local.year}"

    def _date(self, local: datetime) -> str:
        name, month = DAYS[self.code][local.weekday()], MONTHS[self.code][local.month - 1]
        return f"{name}., {local.day}. {month}" if self.code == "de" else f"{name} {local.day} {month}"

    def clock(self, moment: datetime) -> str:
        """Return the time of day."""
        return f"{moment.astimezone(self.zone):%H:%M}"

    def when(self, moment: datetime) -> str:
        """Return the day and the time of day. The last minute of a day is written as the day alone."""
        clock = self.clock(moment)
        hour = f"{clock} Uhr" if self.code == "de" else clock
        return self.day(moment) if clock == "23:59" else f"{self.day(moment)}, {hour}"

    def ago(self, moment: datetime) -> str:
        """Return how many days ago something was."""
        days = (self.now.astimezone(self.zone).date() - moment.astimezone(self.zone).date()).days
        return self.say("today") if days < 1 else self.say("days_ago", days)

    def share(self, part: float) -> str:
        """Return a share in percent, without decimals."""
        return self.percent(round(part * 100))

    def percent(self, value: float) -> str:
        """Return a percentage."""
        return f"{self.number(value)}{' %' if self.code == 'de' else '%'}"

    def length(self, minutes: int) -> str:
        """Return a duration.

        >>> from datetime import UTC
        >>> speech = Speech("en", ZoneInfo("UTC"), datetime(2030, 3, 4, tzinfo=UTC))
        >>> speech.length(45), speech.length(120), speech.length(135)
        ('45 min', '2 h', '2 h 15 min')
        """
        hours, rest = divmod(minutes, 60)
        parts = ([f"{hours} {'Std.' if self.code == 'de' else 'h'}"] if hours else []) + (
            [f"{rest} {'Min.' if self.code == 'de' else 'min'}"] if rest or not hours else []
        )
        return " ".join(parts)

    def number(self, value: float) -> str:
        """Return a number without needless zeros, with the decimal sign of the language."""
        text = f"{round(value, 2):.12g}"
        return text.replace(".", ",") if self.code == "de" else text


def doubts_said(doubts: Sequence[Doubt], speech: Speech) -> list[str]:
    """Return what to say about doubts. The end of a long list is counted instead."""
    said = []
    for doubt in doubts[:MOST_DOUBTS]:
        values: dict[str, Any] = {**doubt.values, "taken": speech.say(doubt.taken) if doubt.taken else ""}
        said.append(speech.say(doubt.key, **values))
    more = len(doubts) - MOST_DOUBTS
    return [*said, *([speech.say("more_doubts", more)] if more > 0 else [])]
