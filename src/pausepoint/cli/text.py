"""How sessions are spoken of: short ids, what is notable, why one stands still, and the command that is the way out."""

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
from pausepoint.cli.host import spoken
from pausepoint.clock import to_datetime
from pausepoint.errors import SessionError

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.cli.context import Cli
    from pausepoint.engine.engine import Engine
    from pausepoint.model.questions import Question
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import SessionInfo


LEAST = 6
"""How many characters of an id are shown at least: it should still be unique tomorrow."""

MANY = 200
"""In a longer list neither ids are cut nor the reasons of pauses looked up: that is done one by one."""

ASKED = 5
"""How many questions of one session are spoken of."""

RUN = " --run"

_GENERATED = re.compile(r"[0-9a-hjkmnp-tv-z]{12}|.+\.[0-9a-f]{16}")


def short_ids(ids: Iterable[str], least: int = LEAST) -> dict[str, str]:
    """The beginnings that tell ids apart. Only those that nobody chose are cut: a name is shown whole.

    In the id of a child both parts are cut; `Engine.find` knows them so. A beginning that a session shares with its
    children alone means the session.

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
    """The shortest beginnings by which `Engine.find` knows these sessions, where a terminal shows them.

    Costs two looks at an index for each. In a long list ids stay as they are.
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
    """A text in one line that cannot move a terminal's cursor.

    >>> one_line("a\\n  b\\x1b[2J")
    'a b\\\\x1b[2J'
    """
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """A line with what a terminal might obey made visible."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def value(content: Any, most: int | None = None) -> str:
    """A stored value in one line, cut where there is no more room.

    >>> value(["a", 1]), value("x" * 40, 12)
    ('["a", 1]', '"xxxx… (40 characters)')
    """
    text = one_line(json.dumps(content, ensure_ascii=False))
    if most is None or len(text) <= most:
        return text
    tail = f"… ({_extent(content)})"
    return text[: max(most - len(tail), 5)] + tail


def _extent(content: Any) -> str:
    """How much there is of a value.

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
    """A number of things.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def clock(moment: datetime, now: datetime | None = None) -> str:
    """A time of day where a person is, with the date if that is another day."""
    local, today = moment.astimezone(), (now or datetime.now().astimezone()).astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M:%S}" if abs(today - local) > timedelta(days=180) else f"{local:%d %b %H:%M}"


def place(info: SessionInfo) -> str:
    """Where a session stands: ``write#2``, or just the step on its first visit; ``behind write`` if that has ended."""
    if info.step is None:
        return ""
    name = info.step if info.visit == 1 else f"{info.step}#{info.visit}"
    return f"behind {name}" if info.held_by_guard else name


def at(info: SessionInfo) -> str:
    """The same as a part of a sentence, with the space before it: `` at write#2``."""
    return f"{'' if info.held_by_guard else ' at'} {place(info)}" if info.step else ""


def note(info: SessionInfo, pauses: Iterable[Pause] = (), questions: Sequence[Question] = ()) -> str:
    """What is notable about a session, in a few words."""
    asked = "asked to cancel" if info.cancel_requested else ""
    match info.status.value:
        case "running":
            done = f"{info.progress[0]}/{info.progress[1]}" if info.progress else ""
            return ", ".join(filter(None, (done, asked)))
        case "pausing":
            return f"still finishing {info.step}#{info.visit}"
        case "paused":
            return "; ".join(reason(pause) for pause in pauses)
        case "waiting" if questions:
            more = f" (and {len(questions) - 1} more)" if len(questions) > 1 else ""
            return one_line(f"asks: {questions[0].next_question}{more}")
        case "waiting":
            return waits(info)
        case "sleeping" if info.wakes_at:
            return f"until {clock(info.wakes_at)} ({ago(info.wakes_at)})"
        case "failed" if info.failure:
            return one_line(f"{info.failure.type}: {info.failure.message}")
        case "ready":
            return "nobody drives it"
    return ""


def waits(info: SessionInfo) -> str:
    """What a session waits for.

    A timer beside it ends the wait too.
    """
    kinds = " or ".join(f"an {kind}" if kind == "answer" else f"a {kind}" for kind in info.waiting)
    until = f", at most until {clock(info.wakes_at)}" if info.wakes_at else ""
    return f"for {kinds}{until}"


