"""Ways out of a pause: why a resume would not run a session now, and the exact commands that help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pausepoint.cli.exits import Refused
from pausepoint.errors import PausepointError

if TYPE_CHECKING:
    from pausepoint.cli.context import Cli
    from pausepoint.engine.engine import Engine
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import Obstacles, SessionInfo

_CALL = re.compile(r"""session\.(resume|rewind|fork|ask_again)\((?:code=|at_step=)?['"]([^'"]*)['"]\)""")
_NAMED = re.compile(r"`([^`]+)`")
_OPTIONS = {"resume": "--code", "rewind": "--to", "fork": "--at-step", "ask_again": "--question"}


async def retest(cli: Cli, engine: Engine, info: SessionInfo, pauses: Iterable[Pause]) -> Obstacles | None:
    """Test the stored pauses of a session again, as a resume does. None if its code cannot be loaded here."""
    if all(pause.kind == "operator" for pause in pauses):
        return None
    try:
        if info.workflow not in engine.workflows:
            engine.register(cli.known()[info.workflow][1])
        return await engine.session(info.session_id).obstacles()
    except (Refused, PausepointError, KeyError):
        return None  # the stored pause is all that is known; the command that needs the code says what is wrong


def reasons_now(cli: Cli, info: SessionInfo, pauses: Sequence[Pause], now: Obstacles | None) -> list[str]:
    """Return what has changed since the pauses were stored, and what to do about code that does not fit."""
    if now is None:
        return []
    known = " ".join(pause.reason for pause in pauses)
    lines = [f"A resume would not run it: {reason}" for reason in now.reasons if _bare(reason) not in known]
    if now.ways:
        lines.append(f"What to do: {with_commands('; or '.join(now.ways), cli, info)}.")
    elif not now.reasons and any(_is_tested(pause) for pause in pauses):
        lines.append("That is no longer so: a resume continues the session.")
    return lines


def _bare(reason: str) -> str:
    """Return a reason without the kind and the place that a plan adds to it."""
    found = re.fullmatch(r"(?:[a-z]+: )?(.*?)(?: \((?:at|after) \S+\))?", reason, re.DOTALL)
    return found[1] if found else reason


def _is_tested(pause: Pause) -> bool:
    from pausepoint.engine.obstacles import TRIED

    return pause.kind not in ("operator", *TRIED)


def with_commands(text: str, cli: Cli, info: SessionInfo) -> str:
    """Return an engine's message with commands instead of Python calls."""
    return _CALL.sub(lambda found: f"`{_command(found, cli, info)}`", text)


def _command(found: re.Match[str], cli: Cli, info: SessionInfo) -> str:
    verb, value = found[1], found[2]
    known = verb.replace("_", "-")
    base = cli.resume(info) if verb == "resume" else cli.command(known, info.session_id, info.workflow)
    return f"{base} {shlex.join([_OPTIONS[verb], value])}"


def ways_to_ask_again(cli: Cli, info: SessionInfo) -> list[tuple[str, str]]:
    """Return the label and the command for a session that failed because of a question, which a resume keeps."""
    from pausepoint.model.ways import unanswered  # only a failure needs it

    question = unanswered(info.failure)
    if question is None:
        return []
    base = cli.command("ask-again", info.session_id, info.workflow)
    named = f" {shlex.join(['--question', question])}" if question else ""
    return [(f"Ask again{cli.to_add(info)}:", f"{base}{named} --run")]


def ways_out(
    cli: Cli, info: SessionInfo, pauses: Iterable[Pause], now: Obstacles | None, planned: bool
) -> list[tuple[str, str]]:
    """Return labels and commands for a paused session. ``planned``: the plan is already shown."""
    pauses = list(pauses)
    resume, add, kinds = cli.resume(info), cli.to_add(info), {pause.kind for pause in pauses}
    if now is not None and now.ways:
        return [*_calls(cli, info, now), ("Resume with fitting code:", resume)]
    found: list[tuple[str, str]] = []
    if "mismatch" in kinds:
        accept = f"{resume} --code accept"
        found += [(f"Run it again{add}:", accept) for pause in pauses if "code='accept'" in pause.reason]
    if now is not None and not now.reasons:
        return [*found, ("Resume:", resume)]
    if "definition" in kinds and now is None and not planned:
        found.append((f"Show what no longer fits{add}:", cli.command("plan", info.session_id, info.workflow)))
    named = _named_commands(cli, info, pauses)
    found += named
    if kinds & {"guard", "missing"} and not named:
        found.append((f"Change the state{add}:", cli.command("edit", info.session_id, info.workflow)))
    return [*found, (f"Resume{add}:", resume + _budget(pauses))]


def _named_commands(cli: Cli, info: SessionInfo, pauses: Iterable[Pause]) -> list[tuple[str, str]]:
    """Return the commands of the program that the reasons of guards name in backticks, with the session."""
    if info.workflow not in cli.host.workflows_by_name:
        return []
    found = [words.split() for pause in pauses if pause.kind == "guard" for words in _NAMED.findall(pause.reason)]
    ways = [(cli.command(verb, info.session_id, info.workflow), rest) for verb, *rest in found
            if verb in cli.host.commands]  # fmt: skip
    return [("What helps:", " ".join([command, shlex.join(rest)]).strip()) for command, rest in ways]


def _budget(pauses: Iterable[Pause]) -> str:
    """Return the option that raises the limit which paused the session; empty if none did."""
    for pause in pauses:
        if pause.kind == "budget":
            kind = next((kind for kind in ("tokens", "operations") if f" {kind} of the budget" in pause.reason), "")
            return f" --budget {kind}=N" if kind else " --budget USD"
    return ""


def _calls(cli: Cli, info: SessionInfo, now: Obstacles) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for way in now.ways:
        call = _CALL.search(way)
        if call is not None:
            label = way[: call.start()].rstrip(": ")
            found.append((f"{label[:1].upper()}{label[1:]}:", _command(call, cli, info)))
    return found
