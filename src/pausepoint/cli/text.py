"""Text for people: short ids, values, times, sizes, and phrases about sessions, pauses and questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import ago, span
from pausepoint.cli.context import Cli
from pausepoint.clock import to_datetime
from pausepoint.errors import SessionError
from pausepoint.model.marks import marked, marked_line
from pausepoint.model.queues import DEFAULT_QUEUE

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.engine.engine import Engine
    from pausepoint.model.approvals import Approval
    from pausepoint.model.questions import Question
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import Finishing, SessionInfo, StandingPause

LEAST = 6
"""The least number of characters of a shortened id, so that it stays unique for a while."""

MANY = 200
"""Longer lists show whole ids and no pause reasons, because both need a query per session."""

FOLD = 80
"""Longer lists and objects are shown with one item per line."""

_GENERATED = re.compile(r"[0-9a-hjkmnp-tv-z]{12}|.+\.[0-9a-f]{16}")


def short_ids(ids: Iterable[str], least: int = LEAST) -> dict[str, str]:
    """Return the shortest beginnings that tell ids apart. Only generated ids are cut; chosen names are shown whole.

    In a child's id both parts are cut; `Engine.find` accepts that. A beginning that only a session and its children
    share means the session.

    >>> short_ids(["k3f9abcd1234", "k3f9abxx1234", "k3f9abcd1234.8348ead81984f650", "student-7"])
    {'k3f9abcd1234': 'k3f9abc', 'k3f9abcd1234.8348ead81984f650': 'k3f9abc.8348', 'k3f9abxx1234': 'k3f9abx', \
'student-7': 'student-7'}
    """
    listed = sorted(set(ids))
    found: dict[str, str] = {}
    for index, each in enumerate(listed):
        above, dot, _ = each.rpartition(".")
        before = listed[index - 1] if index else ""
        after = next((other for other in islice(listed, index + 1, None) if not other.startswith(f"{each}.")), "")
        needed = max(_shared(each, before), _shared(each, after)) + 1
        if not _GENERATED.fullmatch(each):
            found[each] = each
        elif dot:
            found[each] = found.get(above, above) + each[len(above) : max(needed, len(above) + 5)]
        else:
            found[each] = each[: max(needed, least)]
    return found


async def shortened(cli: Cli, engine: Engine, ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest beginnings by which `Engine.find` finds these sessions, for a terminal.

    Each id costs two index lookups, so in a long list ids stay whole.
    """
    if not cli.out.terminal or len(ids) > MANY:
        return {}
    found: dict[str, str] = {}
    for each in sorted(set(ids)):
        above, dot, own = each.rpartition(".")
        head, least = (found.get(above, above) + dot, 4) if dot else ("", LEAST)
        found[each] = await _shortest(engine, each, [head + own[:length] for length in range(least, len(own))])
    return found


async def _shortest(engine: Engine, session_id: str, beginnings: list[str]) -> str:
    for each in beginnings if _GENERATED.fullmatch(session_id) else ():
        with suppress(SessionError):
            if (await engine.find(each)).session_id == session_id:
                return each
    return session_id


def _shared(one: str, other: str) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def one_line(text: str) -> str:
    """Return the text as one line, with visible marks instead of control characters.

    >>> one_line("a\\n  b\\x1b[2J\\u2028c")
    'a b␛[2J‹U+2028›c'
    """
    return " ".join(marked(text).split())


def value(content: Any, most: int | None = None) -> str:
    """Return a stored value as one line, cut at ``most`` characters.

    >>> value(["a", 1]), value("x" * 40, 12)
    ('["a", 1]', '"xxxx… (40 characters)')
    """
    text = one_line(json.dumps(content, ensure_ascii=False))
    if most is None or len(text) <= most:
        return text
    tail = f"… ({_extent(content)})"
    return text[: max(most - len(tail), 5)] + tail


def folded(content: Any, indent: int) -> list[str]:
    """Return a stored value as lines: one if it is short, otherwise one per item, indented after the first.

    >>> folded(["a", 1], 2), folded(["x" * 60, "y" * 60], 2)[1:3]
    (['["a", 1]'], ['    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",', \
'    "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"'])
    """
    whole = value(content)
    if len(whole) <= FOLD or not isinstance(content, list | dict):
        return [whole]
    first, *rest = json.dumps(content, ensure_ascii=False, indent=2).splitlines()
    return [first, *(" " * indent + marked_line(line) for line in rest)]


def _extent(content: Any) -> str:
    """Return the size of a value.

    >>> _extent("abc"), _extent([1]), _extent({"a": 1, "b": 2})
    ('3 characters', '1 item', '2 entries')
    """
    match content:
        case str():
            return counted(len(content), "character")
        case list():
            return counted(len(content), "item")
        case dict():
            return counted(len(content), "entry", "entries")
    return counted(len(str(content)), "digit")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def clock(moment: datetime, now: datetime | None = None) -> str:
    """Return the local time of day, with the date if it is not today."""
    local, today = moment.astimezone(), (now or datetime.now().astimezone()).astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M:%S}" if abs(today - local) > timedelta(days=180) else f"{local:%d %b %H:%M}"


def position(info: SessionInfo) -> str:
    """Return a session's position: ``write#2``, ``write`` on the first visit, ``after write`` if it has ended."""
    if info.step is None:
        return ""
    name = info.step if info.visit == 1 else f"{info.step}#{info.visit}"
    return f"after {name}" if info.held_by_guard else name


