"""Find days and times of day in people's words, in English and Chinese. Relative days count from a given day.

An ambiguous date (03/04/2030) is not read at all: the helpdesk asks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any, NamedTuple

FLAGS = re.ASCII | re.IGNORECASE
"""ASCII, so that a Latin word also ends at a Chinese character. `normal` has turned all digits into ASCII digits."""

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december")  # fmt: skip
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
HAN_DIGITS = "零一二三四五六七八九"
HAN_DAYS = "一二三四五六日"

LANGUAGES = ["en", "zh", "de", "fr", "es", "it", "nl", "pt", "pl"]
"""The languages of dateparser that an answer may have."""

_MONTH = "|".join(f"{name}|{name[:3]}" for name in MONTHS) + "|sept"
_DAY = "|".join(f"{name}|{name[:3]}" for name in DAYS)
_COUNT = r"\d{1,3}|a|an|" + "|".join(WORDS)
_HAN = r"\d{1,4}|[零一二三四五六七八九十两]{1,3}"
_RELATIVE = {"today": 0, "tonight": 0, "tomorrow": 1, "day after tomorrow": 2, "yesterday": -1,
             "今天": 0, "今日": 0, "明天": 1, "明日": 1, "后天": 2, "大后天": 3, "昨天": -1}  # fmt: skip


class Found(NamedTuple):
    """A value and its position in the text."""

    value: Any
    start: int
    end: int


def number(text: str) -> int:
    """Return a number written in digits, in words up to twelve, or in Chinese up to 99.

    >>> [number(text) for text in ("12", "two", "a", "十", "二十一", "两", "三十")]
    [12, 2, 1, 10, 21, 2, 30]
    """
    text = text.lower()
    if text.isdecimal():
        return int(text)
    if text in ("a", "an"):
        return 1
    return WORDS.index(text) + 1 if text in WORDS else _han_number(text)


def _han_number(text: str) -> int:
    tens, ten, ones = text.replace("两", "二").rpartition("十")
    if not ten:
        return int("".join(str(HAN_DIGITS.index(each)) for each in ones))
    return (HAN_DIGITS.index(tens) if tens else 1) * 10 + (HAN_DIGITS.index(ones) if ones else 0)


# days


def _whole(year: str, month: str, day: str) -> date:
    return date(int(year), number(month), number(day))


def _coming(month: int, day: int, today: date) -> date | None:
    """Return the next such day. People omit the year for days in the future."""
    for year in range(today.year, today.year + 9):  # 29 February may be eight years ahead
        try:
            found = date(year, month, day)
        except ValueError:
            continue
        if found >= today:
            return found
    return None


def _iso(match: re.Match[str], today: date) -> date | None:
    return _whole(*match.group(1, 2, 3))


def _dotted(match: re.Match[str], today: date) -> date | None:
    day, month, year = match.group(1, 2, 3)
    return _whole(year, month, day) if year else _coming(int(month), int(day), today)


def _slashed(match: re.Match[str], today: date) -> date | None:
    first, second, year = map(int, match.group(1, 2, 3))
    if first <= 12 and second <= 12 and first != second:
        return None  # ambiguous: day or month first
    return date(year, *((first, second) if second > 12 else (second, first)))


def _named(match: re.Match[str], today: date) -> date | None:
    found = match.groupdict()
    month = next(n for n, name in enumerate(MONTHS, 1) if name.startswith(found["month"].lower()[:3]))
    day = int(found["day"])
    return date(int(found["year"]), month, day) if found["year"] else _coming(month, day, today)


def _han_date(match: re.Match[str], today: date) -> date | None:
    year, month, day = match.group(1, 2, 3)
    return _whole(year, month, day) if year else _coming(number(month), number(day), today)


def _word(match: re.Match[str], today: date) -> date | None:
    return today + timedelta(days=_RELATIVE[" ".join(match[0].lower().split())])


def _ahead(match: re.Match[str], today: date) -> date | None:
    weeks = match[2].lower().startswith(("week", "周", "星", "个"))
    return today + timedelta(days=number(match[1]) * (7 if weeks else 1))


def _weekday(match: re.Match[str], today: date) -> date | None:
    which = (match["which"] or "").lower()
    named = match["day"].lower()
    place = "一二三四五六日天".find(named)
    day = min(place, 6) if place >= 0 else next(n for n, name in enumerate(DAYS) if name.startswith(named[:3]))
    monday = today - timedelta(days=today.weekday())
    if which in ("next", "下", "下个"):
        return monday + timedelta(days=7 + day)
    if which in ("这", "本", "这个"):
        return monday + timedelta(days=day)
    return today + timedelta(days=(day - today.weekday() - 1) % 7 + 1)  # the next one; today's weekday means in a week


_ORDINAL = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATES: list[tuple[re.Pattern[str], Callable[..., date | None]]] = [
    (re.compile(pattern, FLAGS), read)
    for pattern, read in (
        (r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", _iso),
        (r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})?(?!\d)", _dotted),
        (r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?!\d)", _slashed),
        (rf"\b{_ORDINAL}\.?(?:\s+of)?\s+(?P<month>{_MONTH})\b\.?(?:,?\s+(?P<year>\d{{4}})(?!\d))?", _named),
        (rf"\b(?P<month>{_MONTH})\.?\s+{_ORDINAL}(?![\d:])(?:,?\s+(?P<year>\d{{4}})(?!\d))?", _named),
        (rf"(?:(\d{{4}})年)?({_HAN})月({_HAN})[日号]", _han_date),
        (r"\b(?:day\s+after\s+tomorrow|today|tonight|tomorrow|yesterday)\b", _word),
        ("大后天|后天|今天|今日|明天|明日|昨天", _word),
        (rf"\bin\s+({_COUNT})\s+(days?|weeks?)\b", _ahead),
        (rf"\b({_COUNT})\s+(days?|weeks?)\s+from\s+(?:now|today)\b", _ahead),
        (rf"({_HAN})\s*(天|日|周|个?星期|个?礼拜)(?:之|以)?后", _ahead),
        (rf"\b(?:(?P<which>next|this|coming|on)\s+)?(?P<day>{_DAY})\b", _weekday),
        ("(?P<which>下个?|这个?|本)?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])", _weekday),
    )
]


def dates(text: str, today: date) -> list[Found]:
    """Return the days that a text names.

    >>> [str(found.value) for found in dates("tomorrow, 7 March, 下周一 or 03/04/2030", date(2030, 3, 5))]
    ['2030-03-06', '2030-03-07', '2030-03-11']
    """
    return _apart(found for pattern, read in _DATES for found in _each(pattern, text, partial(read, today=today)))


def read_day(text: str, today: date) -> date | None:
    """Return the day that an answer names in another language, by dateparser. Without the package, return None.

    An answer has to contain a word: of digits alone, such as 03/04/2030, nobody knows what they mean.
    """
    if not re.search(r"[^\W\d_]{3}", text):
        return None
    try:
        import dateparser
    except ImportError:
        return None
    base = datetime.combine(today, time())
    found = dateparser.parse(
        text, languages=LANGUAGES, settings={"RELATIVE_BASE": base, "PREFER_DATES_FROM": "future"}
    )  # fmt: skip
    return None if found is None else found.date()


# times of day


def _clock(match: re.Match[str]) -> time | None:
    return _o_clock(int(match[1]), int(match[2]), (match[3] or "").lower())


def _o_clock(hour: int, minute: int, half: str) -> time:
    if half and not 1 <= hour <= 12:
        raise ValueError(f"{hour} {half}")
    return time((hour % 12 + (12 if half.startswith("p") else 0)) if half else hour, minute)


def _hour(match: re.Match[str]) -> time | None:
    return _o_clock(int(match[1]), 0, (match[2] or "").lower())


def _han_time(match: re.Match[str]) -> time | None:
    part, hour = match["part"] or "", number(match["hour"])
    minute = 30 if match["half"] else number(match["minute"]) if match["minute"] else 0
    if not (part or match["half"] or match["minute"] or match["hour"].isdecimal()):
        return None  # 一点 is also "a little"
    return time(hour + 12 if part in ("下午", "晚上") and hour < 12 else hour, minute)


_TIMES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], time | None]]] = [
    (re.compile(pattern, FLAGS), read)
    for pattern, read in (
        (r"(?<![\d:])(\d{1,2}):(\d{2})(?![\d:])(?:\s?([ap])\.?m\b)?", _clock),
        (r"(?<![\d:])(\d{1,2})\s?([ap])\.?m\b", _hour),
        (r"(?<![\d:])(\d{1,2})\s?()o'clock\b", _hour),
        (r"\bnoon\b|中午(?!\d|[零一二三四五六七八九十两]{1,3}点)", lambda match: time(12)),
        (rf"(?P<part>上午|早上|中午|下午|晚上)?(?P<hour>{_HAN})[点时](?:(?P<half>半)|(?P<minute>{_HAN})分?)?",
         _han_time),
    )
]  # fmt: skip


def times(text: str) -> list[Found]:
    """Return the times of day that a text names.

    >>> [f"{found.value:%H:%M}" for found in times("2:30 pm, 14:05, 3pm, noon, 下午三点半, 10点15分")]
    ['14:30', '14:05', '15:00', '12:00', '15:30', '10:15']
    """
    return _apart(found for pattern, read in _TIMES for found in _each(pattern, text, read))


def _each(pattern: re.Pattern[str], text: str, read: Callable[[re.Match[str]], Any]) -> Iterator[Found]:
    for match in pattern.finditer(text):
        try:
            value = read(match)
        except (ValueError, OverflowError):  # no such day, for example 30 February
            continue
        if value is not None:
            yield Found(value, *match.span())


def _apart(found: Iterator[Found]) -> list[Found]:
    """Return the matches in order. Of overlapping matches, keep the longest."""
    kept: list[Found] = []
    for each in sorted(found, key=lambda each: each.start - each.end):
        if all(each.end <= other.start or other.end <= each.start for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda each: each.start)