async def asked(engine: Engine, info: SessionInfo, most: int = ASKED) -> list[Question]:
    """The questions for whose answers a session waits, or one that it called does."""
    if info.status.value != "waiting" or not {"answer", "child"} & set(info.waiting):
        return []
    return list(await engine.questions(info.session_id, limit=most))


def wanted(question: Question) -> str:
    """What an answer looks like, where the question alone does not say it."""
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


def left(question: Question, now: datetime | None = None) -> str:
    """How much time there is for an answer."""
    if question.expired_at is None:
        return "no limit"
    rest = question.expired_at - (now or datetime.now(UTC))
    return f"{span(rest)} left" if rest > timedelta(0) else "expired"


def _asks(question: Question) -> str:
    again = f"again ({question.complaint})" if question.complaint else ""
    where = f"in {question.sub_chain_id}" if question.sub_chain_id else ""
    known = "; ".join(filter(None, (wanted(question), again, left(question), where)))
    return one_line(f"It asks: {question.next_question} ({known})")


def reason(pause: Pause) -> str:
    """Why a session stands still."""
    if pause.kind == "operator":
        who = pause.by or "somebody"
        return one_line(f"{who}: {pause.reason}" if pause.reason else f"asked by {who}")
    return one_line(f"{pause.kind}: {pause.reason}")


async def standing(cli: Cli, engine: Engine, info: SessionInfo, then: str = "") -> list[str]:
    """Why a session stands still, and the way out: the exact command. Empty if nothing is to be done."""
    return [*await reasons(engine, info), *await way_lines(cli, engine, info, then)]


async def way_lines(cli: Cli, engine: Engine, info: SessionInfo, then: str = "") -> list[str]:
    """What can be done now, one a line; ``then`` is the command that comes after what is awaited."""
    found = await ways(cli, engine, info, goes_on=bool(then))
    if then and info.status.value == "waiting" and not any(how.endswith(RUN) for _, how in found):
        found = [*found, ("Then:", then)]
    width = max((len(what) for what, _ in found), default=0)
    return [f"{what.ljust(width)}  {command}" for what, command in found]


async def reasons(engine: Engine, info: SessionInfo) -> list[str]:
    """Why a session stands as it does, one a line."""
    told = {
        "created": "It was never driven.",
        "ready": "It could go on, and nobody drives it.",
        "cancelled": "It was cancelled.",
    }.get(info.status.value)
    lines = [told] if told else []
    match info.status.value:
        case "running" | "pausing":
            lines = [f"It is driven by {info.holder}."]
            if info.status.value == "pausing":
                lines.append(f"It is still finishing {info.step}#{info.visit} and stands still then.")
                lines += [_why(pause) for pause in await engine.pauses(info.session_id)]
        case "paused":
            pauses = await engine.pauses(info.session_id)
            lines = [_why(pause) for pause in pauses if not pause.standing]
            if any(pause.standing for pause in pauses) and (standing := await engine.standing_pause()) is not None:
                lines.insert(0, still(standing))
        case "failed" if info.failure is not None:
            tries = f" after {info.failure.attempts} attempts" if info.failure.attempts > 1 else ""
            said = one_line(f"{info.failure.type}: {info.failure.message}")
            lines = [f"It failed in {info.failure.step}#{info.visit}{tries}: {said}"]
        case "waiting" if questions := await asked(engine, info):
            lines = [_asks(each) for each in questions]
        case "waiting":
            lines = [f"It waits {waits(info)}."]
            lines += [_child(child) for child in (await _open_children(engine, info))[:5]]
        case "sleeping" if info.wakes_at:
            lines = [f"It sleeps until {clock(info.wakes_at)} ({ago(info.wakes_at)}); a worker wakes it then."]
    return lines


def _why(pause: Pause) -> str:
    who = f" by {pause.by}" if pause.by else ""
    if pause.kind == "operator":
        return one_line(f"It was paused{who}" + (f": {pause.reason}" if pause.reason else "."))
    where = "behind" if pause.kind == "guard" else "at"
    at = f" {where} {pause.step}" if pause.step else ""
    return one_line(f"It paused itself{at} ({pause.kind}): {pause.reason}")


def still(pause: Pause, finishing: int = 0) -> str:
    """That everything stands still, or is to, while some are ``finishing``: since when, who asked for it, and why."""
    since = to_datetime(pause.created_at)
    who = f", by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    stands = "is to stand still" if finishing else "stands still"
    rest = f"; {counted(finishing, 'session')} still {'finishes' if finishing == 1 else 'finish'}" if finishing else ""
    return one_line(f"Everything in this store {stands} since {clock(since)} ({ago(since)}){who}{why}{rest}")