def position_phrase(info: SessionInfo) -> str:
    """Return the position as part of a sentence, with a leading space: `` at write#2``."""
    return f"{'' if info.held_by_guard else ' at'} {position(info)}" if info.step else ""


def turn_facts(info: SessionInfo) -> dict[str, str]:
    """Return the queue, the priority and the lane of a session, those that are not the default."""
    found = {"queue": info.queue, "priority": str(info.priority), "lane": one_line(info.lane or "")}
    usual = {"queue": DEFAULT_QUEUE, "priority": "0", "lane": one_line(info.owner or "")}
    return {name: value for name, value in found.items() if value != usual[name]}


def short_holder(holder: str) -> str:
    """Return the process that holds a session, without the time when it opened the store."""
    return holder.partition(",")[0]


def limited(info: SessionInfo) -> list[str]:
    """Return the tokens and operations that a session has used of its budget, where the budget limits them."""
    used = {"tokens": (info.spent_tokens, info.budget_tokens)}
    used["operations"] = (info.spent_operations, info.budget_operations)
    return [f"{spent:,} of {most:,} {what}" for what, (spent, most) in used.items() if most is not None]


def wait_phrase(info: SessionInfo) -> str:
    """Return what a session waits for. A timer ends the wait, too."""
    kinds = " or ".join(f"an {kind}" if kind == "answer" else f"a {kind}" for kind in info.waiting)
    until = f", at most until {clock(info.wakes_at)}" if info.wakes_at else ""
    return f"for {kinds}{until}"


def answer_hint(question: Question) -> str:
    """Return what form an answer must have, or an empty string for plain text."""
    schema = question.answer_schema or {}
    if question.kind == "confirm":
        return "yes or no"
    if question.choices is not None:
        return f"one of {', '.join(map(str, question.choices))}"
    if question.kind != "collect" and (properties := schema.get("properties")):
        return f"with {', '.join(properties)}"
    return {"integer": "a whole number", "number": "a number", "boolean": "yes or no", "array": "a list"}.get(
        str(schema.get("type")), ""
    )


def approval(question: Question) -> Approval | None:
    """Return the call that a question asks a person to approve, if it does."""
    from pausepoint.model.approvals import approval_of  # the help of a command does not need it

    return approval_of(question.payload)


def time_left(question: Question, now: datetime | None = None) -> str:
    """Return how much time is left for an answer."""
    if question.expired_at is None:
        return "no limit"
    rest = question.expired_at - (now or datetime.now(UTC))
    return f"{span(rest)} left" if rest > timedelta(0) else "expired"


def standing_pause_line(pause: Pause, finishing: int = 0) -> str:
    """Return a line about a pause of everything: since when, by whom, why, and how many sessions still finish."""
    since = to_datetime(pause.created_at)
    who = f", by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    head = f"Everything in this store has been {'pausing' if finishing else 'paused'}"
    rest = f"; {counted(finishing, 'session')} still finishing" if finishing else _stopped(pause)
    return one_line(f"{head} since {clock(since)} ({ago(since)}){who}{why}{rest}")


def _stopped(pause: Pause) -> str:
    """Return how long the sessions took to stop that ran when everything was paused."""
    from pausepoint.model.views import StandingPause  # the help of a command does not need it

    if not isinstance(pause, StandingPause) or pause.longest is None:
        return ""
    return f"; {counted(pause.asked, 'running session')} stopped, the last one within {span(pause.longest)}"


def finishing_lines(pause: StandingPause, most: int = 5) -> list[str]:
    """Return a line for each operation that is still finishing, at most ``most``."""
    lines = [_finishing_line(each) for each in pause.finishing[:most]]
    left = len(pause.finishing) - len(lines)
    return lines + ([f"… and {counted(left, 'more operation')}"] if left else [])


def _finishing_line(each: Finishing) -> str:
    what = f"{each.operation} of {each.step}" if each.operation else each.step or "its step"
    return one_line(f"{each.session_id} is finishing {what}; it was asked to stop {ago(each.since)}")


def size(count: float) -> str:
    """Return a number of bytes as text.

    >>> size(0), size(1023), size(4096), size(5_400_000), size(7 * 2**40)
    ('0 B', '1023 B', '4.0 KiB', '5.1 MiB', '7168.0 GiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024 or unit == "GiB":
            break
    return f"{count:.1f} {unit}"


def wrap_after(out: Output, head: str, indent: int, text: str) -> None:
    """Print ``head`` and then the text, wrapped on a terminal with its further lines indented."""
    import textwrap

    text = one_line(text)
    room = max(out.width - indent, 30)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) if out.terminal else [text]
    out.line(head + (lines[0] if lines else ""))
    for line in lines[1:]:
        out.line(" " * indent + line)


TRACE_LINES = 12
"""The number of lines at the end of a traceback that a terminal shows."""


def traceback(cli: Cli, info: SessionInfo, full: bool = False) -> list[str]:
    """Return the lines of a session's traceback. On a terminal, only the end of it."""
    lines = info.failure.traceback.rstrip().splitlines() if info.failure is not None else []
    kept = lines if full or not cli.out.terminal else lines[-TRACE_LINES:]
    whole = f"{cli.command('show', info.session_id)} --full"
    more = [f"  … {counted(len(lines) - len(kept), 'more line')}: {whole}"] if len(kept) < len(lines) else []
    return [cli.out.paint(line, dim=True) for line in [*(f"  {marked_line(line)}" for line in kept), *more]]