def _child(child: SessionInfo) -> str:
    return f"  {child.session_id} is {child.status.value} {note(child)}".rstrip()


async def _open_children(engine: Engine, info: SessionInfo) -> list[SessionInfo]:
    called = await engine.children(info.session_id)
    return [each for each in called if each.status.value not in ("completed", "cancelled")]


async def ways(cli: Cli, engine: Engine, info: SessionInfo, goes_on: bool = False) -> list[tuple[str, str]]:
    """What can be done now: words and the exact command. ``goes_on``: an answer is to drive the session on as well."""
    name, workflow = info.session_id, info.workflow
    resume = cli.resume(info)
    match info.status.value:
        case "created" | "ready" | "failed":
            return [("Go on:", resume)]
        case "running":
            return [("Watch it:", cli.command("watch", name)), ("Stop it:", cli.command("pause", name))]
        case "pausing":
            return [("Let it go on:", resume)]
        case "paused":
            pauses = await engine.pauses(name)
            all_go_on = [("Let everything go on:", cli.lift)] if any(pause.standing for pause in pauses) else []
            return [*all_go_on, *_out_of(cli, info, {pause.kind for pause in pauses})]
        case "waiting" if questions := await asked(engine, info):
            code, run = (workflow, RUN) if goes_on else (None, "")
            return [("Answer:", cli.command("answer", each.id, code) + run) for each in questions]
        case "waiting" if "message" in info.waiting:
            return [("Answer:", f"{cli.command('send', name)} MESSAGE")]
        case "waiting":
            some = (await _open_children(engine, info))[:5]
            return [("Look at the child:", cli.command("show", each.session_id)) for each in some]
        case "sleeping":
            return [("Wake it now:", f"{resume} --wake"), ("Drive what is due:", spoken("worker"))]
        case "cancelled":
            return [("Begin anew from it:", cli.command("fork", name, workflow))]
    return []


def _out_of(cli: Cli, info: SessionInfo, kinds: set[str]) -> list[tuple[str, str]]:
    name, workflow = info.session_id, info.workflow
    resume = cli.resume(info)
    found = []
    if "budget" in kinds:
        resume += " --budget USD"
    if kinds & {"guard", "missing"}:
        found.append(("Change the state:", cli.command("edit", name, workflow)))
    if "definition" in kinds:
        found.append(("See what no longer fits:", cli.command("plan", name, workflow)))
        found.append(("Take the code as it is:", f"{resume} --code accept"))
    return [*found, ("Go on:", resume)]


def size(count: float) -> str:
    """A number of bytes as it is read.

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
    import textwrap

    text = one_line(text)
    room = max(out.width - indent, 30)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) if out.terminal else [text]
    out.line(head + (lines[0] if lines else ""))
    for line in lines[1:]:
        out.line(" " * indent + line)


TRACE_LINES = 12
"""How much of a traceback a terminal shows; the end of it tells most."""


_ENGINE = re.compile(r'[/\\]pausepoint[/\\](runtime[/\\]\w+|threads)\.py"')


def traceback(cli: Cli, info: SessionInfo, full: bool = False) -> list[str]:
    """Where it failed. A terminal shows the end of it, without the engine's own frames."""
    lines = info.failure.traceback.rstrip().splitlines() if info.failure is not None else []
    kept = lines if full or not cli.out.terminal else own_frames(lines)[-TRACE_LINES:]
    whole = f"{cli.command('show', info.session_id)} --full"
    more = [f"  … {counted(len(lines) - len(kept), 'more line')}: {whole}"] if len(kept) < len(lines) else []
    return [cli.out.paint(line, dim=True) for line in [*(f"  {printable(line)}" for line in kept), *more]]


def own_frames(lines: Sequence[str]) -> list[str]:
    """A traceback without the frames that call a step, which are the same every time.

    >>> own_frames(['  File "/x/pausepoint/engine.py", line 1, in run', '    go()', '  File "a.py"', 'E: e'])
    ['  File "a.py"', 'E: e']
    """
    kept, inside = [], False
    for line in lines:
        if line.startswith("  File "):
            inside = _ENGINE.search(line) is not None
        elif not line.startswith("   "):
            inside = False
        if not inside:
            kept.append(line)
    return kept
